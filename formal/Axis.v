(* One axis (theory.md, section 3): equally spaced slopes, the Bernstein head, and the spread of its weights:
   their second moment about x is at most 16/9 (b - a)^2 / n. *)
From Coq Require Import Reals Lra Lia List.
From Coquelicot Require Import Coquelicot.
From Onelayer Require Import Softmax.
Import ListNotations.
Open Scope R_scope.

(* Binomial coefficients by Pascal's rule. *)
Fixpoint binom (n k : nat) : nat :=
  match n, k with
  | _, O => 1
  | O, S _ => 0
  | S n', S k' => binom n' k' + binom n' k
  end%nat.

Lemma binom_0 n : binom n 0 = 1%nat.
Proof. destruct n; reflexivity. Qed.

Lemma binom_above n : forall k, (n < k)%nat -> binom n k = 0%nat.
Proof.
  induction n as [|n IH]; intros [|k] H; try lia; simpl; [reflexivity|].
  rewrite !IH by lia; reflexivity.
Qed.

Lemma binom_pos n : forall k, (k <= n)%nat -> (0 < binom n k)%nat.
Proof.
  induction n as [|n IH]; intros [|k] H; simpl; try lia.
  assert (0 < binom n k)%nat by (apply IH; lia); lia.
Qed.

(* The numerator of an equally spaced head: G n z phi = sum_k C(n,k) z^k phi(k), a polynomial in z = exp(kappa x). *)
Definition G (n : nat) (z : R) (phi : nat -> R) : R :=
  lsum (fun k => INR (binom n k) * z ^ k * phi k) (seq 0 (S n)).

Lemma G_step n z phi : G (S n) z phi = G n z phi + z * G n z (fun k => phi (S k)).
Proof.
  unfold G.
  change (seq 0 (S (S n))) with (0%nat :: seq 1 (S n)).
  cbn [lsum]. rewrite lsum_seq_S.
  rewrite (lsum_ext (fun k => INR (binom (S n) (S k)) * z ^ S k * phi (S k))
    (fun k => z * (INR (binom n k) * z ^ k * phi (S k)) + INR (binom n (S k)) * z ^ S k * phi (S k))).
  2:{ intros k _; change (binom (S n) (S k)) with (binom n k + binom n (S k))%nat.
      rewrite plus_INR; cbn [pow]; ring. }
  rewrite lsum_plus, lsum_scal.
  (* The second sum is G n z phi without its first term. *)
  assert (E : lsum (fun k => INR (binom n k) * z ^ k * phi k) (seq 0 (S n))
            = INR (binom (S n) 0) * z ^ 0 * phi 0%nat
              + lsum (fun k => INR (binom n (S k)) * z ^ S k * phi (S k)) (seq 0 (S n))).
  { rewrite (lsum_seq_last (fun k => INR (binom n (S k)) * z ^ S k * phi (S k))).
    rewrite (binom_above n (S n)) by lia.
    change (seq 0 (S n)) with (0%nat :: seq 1 n); cbn [lsum]; rewrite lsum_seq_S.
    rewrite !binom_0; simpl (INR 0); ring. }
  rewrite E; ring.
Qed.

Lemma G_ext n z u v : (forall k, (k <= n)%nat -> u k = v k) -> G n z u = G n z v.
Proof. intros H; apply lsum_ext; intros k Hk; apply in_seq in Hk; rewrite H by lia; reflexivity. Qed.

(* "By the binomial theorem Q(z) = sum_k C(M-1,k) z^k = (1 + z)^(M-1)." *)
Lemma G_one n z : G n z (fun _ => 1) = (1 + z) ^ n.
Proof.
  induction n as [|n IH]; [unfold G; simpl; ring|].
  rewrite G_step, IH; simpl; ring.
Qed.

(* Bernstein's variance identity, about any centre c. *)
Lemma G_second_moment n z : 0 < z -> forall c,
  G n z (fun k => (INR k - c) ^ 2)
  = (1 + z) ^ n * (INR n * (z / (1 + z)) * (1 / (1 + z)) + (INR n * (z / (1 + z)) - c) ^ 2).
Proof.
  intros Hz; induction n as [|n IH]; intros c.
  - unfold G; simpl; field; lra.
  - rewrite G_step, IH.
    rewrite (G_ext n z (fun k => (INR (S k) - c) ^ 2) (fun k => (INR k - (c - 1)) ^ 2))
      by (intros k _; rewrite S_INR; ring).
    rewrite IH, S_INR; cbn [pow]; field; lra.
Qed.

Definition sigmoid (s : R) : R := exp s / (1 + exp s).

Lemma sigmoid_derive s : is_derive sigmoid s (exp s / (1 + exp s) ^ 2).
Proof.
  unfold sigmoid; auto_derive.
  - generalize (exp_pos s); lra.
  - field; generalize (exp_pos s); lra.
Qed.

Lemma exp_bounds s : -1 <= s <= 1 -> 1 / 3 <= exp s <= 3.
Proof.
  intros H; split.
  - apply Rle_trans with (exp (-1)); [|apply exp_le; lra].
    replace (-1) with (- (1)) by ring; rewrite exp_Ropp.
    unfold Rdiv; rewrite Rmult_1_l; apply Rinv_le_contravar; [apply exp_pos|apply exp_le_3].
  - apply Rle_trans with (exp 1); [apply exp_le; lra|apply exp_le_3].
Qed.

Lemma sigmoid_slope s : -1 <= s <= 1 -> 3 / 16 <= exp s / (1 + exp s) ^ 2.
Proof.
  intros H; assert (B := exp_bounds s H); revert B; generalize (exp s); intros e B.
  apply Rmult_le_reg_r with ((1 + e) ^ 2); [apply pow_lt; lra|].
  unfold Rdiv; rewrite (Rmult_assoc e), Rinv_l by (apply pow_nonzero; lra).
  nra.
Qed.

Lemma sigmoid_growth u w : -1 <= u -> u <= w -> w <= 1 -> 3 / 16 * (w - u) <= sigmoid w - sigmoid u.
Proof.
  intros Hu Huw Hw.
  destruct (Req_dec u w) as [->|N]; [lra|].
  destruct (MVT_gen sigmoid u w (fun s => exp s / (1 + exp s) ^ 2)) as [c [Hc E]].
  - intros s _; apply sigmoid_derive.
  - intros s _; apply continuity_pt_filterlim, (ex_derive_continuous sigmoid s).
    eexists; apply sigmoid_derive.
  - rewrite Rmin_left, Rmax_right in Hc by lra.
    rewrite E; apply Rmult_le_compat_r; [lra|apply sigmoid_slope; lra].
Qed.

Lemma sigmoid_incr u w : u <= w -> sigmoid u <= sigmoid w.
Proof.
  intros H; destruct (Req_dec u w) as [->|N]; [lra|].
  assert (E : exp u < exp w) by (apply exp_increasing; lra).
  assert (P := exp_pos u).
  unfold sigmoid; apply Rmult_le_reg_r with ((1 + exp u) * (1 + exp w)); [nra|].
  replace (exp u / (1 + exp u) * ((1 + exp u) * (1 + exp w))) with (exp u * (1 + exp w)) by (field; lra).
  replace (exp w / (1 + exp w) * ((1 + exp u) * (1 + exp w))) with (exp w * (1 + exp u)) by (field; lra).
  nra.
Qed.

Lemma sigmoid_01 s : 0 < sigmoid s < 1.
Proof.
  assert (P := exp_pos s); unfold sigmoid; split; [apply Rdiv_lt_0_compat; lra|].
  apply Rmult_lt_reg_r with (1 + exp s); [lra|].
  replace (exp s / (1 + exp s) * (1 + exp s)) with (exp s) by (field; lra); lra.
Qed.

(* Nodes: the point of [-1, 1] whose sigmoid is nearest to k/n. *)
Definition clamp (t : R) : R := Rmax (-1) (Rmin 1 t).

Definition unode (n k : nat) : R :=
  if Nat.eqb k 0 then -1 else if Nat.leb n k then 1 else clamp (ln (INR k / INR (n - k))).

Lemma clamp_range t : -1 <= clamp t <= 1.
Proof. unfold clamp, Rmax, Rmin; repeat destruct Rle_dec; lra. Qed.

Lemma unode_range n k : -1 <= unode n k <= 1.
Proof.
  unfold unode; destruct (Nat.eqb k 0); [lra|]; destruct (Nat.leb n k); [lra|apply clamp_range].
Qed.

Lemma sigmoid_logit n k : (0 < k < n)%nat -> sigmoid (ln (INR k / INR (n - k))) = INR k / INR n.
Proof.
  intros H.
  assert (0 < INR k) by (apply lt_0_INR; lia).
  assert (0 < INR (n - k)) by (apply lt_0_INR; lia).
  unfold sigmoid; rewrite exp_ln by (apply Rdiv_lt_0_compat; lra).
  replace (INR n) with (INR k + INR (n - k)) by (rewrite <- plus_INR; f_equal; lia).
  field; lra.
Qed.

Lemma node_near n k s : (0 < n)%nat -> (k <= n)%nat -> -1 <= s <= 1 ->
  Rabs (unode n k - s) <= 16 / 3 * Rabs (INR k / INR n - sigmoid s).
Proof.
  intros Hn Hk Hs.
  assert (Pn : 0 < INR n) by (apply lt_0_INR; lia).
  (* Beyond the range of the sigmoid the node is an end of the interval. *)
  assert (Up : forall q, sigmoid 1 <= q -> Rabs (1 - s) <= 16 / 3 * Rabs (q - sigmoid s)).
  { intros q Hq; assert (B := sigmoid_growth s 1 ltac:(lra) ltac:(lra) ltac:(lra)); rewrite !Rabs_right; lra. }
  assert (Down : forall q, q <= sigmoid (-1) -> Rabs (-1 - s) <= 16 / 3 * Rabs (q - sigmoid s)).
  { intros q Hq; assert (B := sigmoid_growth (-1) s ltac:(lra) ltac:(lra) ltac:(lra)); rewrite !Rabs_left1; lra. }
  unfold unode; destruct (Nat.eqb_spec k 0) as [->|K0].
  { apply Down; simpl; unfold Rdiv; rewrite Rmult_0_l; left; apply sigmoid_01. }
  destruct (Nat.leb_spec n k) as [K1|K1].
  { apply Up; replace k with n by lia; replace (INR n / INR n) with 1 by (field; lra); left; apply sigmoid_01. }
  rewrite <- (sigmoid_logit n k) by lia.
  set (t := ln _); unfold clamp, Rmax, Rmin.
  destruct (Rle_dec 1 t) as [T1|T1].
  { destruct (Rle_dec (-1) 1) as [_|]; [|lra]; apply Up, sigmoid_incr, T1. }
  destruct (Rle_dec (-1) t) as [T2|T2].
  2:{ apply Down, sigmoid_incr; lra. }
  destruct (Rle_dec s t) as [S|S].
  - assert (B := sigmoid_growth s t ltac:(lra) ltac:(lra) ltac:(lra)); rewrite !Rabs_right; lra.
  - assert (B := sigmoid_growth t s ltac:(lra) ltac:(lra) ltac:(lra)); rewrite !Rabs_left1; lra.
Qed.

(* One axis [a, b] of a box, mapped affinely onto [-1, 1]. *)
Definition unit_of (a b x : R) : R := 2 / (b - a) * x - (a + b) / (b - a).
Definition node (n : nat) (a b : R) (k : nat) : R := (a + b) / 2 + (b - a) / 2 * unode n k.
Definition axis (n : nat) : list nat := seq 0 (S n).

Lemma axis_nonempty n : axis n <> nil.
Proof. discriminate. Qed.

Lemma unit_range a b x : a < b -> a <= x <= b -> -1 <= unit_of a b x <= 1.
Proof.
  intros H Hx; unfold unit_of; split; apply Rmult_le_reg_r with (b - a); try lra.
  - replace ((2 / (b - a) * x - (a + b) / (b - a)) * (b - a)) with (2 * x - (a + b)) by (field; lra); lra.
  - replace ((2 / (b - a) * x - (a + b) / (b - a)) * (b - a)) with (2 * x - (a + b)) by (field; lra); lra.
Qed.

Lemma node_range n a b k : a < b -> a <= node n a b k <= b.
Proof. intros H; assert (U := unode_range n k); unfold node; split; nra. Qed.

Lemma exp_scale k s : exp (INR k * s) = exp s ^ k.
Proof.
  induction k as [|k IH]; [simpl; rewrite Rmult_0_l; apply exp_0|].
  rewrite S_INR; replace ((INR k + 1) * s) with (s + INR k * s) by ring.
  rewrite exp_plus, IH; reflexivity.
Qed.

(* "With biases b_m = ln C(M-1, m) the softmax weights are exactly the Bernstein polynomials in s = sigmoid(kappa x)":
   n = M - 1, and y stands for kappa x. *)
Definition bernstein_logit (n : nat) (y : R) (k : nat) : R := INR k * y + ln (INR (binom n k)).

Lemma bernstein_exp n y k : In k (axis n) -> exp (bernstein_logit n y k) = INR (binom n k) * exp y ^ k.
Proof.
  intros H; apply in_seq in H; unfold bernstein_logit.
  rewrite exp_plus, exp_ln, exp_scale by (apply lt_0_INR, binom_pos; lia); ring.
Qed.

Lemma bernstein_partition n y : partition (bernstein_logit n y) (axis n) = (1 + exp y) ^ n.
Proof.
  rewrite <- G_one; apply lsum_ext; intros k Hk; rewrite bernstein_exp by assumption; ring.
Qed.

Theorem bernstein_head n y k : (k <= n)%nat ->
  weight (bernstein_logit n y) (axis n) k = INR (binom n k) * sigmoid y ^ k * (1 - sigmoid y) ^ (n - k).
Proof.
  intros Hk; unfold weight; rewrite bernstein_partition, bernstein_exp by (apply in_seq; lia).
  assert (P := exp_pos y); unfold sigmoid.
  replace (1 - exp y / (1 + exp y)) with (/ (1 + exp y)) by (field; lra).
  unfold Rdiv; rewrite Rpow_mult_distr, !pow_inv by lra.
  replace n with (k + (n - k))%nat at 2 by lia; rewrite pow_add, Rinv_mult; ring.
Qed.

(* "A sigmoid of an affine function is exactly a head of two tokens." *)
Theorem sigmoid_is_a_head y :
  attend (fun t : bool => if t then y else 0) [true; false] (fun t => if t then 1 else 0) = sigmoid y.
Proof.
  unfold attend, weight, partition, sigmoid; simpl; rewrite exp_0; field; generalize (exp_pos y); lra.
Qed.

Definition blogit (n : nat) (a b x : R) : nat -> R := bernstein_logit n (unit_of a b x).

(* The softmax average is the Bernstein operator. *)
Lemma bernstein_average n a b x phi :
  attend (blogit n a b x) (axis n) phi = G n (exp (unit_of a b x)) phi / (1 + exp (unit_of a b x)) ^ n.
Proof.
  rewrite attend_ratio by apply axis_nonempty; f_equal.
  - apply lsum_ext; intros k Hk; unfold blogit; rewrite bernstein_exp by assumption; reflexivity.
  - f_equal; apply bernstein_partition.
Qed.

(* The spread of the weights around x: what samples as values pay. *)
Theorem second_moment n a b x : (0 < n)%nat -> a < b -> a <= x <= b ->
  attend (blogit n a b x) (axis n) (fun k => (node n a b k - x) ^ 2) <= 16 / 9 * (b - a) ^ 2 / INR n.
Proof.
  intros Hn Hab Hx.
  assert (Pn : 0 < INR n) by (apply lt_0_INR; lia).
  set (s := unit_of a b x); assert (Hs : -1 <= s <= 1) by (apply unit_range; assumption).
  set (c := INR n * sigmoid s).
  assert (D : forall k, (k <= n)%nat -> (node n a b k - x) ^ 2
                        <= 0 + (64 / 9 * (b - a) ^ 2 / INR n ^ 2) * (INR k - c) ^ 2).
  { intros k Hk; assert (N := node_near n k s Hn Hk Hs).
    replace (node n a b k - x) with ((b - a) / 2 * (unode n k - s))
      by (unfold node, s, unit_of; field; lra).
    replace (0 + 64 / 9 * (b - a) ^ 2 / INR n ^ 2 * (INR k - c) ^ 2)
      with (((b - a) / 2) ^ 2 * (16 / 3 * (INR k / INR n - sigmoid s)) ^ 2)
      by (unfold c; field; lra).
    rewrite Rpow_mult_distr; apply Rmult_le_compat_l; [apply pow2_ge_0|].
    rewrite <- (pow2_abs (unode n k - s)), <- (pow2_abs (16 / 3 * _)).
    apply pow_incr; split; [apply Rabs_pos|].
    rewrite Rabs_mult, (Rabs_right (16 / 3)) by lra; exact N. }
  eapply Rle_trans.
  { apply attend_le; [apply axis_nonempty|]; intros k Hk; apply in_seq in Hk; apply D; lia. }
  rewrite attend_affine by apply axis_nonempty.
  rewrite bernstein_average, G_second_moment by apply exp_pos; fold s.
  assert (P := exp_pos s).
  replace (INR n * (exp s / (1 + exp s)) - c) with 0 by (unfold c, sigmoid; ring).
  assert (Q : exp s / (1 + exp s) * (1 / (1 + exp s)) <= 1 / 4).
  { apply Rmult_le_reg_r with ((1 + exp s) ^ 2); [apply pow_lt; lra|].
    replace (exp s / (1 + exp s) * (1 / (1 + exp s)) * (1 + exp s) ^ 2) with (exp s) by (field; lra).
    generalize (pow2_ge_0 (1 - exp s)); lra. }
  replace ((1 + exp s) ^ n * (INR n * (exp s / (1 + exp s)) * (1 / (1 + exp s)) + 0 ^ 2) / (1 + exp s) ^ n)
    with (INR n * (exp s / (1 + exp s) * (1 / (1 + exp s)))) by (field; split; [lra|apply pow_nonzero; lra]).
  rewrite Rplus_0_l.
  replace (64 / 9 * (b - a) ^ 2 / INR n ^ 2 * (INR n * (exp s / (1 + exp s) * (1 / (1 + exp s)))))
    with ((64 / 9 * (b - a) ^ 2 / INR n) * (exp s / (1 + exp s) * (1 / (1 + exp s)))) by (field; lra).
  replace (16 / 9 * (b - a) ^ 2 / INR n) with ((64 / 9 * (b - a) ^ 2 / INR n) * (1 / 4)) by (field; lra).
  apply Rmult_le_compat_l; [|exact Q].
  apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat; lra].
  generalize (pow2_ge_0 (b - a)); lra.
Qed.
