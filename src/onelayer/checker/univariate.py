"""Functions of one variable in the checker's arithmetic: broken lines against formulas, images of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from flint import arb

from onelayer.checker.arithmetic import Taylor, combination, constant, coordinate
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Ends, Kinks, apply
from onelayer.checker.intervals import image
from onelayer.language.formula import Formula

ORDER = 3  # of the enclosures; pieces are short, so higher ones bring little
DEPTH = 70  # halvings of a piece
TIGHT = 1.0001  # a box is bounded well enough within this factor of the largest value seen
DIGITS = 1e-13  # or within this share of the values
BOXES, BOXES_PER_PIECE = 4096, 64  # after so many boxes a bound is taken as it is
CELLS = 256  # cells of an interval whose image is wanted


@dataclass(frozen=True)
class Line:
    """On [low, high] the function value + slope (s - low), and anything within ``blur`` of it."""

    low: float
    high: float
    value: arb
    slope: arb
    blur: arb

    def at(self, s: Taylor) -> Taylor:
        """The line as a function of s."""
        return s.shifted(-arb(self.low)).scaled(self.slope).shifted(self.value)

    @property
    def size(self) -> arb:
        """A bound of the values that the line is computed from."""
        return self.value.abs_upper()


@dataclass(frozen=True)
class Average:
    """On [low, high] the function sum_m softmax(slopes s + biases)_m values_m."""

    low: float
    high: float
    slopes: Sequence[float]
    biases: Sequence[float]
    values: Sequence[float]

    def at(self, s: Taylor) -> Taylor:
        """Numerator over denominator, both divided by the largest exponential at the centre."""
        logits = [s.scaled(arb(a)).shifted(arb(b)) for a, b in zip(self.slopes, self.biases, strict=True)]
        top = max((logit.c[0].mid() for logit in logits), key=float)
        weights = [apply("exp", logit.shifted(-top)) for logit in logits]
        order = s.order
        above = combination([(arb(v), w) for v, w in zip(self.values, weights, strict=True)], arb(0), order)
        below = combination([(arb(1), w) for w in weights], arb(0), order)
        return above * apply("inv", below)

    @property
    def size(self) -> arb:
        """The largest value that is averaged."""
        return arb(max(abs(v) for v in self.values))

    @property
    def blur(self) -> arb:
        """Nothing is left out."""
        return arb(0)


Piece = Line | Average


def lines(knots: Sequence[float], changes: Sequence[arb], offset: arb, low: float, high: float) -> list[Line]:
    """offset + sum_u changes[u] relu(s - knots[u]) on [low, high], piece by piece; knots ascend."""
    value, slope = offset, arb(0)
    inner = []
    for knot, change in zip(knots, changes, strict=True):
        if knot <= low:
            value, slope = value + change * (arb(low) - arb(knot)), slope + change
        elif knot < high:
            inner.append((knot, change))
    found = []
    ends = [(low, arb(0)), *inner, (high, arb(0))]
    for (start, change), (stop, _) in pairwise(ends):
        slope = slope + change
        if stop > start:
            found.append(Line(start, stop, value, slope, arb(0)))
            value = value + slope * (arb(stop) - arb(start))
    return found


def steepest(pieces: Sequence[Line]) -> arb:
    """The largest slope of any piece."""
    largest = arb(0)
    for piece in pieces:
        largest = largest.max(piece.slope.abs_upper())
    return largest


def distance(formula: Formula, pieces: Sequence[Piece]) -> arb:
    """Upper bound of |pieces - formula| over their intervals; not finite where the formula is undefined."""
    worst = arb(0)
    largest = max((max(_values(formula, piece)) for piece in pieces), default=0.0)
    size = max((float(piece.size.upper()) for piece in pieces), default=0.0)
    goal = TIGHT * largest + DIGITS * size
    left = BOXES + BOXES_PER_PIECE * len(pieces)
    for piece in pieces:
        bound, left = _by_halves(formula, piece, goal, left)
        if not bound.is_finite():
            return arb.pos_inf()
        worst = worst.max(bound)
    return worst.upper()


def _by_halves(formula: Formula, piece: Piece, goal: float, left: int) -> tuple[arb, int]:
    """Bound over one piece, which is halved while that may help; and how many intervals are left to spend."""
    worst = arb(0)
    pending = [(piece.low, piece.high, 0)]
    while pending:
        low, high, depth = pending.pop()
        bound, centre = _bound(formula, piece, low, high)
        middle = low / 2 + high / 2
        tight = bool(bound <= goal) or bool(bound <= TIGHT * centre)
        left -= 1
        if not tight and depth < DEPTH and left > 0 and low < middle < high:
            pending += [(low, middle, depth + 1), (middle, high, depth + 1)]
            continue
        if not bound.is_finite():
            return arb.pos_inf(), left
        worst = worst.max(bound + piece.blur)
    return worst, left


def _values(formula: Formula, piece: Piece) -> list[float]:
    """|line - formula| at some points, to know what can be proved; points without a value count as zero."""
    found = [0.0]
    for part in range(9):
        s = piece.low + (piece.high - piece.low) * part / 8
        value = evaluate(formula, [constant(arb(s), 1)], Kinks())[0].c[0]
        gap = value - piece.at(constant(arb(s), 1)).c[0]
        if gap.is_finite():
            found.append(float(abs(gap).upper()))
    return found


def _bound(formula: Formula, piece: Piece, low: float, high: float) -> tuple[arb, arb]:
    """Upper bound of |line - formula| on a box, and a lower bound of it at the centre."""
    s = coordinate(0, low, high, ORDER)
    line = piece.at(s)
    taylor: Taylor = evaluate(formula, [s], Kinks())[0] - line
    bound = taylor.range().abs_upper()
    if bound.is_finite():
        return bound, taylor.c[0].abs_lower()
    bottom, top = image(formula, [(arb(low), arb(high))])[0]
    ends = line.range()
    return (top - ends).abs_upper().max((bottom - ends).abs_upper()), arb(0)


def range_of(formula: Formula, low: float, high: float) -> Ends:
    """Ends of an interval that holds all values over [low, high]."""
    edges = [low + (high - low) * k / CELLS for k in range(CELLS)] + [high]
    cells = [image(formula, [(arb(a), arb(b))])[0] for a, b in pairwise(edges)]
    bottom, top = cells[0]
    for a, b in cells[1:]:
        bottom, top = bottom.min(a), top.max(b)
    return bottom.lower() if not bottom.is_zero() else bottom, top.upper()
