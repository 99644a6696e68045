(* A verifier for lookup layers that Coq itself runs (theory.md, section 8): it computes a boolean from stored numbers, a
   formula and a box, and "true" implies the bound for every point of the box. *)
From Coq Require Import Reals Lra Lia List ZArith QArith Qreals.
From Interval Require Import Real.Xreal Interval.Interval.
From Onelayer Require Import Softmax Vectors Lookup Kinks Certificate Stored Enclosure Expansion.
Import ListNotations.
Open Scope R_scope.

Module Verifier (I : IntervalOps).
Module Export X := Functions I.

Section Precision.
Variables prec rough : I.precision. (* of everything, and of remainders *)
Variable order : nat. (* degree of polynomials and of expansions *)
Variables (fs : list I.type) (f1 : I.type). (* 1/k! for k <= order, and for the next *)
Hypothesis inside_fs : Forall2 inside fs (map (fun k => / INR (fact k)) (seq 0 (S order))).
Hypothesis inside_f1 : inside f1 (/ INR (fact (S order))).

Definition number (q : Q) : I.type := I.div prec (I.fromZ prec (Qnum q)) (I.fromZ prec (Zpos (Qden q))).
Lemma inside_number q : inside (number q) (Q2R q).
Proof. apply inside_div; apply inside_whole. Qed.
Definition slope (q : Q) : option I.type := if Z.eqb (Qnum q) 0 then None else Some (number q).
Lemma inside_slope q : inside_some (slope q) (Q2R q).
Proof.
  unfold slope; destruct (Z.eqb_spec (Qnum q) 0) as [E|E]; [|apply inside_number].
  unfold Q2R; simpl; rewrite E; ring.
Qed.
Lemma inside_slopes qs : Forall2 inside_some (map slope qs) (reals qs).
Proof. induction qs; constructor; [apply inside_slope|assumption]. Qed.

Definition share_interval (r : positive) : I.type := I.inv prec (I.sqrt prec (I.fromZ prec (Zpos r))).
Lemma inside_share r : inside (share_interval r) (share r).
Proof. apply inside_inv, inside_sqrt, inside_whole. Qed.

(* A box as centres and radii: x = c + r t with t in [-1, 1]^d. *)
Definition frame := list (I.type * I.type).
Definition frame_of (B : region) : frame :=
  map (fun ab => let a := number (fst ab) in let b := number (snd ab) in
    (I.mul prec (half prec) (I.add prec a b), I.mul prec (half prec) (I.sub prec b a))) B.

Inductive framed : frame -> vec -> vec -> Prop :=
| framed_nil : framed nil nil nil
| framed_cons C R F c r v x t : inside C c -> inside R r -> framed F x t -> framed ((C, R) :: F) (c + r * v :: x) (v :: t).

Lemma frame_box B x : in_region B x -> exists t, normal t /\ length t = length B /\ framed (frame_of B) x t.
Proof.
  induction 1 as [|[a b] v B x Hv H (t & N & L & IH)]; [exists nil; repeat constructor|]; simpl in Hv.
  set (p := Q2R a) in *; set (q := Q2R b) in *.
  exists ((if Req_EM_T p q then 0 else (v - / 2 * (p + q)) / (/ 2 * (q - p))) :: t).
  split; [|split; [simpl; rewrite L; reflexivity|]].
  - constructor; [|exact N]; destruct (Req_EM_T p q); [lra|]; assert (0 < q - p) by lra.
    split; apply (Rmult_le_reg_r (/ 2 * (q - p))); try lra; unfold Rdiv; rewrite Rmult_assoc, Rinv_l; lra.
  - replace v with (/ 2 * (p + q) + / 2 * (q - p) * (if Req_EM_T p q then 0 else (v - / 2 * (p + q)) / (/ 2 * (q - p)))) at 1.
    + constructor; [| |exact IH]; apply inside_mul; try apply inside_half; [apply inside_add|apply inside_sub];
        apply inside_number.
    + destruct (Req_EM_T p q); [lra|field; lra].
Qed.

(* slopes . x as a number at the centre and slopes along t. *)
Fixpoint central (ss : list (option I.type)) (F : frame) : I.type :=
  match ss, F with
  | None :: ss, _ :: F => central ss F
  | Some s :: ss, (C, _) :: F => I.add prec (I.mul prec s C) (central ss F)
  | _, _ => I.zero
  end.
Fixpoint along_t (ss : list (option I.type)) (F : frame) : list (option I.type) :=
  match ss, F with
  | None :: ss, _ :: F => None :: along_t ss F
  | Some s :: ss, (_, R) :: F => Some (I.mul prec s R) :: along_t ss F
  | _, _ => nil
  end.
Lemma framed_form F x t : framed F x t -> forall S s, Forall2 inside_some S s ->
  exists c w, inside (central S F) c /\ Forall2 inside_some (along_t S F) w /\ dot s x = c + dot w t.
Proof.
  induction 1 as [|C R F c r v x t HC HR H IH]; intros S s HS.
  { exists 0, nil; destruct HS as [|[]]; simpl; repeat split; try apply inside_zero; try constructor; ring. }
  destruct HS as [|J b S s HJ HS].
  { exists 0, nil; simpl; repeat split; try apply inside_zero; try constructor; ring. }
  destruct (IH S s HS) as (e & w & He & Hw & E); destruct J as [J|]; simpl in HJ.
  - exists (b * c + e), (b * r :: w); simpl; rewrite E; split; [|split; [|ring]].
    + apply inside_add; [apply inside_mul|]; assumption.
    + constructor; [apply inside_mul; assumption|exact Hw].
  - subst b; exists e, (0 :: w); simpl; rewrite E; split; [exact He|split; [|ring]].
    constructor; [reflexivity|exact Hw].
Qed.

Section Box.
Variable d : nat.
Variable F : frame.
Variables (x t : vec).
Hypothesis N : normal t.
Hypothesis L : length t = d.
Hypothesis placed : framed F x t.

Definition form (ss : list (option I.type)) (b : I.type) : poly d :=
  affine d (I.add prec b (central ss F)) (along_t ss F).
Lemma encloses_form ss b s c : Forall2 inside_some ss s -> inside b c -> encloses (form ss b) t (dot s x + c).
Proof.
  intros Hs Hb; destruct (framed_form F x t placed ss s Hs) as (e & w & He & Hw & ->).
  replace (e + dot w t + c) with (c + e + dot w t) by ring.
  apply encloses_affine; [exact L|apply inside_add; assumption|exact Hw].
Qed.

(* f. *)
Fixpoint variable (k : nat) : list (option I.type) :=
  match k with O => [Some (I.fromZ prec 1)] | S k => None :: variable k end.
Lemma inside_variable k : exists s, Forall2 inside_some (variable k) s /\ forall y, dot s y = nth k y 0.
Proof.
  induction k as [|k (s & H & E)].
  - exists [1]; split; [constructor; [apply (inside_whole prec 1)|constructor]|intros [|]; simpl; ring].
  - exists (0 :: s); split; [constructor; [reflexivity|exact H]|intros [|v y]; simpl; [reflexivity|rewrite E; ring]].
Qed.

Fixpoint raised (p : poly d) (n : nat) : poly d :=
  match n with O => const d (I.fromZ prec 1) | S O => p | S n => mul prec order p (raised p n) end.
Lemma encloses_raised p y n : encloses p t y -> encloses (raised p n) t (y ^ n).
Proof.
  intros H; induction n as [|[|n] IH]; [apply encloses_const, (inside_whole prec 1)|simpl; rewrite Rmult_1_r; exact H|].
  change (y ^ S (S n)) with (y * y ^ S n); apply encloses_mul; assumption.
Qed.

Fixpoint model (f : formula) : poly d :=
  match f with
  | Var k => form (variable k) I.zero
  | Int z => const d (I.fromZ prec z)
  | Num q => const d (number q)
  | Pi => const d (I.pi prec)
  | Plus a b => add prec (model a) (model b)
  | Minus a b => sub prec (model a) (model b)
  | Times a b => mul prec order (model a) (model b)
  | Over a b => mul prec order (model a) (poly_inv prec d order (model b))
  | Power a n => raised (model a) n
  | Negative a => opposite (model a)
  | Inverse a => poly_inv prec d order (model a)
  | Exp a => poly_exp prec rough d order fs f1 (model a)
  | Sin a => poly_sin prec d order fs f1 (model a)
  | Cos a => poly_cos prec d order fs f1 (model a)
  | Ln a => poly_ln prec d order fs f1 (model a)
  | Sqrt a => poly_sqrt prec rough d order fs f1 (model a)
  | Abs a => poly_abs prec d (model a)
  | Relu a => poly_relu prec d (model a)
  | Max a b => let p := model a in let q := model b in
      scale prec (half prec) (add prec (add prec p q) (poly_abs prec d (sub prec p q)))
  | Min a b => let p := model a in let q := model b in
      scale prec (half prec) (sub prec (add prec p q) (poly_abs prec d (sub prec p q)))
  end.
Lemma encloses_model f : encloses (model f) t (meaning f x).
Proof.
  induction f; cbn [model meaning];
    auto using encloses_add, encloses_sub, encloses_mul, encloses_opposite, encloses_inv, encloses_exp, encloses_sin,
      encloses_cos, encloses_ln, encloses_sqrt, encloses_abs, encloses_relu, encloses_raised, encloses_const, inside_number, inside_whole.
  - destruct (inside_variable k) as (s & H & E); rewrite <- E, <- (Rplus_0_r (dot s x)).
    apply encloses_form; [exact H|apply inside_zero].
  - apply encloses_const, (I.pi_correct prec).
  - apply encloses_mul; auto using encloses_inv.
  - rewrite max_by_abs; unfold Rdiv; rewrite Rmult_comm; apply encloses_scale; [apply inside_half|].
    auto using encloses_add, encloses_sub, encloses_abs.
  - rewrite min_by_abs; unfold Rdiv; rewrite Rmult_comm; apply encloses_scale; [apply inside_half|].
    auto using encloses_add, encloses_sub, encloses_abs.
Qed.

(* The weights of one axis: logits are reduced by a common affine function of t, near their average, which cancels. *)
Definition ready := (list (option I.type) * I.type)%type.
Definition ready_entry (root : I.type) (e : entry) : ready :=
  (map (fun q => option_map (I.mul prec root) (slope q)) (fst e), I.mul prec root (number (snd e))).
Lemma inside_scaled root r e : inside root (share r) -> Forall2 inside_some (fst (ready_entry root e)) (scaled r e).
Proof.
  intros H; destruct e as [qs b]; unfold scaled; cbn [fst ready_entry]; induction qs as [|q qs IH]; constructor; [|exact IH].
  assert (S := inside_slope q); destruct (slope q); simpl in *; [apply inside_mul; assumption|rewrite S; ring].
Qed.
Definition minus_some (a b : option I.type) : option I.type :=
  match a, b with
  | None, None => None | Some a, None => Some a | None, Some b => Some (I.neg b)
  | Some a, Some b => Some (I.sub prec a b)
  end.
Fixpoint minus (u v : list (option I.type)) : list (option I.type) :=
  match u, v with
  | nil, _ => map (minus_some None) v
  | _, nil => u
  | a :: u', b :: v' => minus_some a b :: minus u' v'
  end.
Lemma inside_minus_some a b p q : inside_some a p -> inside_some b q -> inside_some (minus_some a b) (p - q).
Proof.
  destruct a as [a|], b as [b|]; simpl; intros Ha Hb; subst.
  - apply inside_sub; assumption.
  - rewrite Rminus_0_r; exact Ha.
  - rewrite Rminus_0_l; apply inside_neg, Hb.
  - ring.
Qed.
Lemma inside_minus u : forall v p q, Forall2 inside_some u p -> Forall2 inside_some v q ->
  exists w, Forall2 inside_some (minus u v) w /\ forall y, dot w y = dot p y - dot q y.
Proof.
  induction u as [|a u IH]; intros v p q Hu Hv.
  - inversion Hu; subst; exists (map (fun b => 0 - b) q); split.
    + simpl; clear Hu; induction Hv; constructor; [apply inside_minus_some; [reflexivity|assumption]|assumption].
    + clear; induction q as [|b q IH]; intros [|c y]; simpl; try ring; rewrite IH; simpl; ring.
  - destruct Hv as [|b c v q Hb Hv]; [exists p; split; [exact Hu|intros [|]; simpl; ring]|].
    inversion Hu as [|a' e u' p' Ha Hu']; subst; destruct (IH v p' q Hu' Hv) as (w & Hw & E).
    exists (e - c :: w); split; [constructor; [apply inside_minus_some; assumption|exact Hw]|].
    intros [|z y]; simpl; [ring|rewrite E; ring].
Qed.

(* Some affine function: which one decides how tight the bound is, not whether it is right. *)
Definition highest (logits : list I.type) : I.type :=
  fold_right (fun a b => match I.sign_strict (I.sub prec a b) with Xgt => a | _ => b end) (hd I.zero logits) logits.
Definition plus_some (a b : option I.type) : option I.type :=
  match a, b with None, b => b | a, None => a | Some a, Some b => Some (I.add prec a b) end.
Fixpoint plus (u v : list (option I.type)) : list (option I.type) :=
  match u, v with nil, _ => v | _, nil => u | a :: u', b :: v' => plus_some a b :: plus u' v' end.
Definition average (ws : list I.type) (rates : list (list (option I.type))) : list (option I.type) :=
  let total := fold_right (I.add prec) I.zero ws in
  let scaled := map (fun wr => map (option_map (I.mul prec (fst wr))) (snd wr)) (combine ws rates) in
  map (option_map (fun J => middle (I.div prec J total))) (fold_right plus nil scaled).
Lemma inside_average ws rates : exists p, Forall2 inside_some (average ws rates) p.
Proof.
  unfold average; generalize (fold_right plus nil); intros g; set (l := g _); clearbody l; clear g.
  induction l as [|[J|] l (p & IH)]; [exists nil; constructor| |exists (0 :: p); constructor; [reflexivity|exact IH]].
  destruct (inside_middle (I.div prec J (fold_right (I.add prec) I.zero ws))) as [m Hm].
  exists (m :: p); constructor; assumption.
Qed.

Section Axes.
Variables (r : positive) (root : I.type).
Hypothesis inside_root : inside root (share r).

Definition logit_at (e : ready) : I.type := I.add prec (snd e) (central (fst e) F).
Definition peaks (top : I.type) (A : list ready) : list I.type :=
  map (fun e => I.exp prec (I.sub prec (logit_at e) top)) A.
Definition reduced (mean : list (option I.type)) (ps : list I.type) (A : list ready) : list (poly d) :=
  map (fun pe => scale prec (fst pe)
    (exponential prec rough d order fs f1 (affine d I.zero (minus (along_t (fst (snd pe)) F) mean)))) (combine ps A).

Definition encloses_all (ps : list (poly d)) (ys : list R) : Prop := Forall2 (fun p y => encloses p t y) ps ys.

Lemma encloses_reduced mean top p m A : Forall2 inside_some mean p -> inside top m ->
  encloses_all (reduced mean (peaks top (map (ready_entry root) A)) (map (ready_entry root) A))
    (map (fun e => exp (axis_logit r x e - (m + dot p t))) A).
Proof.
  intros Hp Htop; induction A as [|e A IH]; [constructor|]; constructor; [|exact IH].
  destruct (framed_form F x t placed _ _ (inside_scaled root r e inside_root)) as (c & w & Hc & Hw & E).
  destruct (inside_minus _ _ _ _ Hw Hp) as (u & Hu & Eu); unfold axis_logit; rewrite E.
  replace (c + dot w t + share r * Q2R (snd e) - (m + dot p t)) with ((share r * Q2R (snd e) + c - m) + (0 + dot u t))
    by (rewrite Eu; ring).
  rewrite exp_plus; apply encloses_scale.
  - apply inside_exp, inside_sub; [|exact Htop].
    apply inside_add; [apply inside_mul; [exact inside_root|apply inside_number]|exact Hc].
  - apply encloses_exponential; [exact inside_fs|exact inside_f1|exact N|apply encloses_affine; [exact L|apply inside_zero|exact Hu]].
Qed.

Definition axis_models (A : list ready) : list (poly d) :=
  let top := middle (highest (map logit_at A)) in
  let ps := peaks top A in
  let mean := average ps (map (fun e => along_t (fst e) F) A) in
  let exps := reduced mean ps A in
  let inverse := poly_inv prec d order (fold_right (add prec) (zero d) exps) in
  map (fun e => mul prec order e inverse) exps.

Lemma encloses_axis A : A <> nil -> encloses_all (axis_models (map (ready_entry root) A)) (map (axis_weight r x A) A).
Proof.
  intros NE; unfold axis_models.
  destruct (inside_middle (highest (map logit_at (map (ready_entry root) A)))) as [m Hm]; set (top := middle _) in *.
  destruct (inside_average (peaks top (map (ready_entry root) A)) (map (fun e => along_t (fst e) F) (map (ready_entry root) A))) as [p Hp].
  set (mean := average _ _) in *.
  assert (H := encloses_reduced mean top p m A Hp Hm); set (shift := m + dot p t) in *.
  set (exps := reduced mean _ _) in *; clearbody shift.
  clearbody exps; clear -H N NE.
  assert (S : encloses (fold_right (add prec) (zero d) exps) t (lsum (fun e => exp (axis_logit r x e - shift)) A)).
  { clear NE; revert exps H; induction A as [|e A IH]; intros [|P ps] H; inversion H; subst; simpl;
      [apply encloses_zero|apply encloses_add; auto]. }
  assert (I := encloses_inv prec d order _ t _ N S); set (inverse := poly_inv _ _ _ _) in *; clearbody inverse.
  assert (W : map (axis_weight r x A) A =
    map (fun y => y * / lsum (fun e => exp (axis_logit r x e - shift)) A) (map (fun e => exp (axis_logit r x e - shift)) A)).
  { rewrite map_map; apply map_ext; intros e; unfold axis_weight.
    rewrite (lsum_ext (fun e => exp (axis_logit r x e - shift)) (fun e => exp (- shift) * exp (axis_logit r x e)))
      by (intros; rewrite <- exp_plus; f_equal; ring).
    rewrite lsum_scal; replace (axis_logit r x e - shift) with (- shift + axis_logit r x e) by ring; rewrite exp_plus.
    assert (0 < lsum (fun e => exp (axis_logit r x e)) A) by (apply lsum_pos; [exact NE|intros; apply exp_pos]).
    assert (0 < exp (- shift)) by apply exp_pos; field; lra. }
  rewrite W; clear -H I N; induction H; constructor; [apply encloses_mul; assumption|assumption].
Qed.

(* One axis after the other. *)
Fixpoint ready_table (i r : nat) : table (list Q) r -> table I.type r :=
  match r with O => fun vs => number (nth i vs 0%Q) | S r => map (ready_table i r) end.
Fixpoint contract (ws : list (list (poly d))) (r : nat) : table I.type r -> poly d :=
  match r with
  | O => fun v => const d v
  | S r => fun ts =>
      match ws with
      | nil => const d I.nai
      | w :: ws => fold_right (fun wt p => add prec (mul prec order (fst wt) (contract ws r (snd wt))) p) (zero d)
          (combine w ts)
      end
  end.
Lemma inside_row i qs : inside (number (nth i qs 0%Q)) (row (reals qs) i).
Proof.
  replace (row (reals qs) i) with (Q2R (nth i qs 0%Q)); [apply inside_number|].
  unfold row, reals; replace 0 with (Q2R 0) by (unfold Q2R; simpl; ring); rewrite map_nth; reflexivity.
Qed.
Lemma encloses_contract i axes : forall ts, shaped axes ts = true ->
  encloses (contract (map (fun A => axis_models (map (ready_entry root) A)) axes) _ (ready_table i _ ts)) t
    (contracted r x i axes ts).
Proof.
  induction axes as [|A rest IH]; intros ts S; [apply encloses_const, inside_row|].
  apply shaped_cons in S; destruct S as (NE & _ & S).
  assert (W := encloses_axis A NE).
  cbn [map length ready_table contract contracted].
  revert W S; generalize (axis_models (map (ready_entry root) A)); generalize (axis_weight r x A); intros g ps W S.
  revert ps ts W S; induction A as [|e A IHA]; intros ps ts W S; inversion W; subst; [apply encloses_zero|].
  destruct ts as [|u ts]; [apply encloses_zero|]; cbn [map combine fold_right lsum fst snd].
  apply encloses_add; [apply encloses_mul; [exact N|assumption|apply IH, (S e); left; reflexivity]|].
  destruct A as [|e' A]; [destruct l; [apply encloses_zero|inversion H3]|].
  apply IHA; [discriminate|assumption|intros e0 u0 H0; apply (S e0); right; exact H0].
Qed.

End Axes.

Definition ready_grid := (list (list ready) * {r : nat & table I.type r})%type.
Definition prepare (i : nat) (g : grid) : ready_grid :=
  let root := share_interval (d_k g) in
  (map (map (ready_entry root)) (axes g), existT _ (length (axes g)) (ready_table i (length (axes g)) (cells g))).
Definition grid_model (g : ready_grid) : poly d :=
  contract (map axis_models (fst g)) (projT1 (snd g)) (projT2 (snd g)).
Lemma encloses_grid i g : shaped (axes g) (cells g) = true ->
  encloses (grid_model (prepare i g)) t (head (tokens (d_k g) (axes g) (cells g)) x i).
Proof.
  intros S; rewrite grid_contracts by exact S; unfold grid_model; cbn [fst snd prepare projT1 projT2]; rewrite map_map.
  apply encloses_contract; [apply inside_share|exact S].
Qed.


Definition ready_unit := (ready * I.type)%type.
Definition prepare_unit (i : nat) (u : list Q * Q * list Q) : ready_unit :=
  let '(w, b, g) := u in ((map slope w, number b), number (nth i g 0%Q)).
Definition unit_model (u : ready_unit) : poly d := scale prec (snd u) (poly_relu prec d (form (fst (fst u)) (snd (fst u)))).
Lemma encloses_unit i u : encloses (unit_model (prepare_unit i u)) t (rectify (unit_of u) x i).
Proof.
  destruct u as [[w b] g]; unfold rectify; cbn [unit_of direction offset gain]; rewrite Rmult_comm.
  apply encloses_scale; [apply inside_row|apply encloses_relu; [exact N|]].
  apply encloses_form; [apply inside_slopes|apply inside_number].
Qed.

Definition total {A} (model : A -> poly d) (l : list A) : poly d :=
  fold_right (fun a p => add prec (model a) p) (zero d) l.
Lemma encloses_total {A B} (prepared : A -> B) (model : B -> poly d) (g : A -> R) l :
  (forall a, In a l -> encloses (model (prepared a)) t (g a)) -> encloses (total model (map prepared l)) t (lsum g l).
Proof.
  induction l as [|a l IH]; intros H; [apply encloses_zero|].
  apply encloses_add; [apply H; left; reflexivity|apply IH; intros b Hb; apply H; right; exact Hb].
Qed.
End Box.

(* The stored layer for one output, every number converted once. *)
Definition ready_layer := (list ready_grid * list ready_unit * ready)%type.
Definition prepare_layer (L : stored) (i : nat) : ready_layer :=
  (map (prepare i) (grids L), map (prepare_unit i) (units L),
   (map slope (nth i (slopes L) nil), number (nth i (consts L) 0%Q))).
Definition layer_model (d : nat) (F : frame) (R : ready_layer) : poly d :=
  let '(gs, us, (ss, c)) := R in
  add prec (form d F ss c) (add prec (total d (unit_model d F) us) (total d (grid_model d F) gs)).
Definition all_shaped (L : stored) : bool := forallb (fun g => shaped (axes g) (cells g)) (grids L).
Lemma encloses_layer d F x t L i : normal t -> length t = d -> framed F x t -> all_shaped L = true ->
  encloses (layer_model d F (prepare_layer L i)) t (layer_of L x i).
Proof.
  intros N Ld P S; unfold all_shaped in S; rewrite forallb_forall in S.
  unfold layer_of, layer, layer_model, prepare_layer; rewrite !lsum_map, !Rplus_assoc.
  rewrite <- (Rplus_assoc (row _ _)), (Rplus_comm (row _ _)); apply encloses_add; [|apply encloses_add].
  - rewrite (map_nth reals (slopes L) nil i : nth i (map reals (slopes L)) nil = reals (nth i (slopes L) nil)).
    apply (encloses_form d F x t Ld P); [apply inside_slopes|apply inside_row].
  - apply encloses_total; intros u _; apply (encloses_unit d F x t N Ld P).
  - apply encloses_total; intros g Hg; apply (encloses_grid d F x t N Ld P), S, Hg.
Qed.

(* One box. *)
Definition box_test (R : ready_layer) (f : formula) (eps : I.type) (B : region) : bool :=
  let F := frame_of B in let d := length B in
  let J := range prec (sub prec (layer_model d F R) (model d F f)) in
  match I.sign_large (I.sub prec eps (I.abs J)) with Xgt => true | _ => false end.
Lemma box_test_correct L i f eps B : all_shaped L = true ->
  box_test (prepare_layer L i) f (number eps) B = true ->
  forall x, in_region B x -> Rabs (layer_of L x i - meaning f x) <= Q2R eps.
Proof.
  unfold box_test; intros S C x H; destruct (frame_box B x H) as (t & N & Ld & P).
  set (J := range prec _) in C.
  assert (HJ : inside J (layer_of L x i - meaning f x)).
  { apply (inside_range prec _ _ t); [exact N|].
    apply encloses_sub; [apply (encloses_layer _ _ x); assumption|apply (encloses_model _ _ x); assumption]. }
  assert (D := I.sign_large_correct (I.sub prec (number eps) (I.abs J))).
  destruct (I.sign_large _); try discriminate.
  destruct (D (Xreal (Q2R eps - Rabs (layer_of L x i - meaning f x)))) as [_ E]; [|simpl in E; lra].
  apply inside_sub; [apply inside_number|apply inside_abs, HJ].
Qed.

End Precision.

Definition inverse_factorial (prec : I.precision) (k : nat) : I.type :=
  I.inv prec (I.fromZ prec (factorial k)).
Lemma inside_inverse_factorial prec k : inside (inverse_factorial prec k) (/ INR (fact k)).
Proof. rewrite <- factorial_fact; apply inside_inv, inside_whole. Qed.

Definition verify (prec rough : I.precision) (order : nat) (L : stored) (i : nat) (f : formula) (eps : Q) (B : region)
    (p : plan) : bool :=
  if all_shaped L then
    let fs := map (inverse_factorial prec) (seq 0 (S order)) in
    let f1 := inverse_factorial prec (S order) in
    follow (box_test prec rough order fs f1 (prepare_layer prec L i) f (number prec eps)) p B
  else false.

(* "true" implies the bound. *)
Lemma verified prec rough order L i f eps B p : verify prec rough order L i f eps B p = true ->
  forall x, in_region B x -> Rabs (layer_of L x i - meaning f x) <= Q2R eps.
Proof.
  unfold verify; destruct (all_shaped L) eqn:S; [|discriminate].
  apply follow_correct; intros B' C; eapply box_test_correct; [| |exact S|exact C].
  - generalize (seq 0 (Datatypes.S order)); induction l; constructor; [apply inside_inverse_factorial|assumption].
  - apply inside_inverse_factorial.
Qed.
End Verifier.
