(* The same theorem for attention as it is printed (theory.md, section 1): an affine query, keys, values and
   softmax(q . k / sqrt d_k). One query token carries x; the memory tokens carry constant keys and values. *)
From Coq Require Import Reals Lra Lia List.
From Onelayer Require Import Softmax Vectors Lookup.
Import ListNotations.
Open Scope R_scope.

Record entry := Entry { entry_key : vec; entry_value : nat -> R }.

(* W x + b; row j of W and entry j of b give output j. *)
Definition affine (W : list vec) (b : vec) (x : vec) : vec := map (fun rb => dot (fst rb) x + snd rb) (combine W b).

Definition attention (WQ : list vec) (bQ : vec) (mem : list entry) (x : vec) (i : nat) : R :=
  attend (fun t => dot (affine WQ bQ x) (entry_key t) / sqrt (INR (length bQ))) mem (fun t => entry_value t i).

(* The query (x, 1): unit rows with bias 0, and a row of zeros with bias 1. *)
Fixpoint unit_row (D j : nat) : vec :=
  match D, j with
  | O, _ => nil
  | S D', O => 1 :: repeat 0 D'
  | S D', S j' => 0 :: unit_row D' j'
  end.
Definition plain_WQ (D : nat) : list vec := map (unit_row D) (seq 0 D) ++ [repeat 0 D].
Definition plain_bQ (D : nat) : vec := repeat 0 D ++ [1].

Lemma dot_zeros D x : dot (repeat 0 D) x = 0.
Proof. revert x; induction D as [|D IH]; intros [|a x]; simpl; try reflexivity; rewrite IH; ring. Qed.

Lemma dot_unit D : forall x, length x = D -> map (fun j => dot (unit_row D j) x) (seq 0 D) = x.
Proof.
  induction D as [|D IH]; intros [|a x] H; simpl in H; try discriminate; [reflexivity|].
  change (seq 0 (S D)) with (0%nat :: seq 1 D); rewrite <- seq_shift, map_cons, map_map; f_equal.
  - simpl; rewrite dot_zeros; ring.
  - transitivity (map (fun j => dot (unit_row D j) x) (seq 0 D)); [|apply IH; lia].
    apply map_ext; intros j; simpl; ring.
Qed.

Lemma combine_app {A B} (l1 : list A) (m1 : list B) l2 m2 : length l1 = length m1 ->
  combine (l1 ++ l2) (m1 ++ m2) = combine l1 m1 ++ combine l2 m2.
Proof.
  revert m1; induction l1 as [|a l1 IH]; intros [|b m1] H; simpl in *; try discriminate; [reflexivity|].
  rewrite IH by lia; reflexivity.
Qed.

Lemma map_combine_zeros (g : vec -> R) l :
  map (fun rb => g (fst rb) + snd rb) (combine l (repeat 0 (length l))) = map g l.
Proof. induction l as [|r l IH]; simpl; [reflexivity|rewrite IH, Rplus_0_r; reflexivity]. Qed.

Lemma plain_query D x : length x = D -> affine (plain_WQ D) (plain_bQ D) x = x ++ [1].
Proof.
  intros H; unfold affine, plain_WQ, plain_bQ.
  rewrite combine_app by (rewrite map_length, seq_length, repeat_length; reflexivity).
  rewrite map_app; f_equal.
  - assert (L : length (map (unit_row D) (seq 0 D)) = D) by (rewrite map_length, seq_length; reflexivity).
    replace (repeat 0 D) with (repeat 0 (length (map (unit_row D) (seq 0 D)))) by (rewrite L; reflexivity).
    rewrite (map_combine_zeros (fun r => dot r x)), map_map; apply dot_unit, H.
  - simpl; rewrite dot_zeros; f_equal; ring.
Qed.

Lemma dot_app u x v y : length u = length x -> dot (u ++ v) (x ++ y) = dot u x + dot v y.
Proof.
  revert x; induction u as [|a u IH]; intros [|b x] H; simpl in *; try discriminate; [ring|].
  rewrite IH by lia; ring.
Qed.

Lemma dot_comm u : forall x, dot u x = dot x u.
Proof. induction u as [|a u IH]; intros [|b x]; simpl; try reflexivity; rewrite IH; ring. Qed.

Lemma dot_scal c u : forall x, dot x (map (Rmult c) u) = c * dot x u.
Proof. induction u as [|a u IH]; intros [|b x]; simpl; try ring; rewrite IH; ring. Qed.

Definition memory_entry (D : nat) (t : token) : entry :=
  Entry (map (Rmult (sqrt (INR (D + 1)))) (key t ++ [bias t])) (value t).

(* "It is affine in x, so an affine query and constant keys produce it": the theorem for softmax(q . k / sqrt d_k). *)
Theorem attention_universal :
  forall (D K : nat) (X : vec -> Prop) (f : vec -> nat -> R),
  compact D X -> (forall i, (i < K)%nat -> continuous_on X (fun x => f x i)) ->
  forall eps, 0 < eps ->
  exists (WQ : list vec) (bQ : vec) (mem : list entry), mem <> nil /\
    length WQ = S D /\ length bQ = S D /\
    forall x, X x -> forall i, (i < K)%nat -> Rabs (attention WQ bQ mem x i - f x i) <= eps.
Proof.
  intros D K X f C Hf eps He.
  destruct (universal_approximation D K X f C Hf eps He) as [mem [Ne [Len H]]].
  exists (plain_WQ D), (plain_bQ D), (map (memory_entry D) mem); split; [destruct mem; [congruence|discriminate]|].
  split; [unfold plain_WQ; rewrite app_length, map_length, seq_length; simpl; lia|].
  split; [unfold plain_bQ; rewrite app_length, repeat_length; simpl; lia|].
  intros x Hx i Hi; specialize (H x Hx i Hi).
  assert (Lx := compact_length D X C x Hx).
  replace (attention (plain_WQ D) (plain_bQ D) (map (memory_entry D) mem) x i) with (head mem x i); [exact H|].
  unfold attention, head; rewrite attend_map; symmetry; apply attend_ext; intros t Ht; [|reflexivity].
  rewrite plain_query by exact Lx; cbn [memory_entry entry_key].
  rewrite dot_scal, dot_app by (rewrite Lx, Len by exact Ht; reflexivity).
  unfold plain_bQ; rewrite app_length, repeat_length; cbn [length dot].
  assert (P : 0 < sqrt (INR (D + 1))) by (apply sqrt_lt_R0, lt_0_INR; lia).
  unfold logit; rewrite (dot_comm x); field; lra.
Qed.
