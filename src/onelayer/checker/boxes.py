"""Re-prove |T - f| <= upper on one box: enclose, subdivide the polynomial, take kinks by cases, cut the box."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, coordinate, monomials, whole_power
from onelayer.checker.attention import Vector
from onelayer.checker.cuts import Corner, Found, cut, middle, split_axis, turned, weight
from onelayer.checker.formula import enclosed
from onelayer.checker.functions import Kinks, proportion
from onelayer.checker.quotient import divides, quotients
from onelayer.language.formula import Formula
from onelayer.observer import Observer

MAX_CASES = 3  # different kinks taken by cases at once on one box; with more, the box is cut first
PIECES = 800  # of the polynomial of one box
PROVED, REFUTED, OPEN = "proved", "refuted", "open"

Cleared = list[tuple[Taylor, arb]] | None  # T D - N and min|D| per output; None where the formula may be undefined
Evaluated = Callable[[Sequence[Taylor], Kinks], Vector]  # a layer, or another formula in its place


@dataclass(frozen=True)
class BoxOutcome:
    """Outcome for one box; ``place`` is a point with a larger error (refuted) or the centre of what resisted (open)."""

    outcome: str
    place: tuple[float, ...] = ()
    bound: float = 0.0


class Prover:
    """Proves |T - f| <= limit on boxes, T being the layer as executed and f the formula.

    Lemma: on a box, T_executed - f = g + r with g in the Taylor enclosure and |r| <= rounding. It suffices that every
    output's polynomial is bounded by limit - rounding on pieces that cover [-1, 1]^D; or that this holds under each
    sign of an undecided kink; or on both halves of the box. For f = N / D it suffices too that T D - N is bounded by
    (limit - rounding) min|D|.
    """

    def __init__(
        self,
        layer: Evaluated,
        formula: Formula,
        limit: float,
        order: int,
        budget: int,
        observer: Observer | None = None,
    ) -> None:
        self.layer = layer
        self.formula = formula
        self.limit = arb(limit)
        self.observer = observer or Observer()
        self.order = order
        self.budget = budget
        self.divides = self.clears_first = divides(formula)

    def __call__(self, low: Corner, high: Corner) -> BoxOutcome:
        """Best first: where the error at the centre is largest, so that a false claim is refuted early.

        Raises Stopped when the observer says that it is over.
        """
        fresh: list[tuple[Corner, Corner]] = [(tuple(low), tuple(high))]
        opened: list[tuple[float, int, Corner, Corner, Found]] = []
        parent: Found | None = None
        spent = 0
        while fresh or opened:
            for low, high in fresh:
                self.observer.check()
                found = self._box(low, high)
                if found.outcome == REFUTED:
                    return BoxOutcome(REFUTED, found.place, found.bound)
                if found.outcome == OPEN:
                    found = turned(found, parent, low, high)
                    heapq.heappush(opened, (-found.centre, spent * 2 + len(opened), low, high, found))
            fresh = []
            if opened:
                _, _, low, high, parent = heapq.heappop(opened)
                spent += 1
                halves = cut(low, high, parent.axis)
                if spent > self.budget or halves is None:
                    return BoxOutcome(OPEN, middle(low, high), parent.bound + parent.rounding)
                fresh = halves
        return BoxOutcome(PROVED)

    def coordinates(self, low: Corner, high: Corner) -> list[Taylor]:
        """The coordinates of a box as variables."""
        return [coordinate(i, a, b, self.order) for i, (a, b) in enumerate(zip(low, high, strict=True))]

    def error(self, x: Sequence[Taylor], t: Vector, kinks: Kinks) -> list[Gap]:
        """What is known of each output of T - f."""
        f = enclosed(self.formula, x, kinks)
        found = []
        for a, rounding, (b, (low, high)) in zip(t.items, t.errors, f, strict=True):
            bottom, top = a.ends()
            found.append(Gap(a - b, (top - low).max(high - bottom), rounding))
        return found

    def cleared(self, x: Sequence[Taylor], t: Vector) -> Cleared:
        """T D - N and min|D| for each output of a formula that divides; None where it may be undefined."""
        f = quotients(self.formula, x, Kinks()) if self.divides else None
        if f is None:
            return None
        found = []
        for a, q in zip(t.items, f[0], strict=True):
            difference = a * q.below(self.order) - q.above(self.order)
            found.append((difference, q.size_below()))
        if all(gap > 0 for _, gap in found):
            return found
        return None

    def _box(self, low: Corner, high: Corner) -> Found:
        kinks = Kinks()
        x = self.coordinates(low, high)
        t = self.layer(x, kinks)
        # What settled the last box is tried first on this one.
        cleared = self.cleared(x, t) if self.clears_first else None
        if self._bounded_cleared(cleared, t.errors):
            return Found(PROVED)
        gaps = self.error(x, t, kinks)
        refuted = self._refuted(gaps, low, high)
        if refuted is not None:
            return refuted
        if self._bounded(gaps):
            self.clears_first = False
            return Found(PROVED)
        if not self.clears_first:
            cleared = self.cleared(x, t)
            self.clears_first = self._bounded_cleared(cleared, t.errors)
            if self.clears_first:
                return Found(PROVED)
        if 0 < distinct(kinks.open) <= MAX_CASES and self._by_cases(low, high, kinks.open[0], []):
            return Found(PROVED)
        return self._open(gaps, cleared, kinks, low, high)

    def _refuted(self, gaps: Sequence[Gap], low: Corner, high: Corner) -> Found | None:
        """A point where the error is above the limit whatever the rounding: tried are the centre and two corners."""
        for gap in gaps:
            for place in (ZERO, arb(1), arb(-1)):
                least = climb(gap.item, place).abs_lower() - gap.rounding
                if least > self.limit:
                    return Found(REFUTED, bound=float(least), place=steepest(gap.item, place, low, high))
        return None

    def _open(self, gaps: Sequence[Gap], cleared: Cleared, kinks: Kinks, low: Corner, high: Corner) -> Found:
        """What is known of an undecided box: its bound, its centre, and where to cut it."""
        g = [gap.item for gap in gaps]
        rounding = max(float(gap.rounding.upper()) for gap in gaps)
        worst = _largest(g)
        if cleared is not None:
            h = [item.scaled(1 / gap) for item, gap in cleared]
            bound = _largest(h)
            # Where f itself cannot be enclosed, the quotient says where to cut.
            if worst < math.inf:
                worst = min(worst, bound)
            else:
                g, worst = h, bound
        centre = max(abs(float(item.c[0].mid())) for item in g)
        axis = split_axis(g, kinks.open, low, high)
        return Found(OPEN, axis, worst, centre, rounding=rounding, blind=not kinks.open and _mostly_remainder(g))

    def _by_cases(self, low: Corner, high: Corner, kink: Taylor, cases: list[tuple[Taylor, int]]) -> bool:
        """Whether the bound holds on the whole box under either sign of ``kink``, given the signs in ``cases``.

        Every point has one of the two signs. What is bounded is the branch of that sign, continued to the whole box:
        more than is needed.
        """
        for sign in (1, -1):
            assumed = [*cases, (kink, sign)]
            kinks = Kinks(assumed)
            x = self.coordinates(low, high)
            if self._bounded(self.error(x, self.layer(x, kinks), kinks)):
                continue
            full = len(assumed) >= MAX_CASES or not kinks.open
            if full or not self._by_cases(low, high, kinks.open[0], assumed):
                return False
        return True

    def _bounded_cleared(self, cleared: Cleared, rounding: Sequence[arb]) -> bool:
        if cleared is None:
            return False
        pairs = zip(cleared, rounding, strict=True)
        return all(below(h, (self.limit - r) * gap, PIECES) for (h, gap), r in pairs)

    def _bounded(self, gaps: Sequence[Gap]) -> bool:
        return all(gap.below(self.limit) for gap in gaps)


@dataclass(frozen=True)
class Gap:
    """One output of T - f on a box: an enclosure, a bound that the ends of T and of f leave, the execution's rounding.

    Where f is a product with a factor that is all remainder, its ends alone know that it is not negative.
    """

    item: Taylor
    most: arb
    rounding: arb

    def below(self, limit: arb) -> bool:
        """Whether |T - f| <= limit, rounding included, on the whole box."""
        room = limit - self.rounding
        return bool(self.most <= room) or below(self.item, room, PIECES)


def climb(g: Taylor, t: arb) -> arb:
    """The value of g at t times the corner towards which its linear part grows."""
    total = g.c[0]
    signs = _signs(g)
    for c, exponents in zip(g.c[1:], monomials(len(g.support), g.degree)[1:], strict=True):
        turned_powers = sum(e for s, e in zip(signs, exponents, strict=True) if s < 0)
        sign = -1 if turned_powers % 2 else 1
        total = total + c * whole_power(t, sum(exponents)) * sign
    return total


def steepest(g: Taylor, t: arb, low: Corner, high: Corner) -> tuple[float, ...]:
    """The point at which :func:`climb` evaluates: the centre or a corner in the variables of g."""
    place = list(middle(low, high))
    for variable, sign in zip(g.support, _signs(g), strict=True):
        if not t.is_zero():
            upwards = (sign > 0) == bool(t > 0)
            place[variable] = high[variable] if upwards else low[variable]
    return tuple(place)


def _signs(g: Taylor) -> list[int]:
    linear = g.c[1 : 1 + len(g.support)] or [ZERO] * len(g.support)
    return [-1 if c.mid() < 0 else 1 for c in linear]


def distinct(kinks: Sequence[Taylor]) -> int:
    """How many of the arguments are not multiples of each other, counted up to one more than MAX_CASES."""
    found: list[Taylor] = []
    for u in kinks:
        # The share below which Kinks takes a case to decide an argument.
        small = u.range().abs_upper() / 1024
        if not any(proportion(u, v)[1].abs_upper() < small for v in found):
            found.append(u)
        if len(found) > MAX_CASES:
            break
    return len(found)


def below(g: Taylor, limit: arb, pieces: int) -> bool:
    """Whether |g| <= limit on [-1, 1]^s, by bisecting the polynomial where its coefficients do not settle it.

    Lemma: g is a polynomial with the middles of the balls for coefficients, to within the sum of their radii. A
    polynomial that is monotone in one variable lies between its values on the two faces of that variable.
    """
    if g.range().abs_upper() <= limit:
        return True
    # From here on coefficients are numbers, so that a face or a half does not widen them.
    middle = Taylor(g.support, [c.mid() for c in g.c], g.order)
    limit = limit - sum((c.rad() for c in g.c), ZERO)
    pending = [middle]
    for _ in range(pieces):
        item = pending.pop()
        if not _between(item, limit):
            # What no bisection removes: the value at the centre. A NaN is not below any limit either.
            if not item.support or not item.c[0].abs_upper() <= limit:
                return False
            pending += _parts(item)
        if not pending:
            return True
    return False


def _between(item: Taylor, limit: arb) -> bool:
    low, high = item.ends()
    return bool(low >= -limit) and bool(high <= limit)


def _parts(item: Taylor) -> list[Taylor]:
    """Two polynomials such that this one is within a bound if they are: on two faces, or on two halves."""
    for variable in item.support:
        slope = item.slope(variable)
        if slope >= 0 or slope <= 0:
            return [item.face(variable, upper) for upper in (False, True)]
    variable = max(item.support, key=lambda v: weight(item, v))
    return [item.restricted(variable, upper) for upper in (False, True)]


def _largest(items: Sequence[Taylor]) -> float:
    return max(float(item.range().abs_upper()) for item in items)


def _mostly_remainder(items: Sequence[Taylor]) -> bool:
    """Whether the element with the largest bound owes more than half of it to radii; a NaN owes all."""
    worst = max(items, key=lambda item: _or_infinite(item.range().abs_upper()))
    radii = sum((c.rad() for c in worst.c), ZERO)
    return not 2 * radii < worst.range().abs_upper()


def _or_infinite(bound: arb) -> float:
    return math.inf if bound.is_nan() else float(bound)
