"""Functions of one variable in the checker's arithmetic: broken lines against formulas, images of intervals."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, constant, coordinate
from onelayer.checker.attention import Matrix, SoftmaxQuotient, Vector, attend
from onelayer.checker.formula import enclosed, evaluate
from onelayer.checker.functions import Ends, Kinks
from onelayer.checker.intervals import image
from onelayer.language.formula import Formula

ORDER = 3  # of the enclosures; pieces are short, so higher ones bring little
TIGHT = 1.0001  # a box is bounded well enough within this factor of the largest value seen
DIGITS = 1e-13  # or within this share of the values
BOXES, BOXES_PER_PIECE = 4096, 64  # after so many boxes a bound is taken as it is
CELLS = 512  # of an interval whose image is wanted, as many as a proof takes


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
    """On [low, high] the function sum_m softmax(slopes s + biases)_m values_m, the values a column."""

    low: float
    high: float
    slopes: Sequence[float]
    biases: Sequence[float]
    values: Matrix

    def at(self, s: Taylor) -> Taylor:
        """The average that a head of the real layer takes."""
        logits = [s.scaled(arb(a)).shifted(arb(b)) for a, b in zip(self.slopes, self.biases, strict=True)]
        softmax = SoftmaxQuotient(Vector(logits, [ZERO] * len(logits)), None)
        return attend(softmax, [], self.values, None, s.order).items[0]

    @property
    def size(self) -> arb:
        """The largest value that is averaged."""
        low, high = self.values.ends
        return arb(max(abs(float(low[0])), abs(float(high[0]))))

    @property
    def blur(self) -> arb:
        """Nothing is left out."""
        return arb(0)


Piece = Line | Average


def lines(knots: Sequence[float], changes: Sequence[arb], offset: arb, low: float, high: float) -> list[Line]:
    """offset + sum_u changes[u] relu(s - knots[u]) on [low, high], piece by piece; knots ascend.

    An interval of one number is one piece: a function may vary by far more on the smallest one that has a width.
    """
    value = offset
    slope = arb(0)
    inner = []
    for knot, change in zip(knots, changes, strict=True):
        if knot <= low:
            value = value + change * (arb(low) - arb(knot))
            slope = slope + change
        elif knot < high:
            inner.append((knot, change))
    found = []
    ends = [(low, arb(0)), *inner, (high, arb(0))]
    for (start, change), (stop, _) in pairwise(ends):
        slope = slope + change
        if stop > start or low == high:
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
    """Upper bound of |pieces - formula| over their intervals; infinite where the formula is undefined, or without any.

    The interval with the largest bound is halved, until that bound is close to a value that is reached, or no interval
    is left to spend.
    """
    largest = max((max(_values(formula, piece)) for piece in pieces), default=0.0)
    size = max((float(piece.size.upper()) for piece in pieces), default=0.0)
    pending: list[Part] = []
    for piece in pieces:
        heapq.heappush(pending, Part.of(formula, piece, piece.low, piece.high))
    for _ in range(BOXES + BOXES_PER_PIECE * len(pieces)):
        if not pending:
            return arb.pos_inf()
        worst = pending[0]
        middle = worst.low / 2 + worst.high / 2
        tight = bool(worst.bound <= TIGHT * largest + DIGITS * size)
        if tight or not worst.low < middle < worst.high:
            break
        heapq.heappop(pending)
        for low, high in ((worst.low, middle), (middle, worst.high)):
            half = Part.of(formula, worst.piece, low, high)
            largest = max(largest, half.reached)
            heapq.heappush(pending, half)
    return _worst(pending)


@dataclass(frozen=True)
class Part:
    """An interval of a piece: an upper bound of the distance there, and one that is reached at its centre."""

    piece: Piece
    low: float
    high: float
    bound: arb
    reached: float

    def __lt__(self, other: Part) -> bool:
        """Worst first, for a heap; what is not finite is worst of all."""
        return self._rank > other._rank

    @property
    def _rank(self) -> float:
        if self.bound.is_finite():
            return float(self.bound)
        return math.inf

    @classmethod
    def of(cls, formula: Formula, piece: Piece, low: float, high: float) -> Part:
        """The distance on [low, high]."""
        bound, centre = _bound(formula, piece, low, high)
        reached = float(centre) if centre.is_finite() else 0.0
        return cls(piece, low, high, (bound + piece.blur).upper(), reached)


def _worst(parts: Sequence[Part]) -> arb:
    """The largest bound. A heap ranks them by floats: of several that round to one, any may stand first."""
    bound = parts[0].bound
    for part in parts[1:]:
        bound = bound.max(part.bound)
    return bound if bound.is_finite() else arb.pos_inf()


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
    ((item, (bottom, top)),) = enclosed(formula, [s], Kinks())
    taylor: Taylor = item - line
    bound = taylor.range().abs_upper()
    # The ends of both may know more: at a root or a kink, and where the formula is a product with a spike.
    least, most = line.ends()
    farthest = (top - least).max(most - bottom)
    if not bound.is_finite():
        return farthest, arb(0)
    return farthest if farthest < bound else bound, taylor.c[0].abs_lower()


def below(value: arb) -> float:
    """A float below a number."""
    return math.nextafter(float(value.lower()), -math.inf)


def above(value: arb) -> float:
    """A float above a number."""
    return math.nextafter(float(value.upper()), math.inf)


def range_of(formula: Formula, low: float, high: float) -> Ends:
    """Ends of an interval that holds all values over [low, high].

    Intervals of its cells hold them, and so do enclosures, which know what cancels in the formula and take longer: they
    narrow the cells that reach farthest, as long as those reach farther than one that is narrowed.
    """
    edges = [low + (high - low) * k / CELLS for k in range(CELLS)] + [high]
    # Floats that follow each other: whatever they round to, neighbouring cells share them.
    sides = list(pairwise(edges))
    cells = [image(formula, [(arb(a), arb(b))])[0] for a, b in sides]
    narrow: set[int] = set()
    for reach in (_downward, _upward):
        farthest = -math.inf
        for at in sorted(range(CELLS), key=lambda at: reach(cells[at]), reverse=True):
            if reach(cells[at]) <= farthest:
                break
            if at not in narrow:
                cells[at] = enclosed(formula, [coordinate(0, *sides[at], ORDER)], Kinks())[0][1]
                narrow.add(at)
            farthest = max(farthest, reach(cells[at]))
    bottom, top = cells[0]
    for a, b in cells[1:]:
        bottom = bottom.min(a)
        top = top.max(b)
    return bottom.lower() if not bottom.is_zero() else bottom, top.upper()


def _downward(ends: Ends) -> float:
    """How far an interval reaches down, infinitely where nothing is known; a float beside it is near enough."""
    return -float(ends[0]) if ends[0].is_finite() else math.inf


def _upward(ends: Ends) -> float:
    return float(ends[1]) if ends[1].is_finite() else math.inf
