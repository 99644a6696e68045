"""Weights of all tokens of a head at points, and their slopes: the columns of dense systems for the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.build.lookup.families import Array, products, softmax
from onelayer.layer.lookup import AxisKeys, LookupHead

# A dense system of eight points per token takes some seconds; larger layers keep their values.
DENSE_TOKENS = 1500
# Several between two tokens: values cannot swing unseen.
POINTS_PER_TOKEN, LEAST_POINTS = 8, 2048


def coordinate(axis: AxisKeys, points: Tensor) -> Tensor:
    """u at points (S, D)."""
    if isinstance(axis.direction, int):
        return points[:, axis.direction]
    return points @ axis.direction


def _axis_weights(axis: AxisKeys, points: Tensor) -> Array:
    """Softmax weights of one axis, (S, M)."""
    u = coordinate(axis, points).numpy()
    logits = u[:, None] * axis.slopes.numpy() + axis.offsets.numpy()
    return softmax(logits)


def basis(head: LookupHead, points: Tensor) -> Array:
    """Weights of all tokens of a head, (S, M_1 ... M_r)."""
    parts = [_axis_weights(axis, points) for axis in head.axes]
    return products(parts, head.coefficient)


def basis_slopes(head: LookupHead, points: Tensor) -> Array:
    """Derivatives of the weights along the coordinates, (D, S, M_1 ... M_r): w_m' = w_m (a_m - sum_k w_k a_k)."""
    parts = [_axis_weights(axis, points) for axis in head.axes]
    tokens = head.values[..., 0].numel()
    count, dim = points.shape
    total: Array = np.zeros((dim, count, tokens))
    for at, (axis, weights) in enumerate(zip(head.axes, parts, strict=True)):
        slopes = axis.slopes.numpy()
        average = weights @ slopes
        steep = weights * (slopes - average[:, None])
        # The rule of products: the slope of one factor times the others.
        factors = [*parts[:at], steep, *parts[at + 1 :]]
        along = products(factors, head.coefficient)
        for d, share in enumerate(_direction(axis, dim)):
            if share:
                total[d] += share * along
    return total


def ends_of(heads: Sequence[LookupHead]) -> NDArray[np.int64]:
    """Where the columns of all heads side by side are cut into those of each."""
    counts = [head.values[..., 0].numel() for head in heads]
    return np.cumsum(counts)[:-1]


def with_values(heads: Sequence[LookupHead], columns: Array) -> list[LookupHead]:
    """The heads with the values (M_1 ... M_r, K) of all of them, one below the other."""
    made = []
    parts = np.split(columns, ends_of(heads))
    for head, part in zip(heads, parts, strict=True):
        values = torch.from_numpy(part.copy()).reshape(head.values.shape)
        made.append(replace(head, values=values))
    return made


def _direction(axis: AxisKeys, dim: int) -> list[float]:
    if isinstance(axis.direction, int):
        return [float(d == axis.direction) for d in range(dim)]
    found: list[float] = axis.direction.tolist()
    return found
