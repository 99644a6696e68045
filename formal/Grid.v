(* Many axes (theory.md, section 4): the softmax of a sum is a product, and tensor Bernstein heads on boxes. *)
From Coq Require Import Reals Lra Lia List.
From Onelayer Require Import Softmax Vectors Lookup Axis.
Import ListNotations.
Open Scope R_scope.

(* "If the tokens form a grid and the logit is a sum over the axes, then alpha_m(x) is the product of the softmaxes of
   the axes", for two axes of any kind; a grid of many axes is a grid of its first axis and the rest. *)
Theorem product_of_weights {A B C} (pair : A -> B -> C) (lg : C -> R) (lgA : A -> R) (lgB : B -> R) lA lB a b :
  lA <> nil -> lB <> nil -> (forall a b, lg (pair a b) = lgA a + lgB b) ->
  weight lg (flat_map (fun a => map (pair a) lB) lA) (pair a b) = weight lgA lA a * weight lgB lB b.
Proof.
  intros NA NB H.
  assert (PA := partition_pos lgA lA NA); assert (PB := partition_pos lgB lB NB).
  assert (Z : partition lg (flat_map (fun a => map (pair a) lB) lA) = partition lgA lA * partition lgB lB).
  { unfold partition at 1; rewrite lsum_flat_map.
    rewrite (lsum_ext _ (fun a => partition lgB lB * exp (lgA a))).
    2:{ intros a' _; rewrite lsum_map; unfold partition; rewrite Rmult_comm, <- lsum_scal.
        apply lsum_ext; intros b' _; rewrite H, exp_plus; ring. }
    rewrite lsum_scal; unfold partition; ring. }
  unfold weight; rewrite Z, H, exp_plus; field; lra.
Qed.

(* "So a head over M_1 ... M_r tokens is evaluated by contracting one axis at a time." *)
Theorem factorisation {A B C} (pair : A -> B -> C) (lg : C -> R) (lgA : A -> R) (lgB : B -> R) lA lB phi :
  lA <> nil -> lB <> nil ->
  (forall a b, lg (pair a b) = lgA a + lgB b) ->
  attend lg (flat_map (fun a => map (pair a) lB) lA) phi
  = attend lgA lA (fun a => attend lgB lB (fun b => phi (pair a b))).
Proof.
  intros NA NB H; unfold attend at 1; rewrite lsum_flat_map; apply lsum_ext; intros a _.
  unfold attend; rewrite lsum_map, <- lsum_scal; apply lsum_ext; intros b _.
  rewrite (product_of_weights pair lg lgA lgB) by assumption; ring.
Qed.

(* The tensor Bernstein head on a box: n + 1 tokens per axis, values sampled at the nodes. *)
Fixpoint grid (n : nat) (B : box) : list (list nat) :=
  match B with nil => [nil] | _ :: B' => flat_map (fun k => map (cons k) (grid n B')) (axis n) end.
Fixpoint gnode (n : nat) (B : box) (ks : list nat) : vec :=
  match B, ks with (a, b) :: B', k :: ks' => node n a b k :: gnode n B' ks' | _, _ => nil end.
Fixpoint gkey (B : box) (ks : list nat) : vec :=
  match B, ks with (a, b) :: B', k :: ks' => INR k * (2 / (b - a)) :: gkey B' ks' | _, _ => nil end.
Fixpoint gbias (n : nat) (B : box) (ks : list nat) : R :=
  match B, ks with
  | (a, b) :: B', k :: ks' => ln (INR (binom n k)) - INR k * ((a + b) / (b - a)) + gbias n B' ks'
  | _, _ => 0
  end.
Definition grid_token n B (f : vec -> nat -> R) ks : token :=
  Token (gkey B ks) (gbias n B ks) (f (gnode n B ks)).
Definition grid_memory n B f : list token := map (grid_token n B f) (grid n B).
Definition glogit n B x ks : R := dot (gkey B ks) x + gbias n B ks.

Definition proper (B : box) : Prop := List.Forall (fun ab => fst ab < snd ab) B.
Fixpoint diam2 (B : box) : R := match B with nil => 0 | (a, b) :: B' => (b - a) ^ 2 + diam2 B' end.

Lemma grid_nonempty n B : grid n B <> nil.
Proof.
  induction B as [|ab B IH]; simpl; [discriminate|].
  destruct (grid n B); [congruence|discriminate].
Qed.

Lemma grid_size n B : length (grid n B) = ((S n) ^ length B)%nat.
Proof.
  induction B as [|ab B IH]; [reflexivity|].
  cbn [grid length Nat.pow]; rewrite <- IH, <- (seq_length (S n) 0); unfold axis; rewrite seq_length.
  assert (G : forall l : list nat,
    length (flat_map (fun k => map (cons k) (grid n B)) l) = (length l * length (grid n B))%nat).
  { induction l as [|k l IHl]; [reflexivity|]; cbn [flat_map length]; rewrite app_length, map_length, IHl; lia. }
  rewrite G, seq_length; reflexivity.
Qed.

Lemma gnode_inbox n B : proper B -> forall ks, In ks (grid n B) -> inbox B (gnode n B ks).
Proof.
  intros P; induction P as [|[a b] B Hab _ IH]; intros ks H; [constructor|]; cbn [grid] in H.
  apply in_flat_map in H; destruct H as [k [_ H]]; apply in_map_iff in H; destruct H as [ks' [<- H]].
  constructor; [apply node_range, Hab|apply IH, H].
Qed.

Lemma grid_second_moment n B : (0 < n)%nat -> proper B -> forall x, inbox B x ->
  attend (glogit n B x) (grid n B) (fun ks => dist2 (gnode n B ks) x) <= 16 / 9 * diam2 B / INR n.
Proof.
  intros Hn P; assert (Pn : 0 < INR n) by (apply lt_0_INR; lia).
  induction P as [|[a b] B Hab _ IH]; intros x Hx; inversion Hx as [|u ab x' B' Hu Hx']; subst.
  - simpl; unfold attend, weight, partition; simpl; unfold Rdiv; rewrite !Rmult_0_r, !Rmult_0_l; lra.
  - cbn [grid]; rewrite (factorisation cons _ (blogit n a b u) (glogit n B x'))
      by (try apply axis_nonempty; try apply grid_nonempty;
          intros k ks; unfold glogit, blogit, bernstein_logit, unit_of; simpl; ring).
    simpl in Hab, Hu; specialize (IH x' Hx').
    rewrite (attend_ext _ (blogit n a b u) _ _
      (fun k => attend (glogit n B x') (grid n B) (fun ks => dist2 (gnode n B ks) x') + 1 * (node n a b k - u) ^ 2)).
    + rewrite attend_affine by apply axis_nonempty.
      assert (M := second_moment n a b u Hn Hab Hu).
      replace (16 / 9 * diam2 ((a, b) :: B) / INR n)
        with (16 / 9 * diam2 B / INR n + 1 * (16 / 9 * (b - a) ^ 2 / INR n)) by (simpl; field; lra).
      apply Rplus_le_compat; [exact IH|apply Rmult_le_compat_l; [lra|exact M]].
    + reflexivity.
    + intros k _; cbn [gnode dist2].
      rewrite (attend_ext _ (glogit n B x') _ _ (fun ks => (node n a b k - u) ^ 2 + 1 * dist2 (gnode n B ks) x'))
        by (intros; ring).
      rewrite attend_affine by apply grid_nonempty; ring.
Qed.

(* From a modulus |f(y) - f(x)| <= e + K |y - x|^2 to the error of the head. *)
Lemma error_by_moment n B (f : vec -> nat -> R) i e K x : (0 < n)%nat -> proper B -> 0 <= K -> inbox B x ->
  (forall y, inbox B y -> Rabs (f y i - f x i) <= e + K * dist2 y x) ->
  Rabs (head (grid_memory n B f) x i - f x i) <= e + K * (16 / 9 * diam2 B / INR n).
Proof.
  intros Hn P HK Hx H; unfold head, grid_memory; rewrite attend_map.
  change (fun ks => logit x (grid_token n B f ks)) with (glogit n B x); cbn [value grid_token].
  eapply Rle_trans; [apply attend_error, grid_nonempty|].
  eapply Rle_trans.
  { apply (attend_le _ _ (grid_nonempty n B) _ (fun ks => e + K * dist2 (gnode n B ks) x)).
    intros ks Hks; apply H, gnode_inbox; assumption. }
  rewrite attend_affine by apply grid_nonempty.
  apply Rplus_le_compat_l, Rmult_le_compat_l; [exact HK|apply grid_second_moment; assumption].
Qed.

Lemma lipschitz_by_moment L e d : 0 < e -> L * d <= e / 2 + L ^ 2 / (2 * e) * d ^ 2.
Proof.
  intros He; apply Rmult_le_reg_r with (2 * e); [lra|].
  replace ((e / 2 + L ^ 2 / (2 * e) * d ^ 2) * (2 * e)) with (e ^ 2 + (L * d) ^ 2) by (field; lra).
  generalize (pow2_ge_0 (e - L * d)); nra.
Qed.

Lemma half_left K S n e : 0 < INR n -> 0 < e -> 2 * K * S / e <= INR n -> K * (S / INR n) <= e / 2.
Proof.
  intros Pn He H; apply Rmult_le_reg_r with (INR n * (2 / e)).
  { apply Rmult_lt_0_compat; [lra|apply Rdiv_lt_0_compat; lra]. }
  replace (K * (S / INR n) * (INR n * (2 / e))) with (2 * K * S / e) by (field; lra).
  replace (e / 2 * (INR n * (2 / e))) with (INR n) by (field; lra); exact H.
Qed.

(* An L-Lipschitz f on a box, within eps by (n + 1)^D tokens as soon as n >= 16/9 (L diam / eps)^2. *)
Theorem grid_lipschitz_rate B L (f : vec -> nat -> R) K eps n :
  proper B -> 0 < eps -> (0 < n)%nat ->
  (forall i, (i < K)%nat -> forall x y, inbox B x -> inbox B y -> Rabs (f x i - f y i) <= L * dist x y) ->
  16 / 9 * (L ^ 2 * diam2 B / eps ^ 2) <= INR n ->
  length (grid_memory n B f) = ((S n) ^ length B)%nat /\
  forall x, inbox B x -> forall i, (i < K)%nat -> Rabs (head (grid_memory n B f) x i - f x i) <= eps.
Proof.
  intros P He Hn HL HN; split; [unfold grid_memory; rewrite map_length; apply grid_size|].
  intros x Hx i Hi; assert (Pn : 0 < INR n) by (apply lt_0_INR; lia).
  eapply Rle_trans.
  { apply (error_by_moment n B f i (eps / 2) (L ^ 2 / (2 * eps))); try assumption.
    - apply Rmult_le_pos; [apply pow2_ge_0|left; apply Rinv_0_lt_compat; lra].
    - intros y Hy; eapply Rle_trans; [apply HL; assumption|].
      rewrite <- dist_sq; apply lipschitz_by_moment, He. }
  assert (L ^ 2 / (2 * eps) * (16 / 9 * diam2 B / INR n) <= eps / 2); [|lra].
  apply half_left; try assumption.
  replace (2 * (L ^ 2 / (2 * eps)) * (16 / 9 * diam2 B) / eps) with (16 / 9 * (L ^ 2 * diam2 B / eps ^ 2))
    by (field; lra); exact HN.
Qed.

Lemma diam2_nonneg B : 0 <= diam2 B.
Proof. induction B as [|[a b] B IH]; simpl; [lra|]; generalize (pow2_ge_0 (b - a)); simpl; lra. Qed.

(* A bounded, uniformly continuous f has such a modulus for every e. *)
Lemma quadratic_modulus (X : vec -> Prop) (f : vec -> R) d e M : 0 < d -> 0 <= M ->
  (forall x y, X x -> X y -> dist x y < d -> Rabs (f x - f y) < e) -> 0 <= e -> (forall x, X x -> Rabs (f x) <= M) ->
  forall x y, X x -> X y -> Rabs (f y - f x) <= e + 2 * M / d ^ 2 * dist2 y x.
Proof.
  intros Hd HM U He HB x y Hx Hy; assert (Pd : 0 < d ^ 2) by (apply pow_lt, Hd).
  assert (HK : 0 <= 2 * M / d ^ 2) by (apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat, Pd]).
  destruct (Rlt_dec (dist y x) d) as [C|C].
  - assert (A := U y x Hy Hx C); assert (0 <= 2 * M / d ^ 2 * dist2 y x); [|lra].
    apply Rmult_le_pos; [exact HK|apply dist2_nonneg].
  - assert (Q : d ^ 2 <= dist2 y x) by (rewrite <- dist_sq; apply pow_incr; lra).
    assert (2 * M <= 2 * M / d ^ 2 * dist2 y x).
    { apply Rle_trans with (2 * M / d ^ 2 * d ^ 2); [right; field; lra|apply Rmult_le_compat_l; assumption]. }
    assert (T : Rabs (f y - f x) <= Rabs (f y) + Rabs (f x)).
    { unfold Rminus; eapply Rle_trans; [apply Rabs_triang|rewrite Rabs_Ropp; lra]. }
    generalize (HB x Hx) (HB y Hy); lra.
Qed.

(* Every continuous f on a box: a tensor Bernstein head with enough tokens per axis is within eps. *)
Theorem grid_universal B (f : vec -> nat -> R) K : proper B ->
  (forall i, (i < K)%nat -> continuous_on (inbox B) (fun x => f x i)) ->
  forall eps, 0 < eps -> exists n0, forall n, (n0 <= n)%nat ->
  forall x, inbox B x -> forall i, (i < K)%nat -> Rabs (head (grid_memory n B f) x i - f x i) <= eps.
Proof.
  intros P Hf eps He; assert (C := box_compact B).
  destruct (heine_K _ _ f K C Hf (eps / 2)) as [d [Hd U]]; [lra|].
  destruct (bounded_K _ _ f K C Hf) as [M [M0 HM]].
  set (Q := 2 * M / d ^ 2).
  assert (HQ : 0 <= Q) by (apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat, pow_lt, Hd]).
  destruct (INR_unbounded (2 * Q * (16 / 9 * diam2 B) / eps)) as [n0 Hn0].
  exists (S n0); intros n Hn x Hx i Hi; assert (Pn : 0 < INR n) by (apply lt_0_INR; lia).
  eapply Rle_trans.
  { apply (error_by_moment n B f i (eps / 2) Q); try assumption; [lia|].
    intros y Hy; apply (quadratic_modulus (inbox B) (fun x => f x i)); auto; try lra.
    intros y' z Hy' Hz N; apply (U i Hi y' z Hy' Hz).
    apply near_of_dist; [rewrite !(inbox_length B); auto|exact N]. }
  assert (Q * (16 / 9 * diam2 B / INR n) <= eps / 2); [|lra].
  apply half_left; try assumption; left; eapply Rlt_le_trans; [exact Hn0|apply le_INR; lia].
Qed.

(* One variable: n + 1 tokens, n >= 16/9 (L (b - a) / eps)^2. *)
Corollary axis_lipschitz_rate a b L (f : R -> R) eps n : a < b -> 0 < eps -> (0 < n)%nat ->
  (forall x y, a <= x <= b -> a <= y <= b -> Rabs (f x - f y) <= L * Rabs (x - y)) ->
  16 / 9 * (L * (b - a) / eps) ^ 2 <= INR n ->
  forall x, a <= x <= b -> Rabs (head (grid_memory n [(a, b)] (fun x _ => f (hd 0 x))) [x] 0 - f x) <= eps.
Proof.
  intros Hab He Hn HL HN x Hx.
  destruct (grid_lipschitz_rate [(a, b)] L (fun x _ => f (hd 0 x)) 1 eps n) as [_ H]; try assumption.
  - repeat constructor; exact Hab.
  - intros i _ u v Hu Hv; inversion Hu as [|u1 ? u' ? U1 U2]; subst; inversion U2; subst.
    inversion Hv as [|v1 ? v' ? V1 V2]; subst; inversion V2; subst; simpl in *.
    eapply Rle_trans; [apply HL; assumption|right]; unfold dist, dist2.
    rewrite Rplus_0_r, <- Rsqr_pow2, sqrt_Rsqr_abs; reflexivity.
  - eapply Rle_trans; [right|exact HN]; unfold diam2; field; lra.
  - apply (H [x]); [constructor; [exact Hx|constructor]|lia].
Qed.
