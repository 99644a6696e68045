(* What exported certificates import (theory.md, section 8): the layer whose error they bound, and the steps that turn
   the bound into inequalities between elementary functions of one variable, which the tactic interval decides. *)
From Coq Require Import Reals Lra List Arith.
From Onelayer Require Import Softmax Vectors Lookup Kinks.
Import ListNotations.
Open Scope R_scope.

(* Numbers per output, as they are stored. *)
Definition row (numbers : list R) (i : nat) : R := nth i numbers 0.

(* A ReLU unit on the residual stream: relu(direction . x + offset), weighed into output i by its gain. *)
Record ridge := Ridge { direction : vec; offset : R; gain : nat -> R }.
Definition rectify (u : ridge) (x : vec) (i : nat) : R := relu (dot (direction u) x + offset u) * gain u i.

(* The layer: heads summed by W^O and the read-out, ReLU units, an affine part. *)
Definition layer (heads : list (list token)) (ridges : list ridge) (slopes : list vec) (const : list R)
    (x : vec) (i : nat) : R :=
  row const i + dot (nth i slopes nil) x + lsum (fun u => rectify u x i) ridges + lsum (fun mem => head mem x i) heads.

Lemma head_ratio mem x i : mem <> nil ->
  head mem x i = lsum (fun t => exp (logit x t) * value t i) mem / lsum (fun t => exp (logit x t)) mem.
Proof. intros H; unfold head; rewrite attend_ratio by exact H; reflexivity. Qed.

(* Softmax does not see a common shift of the logits; certificates subtract an average logit, piece by piece. *)
Theorem head_ratio_shift c mem x i : mem <> nil ->
  head mem x i = lsum (fun t => exp (logit x t - c) * value t i) mem / lsum (fun t => exp (logit x t - c)) mem.
Proof.
  intros H; unfold head; rewrite <- (shift_invariance (- c)), attend_ratio by exact H; reflexivity.
Qed.

(* A head whose keys are multiples of one direction w is a head of the one variable w . x: axes, merged directions. *)
Definition along (w : vec) (t : token) : token := Token (map (Rmult (hd 0 (key t))) w) (bias t) (value t).

Theorem head_of_direction w mem x i : (forall t, In t mem -> length (key t) = 1%nat) ->
  head (map (along w) mem) x i = head mem [dot w x] i.
Proof.
  intros H; unfold head; rewrite attend_map; apply attend_ext; intros t Ht; [|reflexivity].
  specialize (H t Ht); unfold logit; destruct t as [k b v]; simpl in *.
  destruct k as [|a [|]]; try discriminate; simpl; f_equal.
  clear; revert x; induction w as [|c w IH]; intros [|u x]; simpl; try ring; rewrite IH; ring.
Qed.

Lemma one_number_each mem : forallb (fun t => Nat.eqb (length (key t)) 1) mem = true ->
  forall t, In t mem -> length (key t) = 1%nat.
Proof. rewrite forallb_forall; intros H t Ht; apply Nat.eqb_eq, H, Ht. Qed.

(* The variable w . x of such a head runs over the interval that the box gives. *)
Fixpoint least (w : vec) (B : box) : R :=
  match w, B with a :: w', (l, u) :: B' => Rmin (a * l) (a * u) + least w' B' | _, _ => 0 end.
Fixpoint greatest (w : vec) (B : box) : R :=
  match w, B with a :: w', (l, u) :: B' => Rmax (a * l) (a * u) + greatest w' B' | _, _ => 0 end.

Theorem range_of_direction w : forall B x, inbox B x -> least w B <= dot w x <= greatest w B.
Proof.
  induction w as [|a w IH]; intros B x H; inversion H as [|v [l u] x' B' Hv Hx]; subst; simpl; try lra.
  specialize (IH B' x' Hx); simpl in Hv; unfold Rmin, Rmax; destruct (Rle_dec 0 a); repeat destruct Rle_dec; nra.
Qed.

(* The sign of its argument decides a ReLU unit: one case each. *)
Lemma relu_active z : 0 <= z -> relu z = z.
Proof. intros H; unfold relu; apply Rmax_right, H. Qed.
Lemma relu_idle z : z <= 0 -> relu z = 0.
Proof. intros H; unfold relu; apply Rmax_left, H. Qed.

(* Kinks of f by absolute values, the one kink that the tactic interval knows. *)
Lemma max_by_abs a b : Rmax a b = (a + b + Rabs (a - b)) / 2.
Proof. unfold Rmax, Rabs; destruct Rle_dec, Rcase_abs; lra. Qed.
Lemma min_by_abs a b : Rmin a b = (a + b - Rabs (a - b)) / 2.
Proof. unfold Rmin, Rabs; destruct Rle_dec, Rcase_abs; lra. Qed.
Lemma relu_by_abs z : relu z = (z + Rabs z) / 2.
Proof. unfold relu, Rmax, Rabs; destruct Rle_dec, Rcase_abs; lra. Qed.

(* Groups of heads: errors add. *)
Theorem errors_add a b f g e d : Rabs (a - f) <= e -> Rabs (b - g) <= d -> Rabs (a + b - (f + g)) <= e + d.
Proof.
  intros H1 H2; replace (a + b - (f + g)) with ((a - f) + (b - g)) by ring.
  eapply Rle_trans; [apply Rabs_triang|lra].
Qed.

Lemma within a e : Rabs a <= e <-> - e <= a <= e.
Proof. unfold Rabs; destruct Rcase_abs; lra. Qed.

(* Pieces of an axis: what holds on each of two adjacent intervals holds on both. *)
Theorem join_pieces (P : R -> Prop) a b c :
  (forall x, a <= x <= b -> P x) -> (forall x, b <= x <= c -> P x) -> forall x, a <= x <= c -> P x.
Proof. intros H1 H2 x Hx; destruct (Rle_dec x b); [apply H1|apply H2]; lra. Qed.

Ltac written_out :=
  unfold layer, rectify, row; cbn [lsum]; rewrite ?head_ratio by discriminate; unfold logit;
  cbn [lsum dot key bias value direction offset gain nth].

Ltac written_out_shifted c :=
  unfold layer, rectify, row; cbn [lsum]; rewrite ?(head_ratio_shift c) by discriminate; unfold logit;
  cbn [lsum dot key bias value direction offset gain nth].

(* One head with a shift of its own. *)
Ltac shift mem c := rewrite (head_ratio_shift c mem) by discriminate.
Ltac spelled := unfold logit, row; cbn [lsum dot key bias value nth].
