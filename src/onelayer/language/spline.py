"""Values of splines of tables: floats, tensors, balls and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, reduce
from itertools import product
from typing import Any

import numpy as np
import torch
from flint import arb
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from onelayer.float64 import numbers
from onelayer.language.facets import flattened
from onelayer.language.intervals import Interval, where_defined
from onelayer.language.knots import Spline

CHUNK = 2**20  # numbers gathered at a time


@cache
def tensors(data: Spline) -> tuple[list[Tensor], Tensor]:
    """Knots of each axis and coefficients, on the CPU."""
    return [numbers(axis) for axis in data.knots], numbers(data.coefficients)


def cell_of(data: Spline, axis: int, knots: Tensor, x: Tensor, *, right: bool = True) -> Tensor:
    """The cell of each number: the position of the knot before it, end cells for what lies beyond.

    A number on a knot belongs to the cell after it, or to the one before where ``right`` is false.
    """
    found = torch.searchsorted(knots, x.contiguous(), right=right) - 1
    return found.clamp(data.degrees[axis], data.coefficients.shape[axis] - 1)


def spline(data: Spline, *args: Tensor) -> Tensor:
    """The values at points given by one tensor per argument."""
    if has_torch_function(args):
        handed: Tensor = handle_torch_function(spline, args, data, *args)
        return handed
    shape, points = flattened(args)
    around = math.prod(k + 1 for k in data.degrees)  # coefficients that count at a point
    size = max(1, CHUNK // around)
    parts = [_values(data, part) for part in torch.split(points.to(torch.float64), size)]
    return torch.cat(parts).reshape(shape).to(args[0].dtype)


def _values(data: Spline, points: Tensor) -> Tensor:
    """At points (N, D): the coefficients around each, weighted axis by axis from the last."""
    knots, coefficients = tensors(data)
    places = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    weights: list[Tensor] = []
    for axis, (k, n) in enumerate(zip(data.degrees, coefficients.shape, strict=True)):
        here = knots[axis].to(points.device)
        x = points[:, axis]
        cell = cell_of(data, axis, here, x)
        weights.append(_basis(here, k, cell, x))
        steps = torch.arange(k + 1, dtype=torch.int64, device=points.device)
        window = cell[:, None] - k + steps
        window = window.reshape(len(points), *[1] * axis, k + 1)
        # Places in the flat table, the last axis fastest: (N, k_1 + 1, ..., k_axis + 1).
        places = places[..., None] * n + window
    values = coefficients.to(points.device).ravel()[places]
    # From the last axis: each sum takes one dimension off the end.
    for weight in reversed(weights):
        aligned = weight.reshape(len(points), *[1] * (values.ndim - 2), -1)
        values = (values * aligned).sum(-1)
    return values


def _basis(knots: Tensor, k: int, cell: Tensor, x: Tensor) -> Tensor:
    """The k + 1 B-splines that live on the cell of each x, by the recurrence of Cox and de Boor: (N, k + 1)."""
    found = [torch.ones_like(x)]
    for level in range(1, k + 1):
        after = [torch.zeros_like(x) for _ in range(level + 1)]
        for at, value in enumerate(found):
            low = knots[cell + at - level + 1]
            high = knots[cell + at + 1]
            share = value / (high - low)
            after[at] = after[at] + (high - x) * share
            after[at + 1] = after[at + 1] + (x - low) * share
        found = after
    return torch.stack(found, dim=-1)


def number(data: Spline, *args: float) -> float:
    """The value at a point."""
    point = [numbers([arg]) for arg in args]
    return float(spline(data, *point))


def image(data: Spline, *args: Interval) -> Interval:
    """B-splines are weights on the axes: the values lie between the least and the greatest coefficient."""
    inside = torch.ones_like(args[0][0], dtype=torch.bool)
    known = torch.ones_like(args[0][0], dtype=torch.bool)
    # Only on the axes: beyond their ends the last pieces go on, where weights may be negative.
    for (low, high), axis, k in zip(args, data.knots, data.degrees, strict=True):
        inside = inside & (low >= axis[k]) & (high <= axis[-k - 1])
        known = known & ~(torch.isnan(low) | torch.isnan(high))
    least = float(data.coefficients.min())
    most = float(data.coefficients.max())
    lowest = torch.full_like(inside, least, dtype=torch.float64)
    highest = torch.full_like(inside, most, dtype=torch.float64)
    below = torch.where(inside, lowest, -torch.inf)
    above = torch.where(inside, highest, torch.inf)
    return where_defined(known, (below, above))


def ball(data: Spline, *args: arb) -> arb:
    """Balls that hold the values: the hull of all pieces that the arguments may meet."""
    if not all(arg.is_finite() for arg in args):
        return arb("nan")
    met = map(_met, data.knots, data.degrees, args)
    pieces = [piece(data, cells, args) for cells in product(*met)]
    return reduce(arb.union, pieces)


def _met(axis: Sequence[float], k: int, x: arb) -> list[int]:
    """Cells that the ball may meet; the first and the last reach to infinity."""
    first = k
    last = len(axis) - k - 2
    begun = [c for c in range(first, last + 1) if c == first or not x < axis[c]]
    return [c for c in begun if c == last or not x > axis[c + 1]]


def piece(data: Spline, cells: Sequence[int], args: Sequence[arb]) -> arb:
    """The polynomial of one cell, by de Boor's algorithm along each axis."""
    window = tuple(slice(c - k, c + 1) for c, k in zip(cells, data.degrees, strict=True))
    # An array of balls: NumPy multiplies and adds them entry by entry.
    values: Any = np.vectorize(arb, otypes=[object])(data.coefficients[window])
    for axis in range(data.dim - 1, -1, -1):
        knots = data.knots[axis]
        k = data.degrees[axis]
        cell = cells[axis]
        x = args[axis]
        rows = [values[..., at] for at in range(k + 1)]
        for level in range(1, k + 1):
            for at in range(k, level - 1, -1):
                low = arb(knots[cell - k + at])
                high = arb(knots[cell + at + 1 - level])
                mixed = rows[at - 1] * (high - x) + rows[at] * (x - low)
                rows[at] = mixed / (high - low)
        values = rows[k]
    return arb(values)
