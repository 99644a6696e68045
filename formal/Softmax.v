(* One softmax head over a finite memory (theory.md, section 1): definitions and the facts that every other file uses.

   A head is a list of tokens of any type, a logit for each and a value for each; its output is the average of the
   values with the softmax of the logits as weights. Standard library only. *)
From Coq Require Import Reals Lra Lia List Permutation.
Import ListNotations.
Open Scope R_scope.

(* Finite sums over lists. *)
Fixpoint lsum {A : Type} (g : A -> R) (l : list A) : R :=
  match l with nil => 0 | a :: l' => g a + lsum g l' end.

Section Sums.
Context {A : Type}.
Implicit Types (g h : A -> R) (l : list A).

Lemma lsum_ext g h l : (forall a, In a l -> g a = h a) -> lsum g l = lsum h l.
Proof.
  induction l as [|a l IH]; simpl; intros H; [reflexivity|].
  rewrite (H a) by auto; rewrite IH; auto.
Qed.

Lemma lsum_plus g h l : lsum (fun a => g a + h a) l = lsum g l + lsum h l.
Proof. induction l as [|a l IH]; simpl; [ring|rewrite IH; ring]. Qed.

Lemma lsum_scal c g l : lsum (fun a => c * g a) l = c * lsum g l.
Proof. induction l as [|a l IH]; simpl; [ring|rewrite IH; ring]. Qed.

Lemma lsum_le g h l : (forall a, In a l -> g a <= h a) -> lsum g l <= lsum h l.
Proof.
  induction l as [|a l IH]; simpl; intros H; [lra|].
  apply Rplus_le_compat; auto.
Qed.

Lemma lsum_nonneg g l : (forall a, In a l -> 0 <= g a) -> 0 <= lsum g l.
Proof.
  induction l as [|a l IH]; simpl; intros H; [lra|].
  apply Rplus_le_le_0_compat; auto.
Qed.

Lemma lsum_pos g l : l <> nil -> (forall a, 0 < g a) -> 0 < lsum g l.
Proof.
  destruct l as [|a l]; intros N P; [congruence|simpl].
  apply Rplus_lt_le_0_compat; [apply P|].
  apply lsum_nonneg; intros; left; apply P.
Qed.

Lemma lsum_abs g l : Rabs (lsum g l) <= lsum (fun a => Rabs (g a)) l.
Proof.
  induction l as [|a l IH]; simpl; [rewrite Rabs_R0; lra|].
  eapply Rle_trans; [apply Rabs_triang|lra].
Qed.

Lemma lsum_app g l l' : lsum g (l ++ l') = lsum g l + lsum g l'.
Proof. induction l as [|a l IH]; simpl; [ring|rewrite IH; ring]. Qed.

Lemma lsum_const c l : lsum (fun _ => c) l = INR (length l) * c.
Proof. induction l as [|a l IH]; [simpl; ring|]. cbn [lsum length]; rewrite IH, S_INR; ring. Qed.

Lemma lsum_permutation g l l' : Permutation l l' -> lsum g l = lsum g l'.
Proof. intros P; induction P; simpl; lra. Qed.
End Sums.

Lemma lsum_map {A B} (p : B -> A) (g : A -> R) l : lsum g (map p l) = lsum (fun b => g (p b)) l.
Proof. induction l as [|b l IH]; simpl; [reflexivity|rewrite IH; reflexivity]. Qed.

Lemma lsum_flat_map {A B} (F : A -> list B) (g : B -> R) l :
  lsum g (flat_map F l) = lsum (fun a => lsum g (F a)) l.
Proof. induction l as [|a l IH]; simpl; [reflexivity|rewrite lsum_app, IH; reflexivity]. Qed.

Lemma lsum_seq_S (g : nat -> R) n m : lsum g (seq (S n) m) = lsum (fun k => g (S k)) (seq n m).
Proof. rewrite <- seq_shift, lsum_map; reflexivity. Qed.

Lemma lsum_seq_last (g : nat -> R) m : lsum g (seq 0 (S m)) = lsum g (seq 0 m) + g m.
Proof. rewrite seq_S, lsum_app; simpl; ring. Qed.

Lemma lsum_point n j (g : nat -> R) : (j < n)%nat -> lsum (fun i => if Nat.eqb i j then g i else 0) (seq 0 n) = g j.
Proof.
  intros H; induction n as [|n IH]; [lia|]; rewrite lsum_seq_last; destruct (Nat.eqb_spec n j) as [->|N].
  - rewrite (lsum_ext _ (fun _ => 0)), lsum_const; [ring|].
    intros i Hi; apply in_seq in Hi; destruct (Nat.eqb_spec i j); [lia|reflexivity].
  - rewrite IH by lia; ring.
Qed.

(* The head: softmax of the logits, then the average of the values. *)
Section Softmax.
Context {A : Type}.
Variable logit : A -> R.
Variable mem : list A.

Definition partition : R := lsum (fun t => exp (logit t)) mem.
Definition weight (t : A) : R := exp (logit t) / partition.
Definition attend (v : A -> R) : R := lsum (fun t => weight t * v t) mem.

Hypothesis nonempty : mem <> nil.

Lemma partition_pos : 0 < partition.
Proof. apply lsum_pos; [exact nonempty|intros; apply exp_pos]. Qed.

(* "The weights are positive and sum to one: a partition of unity." *)
Theorem weights_positive t : 0 < weight t.
Proof. apply Rdiv_lt_0_compat; [apply exp_pos|apply partition_pos]. Qed.

Theorem weights_sum_one : lsum weight mem = 1.
Proof.
  rewrite (lsum_ext _ (fun t => / partition * exp (logit t)))
    by (intros; unfold weight; field; apply Rgt_not_eq, partition_pos).
  rewrite lsum_scal; apply Rinv_l, Rgt_not_eq, partition_pos.
Qed.

(* How every bound starts: the error is at most the average of the errors of the values. *)
Lemma attend_error (v : A -> R) y : Rabs (attend v - y) <= attend (fun t => Rabs (v t - y)).
Proof.
  assert (E : attend v - y = lsum (fun t => weight t * (v t - y)) mem).
  { unfold attend.
    rewrite (lsum_ext (fun t => weight t * (v t - y)) (fun t => weight t * v t + (- y) * weight t)) by (intros; ring).
    rewrite lsum_plus, lsum_scal, weights_sum_one; ring. }
  rewrite E; eapply Rle_trans; [apply lsum_abs|].
  apply lsum_le; intros t _; rewrite Rabs_mult, (Rabs_right (weight t)); [lra|].
  left; apply weights_positive.
Qed.

Lemma attend_le u v : (forall t, In t mem -> u t <= v t) -> attend u <= attend v.
Proof.
  intros H; apply lsum_le; intros t Ht.
  apply Rmult_le_compat_l; [left; apply weights_positive|auto].
Qed.

Lemma attend_affine c d v : attend (fun t => c + d * v t) = c + d * attend v.
Proof.
  unfold attend.
  rewrite (lsum_ext _ (fun t => c * weight t + d * (weight t * v t))) by (intros; ring).
  rewrite lsum_plus, !lsum_scal, weights_sum_one; ring.
Qed.

Lemma attend_const c : attend (fun _ => c) = c.
Proof.
  unfold attend; rewrite (lsum_ext _ (fun t => c * weight t)) by (intros; ring).
  rewrite lsum_scal, weights_sum_one; ring.
Qed.

Lemma attend_below v hi : (forall t, In t mem -> v t <= hi) -> attend v <= hi.
Proof. intros H; rewrite <- (attend_const hi); apply attend_le, H. Qed.

Lemma attend_above v lo : (forall t, In t mem -> lo <= v t) -> lo <= attend v.
Proof. intros H; rewrite <- (attend_const lo); apply attend_le, H. Qed.

(* "T lies in [min v, max v]": a head returns an average of its values. *)
Theorem convex_hull lo hi (v : A -> R) :
  (forall t, In t mem -> lo <= v t <= hi) -> lo <= attend v <= hi.
Proof. intros H; split; [apply attend_above|apply attend_below]; intros t Ht; apply H, Ht. Qed.

Lemma attend_ratio v : attend v = lsum (fun t => exp (logit t) * v t) mem / partition.
Proof.
  unfold attend.
  rewrite (lsum_ext _ (fun t => / partition * (exp (logit t) * v t)))
    by (intros; unfold weight; field; apply Rgt_not_eq, partition_pos).
  rewrite lsum_scal; field; apply Rgt_not_eq, partition_pos.
Qed.
End Softmax.

Lemma attend_map {A B} (p : B -> A) (lg : A -> R) (mem : list B) (v : A -> R) :
  attend lg (map p mem) v = attend (fun t => lg (p t)) mem (fun t => v (p t)).
Proof. unfold attend, weight, partition; rewrite !lsum_map; reflexivity. Qed.

Lemma attend_ext {A} (lg lg' : A -> R) (mem : list A) (v v' : A -> R) :
  (forall t, In t mem -> lg t = lg' t) -> (forall t, In t mem -> v t = v' t) ->
  attend lg mem v = attend lg' mem v'.
Proof.
  intros H H'; unfold attend, weight, partition.
  rewrite (lsum_ext (fun t => exp (lg t)) (fun t => exp (lg' t))) by (intros t Ht; rewrite H by exact Ht; reflexivity).
  apply lsum_ext; intros t Ht; rewrite H, H' by exact Ht; reflexivity.
Qed.

Lemma attend_permutation {A} (lg : A -> R) (mem mem' : list A) (v : A -> R) :
  Permutation mem mem' -> attend lg mem v = attend lg mem' v.
Proof.
  intros P; unfold attend, weight, partition.
  rewrite (lsum_permutation _ _ _ P), (lsum_permutation _ _ _ P); reflexivity.
Qed.

(* "The last term is the same for all tokens and cancels in the softmax." *)
Theorem shift_invariance {A} (c : R) (lg : A -> R) (mem : list A) (v : A -> R) :
  attend (fun t => lg t + c) mem v = attend lg mem v.
Proof.
  destruct mem as [|t0 mem']; [reflexivity|]; set (mem := t0 :: mem'); assert (N : mem <> nil) by discriminate.
  assert (E : partition (fun t => lg t + c) mem = exp c * partition lg mem).
  { unfold partition; rewrite <- lsum_scal; apply lsum_ext; intros t _; rewrite exp_plus; ring. }
  unfold attend; apply lsum_ext; intros t _; unfold weight; rewrite E, exp_plus; field.
  split; apply Rgt_not_eq; [apply (partition_pos lg mem N)|apply exp_pos].
Qed.

(* One weight is at most its ratio to any other. *)
Lemma weight_le_ratio {A} (lg : A -> R) (mem : list A) t t0 : In t0 mem ->
  weight lg mem t <= exp (lg t - lg t0).
Proof.
  intros H; assert (Z : exp (lg t0) <= partition lg mem).
  { unfold partition; induction mem as [|s mem IH]; [contradiction|]; simpl.
    assert (0 <= lsum (fun t => exp (lg t)) mem) by (apply lsum_nonneg; intros; left; apply exp_pos).
    destruct H as [->|H]; [lra|specialize (IH H); generalize (exp_pos (lg s)); lra]. }
  unfold weight, Rminus; rewrite exp_plus, exp_Ropp.
  apply Rmult_le_compat_l; [left; apply exp_pos|].
  apply Rinv_le_contravar; [apply exp_pos|exact Z].
Qed.

Lemma exp_le x y : x <= y -> exp x <= exp y.
Proof. intros [H| ->]; [left; apply exp_increasing, H|right; reflexivity]. Qed.

Lemma INR_unbounded x : exists n, x < INR n.
Proof.
  exists (Z.to_nat (up x)).
  destruct (archimed x) as [H _].
  destruct (Z_le_gt_dec 0 (up x)) as [P|P].
  - rewrite INR_IZR_INZ, Z2Nat.id by exact P; exact H.
  - apply Rlt_le_trans with 0; [|apply pos_INR].
    apply Rlt_trans with (IZR (up x)); [exact H|apply IZR_lt; lia].
Qed.
