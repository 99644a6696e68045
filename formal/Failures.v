(* Where the printed proof fails (theory.md, section 9): row by row, the smallest case that shows it. Row 5 is in
   Determinant.v, row 16 is lookup_beta in Lookup.v, row 17 is memorise in Values.v. *)
From Coq Require Import Reals Lra Lia List Permutation.
From Coquelicot Require Import Coquelicot.
From Onelayer Require Import Softmax Vectors Attention Kinks.
Import ListNotations.
Open Scope R_scope.

(* 1. "False already for three consecutive intervals: the middle one lies in the convex hull of the other two." *)
Theorem row1_no_hyperplane : forall w c : R,
  ~ ((forall x, 1 <= x <= 2 -> 0 < w * x + c) /\
     (forall x, 0 <= x < 1 \/ 2 < x <= 3 -> w * x + c < 0)).
Proof.
  intros w c [H1 H2].
  assert (A := H1 (3 / 2) ltac:(lra)); assert (B := H2 0 ltac:(lra)); assert (C := H2 3 ltac:(lra)); lra.
Qed.

(* 2. "At a common boundary point two scores tie, and the weight is 1/2 for every scale beta." *)
Theorem row2_tie : forall s1 s2 : R -> R, forall x beta, s1 x = s2 x ->
  weight (fun i : bool => beta * (if i then s1 x else s2 x)) [true; false] true = 1 / 2.
Proof.
  intros s1 s2 x beta H; unfold weight, partition; simpl; rewrite H.
  assert (P := exp_pos (beta * s2 x)); field; lra.
Qed.

(* 3. "f = 1 on [-1, 1], T = sigmoid(-beta (x + delta)) + sigmoid(beta (x - delta)): sup error -> 1." *)
Definition sigmoid' (s : R) := / (1 + exp (- s)).
Definition two_heads beta delta x := sigmoid' (- beta * (x + delta)) + sigmoid' (beta * (x - delta)).
Theorem row3_sum_of_heads : forall delta eps, 0 < delta -> 0 < eps ->
  exists beta0, forall beta, beta0 <= beta -> 1 - eps <= Rabs (two_heads beta delta 0 - 1).
Proof.
  intros delta eps Hd He; exists (2 / (eps * delta)); intros beta Hb.
  assert (B : 2 / eps <= beta * delta).
  { apply Rmult_le_compat_r with (r := delta) in Hb; [|lra].
    replace (2 / (eps * delta) * delta) with (2 / eps) in Hb by (field; lra); exact Hb. }
  assert (S : forall u, 2 / eps <= u -> 0 < sigmoid' (- u) <= eps / 2).
  { intros u Hu; unfold sigmoid'; rewrite Ropp_involutive.
    assert (E := exp_ineq1_le u).
    assert (Q : 0 < 2 / eps) by (apply Rdiv_lt_0_compat; lra).
    split; [apply Rinv_0_lt_compat; lra|].
    replace (eps / 2) with (/ (2 / eps)) by (field; lra); apply Rinv_le_contravar; lra. }
  unfold two_heads.
  replace (- beta * (0 + delta)) with (- (beta * delta)) by ring.
  replace (beta * (0 - delta)) with (- (beta * delta)) by ring.
  destruct (S (beta * delta) B) as [S1 S2].
  unfold Rabs; destruct Rcase_abs; lra.
Qed.

(* 4. "A logit q_i . k_j contains two tokens only. With three tokens, moving x_3 changes the logit of the pair (1, 2) by
   exactly 0." *)
Definition pair_logit WQ bQ WK bK (X : list vec) (i j : nat) : R :=
  dot (affine WQ bQ (nth i X nil)) (affine WK bK (nth j X nil)) / sqrt (INR (length bQ)).
Theorem row4_two_tokens_only : forall WQ bQ WK bK x1 x2 x3 x3',
  pair_logit WQ bQ WK bK [x1; x2; x3] 0 1 - pair_logit WQ bQ WK bK [x1; x2; x3'] 0 1 = 0.
Proof. intros; unfold pair_logit; simpl; ring. Qed.

(* Self-attention over the tokens of a sequence (width 1), any number of heads; a head is a score function of the
   query token and the key token (this covers q . k of any width) and a weight: no bias in the values. *)
Definition self_head (score : R -> R -> R) (X : list R) (x : R) (v : R -> R) : R := attend (score x) X v.
Definition mha (heads : list ((R -> R -> R) * R)) (X : list R) (x : R) : R :=
  lsum (fun h => self_head (fst h) X x (fun y => snd h * y)) heads.

(* 6. "On a constant sequence the weights do not matter and MHA(x, ..., x) is linear in x: for f = abs(x) on [-1, 1] the
   error is at least 1." *)
Lemma constant_sequence : forall heads n x, mha heads (repeat x (S n)) x = lsum snd heads * x.
Proof.
  intros heads n x; unfold mha, self_head.
  rewrite (lsum_ext _ (fun h => x * snd h)); [rewrite lsum_scal; ring|].
  intros h _; assert (H : repeat x (S n) <> nil) by discriminate.
  rewrite (attend_ext _ (fst h x) _ _ (fun _ => x * snd h)); [apply attend_const, H|reflexivity|].
  intros t Ht; apply repeat_spec in Ht; subst; ring.
Qed.

Theorem row6_values_need_a_bias : forall heads n, exists x, -1 <= x <= 1 /\
  1 <= Rabs (mha heads (repeat x (S n)) x - Rabs x).
Proof.
  intros heads n; set (c := lsum snd heads).
  destruct (Rle_dec 0 c) as [H|H].
  - exists (-1); split; [lra|]; rewrite constant_sequence; fold c.
    rewrite (Rabs_left (-1)) by lra; unfold Rabs; destruct Rcase_abs; lra.
  - exists 1; split; [lra|]; rewrite constant_sequence; fold c.
    rewrite (Rabs_right 1) by lra; unfold Rabs; destruct Rcase_abs; lra.
Qed.

(* 7. "A head always returns an average of its values": with values at least c > 0 it is never silent. *)
Theorem row7_never_silent : forall (A : Type) (lg v : A -> R) mem c, mem <> nil ->
  (forall t, In t mem -> c <= v t) -> c <= attend lg mem v.
Proof. intros A lg v mem c Ne H; apply attend_above; assumption. Qed.

(* 8. "Without a positional encoding equal rows stay equal: X = (0.7, 0.7), f = (0, 1) has error at least 1/2",
   whatever the heads and the position-wise network behind them. *)
Theorem row8_positions_needed : forall heads (ffn : R -> R -> R),
  let X := [7 / 10; 7 / 10] in
  let Y := map (fun x => ffn x (mha heads X x)) X in
  1 / 2 <= Rmax (Rabs (nth 0 Y 0 - 0)) (Rabs (nth 1 Y 0 - 1)).
Proof.
  intros heads ffn X Y; simpl.
  set (y := ffn _ _); unfold Rmax, Rabs; repeat (destruct Rle_dec || destruct Rcase_abs); lra.
Qed.

(* 9. "It is equivariant: exchanging two tokens exchanges their outputs", for any permutation p of the positions; and it
   is not invariant. *)
Definition self_attention heads (X : list R) : list R := map (mha heads X) X.
Definition rearranged (p : list nat) (X : list R) : list R := map (fun i => nth i X 0) p.

Lemma rearranged_all X : rearranged (seq 0 (length X)) X = X.
Proof.
  unfold rearranged; induction X as [|x X IH]; [reflexivity|]; cbn [length seq map nth]; f_equal.
  rewrite <- seq_shift, map_map; exact IH.
Qed.

Theorem row9_equivariant : forall heads X p, Permutation p (seq 0 (length X)) ->
  self_attention heads (rearranged p X) = rearranged p (self_attention heads X).
Proof.
  intros heads X p P.
  assert (Q : Permutation (rearranged p X) X).
  { rewrite <- (rearranged_all X) at 2; apply Permutation_map, P. }
  unfold self_attention, rearranged at 2 3; rewrite map_map; apply map_ext_in; intros i Hi.
  assert (L : (i < length X)%nat) by (apply (Permutation_in _ P), in_seq in Hi; lia).
  rewrite (nth_indep (map (mha heads X) X) 0 (mha heads X 0)) by (rewrite map_length; exact L); rewrite map_nth.
  unfold mha, self_head; apply lsum_ext; intros h _; apply attend_permutation, Q.
Qed.

Theorem row9_not_invariant : exists heads X, self_attention heads (rev X) <> self_attention heads X.
Proof.
  exists [(Rmult, 1)], [0; 1]; intros H; apply (f_equal (fun Y => nth 1 Y 0)) in H.
  unfold self_attention, mha, self_head, attend, weight, partition in H; simpl in H.
  rewrite !Rmult_0_l, !Rmult_0_r, !Rmult_1_r, exp_0 in H; assert (E := exp_ineq1 1 ltac:(lra)).
  apply (Rmult_eq_compat_r (2 * (1 + exp 1))) in H; field_simplify in H; lra.
Qed.

(* 10. "Softmax never compares logits of different heads": adding any amount to all logits of a head, whatever it is
   compared with elsewhere, changes nothing. *)
Theorem row10_heads_not_compared : forall (c : (R -> R -> R) * R -> R -> R) heads X x,
  mha (map (fun h => (fun q k => fst h q k + c h q, snd h)) heads) X x = mha heads X x.
Proof.
  intros c heads X x; unfold mha, self_head; rewrite lsum_map; apply lsum_ext; intros h _; simpl.
  apply (shift_invariance (c h x) (fst h x)).
Qed.

(* 11. "Identity weights give relu(z), which is 0 for z < 0. relu(z) - relu(-z) is z everywhere." *)
Theorem row11_relu : (forall z, z < 0 -> relu z = 0) /\ forall z, relu z - relu (- z) = z.
Proof.
  split; [intros z H; unfold relu; apply Rmax_left; lra|apply relu_difference].
Qed.

(* 12. "f(x) = x with 0.10 and 0.40 in one region. Both get the same value, so one is off by at least 0.15." *)
Theorem row12_merged : forall (att ffn : R -> R), att (1 / 10) = att (4 / 10) ->
  15 / 100 <= Rmax (Rabs (ffn (att (1 / 10)) - 1 / 10)) (Rabs (ffn (att (4 / 10)) - 4 / 10)).
Proof.
  intros att ffn H; rewrite H; set (y := ffn _).
  unfold Rmax, Rabs; repeat (destruct Rle_dec || destruct Rcase_abs); lra.
Qed.

(* 13. "Both act on each position alone and identically: moving x_2 cannot change what they do at position 1"; so at
   position 1 they miss f(X)_1 = x_2 on [0, 1] by at least 1/2. *)
Theorem row13_position_wise : forall (g : R -> R) x1,
  (forall x2 x2', nth 0 (map g [x1; x2]) 0 = nth 0 (map g [x1; x2']) 0) /\
  exists x2, 0 <= x2 <= 1 /\ 1 / 2 <= Rabs (nth 0 (map g [x1; x2]) 0 - x2).
Proof.
  intros g x1; split; [reflexivity|]; simpl; destruct (Rle_dec (g x1) (1 / 2)) as [H|H].
  - exists 1; split; [lra|]; unfold Rabs; destruct Rcase_abs; lra.
  - exists 0; split; [lra|]; unfold Rabs; destruct Rcase_abs; lra.
Qed.

(* 14. "True for delta = dL/dz. With dL/dh, the unit relu(z) at z = -1 gets bias gradient 1; it is 0": the loss is
   L(h) = h, its derivative in h is 1, its derivative in the bias is 0. *)
Theorem row14_gradient : forall (L : R -> R) w x b delta, is_derive L (w * x + b) delta ->
  is_derive (fun b => L (w * x + b)) b delta /\ is_derive (fun w => L (w * x + b)) w (delta * x).
Proof.
  intros L w x b delta H; split.
  - replace delta with (scal 1 delta) by (unfold scal; simpl; unfold mult; simpl; ring).
    apply (is_derive_comp L (fun b => w * x + b)); [exact H|auto_derive; [trivial|ring]].
  - replace (delta * x) with (scal x delta) by (unfold scal; simpl; unfold mult; simpl; ring).
    apply (is_derive_comp L (fun w => w * x + b)); [exact H|auto_derive; [trivial|ring]].
Qed.

Theorem row14_wrong_delta :
  is_derive (fun h : R => h) (relu (-1)) 1 /\ is_derive (fun b => relu (0 * 0 + b)) (-1) 0.
Proof.
  split; [apply (is_derive_id (relu (-1)))|].
  apply (is_derive_ext_loc (fun _ => 0)); [|apply (is_derive_const 0)].
  exists (mkposreal 1 Rlt_0_1); intros b Hb; unfold ball in Hb; simpl in Hb; unfold AbsRing_ball in Hb; simpl in Hb.
  unfold abs, minus, plus, opp in Hb; simpl in Hb; unfold relu; rewrite Rmax_left; [reflexivity|].
  revert Hb; unfold Rabs; destruct Rcase_abs; lra.
Qed.

(* 15. "With LayerNorm after the sum and d = 1 the output is constant." *)
Definition mean (v : vec) : R := lsum (fun u => u) v / INR (length v).
Definition variance (v : vec) : R := lsum (fun u => (u - mean v) ^ 2) v / INR (length v).
Definition layer_norm (gamma beta : vec) (eps : R) (v : vec) : vec :=
  map (fun p => fst (fst p) * ((snd p - mean v) / sqrt (variance v + eps)) + snd (fst p))
    (combine (combine gamma beta) v).
Theorem row15_layer_norm : forall gamma beta eps x, layer_norm [gamma] [beta] eps [x] = [beta].
Proof.
  intros gamma beta eps x; unfold layer_norm; simpl; f_equal.
  replace (x - mean [x]) with 0 by (unfold mean; simpl; field); unfold Rdiv; ring.
Qed.
