"""Values of functions that are affine on simplices: floats, tensors, balls and intervals.

Each barycentric coordinate of a simplex, and the function on it, is an affine form g x + h. The forms are computed in
balls and rounded once, so a float form errs by its own rounding and no more.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from flint import arb, arb_mat
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from onelayer.errors import FormulaError
from onelayer.float64 import TINY, UNIT
from onelayer.ground import ball_precision
from onelayer.language.intervals import Interval
from onelayer.language.knots import Facets

BITS = 400  # of the forms in balls: ten times what rows of float64 numbers lose
CHUNK = 2**22  # numbers of one evaluation


@cache
def _forms_in_balls(data: Facets) -> list[tuple[list[list[arb]], list[arb]]]:
    """Per simplex its D + 1 coordinates and its function as lists g_1, ..., g_D, h."""
    found = []
    with ball_precision(BITS):
        for corners in data.simplices.tolist():
            rows = [[*map(arb, data.points[at].tolist()), arb(1)] for at in corners]
            try:
                inverse = arb_mat(rows).inv()  # columns are the coordinates: row_k . column_i = [k = i]
            except ZeroDivisionError as error:
                raise FormulaError("a simplex of facets is flat: its corners lie in a plane") from error
            size = len(corners)
            coordinates = [[inverse[j, i] for j in range(size)] for i in range(size)]
            values = [arb(float(data.values[at])) for at in corners]
            plane = [
                sum((v * form[j] for v, form in zip(values, coordinates, strict=True)), arb(0)) for j in range(size)
            ]
            found.append((coordinates, plane))
    return found


@cache
def forms(data: Facets) -> tuple[Tensor, Tensor]:
    """The same rounded to float64: (S, D + 1, D + 1) and (S, D + 1), each number within one rounding."""
    both = _forms_in_balls(data)
    coordinates = [[[float(g.mid()) for g in form] for form in forms] for forms, _ in both]
    planes = [[float(g.mid()) for g in plane] for _, plane in both]
    first = torch.tensor(coordinates, dtype=torch.float64, device="cpu")
    second = torch.tensor(planes, dtype=torch.float64, device="cpu")
    return first, second


def facets(data: Facets, *args: Tensor) -> Tensor:
    """The values at points given by one tensor per argument."""
    if has_torch_function(args):
        handed: Tensor = handle_torch_function(facets, args, data, *args)
        return handed
    shape = np.broadcast_shapes(*(tuple(arg.shape) for arg in args))
    points = torch.stack([arg.expand(shape).reshape(-1) for arg in args], dim=1).to(torch.float64)
    size = max(1, CHUNK // data.simplices.size)
    parts = [_values(data, part) for part in torch.split(points, size)]
    return (torch.cat(parts) if parts else points[:, 0]).reshape(shape).to(args[0].dtype)


def _values(data: Facets, points: Tensor) -> Tensor:
    coordinates, planes = (form.to(points.device) for form in forms(data))
    ones = torch.cat([points, torch.ones_like(points[:, :1])], dim=1)
    # A point lies in the simplex whose least coordinate is largest; outside of all, that is the one that counts.
    least = torch.einsum("sij,nj->nsi", coordinates, ones).amin(-1)
    return (planes[least.argmax(1)] * ones).sum(1)


def number(data: Facets, *args: float) -> float:
    """The value at a point."""
    return float(facets(data, *(torch.tensor([arg], dtype=torch.float64, device="cpu") for arg in args)))


def ranges(form: Tensor, low: Tensor, high: Tensor) -> Interval:
    """Of affine forms (..., D + 1) on boxes (E, D): (E, ...), with the rounding of form and evaluation."""
    middle = low / 2 + high / 2
    radius = high / 2 - low / 2
    flat = form.reshape(-1, form.shape[-1])
    slopes, offsets = flat[:, :-1].T, flat[:, -1]
    centre = middle @ slopes + offsets
    reach = radius @ slopes.abs()
    size = torch.maximum(low.abs(), high.abs()) @ slopes.abs() + offsets.abs()
    reach = reach + size * ((form.shape[-1] + 8) * 4 * UNIT) + underflow(low, high)
    shape = (len(low), *form.shape[:-1])
    return (centre - reach).reshape(shape), (centre + reach).reshape(shape)


def underflow(low: Tensor, high: Tensor) -> Tensor:
    """(E, 1): what numbers of affine forms too small for a rounding of their own size, and products of them, may err.

    Each of the D + 1 numbers errs by TINY, and so does each product in a middle, a reach and a difference.
    """
    return (torch.maximum(low.abs(), high.abs()) + 8).sum(1, keepdim=True) * (8 * TINY)


def candidates(data: Facets, low: Tensor, high: Tensor) -> Tensor:
    """(E, S): the simplices that may count at some point of the box.

    Lemma: where simplex s counts, its least coordinate is no smaller than that of any other; so its greatest value over
    the box is no smaller than the smallest value of any other.
    """
    below, above = ranges(forms(data)[0].to(low.device), low, high)
    best = below.amin(-1).amax(1)
    return above.amin(-1) >= best[:, None]


def image(data: Facets, *args: Interval) -> Interval:
    """From the least to the greatest value of the planes that may count."""
    shape = np.broadcast_shapes(*(tuple(end.shape) for arg in args for end in arg))
    low = torch.stack([arg[0].expand(shape).reshape(-1) for arg in args], dim=1)
    high = torch.stack([arg[1].expand(shape).reshape(-1) for arg in args], dim=1)
    known = (torch.isfinite(low) & torch.isfinite(high)).all(1)
    # Ends that are not finite would make NaN of other candidates too: they are set aside, and NaN at the end.
    safe = [torch.where(known[:, None], end, 0.0) for end in (low, high)]
    size = max(1, CHUNK // data.simplices.size)
    chunks = zip(*(torch.split(end, size) for end in safe), strict=True)
    parts = [_image(data, a, b) for a, b in chunks]
    below, above = (torch.cat([part[at] for part in parts]) for at in (0, 1))
    return torch.where(known, below, torch.nan).reshape(shape), torch.where(known, above, torch.nan).reshape(shape)


def _image(data: Facets, low: Tensor, high: Tensor) -> Interval:
    may = candidates(data, low, high)
    below, above = ranges(forms(data)[1].to(low.device), low, high)
    return torch.where(may, below, torch.inf).amin(1), torch.where(may, above, -torch.inf).amax(1)


def ball(data: Facets, *args: arb) -> arb:
    """The hull of the planes that may count at the arguments."""
    if not all(arg.is_finite() for arg in args):
        return arb("nan")
    least = [_least(coordinates, args) for coordinates, _ in _forms_in_balls(data)]
    best = max((item.lower() for item in least), key=float)
    total: arb | None = None
    for item, (_, plane) in zip(least, _forms_in_balls(data), strict=True):
        if not item < best:
            value = at(plane, args)
            total = value if total is None else total.union(value)
    return arb("nan") if total is None else total


def at(form: list[arb], args: tuple[arb, ...]) -> arb:
    """An affine form of balls."""
    return sum((g * x for g, x in zip(form, args, strict=False)), form[-1])


def _least(coordinates: list[list[arb]], args: tuple[arb, ...]) -> arb:
    values = [at(form, args) for form in coordinates]
    least = values[0]
    for value in values[1:]:
        least = least.min(value)
    return least
