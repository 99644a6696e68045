(* What a verifier of lookup layers speaks about (theory.md, sections 4 and 8): formulas, layers and boxes as data, what
   they mean in real numbers, heads over grids contracted one axis at a time, and boxes cut until a test holds. *)
From Coq Require Import Reals Lra Lia List ZArith QArith Qreals.
From Onelayer Require Import Softmax Vectors Lookup Kinks Certificate.
Import ListNotations.
Open Scope R_scope.

(* Formulas of f: what they mean. *)
Inductive formula :=
| Var (k : nat) | Int (z : Z) | Num (q : Q) | Pi
| Plus (a b : formula) | Minus (a b : formula) | Times (a b : formula) | Over (a b : formula)
| Power (a : formula) (n : nat) | Negative (a : formula) | Inverse (a : formula)
| Exp (a : formula) | Sin (a : formula) | Cos (a : formula) | Ln (a : formula) | Sqrt (a : formula)
| Abs (a : formula) | Relu (a : formula) | Max (a b : formula) | Min (a b : formula).

Fixpoint meaning (f : formula) (x : vec) : R :=
  match f with
  | Var k => nth k x 0 | Int z => IZR z | Num q => Q2R q | Pi => PI
  | Plus a b => meaning a x + meaning b x | Minus a b => meaning a x - meaning b x
  | Times a b => meaning a x * meaning b x | Over a b => meaning a x / meaning b x
  | Power a n => meaning a x ^ n | Negative a => - meaning a x | Inverse a => / meaning a x
  | Exp a => exp (meaning a x) | Sin a => sin (meaning a x) | Cos a => cos (meaning a x)
  | Ln a => ln (meaning a x) | Sqrt a => sqrt (meaning a x)
  | Abs a => Rabs (meaning a x) | Relu a => relu (meaning a x)
  | Max a b => Rmax (meaning a x) (meaning b x) | Min a b => Rmin (meaning a x) (meaning b x)
  end.

(* A head over a grid as it is stored: d_k; for each token of each axis the numbers w, b with q . k = w . x + b; and a table
   of values, whose cells hold one number per output. Its tokens are all combinations; their logits are sums over the axes,
   divided by sqrt(d_k). *)
Definition entry := (list Q * Q)%type.
Fixpoint table (A : Type) (r : nat) : Type := match r with O => A | S r => list (table A r) end.
Record grid := Grid { d_k : positive; axes : list (list entry); cells : table (list Q) (length axes) }.

Definition reals (qs : list Q) : vec := map Q2R qs.
Fixpoint vadd (u v : vec) : vec :=
  match u, v with nil, _ => v | _, nil => u | a :: u', b :: v' => (a + b) :: vadd u' v' end.
Lemma dot_vadd u : forall v x, dot (vadd u v) x = dot u x + dot v x.
Proof.
  induction u as [|a u IH]; intros [|b v] x; simpl; try (destruct x; ring).
  destruct x as [|c x]; [ring|rewrite IH; ring].
Qed.

Definition share (r : positive) : R := / sqrt (IZR (Zpos r)).
Definition scaled (r : positive) (e : entry) : vec := map (fun q => share r * Q2R q) (fst e).
Definition extend (r : positive) (e : entry) (t : token) : token :=
  Token (vadd (scaled r e) (key t)) (share r * Q2R (snd e) + bias t) (value t).
Fixpoint tokens (r : positive) (axes : list (list entry)) : table (list Q) (length axes) -> list token :=
  match axes with
  | nil => fun vs => [Token nil 0 (row (reals vs))]
  | A :: rest => fun ts => flat_map (fun et => map (extend r (fst et)) (tokens r rest (snd et))) (combine A ts)
  end.

Record stored := Stored { grids : list grid; units : list (list Q * Q * list Q); slopes : list (list Q); consts : list Q }.
Definition unit_of (u : list Q * Q * list Q) : ridge :=
  let '(w, b, g) := u in Ridge (reals w) (Q2R b) (row (reals g)).
Definition layer_of (L : stored) (x : vec) (i : nat) : R :=
  layer (map (fun g => tokens (d_k g) (axes g) (cells g)) (grids L)) (map unit_of (units L)) (map reals (slopes L))
    (reals (consts L)) x i.

(* The head contracts one axis at a time: theory.md, section 4, for any number of axes. *)
Section Contraction.
Variable r : positive.
Definition axis_logit (x : vec) (e : entry) : R := dot (scaled r e) x + share r * Q2R (snd e).
Definition axis_weight (x : vec) (A : list entry) (e : entry) : R :=
  exp (axis_logit x e) / lsum (fun e => exp (axis_logit x e)) A.

Fixpoint shaped (axes : list (list entry)) : table (list Q) (length axes) -> bool :=
  match axes with
  | nil => fun _ => true
  | A :: rest => fun ts => (negb (length A =? 0) && (length A =? length ts) && forallb (shaped rest) ts)%nat%bool
  end.
Fixpoint contracted (x : vec) (i : nat) (axes : list (list entry)) : table (list Q) (length axes) -> R :=
  match axes with
  | nil => fun vs => row (reals vs) i
  | A :: rest => fun ts => lsum (fun et => axis_weight x A (fst et) * contracted x i rest (snd et)) (combine A ts)
  end.
Fixpoint mass (x : vec) (axes : list (list entry)) : R :=
  match axes with nil => 1 | A :: rest => lsum (fun e => exp (axis_logit x e)) A * mass x rest end.

Lemma lsum_fst {A B} (g : A -> R) (l : list A) : forall m : list B, length l = length m ->
  lsum (fun am => g (fst am)) (combine l m) = lsum g l.
Proof.
  induction l as [|a l IH]; intros [|b m] H; try discriminate; [reflexivity|].
  simpl; rewrite IH; [reflexivity|injection H; trivial].
Qed.

Lemma logit_extend x e t : logit x (extend r e t) = axis_logit x e + logit x t.
Proof. unfold logit, axis_logit; simpl; rewrite dot_vadd; ring. Qed.

Lemma tokens_sum x (g : token -> R) : (forall e t, g (extend r e t) = g t) -> forall A rest ts,
  lsum (fun t => exp (logit x t) * g t) (tokens r (A :: rest) ts)
  = lsum (fun et => exp (axis_logit x (fst et)) * lsum (fun t => exp (logit x t) * g t) (tokens r rest (snd et))) (combine A ts).
Proof.
  intros G A rest ts; simpl tokens; rewrite lsum_flat_map; apply lsum_ext; intros [e t] _; simpl.
  rewrite lsum_map, <- lsum_scal; apply lsum_ext; intros u _; rewrite logit_extend, exp_plus, G; ring.
Qed.

Lemma shaped_cons A rest ts : shaped (A :: rest) ts = true ->
  A <> nil /\ length A = length ts /\ forall e t, In (e, t) (combine A ts) -> shaped rest t = true.
Proof.
  simpl; rewrite !Bool.andb_true_iff, forallb_forall; intros [[H1 H2] H3]; split; [|split].
  - intros ->; discriminate.
  - apply Nat.eqb_eq, H2.
  - intros e t H; apply H3; eapply in_combine_r, H.
Qed.

Lemma mass_tokens x axes : forall ts, shaped axes ts = true ->
  lsum (fun t => exp (logit x t)) (tokens r axes ts) = mass x axes.
Proof.
  induction axes as [|A rest IH]; intros ts S.
  { simpl; unfold logit; simpl; replace (0 + 0) with 0 by ring; rewrite exp_0; ring. }
  apply shaped_cons in S; destruct S as (_ & L & S).
  rewrite (lsum_ext _ (fun t => exp (logit x t) * 1)) by (intros; ring).
  rewrite tokens_sum by reflexivity; simpl mass; rewrite <- (lsum_fst _ A ts L), Rmult_comm, <- lsum_scal.
  apply lsum_ext; intros [e t] H; simpl; rewrite (lsum_ext _ (fun t => exp (logit x t))) by (intros; ring).
  rewrite IH by (eapply S, H); ring.
Qed.

Lemma mass_positive x axes : forall ts, shaped axes ts = true -> 0 < mass x axes.
Proof.
  induction axes as [|A rest IH]; intros ts S; simpl; [lra|].
  apply shaped_cons in S; destruct S as (N & L & S); apply Rmult_lt_0_compat.
  - apply lsum_pos; [exact N|intros; apply exp_pos].
  - destruct A as [|e A]; [congruence|]; destruct ts as [|t ts]; [discriminate|].
    apply (IH t), (S e); left; reflexivity.
Qed.

Lemma contracted_tokens x i axes : forall ts, shaped axes ts = true ->
  lsum (fun t => exp (logit x t) * value t i) (tokens r axes ts) = mass x axes * contracted x i axes ts.
Proof.
  induction axes as [|A rest IH]; intros ts S.
  { simpl; unfold logit; simpl; replace (0 + 0) with 0 by ring; rewrite exp_0; ring. }
  assert (P := mass_positive x _ _ S); apply shaped_cons in S; destruct S as (N & L & S).
  rewrite (tokens_sum x (fun t => value t i)) by reflexivity; cbn [contracted]; rewrite <- lsum_scal.
  assert (Z : 0 < lsum (fun e => exp (axis_logit x e)) A) by (apply lsum_pos; [exact N|intros; apply exp_pos]).
  apply lsum_ext; intros [e t] H; simpl; rewrite IH by (eapply S, H); unfold axis_weight; field; lra.
Qed.

Theorem grid_contracts x i axes ts : shaped axes ts = true -> head (tokens r axes ts) x i = contracted x i axes ts.
Proof.
  intros S; assert (P := mass_positive x _ _ S).
  assert (N : tokens r axes ts <> nil).
  { intros E; assert (H := mass_tokens x axes ts S); rewrite E in H; simpl in H; lra. }
  rewrite head_ratio by exact N; rewrite contracted_tokens, mass_tokens by exact S; field; lra.
Qed.
End Contraction.

(* Boxes with rational sides; one that resists is halved, one side after the other; a plan cuts where it pays. *)
Definition region := list (Q * Q).
Definition in_region (B : region) (x : vec) : Prop := Forall2 (fun ab v => Q2R (fst ab) <= v <= Q2R (snd ab)) B x.

Definition cut (k : nat) (q : Q) (B : region) : region * region :=
  match nth_error B k with
  | None => (B, B)
  | Some (a, b) => (firstn k B ++ (a, q) :: skipn (S k) B, firstn k B ++ (q, b) :: skipn (S k) B)
  end.
Lemma cut_correct k q : forall B x, in_region B x -> in_region (fst (cut k q B)) x \/ in_region (snd (cut k q B)) x.
Proof.
  unfold cut; induction k as [|k IH]; intros B x H; inversion H as [|[a b] v B' x' Hv H']; subst; simpl in *; auto.
  - destruct (Rle_dec v (Q2R q)); [left|right]; constructor; simpl; try assumption; lra.
  - specialize (IH B' x' H'); destruct (nth_error B' k) as [[a' b']|]; simpl in *; [|auto].
    destruct IH as [E|E]; [left|right]; constructor; simpl; assumption.
Qed.

Fixpoint search (test : region -> bool) (fuel k : nat) (B : region) : bool :=
  if test B then true else
  match fuel with
  | O => false
  | S fuel =>
      let (a, b) := nth k B (0%Q, 0%Q) in
      let (left, right) := cut k (Qred ((a + b) * (1 # 2))) B in
      let next := (S k mod length B)%nat in
      if search test fuel next left then search test fuel next right else false
  end.
Lemma search_correct test (P : vec -> Prop) : (forall B, test B = true -> forall x, in_region B x -> P x) ->
  forall fuel k B, search test fuel k B = true -> forall x, in_region B x -> P x.
Proof.
  intros H; induction fuel as [|fuel IH]; intros k B; cbn [search]; destruct (test B) eqn:E; eauto; try discriminate.
  destruct (nth k B _) as [a b]; assert (C := cut_correct k (Qred ((a + b) * (1 # 2))) B).
  destruct (cut k _ B) as [l r]; destruct (search test fuel _ l) eqn:El; [|discriminate].
  intros Er x Hx; destruct (C x Hx); eauto.
Qed.

Inductive plan := Search (fuel : nat) | Cut (k : nat) (q : Q) (below above : plan).
Fixpoint follow (test : region -> bool) (p : plan) (B : region) : bool :=
  match p with
  | Search fuel => search test fuel 0 B
  | Cut k q below above =>
      let (left, right) := cut k q B in if follow test below left then follow test above right else false
  end.
Lemma follow_correct test (P : vec -> Prop) : (forall B, test B = true -> forall x, in_region B x -> P x) ->
  forall p B, follow test p B = true -> forall x, in_region B x -> P x.
Proof.
  intros H; induction p as [fuel|k q below IHb above IHa]; intros B; cbn [follow]; [apply search_correct, H|].
  assert (C := cut_correct k q B); destruct (cut k q B) as [l r]; destruct (follow test below l) eqn:El; [|discriminate].
  intros Er x Hx; destruct (C x Hx); eauto.
Qed.
