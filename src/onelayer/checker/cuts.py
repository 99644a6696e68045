"""Where the checker cuts a box that it cannot prove: along the coordinate that seems to matter, and by what cuts did.

Any cut is sound, as both halves are proved; a wrong one costs time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onelayer.checker.arithmetic import Taylor, monomials

HELPED = 0.9  # a cut has helped if it shrinks the bound by this factor
HALVED = 0.5  # and much if by this one
NOTHING = 2.0**-20  # it has done nothing if it moves the bound by no more than this share, down or up
REST = 8  # cuts for which a coordinate rests along which one has done nothing: each would only double the boxes

Corner = Sequence[float]


@dataclass(frozen=True)
class Found:
    """What one evaluation of a box gave: outcome, axis to cut next, bound, error at the centre, counterexample.

    An execution may be off by ``rounding`` beside the bound. Where that is ``blind``, remainders are most of it, and
    they say of no axis that it is theirs. Axes that are ``idle`` rest for some cuts more.
    """

    outcome: str
    axis: int = 0
    bound: float = 0.0
    centre: float = 0.0
    place: tuple[float, ...] = ()
    rounding: float = 0.0
    blind: bool = False
    idle: Mapping[int, int] = field(default_factory=dict)


def split_axis(g: Sequence[Taylor], kinks: Sequence[Taylor], low: Corner, high: Corner) -> int:
    """The coordinate along which an undecided kink varies most, or the error bends most: remainders come from that.

    Of several kinks the one that varies most: where cuts have made one small, another may be what is left.
    """
    widths = [b - a for a, b in zip(low, high, strict=True)]
    usable = [i for i, width in enumerate(widths) if width > 0] or [0]
    for degree in (1,) if kinks else (2, 1):
        scores = _scores([max(kinks, key=_varies)] if kinks else g, degree, len(widths))
        best = max(usable, key=scores.__getitem__)
        if scores[best] > 0 and all(map(math.isfinite, scores)):
            return best
    return max(usable, key=widths.__getitem__)


def _varies(kink: Taylor) -> float:
    """How much the argument of a kink varies to first order; not at all where that is not known."""
    size = sum(weight(kink, variable) for variable in kink.support)
    return size if math.isfinite(size) else -1.0


def _scores(items: Sequence[Taylor], degree: int, dim: int) -> list[float]:
    """How much each coordinate matters in the terms of a degree."""
    scores = [0.0] * dim
    for item in items:
        for variable in item.support:
            scores[variable] += weight(item, variable, degree)
    return scores


def weight(item: Taylor, variable: int, degree: int = 1) -> float:
    """Sum of the absolute coefficients of the monomials of at least this degree that hold the variable."""
    at = item.support.index(variable)
    exponents = monomials(len(item.support), item.degree)
    terms = zip(item.c, exponents, strict=True)
    return sum(float(c.abs_upper()) for c, e in terms if e[at] and sum(e) >= degree)


def turned(found: Found, parent: Found | None, low: Corner, high: Corner) -> Found:
    """Another coordinate, the widest, where a cut along one has not helped: what resists need not show its support.

    The same one as before where that has helped much and what is left is mostly remainder: the polynomial knows nothing
    of it, and the cut was a guess that was right. Where a cut along one has done nothing, it rests.
    """
    if parent is None:
        return found
    found = replace(found, idle=_resting(found, parent))
    widths = [b - a for a, b in zip(low, high, strict=True)]
    if parent.axis == found.axis:
        helped = found.bound < HELPED * parent.bound  # a NaN has not
        return found if helped else _elsewhere(found, widths)
    if found.blind and found.bound < HALVED * parent.bound and widths[parent.axis] > 0:
        return replace(found, axis=parent.axis)
    return _elsewhere(found, widths) if found.blind and found.axis in found.idle else found


def _resting(found: Found, parent: Found) -> dict[int, int]:
    """The axes that rest, and for how many cuts: the last one if that has left the bound as it was, and only then."""
    left = {axis: cuts - 1 for axis, cuts in parent.idle.items() if cuts > 1 and axis != parent.axis}
    if abs(found.bound - parent.bound) <= NOTHING * parent.bound < math.inf:
        left[parent.axis] = REST
    return left


def _elsewhere(found: Found, widths: Sequence[float]) -> Found:
    """To be cut along the widest of the other axes, of those that do not rest; where all do, the widest of all others.

    If it does not rest itself and all others do, it stays.
    """
    others = [axis for axis, width in enumerate(widths) if width > 0 and axis != found.axis]
    awake = [axis for axis in others if axis not in found.idle]
    if found.axis in found.idle:
        awake = awake or others
    return replace(found, axis=max(awake, key=widths.__getitem__)) if awake else found


def cut(low: Corner, high: Corner, axis: int) -> list[tuple[Corner, Corner]] | None:
    """Both halves of a box, or None when there is no float between its ends."""
    centre = low[axis] / 2 + high[axis] / 2
    if not low[axis] < centre < high[axis]:
        return None
    below_ = list(high)
    above = list(low)
    below_[axis] = above[axis] = centre
    return [(low, tuple(below_)), (tuple(above), high)]


def middle(low: Corner, high: Corner) -> tuple[float, ...]:
    """The centre of a box."""
    return tuple(a / 2 + b / 2 for a, b in zip(low, high, strict=True))
