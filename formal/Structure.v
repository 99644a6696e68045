(* Structure (theory.md, section 5): additive groups, merged directions, and functions of functions. *)
From Coq Require Import Reals Lra Lia List.
From Coquelicot Require Import Coquelicot.
From Onelayer Require Import Softmax.
Import ListNotations.
Open Scope R_scope.

(* "f(x) = f(x_A, a_B) + f(a_A, x_B) - f(a)" where every mixed difference vanishes; "if the mixed differences are only
   bounded by delta, the same sum is off by at most delta". A and B are the types of the two groups of coordinates. *)
Theorem additive_pair {A B} (f : A -> B -> R) (a : A) (b : B) x y delta :
  Rabs (f x y - f x b - f a y + f a b) <= delta -> Rabs (f x b + f a y - f a b - f x y) <= delta.
Proof.
  intros H; replace (f x b + f a y - f a b - f x y) with (- (f x y - f x b - f a y + f a b)) by ring.
  rewrite Rabs_Ropp; exact H.
Qed.

(* "Splitting into g groups by at most (g - 1) delta." A point is the list of its groups; group i alone is the anchor
   with group i of x in place of its own. *)
Fixpoint one_at_a_time {G} (f : list G -> R) (x anchor : list G) : R :=
  match x, anchor with
  | u :: x', a :: anchor' => (f (u :: anchor') - f (a :: anchor')) + one_at_a_time (fun l => f (a :: l)) x' anchor'
  | _, _ => 0
  end.

Theorem additive_groups {G} (delta : R) : forall (x anchor : list G) (f : list G -> R), length x = length anchor ->
  x <> nil -> 0 <= delta ->
  (forall before u a rest rest', Rabs (f (before ++ u :: rest) - f (before ++ u :: rest')
                                       - f (before ++ a :: rest) + f (before ++ a :: rest')) <= delta) ->
  Rabs (f anchor + one_at_a_time f x anchor - f x) <= INR (length x - 1) * delta.
Proof.
  induction x as [|u x IH]; intros [|a anchor] f L Ne Hd H; simpl in L; try discriminate; [congruence|].
  cbn [one_at_a_time]; destruct x as [|u' x].
  - destruct anchor; [|discriminate]; simpl.
    replace (f [a] + (f [u] - f [a] + 0) - f [u]) with 0 by ring; rewrite Rabs_R0; lra.
  - assert (I : Rabs (f (a :: anchor) + one_at_a_time (fun l => f (a :: l)) (u' :: x) anchor - f (a :: u' :: x))
                <= INR (length (u' :: x) - 1) * delta).
    { apply (IH anchor (fun l => f (a :: l))); [lia|discriminate|exact Hd|].
      intros before v b rest rest'; apply (H (a :: before)). }
    assert (M := H nil u a (u' :: x) anchor); simpl app in M.
    set (S := one_at_a_time _ _ _) in *.
    replace (length (u :: u' :: x) - 1)%nat with (1 + (length (u' :: x) - 1))%nat by (simpl; lia).
    rewrite plus_INR; change (INR 1) with 1.
    replace (f (a :: anchor) + (f (u :: anchor) - f (a :: anchor) + S) - f (u :: u' :: x))
      with ((f (a :: anchor) + S - f (a :: u' :: x))
            + - (f (u :: u' :: x) - f (u :: anchor) - f (a :: u' :: x) + f (a :: anchor))) by ring.
    eapply Rle_trans; [apply Rabs_triang|rewrite Rabs_Ropp; lra].
Qed.

(* "If d_j f = c d_i f on a box, the derivative of f along e_j - c e_i is zero; the box is convex, so f is constant on
   the segments of that direction." Here f is a differentiable function of these two coordinates on a rectangle, with
   partial derivatives p and c p. *)
Theorem merged_directions (f p : R -> R -> R) c a b a' b' :
  (forall x y, a <= x <= b -> a' <= y <= b' -> differentiable_pt_lim f x y (p x y) (c * p x y)) ->
  forall x y t, a <= x <= b -> a' <= y <= b' -> a <= x - c * t <= b -> a' <= y + t <= b' ->
  f (x - c * t) (y + t) = f x y.
Proof.
  intros H x y t Hx Hy Hx' Hy'.
  set (g := fun s => f (x - c * (s * t)) (y + s * t)).
  assert (R : forall s, 0 <= s <= 1 -> a <= x - c * (s * t) <= b /\ a' <= y + s * t <= b').
  { intros s Hs; split.
    - replace (x - c * (s * t)) with ((1 - s) * x + s * (x - c * t)) by ring; nra.
    - replace (y + s * t) with ((1 - s) * y + s * (y + t)) by ring; nra. }
  assert (D : forall s, 0 <= s <= 1 -> is_derive g s 0).
  { intros s Hs; destruct (R s Hs) as [R1 R2]; apply is_derive_Reals.
    set (q := p (x - c * (s * t)) (y + s * t)).
    replace 0 with (q * (- (c * t)) + c * q * t) by ring.
    apply (derivable_pt_lim_comp_2d f (fun s => x - c * (s * t)) (fun s => y + s * t)); [apply H; assumption| |];
      apply is_derive_Reals; auto_derive; trivial; ring. }
  destruct (MVT_gen g 0 1 (fun _ => 0)) as [s [_ E]].
  - intros s Hs; rewrite Rmin_left, Rmax_right in Hs by lra; apply D; lra.
  - intros s Hs; rewrite Rmin_left, Rmax_right in Hs by lra.
    apply continuity_pt_filterlim, (ex_derive_continuous g s); exists 0; apply D; lra.
  - unfold g in E; rewrite !Rmult_0_l, !Rmult_1_l, Rmult_0_r, Rminus_0_r, Rplus_0_r in E; lra.
Qed.

(* "If |u'_k - u_k| <= delta_k and u_k ranges over J_k, then |T - f| <= sum_k (sup over J_k + [-delta_k, delta_k] of
   |g'_k - g_k| + Lip(g_k) delta_k)": heads give u', the network gives g'. *)
Theorem composition_bound {A} (ks : list A) (g g' : A -> R -> R) (u u' lo hi delta e L : A -> R) :
  (forall k, In k ks -> lo k <= u k <= hi k) ->
  (forall k, In k ks -> Rabs (u' k - u k) <= delta k) ->
  (forall k t, In k ks -> lo k - delta k <= t <= hi k + delta k -> Rabs (g' k t - g k t) <= e k) ->
  (forall k s t, In k ks -> lo k - delta k <= s <= hi k + delta k -> lo k - delta k <= t <= hi k + delta k ->
    Rabs (g k s - g k t) <= L k * Rabs (s - t)) ->
  (forall k, In k ks -> 0 <= L k) ->
  Rabs (lsum (fun k => g' k (u' k)) ks - lsum (fun k => g k (u k)) ks) <= lsum (fun k => e k + L k * delta k) ks.
Proof.
  intros Hu Hd He HL HL0.
  replace (lsum (fun k => g' k (u' k)) ks - lsum (fun k => g k (u k)) ks)
    with (lsum (fun k => g' k (u' k) + -1 * g k (u k)) ks) by (rewrite lsum_plus, lsum_scal; ring).
  eapply Rle_trans; [apply lsum_abs|]; apply lsum_le; intros k Hk.
  specialize (Hu k Hk); specialize (Hd k Hk); specialize (HL0 k Hk).
  assert (N : lo k - delta k <= u' k <= hi k + delta k /\ lo k - delta k <= u k <= hi k + delta k).
  { revert Hd; unfold Rabs; destruct Rcase_abs; lra. }
  destruct N as [N1 N2]; assert (B1 := He k (u' k) Hk N1); assert (B2 := HL k (u' k) (u k) Hk N1 N2).
  replace (g' k (u' k) + -1 * g k (u k)) with ((g' k (u' k) - g k (u' k)) + (g k (u' k) - g k (u k))) by ring.
  eapply Rle_trans; [apply Rabs_triang|].
  assert (L k * Rabs (u' k - u k) <= L k * delta k) by (apply Rmult_le_compat_l; assumption); lra.
Qed.
