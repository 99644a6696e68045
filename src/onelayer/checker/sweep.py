"""Re-prove |T - f| <= upper on many boxes at once, in the arithmetic of many.py; what resists is left to balls.

Lemma: T_executed - f = g + r, g in the enclosure of the real layer and |r| <= rounding, which is bounded in balls once
for a box around many: as many neighbours as leave most of the limit to g, or one. It suffices that |g| <= limit -
rounding on every box, or on both halves of it; for f = N / D that |T D - N| <= (limit - rounding) min|D|.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import Taylor, coordinate, count, monomials
from onelayer.checker.attention import Vector
from onelayer.checker.formula import node_value
from onelayer.checker.functions import FUNCTIONS, Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.many import Many, coordinates, lifted
from onelayer.checker.operations import CONSTANTS, chosen
from onelayer.checker.polynomials import stay_below
from onelayer.checker.quotient import divides, quotients
from onelayer.checker.spans import Floats, Span
from onelayer.language.formula import Formula
from onelayer.language.knots import Spline
from onelayer.observer import Observer

NUMBERS = 2**18  # coefficients of one element: what fits into a cache
EVALUATIONS = 24  # per box of a call, whichever of them need more; then balls are likely to do better
MOST = 256  # of one box, which may be hopeless
LEFT = 0.9  # of the limit: where rounding around many boxes leaves less, it is bounded around half as many

KNOWN = {
    "var",
    "num",
    *CONSTANTS,
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "pow",
    "min",
    "max",
    "relu",
    "abs",
    "where",
    *FUNCTIONS,
}

Boxes = tuple[Floats, Floats]
Bounded = list[tuple[Taylor, Any]]  # an element per output, and what it has to stay below for each unit of the limit


class Sweep:
    """Proves |T - f| <= limit on boxes, many at a time, at one order."""

    def __init__(self, executed: Layer, formula: Formula, limit: float, order: int, observer: Observer) -> None:
        self.real = Layer(executed.stored, None)
        self.executed = executed
        self.formula = formula
        self.limit = limit
        self.order = order
        self.observer = observer
        self.ways: list[Callable[[Sequence[Taylor], Vector], Bounded | None]] = [self._plain]
        if divides(formula):
            self.ways = [self._cleared, self._plain]
        self.at_once = int(np.clip(NUMBERS // count(formula.dim, order), 16, 4096))

    def __call__(self, low: Floats, high: Floats) -> Any:
        """On which of the boxes (N, D) the bound is proved; each is cut into parts as long as that may help."""
        limits = self._limits(low, high)
        spent = np.zeros(len(low), dtype=np.int64)
        proved = np.ones(len(low), dtype=bool)
        owner = np.arange(len(low))
        while len(owner):
            parts = []
            for at in range(0, len(owner), self.at_once):
                self.observer.check()
                some = slice(at, at + self.at_once)
                mine = owner[some]
                axis = self._enclose(low[some], high[some], limits[:, mine])
                spent += np.bincount(mine, minlength=len(spent))
                centre, cuttable = _centres(low[some], high[some], axis)
                proved[mine[(axis >= 0) & ~(cuttable & _may_go_on(spent)[mine])]] = False
                open_ = (axis >= 0) & proved[mine]
                lows, highs = _halves(low[some][open_], high[some][open_], axis[open_], centre[open_])
                parts.append((lows, highs, mine[open_]))
            low, high = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
            owner = np.concatenate([np.tile(part[2], 2) for part in parts])
            kept = proved[owner]
            low = low[kept]
            high = high[kept]
            owner = owner[kept]
        return proved

    def _limits(self, low: Floats, high: Floats) -> Floats:
        """What is left of the limit for each output and box (K, N) when rounding is taken off."""
        self.observer.check()
        left = self._left(low, high)
        if len(low) == 1 or all(limit >= LEFT * self.limit for limit in left):
            return np.tile(np.array(left)[:, None], len(low))
        # Boxes that follow each other in the tree are neighbours.
        half = len(low) // 2
        first = self._limits(low[:half], high[:half])
        return np.concatenate([first, self._limits(low[half:], high[half:])], axis=1)

    def _left(self, low: Floats, high: Floats) -> list[float]:
        """The same on a box around all of these, for each output."""
        corners = zip(low.min(0).tolist(), high.max(0).tolist(), strict=True)
        x = [coordinate(i, a, b, 1) for i, (a, b) in enumerate(corners)]
        errors = self.executed.strayed(x)
        left = [float((arb(self.limit) - e).lower()) for e in errors]
        # Below the ball, whichever way its lower end was rounded to a float.
        return [float(np.nextafter(limit, -np.inf)) for limit in left]

    def _enclose(self, low: Floats, high: Floats, limits: Floats) -> Any:
        """For each box -1 where the bound is proved, else the coordinate to cut next."""
        x = coordinates(low, high, self.order)
        t = self.real(x, Kinks())
        proved: Any = np.zeros(len(low), dtype=bool)
        found: Bounded | None = None
        for way in list(self.ways):
            bounded = way(x, t)
            if bounded is None:
                continue
            found = bounded
            proved = _within(bounded, limits, len(low))
            if proved.any():  # the next boxes are likely to need the same way
                self.ways = [way, *(other for other in self.ways if other != way)]
                break
        return np.where(proved, -1, _axes(found, low.shape[1], low, high))

    def _plain(self, x: Sequence[Taylor], t: Vector) -> Bounded | None:
        f = evaluate(self.formula, x)
        return [(a - b, 1.0) for a, b in zip(t.items, f, strict=True)]

    def _cleared(self, x: Sequence[Taylor], t: Vector) -> Bounded | None:
        f = quotients(self.formula, x, Kinks())
        if f is None:
            return None
        order = self.order
        outputs, sound = f
        found: Bounded = []
        for a, q in zip(t.items, outputs, strict=True):
            least = np.where(sound, Span.of(q.size_below()).low, np.nan)
            found.append((a * q.below(order) - q.above(order), least))
        return found


def knows(formula: Formula) -> bool:
    """Whether every operation of a formula has a form for many boxes."""
    return all(node.op in KNOWN and not isinstance(node.value, Spline) for node in formula.nodes)


def _within(bounded: Bounded, limits: Floats, count: int) -> Any:
    """On which boxes every element stays below its limit there (K, N)."""
    holds = np.ones(count, dtype=bool)
    for (item, unit), limit in zip(bounded, limits, strict=True):
        # A limit below zero, and one that is no number, allow nothing.
        allowed = np.broadcast_to(np.nextafter(limit * np.asarray(unit), -np.inf), count)
        most = Span.of(item.range()).abs_upper().high
        here = most <= allowed
        rest = np.flatnonzero(holds & ~here)
        if isinstance(item, Many) and rest.size:
            room = np.nextafter(allowed[rest] - item.rest[rest], -np.inf)
            here[rest] = stay_below(item.p[:, rest], len(item.support), item.degree, room)
        holds &= here
    return holds


def evaluate(formula: Formula, x: Sequence[Taylor]) -> list[Taylor]:
    """The outputs of a formula, undefined on each box on which a value that is needed is not surely defined."""
    values: list[Taylor] = []
    defined: list[Any] = []
    kinks = Kinks()
    for node in formula.nodes:
        args = [values[at] for at in node.args]
        values.append(node_value(node, args, x, kinks))
        own = [defined[at] for at in node.args]
        place = chosen(args[0].ends()) if node.op == "where" else None
        needed = own if place is None else [own[0], own[place]]
        defined.append(reduce(np.logical_and, needed, _defined(values[-1])))
    return [_fenced(values[at], defined[at]) for at in formula.outputs]


def _defined(value: Taylor) -> Any:
    if isinstance(value, Many):
        return value.defined()
    return np.asarray(value.is_finite())


def _fenced(value: Taylor, defined: Any) -> Taylor:
    """NaN where it is not defined."""
    if not isinstance(value, Many):
        if bool(np.all(defined)):
            return value
        value = lifted(value, np.size(defined))
    return Many(value.support, value.p, np.where(defined, value.rest, np.nan), value.order)


@cache
def _bends(s: int, degree: int) -> Any:
    """(s, P): 1 where a monomial of degree two or more holds the variable."""
    exponents = np.array(monomials(s, degree)).reshape(-1, s)
    return ((exponents > 0) & (exponents.sum(1, keepdims=True) > 1)).T.astype(np.float64)


def _axes(bounded: Bounded | None, dim: int, low: Floats, high: Floats) -> Any:
    """Per box the coordinate along which the error bends most; the widest where that is not known."""
    widths = high - low
    scores = np.zeros((dim, len(low)))
    for item, _ in bounded or []:
        if isinstance(item, Many) and item.support:
            scores[list(item.support)] += _bends(len(item.support), item.degree) @ np.abs(item.p)
    scores = np.where(widths.T > 0, scores, -1.0)
    known = np.isfinite(scores).all(0) & (scores.max(0) > 0)
    return np.where(known, scores.argmax(0), widths.argmax(1))


def _may_go_on(spent: Any) -> Any:
    """Which boxes may be evaluated again: each its share, and more while the others have left theirs."""
    left = spent.sum() < EVALUATIONS * len(spent) + MOST
    return spent < (MOST if left else EVALUATIONS)


def _centres(low: Floats, high: Floats, axis: Any) -> tuple[Floats, Any]:
    """The middle of one side of each box, and where a float lies between its ends."""
    rows = np.arange(len(low))
    a = low[rows, axis]
    b = high[rows, axis]
    centre = a / 2 + b / 2
    return centre, (a < centre) & (centre < b)


def _halves(low: Floats, high: Floats, axis: Any, centre: Floats) -> Boxes:
    """The lower halves of all boxes, then the upper ones."""
    rows = np.arange(len(low))
    below = high.copy()
    above = low.copy()
    below[rows, axis] = above[rows, axis] = centre
    return np.concatenate([low, above]), np.concatenate([below, high])
