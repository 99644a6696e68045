(* The theorem, repaired (theory.md, section 1): one softmax head over finitely many memory tokens, one softmax over the
   regions, is within eps of any continuous function of D variables with K outputs on any compact set. *)
From Coq Require Import Reals Lra Lia List.
From Coquelicot Require Import Coquelicot.
From Onelayer Require Import Softmax Vectors.
Import ListNotations.
Open Scope R_scope.

(* A memory token: the query (x, 1) against its key and bias gives the logit key . x + bias; value i is output i. *)
Record token := Token { key : vec; bias : R; value : nat -> R }.
Definition logit (x : vec) (t : token) : R := dot (key t) x + bias t.
Definition head (mem : list token) (x : vec) (i : nat) : R := attend (logit x) mem (fun t => value t i).

Definition lookup_token (beta : R) (f : vec -> nat -> R) (c : vec) : token :=
  Token (map (Rmult (2 * beta)) c) (- beta * dot c c) (f c).

(* "Give token m the centre x_m and the logit 2 beta x_m . x - beta |x_m|^2 = - beta |x - x_m|^2 + beta |x|^2." *)
Theorem lookup_logit beta f c : forall x, length c = length x ->
  logit x (lookup_token beta f c) = - beta * dist2 x c + beta * dot x x.
Proof.
  unfold logit; simpl; induction c as [|a c IH]; intros [|u x] H; simpl in *; try discriminate; [ring|].
  injection H as H; specialize (IH x H).
  replace (2 * beta * a * u + dot (map (Rmult (2 * beta)) c) x + - beta * (a * a + dot c c))
    with (2 * beta * a * u - beta * (a * a) + (dot (map (Rmult (2 * beta)) c) x + - beta * dot c c)) by ring.
  rewrite IH; ring.
Qed.

(* "Let every point of X lie within h of some centre x_m in X. Take values v_m = f(x_m). Then for every r > h, in each
   output, |T(x) - f(x)| <= omega_f(r) + osc(f) M exp(- beta (r^2 - h^2)) for all x in X." *)
Theorem lookup D (X : vec -> Prop) (f : vec -> nat -> R) i (l : list vec) beta r h omega osc :
  (forall x, X x -> length x = D) ->
  (forall c, In c l -> X c) ->
  (forall x, X x -> exists c, In c l /\ dist x c <= h) ->
  0 <= beta -> 0 <= h <= r ->
  0 <= omega -> 0 <= osc ->
  (forall x y, X x -> X y -> dist x y <= r -> Rabs (f y i - f x i) <= omega) ->
  (forall x y, X x -> X y -> Rabs (f y i - f x i) <= osc) ->
  forall x, X x ->
  Rabs (head (map (lookup_token beta f) l) x i - f x i)
    <= omega + osc * INR (length l) * exp (- beta * (r ^ 2 - h ^ 2)).
Proof.
  intros Len In_X Cover Hb Hr Ho Hosc Hom Hos x Hx.
  destruct (Cover x Hx) as [c0 [Hc0 Dc0]].
  assert (Ne : l <> nil) by (intros ->; contradiction).
  unfold head; rewrite attend_map; cbn [value lookup_token].
  set (lg := fun c => logit x (lookup_token beta f c)).
  eapply Rle_trans; [apply (attend_error lg l Ne)|].
  set (e := exp (- beta * (r ^ 2 - h ^ 2))).
  assert (Pe : 0 < e) by apply exp_pos.
  replace (omega + osc * INR (length l) * e)
    with (lsum (fun c => omega * weight lg l c + osc * e) l).
  2:{ rewrite lsum_plus, lsum_scal, (weights_sum_one lg l Ne), lsum_const; ring. }
  apply lsum_le; intros c Hc.
  assert (W := weights_positive lg l Ne c).
  assert (Hlen : forall c, In c l -> length c = length x) by (intros c' Hc'; rewrite !Len; auto).
  destruct (Rle_dec (dist x c) r) as [N|F].
  - assert (A := Hom x c Hx (In_X c Hc) N).
    assert (0 <= osc * e) by (apply Rmult_le_pos; lra).
    apply Rle_trans with (weight lg l c * omega); [apply Rmult_le_compat_l; lra|lra].
  - assert (We : weight lg l c <= e).
    { eapply Rle_trans; [apply (weight_le_ratio lg l c c0 Hc0)|].
      unfold lg; rewrite !lookup_logit by auto.
      assert (D1 : r ^ 2 <= dist2 x c) by (rewrite <- dist_sq; apply pow_incr; lra).
      assert (D2 : dist2 x c0 <= h ^ 2) by (rewrite <- dist_sq; apply pow_incr; split; [apply dist_nonneg|exact Dc0]).
      unfold e.
      apply exp_le.
      assert (beta * (r ^ 2 - h ^ 2) <= beta * (dist2 x c - dist2 x c0)) by (apply Rmult_le_compat_l; lra).
      lra. }
    assert (A := Hos x c Hx (In_X c Hc)).
    assert (0 <= omega * weight lg l c) by (apply Rmult_le_pos; lra).
    apply Rle_trans with (e * osc); [apply Rmult_le_compat; try lra; apply Rabs_pos|lra].
Qed.

(* "Choose r with omega_f(r) <= eps/2, a finite net with h = r/2, and beta >= 4/(3 r^2) ln(2 M osc(f) / eps)." *)
Theorem lookup_beta D (X : vec -> Prop) (f : vec -> nat -> R) i (l : list vec) beta r omega osc eps :
  (forall x, X x -> length x = D) ->
  (forall c, In c l -> X c) ->
  (forall x, X x -> exists c, In c l /\ dist x c <= r / 2) ->
  0 < r -> 0 < eps -> 0 <= omega <= eps / 2 -> 0 <= osc ->
  (forall x y, X x -> X y -> dist x y <= r -> Rabs (f y i - f x i) <= omega) ->
  (forall x y, X x -> X y -> Rabs (f y i - f x i) <= osc) ->
  0 <= beta -> 4 / (3 * r ^ 2) * ln (2 * INR (length l) * osc / eps) <= beta ->
  forall x, X x -> Rabs (head (map (lookup_token beta f) l) x i - f x i) <= eps.
Proof.
  intros Len In_X Cover Hr He [Ho Ho'] Hosc Hom Hos Hb HB x Hx.
  eapply Rle_trans.
  { apply (lookup D X f i l beta r (r / 2) omega osc); auto; lra. }
  assert (PM := pos_INR (length l)); set (M := INR (length l)) in *.
  assert (P2 : 0 < r ^ 2) by (apply pow_lt, Hr).
  assert (Tail : osc * M * exp (- beta * (r ^ 2 - (r / 2) ^ 2)) <= eps / 2); [|lra].
  assert (Q : 0 <= osc * M) by (apply Rmult_le_pos; assumption).
  destruct (Req_dec (osc * M) 0) as [Z|Z]; [rewrite Z; lra|].
  assert (L : 0 < 2 * M * osc / eps) by (apply Rdiv_lt_0_compat; lra).
  apply Rle_trans with (osc * M * exp (- ln (2 * M * osc / eps))).
  - apply Rmult_le_compat_l; [exact Q|]; apply exp_le.
    apply Rmult_le_compat_r with (r := 3 * r ^ 2 / 4) in HB; [|lra].
    replace (4 / (3 * r ^ 2) * ln (2 * M * osc / eps) * (3 * r ^ 2 / 4)) with (ln (2 * M * osc / eps)) in HB
      by (field; lra); lra.
  - rewrite exp_Ropp, exp_ln by exact L; right; field; repeat split; try lra; nra.
Qed.

(* "Consequently one softmax head, without feed-forward network, approximates f uniformly to any eps > 0." *)
Theorem universal_approximation :
  forall (D K : nat) (X : vec -> Prop) (f : vec -> nat -> R),
  compact D X ->
  (forall i, (i < K)%nat -> continuous_on X (fun x => f x i)) ->
  forall eps, 0 < eps ->
  exists mem : list token, mem <> nil /\
    (forall t, In t mem -> length (key t) = D) /\
    forall x, X x -> forall i, (i < K)%nat -> Rabs (head mem x i - f x i) <= eps.
Proof.
  intros D K X f C Hf eps He.
  assert (Len := compact_length D X C).
  destruct (heine_K D X f K C Hf (eps / 2)) as [d [Hd U]]; [lra|].
  destruct (bounded_K D X f K C Hf) as [M [M0 HM]].
  set (r := d / 2); set (h := r / 2).
  assert (PD := pos_INR D).
  destruct (net D X (h / (INR D + 1)) C) as [l [L1 L2]]; [unfold h, r; apply Rdiv_lt_0_compat; lra|].
  destruct l as [|c l].
  { (* X is empty *)
    exists [Token (repeat 0 D) 0 (fun _ => 0)]; split; [discriminate|split].
    - intros t [<-|[]]; apply repeat_length.
    - intros x Hx; destruct (L2 x Hx) as [c [[] _]]. }
  set (net0 := c :: l) in *.
  set (A := 2 * M * INR (length net0)).
  assert (HA : 0 <= A) by (apply Rmult_le_pos; [lra|apply pos_INR]).
  assert (Q : 0 < r ^ 2 - h ^ 2) by (unfold h, r; nra).
  set (beta := ln (2 * A / eps + 1) / (r ^ 2 - h ^ 2)).
  assert (P1 : 0 <= 2 * A / eps) by (apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat, He]).
  assert (Hb : 0 <= beta).
  { apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat, Q].
    rewrite <- ln_1; destruct (Req_dec (2 * A / eps) 0) as [->|Z]; [rewrite Rplus_0_l; lra|].
    left; apply ln_increasing; lra. }
  exists (map (lookup_token beta f) net0); split; [discriminate|split].
  { intros t Ht; apply in_map_iff in Ht; destruct Ht as [c' [<- Hc']]; simpl; rewrite map_length.
    apply Len, L1, Hc'. }
  intros x Hx i Hi.
  eapply Rle_trans.
  { apply (lookup D X f i net0 beta r h (eps / 2) (2 * M)); auto; try lra.
    - intros y Hy; destruct (L2 y Hy) as [c' [Hc' N']]; exists c'; split; [exact Hc'|left].
      apply (near_dist h y c' D); [unfold h, r; lra|apply Len, Hy|exact N'].
    - unfold h, r; lra.
    - intros y z Hy Hz Hd'; left; rewrite Rabs_minus_sym; apply U; auto.
      apply near_of_dist; [rewrite !Len; auto|]; unfold r in Hd'; lra.
    - intros y z Hy Hz; unfold Rminus; eapply Rle_trans; [apply Rabs_triang|rewrite Rabs_Ropp].
      generalize (HM i Hi y Hy) (HM i Hi z Hz); lra. }
  fold A.
  replace (- beta * (r ^ 2 - h ^ 2)) with (- ln (2 * A / eps + 1)) by (unfold beta; field; lra).
  rewrite exp_Ropp, exp_ln by lra.
  assert (A * / (2 * A / eps + 1) <= eps / 2); [|lra].
  apply Rmult_le_reg_r with (2 * A / eps + 1); [lra|].
  rewrite Rmult_assoc, Rinv_l by lra.
  replace (eps / 2 * (2 * A / eps + 1)) with (A + eps / 2) by (field; lra); lra.
Qed.
