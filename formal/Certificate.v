(* What exported certificates import (theory.md, section 8): the layer whose error they bound, written out as quotients
   of sums of exponentials that the tactic interval understands, and the ways to join bounds. *)
From Coq Require Import Reals Lra List.
From Onelayer Require Import Softmax Vectors Lookup Kinks.
Import ListNotations.
Open Scope R_scope.

(* Heads summed by W^O and the read-out, ReLU units on the residual stream, an affine part. *)
Record ridge := Ridge { direction : vec; offset : R; gain : nat -> R }.
Definition rectify (u : ridge) (x : vec) (i : nat) : R := relu (dot (direction u) x + offset u) * gain u i.

Definition layer (heads : list (list token)) (ridges : list ridge) (slope : nat -> vec) (const : nat -> R)
    (x : vec) (i : nat) : R :=
  const i + dot (slope i) x + lsum (fun u => rectify u x i) ridges + lsum (fun mem => head mem x i) heads.

Lemma head_ratio mem x i : mem <> nil ->
  head mem x i = lsum (fun t => exp (logit x t) * value t i) mem / lsum (fun t => exp (logit x t)) mem.
Proof. intros H; unfold head; rewrite attend_ratio by exact H; reflexivity. Qed.

(* Softmax does not see a common shift of the logits; certificates subtract an average logit, piece by piece. *)
Theorem head_ratio_shift c mem x i : mem <> nil ->
  head mem x i = lsum (fun t => exp (logit x t - c) * value t i) mem / lsum (fun t => exp (logit x t - c)) mem.
Proof.
  intros H; unfold head; rewrite <- (shift_invariance (- c)), attend_ratio by exact H; reflexivity.
Qed.

(* The sign of its argument decides a ReLU unit: one case each. *)
Lemma relu_active z : 0 <= z -> relu z = z.
Proof. intros H; unfold relu; apply Rmax_right, H. Qed.
Lemma relu_idle z : z <= 0 -> relu z = 0.
Proof. intros H; unfold relu; apply Rmax_left, H. Qed.

(* Groups of heads: errors add. *)
Theorem errors_add a b f g e d : Rabs (a - f) <= e -> Rabs (b - g) <= d -> Rabs (a + b - (f + g)) <= e + d.
Proof.
  intros H1 H2; replace (a + b - (f + g)) with ((a - f) + (b - g)) by ring.
  eapply Rle_trans; [apply Rabs_triang|lra].
Qed.

(* Pieces of an axis: a bound on each of two adjacent intervals is a bound on both. *)
Theorem join_pieces (P : R -> Prop) a b c :
  (forall x, a <= x <= b -> P x) -> (forall x, b <= x <= c -> P x) -> forall x, a <= x <= c -> P x.
Proof. intros H1 H2 x Hx; destruct (Rle_dec x b); [apply H1|apply H2]; lra. Qed.

Ltac written_out :=
  unfold layer; unfold rectify; cbn [lsum]; rewrite ?head_ratio by discriminate; unfold logit;
  cbn [lsum dot key bias value direction offset gain nth].

Ltac written_out_shifted c :=
  unfold layer; unfold rectify; cbn [lsum]; rewrite ?(head_ratio_shift c) by discriminate; unfold logit;
  cbn [lsum dot key bias value direction offset gain nth].
