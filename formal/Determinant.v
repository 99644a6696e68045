(* Row 5 of the failing steps (theory.md, section 9): "attention alone suffices" is false for n >= 3 and d >= 2. Every
   sum of heads at position 1, with queries from token 1, misses det[x_2, x_3]^2 by at least 3/16 on the matrices of
   operator norm at most 1.

   The proof of theory.md averages over all angles. Here finitely many do: an average over multiples of the angles of
   the heads themselves is invariant under their rotations up to 2/N, and that is all the cancellation needs. *)
From Coq Require Import Reals Lra Lia List.
From Onelayer Require Import Softmax Vectors Attention.
Import ListNotations.
Open Scope R_scope.

(* A head seen from token 1: the logit of token j is q . x_j + c_j, its value p . x_j + d_j, with c_j and d_j for the
   positions; token 1 itself, sinks and memory tokens have constant logits and values. *)
Record head_at_one := Head {
  q1 : R; q2 : R; c2 : R; c3 : R;
  p1 : R; p2 : R; d2 : R; d3 : R;
  constants : list (R * R) }.

Definition tokens h (x y x' y' : R) : list (R * R) :=
  (q1 h * x + q2 h * y + c2 h, p1 h * x + p2 h * y + d2 h) ::
  (q1 h * x' + q2 h * y' + c3 h, p1 h * x' + p2 h * y' + d3 h) :: constants h.
Definition output h (x y x' y' : R) : R := attend fst (tokens h x y x' y') snd.
Definition outputs heads (x y x' y' : R) : R := lsum (fun h => output h x y x' y') heads.

(* Attention as printed gives heads of this form. To token j of width 2 its position code (e, e') is added; u is the
   query of token 1 over sqrt d_k, or the column of W^O and the read-out that makes a value a number; W and b make keys,
   or values. The direction (q, q') is the same at every position, only the constant depends on it. *)
Theorem affine_in_token (u : vec) (W : list vec) (b : vec) : exists q q', forall e e', exists c, forall x y,
  dot u (affine W b [x + e; y + e']) = q * x + q' * y + c.
Proof.
  revert u b; induction W as [|r W IH]; intros u b.
  { exists 0, 0; intros e e'; exists 0; intros x y; destruct u; simpl; ring. }
  destruct b as [|d b]; [exists 0, 0; intros e e'; exists 0; intros x y; destruct u; simpl; ring|].
  destruct u as [|v u]; [exists 0, 0; intros e e'; exists 0; intros x y; simpl; ring|].
  destruct (IH u b) as [q [q' H]].
  assert (D : forall s t, dot r [s; t] = nth 0 r 0 * s + nth 1 r 0 * t) by
    (intros s t; destruct r as [|r1 [|r2 [|]]]; simpl; ring).
  exists (v * nth 0 r 0 + q), (v * nth 1 r 0 + q'); intros e e'; destruct (H e e') as [c Hc].
  exists (v * (nth 0 r 0 * e + nth 1 r 0 * e' + d) + c); intros x y; specialize (Hc x y).
  unfold affine in *; cbn [combine map fst snd dot]; rewrite Hc, D; ring.
Qed.

(* x_2 = (x, y), x_3 = (x', y'): the matrix [x_2, x_3] shortens every vector (s, t). *)
Definition contraction (x y x' y' : R) : Prop :=
  forall s t, (x * s + x' * t) ^ 2 + (y * s + y' * t) ^ 2 <= s ^ 2 + t ^ 2.

(* An average of F over finitely many angles, built from the angles of the heads. *)
Definition third : R := 2 * (PI / 3).
Fixpoint mean (angles : list R) (N : nat) (F : R -> R) : R :=
  match angles with
  | nil => (F 0 + F third + F (- third)) / 3
  | psi :: rest => lsum (fun k => mean rest N (fun a => F (a + INR k * psi))) (seq 0 N) / INR N
  end.

Section Mean.
Variable N : nat.
Hypothesis HN : (0 < N)%nat.

Let PN : 0 < INR N.
Proof. apply lt_0_INR, HN. Qed.

Lemma mean_ext angles : forall F G, (forall a, F a = G a) -> mean angles N F = mean angles N G.
Proof.
  induction angles as [|psi rest IH]; intros F G H; simpl; [rewrite !H; reflexivity|].
  f_equal; apply lsum_ext; intros k _; apply IH; intros a; apply H.
Qed.

Lemma mean_linear angles c d : forall F G,
  mean angles N (fun a => c * F a + d * G a) = c * mean angles N F + d * mean angles N G.
Proof.
  induction angles as [|psi rest IH]; intros F G; simpl; [field|].
  rewrite (lsum_ext _ (fun k => c * mean rest N (fun a => F (a + INR k * psi))
                                + d * mean rest N (fun a => G (a + INR k * psi)))) by (intros k _; apply IH).
  rewrite lsum_plus, !lsum_scal; field; lra.
Qed.

Lemma average_bound (H : nat -> R) C : (forall k, Rabs (H k) <= C) -> Rabs (lsum H (seq 0 N) / INR N) <= C.
Proof.
  intros B; unfold Rdiv; rewrite Rabs_mult, (Rabs_right (/ INR N)) by (left; apply Rinv_0_lt_compat, PN).
  apply Rmult_le_reg_r with (INR N); [exact PN|]; rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  eapply Rle_trans; [apply lsum_abs|]; eapply Rle_trans; [apply lsum_le; intros k _; apply B|].
  rewrite lsum_const, seq_length; lra.
Qed.

Lemma mean_bound angles C : forall F, (forall a, Rabs (F a) <= C) -> Rabs (mean angles N F) <= C.
Proof.
  induction angles as [|psi rest IH]; intros F B; cbn [mean].
  - assert (A := B 0); assert (A' := B third); assert (A'' := B (- third)).
    revert A A' A''; generalize (F 0) (F third) (F (- third)); intros u v w.
    unfold Rabs; repeat destruct Rcase_abs; lra.
  - apply average_bound; intros k; apply IH; intros a; apply B.
Qed.

Lemma telescope (H : nat -> R) n : lsum (fun k => H (S k)) (seq 0 n) - lsum H (seq 0 n) = H n - H O.
Proof. induction n as [|n IH]; [simpl; ring|]; rewrite !lsum_seq_last; lra. Qed.

(* Turning by one of the angles changes the average of a bounded function by at most 2 C / N. *)
Lemma mean_shift angles psi C : In psi angles -> forall F, (forall a, Rabs (F a) <= C) ->
  Rabs (mean angles N (fun a => F (a + psi)) - mean angles N F) <= 2 * C / INR N.
Proof.
  induction angles as [|psi' rest IH]; intros Hin F B; [contradiction|]; cbn [mean].
  destruct Hin as [->|Hin].
  - set (H := fun k => mean rest N (fun a => F (a + INR k * psi))).
    rewrite (lsum_ext (fun k => mean rest N (fun a => F (a + INR k * psi + psi))) (fun k => H (S k))).
    2:{ intros k _; apply mean_ext; intros a; f_equal; rewrite S_INR; ring. }
    replace (lsum (fun k => H (S k)) (seq 0 N) / INR N - lsum H (seq 0 N) / INR N) with ((H N - H O) / INR N)
      by (rewrite <- telescope; field; lra).
    unfold Rdiv; rewrite Rabs_mult, (Rabs_right (/ INR N)) by (left; apply Rinv_0_lt_compat, PN).
    apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, PN|].
    assert (BH : forall k, Rabs (H k) <= C) by (intros k; apply mean_bound; intros a; apply B).
    unfold Rminus; eapply Rle_trans; [apply Rabs_triang|rewrite Rabs_Ropp].
    generalize (BH N) (BH O); lra.
  - set (H := fun k => mean rest N (fun a => F (a + psi + INR k * psi')) - mean rest N (fun a => F (a + INR k * psi'))).
    replace (lsum (fun k => mean rest N (fun a => F (a + INR k * psi' + psi))) (seq 0 N) / INR N
             - lsum (fun k => mean rest N (fun a => F (a + INR k * psi'))) (seq 0 N) / INR N)
      with (lsum H (seq 0 N) / INR N).
    + apply average_bound; intros k; apply (IH Hin (fun a => F (a + INR k * psi'))); intros a; apply B.
    + rewrite (lsum_ext H (fun k => mean rest N (fun a => F (a + INR k * psi' + psi))
                                    + -1 * mean rest N (fun a => F (a + INR k * psi')))).
      * rewrite lsum_plus, lsum_scal; field; lra.
      * intros k _; unfold H; rewrite (mean_ext rest (fun a => F (a + psi + INR k * psi'))
          (fun a => F (a + INR k * psi' + psi))) by (intros a; f_equal; ring); ring.
Qed.

Lemma mean_shift_back angles psi C : In psi angles -> forall F, (forall a, Rabs (F a) <= C) ->
  Rabs (mean angles N (fun a => F (a - psi)) - mean angles N F) <= 2 * C / INR N.
Proof.
  intros Hin F B; rewrite Rabs_minus_sym.
  rewrite (mean_ext angles F (fun a => F (a + psi - psi))) by (intros a; f_equal; ring).
  apply (mean_shift angles psi C Hin (fun a => F (a - psi))); intros a; apply B.
Qed.

Lemma mean_const angles c : mean angles N (fun _ => c) = c.
Proof.
  induction angles as [|psi rest IH]; simpl; [field|].
  rewrite (lsum_ext _ (fun _ => c)) by (intros; apply IH); rewrite lsum_const, seq_length; field; lra.
Qed.

(* The three base points average cos and cos^2 exactly. *)
Lemma mean_cos angles : forall c, mean angles N (fun a => cos (a + c)) = 0.
Proof.
  induction angles as [|psi rest IH]; intros c; cbn [mean].
  - rewrite !cos_plus, cos_neg, sin_neg, cos_0, sin_0; unfold third; rewrite cos_2PI3; lra.
  - rewrite (lsum_ext _ (fun _ => 0)); [rewrite lsum_const; field; lra|].
    intros k _; rewrite (mean_ext rest _ (fun a => cos (a + (INR k * psi + c)))); [apply IH|].
    intros a; f_equal; ring.
Qed.

Lemma mean_cos2 angles : forall c, mean angles N (fun a => cos (a + c) ^ 2) = 1 / 2.
Proof.
  induction angles as [|psi rest IH]; intros c; cbn [mean].
  - rewrite !cos_plus, cos_neg, sin_neg, cos_0, sin_0; unfold third; rewrite cos_2PI3, sin_2PI3.
    assert (Q := sqrt_sqrt 3 ltac:(lra)); assert (T := sin2_cos2 c); unfold Rsqr in T; nra.
  - rewrite (lsum_ext _ (fun _ => 1 / 2)); [rewrite lsum_const, seq_length; field; lra|].
    intros k _; rewrite (mean_ext rest _ (fun a => cos (a + (INR k * psi + c)) ^ 2)); [apply IH|].
    intros a; f_equal; f_equal; ring.
Qed.
End Mean.

(* Polar coordinates of the key. *)
Definition radius (x y : R) : R := sqrt (x ^ 2 + y ^ 2).
Definition angle (x y : R) : R := if Rle_dec 0 y then acos (x / radius x y) else - acos (x / radius x y).

Lemma polar x y : x = radius x y * cos (angle x y) /\ y = radius x y * sin (angle x y).
Proof.
  assert (S : 0 <= x ^ 2 + y ^ 2) by (generalize (pow2_ge_0 x) (pow2_ge_0 y); lra).
  assert (Q : radius x y * radius x y = x ^ 2 + y ^ 2) by (apply sqrt_sqrt, S).
  assert (P : 0 <= radius x y) by apply sqrt_pos; unfold angle; revert Q P; generalize (radius x y); intros r Q P.
  destruct (Req_dec r 0) as [->|Z]; [assert (x = 0 /\ y = 0) by (split; nra); lra|].
  assert (E : (x / r) ^ 2 + (y / r) ^ 2 = 1).
  { replace ((x / r) ^ 2 + (y / r) ^ 2) with ((x ^ 2 + y ^ 2) / (r * r)) by (field; exact Z).
    rewrite <- Q; field; exact Z. }
  assert (B : -1 <= x / r <= 1) by (split; generalize (pow2_ge_0 (y / r)); nra).
  assert (Sn : sin (acos (x / r)) = Rabs (y / r)).
  { rewrite sin_acos by exact B; rewrite <- sqrt_Rsqr_abs; f_equal; unfold Rsqr; lra. }
  destruct Rle_dec as [Hy|Hy].
  - rewrite cos_acos, Sn by exact B; rewrite Rabs_right by (apply Rle_ge, Rmult_le_pos;
      [exact Hy|left; apply Rinv_0_lt_compat; lra]); split; field; exact Z.
  - rewrite cos_neg, sin_neg, cos_acos, Sn by exact B.
    rewrite Rabs_left; [split; field; exact Z|].
    apply Rmult_lt_reg_r with r; [lra|]; unfold Rdiv; rewrite Rmult_assoc, Rinv_l by exact Z; lra.
Qed.

(* X = (A + B)/2, A a rotation (sigma = 1) or a reflection (sigma = -1) by the angle a, B one by b with sign tau. *)
Definition at_angles {T} (F : R -> R -> R -> R -> T) (sigma tau a b : R) : T :=
  F ((cos a + cos b) / 2) ((sigma * sin a + tau * sin b) / 2)
    (- (sin a + sin b) / 2) ((sigma * cos a + tau * cos b) / 2).
Definition sign (sigma : R) : Prop := sigma = 1 \/ sigma = -1.

Lemma half_sum_contracts sigma tau a b : sign sigma -> sign tau -> at_angles contraction sigma tau a b.
Proof.
  intros Hs Ht s t; assert (Ss : sigma * sigma = 1) by (destruct Hs; subst; ring).
  assert (St : tau * tau = 1) by (destruct Ht; subst; ring).
  assert (Ta := sin2_cos2 a); assert (Tb := sin2_cos2 b); unfold Rsqr in Ta, Tb.
  set (u := cos a * s - sin a * t); set (u' := sigma * (sin a * s + cos a * t)).
  set (w := cos b * s - sin b * t); set (w' := tau * (sin b * s + cos b * t)).
  assert (Lu : u ^ 2 + u' ^ 2 = s ^ 2 + t ^ 2).
  { replace (u ^ 2 + u' ^ 2) with ((cos a * s - sin a * t) ^ 2 + sigma * sigma * (sin a * s + cos a * t) ^ 2)
      by (unfold u, u'; ring).
    rewrite Ss; replace (s ^ 2 + t ^ 2) with ((sin a * sin a + cos a * cos a) * (s ^ 2 + t ^ 2)) by (rewrite Ta; ring).
    ring. }
  assert (Lw : w ^ 2 + w' ^ 2 = s ^ 2 + t ^ 2).
  { replace (w ^ 2 + w' ^ 2) with ((cos b * s - sin b * t) ^ 2 + tau * tau * (sin b * s + cos b * t) ^ 2)
      by (unfold w, w'; ring).
    rewrite St; replace (s ^ 2 + t ^ 2) with ((sin b * sin b + cos b * cos b) * (s ^ 2 + t ^ 2)) by (rewrite Tb; ring).
    ring. }
  replace ((cos a + cos b) / 2 * s + - (sin a + sin b) / 2 * t) with ((u + w) / 2) by (unfold u, w; field).
  replace ((sigma * sin a + tau * sin b) / 2 * s + (sigma * cos a + tau * cos b) / 2 * t) with ((u' + w') / 2)
    by (unfold u', w'; field).
  generalize (pow2_ge_0 (u - w)) (pow2_ge_0 (u' - w')); nra.
Qed.

(* "For two rotations, or two reflections, det(A + B) = +-(2 + 2 cos phi); for one of each it is 0." *)
Definition det (x y x' y' : R) : R := x * y' - y * x'.
Lemma det_at_angles sigma tau a b : at_angles det sigma tau a b = (sigma + tau) * (1 + cos (a - b)) / 4.
Proof.
  unfold at_angles, det; rewrite cos_minus; assert (Ta := sin2_cos2 a); assert (Tb := sin2_cos2 b).
  unfold Rsqr in Ta, Tb.
  replace ((cos a + cos b) / 2 * ((sigma * cos a + tau * cos b) / 2)
           - (sigma * sin a + tau * sin b) / 2 * (- (sin a + sin b) / 2))
    with ((sigma * (sin a * sin a + cos a * cos a) + tau * (sin b * sin b + cos b * cos b)
           + (sigma + tau) * (cos a * cos b + sin a * sin b)) / 4) by field.
  rewrite Ta, Tb; field.
Qed.

Section OneHead.
Variable h : head_at_one.
Let psi := angle (q1 h) (q2 h).
Let r := radius (q1 h) (q2 h).
Let along := p1 h * cos psi + p2 h * sin psi.
Let across := p2 h * cos psi - p1 h * sin psi.

(* The head in coordinates turned by its own angle: logits depend on neither sign. *)
Definition turned_tokens (sigma tau a b : R) : list (R * R) :=
  (r * ((cos a + cos b) / 2) + c2 h,
   along * ((cos a + cos b) / 2) + across * ((sigma * sin a + tau * sin b) / 2) + d2 h) ::
  (r * (- (sin a + sin b) / 2) + c3 h,
   along * (- (sin a + sin b) / 2) + across * ((sigma * cos a + tau * cos b) / 2) + d3 h) :: constants h.
Definition turned (sigma tau a b : R) : R := attend fst (turned_tokens sigma tau a b) snd.

Lemma turn sigma tau a b : sign sigma -> sign tau ->
  at_angles (output h) sigma tau (a + sigma * psi) (b + tau * psi) = turned sigma tau a b.
Proof.
  intros Hs Ht; unfold at_angles, output, turned; f_equal; unfold tokens, turned_tokens.
  destruct (polar (q1 h) (q2 h)) as [E1 E2]; fold psi r in E1, E2; rewrite E1, E2.
  assert (T := sin2_cos2 psi); unfold Rsqr in T.
  assert (C : forall s, sign s -> cos (s * psi) = cos psi /\ sin (s * psi) = s * sin psi).
  { intros s [->| ->]; [rewrite !Rmult_1_l; auto|].
    replace (-1 * psi) with (- psi) by ring; rewrite cos_neg, sin_neg; split; ring. }
  assert (Ss : sigma * sigma = 1) by (destruct Hs; subst; ring).
  assert (St : tau * tau = 1) by (destruct Ht; subst; ring).
  destruct (C sigma Hs) as [C1 C2], (C tau Ht) as [C3 C4].
  rewrite !cos_plus, !sin_plus, C1, C2, C3, C4; unfold along, across.
  apply f_equal2; [apply f_equal2; apply Rplus_eq_compat_r|].
  - transitivity (r * ((cos a + cos b) * (sin psi * sin psi + cos psi * cos psi) / 2
      + (sigma * sigma - 1) * sin psi * sin psi * cos a / 2 + (tau * tau - 1) * sin psi * sin psi * cos b / 2));
      [field|rewrite T, Ss, St; field].
  - transitivity ((p1 h * cos psi + p2 h * sin psi) * ((cos a + cos b) / 2)
      + (p2 h * cos psi - p1 h * sin psi) * ((sigma * sin a + tau * sin b) / 2)
      + p2 h * sin psi * ((sigma * sigma - 1) * cos a + (tau * tau - 1) * cos b) / 2);
      [field|rewrite Ss, St; field].
  - apply f_equal2; [apply f_equal2; apply Rplus_eq_compat_r|reflexivity].
    + transitivity (r * (- (sin a + sin b) * (sin psi * sin psi + cos psi * cos psi) / 2
        - (sigma * sigma - 1) * sin psi * sin psi * sin a / 2 - (tau * tau - 1) * sin psi * sin psi * sin b / 2));
        [field|rewrite T, Ss, St; field].
    + transitivity ((p1 h * cos psi + p2 h * sin psi) * (- (sin a + sin b) / 2)
        + (p2 h * cos psi - p1 h * sin psi) * ((sigma * cos a + tau * cos b) / 2)
        - p2 h * sin psi * ((sigma * sigma - 1) * sin a + (tau * tau - 1) * sin b) / 2);
        [field|rewrite Ss, St; field].
Qed.

(* "The signed sum of a head over the four cases is, for given u and w, 0." *)
Lemma signed_sum_vanishes a b :
  turned 1 1 a b - turned 1 (-1) a b - turned (-1) 1 a b + turned (-1) (-1) a b = 0.
Proof.
  unfold turned; rewrite !attend_ratio by discriminate.
  unfold partition, turned_tokens; cbn [lsum fst snd]; unfold Rdiv; ring.
Qed.

(* A bound of the head on all these matrices. *)
Definition reach : R :=
  Rabs along + Rabs across + Rabs (d2 h) + Rabs (d3 h) + lsum (fun t => Rabs (snd t)) (constants h).

Lemma turned_bound sigma tau a b : sign sigma -> sign tau -> Rabs (turned sigma tau a b) <= reach.
Proof.
  intros Hs Ht; unfold turned; rewrite <- (Rminus_0_r (attend _ _ _)).
  assert (Ne : turned_tokens sigma tau a b <> nil) by discriminate.
  eapply Rle_trans; [apply attend_error, Ne|]; apply attend_below; [exact Ne|].
  assert (PC : forall l : list (R * R), 0 <= lsum (fun t => Rabs (snd t)) l) by
    (intros l; apply lsum_nonneg; intros; apply Rabs_pos).
  assert (In_le : forall (l : list (R * R)) t, In t l -> Rabs (snd t) <= lsum (fun t => Rabs (snd t)) l).
  { induction l as [|t' l IH]; intros t H; [contradiction|]; simpl; destruct H as [->|H].
    - generalize (PC l); lra.
    - generalize (IH t H) (Rabs_pos (snd t')); lra. }
  assert (Half : forall u v, -1 <= u <= 1 -> -1 <= v <= 1 -> Rabs ((u + v) / 2) <= 1) by
    (intros u v Hu Hv; unfold Rabs; destruct Rcase_abs; lra).
  assert (Neg : forall u v, -1 <= u <= 1 -> -1 <= v <= 1 -> Rabs (- (u + v) / 2) <= 1) by
    (intros u v Hu Hv; unfold Rabs; destruct Rcase_abs; lra).
  assert (Sg : forall s u, sign s -> -1 <= u <= 1 -> -1 <= s * u <= 1) by (intros s u [->| ->]; lra).
  assert (Val : forall u v d, Rabs u <= 1 -> Rabs v <= 1 -> Rabs (along * u + across * v + d)
                <= Rabs along + Rabs across + Rabs d).
  { intros u v d Hu Hv; eapply Rle_trans; [apply Rabs_triang|]; apply Rplus_le_compat_r.
    eapply Rle_trans; [apply Rabs_triang|]; rewrite !Rabs_mult; apply Rplus_le_compat.
    - rewrite <- (Rmult_1_r (Rabs along)) at 2; apply Rmult_le_compat_l; [apply Rabs_pos|exact Hu].
    - rewrite <- (Rmult_1_r (Rabs across)) at 2; apply Rmult_le_compat_l; [apply Rabs_pos|exact Hv]. }
  assert (Ca := COS_bound a); assert (Cb := COS_bound b); assert (Sa := SIN_bound a); assert (Sb := SIN_bound b).
  assert (P2 := Rabs_pos (d2 h)); assert (P3 := Rabs_pos (d3 h)).
  assert (Pal := Rabs_pos along); assert (Pac := Rabs_pos across); assert (Pc := PC (constants h)).
  intros t [<-|[<-|Ht']]; rewrite Rminus_0_r; cbn [snd]; unfold reach.
  - eapply Rle_trans; [apply Val; [apply Half|apply Half; apply Sg]; assumption|lra].
  - eapply Rle_trans; [apply Val; [apply Neg|apply Half; apply Sg]; assumption|lra].
  - generalize (In_le _ t Ht'); lra.
Qed.
End OneHead.

Lemma abs_between x e : Rabs x <= e -> - e <= x <= e.
Proof. unfold Rabs; destruct Rcase_abs; lra. Qed.

(* The signed double average of theory.md, over finitely many angles. *)
Definition signed_mean angles N (F : R -> R -> R -> R -> R) : R :=
  let average sigma tau := mean angles N (fun a => mean angles N (fun b => at_angles F sigma tau a b)) in
  average 1 1 - average 1 (-1) - average (-1) 1 + average (-1) (-1).

Lemma signed_mean_linear angles N F G c d : (0 < N)%nat ->
  signed_mean angles N (fun x y x' y' => c * F x y x' y' + d * G x y x' y')
  = c * signed_mean angles N F + d * signed_mean angles N G.
Proof.
  intros HN; unfold signed_mean.
  assert (E : forall sigma tau, mean angles N (fun a => mean angles N (fun b =>
      at_angles (fun x y x' y' => c * F x y x' y' + d * G x y x' y') sigma tau a b))
    = c * mean angles N (fun a => mean angles N (fun b => at_angles F sigma tau a b))
      + d * mean angles N (fun a => mean angles N (fun b => at_angles G sigma tau a b))).
  { intros sigma tau; rewrite <- mean_linear by exact HN; apply mean_ext; intros a.
    rewrite <- mean_linear by exact HN; reflexivity. }
  rewrite !E; ring.
Qed.

(* "So the signed measure, of total mass at most 4, annihilates S": each head up to 16 C / N. *)
Lemma signed_mean_of_head angles N h : (0 < N)%nat -> In (angle (q1 h) (q2 h)) angles ->
  Rabs (signed_mean angles N (output h)) <= 16 * reach h / INR N.
Proof.
  intros HN Hin; set (psi := angle (q1 h) (q2 h)) in *; unfold signed_mean.
  assert (Shift : forall sigma tau, sign sigma -> sign tau ->
    Rabs (mean angles N (fun a => mean angles N (fun b => at_angles (output h) sigma tau a b))
          - mean angles N (fun a => mean angles N (fun b => turned h sigma tau a b))) <= 4 * reach h / INR N).
  { intros sigma tau Hs Ht.
    assert (One : forall s, sign s -> forall F, (forall a, Rabs (F a) <= reach h) ->
      Rabs (mean angles N (fun a => F (a - s * psi)) - mean angles N F) <= 2 * reach h / INR N).
    { intros s [->| ->] F B.
      - rewrite (mean_ext N angles (fun a => F (a - 1 * psi)) (fun a => F (a - psi)))
          by (intros a; f_equal; ring); apply mean_shift_back; assumption.
      - rewrite (mean_ext N angles (fun a => F (a - -1 * psi)) (fun a => F (a + psi)))
          by (intros a; f_equal; ring); apply mean_shift; assumption. }
    set (inner := fun a => mean angles N (fun b => turned h sigma tau a b)).
    assert (Turn : forall a b,
      at_angles (output h) sigma tau a b = turned h sigma tau (a - sigma * psi) (b - tau * psi)).
    { intros a b; rewrite <- turn by assumption; fold psi; f_equal; ring. }
    assert (A : Rabs (mean angles N (fun a => mean angles N (fun b => at_angles (output h) sigma tau a b))
                      - mean angles N (fun a => inner (a - sigma * psi))) <= 2 * reach h / INR N).
    { set (D := fun a => mean angles N (fun b => at_angles (output h) sigma tau a b) - inner (a - sigma * psi)).
      replace (mean angles N _ - mean angles N _) with (mean angles N D).
      - apply mean_bound; [exact HN|]; intros a; unfold D, inner.
        rewrite (mean_ext N angles _ (fun b => turned h sigma tau (a - sigma * psi) (b - tau * psi)))
          by (intros b; apply Turn).
        apply (One tau Ht (turned h sigma tau (a - sigma * psi))); intros b; apply turned_bound; assumption.
      - unfold D; rewrite (mean_ext N angles _ (fun a => 1 * mean angles N (fun b =>
          at_angles (output h) sigma tau a b) + -1 * inner (a - sigma * psi))) by (intros; ring).
        rewrite mean_linear by exact HN; ring. }
    assert (B : Rabs (mean angles N (fun a => inner (a - sigma * psi)) - mean angles N inner) <= 2 * reach h / INR N).
    { apply One; [exact Hs|]; intros a; apply mean_bound; [exact HN|]; intros b; apply turned_bound; assumption. }
    fold inner; set (u := mean angles N (fun a => mean _ _ _)) in *; set (v := mean angles N inner) in *.
    set (w := mean angles N (fun a => inner (a - sigma * psi))) in *.
    replace (u - v) with ((u - w) + (w - v)) by ring; eapply Rle_trans; [apply Rabs_triang|].
    replace (4 * reach h / INR N) with (2 * reach h / INR N + 2 * reach h / INR N) by (unfold Rdiv; ring); lra. }
  assert (Zero : let average sigma tau := mean angles N (fun a => mean angles N (fun b => turned h sigma tau a b)) in
    average 1 1 - average 1 (-1) - average (-1) 1 + average (-1) (-1) = 0).
  { cbv zeta; set (D := fun a => mean angles N (fun b =>
      1 * (1 * turned h 1 1 a b + -1 * turned h 1 (-1) a b)
      + 1 * (-1 * turned h (-1) 1 a b + 1 * turned h (-1) (-1) a b))).
    transitivity (mean angles N D).
    - unfold D; symmetry.
      rewrite (mean_ext N angles _ (fun a => 1 * (1 * mean angles N (fun b => turned h 1 1 a b)
          + -1 * mean angles N (fun b => turned h 1 (-1) a b)) + 1 * (-1 * mean angles N (fun b => turned h (-1) 1 a b)
          + 1 * mean angles N (fun b => turned h (-1) (-1) a b))))
        by (intros a; rewrite mean_linear, !mean_linear by exact HN; reflexivity).
      rewrite mean_linear, !mean_linear by exact HN; ring.
    - rewrite (mean_ext N angles D (fun _ => 0)); [apply mean_const, HN|]; intros a; unfold D.
      rewrite (mean_ext N angles _ (fun _ => 0)); [apply mean_const, HN|]; intros b.
      generalize (signed_sum_vanishes h a b); lra. }
  cbv zeta in Zero.
  assert (S1 : sign 1) by (left; reflexivity); assert (S2 : sign (-1)) by (right; reflexivity).
  assert (E1 := Shift 1 1 S1 S1); assert (E2 := Shift 1 (-1) S1 S2).
  assert (E3 := Shift (-1) 1 S2 S1); assert (E4 := Shift (-1) (-1) S2 S2).
  replace (16 * reach h / INR N) with (4 * (4 * reach h / INR N)) by (unfold Rdiv; ring).
  revert Zero E1 E2 E3 E4; generalize (4 * reach h / INR N); intros e.
  repeat match goal with |- context [mean angles N ?F] => generalize (mean angles N F); intros ? end.
  intros Z E1 E2 E3 E4; apply abs_between in E1; apply abs_between in E2.
  apply abs_between in E3; apply abs_between in E4; apply Rabs_le; lra.
Qed.

Lemma signed_mean_of_heads angles N heads : (0 < N)%nat -> (forall h, In h heads -> In (angle (q1 h) (q2 h)) angles) ->
  Rabs (signed_mean angles N (outputs heads)) <= 16 * lsum reach heads / INR N.
Proof.
  intros HN; induction heads as [|h heads IH]; intros H.
  - unfold signed_mean, outputs, at_angles; simpl lsum.
    assert (E : mean angles N (fun _ => mean angles N (fun _ => 0)) = 0)
      by (rewrite (mean_ext N angles _ (fun _ => 0)) by (intros; apply mean_const, HN); apply mean_const, HN).
    rewrite E; unfold Rdiv; rewrite Rmult_0_r, Rmult_0_l.
    replace (0 - 0 - 0 + 0) with 0 by ring; rewrite Rabs_R0; lra.
  - assert (A := signed_mean_of_head angles N h HN (H h (or_introl eq_refl))).
    assert (B := IH (fun h' Hh => H h' (or_intror Hh))).
    replace (signed_mean angles N (outputs (h :: heads)))
      with (1 * signed_mean angles N (output h) + 1 * signed_mean angles N (outputs heads)).
    + eapply Rle_trans; [apply Rabs_triang|]; rewrite !Rmult_1_l; cbn [lsum].
      replace (16 * (reach h + lsum reach heads) / INR N)
        with (16 * reach h / INR N + 16 * lsum reach heads / INR N) by (unfold Rdiv; ring); lra.
    + rewrite <- signed_mean_linear by exact HN; unfold signed_mean, outputs, at_angles; cbn [lsum].
      repeat (f_equal; try (apply mean_ext; intros a; apply mean_ext; intros b; ring)).
Qed.

(* "The signed integral is (6 + 6)/16 = 3/4." *)
Lemma signed_mean_of_det angles N : (0 < N)%nat ->
  signed_mean angles N (fun x y x' y' => det x y x' y' ^ 2) = 3 / 4.
Proof.
  intros HN; unfold signed_mean.
  assert (E : forall sigma tau, mean angles N (fun a => mean angles N (fun b =>
      at_angles (fun x y x' y' => det x y x' y' ^ 2) sigma tau a b)) = (sigma + tau) ^ 2 * (3 / 32)).
  { intros sigma tau.
    rewrite (mean_ext N angles _ (fun _ => (sigma + tau) ^ 2 * (3 / 32))); [apply mean_const, HN|]; intros a.
    set (k := (sigma + tau) ^ 2 / 16).
    rewrite (mean_ext N angles _ (fun b => k * (1 * 1 + 2 * cos (b + - a)) + k * cos (b + - a) ^ 2)).
    - rewrite (mean_linear N HN angles k k (fun b => 1 * 1 + 2 * cos (b + - a)) (fun b => cos (b + - a) ^ 2)).
      rewrite (mean_linear N HN angles 1 2 (fun _ => 1) (fun b => cos (b + - a))).
      rewrite mean_const, mean_cos, mean_cos2 by exact HN; unfold k; field.
    - intros b; change (at_angles (fun x y x' y' => det x y x' y' ^ 2) sigma tau a b)
        with (at_angles det sigma tau a b ^ 2).
      rewrite det_at_angles; replace (a - b) with (- (b + - a)) by ring; rewrite cos_neg; unfold k; field. }
  rewrite !E; field.
Qed.

(* "Every sum S of heads has sup |S(X) - det(X)^2| >= 3/16 at position 1." *)
Theorem row5_attention_alone : forall heads e,
  (forall x y x' y', contraction x y x' y' -> Rabs (outputs heads x y x' y' - det x y x' y' ^ 2) <= e) -> 3 / 16 <= e.
Proof.
  intros heads e H; apply Rnot_lt_le; intros L.
  set (C := lsum reach heads); set (angles := map (fun h => angle (q1 h) (q2 h)) heads).
  destruct (INR_unbounded (16 * C / (3 / 4 - 4 * e))) as [N HN].
  assert (PS : 0 < INR (S N)) by (apply lt_0_INR; lia).
  assert (Large : 16 * C / INR (S N) < 3 / 4 - 4 * e).
  { apply Rmult_lt_reg_r with (INR (S N)); [exact PS|]; unfold Rdiv at 1; rewrite Rmult_assoc, Rinv_l by lra.
    assert (Q : 16 * C / (3 / 4 - 4 * e) < INR (S N)) by (rewrite S_INR; lra).
    apply Rmult_lt_compat_r with (r := 3 / 4 - 4 * e) in Q; [|lra].
    replace (16 * C / (3 / 4 - 4 * e) * (3 / 4 - 4 * e)) with (16 * C) in Q by (field; lra); lra. }
  assert (HS : (0 < S N)%nat) by lia; revert PS Large HS; generalize (S N); clear N HN; intros N PS Large HN.
  assert (A := signed_mean_of_heads angles N heads HN (fun h Hh => in_map (fun h => angle (q1 h) (q2 h)) heads h Hh)).
  fold C in A; assert (B := signed_mean_of_det angles N HN).
  set (F := fun x y x' y' => 1 * outputs heads x y x' y' + -1 * det x y x' y' ^ 2).
  assert (E := signed_mean_linear angles N (outputs heads) (fun x y x' y' => det x y x' y' ^ 2) 1 (-1) HN).
  fold F in E; rewrite B in E.
  assert (D : Rabs (signed_mean angles N F) <= 4 * e).
  { assert (M : forall sigma tau, sign sigma -> sign tau ->
      Rabs (mean angles N (fun a => mean angles N (fun b => at_angles F sigma tau a b))) <= e).
    { intros sigma tau Hs Ht; apply mean_bound; [exact HN|]; intros a; apply mean_bound; [exact HN|]; intros b.
      assert (K := H _ _ _ _ (half_sum_contracts sigma tau a b Hs Ht)); unfold at_angles, F.
      match type of K with Rabs ?k <= _ => match goal with |- Rabs ?g <= _ => replace g with k by ring end end.
      exact K. }
    assert (S1 : sign 1) by (left; reflexivity); assert (S2 : sign (-1)) by (right; reflexivity).
    assert (M1 := M 1 1 S1 S1); assert (M2 := M 1 (-1) S1 S2); assert (M3 := M (-1) 1 S2 S1).
    assert (M4 := M (-1) (-1) S2 S2); apply abs_between in M1; apply abs_between in M2.
    apply abs_between in M3; apply abs_between in M4; unfold signed_mean; apply Rabs_le; lra. }
  apply abs_between in A; apply abs_between in D; unfold F in D; rewrite E in D; lra.
Qed.
