(* The form of a certificate as a Coq theorem, on a layer small enough to read: one head of two tokens along x1 + 2 x2,
   one ReLU unit, an affine part. Weights are the exact stored numbers, dyadic rationals; so are the box and eps. *)
From Coq Require Import Reals List Lra.
From Interval Require Import Tactic.
From Onelayer Require Import Softmax Vectors Lookup Kinks Certificate.
Import ListNotations.
Open Scope R_scope.

Definition head0 : list token :=
  [Token [-3938744858009157 / 2 ^ 52] (-2418351272036235 / 2 ^ 53) (row [-4670646771216111 / 2 ^ 52]);
   Token [3938744858009157 / 2 ^ 52] (-3938744858009157 / 2 ^ 53) (row [5535417818782671 / 2 ^ 52])].

Definition T (x1 x2 : R) : R :=
  layer [map (along [1; 2]) head0] [Ridge [1; -1] 0 (row [2])] [[-1; 1]] [0] [x1; x2] 0.

Ltac elementary u :=
  unfold head0; written_out; interval with (i_bisect u, i_taylor u, i_degree 10, i_prec 80, i_depth 12).

Ltac elementary_shifted c u :=
  unfold head0; written_out_shifted c;
  interval with (i_bisect u, i_taylor u, i_degree 10, i_prec 80, i_depth 12).

(* One head, one variable, two pieces; the second subtracts an average logit. *)
Lemma piece0 : forall u, 0 <= u <= 1 / 2 -> Rabs (head head0 [u] 0 - sin u) <= 1 / 1000.
Proof. intros u H; elementary u. Qed.

Lemma piece1 : forall u, 1 / 2 <= u <= 1 -> Rabs (head head0 [u] 0 - sin u) <= 1 / 1000.
Proof. intros u H; elementary_shifted (3 / 8 * u - 1 / 4) u. Qed.

Lemma inner : forall u, 0 <= u <= 1 -> Rabs (head head0 [u] 0 - sin u) <= 1 / 1000.
Proof. exact (join_pieces _ _ _ _ piece0 piece1). Qed.

Theorem certificate : forall x1 x2, 0 <= x1 <= 1 / 2 -> 0 <= x2 <= 1 / 4 ->
  Rabs (T x1 x2 - (sin (x1 + 2 * x2) + Rabs (x1 - x2))) <= 1 / 1000.
Proof.
  intros x1 x2 H1 H2; unfold T, layer; cbn [lsum]; rewrite head_of_direction by (intros t [<-|[<-|[]]]; reflexivity).
  assert (A := inner (dot [1; 2] [x1; x2]) ltac:(simpl; lra)); revert A; set (h := head _ _ _).
  unfold rectify, row; cbn [dot direction offset gain nth].
  replace (1 * x1 + (2 * x2 + 0)) with (x1 + 2 * x2) by ring; rewrite (abs_by_relu (x1 - x2)).
  replace (1 * x1 + (-1 * x2 + 0) + 0) with (x1 - x2) by ring; generalize (relu (x1 - x2)); intros r A.
  match type of A with Rabs ?a <= _ => match goal with |- Rabs ?g <= _ => replace g with a by ring end end; exact A.
Qed.

(* The error of the head is 6.96e-4: a smaller claim is refused. *)
Goal forall u, 0 <= u <= 1 -> Rabs (head head0 [u] 0 - sin u) <= 695 / 1000000.
Proof. intros u H. Fail elementary u. Abort.

(* The tactic above fails for the bound and nothing else: just above the error it succeeds. *)
Goal forall u, 0 <= u <= 1 -> Rabs (head head0 [u] 0 - sin u) <= 697 / 1000000.
Proof. intros u H; elementary u. Qed.
