"""Proof for a layer of pieces: sharp heads over tokens that are affine in x, ReLU units on sums of them.

Lemma. T = sum_m p_m l_m with p = softmax(beta l) over M numbers satisfies 0 <= max l - T <= W((M-1)/e) / beta, W being
Lambert's function (proof in subsets.py). So a head is as close to max_m l_m(x) as one likes, for all x at once, and
    |T - f| <= sum over curves of (sup |G - g| + Lip(G) sum_h |c_h| W((M_h-1)/e) / beta_h) + the same for the outputs
             + rounding.
Token 0 is the query and carries the affine parts of the sums; tokens of other heads, and the query, have a value in
feature h so far below that their weight there is negligible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.float64 import UNIT, at_least
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.forward import (
    SLACK,
    UP,
    exp_up,
    float64_weights,
    has_fields,
    has_form,
    rounding_of,
    upper_bound,
    widened,
)
from onelayer.lemmas.overflow import overflows
from onelayer.lemmas.pieces import CurveTerm, Pieces, PieceSum, SharpHead
from onelayer.lemmas.subsets import average_gap
from onelayer.lemmas.units import ExecutedSum, ramps_of, term_error
from onelayer.observer import Observer

Floats = NDArray[np.float64]
Ends = tuple[float, float]


@dataclass(frozen=True)
class Peak:
    """A head: ends of max_m l_m over the box, the error of an executed head, and the largest number it averages."""

    ends: Ends
    error: float
    size: float


@np.errstate(all="ignore")  # what is not finite ends as inf
def pieces_error(model: OneLayerTransformer, pieces: Pieces, box: Box, observer: Observer | None = None) -> float:
    """Upper bound of sup over the box of |T - f|, T as executed, f the function that ``pieces`` states."""
    form = SharpForm(model, pieces)
    if overflows(model, box):
        return math.inf
    proof = _SharpProof(model, pieces, form, box, observer)
    return upper_bound(proof.error() * UP)


class SharpForm:
    """The stored numbers of a layer of pieces; those that no argument names are compared exactly."""

    def __init__(self, model: OneLayerTransformer, pieces: Pieces) -> None:
        config = model.config
        w = float64_weights(model)
        heads = len(pieces.heads)
        sums = len(pieces.curves) + pieces.outputs
        tokens = 1 + sum(len(head.lines) for head in pieces.heads)
        self.width = heads + sums
        wanted = {
            "layout": "pieces",
            "pieces": tokens,
            "norm": "none",
            "attention": "softmax",
            "positions": "none",
            "residual": True,
            "readout": "first",
            "d_model": self.width,
            "hidden": len(pieces.units),
        }
        shapes = [(head.d_k, head.d_v, head.memory) for head in config.heads]
        if not has_fields(config, wanted) or shapes != [(1, 1, "none")] * heads:
            raise OnelayerError("this layer does not have the form of sharp heads over pieces")
        if (config.token_width, config.readout_width) != (pieces.inputs, pieces.outputs):
            raise OnelayerError("this layer has other inputs or outputs than its argument")
        self.w = w
        self.units = np.array(pieces.units, dtype=int)
        self.beta = np.diag(w["W_K"][:heads])
        self.slopes = w["W_E"].reshape(pieces.inputs, tokens, self.width)
        self.offsets = w["b_E"].reshape(tokens, self.width)
        lines = [len(head.lines) for head in pieces.heads]
        self.owner = np.repeat(np.arange(-1, heads), [1, *lines])  # head of every token, -1 for the query
        if not has_form(self._fixed(pieces, heads)) or not (self.beta > 0).all():
            raise OnelayerError("the weights of this layer do not have the form of sharp heads over pieces")

    def _fixed(self, pieces: Pieces, heads: int) -> list[tuple[Floats, Floats | float]]:
        """Every matrix beside what it must be. Features of the stream: one per head, then the sums."""
        w = self.w
        eye = np.eye(self.width)
        outputs = self.width - pieces.outputs  # where they begin
        others = self.owner[:, None] != np.arange(heads)  # (N, H)
        self.floors = self.offsets[0, :heads]
        # In the feature of a head, tokens of other heads have its floor, and only the query has sums.
        seen_by_others = np.where(others, self.offsets[:, :heads], self.floors)
        fixed: list[tuple[Floats, Floats | float]] = [
            (self.slopes[:, :, :heads] * others, 0.0),
            (self.slopes[:, 1:, heads:], 0.0),
            (seen_by_others, np.broadcast_to(self.floors, others.shape)),
            (self.offsets[1:, heads:], 0.0),
            (w["W_Q"], 0.0),
            (w["b_Q"], 1.0),
            (w["W_K"], eye[:, :heads] * self.beta),
            (w["b_K"], 0.0),
            (w["W_V"], eye[:, :heads]),
            (w["b_V"], 0.0),
            (w["W_O"][:, :heads], 0.0),
            (w["b_O"], 0.0),
            (w["W_R"], eye[:, outputs:]),
        ]
        if len(self.units):
            # A unit reads the sum of its curve and writes one output; what it writes there is free.
            curve_output = np.array([curve.output for curve in pieces.curves])
            own = np.arange(len(self.units)), outputs + curve_output[self.units]
            rest = w["W_2"].copy()
            rest[own] = 0.0
            self.changes = w["W_2"][own]
            self.knots = -w["b_1"]
            read = eye[:, heads + self.units]
            fixed += [(w["W_1"], read), (rest, 0.0), (w["b_2"], 0.0)]
        return fixed


class _SharpProof:
    def __init__(
        self, model: OneLayerTransformer, pieces: Pieces, form: SharpForm, box: Box, observer: Observer | None
    ) -> None:
        self.pieces = pieces
        self.observer = observer
        self.form = form
        self.r = rounding_of(model.dtype)
        low = box.lower.flatten().tolist()
        high = box.upper.flatten().tolist()
        ends = list(zip(low, high, strict=True))
        self.sides = [(Fraction(a), Fraction(b)) for a, b in ends]
        self.reach = np.array([max(abs(a), abs(b)) for a, b in ends])
        self.heads = [self._head(h, head) for h, head in enumerate(pieces.heads)]

    def error(self) -> float:
        """The worst output."""
        pieces = self.pieces
        w = self.form.w
        count = len(self.form.units) + 16
        rest = w["b_R"].copy()
        totals = np.zeros(pieces.outputs)
        sizes = np.abs(rest)
        for k, curve in enumerate(pieces.curves):
            error, size = self._curve(k, curve)
            totals[curve.output] += error
            sizes[curve.output] += size + abs(curve.constant)
            rest[curve.output] -= curve.constant
        for o, one in enumerate(pieces.direct):
            error, size, _ = self._sum(len(pieces.curves) + o, one)
            totals[o] += error
            sizes[o] += size
        rounding = self.r.gamma(count) * sizes + 4 * count * self.r.tiny
        # The constants of the curves and of the read-out must cancel; what is left is an error, rounded here.
        inexact = 8 * count * UNIT * sizes
        errors = totals + np.abs(rest) + inexact + SLACK * rounding
        return float(np.max(errors))

    def _range(self, line: Sequence[str]) -> tuple[Fraction, Fraction]:
        """Least and greatest value of a stated line over the box, exactly."""
        *slopes, constant = map(Fraction, line)
        ends = [(a * low, a * high) for a, (low, high) in zip(slopes, self.sides, strict=True)]
        return sum(map(min, ends), constant), sum(map(max, ends), constant)

    def _strayed(self, exact: Sequence[str], slopes: Floats, offset: float) -> float:
        """|stored line - stated line| over the box."""
        total = abs(Fraction(exact[-1]) - Fraction(offset))
        for a, stored, reach in zip(exact[:-1], slopes, self.reach, strict=True):
            total += abs(Fraction(a) - Fraction(stored)) * Fraction(reach)
        return at_least(total)

    def _head(self, h: int, head: SharpHead) -> Peak:
        """Executed values and logits / beta differ from the stated lines by ``moved``; other tokens hardly count."""
        form = self.form
        r = self.r
        beta = float(form.beta[h])
        floor = float(form.floors[h])
        mine = np.flatnonzero(form.owner == h)
        slopes = form.slopes[:, mine, h]
        offsets = form.offsets[mine, h]
        stored = zip(head.lines, slopes.T, offsets, strict=True)
        stray = max(self._strayed(line, own, offset) for line, own, offset in stored)
        sizes = self.reach @ np.abs(slopes) + np.abs(offsets)
        size = max(float(sizes.max()), abs(floor)) * UP
        inputs = len(self.reach)
        tokens = len(form.owner)
        steepest = float(np.abs(slopes).max())
        # The token as embedded, then its key and its value; a product that is flushed counts in logits over beta too.
        tiny = 8 * (inputs + 4) * r.tiny * (1 + steepest + 1 / beta)
        roundings = r.gamma(inputs + 2) + 2 * r.gamma(8)
        moved = roundings * 2 * size + tiny
        ends = [self._range(line) for line in head.lines]
        low = max(a for a, _ in ends)
        high = max(b for _, b in ends)
        bottom, top = _outward(low, high)
        above = bottom - floor  # of the largest line over what tokens of other heads show
        lead = beta * above * (1 - 2.0**-40)
        margin = lead - 2 * beta * (moved + stray)
        leak = (tokens - len(mine)) * exp_up(-margin)
        underflow = 8 * (tokens + 2) * r.tiny
        weights = leak + r.softmax(tokens) + r.gamma(tokens + 2) + underflow
        # The lemma, for the lines as stored, and what an execution adds.
        real = average_gap(len(mine)) / beta
        # A product of the average that is flushed is lost however small the values are.
        executed = 4 * moved + 2 * size * weights + 2 * (tokens + 2) * r.tiny
        error = real + stray + SLACK * executed
        return Peak((bottom, top), error * UP, 2 * size)

    def _sum(self, k: int, one: PieceSum) -> tuple[float, float, Ends]:
        """A feature of the stream: its error as executed, its size, and the ends of its true values."""
        form = self.form
        feature = len(self.heads) + k
        stored = form.w["W_O"][:, feature]
        line = form.slopes[:, 0, feature]
        offset = float(form.offsets[0, feature])
        error = self._strayed(one.line, line, offset)
        size = float(np.abs(line) @ self.reach) + abs(offset)
        low, high = self._range(one.line)
        for weight, kept, head in zip(one.weights, stored, self.heads, strict=True):
            exact = Fraction(weight)
            rounded = at_least(abs(exact - Fraction(kept)))  # of the weight, when it was stored
            held = abs(float(kept))
            error += held * head.error + rounded * head.size * UP
            size += held * head.size
            ends = [exact * Fraction(end) for end in head.ends]
            low = low + min(ends)
            high = high + max(ends)
        count = len(self.heads) + len(self.reach) + 8
        moved = self.r.gamma(count) * 2 * size
        # Products that are flushed to zero, each times what it would have met.
        total = float(np.abs(stored).sum() + np.abs(line).sum())
        moved += 4 * count * self.r.tiny * (1 + total)
        executed = error + SLACK * moved
        return executed * UP, size, _outward(low, high)

    def _curve(self, k: int, curve: CurveTerm) -> tuple[float, float]:
        """|G(u^) - g(u)| with the rounding of sums and units, and the size of what the units add up."""
        drift, size, (low, high) = self._sum(k, curve.argument)
        mine = self.form.units == k
        ramps = ramps_of(self.form.knots[mine], self.form.changes[mine], curve.constant)
        s = ExecutedSum(low, high, drift, size)
        return term_error(curve.formula, ramps, s, self.r, self.observer)


def _outward(low: Fraction, high: Fraction) -> Ends:
    """Floats around two rational numbers, different ones."""
    bottom = float(low)
    top = float(high)
    # float() rounds to nearest: one step outward where that went inward.
    bottom = bottom if Fraction(bottom) <= low else math.nextafter(bottom, -math.inf)
    top = top if Fraction(top) >= high else math.nextafter(top, math.inf)
    return widened(bottom, top)
