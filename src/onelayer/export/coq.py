"""A certificate as a Coq theorem: |T - f| <= eps for the exact stored weights over the exact box, in real arithmetic.

The file defines T and f and proves the bound in one of two ways: by one computation of the verifier in
formal/Checker.v, or, where T and f have kinks, piece by piece with the tactic interval, which cancels them exactly.
Coq alone judges it: what is measured here only chooses how the proof is cut.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import torch

from onelayer.disk import as_path, replace_file
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.export.coq_formula import Expression, formula_text, number
from onelayer.export.coq_plan import DirectionGroup, Problem, average_logit, cuts, plan
from onelayer.export.coq_verifier import bent, understands, verified_text
from onelayer.export.exact import exact_layer
from onelayer.ground import pinned
from onelayer.language.formula import Formula
from onelayer.language.operations import operation
from onelayer.language.tree import LEAVES
from onelayer.result import Approximation
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.hull import hulled_outputs

INTEGERS = {
    "plain": "From Interval Require Import Float.Specific_ops Float.Specific_stdz.\nFrom Interval Require Tactic.\n"
    "Module PlainFloat := SpecificFloat StdZRadix2.\nModule PlainTactic := Tactic.IntervalTactic PlainFloat.\n"
    "Import Interval.Tactic PlainTactic.\n",
    "machine": "From Interval Require Import Tactic.\n",
}
# On which f is enclosed in one call.
BOXES_AT_ONCE = 2048
MOST_TOKENS = 256  # beyond, Coq needs more than an hour
KINKS = "rewrite ?max_by_abs, ?min_by_abs, ?relu_by_abs"


@door
@pinned()
def to_coq(
    a: Approximation, path: str | os.PathLike[str], *, eps: Fraction | float | None = None, integers: str = "plain"
) -> Path:
    """Write the certificate of ``a`` as a Coq file; returns its path.

    ``eps`` is another bound to claim. The arithmetic of the tactic is over "plain" integers, which rests on the axioms
    of Coq's real numbers alone, or over "machine" integers, about ten times faster, which Coq takes on trust as well.
    """
    if integers not in INTEGERS:
        raise OnelayerError(f"integers must be one of {', '.join(INTEGERS)}, got {integers!r}")
    path = as_path(path)
    text = certificate_text(a, eps, integers)
    replace_file(path, text.encode("ascii"))
    return path


def certificate_text(
    a: Approximation, eps: Fraction | float | None = None, integers: str = "plain", method: str | None = None
) -> str:
    """The text of the file, by the "verifier" or the "tactic"; without a method, by the one that suits T and f."""
    a.need_certified()
    formula = _formula(a)
    bound = _claim(a) if eps is None else Fraction(eps)
    # Intervals of T - f have a width: no precision shows that it is nothing.
    if bound <= 0:
        raise OnelayerError(f"a Coq certificate needs a bound above zero, this one is {bound}; claim a larger eps")
    problem = _problem(a, formula, bound)
    digest = a.certificate.weights_sha256
    known = understands(formula)
    if method == "verifier" or (method is None and known and not bent(problem, formula)):
        return verified_text(problem, formula, digest, integers)
    try:
        _need_values(a, formula)
        return Writer(problem, formula, digest, integers).text()
    # Interacting variables, a sqrt(d_k) that is not rational, or too many tokens.
    except OnelayerError:
        if method is not None or not known:
            raise
        return verified_text(problem, formula, digest, integers)


def _formula(a: Approximation) -> Formula:
    certificate = a.certificate
    if certificate.method != "branch and bound":
        raise OnelayerError(f"a proof by {certificate.method} has no Coq certificate; proofs by boxes have")
    if not certificate.proved:
        raise OnelayerError(f"only what is proved can become a Coq theorem; this certificate is {certificate.status}")
    # A theorem about the function that stands for f would be read as one about f.
    if certificate.condition:
        raise OnelayerError(f"a proof that is {certificate.condition} has no Coq certificate")
    if a.target is None or a.target.formula is None:
        raise OnelayerError("a Coq certificate states f by its formula, which this folder does not have")
    return a.target.formula


def _need_values(a: Approximation, formula: Formula) -> None:
    """f has a value everywhere on the box, by enclosures on the boxes of the proof.

    Coq's functions are total: its square roots of negative numbers and its quotients by zero are 0. The verifier knows
    nothing of f where an argument may be outside; a theorem of the tactic is about those zeros.
    """
    if all(operation(node.op, node.value).guard is None for node in formula.nodes if node.op not in LEAVES):
        return
    tree = a.certificate.proof
    if tree is None:
        raise OnelayerError("the certificate has lost its boxes; certify again")
    lows, highs = map(torch.from_numpy, tree.boxes())
    for at in range(0, len(lows), BOXES_AT_ONCE):
        low, high = lows[at : at + BOXES_AT_ONCE], highs[at : at + BOXES_AT_ONCE]
        for output in hulled_outputs(formula, variables(low, high, 1), low, high):
            if isinstance(output, TaylorModel) and not bool(torch.isfinite(output.split_bound()).all()):
                raise OnelayerError(
                    "f may have no value on the box, where Coq's square roots, logarithms and quotients have one; "
                    "its tactic proves nothing of such an f"
                )


def _problem(a: Approximation, formula: Formula, bound: Fraction) -> Problem:
    """T, f and the box in exact numbers."""
    low = [Fraction(end) for end in a.box.lower.flatten().tolist()]
    high = [Fraction(end) for end in a.box.upper.flatten().tolist()]
    layer = exact_layer(a.model)
    return Problem(layer, Expression(formula), low, high, bound, a.certificate.proof)


def _claim(a: Approximation) -> Fraction:
    """The bound of the certificate; the smaller of eps as printed and as stored, which implies the other."""
    eps = a.certificate.eps
    if eps is None:
        return Fraction(a.certificate.upper)
    return min(Fraction(eps), Fraction(repr(eps)))


class Writer:
    """Writes one certificate."""

    def __init__(self, problem: Problem, formula: Formula, digest: str, integers: str) -> None:
        if max(map(len, problem.layer.heads)) > MOST_TOKENS:
            raise OnelayerError(f"a Coq certificate by the tactic needs heads of at most {MOST_TOKENS} tokens")
        self.problem = problem
        self.formula = formula
        self.digest = digest
        self.integers = integers
        self.outputs = range(len(formula.outputs))
        self.names = [f"x{i + 1}" for i in range(formula.dim)]
        self.point = f"[{'; '.join(self.names)}]"
        # Heads look the same way for every output; shifts and shares of eps differ.
        self.groups = [plan(problem, i) for i in self.outputs]

    def text(self) -> str:
        """The whole file."""
        parts = [self._header(), *self._heads()]
        parts += [self._layer(), *self._functions()]
        for i in self.outputs:
            for g, group in enumerate(self.groups[i]):
                parts += self._group(group, i, g)
        parts += [self._output(i) for i in self.outputs]
        parts.append(self._theorem())
        return "\n".join(parts)

    def _header(self) -> str:
        # A digest stands in a comment of the file: what is no letter or digit could end it.
        digest = "".join(letter for letter in self.digest if letter.isalnum())
        return (
            f"(* sup|T - f| <= {number(self.problem.eps)} in real arithmetic; weights sha256\n"
            f"   {digest} *)\n"
            "From Coq Require Import Reals List Lra.\n"
            f"{INTEGERS[self.integers]}"
            "From Onelayer Require Import Softmax Vectors Lookup Kinks Certificate.\n"
            "Import ListNotations.\nOpen Scope R_scope.\n\n"
            "Ltac bounded u := interval with (i_bisect u, i_taylor u, i_degree 10, i_prec 80, i_depth 15).\n"
        )

    def _heads(self) -> list[str]:
        """Tokens of every head; keys are multiples of the direction of the head."""
        texts = []
        for h, head in enumerate(self.problem.layer.heads):
            group = self._own(h)
            tokens = []
            for token in head:
                key = number(group.multiple(token.slopes))
                tokens.append(f"Token [{key}] {number(token.bias)} (row {_list(token.values)})")
            texts.append(f"Definition head{h} : list token :=\n  [" + ";\n   ".join(tokens) + "].\n")
        return texts

    def _own(self, h: int) -> DirectionGroup:
        """The group of a head: the same direction for every output."""
        return next(group for group in self.groups[0] if h in group.heads)

    def _layer(self) -> str:
        layer = self.problem.layer
        heads = [f"head{h}" for h in range(len(layer.heads))]
        # In one variable a head along the direction 1 is the head itself.
        if len(self.names) > 1:
            heads = [f"map (along {_list(self._own(h).w)}) {head}" for h, head in enumerate(heads)]
        ridges = []
        for unit in layer.units:
            ridges.append(f"Ridge {_list(unit.slopes)} {number(unit.offset)} (row {_list(unit.gains)})")
        slopes = "; ".join(map(_list, layer.slopes))
        return (
            f"Definition T (x : vec) (i : nat) : R :=\n  layer [{'; '.join(heads)}]\n    [{'; '.join(ridges)}]\n"
            f"    [{slopes}] {_list(layer.constants)} x i.\n"
        )

    def _functions(self) -> list[str]:
        arguments = " ".join(self.names)
        texts = []
        for i, at in enumerate(self.formula.outputs):
            body = formula_text(self.formula.nodes, at, lambda _: None)
            texts.append(f"Definition f{i} ({arguments} : R) : R := {body}.\n")
        return texts

    def _group(self, group: DirectionGroup, i: int, g: int) -> list[str]:
        """The part of T - f that depends on one variable, its pieces, and their union."""
        claim = f"claim{i}_{g}"
        part = f"part{i}_{g}"
        bound = number(group.bound)
        places = cuts(self.problem, group)
        texts = [
            f"Definition {part} (u : R) : R :=\n  {self._part(group, i)}.\n"
            f"Definition {claim} (u : R) : Prop := Rabs ({part} u) <= {bound}.\n"
        ]
        # A box without width has one place, and one piece of no width there.
        pieces = list(pairwise(places)) or [(places[0], places[0])]
        names = [f"piece{i}_{g}_{k}" for k in range(len(pieces))]
        for name, (a, b) in zip(names, pieces, strict=True):
            texts.append(
                f"Lemma {name} : forall u, {number(a)} <= u <= {number(b)} -> {claim} u.\n"
                f"Proof.\n  intros u H; unfold {claim}, {part}.\n{self._piece(group, a, b)}Qed.\n"
            )
        first, last = number(places[0]), number(places[-1])
        texts.append(
            f"Lemma group{i}_{g} : forall u, {first} <= u <= {last} -> {claim} u.\n"
            f"Proof. exact {_joined(claim, names, pieces)}. Qed.\n"
        )
        return texts

    def _part(self, group: DirectionGroup, i: int) -> str:
        terms = [f"head head{h} [u] {i}" for h in group.heads]
        for j in group.units:
            gain = number(self.problem.layer.units[j].gains[i])
            terms.append(f"relu ({self._unit(group, j, 'u')}) * {gain}")
        terms.append(f"{number(group.tilt)} * u + {number(group.shift)}")
        minus = [f"{number(factor)} * {self._term(group, at, 'u')}" for factor, at in group.terms]
        return " + ".join(terms) + "".join(f" - {text}" for text in minus)

    def _unit(self, group: DirectionGroup, j: int, u: str) -> str:
        unit = self.problem.layer.units[j]
        return f"{number(group.multiple(unit.slopes))} * {u} + {number(unit.offset)}"

    def _plain(self, group: DirectionGroup, term: int) -> bool:
        return self.problem.f.variables(term) == {group.axis}

    def _term(self, group: DirectionGroup, term: int, u: str) -> str:
        """A term of f as a function of u."""
        return self.problem.f.text(term, self._leaf(group, term, u))

    def _leaf(self, group: DirectionGroup, term: int, u: str) -> Callable[[int], str | None]:
        """u takes the place of its variable where a term has no other; else a u + b that of every affine part."""
        f = self.problem.f
        if self._plain(group, term):
            return lambda at: u if f.nodes[at].op == "var" else None

        def leaf(at: int) -> str | None:
            form = f.forms[at]
            if form is None or not any(form[0]):
                return None
            slopes, constant = form
            return f"({number(group.multiple(slopes))} * {u} + {number(constant)})"

        return leaf

    def _piece(self, group: DirectionGroup, a: Fraction, b: Fraction) -> str:
        """On a piece every unit and every absolute value of an affine form has one sign."""
        f = self.problem.f
        middle = (a + b) / 2
        steps = []
        for j in group.units:
            unit = self.problem.layer.units[j]
            active = group.multiple(unit.slopes) * middle + unit.offset >= 0
            lemma = "relu_active" if active else "relu_idle"
            steps.append(f"rewrite ({lemma} ({self._unit(group, j, 'u')})) by lra.")
        for term, kink in [(at, kink) for _, at in group.terms for kink in f.kinks(at)]:
            inner = f.nodes[kink].args[0]
            slopes, constant = f.form(inner)
            positive = group.multiple(slopes) * middle + constant >= 0
            lemma = "Rabs_pos_eq" if positive else "Rabs_left1"
            argument = f.text(inner, self._leaf(group, term, "u"))
            steps.append(f"rewrite ?({lemma} {argument}) by lra.")
        for h in group.heads:
            # Logits minus their average over the piece: exponentials of large numbers would spread every enclosure.
            p, q = average_logit(self.problem, group, h, a, b)
            steps.append(f"shift head{h} ({number(p)} * u + {number(q)}); unfold head{h}.")
        steps.append("spelled; bounded u.")
        return "".join(f"  {step}\n" for step in steps)

    def _output(self, i: int) -> str:
        """The groups together: the bounds add up, everything else cancels."""
        f = self.problem.f
        layer = self.problem.layer
        groups = self.groups[i]
        name = f"certificate{i}" if len(self.outputs) > 1 else "certificate"
        variables = " ".join(self.names)
        given = " ".join(f"H{name}" for name in self.names)
        stated = f.text(f.outputs[i], lambda _: None)
        steps = [
            f"intros {variables} {given}.",
            f"assert (F : f{i} {variables} = {stated}) by (unfold f{i}; {KINKS}; reflexivity).",
        ]
        for g, group in enumerate(groups):
            known = f"group{i}_{g} {self._argument(group)} ltac:(cbn [dot]; lra)"
            steps.append(f"assert (A{g} := {known}); unfold claim{i}_{g}, part{i}_{g} in A{g}.")
        # T is written in the words of its groups before lra compares the two.
        steps.append("unfold T, layer, rectify; cbn [lsum direction offset gain].")
        for g, group in enumerate(groups):
            steps += self._same(group, g)
        if len(self.names) > 1:
            steps += [self._placed(h) for h in range(len(layer.heads))]
        within = ", ".join(f"A{g}" for g in range(len(groups)))
        steps.append(f"rewrite F; apply within; apply within in {within}; unfold row in *; cbn [nth dot] in *; lra.")
        body = "".join(f"  {step}\n" for step in steps)
        return f"Theorem {name} : {self._statement([i])}.\nProof.\n{body}Qed.\n"

    def _same(self, group: DirectionGroup, g: int) -> list[str]:
        """Units of the layer and arguments of f are written alike in the goal and in what is known of the group."""
        f = self.problem.f
        layer = self.problem.layer
        u = self._argument(group)
        steps = []
        for j in group.units:
            unit = layer.units[j]
            own = f"dot {_list(unit.slopes)} {self.point} + {number(unit.offset)}"
            steps.append(f"replace ({own}) with ({self._unit(group, j, u)}) by (cbn [dot]; lra).")
        mixed = [term for _, term in group.terms if not self._plain(group, term)]
        for at in sorted({at for term in mixed for at in f.arguments(term)}):
            there = self._leaf(group, mixed[0], u)(at)
            same = f"{there} = {f.text(at, lambda _: None)}"
            steps.append(f"assert (E : {same}) by (cbn [dot]; lra); rewrite ?E in A{g}; rewrite ?E; clear E.")
        return steps

    def _placed(self, h: int) -> str:
        group = self._own(h)
        step = f"rewrite (head_of_direction {_list(group.w)} head{h}) by (apply one_number_each; reflexivity)."
        if group.axis is not None:
            step += (
                f"\n  replace (dot {_list(group.w)} {self.point}) with {self.names[group.axis]} by (cbn [dot]; ring)."
            )
        return step

    def _argument(self, group: DirectionGroup) -> str:
        if group.axis is not None:
            return self.names[group.axis]
        return f"(dot {_list(group.w)} {self.point})"

    def _statement(self, outputs: Sequence[int]) -> str:
        variables = " ".join(self.names)
        eps = number(self.problem.eps)
        sides = zip(self.names, self.problem.low, self.problem.high, strict=True)
        inside = " -> ".join(f"{number(a)} <= {name} <= {number(b)}" for name, a, b in sides)
        each = [f"Rabs (T {self.point} {i} - f{i} {variables}) <= {eps}" for i in outputs]
        claims = " /\\\n  ".join(each)
        return f"forall {variables}, {inside} ->\n  {claims}"

    def _theorem(self) -> str:
        if len(self.outputs) == 1:
            return "Print Assumptions certificate.\n"
        variables = " ".join(self.names)
        given = " ".join(f"H{name}" for name in self.names)
        exact = "; ".join(f"try exact (certificate{i} {variables} {given})" for i in self.outputs)
        return (
            f"Theorem certificate : {self._statement(self.outputs)}.\n"
            f"Proof. intros {variables} {given}; repeat split; {exact}. Qed.\n\n"
            "Print Assumptions certificate.\n"
        )


def _list(numbers: Sequence[Fraction]) -> str:
    return f"[{'; '.join(map(number, numbers))}]"


def _joined(claim: str, names: Sequence[str], pieces: Sequence[tuple[Fraction, Fraction]]) -> str:
    """The lemmas of adjacent pieces joined in a balanced tree."""
    if len(names) == 1:
        return names[0]
    # Balanced, so that the term is only as deep as the logarithm of the pieces.
    half = len(names) // 2
    left = _joined(claim, names[:half], pieces[:half])
    right = _joined(claim, names[half:], pieces[half:])
    a = number(pieces[0][0])
    b = number(pieces[half][0])
    c = number(pieces[-1][1])
    return f"(join_pieces {claim} {a} {b} {c} {left} {right})"
