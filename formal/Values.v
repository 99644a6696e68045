(* Solved values (theory.md, section 2, and row 17 of section 9): T is linear in the values, and with a key at each of N
   distinct points and beta large enough the values that fit N given labels exactly exist and are unique. *)
From Coq Require Import Reals Lra Lia List.
From Onelayer Require Import Softmax Vectors Lookup.
Import ListNotations.
Open Scope R_scope.

(* "T is linear in the values, so for given keys the best values solve a linear problem." *)
Theorem linear_in_values {A} (lg : A -> R) mem c d (u v : A -> R) :
  attend lg mem (fun t => c * u t + d * v t) = c * attend lg mem u + d * attend lg mem v.
Proof.
  unfold attend; rewrite (lsum_ext _ (fun t => c * (weight lg mem t * u t) + d * (weight lg mem t * v t)))
    by (intros; ring); rewrite lsum_plus, !lsum_scal; reflexivity.
Qed.

(* Matrices as functions of two indices below n. *)
Definition others (n i : nat) (g : nat -> R) : R := lsum (fun j => if Nat.eqb j i then 0 else g j) (seq 0 n).
Definition apply (n : nat) (A : nat -> nat -> R) (v : nat -> R) (i : nat) : R := lsum (fun j => A i j * v j) (seq 0 n).
Definition dominant (n : nat) (A : nat -> nat -> R) : Prop :=
  forall i, (i < n)%nat -> others n i (fun j => Rabs (A i j)) < Rabs (A i i).

Lemma others_all n i g : (i < n)%nat -> others n i g = lsum g (seq 0 n) - g i.
Proof.
  unfold others; revert i; induction n as [|n IH]; intros i H; [lia|].
  rewrite !lsum_seq_last; destruct (Nat.eqb_spec n i) as [->|N].
  - rewrite (lsum_ext _ g); [ring|].
    intros j Hj; apply in_seq in Hj; destruct (Nat.eqb_spec j i); [lia|reflexivity].
  - rewrite IH by lia; ring.
Qed.

Lemma others_le n i g h : (forall j, (j < n)%nat -> j <> i -> g j <= h j) -> others n i g <= others n i h.
Proof.
  intros H; apply lsum_le; intros j Hj; apply in_seq in Hj.
  destruct (Nat.eqb_spec j i) as [E|E]; [lra|apply H; [lia|exact E]].
Qed.

Lemma others_nonneg n i g : (forall j, 0 <= g j) -> 0 <= others n i g.
Proof. intros H; apply lsum_nonneg; intros j _; destruct (Nat.eqb j i); [lra|apply H]. Qed.

(* One step of elimination keeps a strictly dominant matrix strictly dominant. *)
Lemma dominant_eliminated n A : dominant (S n) A ->
  dominant n (fun i j => A i j - A i n * A n j / A n n).
Proof.
  intros H i Hi; assert (Di := H i ltac:(lia)); assert (Dn := H n ltac:(lia)).
  assert (Pd : 0 < Rabs (A n n)).
  { eapply Rle_lt_trans; [|exact Dn]; apply others_nonneg; intros; apply Rabs_pos. }
  assert (Ne : A n n <> 0) by (intros E; rewrite E, Rabs_R0 in Pd; lra).
  rewrite others_all in Dn by lia; rewrite lsum_seq_last in Dn.
  unfold others in Di; rewrite lsum_seq_last in Di; destruct (Nat.eqb_spec n i) as [E|_]; [lia|].
  fold (others n i (fun j => Rabs (A i j))) in Di.
  set (r := Rabs (A i n) / Rabs (A n n)).
  assert (Pr : 0 <= r) by (apply Rmult_le_pos; [apply Rabs_pos|left; apply Rinv_0_lt_compat, Pd]).
  assert (Er : r * Rabs (A n n) = Rabs (A i n)) by (unfold r; field; lra).
  assert (Term : forall j, Rabs (A i n * A n j / A n n) = r * Rabs (A n j)).
  { intros j; unfold Rdiv; rewrite !Rabs_mult, Rabs_inv; unfold r; field; lra. }
  apply Rle_lt_trans with (others n i (fun j => Rabs (A i j) + r * Rabs (A n j))).
  { apply others_le; intros j _ _; rewrite <- Term.
    unfold Rminus; eapply Rle_trans; [apply Rabs_triang|rewrite Rabs_Ropp; lra]. }
  rewrite others_all, lsum_plus, lsum_scal by exact Hi.
  assert (Diag : Rabs (A i i) - r * Rabs (A n i) <= Rabs (A i i - A i n * A n i / A n n)).
  { rewrite <- Term; eapply Rle_trans; [|apply Rabs_triang_inv]; lra. }
  rewrite others_all in Di by exact Hi.
  assert (r * lsum (fun j => Rabs (A n j)) (seq 0 n) <= r * Rabs (A n n)) by (apply Rmult_le_compat_l; lra).
  lra.
Qed.

(* A strictly diagonally dominant system has a solution for every right side, *)
Lemma dominant_solvable n : forall A, dominant n A ->
  forall y, exists v, forall i, (i < n)%nat -> apply n A v i = y i.
Proof.
  induction n as [|n IH]; intros A H y; [exists (fun _ => 0); intros; lia|].
  assert (Ne : A n n <> 0).
  { intros E; assert (D := H n ltac:(lia)); rewrite E, Rabs_R0 in D.
    assert (P := others_nonneg (S n) n (fun j => Rabs (A n j)) (fun j => Rabs_pos _)); lra. }
  destruct (IH _ (dominant_eliminated n A H) (fun i => y i - A i n * y n / A n n)) as [v Hv].
  set (s := apply n A v n); set (w := (y n - s) / A n n).
  exists (fun j => if Nat.eqb j n then w else v j).
  assert (Row : forall i, apply (S n) A (fun j => if Nat.eqb j n then w else v j) i = apply n A v i + A i n * w).
  { intros i; unfold apply; rewrite lsum_seq_last, Nat.eqb_refl; f_equal.
    apply lsum_ext; intros j Hj; apply in_seq in Hj; destruct (Nat.eqb_spec j n); [lia|reflexivity]. }
  intros i Hi; rewrite Row; destruct (Nat.eq_dec i n) as [->|N].
  - fold s; unfold w; field; exact Ne.
  - assert (E := Hv i ltac:(lia)); unfold apply in E.
    rewrite (lsum_ext _ (fun j => A i j * v j + - (A i n / A n n) * (A n j * v j))) in E
      by (intros; field; exact Ne).
    rewrite lsum_plus, lsum_scal in E; fold (apply n A v i) (apply n A v n) in E; fold s in E.
    replace (apply n A v i) with (y i - A i n * y n / A n n + A i n / A n n * s) by lra; unfold w; field; exact Ne.
Qed.

Lemma greatest n (v : nat -> R) : (0 < n)%nat ->
  exists i, (i < n)%nat /\ forall j, (j < n)%nat -> Rabs (v j) <= Rabs (v i).
Proof.
  induction n as [|[|n] IH]; intros H; [lia|exists O; split; [lia|intros j Hj; replace j with O by lia; lra]|].
  destruct IH as [i [Hi Mi]]; [lia|]; destruct (Rle_dec (Rabs (v (S n))) (Rabs (v i))) as [L|L].
  - exists i; split; [lia|]; intros j Hj; destruct (Nat.eq_dec j (S n)) as [->|N]; [exact L|apply Mi; lia].
  - exists (S n); split; [lia|]; intros j Hj; destruct (Nat.eq_dec j (S n)) as [->|N]; [lra|].
    specialize (Mi j ltac:(lia)); lra.
Qed.

(* and only one: where |v| is greatest the diagonal outweighs the rest. *)
Lemma dominant_injective n A v : dominant n A -> (forall i, (i < n)%nat -> apply n A v i = 0) ->
  forall i, (i < n)%nat -> v i = 0.
Proof.
  intros H Z i Hi; destruct (greatest n v) as [m [Hm Mm]]; [lia|].
  assert (V : Rabs (v m) <= 0).
  { apply Rnot_lt_le; intros P; assert (D := H m Hm); specialize (Z m Hm); unfold apply in Z.
    assert (E : others n m (fun j => A m j * v j) = - (A m m * v m)) by (rewrite others_all by exact Hm; lra).
    assert (B : Rabs (A m m * v m) <= others n m (fun j => Rabs (A m j)) * Rabs (v m)).
    { rewrite <- Rabs_Ropp, <- E; unfold others; eapply Rle_trans; [apply lsum_abs|].
      rewrite Rmult_comm, <- lsum_scal; apply lsum_le; intros j Hj; apply in_seq in Hj.
      destruct (Nat.eqb j m); [rewrite Rabs_R0; lra|rewrite Rabs_mult, Rmult_comm].
      apply Rmult_le_compat_r; [apply Rabs_pos|apply Mm; lia]. }
    rewrite Rabs_mult in B; assert (Rabs (A m m) <= others n m (fun j => Rabs (A m j))); [|lra].
    apply Rmult_le_reg_r with (Rabs (v m)); assumption. }
  assert (B := Mm i Hi); assert (P := Rabs_pos (v i)).
  destruct (Req_dec (v i) 0) as [E|E]; [exact E|apply Rabs_no_R0 in E; lra].
Qed.

(* The memory: a key at each point, values still free. *)
Definition memory_at (beta : R) (p : nat -> vec) (N : nat) (v : nat -> R) : list token :=
  map (fun j => Token (map (Rmult (2 * beta)) (p j)) (- beta * dot (p j) (p j)) (fun _ => v j)) (seq 0 N).
Definition point_logit (beta : R) (p : nat -> vec) (x : vec) (j : nat) : R :=
  logit x (lookup_token beta (fun _ _ => 0) (p j)).
Definition weights_at (beta : R) (p : nat -> vec) (N : nat) (i j : nat) : R :=
  weight (point_logit beta p (p i)) (seq 0 N) j.

Lemma head_at beta p N v i : head (memory_at beta p N v) (p i) 0 = apply N (weights_at beta p N) v i.
Proof. unfold head, memory_at; rewrite attend_map; reflexivity. Qed.

(* "The matrix of softmax weights tends to the identity as beta grows": as soon as N exp(- beta delta^2) <= 1, delta the
   least distance of two points, it is strictly diagonally dominant. *)
Theorem weights_dominant D N (p : nat -> vec) beta delta2 :
  (forall i, (i < N)%nat -> length (p i) = D) ->
  (forall i j, (i < N)%nat -> (j < N)%nat -> i <> j -> delta2 <= dist2 (p i) (p j)) ->
  0 <= beta -> INR N * exp (- beta * delta2) <= 1 -> dominant N (weights_at beta p N).
Proof.
  intros L Sep Hb HN i Hi; assert (Ne : seq 0 N <> nil) by (destruct N; [lia|discriminate]).
  assert (Pw : forall j, 0 < weights_at beta p N i j) by (intros j; apply weights_positive, Ne).
  set (e := exp (- beta * delta2)) in *; assert (Pe : 0 < e) by apply exp_pos.
  rewrite (Rabs_right (weights_at _ _ _ _ _)) by (left; apply Pw); specialize (Pw i) as Pi.
  assert (Self : dist2 (p i) (p i) = 0).
  { generalize (p i); induction v as [|a v IH]; simpl; [reflexivity|rewrite IH; ring]. }
  apply Rle_lt_trans with (others N i (fun _ => weights_at beta p N i i * e)).
  - apply others_le; intros j Hj Hji; rewrite Rabs_right by (left; apply Pw).
    unfold weights_at, weight, Rdiv; rewrite Rmult_assoc, (Rmult_comm (/ _)), <- Rmult_assoc.
    apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, partition_pos, Ne|].
    unfold e; rewrite <- exp_plus; apply exp_le; unfold point_logit.
    rewrite !lookup_logit by (rewrite !L; auto); rewrite Self.
    assert (S := Sep i j Hi Hj (not_eq_sym Hji)); apply Rmult_le_compat_l with (r := beta) in S; lra.
  - rewrite others_all, lsum_const, seq_length by exact Hi.
    apply Rmult_lt_reg_r with (/ weights_at beta p N i i); [apply Rinv_0_lt_compat, Pi|].
    replace ((INR N * (weights_at beta p N i i * e) - weights_at beta p N i i * e) * / weights_at beta p N i i)
      with (INR N * e - e) by (field; lra).
    rewrite Rinv_r by lra; lra.
Qed.

(* "So for some finite beta it is invertible and the values can be solved": for all labels y there is exactly one choice
   of values with T(x_i) = y_i, as soon as N exp(- beta delta^2) <= 1, that is beta >= ln N / delta^2. *)
Theorem memorise D N (p : nat -> vec) beta delta2 :
  (forall i, (i < N)%nat -> length (p i) = D) ->
  (forall i j, (i < N)%nat -> (j < N)%nat -> i <> j -> delta2 <= dist2 (p i) (p j)) ->
  0 <= beta -> INR N * exp (- beta * delta2) <= 1 ->
  forall y : nat -> R, exists v, (forall i, (i < N)%nat -> head (memory_at beta p N v) (p i) 0 = y i) /\
    forall v', (forall i, (i < N)%nat -> head (memory_at beta p N v') (p i) 0 = y i) ->
      forall j, (j < N)%nat -> v' j = v j.
Proof.
  intros L Sep Hb HN y; assert (Dom := weights_dominant D N p beta delta2 L Sep Hb HN).
  destruct (dominant_solvable N _ Dom y) as [v Hv]; exists v; split; [intros i Hi; rewrite head_at; apply Hv, Hi|].
  intros v' Hv' j Hj; apply Rminus_diag_uniq.
  apply (dominant_injective N (weights_at beta p N) (fun j => v' j - v j) Dom); [|exact Hj].
  intros i Hi; specialize (Hv i Hi); specialize (Hv' i Hi); rewrite head_at in Hv'.
  set (W := weights_at beta p N) in *; unfold apply in *.
  rewrite (lsum_ext _ (fun j => W i j * v' j + -1 * (W i j * v j))) by (intros; ring).
  rewrite lsum_plus, lsum_scal; lra.
Qed.

Lemma distinct_apart x : forall y, length x = length y -> x <> y -> 0 < dist2 x y.
Proof.
  induction x as [|a x IH]; intros [|b y] L H; simpl in L; try discriminate; [congruence|]; cbn [dist2].
  destruct (Req_dec a b) as [->|N].
  - assert (0 < dist2 x y) by (apply IH; [lia|congruence]); generalize (pow2_ge_0 (b - b)); lra.
  - assert (0 < (a - b) ^ 2) by (rewrite <- Rsqr_pow2; apply Rsqr_pos_lt; lra); generalize (dist2_nonneg x y); lra.
Qed.

Lemma least_positive (l : list R) : (forall u, In u l -> 0 < u) -> exists d, 0 < d /\ forall u, In u l -> d <= u.
Proof.
  induction l as [|a l IH]; intros H; [exists 1; split; [lra|intros u []]|].
  destruct IH as [d [Pd Hd]]; [intros u Hu; apply H; right; exact Hu|].
  exists (Rmin a d); split; [apply Rmin_glb_lt; [apply H; left; reflexivity|exact Pd]|].
  intros u [<-|Hu]; [apply Rmin_l|eapply Rle_trans; [apply Rmin_r|apply Hd, Hu]].
Qed.

(* For N distinct points such a beta exists, and every larger one will do. *)
Theorem memorise_distinct D N (p : nat -> vec) :
  (forall i, (i < N)%nat -> length (p i) = D) ->
  (forall i j, (i < N)%nat -> (j < N)%nat -> i <> j -> p i <> p j) ->
  exists beta0, forall beta, beta0 <= beta -> forall y : nat -> R,
  exists v, forall i, (i < N)%nat -> head (memory_at beta p N v) (p i) 0 = y i.
Proof.
  intros L Dis.
  set (pairs := filter (fun ij => negb (Nat.eqb (fst ij) (snd ij))) (list_prod (seq 0 N) (seq 0 N))).
  destruct (least_positive (map (fun ij => dist2 (p (fst ij)) (p (snd ij))) pairs)) as [d [Pd Hd]].
  { intros u Hu; apply in_map_iff in Hu; destruct Hu as [[i j] [<- H]]; apply filter_In in H; destruct H as [H E].
    apply in_prod_iff in H; destruct H as [Hi Hj]; apply in_seq in Hi; apply in_seq in Hj; simpl in *.
    destruct (Nat.eqb_spec i j) as [_|N']; [discriminate|].
    apply distinct_apart; [rewrite !L by lia; reflexivity|apply Dis; lia]. }
  assert (PN := pos_INR N); set (beta0 := INR N / d).
  assert (P0 : 0 <= beta0) by (apply Rmult_le_pos; [exact PN|left; apply Rinv_0_lt_compat, Pd]).
  exists beta0; intros beta Hb y.
  destruct (memorise D N p beta d) with (y := y) as [v [Hv _]]; [exact L| |lra| |exists v; exact Hv].
  - intros i j Hi Hj Nij; apply Hd, in_map_iff; exists (i, j); split; [reflexivity|].
    apply filter_In; split; [apply in_prod_iff; split; apply in_seq; lia|simpl].
    destruct (Nat.eqb_spec i j); [contradiction|reflexivity].
  - assert (B : INR N <= beta * d).
    { apply Rmult_le_compat_r with (r := d) in Hb; [|lra].
      replace (beta0 * d) with (INR N) in Hb by (unfold beta0; field; lra); exact Hb. }
    assert (E := exp_ineq1_le (beta * d)); replace (- beta * d) with (- (beta * d)) by ring; rewrite exp_Ropp.
    apply Rmult_le_reg_r with (exp (beta * d)); [apply exp_pos|].
    rewrite Rmult_assoc, Rinv_l by (apply Rgt_not_eq, exp_pos); lra.
Qed.
