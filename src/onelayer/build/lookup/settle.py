"""A layer on paper moved onto the numbers that it will be stored in: keys first, then values solved for those keys.

Whatever the keys are, their weights are positive and sum to one, so rounded keys are keys like any others: the values
are solved again for them. Then each value is rounded, and moved to a neighbour for as long as the largest errors
shrink: what one value gives away by rounding, its neighbours make up for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.blueprint import Blueprint
from onelayer.build.lookup.dense import (
    DENSE_TOKENS,
    LEAST_POINTS,
    POINTS_PER_TOKEN,
    basis,
    coordinate,
    ends_of,
    with_values,
)
from onelayer.build.lookup.families import Array
from onelayer.build.lookup.solve import minimax, solve_seconds
from onelayer.build.lookup.storage import Storage
from onelayer.build.lookup.structure import FlatFunction
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead
from onelayer.observer import Observer

SWEEPS = 12  # over all values; most settle in four
# Of the errors that are summed, squared once more: near enough to their maximum.
POWER = 8
# Of |v| in the solve, in relative steps of the grid: small values are rounded less.
COSTS = (0.02, 0.1, 0.5)


@dataclass(frozen=True)
class _Samples:
    """Points (S, D) and f there (S, K)."""

    points: Tensor
    values: Array


def settle(blueprint: Blueprint, f: FlatFunction, box: Box, storage: Storage, observer: Observer) -> Blueprint:
    """The same layer with every number on the grids of ``storage``, and its error seen anew."""
    kinks = blueprint.kinks
    kinks = replace(
        kinks,
        normals=_rounded(kinks.normals, storage),
        offsets=_rounded(kinks.offsets, storage),
        coefficients=_rounded(kinks.coefficients, storage),
    )
    offset = blueprint.affine.offset
    # The readout holds the matrix below ones, which add up the heads.
    slopes = storage.beside_one(blueprint.affine.matrix.T.numpy())
    matrix = torch.from_numpy(slopes).T
    if not blueprint.heads:
        return replace(blueprint, kinks=kinks, affine=Affine(matrix, offset))
    affine = Affine(matrix, torch.zeros_like(offset))
    heads = [_settled_keys(head, box, storage) for head in blueprint.heads]
    plain = replace(blueprint, heads=heads, kinks=kinks, affine=affine)
    count = max(LEAST_POINTS, POINTS_PER_TOKEN * plain.tokens)
    in_time = solve_seconds(count, plain.tokens) < observer.seconds_left
    if plain.tokens > DENSE_TOKENS or not in_time:
        # Weights of a head sum to one, so that its values can carry the constant.
        first, *others = heads
        carrying = replace(first, values=first.values + offset / first.coefficient)
        rounded = [replace(head, values=_rounded(head.values, storage)) for head in (carrying, *others)]
        return replace(plain, heads=rounded)
    samples = _samples(plain, f, box, count)
    values, error = _values(heads, samples, storage, observer)
    return replace(plain, heads=values, error=error)


def _samples(plain: Blueprint, f: FlatFunction, box: Box, count: int) -> _Samples:
    """What is left for the heads at points that crowd towards the faces."""
    points = torch.cat([box.corners(256), box.sample(count, seed=5, arcsine=True)])
    flat = points.reshape(-1, box.dim)
    rest = f(flat) - flat @ plain.affine.matrix.T
    return _Samples(flat, (rest - plain.kinks(flat)).numpy())


def _rounded(values: Tensor, storage: Storage) -> Tensor:
    if not values.numel():
        return values
    columns = values.reshape(-1, values.shape[-1]).numpy()
    return torch.from_numpy(storage.nearest(columns)).reshape(values.shape)


def _settled_keys(head: LookupHead, box: Box, storage: Storage) -> LookupHead:
    """Directions and slopes rounded, biases moved so that logits stay at the centre, then held in two numbers each."""
    return replace(head, axes=[_settled_axis(axis, box, storage) for axis in head.axes])


def _settled_axis(axis: AxisKeys, box: Box, storage: Storage) -> AxisKeys:
    if isinstance(axis.direction, Tensor):
        axis = replace(axis, direction=_column(axis.direction, storage))
    slopes = _column(axis.slopes, storage)
    centre = float(coordinate(axis, box.center.reshape(1, -1)))
    biases = axis.biases + (axis.slopes - slopes) * centre
    # The same for all tokens, so that it changes no weight; small numbers are rounded less.
    biases = biases - biases.max()
    coarse = _column(biases, storage)
    fine = _column(biases - coarse, storage)
    return replace(axis, slopes=slopes, biases=coarse, fine=fine)


def _column(values: Tensor, storage: Storage) -> Tensor:
    columns = storage.nearest(values[:, None].numpy())
    return torch.from_numpy(columns)[:, 0]


def _values(
    heads: Sequence[LookupHead], samples: _Samples, storage: Storage, observer: Observer
) -> tuple[list[LookupHead], float]:
    """Values of all heads solved together, rounded, and improved one by one; and the largest error seen."""
    weights = np.concatenate([basis(head, samples.points) for head in heads], axis=1)
    cuts = ends_of(heads)

    def largest_error(columns: Array) -> float:
        return float(np.abs(weights @ columns - samples.values).max())

    tried: list[Array] = []
    for cost in COSTS:
        if tried and observer.over:
            break
        solved, _ = minimax(weights, samples.values, cost * storage.step, sweeps=8, over=lambda: observer.over)
        # Head by head, since the columns of each have scales of their own.
        parts = np.split(solved, cuts)
        tried.append(np.concatenate([storage.nearest(part) for part in parts]))
    columns = min(tried, key=largest_error)
    columns = _descend(weights, samples.values, columns, cuts.tolist(), storage, observer)
    return with_values(heads, columns), largest_error(columns)


def _descend(
    weights: Array, samples: Array, columns: Array, cuts: list[int], storage: Storage, observer: Observer
) -> Array:
    """Single values moved to a neighbour where that shrinks the sum of high powers of the errors."""
    columns = columns.copy()
    residual = weights @ columns - samples
    for _ in range(SWEEPS):
        parts = np.split(columns, cuts)
        neighbours = zip(*(storage.neighbours(part) for part in parts), strict=True)
        below, above = map(np.concatenate, neighbours)
        moved = False
        for token, output in np.ndindex(*columns.shape):
            if observer.over:
                return columns
            at = (token, output)
            moved |= _move(weights[:, token], residual[:, output], columns, at, (below, above))
        if not moved:
            break
    return columns


def _move(weight: Array, residual: Array, columns: Array, at: tuple[int, int], ends: tuple[Array, Array]) -> bool:
    """One value to a neighbour, if the errors shrink by it; ``residual`` and ``columns`` are changed in place."""
    steps = [float(end[at] - columns[at]) for end in ends]
    # In units of the largest error, whose high powers would over- or underflow.
    size = float(np.abs(residual).max()) or 1.0
    tried = [residual, *(residual + step * weight for step in steps)]
    powers = [((one / size) ** POWER) ** 2 for one in tried]
    losses = [float(power.sum()) for power in powers]
    best = int(np.argmin(losses))
    # By more than rounding, so that no two values take turns for ever.
    if best == 0 or not losses[best] < losses[0] * (1 - 1e-9):
        return False
    residual[:] = tried[best]
    columns[at] += steps[best - 1]
    return True
