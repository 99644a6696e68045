"""Values of functions that are affine on simplices: floats, tensors, balls and intervals.

Each barycentric coordinate of a simplex, and the function on it, is an affine form g x + h. The forms are computed in
balls that are narrow beside a rounding, and rounded once, so a float form errs by its own rounding and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from itertools import chain

import numpy as np
import torch
from flint import arb, arb_mat
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from onelayer.errors import FormulaError
from onelayer.float64 import TINY, UNIT, numbers
from onelayer.ground import ball_precision
from onelayer.language.intervals import Interval, where_defined
from onelayer.language.knots import Facets

BITS = (400, 1600, 6400)  # of the forms in balls: the first that tells them, since rows of any sizes may cancel
NARROW = 60  # bits of a number of a form that its ball must tell
LOST = 2.0**-1001  # or it may be this small: what is below counts as underflow
CHUNK = 2**22  # numbers of one evaluation


@cache
def _forms_in_balls(data: Facets) -> list[tuple[list[list[arb]], list[arb]]]:
    """Per simplex its D + 1 coordinates and its function as lists g_1, ..., g_D, h."""
    for bits in BITS:
        found = _solved(data, bits)
        if found is not None:
            return found
    raise FormulaError("a simplex of facets is flat: its corners lie in a plane")


def _solved(data: Facets, bits: int) -> list[tuple[list[list[arb]], list[arb]]] | None:
    """The forms at one precision; None where it does not tell them."""
    found = []
    with ball_precision(bits):
        for corners in data.simplices.tolist():
            rows = [[*map(arb, data.points[at].tolist()), arb(1)] for at in corners]
            # Columns of the inverse are the coordinates: row_k . column_i = [k = i].
            try:
                inverse = arb_mat(rows).inv()
            except ZeroDivisionError:
                return None
            places = range(len(corners))
            coordinates = [[inverse[j, i] for j in places] for i in places]
            # f is the sum of its values at the corners, weighted by the coordinates.
            plane = [arb(0)] * len(corners)
            for at, form in zip(corners, coordinates, strict=True):
                value = arb(float(data.values[at]))
                plane = [total + value * g for total, g in zip(plane, form, strict=True)]
            if not all(map(_told, chain(plane, *coordinates))):
                return None
            found.append((coordinates, plane))
    return found


def _told(g: arb) -> bool:
    """Whether the middle of a ball may stand for the number in it."""
    return bool(g.rel_accuracy_bits() >= NARROW or g.abs_upper() < LOST)


@cache
def forms(data: Facets) -> tuple[Tensor, Tensor]:
    """The same rounded to float64: (S, D + 1, D + 1) and (S, D + 1), each number within one rounding."""
    both = _forms_in_balls(data)
    coordinates = numbers([[_rounded(form) for form in forms] for forms, _ in both])
    planes = numbers([_rounded(plane) for _, plane in both])
    # An infinite slope would make NaN of what is compared, and of NaN no comparison tells which simplex counts.
    if not bool(torch.isfinite(coordinates).all() and torch.isfinite(planes).all()):
        raise FormulaError("the slopes of facets must be below 1.8e308: give the corners of simplices more distance")
    return coordinates, planes


def _rounded(form: list[arb]) -> list[float]:
    return [float(g.mid()) for g in form]


def facets(data: Facets, *args: Tensor) -> Tensor:
    """The values at points given by one tensor per argument."""
    if has_torch_function(args):
        handed: Tensor = handle_torch_function(facets, args, data, *args)
        return handed
    shape, points = flattened(args)
    size = max(1, CHUNK // data.simplices.size)
    parts = [_values(data, part) for part in torch.split(points.to(torch.float64), size)]
    return torch.cat(parts).reshape(shape).to(args[0].dtype)


def flattened(args: Sequence[Tensor]) -> tuple[tuple[int, ...], Tensor]:
    """Numbers of any shapes that broadcast, one tensor per argument: their common shape, and points (N, D)."""
    shape = np.broadcast_shapes(*(tuple(arg.shape) for arg in args))
    sides = [arg.expand(shape).reshape(-1) for arg in args]
    return shape, torch.stack(sides, dim=1)


def _values(data: Facets, points: Tensor) -> Tensor:
    coordinates, planes = (form.to(points.device) for form in forms(data))
    ones = torch.cat([points, torch.ones_like(points[:, :1])], dim=1)
    # A point lies in the simplex whose least coordinate is largest; outside of all, that is the one that counts.
    least = torch.einsum("sij,nj->nsi", coordinates, ones).amin(-1)
    chosen = planes[least.argmax(1)]
    return (chosen * ones).sum(1)


def number(data: Facets, *args: float) -> float:
    """The value at a point."""
    point = [numbers([arg]) for arg in args]
    return float(facets(data, *point))


def ranges(form: Tensor, low: Tensor, high: Tensor) -> Interval:
    """Of affine forms (..., D + 1) on boxes (E, D): (E, ...), with the rounding of form and evaluation."""
    middle = low / 2 + high / 2
    # Not half of the width: of neighbouring subnormal numbers that is zero.
    radius = torch.maximum(high - middle, middle - low)
    flat = form.reshape(-1, form.shape[-1])
    slopes, offsets = flat[:, :-1].T, flat[:, -1]
    centre = middle @ slopes + offsets
    reach = radius @ slopes.abs()
    farthest = torch.maximum(low.abs(), high.abs())
    size = farthest @ slopes.abs() + offsets.abs()
    reach = reach + size * ((form.shape[-1] + 8) * 4 * UNIT) + underflow(low, high)
    shape = (len(low), *form.shape[:-1])
    below = (centre - reach).reshape(shape)
    above = (centre + reach).reshape(shape)
    return below, above


def underflow(low: Tensor, high: Tensor) -> Tensor:
    """(E, 1): what numbers of affine forms too small for a rounding of their own size, and products of them, may err.

    Each of the D + 1 numbers errs by TINY, and so does each product in a middle, a reach and a difference.
    """
    farthest = torch.maximum(low.abs(), high.abs())
    return (farthest + 8).sum(1, keepdim=True) * (8 * TINY)


def candidates(data: Facets, low: Tensor, high: Tensor) -> Tensor:
    """(E, S): the simplices that may count at some point of the box.

    Lemma: where simplex s counts, its least coordinate is no smaller than that of any other; so its greatest value over
    the box is no smaller than the smallest value of any other. What is no number, where forms overflow, excludes none.
    """
    coordinates, _ = forms(data)
    below, above = ranges(coordinates.to(low.device), low, high)
    best = below.amin(-1).amax(1)
    return ~(above.amin(-1) < best[:, None])


def image(data: Facets, *args: Interval) -> Interval:
    """From the least to the greatest value of the planes that may count."""
    shape, ends = flattened([end for arg in args for end in arg])
    low = ends[:, ::2]
    high = ends[:, 1::2]
    known = (torch.isfinite(low) & torch.isfinite(high)).all(1)
    # Ends that are not finite would make NaN of other candidates too: they are set aside, and NaN at the end.
    safe = [torch.where(known[:, None], end, 0.0) for end in (low, high)]
    size = max(1, CHUNK // data.simplices.size)
    chunks = zip(*(torch.split(end, size) for end in safe), strict=True)
    parts = [_image(data, a, b) for a, b in chunks]
    below, above = (torch.cat(ends) for ends in zip(*parts, strict=True))
    low, high = where_defined(known, (below, above))
    return low.reshape(shape), high.reshape(shape)


def _image(data: Facets, low: Tensor, high: Tensor) -> Interval:
    may = candidates(data, low, high)
    _, planes = forms(data)
    below, above = ranges(planes.to(low.device), low, high)
    least = torch.where(may, below, torch.inf).amin(1)
    most = torch.where(may, above, -torch.inf).amax(1)
    return least, most


def ball(data: Facets, *args: arb) -> arb:
    """The hull of the planes that may count at the arguments."""
    if not all(arg.is_finite() for arg in args):
        return arb("nan")
    both = _forms_in_balls(data)
    least = [_least(coordinates, args) for coordinates, _ in both]
    best = max((item.lower() for item in least), key=float)
    # At least the one with the best lower end is not below it.
    values = [at(plane, args) for item, (_, plane) in zip(least, both, strict=True) if not item < best]
    return reduce(arb.union, values, values[0])


def at(form: list[arb], args: tuple[arb, ...]) -> arb:
    """An affine form of balls."""
    *slopes, offset = form
    products = (g * x for g, x in zip(slopes, args, strict=True))
    return sum(products, offset)


def _least(coordinates: list[list[arb]], args: tuple[arb, ...]) -> arb:
    return reduce(arb.min, [at(form, args) for form in coordinates])
