(* Polynomials with intervals as coefficients (theory.md, section 8): Taylor models in several variables whose remainder
   lies in the coefficients. "P encloses y at t": y is a value at t of some polynomial with coefficients inside those of P. *)
From Coq Require Import Reals Lra Lia List.
From Interval Require Import Real.Xreal Interval.Interval.
From Onelayer Require Import Vectors.
Import ListNotations.
Open Scope R_scope.

Module Polynomials (I : IntervalOps).

(* Intervals. One that is not a number contains everything, so that whatever fails is undecided and never proved. *)
Definition inside (J : I.type) (y : R) : Prop := contains (I.convert J) (Xreal y).

Lemma everything i v : contains i Xnan -> contains i v.
Proof. destruct i; simpl; tauto. Qed.

Section Precision.
Variable prec : I.precision.

Lemma inside_add J K a b : inside J a -> inside K b -> inside (I.add prec J K) (a + b).
Proof. intros HJ HK; exact (I.add_correct prec _ _ _ _ HJ HK). Qed.
Lemma inside_sub J K a b : inside J a -> inside K b -> inside (I.sub prec J K) (a - b).
Proof. intros HJ HK; exact (I.sub_correct prec _ _ _ _ HJ HK). Qed.
Lemma inside_mul J K a b : inside J a -> inside K b -> inside (I.mul prec J K) (a * b).
Proof. intros HJ HK; exact (I.mul_correct prec _ _ _ _ HJ HK). Qed.
Lemma inside_neg J a : inside J a -> inside (I.neg J) (- a).
Proof. intros HJ; exact (I.neg_correct _ _ HJ). Qed.
Lemma inside_abs J a : inside J a -> inside (I.abs J) (Rabs a).
Proof. intros HJ; exact (I.abs_correct _ _ HJ). Qed.
Lemma inside_exp J a : inside J a -> inside (I.exp prec J) (exp a).
Proof. intros HJ; exact (I.exp_correct prec _ _ HJ). Qed.
Lemma inside_sin J a : inside J a -> inside (I.sin prec J) (sin a).
Proof. intros HJ; exact (I.sin_correct prec _ _ HJ). Qed.
Lemma inside_cos J a : inside J a -> inside (I.cos prec J) (cos a).
Proof. intros HJ; exact (I.cos_correct prec _ _ HJ). Qed.
Lemma inside_inv J a : inside J a -> inside (I.inv prec J) (/ a).
Proof.
  intros HJ; assert (H := I.inv_correct prec _ _ HJ); unfold inside; cbn [Xbind] in H; unfold Xinv' in H.
  destruct (is_zero a); [apply everything|]; exact H.
Qed.
Lemma inside_ln J a : inside J a -> inside (I.ln prec J) (ln a).
Proof.
  intros HJ; assert (H := I.ln_correct prec _ _ HJ); unfold inside; cbn [Xbind] in H; unfold Xln' in H.
  destruct (is_positive a); [exact H|apply everything; exact H].
Qed.
Lemma inside_sqrt J a : inside J a -> inside (I.sqrt prec J) (sqrt a).
Proof. intros HJ; exact (I.sqrt_correct prec _ _ HJ). Qed.
Lemma inside_zero : inside I.zero 0.
Proof. unfold inside; rewrite I.zero_correct; simpl; lra. Qed.
Lemma inside_nothing a : inside I.nai a.
Proof. unfold inside; rewrite I.nai_correct; exact Logic.I. Qed.
Lemma inside_whole z : inside (I.fromZ prec z) (IZR z).
Proof. exact (I.fromZ_correct prec z). Qed.

Fixpoint power (J : I.type) (n : nat) : I.type :=
  match n with O => I.fromZ prec 1 | S n => I.mul prec J (power J n) end.
Lemma inside_power J a n : inside J a -> inside (power J n) (a ^ n).
Proof. intros H; induction n; [apply inside_whole|apply inside_mul; assumption]. Qed.

(* Some number in the middle of an interval: which one is of no concern. *)
Definition middle (J : I.type) : I.type := I.singleton (I.midpoint J).
Lemma inside_middle J : exists m, inside (middle J) m.
Proof. eexists; apply I.singleton_correct. Qed.

Lemma inside_hull J a b c : inside J a -> inside J b -> a <= c <= b -> inside J c.
Proof. unfold inside, contains; destruct (I.convert J) as [|[|l] [|u]]; lra. Qed.

Definition unit : I.type := I.join (I.fromZ prec (-1)) (I.fromZ prec 1).
Lemma inside_unit t : -1 <= t <= 1 -> inside unit t.
Proof. apply inside_hull; apply I.join_correct; [left|right]; apply inside_whole. Qed.
Definition square : I.type := I.join I.zero (I.fromZ prec 1).
Lemma inside_square t : -1 <= t <= 1 -> inside square (t ^ 2).
Proof.
  intros H; apply (inside_hull _ 0 1); [apply I.join_correct; left; apply inside_zero| |nra].
  apply I.join_correct; right; apply (inside_whole 1).
Qed.

(* Polynomials in d variables: in the first one, with polynomials in the others as coefficients. *)
Fixpoint poly (d : nat) : Type := match d with O => I.type | S d => list (poly d) end.

Fixpoint encloses (d : nat) : poly d -> vec -> R -> Prop :=
  match d with
  | O => fun p _ y => inside p y
  | S d => fix go (ps : list (poly d)) (t : vec) (y : R) : Prop :=
      match ps with
      | nil => y = 0
      | p :: ps => exists a b, y = a + hd 0 t * b /\ encloses d p (tl t) a /\ go ps t b
      end
  end.
Arguments encloses {d}.

Fixpoint const (d : nat) (J : I.type) : poly d := match d with O => J | S d => [const d J] end.
Lemma encloses_const d J y : forall t, inside J y -> encloses (const d J) t y.
Proof.
  induction d as [|d IH]; intros t H; [exact H|].
  exists y, 0; split; [ring|split; [apply IH, H|reflexivity]].
Qed.

Definition zero (d : nat) : poly d := match d with O => I.zero | S d => nil end.
Lemma encloses_zero d t : encloses (zero d) t 0.
Proof. destruct d; [apply inside_zero|reflexivity]. Qed.

Fixpoint add (d : nat) : poly d -> poly d -> poly d :=
  match d with
  | O => I.add prec
  | S d => fix go ps qs :=
      match ps, qs with
      | nil, _ => qs
      | _, nil => ps
      | p :: ps', q :: qs' => add d p q :: go ps' qs'
      end
  end.
Arguments add {d}.
Lemma encloses_add d : forall (p q : poly d) t y z, encloses p t y -> encloses q t z -> encloses (add p q) t (y + z).
Proof.
  induction d as [|d IH]; [intros; apply inside_add; assumption|].
  induction p as [|p ps IHp]; intros [|q qs] t y z Hp Hq.
  - simpl in *; subst; ring.
  - simpl in Hp; subst y; rewrite Rplus_0_l; exact Hq.
  - simpl in Hq; subst z; rewrite Rplus_0_r; exact Hp.
  - destruct Hp as (a & b & -> & Ha & Hb), Hq as (a' & b' & -> & Ha' & Hb').
    exists (a + a'), (b + b'); split; [ring|split; [apply IH; assumption|apply IHp; assumption]].
Qed.

(* The same operation on every coefficient, where it is linear. *)
Fixpoint each (g : I.type -> I.type) (d : nat) : poly d -> poly d :=
  match d with O => g | S d => map (each g d) end.
Arguments each g {d}.
Lemma encloses_each g c : (forall J y, inside J y -> inside (g J) (c * y)) ->
  forall d (p : poly d) t y, encloses p t y -> encloses (each g p) t (c * y).
Proof.
  intros Hg; induction d as [|d IH]; [exact (fun p t => Hg p)|].
  induction p as [|p ps IHp]; intros t y H; [simpl in *; subst; ring|].
  destruct H as (a & b & -> & Ha & Hb); exists (c * a), (c * b).
  split; [ring|split; [apply IH, Ha|apply IHp, Hb]].
Qed.

Definition scale {d} (J : I.type) : poly d -> poly d := each (I.mul prec J).
Lemma encloses_scale d J c (p : poly d) t y : inside J c -> encloses p t y -> encloses (scale J p) t (c * y).
Proof. intros H; apply encloses_each; intros; apply inside_mul; assumption. Qed.

Definition opposite {d} : poly d -> poly d := each I.neg.
Lemma encloses_opposite d (p : poly d) t y : encloses p t y -> encloses (opposite p) t (- y).
Proof.
  intros H; replace (- y) with (-1 * y) by ring; apply encloses_each; [|exact H].
  intros J z Hz; replace (-1 * z) with (- z) by ring; apply inside_neg, Hz.
Qed.

Definition sub {d} (p q : poly d) : poly d := add p (opposite q).
Lemma encloses_sub d (p q : poly d) t y z : encloses p t y -> encloses q t z -> encloses (sub p q) t (y - z).
Proof. intros; apply encloses_add; [|apply encloses_opposite]; assumption. Qed.

(* All values over the box: normalised variables lie between -1 and 1. *)
Definition normal (t : vec) : Prop := List.Forall (fun v => -1 <= v <= 1) t.
Lemma normal_hd t : normal t -> -1 <= hd 0 t <= 1.
Proof. intros [|]; simpl; [lra|assumption]. Qed.
Lemma normal_tl t : normal t -> normal (tl t).
Proof. intros [|]; [constructor|assumption]. Qed.

Fixpoint range (d : nat) : poly d -> I.type :=
  match d with
  | O => fun p => p
  | S d => fix go ps :=
      match ps with
      | nil => I.zero
      | p :: nil => range d p
      | p :: q :: nil => I.add prec (range d p) (I.mul prec unit (range d q))
      | p :: q :: ps => I.add prec (I.add prec (range d p) (I.mul prec unit (range d q))) (I.mul prec square (go ps))
      end
  end.
Arguments range {d}.
Lemma inside_range d : forall (p : poly d) t y, normal t -> encloses p t y -> inside (range p) y.
Proof.
  induction d as [|d IH]; [intros p t y _ H; exact H|].
  assert (Two : forall n (ps : poly (S d)) t y, (length ps <= n)%nat -> normal t -> encloses ps t y -> inside (range ps) y).
  2:{ intros p t y; apply (Two (length p)); reflexivity. }
  induction n as [|n IHn]; intros [|p ps] t y Len N H; try (simpl in Len; lia); try (simpl in *; subst; apply inside_zero).
  destruct H as (a & b & -> & Ha & Hb); assert (Ra := IH p (tl t) a (normal_tl t N) Ha).
  assert (U := inside_unit _ (normal_hd t N)); assert (Q := inside_square _ (normal_hd t N)).
  destruct ps as [|q ps]; [simpl in Hb; subst b; rewrite Rmult_0_r, Rplus_0_r; exact Ra|].
  destruct Hb as (b' & c & -> & Hb & Hc); assert (Rb := IH q (tl t) b' (normal_tl t N) Hb).
  destruct ps as [|r ps].
  - simpl in Hc; subst c; rewrite Rmult_0_r, Rplus_0_r; apply inside_add; [exact Ra|apply inside_mul; assumption].
  - replace (a + hd 0 t * (b' + hd 0 t * c)) with (a + hd 0 t * b' + hd 0 t ^ 2 * c) by ring.
    apply inside_add; [apply inside_add; [exact Ra|apply inside_mul; assumption]|apply inside_mul; [exact Q|]].
    apply (IHn (r :: ps) t); [simpl in *; lia|exact N|exact Hc].
Qed.

(* Products up to total degree n; what lies above it is swept into the last coefficients. *)
Section Products.
Variable d : nat.
Variable product : nat -> poly d -> poly d -> poly d.
Hypothesis product_correct : forall n p q t y z, normal t ->
  encloses p t y -> encloses q t z -> encloses (product n p q) t (y * z).

Fixpoint times (n : nat) (p : poly d) (qs : poly (S d)) {struct qs} : poly (S d) :=
  match qs, n with
  | nil, _ => nil
  | q :: nil, _ => [product n p q]
  | _, O => [const d (I.mul prec (range p) (range (d := S d) qs))]
  | q :: qs, S m => product n p q :: times m p qs
  end.
Lemma encloses_times : forall qs n p t y z, normal t ->
  encloses p (tl t) y -> encloses (d := S d) qs t z -> encloses (d := S d) (times n p qs) t (y * z).
Proof.
  induction qs as [|q qs IHq]; intros n p t y z N Hp Hq; [simpl in *; subst z; ring|].
  assert (Hq' := Hq); destruct Hq as (a & b & -> & Ha & Hb); destruct qs as [|q' qs].
  - simpl in Hb; subst b; exists (y * a), 0; split; [ring|].
    split; [apply product_correct; [apply normal_tl|..]; assumption|reflexivity].
  - destruct n as [|n].
    + apply (encloses_const (S d)), inside_mul; [apply (inside_range d p (tl t)); [apply normal_tl, N|exact Hp]|].
      apply (inside_range (S d) _ t); assumption.
    + exists (y * a), (y * b); split; [ring|].
      split; [apply product_correct; [apply normal_tl|..]; assumption|apply IHq; assumption].
Qed.

Fixpoint convolve (n : nat) (ps qs : poly (S d)) {struct ps} : poly (S d) :=
  match ps, n with
  | nil, _ => nil
  | p :: nil, _ => times n p qs
  | _, O => [const d (I.mul prec (range (d := S d) ps) (range (d := S d) qs))]
  | p :: ps, S m => add (d := S d) (times n p qs) (zero d :: convolve m ps qs)
  end.
Lemma encloses_convolve : forall ps n qs t y z, normal t ->
  encloses (d := S d) ps t y -> encloses (d := S d) qs t z -> encloses (d := S d) (convolve n ps qs) t (y * z).
Proof.
  induction ps as [|p ps IHp]; intros n q t y z N Hp Hq; [simpl in *; subst y; ring|].
  assert (Hp' := Hp); destruct Hp as (a & b & -> & Ha & Hb); destruct ps as [|p' ps].
  - simpl in Hb; subst b; replace ((a + hd 0 t * 0) * z) with (a * z) by ring.
    apply encloses_times; assumption.
  - destruct n as [|n].
    + apply (encloses_const (S d)), inside_mul; apply (inside_range (S d) _ t); assumption.
    + replace ((a + hd 0 t * b) * z) with (a * z + (0 + hd 0 t * (b * z))) by ring.
      apply (encloses_add (S d)); [apply encloses_times; assumption|].
      exists 0, (b * z); split; [ring|split; [apply encloses_zero|apply IHp; assumption]].
Qed.
End Products.

Fixpoint mul (d : nat) : nat -> poly d -> poly d -> poly d :=
  match d with O => fun _ => I.mul prec | S d => convolve d (mul d) end.
Arguments mul {d}.
Lemma encloses_mul d : forall n (p q : poly d) t y z, normal t ->
  encloses p t y -> encloses q t z -> encloses (mul n p q) t (y * z).
Proof.
  induction d as [|d IH]; [intros; apply inside_mul; assumption|].
  intros; apply encloses_convolve; assumption.
Qed.

(* An affine function of t; a coefficient None is zero and keeps the polynomial free of that variable. *)
Definition inside_some (J : option I.type) (a : R) : Prop := match J with None => a = 0 | Some J => inside J a end.
Fixpoint affine (d : nat) (c : I.type) (slopes : list (option I.type)) : poly d :=
  match d, slopes with
  | O, _ => c
  | S d, nil => const (S d) c
  | S d, None :: slopes => [affine d c slopes]
  | S d, Some J :: slopes => [affine d c slopes; const d J]
  end.
Lemma encloses_affine d : forall J slopes t c ss, length t = d -> inside J c -> Forall2 inside_some slopes ss ->
  encloses (affine d J slopes) t (c + dot ss t).
Proof.
  induction d as [|d IH]; intros J slopes t c ss L HJ H.
  { destruct t; [|discriminate]; destruct ss; simpl; rewrite Rplus_0_r; exact HJ. }
  destruct t as [|v t]; [discriminate|]; injection L as L.
  destruct H as [|[K|] s slopes ss Hs H].
  - simpl dot; rewrite Rplus_0_r; apply (encloses_const (S d)), HJ.
  - exists (c + dot ss t), s; split; [simpl; ring|].
    split; [apply IH; assumption|exists s, 0; split; [ring|split; [apply encloses_const, Hs|reflexivity]]].
  - simpl in Hs; subst s; exists (c + dot ss t), 0; split; [simpl; ring|split; [apply IH; assumption|reflexivity]].
Qed.

End Precision.

Arguments encloses {d}.
Arguments add prec {d}.
Arguments each g {d}.
Arguments scale prec {d}.
Arguments opposite {d}.
Arguments sub prec {d}.
Arguments range prec {d}.
Arguments mul prec {d}.
End Polynomials.
