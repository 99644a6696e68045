"""The checker's proof for layers of pieces, written from docs/theory.md: sharp heads over affine tokens, and units.

With c e^c >= (M - 1)/e, a softmax average of M numbers at sharpness beta is below their maximum by at most c / beta.
|T - f| <= sum over curves of (sup |G - g| + Lip(G) |u^ - u|) + |u^ - u| of the output + rounding, u^ executed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, fmpq

from onelayer.checker.arithmetic import ZERO
from onelayer.checker.form import LayerForm
from onelayer.checker.identity import Algebra, has_values
from onelayer.checker.kinks import Expansion, plus, rational, scale
from onelayer.checker.outcome import Rejected
from onelayer.checker.rounding import Execution
from onelayer.checker.sharpness import below_maximum
from onelayer.checker.terms import FormedSum, TermUnits, term_distance
from onelayer.checker.weights import Array, Stored
from onelayer.language.formula import Formula
from onelayer.lemmas.pieces import CurveTerm, Pieces, PieceSum

Domain = tuple[tuple[float, ...], tuple[float, ...]]
FORM = LayerForm("sharp heads over pieces")


def pieces_bound(stored: Stored, pieces: Pieces, formula: Formula | None, domain: Domain, execution: Execution) -> arb:
    """Upper bound of sup |T - f| for T as executed; Rejected when the argument does not hold."""
    if formula is None:
        raise Rejected("an argument of pieces needs the text of its function")
    if (formula.dim, len(formula.outputs)) != (pieces.inputs, pieces.outputs):
        raise Rejected("the function and its pieces differ in inputs or outputs")
    if not has_values(formula, *domain) or not _same(formula, pieces, domain):
        raise Rejected("the function is not shown to be the pieces that the argument states")
    return _Bound(stored, pieces, domain, execution).worst()


def _same(formula: Formula, pieces: Pieces, domain: Domain) -> bool:
    algebra = Algebra(*domain)
    try:
        heads = [algebra.maximum([_affine(line) for line in head.lines]) for head in pieces.heads]
        stated = [_combined(one, heads) for one in pieces.direct]
        for curve in pieces.curves:
            value = algebra.expand(curve.formula, [_combined(curve.argument, heads)])[0]
            stated[curve.output] = plus(stated[curve.output], value)
        return algebra.expand(formula) == stated
    except (OverflowError, ZeroDivisionError):
        return False


def _affine(line: Sequence[str]) -> Expansion:
    found: Expansion = {((f"x{j}", Fraction(1)),): rational(a) for j, a in enumerate(line[:-1])}
    found[()] = rational(line[-1])
    return {powers: c for powers, c in found.items() if c}


def _combined(one: PieceSum, heads: Sequence[Expansion]) -> Expansion:
    total = _affine(one.line)
    for weight, head in zip(one.weights, heads, strict=True):
        total = plus(total, scale(head, rational(weight)))
    return total


@dataclass(frozen=True)
class Sharp:
    """A head: ends of the maximum of its lines, error of the executed head, size of what it averages."""

    ends: tuple[Fraction, Fraction]
    error: arb
    size: arb


class _Bound:
    def __init__(self, stored: Stored, pieces: Pieces, domain: Domain, execution: Execution) -> None:
        self.t = stored.tensors
        self.pieces = pieces
        self.e = execution
        self.sides = [(Fraction(a), Fraction(b)) for a, b in zip(*domain, strict=True)]
        self.reach = [max(abs(a), abs(b)) for a, b in self.sides]
        self.units = np.array(pieces.units, dtype=int)
        # First token of every head, and N.
        self.first = np.cumsum([1, *(len(head.lines) for head in pieces.heads)])
        # Of the units, where there are any.
        self.biases = self.changes = np.zeros(0)
        self._form(stored)
        self.heads = [self._head(h) for h in range(len(pieces.heads))]

    def worst(self) -> arb:
        """The bound of the worst output."""
        pieces = self.pieces
        terms = len(self.units) + 4
        rest = [arb(float(b)) for b in self.t["b_R"]]
        totals = [ZERO] * pieces.outputs
        sizes = [abs(b) for b in rest]
        for k, curve in enumerate(pieces.curves):
            o = curve.output
            error, size = self._curve(k, curve)
            totals[o] = totals[o] + error
            sizes[o] = sizes[o] + size
            rest[o] = rest[o] - arb(curve.constant)
        worst = ZERO
        for o, one in enumerate(pieces.direct):
            error, size, _ = self._sum(len(pieces.curves) + o, one)
            underflow = self.e.tiny * (2 * terms + len(self.units))
            rounding = self.e.gamma(terms) * (sizes[o] + size + error) + underflow
            worst = worst.max(totals[o] + abs(rest[o]) + error + rounding)
        return worst

    def _form(self, stored: Stored) -> None:
        """Every weight is looked at elsewhere, or has the one value that the lemma needs."""
        config = stored.config
        t = self.t
        heads = len(self.pieces.heads)
        width = heads + len(self.pieces.sums)
        outputs = self.pieces.outputs
        tokens = int(self.first[-1])
        wanted = {
            "layout": "pieces",
            "pieces": tokens,
            "norm": "none",
            "attention": "softmax",
            "positions": "none",
            "residual": True,
            "readout": "first",
            "d_model": width,
            "hidden": len(self.units),
        }
        FORM.require(all(config.get(name) == value for name, value in wanted.items()), "another kind of layer")
        FORM.require(
            stored.token_width == self.pieces.inputs and t["W_R"].shape[1] == outputs, "other inputs or outputs"
        )
        shapes = [(head["d_k"], head["d_v"], head["memory"]) for head in config["heads"]]
        FORM.require(shapes == [(1, 1, "none")] * heads, "other heads")
        self.slopes = t["W_E"].reshape(self.pieces.inputs, tokens, width)
        self.offsets = t["b_E"].reshape(tokens, width)
        self._embedding_form(heads)
        self._head_form(heads, width)
        FORM.equal(t["W_R"], np.eye(width)[:, width - outputs :], "W_R")
        if len(self.units):
            self._unit_form(heads, width)

    def _head_form(self, heads: int, width: int) -> None:
        """Head h looks at feature h alone, at its own sharpness, and writes into the sums."""
        t = self.t
        own = np.arange(heads)
        self.sharpness: Array = t["W_K"][own, own]
        keys = np.zeros_like(t["W_K"])
        keys[own, own] = self.sharpness
        FORM.equal(t["W_K"], keys, "W_K")
        FORM.require(bool((self.sharpness > 0).all()), "W_K")
        FORM.equal(t["W_V"], np.eye(width)[:, :heads], "W_V")
        FORM.equal(t["W_Q"], 0.0, "W_Q")
        FORM.equal(t["b_Q"], 1.0, "b_Q")
        for name in ("b_K", "b_V", "b_O"):
            FORM.equal(t[name], 0.0, name)
        FORM.equal(t["W_O"][:, :heads], 0.0, "W_O")

    def _embedding_form(self, heads: int) -> None:
        """A token has its line in the feature of its head, the floor in the others, and sums in the first one."""
        slopes = self.slopes.copy()
        offsets = self.offsets.copy()
        self.floors: Array = self.offsets[0, :heads].copy()
        for h in range(heads):
            mine = slice(self.first[h], self.first[h + 1])
            slopes[:, mine, h] = 0.0
            offsets[mine, h] = self.floors[h]
        slopes[:, 0, heads:] = 0.0
        offsets[0, heads:] = 0.0
        FORM.require(not slopes.any(), "W_E")
        FORM.require(bool((offsets[:, :heads] == self.floors).all()) and not offsets[:, heads:].any(), "b_E")

    def _unit_form(self, heads: int, width: int) -> None:
        outputs = np.array([curve.output for curve in self.pieces.curves])
        adds = outputs[self.units] + width - self.pieces.outputs
        self.biases = self.t["b_1"]
        self.changes = FORM.unit_changes(self.t, heads + self.units, adds)

    def _apart(self, line: Sequence[str], slopes: Array, offset: float) -> arb:
        """Largest difference of a stored line and a stated one."""
        total = abs(rational(line[-1]) - Fraction(offset))
        for a, s, reach in zip(line[:-1], slopes.tolist(), self.reach, strict=True):
            total += abs(rational(a) - Fraction(s)) * reach
        return _ball(total)

    def _image(self, line: Sequence[str]) -> tuple[Fraction, Fraction]:
        low = high = rational(line[-1])
        for a, ends in zip(line[:-1], self.sides, strict=True):
            products = [rational(a) * end for end in ends]
            low = low + min(products)
            high = high + max(products)
        return low, high

    def _head(self, h: int) -> Sharp:
        e = self.e
        beta = arb(float(self.sharpness[h]))
        floor = arb(float(self.floors[h]))
        stated = self.pieces.heads[h].lines
        tokens = int(self.first[-1])
        inputs = len(self.reach)
        apart, reached, steep = self._stored_lines(h)
        size = reached.max(abs(floor))
        images = [self._image(line) for line in stated]
        ends = max(a for a, _ in images), max(b for _, b in images)
        # A line: a sum of products; its key: one product; its logit: the difference to the largest one.
        underflow = 8 * (inputs + 2) * e.tiny * (1 + steep + 1 / beta)
        moved = (e.gamma(inputs + 1) + 3 * e.gamma(3)) * size + underflow
        # All other tokens hold the floor, which lies this far behind the largest line, in logits.
        behind = beta * (_ball(ends[0]) - floor - 2 * moved - 2 * apart)
        leak = (tokens - len(stated)) * (-behind).exp()
        # Weights: two exponentials, a sum and a quotient; the average: a sum of products.
        weights = leak + e.gamma(tokens + 22) + e.gamma(tokens + 1) + 4 * (tokens + 2) * e.tiny
        blunt = below_maximum(len(stated)) / beta
        # A product of the average that is flushed is lost however small the values are.
        error = blunt + apart + 3 * moved + 2 * size * weights + e.underflow(tokens)
        return Sharp(ends, error, size + error)

    def _stored_lines(self, h: int) -> tuple[arb, arb, arb]:
        """The lines of a head as stored: distance to the stated ones, sizes that they add up, steepest slope."""
        apart = size = steep = ZERO
        for m, line in enumerate(self.pieces.heads[h].lines):
            token = self.first[h] + m
            slopes = self.slopes[:, token, h]
            offset = float(self.offsets[token, h])
            apart = apart.max(self._apart(line, slopes, offset))
            own = abs(arb(offset))
            for s, reach in zip(slopes.tolist(), self.reach, strict=True):
                own = own + abs(arb(s)) * _ball(reach)
                steep = steep.max(abs(arb(s)))
            size = size.max(own)
        return apart, size, steep

    def _sum(self, k: int, one: PieceSum) -> tuple[arb, arb, tuple[Fraction, Fraction]]:
        """A sum as executed: its error, its size, and the ends of what it truly is."""
        at = len(self.heads) + k
        line = self.slopes[:, 0, at]
        offset = float(self.offsets[0, at])
        error = self._apart(one.line, line, offset)
        size = abs(arb(offset))
        total = arb(1)
        low, high = self._image(one.line)
        for s, reach in zip(line.tolist(), self.reach, strict=True):
            size = size + abs(arb(s)) * _ball(reach)
            total = total + abs(arb(s))
        for weight, kept, head in zip(one.weights, self.t["W_O"][:, at].tolist(), self.heads, strict=True):
            exact = rational(weight)
            own = abs(arb(kept))
            # The stored weight is the float next to the stated one.
            missed = _ball(abs(exact - Fraction(kept)))
            error = error + own * head.error + missed * head.size
            size = size + own * head.size
            total = total + own
            ends = [exact * end for end in head.ends]
            low = low + min(ends)
            high = high + max(ends)
        terms = len(self.heads) + len(self.reach) + 3
        underflow = 2 * terms * self.e.tiny * total
        return error + self.e.gamma(terms) * (size + error) + underflow, size, (low, high)

    def _curve(self, k: int, curve: CurveTerm) -> tuple[arb, arb]:
        """|G(u^) - g(u)|, and the size of what its units add to the output."""
        drift, size, (low, high) = self._sum(k, curve.argument)
        bottom, top = _floats(low, high)
        mine = np.flatnonzero(self.units == k)
        units = TermUnits.stored(self.biases, self.changes, mine, curve.constant)
        return term_distance(curve.formula, units, FormedSum(bottom, top, drift, size), self.e)


def _ball(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def _floats(low: Fraction, high: Fraction) -> tuple[float, float]:
    """Floats around two numbers, different ones."""
    return math.nextafter(float(low), -math.inf), math.nextafter(float(high), math.inf)
