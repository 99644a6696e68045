(* The verifier over plain integers (theory.md, section 8): floating-point numbers m 2^e with m and e in Z, so that
   whatever it accepts rests on the axioms of the real numbers alone. *)
From Coq Require Import Reals QArith Qreals.
From Interval Require Import Float.Specific_ops Float.Specific_stdz Interval.Float_full.
From Onelayer Require Import Vectors Stored Checker.

Module PlainFloat := SpecificFloat StdZRadix2.
Module PlainInterval := FloatIntervalFull PlainFloat.
Module Plain := Verifier PlainInterval.

(* "A computed true implies the bound": for every stored layer of lookup heads and ReLU units, every formula, every box,
   every way to cut it, every precision and degree. *)
Theorem verified prec rough order (L : stored) (i : nat) (f : formula) (eps : Q) (B : region) (p : plan) :
  Plain.verify prec rough order L i f eps B p = true ->
  forall x, in_region B x -> (Rabs (layer_of L x i - meaning f x) <= Q2R eps)%R.
Proof. apply Plain.verified. Qed.
