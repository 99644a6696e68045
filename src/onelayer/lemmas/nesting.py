"""Proof for a packed layer whose heads are inner functions and whose ReLU units are outer functions.

f = sum_g g(u), u_i = sum_c phi_c(x), phi_c a function of one direction or a product of several (looked.py). Head c
looks up A_c close to phi_c, W_O writes the sums s_k = a_k . u of the ridges into the residual stream, the units of
ridge k make a piecewise-linear function G_k of s_k close to p_k, and sum_k p_k(a_k . u) is within ``gap`` of g(u).
With delta_k = sum_c |a_kc| sup |A_c - phi_c| and J_k the values of s_k,
    |T - f| <= sum_g [ gap_g + sum_k (sup over J_k of |G_k - p_k| + Lip(G_k) delta_k) ] + rounding:
G_k is compared at the true sum, the rest of the way is Lipschitz. All suprema are over one variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.float64 import UNIT
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.forward import (
    SLACK,
    UP,
    float64_weights,
    has_fields,
    has_form,
    rounding_of,
    sum_slack,
    upper_bound,
    widened,
)
from onelayer.lemmas.looked import Looked, Reached, key_width, looked_up
from onelayer.lemmas.nested import Inner, Nested, Outer, RidgeTerm
from onelayer.lemmas.overflow import overflows
from onelayer.lemmas.units import ExecutedSum, ramps_of, term_error
from onelayer.observer import Observer

Floats = NDArray[np.float64]


@np.errstate(all="ignore")  # what is not finite ends as inf
def nested_error(model: OneLayerTransformer, nested: Nested, box: Box, observer: Observer | None = None) -> float:
    """Upper bound of sup over the box of |T - f|, T as executed, f the function that ``nested`` states.

    The gaps of the outer functions are taken as stated: they are the claims of other proofs.
    """
    form = Form(model, nested)
    if overflows(model, box):
        return math.inf
    proof = _NestingProof(model, nested, form, box, observer)
    return upper_bound(proof.error() * UP)


class Form:
    """The stored numbers of a nested layer; every fixed entry is compared exactly."""

    def __init__(self, model: OneLayerTransformer, nested: Nested) -> None:
        config = model.config
        self.w = float64_weights(model)
        self.ridges = nested.all_ridges()
        # Inner functions with a head of their own; W_E writes the others, which are linear.
        self.curved = [c for c, one in enumerate(nested.inner) if not one.plain]
        self.inputs = nested.inputs
        self.outputs = nested.outputs
        wanted = {
            "layout": "packed",
            "norm": "none",
            "attention": "softmax",
            "residual": True,
            "embedding": "linear",
            "readout": "first",
            "d_model": self.inputs + len(self.ridges) + self.outputs,
            "hidden": len(nested.units),
        }
        heads = [(h.d_k, h.d_v, h.memory, len(h.tokens)) for h in config.heads]
        if not has_fields(config, wanted) or heads != self._shapes(nested):
            raise OnelayerError("this layer does not have the form of inner and outer functions")
        if (config.token_width, config.readout_width) != (self.inputs, self.outputs):
            raise OnelayerError("this layer has other inputs or outputs than its argument")
        self.units = np.array(nested.units, dtype=int)
        count = len(nested.inner)
        self.of_inner = [self._of_inner(part, ridge, count) for part, ridge in self.ridges]
        if not has_form(self._fixed(nested)):
            raise OnelayerError("the weights of this layer do not have the form of inner and outer functions")

    def _shapes(self, nested: Nested) -> list[tuple[int, int, str, int]]:
        """What the heads must be: a grid with an axis for every factor of an inner function."""
        # A layer has a head even if no inner function needs one; W_O then drops what it says.
        axes = [len(nested.inner[c].factors) for c in self.curved] or [1]
        return [(key_width(count), 1, "grid", count) for count in axes]

    def _of_inner(self, part: Outer, ridge: RidgeTerm, count: int) -> Floats:
        """Weights of the inner functions in the sum of a ridge, (C,), which must be floats."""
        # In rationals: an inner function may be in several sums, and its weights add up without rounding or not at all.
        exact = [Fraction(0)] * count
        for weight, members in zip(ridge.weights, part.sums, strict=True):
            for c in members:
                exact[c] += Fraction(weight)
        found = [float(value) for value in exact]
        if [Fraction(value) for value in found] != exact:
            raise OnelayerError("the weight of an inner function is no float")
        return np.array(found)

    def _written(self, nested: Nested) -> Floats:
        """Weight of every inner function in every feature of the stream beside x, (C, ridges + outputs)."""
        direct = np.zeros((len(nested.inner), self.outputs))
        for o, members in enumerate(nested.direct):
            direct[list(members), o] = 1.0
        if not self.of_inner:
            return direct
        of_ridges = np.stack(self.of_inner, axis=1)
        return np.concatenate([of_ridges, direct], axis=1)

    def _linear(self, nested: Nested, written: Floats) -> Floats:
        """What W_E must write of x beside x itself, (D, features): exact, or an error."""
        features = written.shape[1]
        found = np.zeros((self.inputs, features))
        linear = [(c, one.direction) for c, one in enumerate(nested.inner) if one.plain]
        for j in range(self.inputs):
            for k in range(features):
                exact = Fraction(0)
                for c, direction in linear:
                    # Most entries are zero, and rational products of zeros take their time too.
                    if written[c, k] and direction[j]:
                        exact += Fraction(written[c, k]) * Fraction(direction[j])
                found[j, k] = float(exact)
                if Fraction(found[j, k]) != exact:
                    raise OnelayerError("the weight of an input in a sum is no float")
        return found

    def _fixed(self, nested: Nested) -> list[tuple[Floats, Floats | float]]:
        """Every matrix beside what it must be. Features of the stream: x, the sums of the ridges, the outputs."""
        d = self.inputs
        w = self.w
        written = self._written(nested)
        self.linear = self._linear(nested, written)
        self.written = written
        features = np.eye(d + written.shape[1])
        outputs = len(features) - self.outputs  # where they begin
        out = np.zeros((max(1, len(self.curved)), len(features)))
        for h, c in enumerate(self.curved):
            out[h, d:] = written[c]
        embedded = np.concatenate([np.eye(d), self.linear], axis=1)
        fixed: list[tuple[Floats, Floats | float]] = [
            (w["W_E"], embedded),
            (w["b_E"], 0.0),
            (w["W_O"], out),
            (w["b_O"], 0.0),
            (w["W_R"], features[:, outputs:]),
        ]
        if self.curved:
            fixed += self._queries(nested)
        if len(self.units):
            # A unit reads the sum of its ridge and writes one output; what it writes there is free.
            ridge_output = np.array([part.output for part, _ in self.ridges])
            own = np.arange(len(self.units)), outputs + ridge_output[self.units]
            rest = w["W_2"].copy()
            rest[own] = 0.0
            read = features[:, d + self.units]
            fixed += [(w["W_1"], read), (rest, 0.0), (w["b_2"], 0.0)]
            self.changes = w["W_2"][own]
            self.knots = -w["b_1"]
        return fixed

    def _queries(self, nested: Nested) -> list[tuple[Floats, Floats | float]]:
        """Each head sees the directions of its factors and a constant, and its keys have nothing else."""
        w = self.w
        query = np.zeros_like(w["W_Q"])
        constant = np.zeros_like(w["b_Q"])
        others: list[tuple[Floats, Floats | float]] = []
        first = 0  # column of W_Q at which a head begins
        for h, c in enumerate(self.curved):
            factors = nested.inner[c].factors
            bias = len(factors)
            # Attention divides by the root of the width, a power of two: the scale undoes it exactly.
            scale = math.sqrt(key_width(len(factors)))
            for a, factor in enumerate(factors):
                query[: self.inputs, first + a] = scale * np.array(factor.direction)
                keys = w[f"memory.{h}.axes.{a}"].copy()
                keys[:, [a, bias]] = 0.0
                others.append((keys, 0.0))
            constant[first + bias] = scale
            first += key_width(len(factors))
        return [(w["W_Q"], query), (w["b_Q"], constant), *others]


class _NestingProof:
    def __init__(
        self, model: OneLayerTransformer, nested: Nested, form: Form, box: Box, observer: Observer | None
    ) -> None:
        self.nested = nested
        self.observer = observer
        self.form = form
        self.r = rounding_of(model.dtype)
        self.low = box.lower.flatten().numpy()
        self.high = box.upper.flatten().numpy()
        self.reach = np.maximum(np.abs(self.low), np.abs(self.high))
        heads = {c: h for h, c in enumerate(form.curved)}
        self.looked = [self._looked(c, heads.get(c)) for c in range(len(nested.inner))]

    def error(self) -> float:
        """The worst output."""
        totals = np.zeros(self.nested.outputs)
        rest = self.form.w["b_R"].copy()
        sizes = np.abs(rest)
        for part in self.nested.outer:
            self._within(part)
            totals[part.output] += part.gap
        for k, (part, ridge) in enumerate(self.form.ridges):
            error, size = self._ridge(k, part, ridge)
            totals[part.output] += error
            sizes[part.output] += size + abs(ridge.constant)
            rest[part.output] -= ridge.constant
        rounding = np.zeros(self.nested.outputs)
        ridges = len(self.form.ridges)
        for o in range(self.nested.outputs):
            error, size, moved = self._sum(ridges + o)
            totals[o] += error
            sizes[o] += size
            rounding[o] = moved
        count = len(self.form.units) + ridges + 16
        rounding += self.r.gamma(count) * sizes + 4 * count * self.r.tiny
        # The constants of the ridges and of the read-out must cancel; what is left is an error, rounded here.
        totals += np.abs(rest) + 8 * (ridges + 2) * UNIT * sizes
        return float(np.max(totals + SLACK * rounding))

    def _within(self, part: Outer) -> None:
        """The intervals of the sums hold all their values."""
        for members, low, high in zip(part.sums, part.low, part.high, strict=True):
            looked = [self.looked[c] for c in members]
            bottom, top = _sum_range([(one.low, one.high) for one in looked])
            if not (low <= bottom and top <= high):
                raise OnelayerError("a sum of inner functions leaves the interval of its outer function")

    def _sum(self, feature: int) -> tuple[float, float, float]:
        """A feature of the stream beside x: sup |real - true|, its size, and the rounding of an executed one."""
        weights = self.form.written[:, feature]
        linear = self.form.linear[:, feature]
        weighed = zip(weights, self.looked, strict=True)
        # Zeros are left out: 0 times an infinite bound would be nan, and adding an exact zero is exact.
        terms = [(abs(w), one) for w, one in weighed if w]
        error = float(sum(w * one.error for w, one in terms))
        size = float(sum(w * one.size for w, one in terms))
        size += float(np.abs(linear) @ self.reach)
        count = len(terms) + int((linear != 0).sum()) + 6
        passed_on = sum(w * one.rounding for w, one in terms)
        moved = passed_on + self.r.gamma(count) * 2 * size
        # Products that are flushed to zero, each times what it would have met.
        total = float(np.abs(weights).sum() + np.abs(linear).sum())
        moved += 4 * count * self.r.tiny * (1 + total)
        return error * UP, size, moved * UP

    def _ridge(self, k: int, part: Outer, ridge: RidgeTerm) -> tuple[float, float]:
        """|G_k(s^) - p_k(s)| with the rounding of sums and units; and the size of what the units add up."""
        mine = self.form.units == k
        drift, size, moved = self._sum(k)
        drift += SLACK * moved
        sides = zip(ridge.weights, part.low, part.high, strict=True)
        ends = [(a * low, a * high) for a, low, high in sides]
        # A sum of one term of weight 1 or -1 is not rounded, and its ends may be those of a domain: log needs them.
        exact = len(ends) == 1 and abs(ridge.weights[0]) == 1
        sizes = sum(abs(a) + abs(b) for a, b in ends)
        slack = 0.0 if exact else sum_slack(len(ends), sizes)
        low = sum(map(min, ends)) - slack
        high = sum(map(max, ends)) + slack
        s = ExecutedSum(*widened(low, high), drift, size)
        ramps = ramps_of(self.form.knots[mine], self.form.changes[mine], ridge.constant)
        return term_error(ridge.formula, ramps, s, self.r, self.observer)

    def _looked(self, c: int, head: int | None) -> Looked:
        """An inner function against its head, or, where it is linear and has none, as W_E writes it."""
        factors = self.nested.inner[c].factors
        spans = [self._span(factor) for factor in factors]
        if head is None:
            (span,) = spans
            return Looked(span.low, span.high, 0.0, span.reach, 0.0)
        keys = [self.form.w[f"memory.{head}.axes.{a}"] for a in range(len(factors))]
        values = self.form.w[f"memory.{head}.values"][..., 0]
        columns = self.nested.along(c) if len(factors) > 1 else None
        return looked_up(factors, spans, keys, values, columns, self.r, self.observer)

    def _span(self, one: Inner) -> Reached:
        """What direction . x is over the box."""
        direction = np.array(one.direction)
        ends = direction * self.low, direction * self.high
        reach = float(np.abs(direction) @ self.reach) * UP
        used = np.count_nonzero(direction)
        signs = bool(np.isin(direction, (-1.0, 0.0, 1.0)).all())
        exact = used == 1 and signs  # a coordinate or its negative is not rounded
        slack = 0.0 if exact else sum_slack(len(direction), reach)
        low = float(np.minimum(*ends).sum()) - slack
        high = float(np.maximum(*ends).sum()) + slack
        return Reached(low, high, reach, int(used))


def _sum_range(ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Bounds of a sum of numbers between these ends, whatever its rounding."""
    sizes = sum(max(abs(a), abs(b)) for a, b in ends)
    slack = sum_slack(len(ends), sizes)
    bottom = sum(a for a, _ in ends) - slack
    top = sum(b for _, b in ends) + slack
    # Signs survive rounding: a sum of numbers >= 0 is >= 0.
    bottom = max(bottom, 0.0) if all(a >= 0 for a, _ in ends) else bottom
    top = min(top, 0.0) if all(b <= 0 for _, b in ends) else top
    return bottom, top
