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
POWER = 8  # of the errors that are summed, squared once more: near enough to their maximum
COSTS = (0.02, 0.1, 0.5)  # of |v| in the solve, in relative steps of the grid: small values are rounded less


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
    matrix = torch.from_numpy(storage.beside_one(blueprint.affine.matrix.T.numpy())).T
    if not blueprint.heads:
        return replace(blueprint, kinks=kinks, affine=Affine(matrix, blueprint.affine.offset))
    affine = Affine(matrix, torch.zeros_like(blueprint.affine.offset))
    heads = [_settled_keys(head, box, storage) for head in blueprint.heads]
    plain = replace(blueprint, heads=heads, kinks=kinks, affine=affine)
    count = max(LEAST_POINTS, POINTS_PER_TOKEN * plain.tokens)
    in_time = solve_seconds(count, plain.tokens) < observer.seconds_left
    if plain.tokens > DENSE_TOKENS or not in_time:
        # Weights of a head sum to one, so that its values can carry the constant.
        offset = blueprint.affine.offset
        first = replace(heads[0], values=heads[0].values + offset / heads[0].coefficient)
        rounded = [replace(head, values=_rounded(head.values, storage)) for head in (first, *heads[1:])]
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
    biases = biases - biases.max()  # the same for all tokens: it changes no weight
    coarse = _column(biases, storage)
    return replace(axis, slopes=slopes, biases=coarse, fine=_column(biases - coarse, storage))


def _column(values: Tensor, storage: Storage) -> Tensor:
    return torch.from_numpy(storage.nearest(values[:, None].numpy()))[:, 0]


def _values(
    heads: Sequence[LookupHead], samples: _Samples, storage: Storage, observer: Observer
) -> tuple[list[LookupHead], float]:
    """Values of all heads solved together, rounded, and improved one by one; and the largest error seen."""
    weights = np.concatenate([basis(head, samples.points) for head in heads], axis=1)
    counts = ends_of(heads)
    tried: list[Array] = []
    for cost in COSTS:
        if tried and observer.over:
            break
        solved, _ = minimax(weights, samples.values, cost * storage.step, sweeps=8, over=lambda: observer.over)
        tried.append(np.concatenate([storage.nearest(part) for part in np.split(solved, counts)]))
    columns = min(tried, key=lambda one: float(np.abs(weights @ one - samples.values).max()))
    columns = _descend(weights, samples.values, columns, counts.tolist(), storage, observer)
    error = float(np.abs(weights @ columns - samples.values).max())
    return with_values(heads, columns), error


def _descend(
    weights: Array, samples: Array, columns: Array, counts: list[int], storage: Storage, observer: Observer
) -> Array:
    """Single values moved to a neighbour where that shrinks the sum of high powers of the errors."""
    columns = columns.copy()
    residual = weights @ columns - samples
    for _ in range(SWEEPS):
        ends = [storage.neighbours(part) for part in np.split(columns, counts)]
        below, above = (np.concatenate(side) for side in zip(*ends, strict=True))
        moved = False
        for token, output in np.ndindex(*columns.shape):
            if observer.over:
                return columns
            moved |= _move(weights[:, token], residual[:, output], columns, (token, output), (below, above))
        if not moved:
            break
    return columns


def _move(weight: Array, residual: Array, columns: Array, at: tuple[int, int], ends: tuple[Array, Array]) -> bool:
    """One value to a neighbour, if the errors shrink by it; ``residual`` and ``columns`` are changed in place."""
    steps = [float(end[at] - columns[at]) for end in ends]
    size = float(np.abs(residual).max()) or 1.0
    tried = [residual, *(residual + step * weight for step in steps)]
    losses = [float((((one / size) ** POWER) ** 2).sum()) for one in tried]
    best = int(np.argmin(losses))
    if best == 0 or not losses[best] < losses[0] * (1 - 1e-9):
        return False
    residual[:] = tried[best]
    columns[at] += steps[best - 1]
    return True
