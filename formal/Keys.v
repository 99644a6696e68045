(* One axis, continued (theory.md, section 3): equal spacing with any biases, the slope of a Bernstein head, and free
   keys. *)
From Coq Require Import Reals Lra Lia List.
From Coquelicot Require Import Coquelicot.
From Onelayer Require Import Softmax Axis.
Import ListNotations.
Open Scope R_scope.

(* "If a_m = kappa m and z = e^(kappa x), then alpha_m = c_m z^m / Q(z) with c_m = e^(b_m) and Q(z) = sum_k c_k z^k." *)
Theorem equal_spacing kappa b M x m : (m < M)%nat ->
  weight (fun m => kappa * INR m * x + b m) (seq 0 M) m
  = exp (b m) * exp (kappa * x) ^ m / lsum (fun k => exp (b k) * exp (kappa * x) ^ k) (seq 0 M).
Proof.
  intros _; unfold weight, partition.
  assert (E : forall k, exp (kappa * INR k * x + b k) = exp (b k) * exp (kappa * x) ^ k).
  { intros k; rewrite exp_plus, <- exp_scale; replace (kappa * INR k * x) with (INR k * (kappa * x)) by ring; ring. }
  rewrite E, (lsum_ext _ (fun k => exp (b k) * exp (kappa * x) ^ k)) by (intros; apply E); reflexivity.
Qed.

(* "For any biases the numerators span all polynomials in z of degree below M." *)
Theorem numerators_span (b p : nat -> R) M : exists v, forall z,
  lsum (fun m => exp (b m) * z ^ m * v m) (seq 0 M) = lsum (fun m => p m * z ^ m) (seq 0 M).
Proof.
  exists (fun m => p m / exp (b m)); intros z; apply lsum_ext; intros m _; field; apply Rgt_not_eq, exp_pos.
Qed.

Lemma G_plus n z u v : G n z (fun k => u k + v k) = G n z u + G n z v.
Proof. unfold G; rewrite <- lsum_plus; apply lsum_ext; intros; ring. Qed.

Lemma is_derive_equal (f : R -> R) x l l' : is_derive f x l -> l = l' -> is_derive f x l'.
Proof. intros H <-; exact H. Qed.

(* The derivative of a numerator in Bernstein form. *)
Lemma G_derive n : forall phi z, is_derive (fun z => G (S n) z phi) z (INR (S n) * G n z (fun k => phi (S k))).
Proof.
  induction n as [|n IH]; intros phi z.
  - apply (is_derive_ext (fun z => phi O + z * phi 1%nat)); [intros t; unfold G; simpl; ring|].
    auto_derive; [trivial|unfold G; simpl; ring].
  - apply (is_derive_ext (fun z => G (S n) z phi + z * G (S n) z (fun k => phi (S k))));
      [intros t; symmetry; apply G_step|].
    rewrite (G_step n z (fun k => phi (S k))), (S_INR (S n)).
    assert (D1 := IH phi z); assert (D2 := IH (fun k => phi (S k)) z); cbv beta in D2.
    assert (D := is_derive_plus _ _ z _ _ D1
      (is_derive_mult (fun z => z) _ z _ _ (is_derive_id z) D2 (fun a b => Rmult_comm a b))).
    apply (is_derive_equal _ _ _ _ D); unfold plus, mult, one; simpl; rewrite (G_step n z (fun k => phi (S k))); ring.
Qed.

(* "dT/ds = (M-1) sum_m (v_(m+1) - v_m) B_(m,M-2)(s) and ds/dx = kappa s (1 - s)"; n + 1 = M - 1, and y = kappa x. *)
Theorem bernstein_derivative n v y :
  is_derive (fun y => attend (bernstein_logit (S n) y) (axis (S n)) v) y
    (INR (S n) * (sigmoid y * (1 - sigmoid y)) * attend (bernstein_logit n y) (axis n) (fun k => v (S k) - v k)).
Proof.
  assert (R : forall n y v, attend (bernstein_logit n y) (axis n) v = G n (exp y) v / (1 + exp y) ^ n).
  { clear; intros n y v; rewrite attend_ratio, bernstein_partition by apply axis_nonempty; f_equal.
    apply lsum_ext; intros k Hk; rewrite bernstein_exp by exact Hk; ring. }
  apply (is_derive_ext (fun y => G (S n) (exp y) v / (1 + exp y) ^ S n)); [intros t; symmetry; apply R|].
  assert (P := exp_pos y); rewrite R; unfold sigmoid.
  assert (D := is_derive_comp (fun z => G (S n) z v) exp y _ _ (G_derive n v (exp y)) (is_derive_exp y)).
  assert (Q : is_derive (fun y => (1 + exp y) ^ S n) y (INR (S n) * exp y * (1 + exp y) ^ n)).
  { auto_derive; [trivial|]; destruct n; [simpl; ring|rewrite !S_INR; ring]. }
  assert (Ne : (1 + exp y) ^ S n <> 0) by (apply pow_nonzero; lra).
  assert (D' := is_derive_div (fun y => G (S n) (exp y) v) (fun y => (1 + exp y) ^ S n) y _ _ D Q Ne).
  apply (is_derive_equal _ _ _ _ D').
  rewrite (G_ext n (exp y) (fun k => v (S k) - v k) (fun k => v (S k) + -1 * v k)) by (intros; ring).
  rewrite G_plus.
  replace (G n (exp y) (fun k => -1 * v k)) with (- G n (exp y) v)
    by (unfold G; rewrite <- (Rmult_1_l (lsum _ _)), <- Ropp_mult_distr_l_reverse, <- lsum_scal;
        apply lsum_ext; intros; ring).
  rewrite (G_step n (exp y) v); unfold scal; simpl; unfold mult; simpl.
  assert (Np : (1 + exp y) ^ n <> 0) by (apply pow_nonzero; lra).
  field; split; lra.
Qed.

(* "|T'(x)| <= 1/4 kappa (M - 1) max_m |v_(m+1) - v_m|" *)
Theorem bernstein_slope n v kappa d x : 0 <= kappa ->
  (forall k, (k <= n)%nat -> Rabs (v (S k) - v k) <= d) ->
  exists T', is_derive (fun x => attend (bernstein_logit (S n) (kappa * x)) (axis (S n)) v) x T' /\
    Rabs T' <= 1 / 4 * kappa * INR (S n) * d.
Proof.
  intros Hk Hd; set (s := sigmoid (kappa * x)); set (m := attend (bernstein_logit n (kappa * x)) (axis n)
    (fun k => v (S k) - v k)).
  exists (kappa * (INR (S n) * (s * (1 - s)) * m)); split.
  { apply (is_derive_comp (fun y => attend (bernstein_logit (S n) y) (axis (S n)) v) (fun x => kappa * x));
      [apply bernstein_derivative|auto_derive; [trivial|ring]]. }
  assert (M : Rabs m <= d).
  { unfold m; assert (E := attend_error (bernstein_logit n (kappa * x)) (axis n) (axis_nonempty n)
      (fun k => v (S k) - v k) 0).
    rewrite Rminus_0_r in E; eapply Rle_trans; [exact E|]; apply attend_below; [apply axis_nonempty|].
    intros k Hk'; apply in_seq in Hk'; rewrite Rminus_0_r; apply Hd; lia. }
  assert (Q : 0 <= s * (1 - s) <= 1 / 4).
  { assert (B := sigmoid_01 (kappa * x)); fold s in B; generalize (pow2_ge_0 (s - 1 / 2)); split; nra. }
  assert (PN := pos_INR (S n)); assert (Pm := Rabs_pos m).
  rewrite !Rabs_mult, (Rabs_right kappa), (Rabs_right (INR (S n))) by lra.
  rewrite <- (Rabs_mult s), (Rabs_right (s * (1 - s))) by lra.
  apply Rle_trans with (kappa * (INR (S n) * (1 / 4) * d)); [|right; ring].
  apply Rmult_le_compat_l; [exact Hk|]; apply Rmult_le_compat; try assumption.
  - apply Rmult_le_pos; [exact PN|apply Q].
  - apply Rmult_le_compat_l; [exact PN|apply Q].
Qed.

(* "dT/db_m = w_m (v_m - T), dT/da_m = x w_m (v_m - T)": the first is c = 1, the second c = x. *)
Theorem free_keys (l v : nat -> R) M m c : (m < M)%nat ->
  is_derive (fun t => attend (fun j => l j + (if Nat.eqb j m then c * t else 0)) (seq 0 M) v) 0
    (c * (weight l (seq 0 M) m * (v m - attend l (seq 0 M) v))).
Proof.
  intros Hm; assert (Ne : seq 0 M <> nil) by (destruct M; [lia|discriminate]).
  set (Z := partition l (seq 0 M)); assert (PZ : 0 < Z) by (apply partition_pos, Ne).
  assert (E : forall t g, lsum (fun j => exp (l j + (if Nat.eqb j m then c * t else 0)) * g j) (seq 0 M)
              = lsum (fun j => exp (l j) * g j) (seq 0 M) + (exp (c * t) - 1) * (exp (l m) * g m)).
  { intros t g; rewrite <- (lsum_point M m (fun j => exp (l j) * g j) Hm), <- lsum_scal, <- lsum_plus.
    apply lsum_ext; intros j _; destruct (Nat.eqb j m); [rewrite exp_plus; ring|rewrite Rplus_0_r; ring]. }
  set (N := lsum (fun j => exp (l j) * v j) (seq 0 M)).
  apply (is_derive_ext (fun t => (N + (exp (c * t) - 1) * (exp (l m) * v m)) / (Z + (exp (c * t) - 1) * exp (l m)))).
  - intros t; rewrite attend_ratio, E by exact Ne; fold N; unfold Rdiv; f_equal; f_equal; unfold partition.
    rewrite (lsum_ext _ (fun j => exp (l j + (if Nat.eqb j m then c * t else 0)) * 1)) by (intros; ring).
    rewrite E; unfold Z, partition; rewrite Rmult_1_r; f_equal; apply lsum_ext; intros; ring.
  - rewrite (attend_ratio l) by exact Ne; fold N; unfold weight; fold Z.
    auto_derive; rewrite ?Rmult_0_r, ?exp_0; [lra|field; lra].
Qed.
