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
from onelayer.checker.identity import Algebra, has_values
from onelayer.checker.kinks import Expansion, plus, rational, scale
from onelayer.checker.outcome import Rejected
from onelayer.checker.rounding import Execution
from onelayer.checker.terms import FormedSum, TermUnits, term_distance
from onelayer.checker.weights import Array, Stored
from onelayer.language.formula import Formula
from onelayer.lemmas.pieces import CurveTerm, Pieces, PieceSum

Domain = tuple[tuple[float, ...], tuple[float, ...]]


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
        self.first = np.cumsum([1, *(len(head.lines) for head in pieces.heads)])  # first token of every head, and N
        self.biases = self.changes = np.zeros(0)  # of the units, where there are any
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
        _require(all(config.get(name) == value for name, value in wanted.items()), "another kind of layer")
        _require(stored.token_width == self.pieces.inputs and t["W_R"].shape[1] == outputs, "other inputs or outputs")
        shapes = [(head["d_k"], head["d_v"], head["memory"]) for head in config["heads"]]
        _require(shapes == [(1, 1, "none")] * heads, "other heads")
        self.slopes = t["W_E"].reshape(self.pieces.inputs, tokens, width)
        self.offsets = t["b_E"].reshape(tokens, width)
        self._embedding_form(heads)
        keys = np.zeros_like(t["W_K"])
        self.sharpness: Array = t["W_K"][np.arange(heads), np.arange(heads)]
        keys[np.arange(heads), np.arange(heads)] = self.sharpness
        _require(np.array_equal(t["W_K"], keys) and bool((self.sharpness > 0).all()), "W_K")
        _require(np.array_equal(t["W_V"], np.eye(width)[:, :heads]), "W_V")
        _require(not t["W_Q"].any() and bool((t["b_Q"] == 1).all()), "W_Q")
        _require(not (t["b_K"].any() or t["b_V"].any() or t["b_O"].any() or t["W_O"][:, :heads].any()), "W_O")
        _require(np.array_equal(t["W_R"], np.eye(width)[:, width - outputs :]), "W_R")
        if len(self.units):
            self._unit_form(heads, width)

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
        _require(not slopes.any(), "W_E")
        _require(bool((offsets[:, :heads] == self.floors).all()) and not offsets[:, heads:].any(), "b_E")

    def _unit_form(self, heads: int, width: int) -> None:
        t = self.t
        count = len(self.units)
        into = np.zeros_like(t["W_1"])
        out = np.zeros_like(t["W_2"])
        into[heads + self.units, np.arange(count)] = 1.0
        column = np.array([curve.output for curve in self.pieces.curves])[self.units] + width - self.pieces.outputs
        self.biases = t["b_1"]
        self.changes = t["W_2"][np.arange(count), column]
        out[np.arange(count), column] = self.changes
        _require(np.array_equal(t["W_1"], into), "W_1")
        _require(np.array_equal(t["W_2"], out) and not t["b_2"].any(), "W_2")

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
        apart = ZERO
        size = abs(floor)
        steep = ZERO
        for m, line in enumerate(stated):
            slopes = self.slopes[:, self.first[h] + m, h]
            offset = float(self.offsets[self.first[h] + m, h])
            apart = apart.max(self._apart(line, slopes, offset))
            own = abs(arb(offset))
            for s, reach in zip(slopes.tolist(), self.reach, strict=True):
                own = own + abs(arb(s)) * _ball(reach)
                steep = steep.max(abs(arb(s)))
            size = size.max(own)
        images = [self._image(line) for line in stated]
        ends = max(a for a, _ in images), max(b for _, b in images)
        # A line: a sum of products; its key: one product; its logit: the difference to the largest one.
        underflow = 8 * (inputs + 2) * e.tiny * (1 + steep + 1 / beta)
        moved = (e.gamma(inputs + 1) + 3 * e.gamma(3)) * size + underflow
        behind = beta * (_ball(ends[0]) - floor - 2 * moved - 2 * apart)
        leak = (tokens - len(stated)) * (-behind).exp()
        # Weights: two exponentials, a sum and a quotient; the average: a sum of products.
        weights = leak + e.gamma(tokens + 22) + e.gamma(tokens + 1) + 4 * (tokens + 2) * e.tiny
        error = _gap(len(stated)) / beta + apart + 3 * moved + 2 * size * weights
        return Sharp(ends, error, size + error)

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
            error = error + own * head.error + _ball(abs(exact - Fraction(kept))) * head.size
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


def _gap(count: int) -> arb:
    """c with c e^c >= (count - 1)/e."""
    if count == 1:
        return ZERO
    c = (arb(count - 1) / arb.const_e()).lambertw().upper() * (1 + arb(2) ** -40)
    _require(bool(c * c.exp() >= arb(count - 1) / arb.const_e()), "Lambert's function")
    return c


def _ball(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def _floats(low: Fraction, high: Fraction) -> tuple[float, float]:
    """Floats around two numbers, different ones."""
    bottom = math.nextafter(float(low), -math.inf)
    top = math.nextafter(float(high), math.inf)
    return bottom, max(top, bottom + 1e-9 * (1 + abs(bottom)))


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise Rejected(f"the layer does not have the form of sharp heads over pieces: {complaint}")
