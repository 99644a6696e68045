"""Functions that are affine on simplices in the checker's arithmetic.

At a point the simplex counts whose least barycentric coordinate is the largest. On a box that may be any simplex whose
least coordinate reaches the largest lower end of all of them; the function is one plane plus the hull of what these
differ from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from flint import arb, arb_mat

from onelayer.checker.arithmetic import Taylor, constant
from onelayer.checker.deadline import need_time
from onelayer.language.knots import Facets

Ends = tuple[arb, arb]
Form = list[arb]  # g_1, ..., g_D, h


@cache
def _forms(data: Facets, precision: int) -> list[tuple[list[Form], Form]]:
    """Per simplex its barycentric coordinates and its plane, at a precision of the arithmetic."""
    found = []
    for corners in data.simplices.tolist():
        need_time()
        size = len(corners)
        # Barycentric coordinates are affine, 1 at their own corner and 0 at the others.
        rows = [[*map(arb, data.points[at].tolist()), arb(1)] for at in corners]
        inverse = arb_mat(rows).inv()
        coordinates = [[inverse[j, i] for j in range(size)] for i in range(size)]
        plane = [arb(0)] * size
        for at, form in zip(corners, coordinates, strict=True):
            value = arb(float(data.values[at]))
            plane = [p + value * g for p, g in zip(plane, form, strict=True)]
        found.append((coordinates, plane))
    return found


def _ends(form: Form, box: Sequence[tuple[arb, arb]]) -> Ends:
    """The range of an affine form over middles and radii."""
    centre = form[-1]
    reach = arb(0)
    for g, (middle, radius) in zip(form, box, strict=False):
        centre = centre + g * middle
        reach = reach + abs(g) * radius
    return (centre - reach).lower(), (centre + reach).upper()


def _counting(data: Facets, box: Sequence[tuple[arb, arb]], precision: int) -> list[Form]:
    """The planes of the simplices that may count somewhere in the box."""
    least: list[Ends] = []
    for coordinates, _ in _forms(data, precision):
        need_time()
        ends = [_ends(form, box) for form in coordinates]
        low, high = ends[0]
        for a, b in ends[1:]:
            low = low.min(a)
            high = high.min(b)
        least.append((low.lower(), high.upper()))
    best = least[0][0]
    for low, _ in least[1:]:
        best = best.max(low)
    kept = zip(least, _forms(data, precision), strict=True)
    return [plane for (_, high), (_, plane) in kept if not high < best]


def _box(ends: Sequence[Ends]) -> list[tuple[arb, arb]]:
    middles = [arb(((low + high) / 2).mid()) for low, high in ends]
    return [(m, (high - m).max(m - low).upper()) for m, (low, high) in zip(middles, ends, strict=True)]


def image(data: Facets, precision: int, *args: Ends) -> Ends:
    """From the least to the greatest value of the planes that may count."""
    if not all(low.is_finite() and high.is_finite() for low, high in args):
        return arb("nan"), arb("nan")
    box = _box(args)
    ends = [_ends(plane, box) for plane in _counting(data, box, precision)]
    low, high = ends[0]
    for a, b in ends[1:]:
        low = low.min(a)
        high = high.max(b)
    return low, high


def enclosed(data: Facets, precision: int, args: Sequence[Taylor]) -> Taylor:
    """One plane of the arguments, and the hull of what the others add to it."""
    order = args[0].order
    ends = [arg.ends() for arg in args]
    if not all(low.is_finite() and high.is_finite() for low, high in ends):
        return constant(arb("nan"), order)
    box = _box(ends)
    first, *others = _counting(data, box, precision)
    rest = arb(0)
    for plane in others:
        low, high = _ends([a - b for a, b in zip(plane, first, strict=True)], box)
        rest = rest.union(low).union(high)
    total = constant(first[-1], order)
    for g, arg in zip(first, args, strict=False):
        total = total + arg.scaled(g)
    return total.shifted(rest)
