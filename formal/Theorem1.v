(* The paper's own setting (theory.md, section 1): "A sequence-to-sequence function is the case D = nd, K = nd: the
   query token is vec(X), the values are vec(f(X))." A sequence of n tokens of width d is a list of n rows. *)
From Coq Require Import Reals Lra Lia List.
From Onelayer Require Import Softmax Vectors Attention Kinks.
Import ListNotations.
Open Scope R_scope.

Definition sequence := list vec.
Definition shape (n d : nat) (A : sequence) : Prop := length A = n /\ List.Forall (fun r => length r = d) A.

(* Frobenius distance: the Euclidean distance of all entries. *)
Definition frobenius (A B : sequence) : R := dist (concat A) (concat B).

(* A compact set of sequences: one shape, bounded, closed. *)
Definition compact_set (n d : nat) (X : sequence -> Prop) : Prop :=
  (forall A, X A -> shape n d A) /\
  (exists c, forall A, X A -> forall u, In u (concat A) -> Rabs u <= c) /\
  (forall A, shape n d A -> ~ X A -> exists e, 0 < e /\ forall B, X B -> e <= frobenius B A).

Definition continuous_map (n d : nat) (X : sequence -> Prop) (f : sequence -> sequence) : Prop :=
  forall A, X A -> shape n d (f A) /\ forall eps, 0 < eps -> exists e, 0 < e /\
    forall B, X B -> frobenius B A < e -> frobenius (f B) (f A) < eps.

(* The rows of a vector of n d numbers: the inverse of concat. *)
Fixpoint rows (n d : nat) (x : vec) : sequence :=
  match n with O => nil | S n' => firstn d x :: rows n' d (skipn d x) end.

Lemma concat_rows n d : forall x, length x = (n * d)%nat -> concat (rows n d x) = x.
Proof.
  induction n as [|n IH]; intros x H; simpl in *; [destruct x; [reflexivity|discriminate]|].
  rewrite IH by (rewrite skipn_length; lia); apply firstn_skipn.
Qed.

Lemma rows_shape n d : forall x, length x = (n * d)%nat -> shape n d (rows n d x).
Proof.
  induction n as [|n IH]; intros x H; [split; [reflexivity|constructor]|]; simpl in *.
  destruct (IH (skipn d x)) as [I1 I2]; [rewrite skipn_length; lia|].
  split; simpl; [rewrite I1; reflexivity|constructor; [rewrite firstn_length; lia|exact I2]].
Qed.

Lemma concat_length n d : forall A, shape n d A -> length (concat A) = (n * d)%nat.
Proof.
  intros A [L H]; subst n; induction H as [|r A Hr _ IH]; [reflexivity|].
  simpl; rewrite app_length, IH, Hr; reflexivity.
Qed.

Lemma rows_concat n d : forall A, shape n d A -> rows n d (concat A) = A.
Proof.
  intros A [L H]; subst n; induction H as [|r A Hr _ IH]; [reflexivity|]; simpl.
  rewrite firstn_app, skipn_app, Hr, Nat.sub_diag, firstn_O, skipn_O, app_nil_r.
  rewrite <- Hr, firstn_all, skipn_all; simpl; rewrite Hr, IH; reflexivity.
Qed.

Lemma nth_dist u : forall v i, length u = length v -> Rabs (nth i u 0 - nth i v 0) <= dist u v.
Proof.
  intros v i L; rewrite <- sqrt_Rsqr_abs; apply sqrt_le_1; [apply Rle_0_sqr|apply dist2_nonneg|].
  rewrite Rsqr_pow2; revert v i L; induction u as [|a u IH]; intros [|b v] [|i] L; try discriminate; cbn [nth dist2].
  - rewrite Rminus_diag_eq by reflexivity; simpl; lra.
  - rewrite Rminus_diag_eq by reflexivity; simpl; lra.
  - generalize (dist2_nonneg u v); lra.
  - injection L as L; specialize (IH v i L); generalize (pow2_ge_0 (a - b)); lra.
Qed.

Lemma near_by_nth e u : forall v, length u = length v ->
  (forall i, (i < length u)%nat -> Rabs (nth i u 0 - nth i v 0) < e) -> near e u v.
Proof.
  induction u as [|a u IH]; intros [|b v] L H; try discriminate; constructor.
  - apply (H O); simpl; lia.
  - apply IH; [injection L; auto|]; intros i Hi; apply (H (S i)); simpl; lia.
Qed.

(* The one-layer Transformer: attention of the query token vec(A) to the memory tokens, then the network. *)
Definition transformer n d WQ bQ mem W1 b1 W2 b2 (A : sequence) : sequence :=
  rows n d (network W1 b1 W2 b2 (map (attention WQ bQ mem (concat A)) (seq 0 (n * d)))).

(* "For every continuous f on a compact set X of sequences and every eps > 0 there is a one-layer Transformer T,
   attention followed by a ReLU network, with sup over X of |T - f| < eps." *)
Theorem sequence_to_sequence (n d : nat) (X : sequence -> Prop) (f : sequence -> sequence) :
  compact_set n d X -> continuous_map n d X f ->
  forall eps, 0 < eps -> exists WQ bQ mem W1 b1 W2 b2,
    forall A, X A -> frobenius (transformer n d WQ bQ mem W1 b1 W2 b2 A) (f A) < eps.
Proof.
  intros [Sh [[c Bd] Cl]] Hf eps He; set (N := (n * d)%nat).
  set (X' := fun x => length x = N /\ X (rows n d x)).
  set (f' := fun x i => nth i (concat (f (rows n d x))) 0).
  assert (C : compact N X').
  { split.
    - exists (repeat (- c, c) N); split; [apply repeat_length|]; intros x [Lx Hx].
      specialize (Bd _ Hx); rewrite concat_rows in Bd by exact Lx.
      rewrite <- Lx; clear - Bd; induction x as [|u x IH]; simpl; constructor.
      + simpl; assert (A := Bd u (or_introl eq_refl)); revert A; unfold Rabs; destruct Rcase_abs; lra.
      + apply IH; intros v Hv; apply Bd; right; exact Hv.
    - intros x Lx Nx; destruct (Cl (rows n d x) (rows_shape n d x Lx)) as [e [He' H]].
      { intros Hx; apply Nx; split; assumption. }
      exists e; split; [exact He'|]; intros y [Ly Hy]; specialize (H _ Hy); unfold frobenius in H.
      rewrite !concat_rows in H by assumption; exact H. }
  assert (Cf : forall i, (i < N)%nat -> continuous_on X' (fun x => f' x i)).
  { intros i _ x [Lx Hx] e He'; destruct (Hf _ Hx) as [Shx Cx], (Cx e He') as [e' [P H]].
    exists e'; split; [exact P|]; intros y [Ly Hy] Dy.
    assert (Q : frobenius (rows n d y) (rows n d x) < e')
      by (unfold frobenius; rewrite !concat_rows by assumption; exact Dy).
    eapply Rle_lt_trans; [|exact (H _ Hy Q)]; apply nth_dist.
    destruct (Hf _ Hy) as [Shy _]; rewrite !(concat_length n d) by assumption; reflexivity. }
  set (e := eps / (INR N + 1)); assert (PN := pos_INR N).
  assert (Pe : 0 < e) by (apply Rdiv_lt_0_compat; lra).
  destruct (attention_universal N N X' f' C Cf (e / 2)) as [WQ [bQ [mem [_ [_ [_ H]]]]]]; [lra|].
  destruct (identity_network N) as [W1 [b1 [W2 [b2 [_ Id]]]]].
  exists WQ, bQ, mem, W1, b1, W2, b2; intros A HA.
  assert (LA := concat_length n d A (Sh A HA)); destruct (Hf A HA) as [Shf _].
  unfold transformer; fold N; rewrite Id by (rewrite map_length, seq_length; reflexivity).
  set (y := map _ _); assert (Ly : length y = N) by (unfold y; rewrite map_length, seq_length; reflexivity).
  unfold frobenius; rewrite concat_rows by exact Ly.
  apply near_dist with N; [exact He|exact Ly|].
  apply near_by_nth; [rewrite Ly, (concat_length n d) by exact Shf; reflexivity|].
  rewrite Ly; intros i Hi; unfold y.
  rewrite (nth_indep _ 0 (attention WQ bQ mem (concat A) 0%nat)) by (rewrite map_length, seq_length; exact Hi).
  rewrite map_nth, seq_nth by exact Hi; simpl.
  assert (HX : X' (concat A)) by (split; [exact LA|rewrite rows_concat by (apply Sh, HA); exact HA]).
  assert (B := H _ HX i Hi); unfold f' in B; rewrite rows_concat in B by (apply Sh, HA); fold e; lra.
Qed.
