"""Weights of all tokens of a head at points, and their slopes: the columns of dense systems for the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.build.lookup.families import Array, softmax
from onelayer.layer.lookup import AxisKeys, LookupHead

DENSE_TOKENS = 1500  # a dense system of eight points per token takes some seconds; larger layers keep their values
POINTS_PER_TOKEN, LEAST_POINTS = 8, 2048  # several between two tokens: values cannot swing unseen


def coordinate(axis: AxisKeys, points: Tensor) -> Tensor:
    """u at points (S, D)."""
    if isinstance(axis.direction, int):
        return points[:, axis.direction]
    return points @ axis.direction


def _axis_weights(axis: AxisKeys, points: Tensor) -> Array:
    """Softmax weights of one axis, (S, M)."""
    u = coordinate(axis, points).numpy()
    return softmax(u[:, None] * axis.slopes.numpy() + axis.offsets.numpy())


def basis(head: LookupHead, points: Tensor) -> Array:
    """Weights of all tokens of a head, (S, M_1 ... M_r)."""
    return _product([_axis_weights(axis, points) for axis in head.axes], head.coefficient)


def basis_slopes(head: LookupHead, points: Tensor) -> Array:
    """Derivatives of the weights along the coordinates, (D, S, M_1 ... M_r): w_m' = w_m (a_m - sum_k w_k a_k)."""
    parts = [_axis_weights(axis, points) for axis in head.axes]
    tokens = head.values[..., 0].numel()
    total: Array = np.zeros((points.shape[1], len(points), tokens))
    for at, (axis, weights) in enumerate(zip(head.axes, parts, strict=True)):
        slopes = axis.slopes.numpy()
        average = weights @ slopes
        steep = weights * (slopes - average[:, None])
        along = _product([*parts[:at], steep, *parts[at + 1 :]], head.coefficient)
        for d, share in enumerate(_direction(axis, points.shape[1])):
            if share:
                total[d] += share * along
    return total


def ends_of(heads: Sequence[LookupHead]) -> NDArray[np.int64]:
    """Where the columns of all heads side by side are cut into those of each."""
    return np.cumsum([head.values[..., 0].numel() for head in heads])[:-1]


def with_values(heads: Sequence[LookupHead], columns: Array) -> list[LookupHead]:
    """The heads with the values (M_1 ... M_r, K) of all of them, one below the other."""
    made = []
    for head, part in zip(heads, np.split(columns, ends_of(heads)), strict=True):
        values = torch.from_numpy(part.copy()).reshape(head.values.shape)
        made.append(replace(head, values=values))
    return made


def _direction(axis: AxisKeys, dim: int) -> list[float]:
    if isinstance(axis.direction, int):
        return [float(d == axis.direction) for d in range(dim)]
    found: list[float] = axis.direction.tolist()
    return found


def _product(parts: list[Array], factor: float) -> Array:
    """Products of one weight per axis, row-major."""
    dense: Array = np.full((len(parts[0]), 1), factor)
    for own in parts:
        dense = (dense[:, :, None] * own[:, None]).reshape(len(own), -1)  # (S, M_1 ... M_a)
    return dense
