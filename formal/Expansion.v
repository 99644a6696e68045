(* Elementary functions of enclosing polynomials (theory.md, section 8): a Taylor expansion around a number in the
   middle, with the remainder in Lagrange's form as its last coefficient. *)
From Coq Require Import Reals Lra Lia List ZArith.
From Coquelicot Require Import Coquelicot.
From Interval Require Import Real.Xreal Real.Taylor Interval.Interval.
From Onelayer Require Import Vectors Kinks Enclosure.
Import ListNotations.
Open Scope R_scope.

(* c0 + h (c1 + h (c2 + ...)). *)
Fixpoint series (cs : list R) (h : R) : R := match cs with nil => 0 | c :: cs => c + h * series cs h end.

Lemma series_sum (c : nat -> R) n h e : forall j,
  series (map c (seq j (S n)) ++ [e]) h = sum_f_R0 (fun i => c (j + i)%nat * h ^ i) n + e * h ^ S n.
Proof.
  induction n as [|n IH]; intros j; [simpl; rewrite Nat.add_0_r; ring|].
  rewrite (decomp_sum (fun i => c (j + i)%nat * h ^ i)) by lia; cbn [Nat.pred].
  change (seq j (S (S n))) with (j :: seq (S j) (S n)); cbn [map app series]; rewrite IH.
  rewrite (sum_eq (fun i => c (j + S i)%nat * h ^ S i) (fun i => c (S j + i)%nat * h ^ i * h)).
  2:{ intros i _; replace (j + S i)%nat with (S j + i)%nat by lia; simpl; ring. }
  rewrite <- scal_sum, Nat.add_0_r; simpl; ring.
Qed.

(* Lagrange's form of Taylor's theorem, to either side of m. *)
Definition expansion (D : nat -> R -> R) (n : nat) (m c : R) : list R :=
  map (fun k => D k m / INR (fact k)) (seq 0 (S n)) ++ [D (S n) c / INR (fact (S n))].

Theorem taylor_lagrange (D : nat -> R -> R) n m h :
  (forall k x, Rmin m (m + h) <= x <= Rmax m (m + h) -> is_derive (D k) x (D (S k) x)) ->
  exists c, Rmin m (m + h) <= c <= Rmax m (m + h) /\ D 0%nat (m + h) = series (expansion D n m c) h.
Proof.
  intros HD; set (a := Rmin m (m + h)) in *; set (b := Rmax m (m + h)) in *.
  assert (A : a <= m <= b /\ a <= m + h <= b).
  { unfold a, b, Rmin, Rmax; destruct (Rle_dec m (m + h)); lra. }
  destruct (Cor_Taylor_Lagrange a b n D) with (x0 := m) (x := m + h) as [c [E B]]; try tauto.
  { intros k x _ Hx; apply is_derive_Reals, HD, Hx. }
  replace (m + h - m) with h in E by ring.
  destruct (Req_dec m (m + h)) as [Z|Z].
  - exists m; split; [lra|]; unfold expansion; rewrite series_sum; cbn [Nat.add].
    replace h with 0 in * by lra; rewrite pow_ne_zero in * by lia; lra.
  - exists c; split; [specialize (B Z); lra|unfold expansion; rewrite series_sum; cbn [Nat.add]; lra].
Qed.

(* sin and cos: a function, its derivative, and the negative of both in turn. *)
Fixpoint turn (k : nat) (s c : R) : R := match k with O => s | S k => turn k c (- s) end.

Lemma turn_derive (u v : R -> R) : (forall x, is_derive u x (v x)) -> (forall x, is_derive v x (- u x)) ->
  forall k x, is_derive (fun x => turn k (u x) (v x)) x (turn (S k) (u x) (v x)).
Proof.
  intros Hu Hv k; revert u v Hu Hv; induction k as [|k IH]; intros u v Hu Hv x; [apply Hu|].
  apply (IH v (fun x => - u x)); [exact Hv|].
  intros y; apply (is_derive_opp u), Hu.
Qed.

Lemma turn_bound k : forall s c, -1 <= s <= 1 -> -1 <= c <= 1 -> -1 <= turn k s c <= 1.
Proof. induction k as [|k IH]; intros s c Hs Hc; [exact Hs|apply IH; lra]. Qed.

(* ln: the derivatives are powers of 1/x. *)
Definition ln_derivative (k : nat) (x : R) : R :=
  match k with O => ln x | S k => (-1) ^ k * INR (fact k) / x ^ S k end.
Lemma ln_derive k x : 0 < x -> is_derive (ln_derivative k) x (ln_derivative (S k) x).
Proof.
  intros P; assert (N : forall j, x ^ j <> 0) by (intros j; apply pow_nonzero; lra); destruct k as [|k].
  - unfold ln_derivative; replace (_ / _) with (/ x) by (simpl; field; lra); apply is_derive_Reals, derivable_pt_lim_ln, P.
  - unfold ln_derivative.
    evar_last; [apply is_derive_div; [apply is_derive_const|apply is_derive_pow, is_derive_id|apply N]|].
    unfold zero, one; cbn -[fact INR pow]; rewrite fact_simpl, mult_INR.
    replace (pred (S k)) with k by reflexivity; rewrite <- !tech_pow_Rmult; field; split; [apply N|lra].
Qed.

(* 1/(m + h), exactly. *)
Fixpoint geometric (n : nat) (r a y : R) : list R :=
  match n with O => [a * y] | S n => a * r :: geometric n r (a * - r) y end.
Lemma geometric_sum n m h : m <> 0 -> m + h <> 0 -> forall a, series (geometric n (/ m) a (/ (m + h))) h = a / (m + h).
Proof.
  intros M Y; induction n as [|n IH]; intros a; simpl; [field; exact Y|rewrite IH; field; split; assumption].
Qed.

Fixpoint factorial (n : nat) : Z := match n with O => 1 | S k => (Z.of_nat (S k) * factorial k)%Z end.
Lemma factorial_fact n : IZR (factorial n) = INR (fact n).
Proof.
  induction n as [|n IH]; [reflexivity|].
  rewrite fact_simpl, mult_INR, <- IH; cbn [factorial]; rewrite mult_IZR, <- INR_IZR_INZ; reflexivity.
Qed.

Module Functions (I : IntervalOps).
Module Export E := Polynomials I.

Section Precision.
Variables prec rough : I.precision. (* of everything, and of remainders, where a few digits do *)

Lemma inside_div J K a b : inside J a -> inside K b -> inside (I.div prec J K) (a / b).
Proof.
  intros HJ HK; assert (H := I.div_correct prec _ _ _ _ HJ HK); unfold inside; cbn [Xbind2] in H; unfold Xdiv' in H.
  destruct (is_zero b); [apply everything|]; exact H.
Qed.

Lemma inside_join J K a b c : inside J a -> inside K b -> Rmin a b <= c <= Rmax a b -> inside (I.join J K) c.
Proof.
  intros HJ HK; assert (A : inside (I.join J K) a) by (apply I.join_correct; left; exact HJ).
  assert (B : inside (I.join J K) b) by (apply I.join_correct; right; exact HK).
  unfold Rmin, Rmax; destruct Rle_dec; intros H; [apply (inside_hull _ a b)|apply (inside_hull _ b a)]; assumption.
Qed.

Lemma sign_positive J y : I.sign_strict J = Xgt -> inside J y -> 0 < y.
Proof. intros S H; assert (C := I.sign_strict_correct J); rewrite S in C; apply (C _ H). Qed.
Lemma sign_negative J y : I.sign_strict J = Xlt -> inside J y -> y < 0.
Proof. intros S H; assert (C := I.sign_strict_correct J); rewrite S in C; apply (C _ H). Qed.

(* c0 + h (c1 + h (c2 + ...)) for an enclosed h. *)
Section Composition.
Variables d n : nat. (* variables; degree of polynomials and of expansions *)
Variables (fs : list I.type) (f1 : I.type). (* 1/k! for k <= n, and for k = n + 1 *)
Hypothesis inside_fs : Forall2 inside fs (map (fun k => / INR (fact k)) (seq 0 (S n))).
Hypothesis inside_f1 : inside f1 (/ INR (fact (S n))).

Fixpoint horner (cs : list I.type) (h : poly d) : poly d :=
  match cs with
  | nil => zero d
  | c :: nil => const d c
  | c :: cs => add prec (const d c) (mul prec n h (horner cs h))
  end.
Lemma encloses_horner (h : poly d) t y : normal t -> encloses h t y ->
  forall js cs, Forall2 inside js cs -> encloses (horner js h) t (series cs y).
Proof.
  intros N Hh; induction 1 as [|J c js cs HJ H IH]; [apply encloses_zero|].
  destruct H as [|J' c' js cs HJ' H].
  - simpl series; rewrite Rmult_0_r, Rplus_0_r; apply encloses_const, HJ.
  - apply encloses_add; [apply encloses_const, HJ|apply encloses_mul; assumption].
Qed.

Fixpoint lowest (d : nat) : poly d -> I.type :=
  match d with O => fun p => p | S d => fun ps => match ps with nil => I.zero | p :: _ => lowest d p end end.
Definition centre (p : poly d) : I.type := middle (lowest d p).
Definition around (p : poly d) : poly d := sub prec p (const d (centre p)).

Lemma encloses_around p t y : encloses p t y -> exists m h,
  y = m + h /\ inside (centre p) m /\ encloses (around p) t h.
Proof.
  intros H; destruct (inside_middle (lowest d p)) as [m Hm]; exists m, (y - m).
  split; [ring|split; [exact Hm|apply encloses_sub; [exact H|apply encloses_const, Hm]]].
Qed.

(* The coefficients of an expansion, given those of the derivatives. *)
Definition expand (D : nat -> I.type) (rest : I.type) : list I.type :=
  map (fun kf => I.mul prec (D (fst kf)) (snd kf)) (combine (seq 0 (S n)) fs) ++ [I.mul prec rest f1].
Lemma inside_expand D rest G m c : (forall k, inside (D k) (G k m)) -> inside rest (G (S n) c) ->
  Forall2 inside (expand D rest) (expansion G n m c).
Proof.
  intros HD HR; apply Forall2_app; [|constructor; [apply inside_mul; assumption|constructor]].
  clear inside_f1 HR; revert fs inside_fs; generalize (seq 0 (S n)).
  induction l as [|k l IH]; intros gs H; inversion H; subst; constructor; [apply inside_mul; auto|apply IH; assumption].
Qed.

(* exp(m + h) = exp(m) exp(h), the second factor expanded around 0. *)
Definition exponential (h : poly d) : poly d :=
  horner (fs ++ [I.mul prec (I.exp rough (I.join I.zero (range prec h))) f1]) h.
Lemma encloses_exponential h t y : normal t -> encloses h t y -> encloses (exponential h) t (exp y).
Proof.
  intros N H; destruct (taylor_lagrange (fun _ => exp) n 0 y) as [c [Hc E]].
  { intros _ x _; apply is_derive_exp. }
  rewrite Rplus_0_l in *; cbn beta in E; rewrite E; apply encloses_horner; [exact N|exact H|].
  apply Forall2_app; [|constructor; [|constructor]].
  - rewrite (map_ext _ (fun k => / INR (fact k))); [exact inside_fs|intros k; rewrite exp_0; unfold Rdiv; ring].
  - apply inside_mul; [|exact inside_f1].
    apply inside_exp, (inside_join _ _ 0 y); [apply inside_zero|apply (inside_range prec d h t); assumption|exact Hc].
Qed.

Definition poly_exp (p : poly d) : poly d := scale prec (I.exp prec (centre p)) (exponential (around p)).
Lemma encloses_exp p t y : normal t -> encloses p t y -> encloses (poly_exp p) t (exp y).
Proof.
  intros N H; destruct (encloses_around p t y H) as (m & h & -> & Hm & Hh); rewrite exp_plus.
  apply encloses_scale; [apply inside_exp, Hm|apply encloses_exponential; assumption].
Qed.

Fixpoint turns (k : nat) (s c : I.type) : I.type := match k with O => s | S k => turns k c (I.neg s) end.
Lemma inside_turns k : forall S C s c, inside S s -> inside C c -> inside (turns k S C) (turn k s c).
Proof. induction k as [|k IH]; intros S C s c HS HC; [exact HS|apply IH; [exact HC|apply inside_neg, HS]]. Qed.

Lemma encloses_turn (u v : R -> R) (U V : I.type) p t m h :
  (forall x, is_derive u x (v x)) -> (forall x, is_derive v x (- u x)) ->
  (forall x, -1 <= u x <= 1) -> (forall x, -1 <= v x <= 1) ->
  normal t -> encloses p t h -> inside U (u m) -> inside V (v m) ->
  encloses (horner (expand (fun k => turns k U V) (unit prec)) p) t (u (m + h)).
Proof.
  intros Hu Hv Bu Bv N H HU HV.
  destruct (taylor_lagrange (fun k x => turn k (u x) (v x)) n m h) as [c [Hc E]].
  { intros k x _; apply turn_derive; assumption. }
  cbn [turn] in E; rewrite E; apply encloses_horner; [exact N|exact H|].
  apply (inside_expand _ _ (fun k x => turn k (u x) (v x))).
  - intros k; apply inside_turns; assumption.
  - apply inside_unit, turn_bound; [apply Bu|apply Bv].
Qed.

Definition poly_sin (p : poly d) : poly d :=
  let m := centre p in horner (expand (fun k => turns k (I.sin prec m) (I.cos prec m)) (unit prec)) (around p).
Lemma encloses_sin p t y : normal t -> encloses p t y -> encloses (poly_sin p) t (sin y).
Proof.
  intros N H; destruct (encloses_around p t y H) as (m & h & -> & Hm & Hh).
  apply (encloses_turn sin cos); auto using is_derive_sin, SIN_bound, COS_bound, inside_sin, inside_cos.
  intros x; apply is_derive_cos.
Qed.

Definition poly_cos (p : poly d) : poly d :=
  let m := centre p in horner (expand (fun k => turns k (I.cos prec m) (I.neg (I.sin prec m))) (unit prec)) (around p).
Lemma encloses_cos p t y : normal t -> encloses p t y -> encloses (poly_cos p) t (cos y).
Proof.
  intros N H; destruct (encloses_around p t y H) as (m & h & -> & Hm & Hh).
  apply (encloses_turn cos (fun x => - sin x)); auto using COS_bound, inside_sin, inside_cos, inside_neg, is_derive_cos.
  - intros x; apply (is_derive_opp sin), is_derive_sin.
  - intros x; assert (B := SIN_bound x); lra.
Qed.

(* Whatever needs a sign that is not certain is undecided. *)
Definition certain (s : Xcomparison) (p q : I.type) : bool :=
  match s, I.sign_strict p, I.sign_strict q with Xgt, Xgt, Xgt => true | Xlt, Xlt, Xlt => true | _, _, _ => false end.
Lemma certain_sign s J K y m : certain s J K = true -> inside J y -> inside K m ->
  (s = Xgt /\ 0 < y /\ 0 < m) \/ (s = Xlt /\ y < 0 /\ m < 0).
Proof.
  unfold certain; destruct s; try discriminate; destruct (I.sign_strict J) eqn:HJ; try discriminate;
    destruct (I.sign_strict K) eqn:HK; try discriminate; intros _ Hy Hm; [right|left];
    eauto using sign_positive, sign_negative.
Qed.

Fixpoint geometrics (k : nat) (r a y : I.type) : list I.type :=
  match k with
  | O => [I.mul prec a y]
  | S k => I.mul prec a r :: geometrics k r (I.mul prec a (I.neg r)) y
  end.
Lemma inside_geometrics k : forall r a y R A Y, inside R r -> inside A a -> inside Y y ->
  Forall2 inside (geometrics k R A Y) (geometric k r a y).
Proof.
  induction k as [|k IH]; intros r a y R A Y HR HA HY; simpl; (constructor; [apply inside_mul; assumption|]).
  - constructor.
  - apply IH; [exact HR|apply inside_mul; [exact HA|apply inside_neg, HR]|exact HY].
Qed.

Definition poly_inv (p : poly d) : poly d :=
  let m := centre p in let J := range prec p in
  if orb (certain Xgt J m) (certain Xlt J m) then
    horner (geometrics (S n) (I.inv prec m) (I.fromZ prec 1) (I.inv prec J)) (around p)
  else const d I.nai.
Lemma encloses_inv p t y : normal t -> encloses p t y -> encloses (poly_inv p) t (/ y).
Proof.
  intros N H; unfold poly_inv; destruct (orb _ _) eqn:C; [|apply encloses_const, inside_nothing].
  assert (HJ := inside_range prec d p t y N H).
  destruct (encloses_around p t y H) as (m & h & -> & Hm & Hh).
  assert (Z : m <> 0 /\ m + h <> 0).
  { apply Bool.orb_prop in C; destruct C as [C|C]; apply (certain_sign _ _ _ _ _ C HJ) in Hm; lra. }
  replace (/ (m + h)) with (1 / (m + h)) by (field; tauto).
  rewrite <- (geometric_sum (S n)) by tauto.
  apply encloses_horner; [exact N|exact Hh|].
  apply inside_geometrics; [apply inside_inv, Hm|apply (inside_whole prec 1)|apply inside_inv, HJ].
Qed.

Fixpoint ln_derivatives (k : nat) (m : I.type) : I.type :=
  match k with
  | O => I.ln prec m
  | S k => I.div prec (I.fromZ prec ((-1) ^ Z.of_nat k * factorial k)) (power prec m (S k))
  end.
Lemma inside_ln_derivatives k J m : inside J m -> inside (ln_derivatives k J) (ln_derivative k m).
Proof.
  intros H; destruct k as [|k]; [apply inside_ln, H|].
  apply inside_div; [|apply inside_power, H].
  replace ((-1) ^ k * INR (fact k)) with (IZR ((-1) ^ Z.of_nat k * factorial k)); [apply inside_whole|].
  rewrite mult_IZR, factorial_fact, <- pow_IZR; reflexivity.
Qed.

Definition poly_ln (p : poly d) : poly d :=
  let m := centre p in let J := range prec p in
  if certain Xgt J m then
    horner (expand (fun k => ln_derivatives k m) (ln_derivatives (S n) (I.join m J))) (around p)
  else const d I.nai.
Lemma encloses_ln p t y : normal t -> encloses p t y -> encloses (poly_ln p) t (ln y).
Proof.
  intros N H; unfold poly_ln; destruct (certain _ _ _) eqn:C; [|apply encloses_const, inside_nothing].
  assert (HJ := inside_range prec d p t y N H).
  destruct (encloses_around p t y H) as (m & h & -> & Hm & Hh).
  assert (P : 0 < m /\ 0 < m + h) by (destruct (certain_sign _ _ _ _ _ C HJ Hm) as [|[]]; [tauto|discriminate]).
  destruct (taylor_lagrange ln_derivative n m h) as [c [Hc E]].
  { intros k x Hx; apply ln_derive; revert Hx; unfold Rmin; destruct Rle_dec; lra. }
  cbn [ln_derivative] in E; rewrite E; apply encloses_horner; [exact N|exact Hh|].
  apply inside_expand; [intros k; apply inside_ln_derivatives, Hm|].
  apply inside_ln_derivatives, (inside_join _ _ m (m + h)); assumption.
Qed.

(* sqrt(y) = exp(ln(y) / 2) where y is certainly positive. Coq's square root is total, 0 below 0, where a formula has no
   value: nothing is known of it unless its argument is certainly not negative. *)
Definition half : I.type := I.inv prec (I.fromZ prec 2).
Lemma inside_half : inside half (/ 2).
Proof. apply inside_inv, (inside_whole prec 2). Qed.

Definition poly_sqrt (p : poly d) : poly d :=
  let J := range prec p in
  match I.sign_strict J, I.sign_large J with
  | Xgt, _ => poly_exp (scale prec half (poly_ln p))
  | _, (Xgt | Xeq) => const d (I.sqrt prec J)
  | _, _ => const d I.nai
  end.
Lemma encloses_sqrt p t y : normal t -> encloses p t y -> encloses (poly_sqrt p) t (sqrt y).
Proof.
  intros N H; assert (HJ := inside_range prec d p t y N H); unfold poly_sqrt.
  destruct (I.sign_strict _) eqn:C; try (destruct (I.sign_large _); apply encloses_const;
    first [apply inside_sqrt, HJ|apply inside_nothing]).
  rewrite <- Rpower_sqrt by (eapply sign_positive; eassumption).
  apply encloses_exp; [exact N|apply encloses_scale; [apply inside_half|apply encloses_ln; assumption]].
Qed.

(* Kinks: relu(y) = y + relu(-y), and the last term is small where y is positive or nearly so. *)
Definition positive_part (J : I.type) : I.type := I.meet (I.upper_extent I.zero) (I.join I.zero J).
Lemma inside_positive_part J y : inside J y -> inside (positive_part J) (relu y).
Proof.
  intros H; apply I.meet_correct.
  - apply (I.upper_extent_correct _ _ 0); [apply inside_zero|apply Rmax_l].
  - apply (inside_join _ _ 0 y); [apply inside_zero|exact H|].
    unfold relu, Rmin, Rmax; destruct Rle_dec; lra.
Qed.

Definition poly_relu (p : poly d) : poly d :=
  let J := range prec p in
  match I.sign_strict (middle J) with
  | Xgt => add prec p (const d (positive_part (I.neg J)))
  | _ => const d (positive_part J)
  end.
Lemma encloses_relu p t y : normal t -> encloses p t y -> encloses (poly_relu p) t (relu y).
Proof.
  intros N H; assert (HJ := inside_range prec d p t y N H); unfold poly_relu.
  destruct (I.sign_strict _); try (apply encloses_const, inside_positive_part, HJ).
  replace (relu y) with (y + relu (- y)) by (unfold relu, Rmax; repeat destruct Rle_dec; lra).
  apply encloses_add; [exact H|apply encloses_const, inside_positive_part, inside_neg, HJ].
Qed.

Definition poly_abs (p : poly d) : poly d := sub prec (scale prec (I.fromZ prec 2) (poly_relu p)) p.
Lemma encloses_abs p t y : normal t -> encloses p t y -> encloses (poly_abs p) t (Rabs y).
Proof.
  intros N H; rewrite abs_by_relu; apply encloses_sub; [|exact H].
  apply encloses_scale; [apply (inside_whole prec 2)|apply encloses_relu; assumption].
Qed.

End Composition.
End Precision.
End Functions.
