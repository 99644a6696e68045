(* Kinks (theory.md, section 6): the feed-forward network, what one ReLU unit represents exactly, and sharp heads. *)
From Coq Require Import Reals Lra Lia List.
From Coquelicot Require Import Coquelicot.
From Onelayer Require Import Softmax Vectors Attention.
Import ListNotations.
Open Scope R_scope.

Definition relu (z : R) : R := Rmax 0 z.

(* W2 relu(W1 z + b1) + b2 *)
Definition network (W1 : list vec) (b1 : vec) (W2 : list vec) (b2 : vec) (z : vec) : vec :=
  affine W2 b2 (map relu (affine W1 b1 z)).

(* "|u| = 2 relu(u) - u and the affine part goes to the read-out." *)
Theorem abs_by_relu u : Rabs u = 2 * relu u - u.
Proof. unfold relu, Rabs, Rmax; destruct Rcase_abs, Rle_dec; lra. Qed.

Theorem max_by_relu u v : Rmax u v = u + relu (v - u).
Proof. unfold relu, Rmax; repeat destruct Rle_dec; lra. Qed.

Lemma relu_difference z : relu z - relu (- z) = z.
Proof. unfold relu, Rmax; repeat destruct Rle_dec; lra. Qed.

Definition unit_rows (N : nat) : list vec := map (unit_row N) (seq 0 N).
Definition opposite (x : vec) : vec := map Ropp x.

Lemma affine_zeros W x : affine W (repeat 0 (length W)) x = map (fun r => dot r x) W.
Proof. unfold affine; rewrite (map_combine_zeros (fun r => dot r x)); reflexivity. Qed.

Lemma dot_opposite u : forall x, dot (opposite u) x = - dot u x.
Proof. induction u as [|a u IH]; intros [|b x]; simpl; try ring; rewrite IH; ring. Qed.

Lemma map_relu_difference z : forall N, length z = N ->
  map (fun r => dot (r ++ opposite r) (map relu z ++ map relu (opposite z))) (unit_rows N) = z.
Proof.
  intros N L; unfold unit_rows; rewrite map_map.
  transitivity (map (fun j => dot (unit_row N j) z) (seq 0 N)); [|apply dot_unit, L].
  assert (U : forall M j, length (unit_row M j) = M).
  { induction M as [|M IH]; intros [|j]; simpl; try reflexivity; [rewrite repeat_length; reflexivity|].
    rewrite IH; reflexivity. }
  apply map_ext; intros j; rewrite dot_app by (rewrite U, map_length; auto); rewrite dot_opposite.
  generalize (unit_row N j); clear; intros u; revert u; induction z as [|a z IH]; intros [|b u]; simpl; try lra.
  specialize (IH u); rewrite <- IH; generalize (relu_difference a); intros R.
  replace (b * a) with (b * (relu a - relu (- a))) by (rewrite R; reflexivity); ring.
Qed.

(* "relu(z) - relu(-z), of width 2d, is z everywhere" *)
Theorem identity_network N : exists W1 b1 W2 b2, length W1 = (2 * N)%nat /\
  forall z, length z = N -> network W1 b1 W2 b2 z = z.
Proof.
  set (W1 := unit_rows N ++ map opposite (unit_rows N)); set (W2 := map (fun r => r ++ opposite r) (unit_rows N)).
  exists W1, (repeat 0 (length W1)), W2, (repeat 0 (length W2)); split.
  { unfold W1, unit_rows; rewrite app_length, !map_length, seq_length; lia. }
  intros z L; unfold network; rewrite !affine_zeros; unfold W1, W2.
  assert (E : map (fun r => dot r z) (unit_rows N) = z) by (unfold unit_rows; rewrite map_map; apply dot_unit, L).
  assert (F : map (fun r => dot r z) (map opposite (unit_rows N)) = opposite z).
  { rewrite map_map, (map_ext _ (fun r => - dot r z)) by (intros r; apply dot_opposite).
    transitivity (opposite (map (fun r => dot r z) (unit_rows N))); [|rewrite E; reflexivity].
    unfold opposite; rewrite map_map; reflexivity. }
  rewrite map_app, E, F, map_app, map_map; apply map_relu_difference, L.
Qed.

(* "relu(z + c) - c, of width d, is z on the bounded range z >= -c" *)
Theorem identity_on_a_range c z : - c <= z -> relu (z + c) - c = z.
Proof. intros H; unfold relu, Rmax; destruct Rle_dec; lra. Qed.

(* Sharp heads. The values are the logits themselves: T = sum_m softmax(beta l)_m l_m, over any tokens with real
   scores l. If w >= (M - 1) exp(- w - 1), in particular if w exp w = (M - 1)/e, then max l - T <= w / beta. *)
Definition sharp {A} (beta : R) (l : A -> R) (mem : list A) : R := attend (fun t => beta * l t) mem l.

(* u <= exp(u - 1), with equality at u = 1 only: the step that makes the bound sharp. *)
Lemma linear_below_exp u : u <= exp (u - 1).
Proof. generalize (exp_ineq1_le (u - 1)); lra. Qed.

Theorem sharp_head {A} (beta w : R) (l : A -> R) mem t0 : 0 < beta ->
  In t0 mem -> (forall t, In t mem -> l t <= l t0) ->
  (INR (length mem) - 1) * exp (- w - 1) <= w ->
  0 <= l t0 - sharp beta l mem <= w / beta.
Proof.
  intros Hb H0 Hmax Hw; assert (Ne : mem <> nil) by (intros ->; contradiction); split.
  - assert (sharp beta l mem <= l t0) by (apply attend_below; [exact Ne|exact Hmax]); lra.
  - unfold sharp; rewrite <- (shift_invariance (- (beta * l t0))).
    set (g := fun t => beta * (l t0 - l t)).
    rewrite (attend_ext _ (fun t => - g t) mem _ (fun t => l t0 + - / beta * g t))
      by (intros t Ht; unfold g; field || ring; lra).
    rewrite attend_affine by exact Ne.
    assert (Avg : attend (fun t => - g t) mem g <= w).
    { rewrite attend_ratio by exact Ne.
      assert (Z := partition_pos (fun t => - g t) mem Ne); set (Q := partition _ mem) in *.
      apply Rmult_le_reg_r with Q; [exact Z|]; unfold Rdiv; rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
      assert (G0 : g t0 = 0) by (unfold g; ring).
      assert (S : lsum (fun t => exp (- g t) * g t + (- w) * exp (- g t)) mem
                  <= - w + (INR (length mem) - 1) * exp (- w - 1)).
      { clear Hmax Z Q Hw Ne; destruct (in_split t0 mem H0) as [m1 [m2 ->]].
        rewrite lsum_app, app_length; cbn [lsum length]; rewrite G0, Ropp_0, exp_0, plus_INR, S_INR.
        assert (P : forall m, lsum (fun t => exp (- g t) * g t + - w * exp (- g t)) m
                              <= INR (length m) * exp (- w - 1)).
        { intros m; rewrite <- (lsum_const (exp (- w - 1)) m); apply lsum_le; intros t _.
          assert (E := linear_below_exp (g t - w)); assert (X := exp_pos (- g t)).
          apply Rmult_le_compat_l with (r := exp (- g t)) in E; [|lra]; rewrite <- exp_plus in E.
          replace (- g t + (g t - w - 1)) with (- w - 1) in E by ring; lra. }
        generalize (P m1) (P m2); lra. }
      rewrite lsum_plus, lsum_scal in S; unfold Q, partition; lra. }
    apply Rle_trans with (/ beta * attend (fun t => - g t) mem g); [lra|].
    unfold Rdiv; rewrite Rmult_comm; apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, Hb|exact Avg].
Qed.

(* "0 <= max - T <= log n / beta" *)
Theorem sharp_head_log {A} (beta : R) (l : A -> R) mem t0 : 0 < beta ->
  In t0 mem -> (forall t, In t mem -> l t <= l t0) ->
  0 <= l t0 - sharp beta l mem <= ln (INR (length mem)) / beta.
Proof.
  intros Hb H0 Hmax; apply sharp_head; try assumption.
  assert (N : 1 <= INR (length mem)).
  { destruct mem; [contradiction|]; cbn [length]; rewrite S_INR; generalize (pos_INR (length mem)); lra. }
  set (M := INR (length mem)) in *.
  (* ln M >= 1 - 1/M, and the left side is (1 - 1/M) / e *)
  assert (L : 1 - / M <= ln M).
  { assert (E := exp_ineq1_le (- ln M)); rewrite exp_Ropp, exp_ln in E by lra; lra. }
  assert (I : 0 <= 1 - / M) by (assert (I := Rinv_le_contravar 1 M Rlt_0_1 N); rewrite Rinv_1 in I; lra).
  replace (- ln M - 1) with (- ln M + - (1)) by ring; rewrite exp_plus, exp_Ropp, exp_ln by lra.
  replace ((M - 1) * (/ M * exp (- (1)))) with ((1 - / M) * exp (- (1))) by (field; lra).
  assert (X := exp_le (- (1)) 0 ltac:(lra)); rewrite exp_0 in X.
  apply Rle_trans with ((1 - / M) * 1); [apply Rmult_le_compat_l; assumption|lra].
Qed.

(* Lambert's function has a value at every y >= 0. *)
Lemma lambert y : 0 <= y -> exists w, 0 <= w /\ w * exp w = y.
Proof.
  intros [Hy| <-]; [|exists 0; split; [lra|ring]].
  destruct (IVT (fun w => w * exp w - y) 0 y) as [w [Hw E]]; try lra.
  - intros w; apply continuity_pt_filterlim, (ex_derive_continuous (fun w => w * exp w - y)); auto_derive; trivial.
  - assert (E := exp_ineq1_le y); nra.
  - exists w; split; [lra|lra].
Qed.

(* "0 <= max l - T <= W((M - 1)/e) / beta, W Lambert's function" *)
Theorem sharp_head_lambert {A} (beta : R) (l : A -> R) mem t0 : 0 < beta ->
  In t0 mem -> (forall t, In t mem -> l t <= l t0) ->
  exists w, 0 <= w /\ w * exp w = (INR (length mem) - 1) / exp 1 /\ 0 <= l t0 - sharp beta l mem <= w / beta.
Proof.
  intros Hb H0 Hmax.
  assert (N : 0 <= INR (length mem) - 1).
  { destruct mem; [contradiction|]; cbn [length]; rewrite S_INR; generalize (pos_INR (length mem)); lra. }
  destruct (lambert ((INR (length mem) - 1) / exp 1)) as [w [W0 W]].
  { apply Rmult_le_pos; [exact N|left; apply Rinv_0_lt_compat, exp_pos]. }
  exists w; split; [exact W0|]; split; [exact W|]; apply sharp_head; try assumption; right.
  assert (P1 := exp_pos 1); assert (Pw := exp_pos w).
  unfold Rminus at 2; rewrite exp_plus, !exp_Ropp.
  apply Rmult_eq_reg_r with (exp w); [|lra]; rewrite W; field; lra.
Qed.

(* "attained when all but one are equal": M + 1 tokens, one of score 0 and M of score - (w + 1)/beta *)
Theorem sharp_head_attained beta w M : 0 < beta -> w * exp w = INR M / exp 1 ->
  0 - sharp beta (fun l => l) (0 :: repeat (- (w + 1) / beta) M) = w / beta.
Proof.
  intros Hb W; unfold sharp; rewrite attend_ratio by discriminate; unfold partition.
  set (c := - (w + 1) / beta).
  assert (E : forall g : R -> R, lsum g (repeat c M) = INR M * g c).
  { intros g; rewrite (lsum_ext _ (fun _ => g c)) by (intros a Ha; apply repeat_spec in Ha; subst; reflexivity).
    rewrite lsum_const, repeat_length; reflexivity. }
  cbn [lsum]; rewrite !E, !Rmult_0_r, exp_0.
  replace (beta * c) with (- w + - (1)) by (unfold c; field; lra); rewrite exp_plus, !exp_Ropp.
  assert (P1 := exp_pos 1); assert (Pw := exp_pos w).
  replace (INR M * (/ exp w * / exp 1)) with w
    by (apply Rmult_eq_reg_r with (exp w); [|lra]; rewrite W; field; lra).
  rewrite <- Rmult_assoc; replace (INR M * (/ exp w * / exp 1)) with w
    by (apply Rmult_eq_reg_r with (exp w); [|lra]; rewrite W; field; lra).
  assert (0 < 1 + w).
  { assert (0 <= w * exp w) by (rewrite W; apply Rmult_le_pos; [apply pos_INR|left; apply Rinv_0_lt_compat, P1]).
    nra. }
  unfold c; field; lra.
Qed.

(* "Every continuous piecewise linear function is a difference of two max-affine ones, so two heads represent any of
   them": the two errors have the same sign, so the larger one bounds their difference. *)
Theorem difference_of_maxima {A B} (beta w : R) (l : A -> R) (k : B -> R) meml memk a b : 0 < beta ->
  In a meml -> (forall t, In t meml -> l t <= l a) -> (INR (length meml) - 1) * exp (- w - 1) <= w ->
  In b memk -> (forall t, In t memk -> k t <= k b) -> (INR (length memk) - 1) * exp (- w - 1) <= w ->
  Rabs (sharp beta l meml - sharp beta k memk - (l a - k b)) <= w / beta.
Proof.
  intros Hb Ha Ml Wl Hb' Mk Wk; assert (El := sharp_head beta w l meml a Hb Ha Ml Wl).
  assert (Ek := sharp_head beta w k memk b Hb Hb' Mk Wk); unfold Rabs; destruct Rcase_abs; lra.
Qed.
