(* Sequences without memory tokens (theory.md, section 7): gather, and order statistics by thresholds. *)
From Coq Require Import Reals Lra Lia List Permutation.
From Coquelicot Require Import Coquelicot.
From Onelayer Require Import Softmax Kinks.
Import ListNotations.
Open Scope R_scope.

(* Gather. "Head j has logit lambda for the token at position j and 0 for the others, whatever the query." x is one
   column of the sequence; every column is treated alike. *)
Definition gathered (lambda : R) (n : nat) (x : nat -> R) (j : nat) : R :=
  attend (fun i => if Nat.eqb i j then lambda else 0) (seq 0 n) x.

(* "Its output is row j of A X with A = ((e^lambda - 1) I + 1 1^T) / (e^lambda + n - 1)." *)
Theorem gather_row lambda n x j : (j < n)%nat ->
  gathered lambda n x j = ((exp lambda - 1) * x j + lsum x (seq 0 n)) / (exp lambda + INR n - 1).
Proof.
  intros H; unfold gathered; rewrite attend_ratio by (destruct n; [lia|discriminate]).
  assert (E : forall g : nat -> R, lsum (fun i => exp (if Nat.eqb i j then lambda else 0) * g i) (seq 0 n)
                                   = (exp lambda - 1) * g j + lsum g (seq 0 n)).
  { intros g; rewrite <- (lsum_point n j g H), <- lsum_scal, <- lsum_plus; apply lsum_ext; intros i _.
    destruct (Nat.eqb i j); [ring|rewrite exp_0; ring]. }
  assert (Z : partition (fun i => if Nat.eqb i j then lambda else 0) (seq 0 n) = exp lambda + INR n - 1).
  { unfold partition; rewrite (lsum_ext _ (fun i => exp (if Nat.eqb i j then lambda else 0) * 1)) by (intros; ring).
    rewrite (E (fun _ => 1)), lsum_const, seq_length; ring. }
  rewrite E, Z; reflexivity.
Qed.

(* "Hence invertible at any finite lambda": every position can recover the whole sequence from the n heads. *)
Theorem gather_invertible lambda n x j : 0 < lambda -> (j < n)%nat ->
  x j = ((exp lambda + INR n - 1) * gathered lambda n x j - lsum (gathered lambda n x) (seq 0 n)) / (exp lambda - 1).
Proof.
  intros Hl H; assert (E : 1 < exp lambda) by (rewrite <- exp_0; apply exp_increasing, Hl).
  assert (Pn : 1 <= INR n) by (apply (le_INR 1); lia).
  assert (S : lsum (gathered lambda n x) (seq 0 n) = lsum x (seq 0 n)).
  { rewrite (lsum_ext _ (fun i => (exp lambda - 1) / (exp lambda + INR n - 1) * x i
                                  + lsum x (seq 0 n) / (exp lambda + INR n - 1))).
    - rewrite lsum_plus, lsum_scal, lsum_const, seq_length; field; lra.
    - intros i Hi; apply in_seq in Hi; rewrite gather_row by lia; field; lra. }
  rewrite S, gather_row by exact H; field; lra.
Qed.

(* Order statistics. m is the k-th smallest of x when x can be rearranged into k - 1 numbers at most m, then m, then
   numbers at least m. *)
Definition kth_smallest (k : nat) (x : list R) (m : R) : Prop :=
  exists below above, Permutation x (below ++ m :: above) /\ k = S (length below) /\
    (forall u, In u below -> u <= m) /\ (forall u, In u above -> m <= u).

Definition clip (z : R) : R := Rmax 0 (Rmin 1 z).

Lemma clip_range z : 0 <= clip z <= 1.
Proof. unfold clip, Rmax, Rmin; repeat destruct Rle_dec; lra. Qed.

Lemma clip_relu z : clip z = relu z - relu (z - 1).
Proof. unfold clip, relu, Rmax, Rmin; repeat destruct Rle_dec; lra. Qed.

(* How much a count of the form sum_j r(x_j), r between 0 and 1, can be. *)
Lemma count_at_least k x m r c : kth_smallest k x m -> (forall u, 0 <= r u) -> (forall u, u <= m -> c <= r u) ->
  INR k * c <= lsum r x.
Proof.
  intros [below [above [P [-> [B _]]]]] R0 R1; rewrite (lsum_permutation r _ _ P), lsum_app; cbn [lsum].
  assert (INR (length below) * c <= lsum r below).
  { rewrite <- (lsum_const c below); apply lsum_le; intros u Hu; apply R1, B, Hu. }
  assert (0 <= lsum r above) by (apply lsum_nonneg; auto).
  rewrite S_INR; generalize (R1 m (Rle_refl m)); lra.
Qed.

Lemma count_at_most k x m r c : kth_smallest k x m -> (forall u, r u <= 1) -> (forall u, m <= u -> r u <= c) ->
  lsum r x <= INR (k - 1) + INR (length x - k + 1) * c.
Proof.
  intros [below [above [P [-> [_ A]]]]] R0 R1; assert (L := Permutation_length P).
  rewrite app_length in L; simpl in L; rewrite (lsum_permutation r _ _ P), lsum_app; cbn [lsum].
  assert (lsum r below <= INR (length below) * 1) by (rewrite <- (lsum_const 1 below); apply lsum_le; auto).
  assert (lsum r above <= INR (length above) * c).
  { rewrite <- (lsum_const c above); apply lsum_le; intros u Hu; apply R1, A, Hu. }
  replace (S (length below) - 1)%nat with (length below) by lia.
  replace (length x - S (length below) + 1)%nat with (S (length above)) by lia.
  rewrite S_INR; generalize (R1 m (Rle_refl m)); lra.
Qed.

(* N(t), the number of x_j <= t. *)
Definition number_below (x : list R) (t : R) : R := lsum (fun u => if Rle_dec u t then 1 else 0) x.

(* "The integrand is 1 while fewer than k numbers are below t, and 0 afterwards." *)
Lemma integrand_before k x m t : kth_smallest k x m -> t < m -> clip (INR k - number_below x t) = 1.
Proof.
  intros K H; assert (N : number_below x t <= INR (k - 1) + INR (length x - k + 1) * 0).
  { apply (count_at_most k x m); [exact K| |]; intros u; [destruct Rle_dec; lra|intros Hu; destruct Rle_dec; lra]. }
  assert (INR (k - 1) = INR k - 1) by (destruct K as [? [? [_ [-> _]]]]; rewrite minus_INR by lia; reflexivity).
  unfold clip, Rmax, Rmin; repeat destruct Rle_dec; lra.
Qed.

Lemma integrand_after k x m t : kth_smallest k x m -> m <= t -> clip (INR k - number_below x t) = 0.
Proof.
  intros K H; assert (N : INR k * 1 <= number_below x t).
  { apply (count_at_least k x m); [exact K| |]; intros u; [destruct Rle_dec; lra|intros Hu; destruct Rle_dec; lra]. }
  unfold clip, Rmax, Rmin; repeat destruct Rle_dec; lra.
Qed.

(* "With N(t) the number of x_j <= t, the k-th smallest of x in [0, 1]^n is the integral of clip(k - N(t), 0, 1) over
   [0, 1]." *)
Theorem sorting_identity k x m : kth_smallest k x m -> 0 <= m <= 1 ->
  is_RInt (fun t => clip (INR k - number_below x t)) 0 1 m.
Proof.
  intros K H; set (f := fun t => clip (INR k - number_below x t)).
  assert (A : is_RInt f 0 m (scal (m - 0) 1)).
  { apply (is_RInt_ext (fun _ => 1)); [|apply (is_RInt_const 0 m 1)].
    intros t; rewrite Rmin_left, Rmax_right by lra; intros Ht; symmetry.
    apply (integrand_before k x m); [exact K|lra]. }
  assert (B : is_RInt f m 1 (scal (1 - m) 0)).
  { apply (is_RInt_ext (fun _ => 0)); [|apply (is_RInt_const m 1 0)].
    intros t; rewrite Rmin_left, Rmax_right by lra; intros Ht; symmetry.
    apply (integrand_after k x m); [exact K|lra]. }
  assert (C := is_RInt_Chasles f 0 m 1 _ _ A B).
  match type of C with is_RInt _ _ _ ?l => replace l with m in C end; [exact C|].
  unfold plus, scal; simpl; unfold mult; simpl; ring.
Qed.

(* The layer of thresholds: on a cell [s, t] the count N becomes a sum of ramps, which attention averages; two ReLU
   units clip it; the read-out weighs it by the width of the cell. The argument ts holds the edges after s. *)
Definition ramp_count (x : list R) (s t : R) : R := lsum (fun u => clip ((t - u) / (t - s))) x.
Fixpoint threshold_layer (k : R) (x : list R) (s : R) (ts : list R) : R :=
  match ts with
  | nil => 0
  | t :: ts' => (t - s) * (relu (k - ramp_count x s t) - relu (k - ramp_count x s t - 1)) + threshold_layer k x t ts'
  end.

(* Edges that increase by at most h from s on. *)
Fixpoint edges (h s : R) (ts : list R) : Prop :=
  match ts with nil => True | t :: ts' => s < t <= s + h /\ edges h t ts' end.

Section Cell.
Variables (k : nat) (x : list R) (m s t : R).
Hypothesis K : kth_smallest k x m.
Hypothesis Hst : s < t.

Let width : 0 < t - s.
Proof. lra. Qed.

Lemma ramp_full u : u <= s -> clip ((t - u) / (t - s)) = 1.
Proof.
  intros H; assert (1 <= (t - u) / (t - s)); [|unfold clip, Rmax, Rmin; repeat destruct Rle_dec; lra].
  apply Rmult_le_reg_r with (t - s); [exact width|].
  unfold Rdiv; rewrite Rmult_assoc, Rinv_l by lra; lra.
Qed.

Lemma ramp_empty u : t <= u -> clip ((t - u) / (t - s)) = 0.
Proof.
  intros H; assert ((t - u) / (t - s) <= 0); [|unfold clip, Rmax, Rmin; repeat destruct Rle_dec; lra].
  apply Rmult_le_reg_r with (t - s); [exact width|].
  unfold Rdiv; rewrite Rmult_assoc, Rinv_l by lra; lra.
Qed.

Lemma ramp_falls u v : u <= v -> clip ((t - v) / (t - s)) <= clip ((t - u) / (t - s)).
Proof.
  intros H; assert ((t - v) / (t - s) <= (t - u) / (t - s)).
  { apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, width|lra]. }
  unfold clip, Rmax, Rmin; repeat destruct Rle_dec; lra.
Qed.

Let c := clip (INR k - ramp_count x s t).

Lemma cell_below : m <= s -> c = 0.
Proof.
  intros H; assert (N : INR k * 1 <= ramp_count x s t).
  { apply (count_at_least k x m); [exact K|intros u; apply clip_range|].
    intros u Hu; rewrite ramp_full by lra; lra. }
  unfold c, clip, Rmax, Rmin; repeat destruct Rle_dec; lra.
Qed.

Lemma cell_above : t <= m -> c = 1.
Proof.
  intros H; assert (N : ramp_count x s t <= INR (k - 1) + INR (length x - k + 1) * 0).
  { apply (count_at_most k x m); [exact K|intros u; apply clip_range|].
    intros u Hu; rewrite ramp_empty by lra; lra. }
  assert (INR (k - 1) = INR k - 1) by (destruct K as [? [? [_ [-> _]]]]; rewrite minus_INR by lia; reflexivity).
  unfold c, clip, Rmax, Rmin; repeat destruct Rle_dec; lra.
Qed.

(* Inside the cell: with q the height of m in it, q - (1 - 1/(n-k+1)) <= c <= q + (1 - 1/k). *)
Lemma cell_inside : s <= m <= t ->
  - (1 - / INR (length x - k + 1)) <= c - (m - s) / (t - s) <= 1 - / INR k.
Proof.
  intros H; set (q := (m - s) / (t - s)).
  assert (Q : 0 <= q <= 1).
  { unfold q; split; apply Rmult_le_reg_r with (t - s); try exact width;
      unfold Rdiv; rewrite Rmult_assoc, Rinv_l by lra; lra. }
  assert (E : clip ((t - m) / (t - s)) = 1 - q).
  { replace ((t - m) / (t - s)) with (1 - q) by (unfold q; field; lra).
    unfold clip, Rmax, Rmin; repeat destruct Rle_dec; lra. }
  assert (N1 : INR k * (1 - q) <= ramp_count x s t).
  { apply (count_at_least k x m); [exact K|intros u; apply clip_range|].
    intros u Hu; rewrite <- E; apply ramp_falls, Hu. }
  assert (N2 : ramp_count x s t <= INR (k - 1) + INR (length x - k + 1) * (1 - q)).
  { apply (count_at_most k x m); [exact K|intros u; apply clip_range|].
    intros u Hu; rewrite <- E; apply ramp_falls, Hu. }
  assert (Pk : 1 <= INR k) by (destruct K as [? [? [_ [-> _]]]]; apply (le_INR 1); lia).
  assert (Pp : 1 <= INR (length x - k + 1)) by (apply (le_INR 1); lia).
  assert (I : INR (k - 1) = INR k - 1) by (destruct K as [? [? [_ [-> _]]]]; rewrite minus_INR by lia; reflexivity).
  rewrite I in N2; unfold c; clear I E c.
  revert Pk Pp N1 N2; generalize (INR k) (INR (length x - k + 1)) (ramp_count x s t); intros a p r Pk Pp N1 N2.
  assert (Ia : a * / a = 1) by (apply Rinv_r; lra); assert (Ip : p * / p = 1) by (apply Rinv_r; lra).
  assert (Ga : 0 < / a) by (apply Rinv_0_lt_compat; lra); assert (Gp : 0 < / p) by (apply Rinv_0_lt_compat; lra).
  (* slopes a and p pull q apart by at most 1 - 1/a and 1 - 1/p *)
  assert (F : forall z w, 1 <= z -> z * / z = 1 -> 0 < / z -> 0 <= w -> w <= / z -> z * w - w <= 1 - / z).
  { intros z w Hz Iz Gz Hw Hw'; assert ((z - 1) * w <= (z - 1) * / z) by (apply Rmult_le_compat_l; lra); lra. }
  assert (La := Rinv_le_contravar 1 a Rlt_0_1 Pk); assert (Lp := Rinv_le_contravar 1 p Rlt_0_1 Pp).
  rewrite Rinv_1 in La, Lp; assert (F1 := F a q Pk Ia Ga); assert (F2 := F p (1 - q) Pp Ip Gp).
  split; unfold clip, Rmax, Rmin.
  - destruct (Rle_dec (1 - q) (/ p)) as [C|C]; [specialize (F2 ltac:(lra) C)|]; repeat destruct Rle_dec; lra.
  - destruct (Rle_dec q (/ a)) as [C|C]; [specialize (F1 ltac:(lra) C)|]; repeat destruct Rle_dec; lra.
Qed.
End Cell.

(* "-h (1 - 1/(n-k+1)) <= T_k - x_(k) <= h (1 - 1/k)": cells below x_(k) count in full, cells above not at all, and the
   one that holds it is off by less than its width. *)
Theorem threshold_error k x m h : kth_smallest k x m -> 0 <= h -> forall ts s,
  edges h s ts -> s <= m <= last ts s ->
  - (h * (1 - / INR (length x - k + 1))) <= s + threshold_layer (INR k) x s ts - m <= h * (1 - / INR k).
Proof.
  intros K Hh.
  assert (One : forall r, 1 <= r -> 0 <= 1 - / r).
  { intros r Hr; assert (I := Rinv_le_contravar 1 r Rlt_0_1 Hr); rewrite Rinv_1 in I; lra. }
  assert (Ik : 0 <= 1 - / INR k) by (apply One; destruct K as [? [? [_ [-> _]]]]; apply (le_INR 1); lia).
  assert (Ip : 0 <= 1 - / INR (length x - k + 1)) by (apply One, (le_INR 1); lia).
  revert Ik Ip; generalize (1 - / INR k) (1 - / INR (length x - k + 1)) (cell_inside k x m).
  intros e d Inside He Hd.
  assert (Z : forall ts s, edges h s ts -> m <= s -> threshold_layer (INR k) x s ts = 0).
  { induction ts as [|t ts IH]; intros s Ed Hm; [reflexivity|]; destruct Ed as [Hst Ed]; cbn [threshold_layer].
    rewrite <- clip_relu, (cell_below k x m s t K) by lra; rewrite IH by (try assumption; lra); ring. }
  induction ts as [|t ts IH]; intros s Ed Hm; cbn [threshold_layer].
  - simpl in Hm; split; [|assert (0 <= h * e) by (apply Rmult_le_pos; assumption); lra].
    assert (0 <= h * d) by (apply Rmult_le_pos; assumption); lra.
  - destruct Ed as [Hst Ed]; rewrite <- clip_relu.
    assert (La : last (t :: ts) s = last ts t).
    { clear; revert s t; induction ts as [|u ts IH]; intros s t; [reflexivity|].
      change (last (t :: u :: ts) s) with (last (u :: ts) s); rewrite !IH; reflexivity. }
    rewrite La in Hm; destruct (Rle_dec m t) as [L|L].
    + rewrite Z by assumption; specialize (Inside s t K ltac:(lra) ltac:(lra)).
      set (c := clip _) in *; set (q := (m - s) / (t - s)) in *.
      replace (s + ((t - s) * c + 0) - m) with ((t - s) * (c - q)) by (unfold q; field; lra); nra.
    + rewrite (cell_above k x m s t K) by lra; specialize (IH t Ed ltac:(lra)); lra.
Qed.
