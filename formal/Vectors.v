(* R^D as lists of length D (theory.md, notation and section 1): Euclidean distance, compact sets, uniform continuity
   and finite nets on them. The covering argument itself is Coquelicot's compactness_value. *)
From Coq Require Import Reals Lra Lia List Classical_Prop.
From Coquelicot Require Import Coquelicot.
From Onelayer Require Import Softmax.
Import ListNotations.
Open Scope R_scope.

Definition vec := list R.

Fixpoint dot (u x : vec) : R :=
  match u, x with a :: u', b :: x' => a * b + dot u' x' | _, _ => 0 end.
Fixpoint dist2 (x y : vec) : R :=
  match x, y with a :: x', b :: y' => (a - b) ^ 2 + dist2 x' y' | _, _ => 0 end.
Definition dist (x y : vec) : R := sqrt (dist2 x y).

Definition box := list (R * R).
Definition inbox (B : box) (x : vec) : Prop := Forall2 (fun u ab => fst ab <= u <= snd ab) x B.
(* Closer than d in every coordinate. *)
Definition near (d : R) (x y : vec) : Prop := Forall2 (fun u v => Rabs (u - v) < d) x y.

Definition continuous_on (X : vec -> Prop) (f : vec -> R) : Prop :=
  forall x, X x -> forall eps, 0 < eps -> exists d, 0 < d /\
    forall y, X y -> dist y x < d -> Rabs (f y - f x) < eps.

(* Bounded and closed. *)
Definition compact (D : nat) (X : vec -> Prop) : Prop :=
  (exists B : box, length B = D /\ forall x, X x -> inbox B x) /\
  (forall x, length x = D -> ~ X x -> exists d, 0 < d /\ forall y, X y -> d <= dist y x).
Lemma dist2_nonneg x : forall y, 0 <= dist2 x y.
Proof.
  induction x as [|a x IH]; intros [|b y]; simpl; try lra.
  specialize (IH y); generalize (pow2_ge_0 (a - b)); simpl; lra.
Qed.

Lemma dist_sq x y : dist x y ^ 2 = dist2 x y.
Proof. unfold dist; rewrite pow2_sqrt; [reflexivity|apply dist2_nonneg]. Qed.

Lemma dist_nonneg x y : 0 <= dist x y.
Proof. apply sqrt_pos. Qed.

Lemma dist2_sym x : forall y, dist2 x y = dist2 y x.
Proof. induction x as [|a x IH]; intros [|b y]; simpl; try ring; rewrite IH; ring. Qed.

Lemma inbox_length B x : inbox B x -> length x = length B.
Proof. intros H; induction H; simpl; congruence. Qed.

Lemma near_dist2 d x y : near d x y -> dist2 x y <= INR (length x) * d ^ 2.
Proof.
  intros H; induction H as [|a b x y Hab _ IH]; [simpl; lra|].
  cbn [dist2 length]; rewrite S_INR.
  assert ((a - b) ^ 2 <= d ^ 2); [|lra].
  rewrite <- (pow2_abs (a - b)); apply pow_incr; split; [apply Rabs_pos|lra].
Qed.

Lemma near_dist e x y n : 0 < e -> length x = n -> near (e / (INR n + 1)) x y -> dist x y < e.
Proof.
  intros He <- H; assert (N := pos_INR (length x)).
  apply near_dist2 in H; unfold dist.
  rewrite <- (sqrt_pow2 e) by lra; apply sqrt_lt_1; [apply dist2_nonneg|apply pow2_ge_0|].
  eapply Rle_lt_trans; [exact H|]; revert N; generalize (INR (length x)); intros n N.
  replace (n * (e / (n + 1)) ^ 2) with (e ^ 2 * (n / (n + 1) ^ 2)) by (field; lra).
  rewrite <- (Rmult_1_r (e ^ 2)) at 2; apply Rmult_lt_compat_l; [apply pow_lt, He|].
  apply Rmult_lt_reg_r with ((n + 1) ^ 2); [apply pow_lt; lra|].
  replace (n / (n + 1) ^ 2 * (n + 1) ^ 2) with n by (field; lra); nra.
Qed.

Lemma near_of_dist d x : forall y, length x = length y -> dist x y < d -> near d x y.
Proof.
  intros y L H; assert (Hd : 0 < d) by (generalize (dist_nonneg x y); lra).
  assert (S : dist2 x y < d ^ 2).
  { rewrite <- dist_sq; assert (P := dist_nonneg x y); nra. }
  clear H; revert y L S; induction x as [|a x IH]; intros [|b y] L S; simpl in L; try discriminate; constructor.
  - cbn [dist2] in S; assert (P := dist2_nonneg x y).
    rewrite <- (Rabs_right d) by lra; apply Rsqr_lt_abs_0; unfold Rsqr; simpl in S; lra.
  - apply IH; [lia|]; cbn [dist2] in S; generalize (pow2_ge_0 (a - b)); lra.
Qed.

Lemma near_sym d x y : near d x y -> near d y x.
Proof. intros H; induction H; constructor; auto; rewrite Rabs_minus_sym; assumption. Qed.

Lemma near_trans d e x y z : near d x y -> near e y z -> near (d + e) x z.
Proof.
  intros H; revert z; induction H as [|a b x y Hab _ IH]; intros z Hz;
    inversion Hz as [|b' c y' z' Hbc Hz']; subst; constructor.
  - replace (a - c) with ((a - b) + (b - c)) by ring.
    eapply Rle_lt_trans; [apply Rabs_triang|lra].
  - apply IH, Hz'.
Qed.

Lemma near_le d e x y : d <= e -> near d x y -> near e x y.
Proof. intros L H; induction H; constructor; auto; lra. Qed.

(* Lists and the n-tuples of Coquelicot. *)
Fixpoint of_Tn (n : nat) : Compactness.Tn n R -> vec :=
  match n with O => fun _ => nil | S m => fun t => fst t :: of_Tn m (snd t) end.
Fixpoint to_Tn (n : nat) (x : vec) : Compactness.Tn n R :=
  match n with O => tt | S m => (hd 0 x, to_Tn m (tl x)) end.

Lemma of_to n : forall x, length x = n -> of_Tn n (to_Tn n x) = x.
Proof. induction n as [|n IH]; intros [|a x] H; simpl in *; try discriminate; [reflexivity|rewrite IH; auto]. Qed.

Lemma of_Tn_length n t : length (of_Tn n t) = n.
Proof. revert t; induction n as [|n IH]; intros t; simpl; auto. Qed.

Lemma bounded_inbox B : forall t : Compactness.Tn (length B) R,
  bounded_n (length B) (to_Tn _ (map fst B)) (to_Tn _ (map snd B)) t <-> inbox B (of_Tn _ t).
Proof.
  induction B as [|[a b] B IH]; intros t; simpl.
  - split; [constructor|trivial].
  - destruct t as [u t]; simpl; specialize (IH t); split.
    + intros [H1 H2]; constructor; [exact H1|apply IH, H2].
    + intros H; inversion H; subst; split; [assumption|apply IH; assumption].
Qed.

Lemma close_near n d : forall x t : Compactness.Tn n R, close_n n d x t <-> near d (of_Tn n x) (of_Tn n t).
Proof.
  induction n as [|n IH]; intros x t; simpl.
  - split; [constructor|trivial].
  - destruct x as [x1 x2], t as [t1 t2]; simpl; specialize (IH x2 t2); split.
    + intros [H1 H2]; constructor; [exact H1|apply IH, H2].
    + intros H; inversion H; subst; split; [assumption|apply IH; assumption].
Qed.

(* What holds near every point of a box holds at one scale: the number of Lebesgue. *)
Section Lebesgue.
Variable B : box.
Variable P : vec -> R -> Prop.
Hypothesis P_down : forall t d e, e <= d -> P t d -> P t e.
Hypothesis P_local : forall t, inbox B t -> exists d, 0 < d /\ P t d.

Definition E (t : vec) (d : R) : Prop := 0 <= d <= 1 /\ (d = 0 \/ P t d).

Lemma E_bound t : bound (E t).
Proof. exists 1; intros d [H _]; lra. Qed.
Lemma E_inhabited t : exists d, E t d.
Proof. exists 0; split; [lra|left; reflexivity]. Qed.

Definition radius (t : vec) : R := proj1_sig (completeness (E t) (E_bound t) (E_inhabited t)).

Lemma radius_pos t : inbox B t -> 0 < radius t.
Proof.
  intros H; unfold radius; destruct completeness as [m [Hm Hm2]]; simpl.
  destruct (P_local t H) as [d [Hd HP]].
  apply Rlt_le_trans with (Rmin d 1); [apply Rmin_glb_lt; lra|].
  apply Hm; split; [split; [left; apply Rmin_glb_lt; lra|apply Rmin_r]|right].
  eapply P_down; [apply Rmin_l|exact HP].
Qed.

Lemma radius_good t : 0 < radius t -> P t (radius t / 2).
Proof.
  unfold radius; destruct completeness as [m [Hm1 Hm2]]; simpl; intros Pm.
  apply NNPP; intros C.
  assert (m <= m / 2); [|lra].
  apply Hm2; intros d [Hd [->|HP]]; [lra|].
  destruct (Rle_dec d (m / 2)) as [L|L]; [exact L|exfalso].
  apply C; eapply P_down; [|exact HP]; lra.
Qed.

Definition gauge (t : Compactness.Tn (length B) R) : posreal :=
  match Rlt_dec 0 (radius (of_Tn _ t)) with
  | left H => mkposreal (radius (of_Tn _ t) / 4) ltac:(lra)
  | right _ => mkposreal 1 Rlt_0_1
  end.

Lemma lebesgue : exists d, 0 < d /\ forall x, inbox B x ->
  exists t e, inbox B t /\ d <= e /\ near e x t /\ P t (2 * e).
Proof.
  destruct (compactness_value (length B) (to_Tn _ (map fst B)) (to_Tn _ (map snd B)) gauge) as [d H].
  exists d; split; [apply cond_pos|]; intros x Hx.
  assert (Lx := inbox_length B x Hx).
  specialize (H (to_Tn _ x)); rewrite bounded_inbox, of_to in H by exact Lx.
  destruct (NNPP _ (H Hx)) as [t [Ht [Hc Hd]]].
  apply bounded_inbox in Ht; apply close_near in Hc; rewrite of_to in Hc by exact Lx.
  exists (of_Tn _ t), (gauge t); split; [exact Ht|]; split; [exact Hd|]; split; [exact Hc|].
  assert (Pr := radius_pos _ Ht).
  unfold gauge; destruct Rlt_dec as [Q|Q]; [simpl|contradiction].
  eapply P_down; [|apply radius_good, Pr]; lra.
Qed.
End Lebesgue.

(* A continuous function on a compact set is uniformly continuous. *)
Lemma heine D X f : compact D X -> continuous_on X f -> forall eps, 0 < eps ->
  exists d, 0 < d /\ forall x y, X x -> X y -> near d x y -> Rabs (f x - f y) < eps.
Proof.
  intros [[B [LB HB]] Cl] Hf eps He.
  destruct (lebesgue B (fun t d => forall y z, X y -> X z -> near d y t -> near d z t -> Rabs (f y - f z) < eps))
    as [d [Hd H]].
  - intros t d e Le HP y z Hy Hz Ny Nz; apply HP; auto; eapply near_le; eauto.
  - intros t Ht; assert (Lt := inbox_length B t Ht); rewrite LB in Lt.
    assert (PD := pos_INR D).
    destruct (classic (X t)) as [Xt|Xt].
    + destruct (Hf t Xt (eps / 2)) as [e [He' Hc]]; [lra|].
      exists (e / (INR D + 1)); split; [apply Rdiv_lt_0_compat; lra|].
      intros y z Hy Hz Ny Nz.
      assert (Ly := inbox_length B y (HB y Hy)); assert (Lz := inbox_length B z (HB z Hz)); rewrite LB in Ly, Lz.
      assert (A := Hc y Hy (near_dist e y t D He' Ly Ny)).
      assert (A' := Hc z Hz (near_dist e z t D He' Lz Nz)).
      replace (f y - f z) with ((f y - f t) + - (f z - f t)) by ring.
      eapply Rle_lt_trans; [apply Rabs_triang|rewrite Rabs_Ropp; lra].
    + destruct (Cl t Lt Xt) as [e [He' Hc]].
      exists (e / (INR D + 1)); split; [apply Rdiv_lt_0_compat; lra|].
      intros y z Hy _ Ny _; exfalso.
      assert (Ly := inbox_length B y (HB y Hy)); rewrite LB in Ly.
      specialize (Hc y Hy).
      assert (A := near_dist e y t D He' Ly Ny); lra.
  - exists d; split; [exact Hd|]; intros x y Hx Hy N.
    destruct (H x (HB x Hx)) as [t [e [Ht [He' [Nt HP]]]]].
    apply HP; auto.
    + eapply near_le; [|exact Nt]; lra.
    + apply near_le with (d + e); [lra|]; eapply near_trans; [apply near_sym, N|exact Nt].
Qed.

(* Every compact set has finite nets of its own points. *)
Lemma net1 a b h : 0 < h -> exists l : list R, forall u, a <= u <= b -> exists c, In c l /\ Rabs (u - c) < h.
Proof.
  intros Hh; destruct (INR_unbounded ((b - a) / h)) as [N HN].
  exists (map (fun j => a + INR j * h) (seq 0 (S N))); intros u Hu.
  assert (0 <= (u - a) / h) by (apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat, Hh]).
  destruct (nfloor_ex ((u - a) / h)) as [j [J1 J2]]; [assumption|].
  assert (U : u - a = (u - a) / h * h) by (field; lra).
  assert (INR j < INR N).
  { eapply Rle_lt_trans; [exact J1|]; eapply Rle_lt_trans; [|exact HN].
    apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, Hh|lra]. }
  exists (a + INR j * h); split.
  - apply in_map_iff; exists j; split; [reflexivity|apply in_seq].
    assert (j < N)%nat by (apply INR_lt; assumption); lia.
  - replace (u - (a + INR j * h)) with (((u - a) / h - INR j) * h) by (field; lra).
    rewrite Rabs_right by (apply Rle_ge, Rmult_le_pos; lra).
    apply Rlt_le_trans with (1 * h); [apply Rmult_lt_compat_r; lra|lra].
Qed.

Lemma net_box B h : 0 < h -> exists l : list vec, forall x, inbox B x -> exists c, In c l /\ near h x c.
Proof.
  intros Hh; induction B as [|[a b] B [l IH]].
  - exists [nil]; intros x Hx; inversion Hx; exists nil; split; [left; reflexivity|constructor].
  - destruct (net1 a b h Hh) as [l1 H1].
    exists (flat_map (fun c => map (cons c) l) l1); intros x Hx; inversion Hx as [|u ab x' B' Hu Hx']; subst.
    destruct (H1 u Hu) as [c [Hc Dc]], (IH x' Hx') as [cs [Hcs Dcs]].
    exists (c :: cs); split; [|constructor; assumption].
    apply in_flat_map; exists c; split; [exact Hc|apply in_map, Hcs].
Qed.

Lemma net_in (X : vec -> Prop) (l : list vec) h : exists l', (forall c, In c l' -> X c) /\
  forall c x, In c l -> X x -> near h x c -> exists c', In c' l' /\ near h c' c.
Proof.
  induction l as [|c l [l' [IH1 IH2]]]; [exists nil; split; intros; contradiction|].
  destruct (classic (exists x, X x /\ near h x c)) as [[x [Hx Nx]]|No].
  - exists (x :: l'); split; [intros c' [<-|H]; auto|].
    intros c' y [<-|H] Hy Ny; [exists x; split; [left; reflexivity|exact Nx]|].
    destruct (IH2 c' y H Hy Ny) as [z [Hz Nz]]; exists z; split; [right; exact Hz|exact Nz].
  - exists l'; split; [exact IH1|].
    intros c' y [<-|H] Hy Ny; [exfalso; apply No; exists y; auto|eauto].
Qed.

Lemma net D X h : compact D X -> 0 < h ->
  exists l : list vec, (forall c, In c l -> X c) /\ forall x, X x -> exists c, In c l /\ near h x c.
Proof.
  intros [[B [_ HB]] _] Hh.
  destruct (net_box B (h / 2)) as [l Hl]; [lra|].
  destruct (net_in X l (h / 2)) as [l' [H1 H2]].
  exists l'; split; [exact H1|]; intros x Hx.
  destruct (Hl x (HB x Hx)) as [c [Hc Nc]], (H2 c x Hc Hx Nc) as [c' [Hc' Nc']].
  exists c'; split; [exact Hc'|].
  apply near_le with (h / 2 + h / 2); [lra|]; eapply near_trans; [exact Nc|apply near_sym, Nc'].
Qed.

Lemma list_bound (f : vec -> R) (l : list vec) : exists M, 0 <= M /\ forall c, In c l -> Rabs (f c) <= M.
Proof.
  induction l as [|c l [M [M0 HM]]]; [exists 0; split; [lra|intros; contradiction]|].
  exists (Rmax M (Rabs (f c))); split; [eapply Rle_trans; [exact M0|apply Rmax_l]|].
  intros c' [<-|H]; [apply Rmax_r|eapply Rle_trans; [apply HM, H|apply Rmax_l]].
Qed.

Lemma bounded D X f : compact D X -> continuous_on X f -> exists M, 0 <= M /\ forall x, X x -> Rabs (f x) <= M.
Proof.
  intros C Hf; destruct (heine D X f C Hf 1 Rlt_0_1) as [d [Hd U]].
  destruct (net D X d C Hd) as [l [L1 L2]], (list_bound f l) as [M [M0 HM]].
  exists (M + 1); split; [lra|]; intros x Hx; destruct (L2 x Hx) as [c [Hc Nc]].
  assert (A := U x c Hx (L1 c Hc) Nc); specialize (HM c Hc).
  replace (f x) with ((f x - f c) + f c) by ring.
  eapply Rle_trans; [apply Rabs_triang|lra].
Qed.

(* One modulus and one bound for K outputs. *)
Lemma heine_K D X (f : vec -> nat -> R) K : compact D X ->
  (forall i, (i < K)%nat -> continuous_on X (fun x => f x i)) -> forall eps, 0 < eps -> exists d, 0 < d /\
  forall i, (i < K)%nat -> forall x y, X x -> X y -> near d x y -> Rabs (f x i - f y i) < eps.
Proof.
  intros C; induction K as [|K IH]; intros Hf eps He.
  - exists 1; split; [lra|intros; lia].
  - destruct (IH (fun i Hi => Hf i (Nat.lt_lt_succ_r _ _ Hi)) eps He) as [d [Hd H]].
    destruct (heine D X (fun x => f x K) C (Hf K (Nat.lt_succ_diag_r K)) eps He) as [e [He' H']].
    exists (Rmin d e); split; [apply Rmin_glb_lt; assumption|].
    intros i Hi x y Hx Hy N; destruct (Nat.eq_dec i K) as [->|Ne].
    + apply H'; auto; eapply near_le; [apply Rmin_r|exact N].
    + apply H; auto; [lia|eapply near_le; [apply Rmin_l|exact N]].
Qed.

Lemma bounded_K D X (f : vec -> nat -> R) K : compact D X ->
  (forall i, (i < K)%nat -> continuous_on X (fun x => f x i)) ->
  exists M, 0 <= M /\ forall i, (i < K)%nat -> forall x, X x -> Rabs (f x i) <= M.
Proof.
  intros C; induction K as [|K IH]; intros Hf.
  - exists 0; split; [lra|intros; lia].
  - destruct (IH (fun i Hi => Hf i (Nat.lt_lt_succ_r _ _ Hi))) as [M [M0 HM]].
    destruct (bounded D X (fun x => f x K) C (Hf K (Nat.lt_succ_diag_r K))) as [N [N0 HN]].
    exists (M + N); split; [lra|]; intros i Hi x Hx; destruct (Nat.eq_dec i K) as [->|Ne].
    + specialize (HN x Hx); simpl in HN; lra.
    + assert (A := HM i ltac:(lia) x Hx); lra.
Qed.

Lemma compact_length D X : compact D X -> forall x, X x -> length x = D.
Proof. intros [[B [LB HB]] _] x Hx; rewrite <- LB; apply inbox_length, HB, Hx. Qed.

(* A point outside an interval, and outside a box, keeps a distance from it. *)
Lemma interval_closed a b u : ~ (a <= u <= b) -> exists d, 0 < d /\ forall v, a <= v <= b -> d ^ 2 <= (v - u) ^ 2.
Proof.
  intros H; destruct (Rlt_dec u a) as [L|L]; [exists (a - u)|exists (u - b)].
  - split; [lra|]; intros v Hv; apply pow_incr; lra.
  - assert (b < u) by (apply Rnot_le_lt; intros C; apply H; lra).
    split; [lra|]; intros v Hv; replace ((v - u) ^ 2) with ((u - v) ^ 2) by ring; apply pow_incr; lra.
Qed.

Lemma box_closed B : forall x, length x = length B -> ~ inbox B x ->
  exists d, 0 < d /\ forall y, inbox B y -> d ^ 2 <= dist2 y x.
Proof.
  induction B as [|[a b] B IH]; intros [|u x] L H; simpl in L; try discriminate; [exfalso; apply H; constructor|].
  destruct (classic (a <= u <= b)) as [U|U].
  - destruct (IH x) as [d [Hd Hy]]; [lia|intros C; apply H; constructor; assumption|].
    exists d; split; [exact Hd|]; intros y Hy'; inversion Hy' as [|v ab y' B' Hv Hy'']; subst; cbn [dist2].
    specialize (Hy y' Hy''); generalize (pow2_ge_0 (v - u)); lra.
  - destruct (interval_closed a b u U) as [d [Hd Hv]].
    exists d; split; [exact Hd|]; intros y Hy'; inversion Hy' as [|v ab y' B' Hv' Hy'']; subst; cbn [dist2].
    specialize (Hv v Hv'); generalize (dist2_nonneg y' x); lra.
Qed.

Lemma box_compact B : compact (length B) (inbox B).
Proof.
  split; [exists B; split; auto|]; intros x L H; destruct (box_closed B x L H) as [d [Hd Hy]].
  exists d; split; [exact Hd|]; intros y Hy'.
  rewrite <- (sqrt_pow2 d) by lra; apply sqrt_le_1; [apply pow2_ge_0|apply dist2_nonneg|apply Hy, Hy'].
Qed.
