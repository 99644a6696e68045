"""The checker's proof for packed layers of inner and outer functions, written from docs/theory.md.

|T - f| <= sum over outer functions of [ gap + sum_k (sup |G_k - p_k| + Lip(G_k) |s^_k - s_k|) ] + direct errors +
rounding, where s^_k is the executed sum of looked-up inner functions and G_k the function that units make of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import ZERO
from onelayer.checker.attention import Vector
from onelayer.checker.boxes import PROVED, Evaluated, Prover
from onelayer.checker.cones import edges, rises_in_proportion
from onelayer.checker.form import LayerForm
from onelayer.checker.formula import evaluate
from onelayer.checker.identity import one_function
from onelayer.checker.looked import LookedUp, Seen, cut_into, features, looked_up, outward
from onelayer.checker.outcome import Rejected
from onelayer.checker.rounding import Execution
from onelayer.checker.terms import FormedSum, TermUnits, term_distance
from onelayer.checker.weights import Stored
from onelayer.language.formula import Formula, parse
from onelayer.lemmas.nested import Nested, Outer, RidgeTerm
from onelayer.observer import Observer

Domain = tuple[tuple[float, ...], tuple[float, ...]]
FORM = LayerForm("its inner and outer functions")
ORDER, BUDGET = 6, 4000  # of the Taylor arithmetic for gaps, and bisections per box
PARTS = {1: 8, 2: 4, 3: 2}  # of every side of the box of an outer function
EDGE_PARTS = 64  # of an edge of the box of a cone


def nested_bound(
    stored: Stored, nested: Nested, formula: Formula | None, domain: Domain, execution: Execution, observer: Observer
) -> arb:
    """Upper bound of sup |T - f| for T as executed; Rejected when the argument does not hold."""
    if formula is None:
        raise Rejected("a composition needs the text of its function")
    flat = formula.shaped((formula.dim,), formula.output_shape)
    # That the stated functions have values everywhere is part of their bounds, which are infinite where they have none.
    if not one_function(flat, nested.formula(), *domain):
        raise Rejected("the function is not shown to be the inner and outer functions that the argument states")
    for part in nested.outer:
        _gap(part, observer)
    return _Bound(stored, nested, domain, execution).worst()


def _gap(part: Outer, observer: Observer) -> None:
    """|g - sum of the ridges| <= gap for all sums in their intervals."""
    g = part.formula
    ridges = part.decomposed()
    if (g.nodes, g.outputs) == (ridges.nodes, ridges.outputs):
        return
    if rises_in_proportion(part):
        _rim(part, g, ridges, observer)
        return
    prover = Prover(_vector(ridges), g, part.gap, ORDER, BUDGET, observer)
    count = PARTS.get(len(part.sums), 1)
    sides = [cut_into(low, high, count) for low, high in zip(part.low, part.high, strict=True)]
    for box in itertools.product(*sides):
        _proved(prover, box, part, observer)


def _rim(part: Outer, g: Formula, ridges: Formula, observer: Observer) -> None:
    """The gap on the rim of the box: |h(t u)| = t |h(u)| for h = g - ridges, so it is largest there (cones.py)."""
    for formula, other, low, high in edges(part, g, ridges):
        prover = Prover(_vector(other), formula, part.gap, ORDER, BUDGET, observer)
        for ends in cut_into(low, high, EDGE_PARTS):
            _proved(prover, (ends,), part, observer)


def _vector(formula: Formula) -> Evaluated:
    return lambda x, kinks: Vector(evaluate(formula, x, kinks), [ZERO])


def _proved(prover: Prover, box: Sequence[tuple[float, float]], part: Outer, observer: Observer) -> None:
    observer.check()
    verdict = prover([low for low, _ in box], [high for _, high in box])
    if verdict.outcome != PROVED:
        raise Rejected(f"the gap {part.gap:.3g} of an outer function does not follow near {verdict.place}")


class _Bound:
    def __init__(self, stored: Stored, nested: Nested, domain: Domain, execution: Execution) -> None:
        self.t = stored.tensors
        self.nested = nested
        self.execution = execution
        self.low, self.high = domain
        self.reach = [arb(max(abs(a), abs(b))) for a, b in zip(self.low, self.high, strict=True)]
        self.ridges = [(part, ridge) for part in nested.outer for ridge in part.ridges]
        self.units = np.array(nested.units, dtype=int)
        plain = parse("x", 1)
        # What is looked up; a coordinate itself goes through the embedding.
        self.curved = [c for c, one in enumerate(nested.inner) if one.more or parse(one.text, 1) != plain]
        # Of the units, where there are any.
        self.biases = self.changes = np.zeros(0)
        self._form(stored)
        self.heads = [self._head(c) for c in range(len(nested.inner))]

    def worst(self) -> arb:
        """The bound of the worst output."""
        self._intervals()
        count = self.nested.outputs
        totals = [ZERO] * count
        rest = [arb(float(b)) for b in self.t["b_R"]]
        sizes = [abs(b) for b in rest]
        for part in self.nested.outer:
            totals[part.output] = totals[part.output] + arb(part.gap)
        for k, (part, ridge) in enumerate(self.ridges):
            error, size = self._ridge(k, part, ridge)
            o = part.output
            totals[o] = totals[o] + error
            sizes[o] = sizes[o] + size
            rest[o] = rest[o] - arb(ridge.constant)
        terms = len(self.units) + 4
        worst = ZERO
        for o in range(count):
            # The feature of an output holds its direct part, and the units add theirs.
            error, size, moved = self._feature(len(self.ridges) + o)
            rounding = self.execution.gamma(terms) * (sizes[o] + size + moved)
            lost = self.execution.tiny * (2 * terms + len(self.units))
            worst = worst.max(totals[o] + abs(rest[o]) + error + moved + rounding + lost)
        return worst

    def _form(self, stored: Stored) -> None:
        """Every weight is what the argument says, or free and looked at elsewhere: keys, values, knots, changes."""
        config = stored.config
        nested = self.nested
        t = self.t
        d = nested.inputs
        width = nested.inputs + len(self.ridges) + nested.outputs
        wanted = {
            "layout": "packed",
            "norm": "none",
            "attention": "softmax",
            "embedding": "linear",
            "positions": "none",
            "readout": "first",
            "residual": True,
            "d_model": width,
            "hidden": len(self.units),
        }
        FORM.require(all(config[name] == value for name, value in wanted.items()), "another kind of layer")
        FORM.require(stored.token_width == d and t["W_R"].shape[1] == nested.outputs, "other inputs or outputs")
        shapes = [(head["d_k"], head["d_v"], head["memory"], len(head["tokens"])) for head in config["heads"]]
        axes = [len(nested.inner[c].factors) for c in self.curved] or [1]
        FORM.require(shapes == [(features(count), 1, "grid", count) for count in axes], "other heads")
        # Feature -> inner function -> weight.
        self.into = [self._weights(k) for k in range(width - d)]
        self.linear = t["W_E"][:, d:]
        self._embedding(d)
        self._head_form(d)
        FORM.equal(t["W_R"], np.eye(width)[:, width - nested.outputs :], "W_R")
        if len(self.units):
            self._unit_form(d, width)

    def _head_form(self, d: int) -> None:
        """Each head asks for the directions of its inner function and writes into the features that use it."""
        nested = self.nested
        t = self.t
        out = np.zeros_like(t["W_O"])
        query = np.zeros_like(t["W_Q"])
        constant = np.zeros_like(t["b_Q"])
        first = 0
        for h, c in enumerate(self.curved):
            for k, weights in enumerate(self.into):
                exact = weights.get(c, Fraction(0))
                out[h, d + k] = float(exact)
                FORM.require(Fraction(out[h, d + k]) == exact, "a weight that is no float")
            factors = nested.inner[c].factors
            width = features(len(factors))
            # The root of the key width, by which logits are divided: a power of two, so that it costs nothing.
            root = 2.0 if width == 4 else 4.0
            for a, factor in enumerate(factors):
                query[:d, first + a] = root * np.array(factor.direction)
                rest = np.delete(t[f"memory.{h}.axes.{a}"], [a, len(factors)], axis=1)
                FORM.require(not rest.any(), "keys of other features")
            constant[first + len(factors)] = root
            first += width
        FORM.equal(t["W_O"], out, "W_O")
        FORM.equal(t["b_O"], 0.0, "b_O")
        # Without a function to look up there is one head all the same; it writes nothing, whatever it asks for.
        if self.curved:
            FORM.equal(t["W_Q"], query, "W_Q")
            FORM.equal(t["b_Q"], constant, "b_Q")

    def _unit_form(self, d: int, width: int) -> None:
        outputs = np.array([part.output for part, _ in self.ridges])
        adds = outputs[self.units] + width - self.nested.outputs
        self.biases = self.t["b_1"]
        self.changes = FORM.unit_changes(self.t, d + self.units, adds)

    def _weights(self, k: int) -> dict[int, Fraction]:
        """Weights of the inner functions in feature k of the stream beside x: sums of ridges, then outputs."""
        found: dict[int, Fraction] = {}
        if k >= len(self.ridges):
            return {c: Fraction(1) for c in self.nested.direct[k - len(self.ridges)]}
        part, ridge = self.ridges[k]
        for weight, members in zip(ridge.weights, part.sums, strict=True):
            for c in members:
                found[c] = found.get(c, Fraction(0)) + Fraction(weight)
        return found

    def _embedding(self, d: int) -> None:
        """W_E copies x and adds the plain inner functions to their sums."""
        FORM.equal(self.t["W_E"][:, :d], np.eye(d), "W_E")
        FORM.equal(self.t["b_E"], 0.0, "b_E")
        inner = self.nested.inner
        plain = [c for c in range(len(inner)) if c not in self.curved]
        for k, weights in enumerate(self.into):
            for j in range(d):
                parts = [weights.get(c, Fraction(0)) * Fraction(inner[c].direction[j]) for c in plain]
                FORM.require(Fraction(self.linear[j, k]) == sum(parts, Fraction(0)), "W_E")

    def _intervals(self) -> None:
        for part in self.nested.outer:
            for members, low, high in zip(part.sums, part.low, part.high, strict=True):
                bottom = sum((self.heads[c].ends[0] for c in members), ZERO)
                top = sum((self.heads[c].ends[1] for c in members), ZERO)
                inside = arb(low) <= bottom and top <= arb(high)
                FORM.require(bool(inside), "sums beyond their interval")

    def _head(self, c: int) -> LookedUp:
        seen = [self._seen(factor.direction) for factor in self.nested.inner[c].factors]
        if c not in self.curved:
            return LookedUp((seen[0].low, seen[0].high), ZERO, seen[0].size, ZERO)
        h = self.curved.index(c)
        factors = self.nested.inner[c].factors
        keys = [self.t[f"memory.{h}.axes.{a}"] for a in range(len(factors))]
        texts = [factor.text for factor in factors]
        columns = self.nested.along(c) if len(factors) > 1 else None
        values = self.t[f"memory.{h}.values"][..., 0]
        found = looked_up(texts, seen, keys, values, columns, self.execution)
        if found is None:
            raise Rejected(f"{texts[0][:60]} is not defined on its interval, or has other columns")
        return found

    def _seen(self, direction: Sequence[float]) -> Seen:
        """The values of a linear form on the box."""
        low, high = _ends(direction, self.low, self.high)
        sizes = (abs(arb(w)) * reach for w, reach in zip(direction, self.reach, strict=True))
        terms = sum(1 for w in direction if w)
        return Seen(low, high, sum(sizes, ZERO), terms)

    def _feature(self, k: int) -> tuple[arb, arb, arb]:
        """A feature beside x: |real - true|, its size, and the rounding of the executed one."""
        error = ZERO
        size = ZERO
        moved = ZERO
        total = ZERO
        terms = 3
        for c, w in self.into[k].items():
            if c not in self.curved:
                continue  # among the linear weights below
            weight = abs(arb(w.numerator) / arb(w.denominator))
            head = self.heads[c]
            error = error + weight * head.error
            size = size + weight * head.size
            moved = moved + weight * head.rounding
            total = total + weight
            terms = terms + 1
        for j, reach in enumerate(self.reach):
            own = abs(arb(float(self.linear[j, k])))
            size = size + own * reach
            total = total + own
            terms = terms + int(bool(own > 0))
        rounding = self.execution.gamma(terms) * (size + moved)
        lost = self.execution.underflow(terms) * (1 + total)
        return error, size, moved + rounding + lost

    def _ridge(self, k: int, part: Outer, ridge: RidgeTerm) -> tuple[arb, arb]:
        """|G_k(s^) - p_k(s)|, and the size of what its units add to the output."""
        mine = np.flatnonzero(self.units == k)
        error, size, moved = self._feature(k)
        bottom, top = outward(*_ends(ridge.weights, part.low, part.high))
        units = TermUnits.stored(self.biases, self.changes, mine, ridge.constant)
        formed = FormedSum(bottom, top, error + moved, size)
        return term_distance(parse(ridge.text, 1, limit=len(ridge.text)), units, formed, self.execution)


def _ends(weights: Sequence[float], low: Sequence[float], high: Sequence[float]) -> tuple[arb, arb]:
    """The least and the largest value of a linear form on a box."""
    bottom = top = ZERO
    for w, a, b in zip(weights, low, high, strict=True):
        first, last = (a, b) if w >= 0 else (b, a)
        bottom = bottom + arb(w) * arb(first)
        top = top + arb(w) * arb(last)
    return bottom, top
