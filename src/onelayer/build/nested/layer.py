"""The packed layer of inner and outer functions, from an argument and its fitted parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.build.sequences.ffn import stream_units
from onelayer.build.sequences.piecewise import Piecewise
from onelayer.float64 import eye, numbers, zeros
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.looked import key_width
from onelayer.lemmas.nested import Inner, Nested, Outer, RidgeTerm

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Lookup:
    """One axis of memory tokens: softmax(slopes s + biases) @ values."""

    slopes: Array
    biases: Array
    values: Array


def _written(nested: Nested, ridges: Sequence[tuple[Outer, RidgeTerm]], width: int) -> torch.Tensor:
    """What every inner function adds to the stream: to the sums of its ridges, and to the outputs directly."""
    written = zeros(len(nested.inner), width)
    d = nested.inputs
    for k, (part, ridge) in enumerate(ridges):
        for weight, members in zip(ridge.weights, part.sums, strict=True):
            written[list(members), d + k] += weight
    for o, members in enumerate(nested.direct):
        written[list(members), d + len(ridges) + o] = 1.0
    return written


def nested_layer(
    input_shape: tuple[int, ...],
    output_shape: tuple[int, ...],
    nested: Nested,
    lookups: Sequence[Sequence[Lookup] | None],
    fitted: Sequence[Piecewise],
    dtype: torch.dtype,
) -> OneLayerTransformer:
    """T = sum_k G_k(s_k) + direct part; the stream holds x, the sums s_k of the ridges, and the outputs.

    ``lookups`` has the axes of a head for every inner function that is not plain, ``fitted`` the function G_k of every
    ridge.
    """
    ridges = [(part, ridge) for part in nested.outer for ridge in part.ridges]
    d = nested.inputs
    width = nested.inputs + len(ridges) + nested.outputs
    written = _written(nested, ridges, width)
    embedding = eye(d, width)
    heads = []
    out = []
    queries = []
    offsets = []
    for c, (one, axes) in enumerate(zip(nested.inner, lookups, strict=True)):
        # A linear form needs no head: the embedding adds it to the stream.
        if axes is None:
            embedding += numbers(one.direction)[:, None] * written[c]
            continue
        heads.append(_memory(axes))
        query, offset = _query(one, width)
        queries.append(query)
        offsets.append(offset)
        out.append(written[c])
    # A layer has a head, even where none is needed.
    if not heads:
        size = key_width(1)
        heads = [GridMemory([zeros(1, size)], zeros(1, 1))]
        out = [zeros(width)]
        queries = [zeros(width, size)]
        offsets = [zeros(size)]
    weights: dict[str, torch.Tensor | Sequence[torch.Tensor]] = {
        "W_E": embedding,
        "W_Q": queries,
        "b_Q": offsets,
        "W_O": torch.stack(out),
        "W_R": eye(width)[:, width - nested.outputs :],
    }
    constants = zeros(nested.outputs)
    for part, ridge in ridges:
        constants[part.output] += ridge.constant
    weights["b_R"] = constants
    if nested.units:
        sums = [d + k for k in range(len(ridges))]
        outputs = [width - nested.outputs + part.output for part, _ in ridges]
        weights |= stream_units(fitted, nested.units, sums, outputs, width)
    model = OneLayerTransformer.packed(
        input_shape,
        output_shape,
        heads,
        d_model=width,
        residual=True,
        hidden=len(nested.units),
        weights=weights,
        dtype=dtype,
    )
    return model.requires_grad_(False)


def _memory(axes: Sequence[Lookup]) -> GridMemory:
    """A grid of tokens whose values are the products of the values along its axes."""
    parts = []
    for a, axis in enumerate(axes):
        keys = zeros(len(axis.slopes), key_width(len(axes)))
        keys[:, a] = torch.from_numpy(axis.slopes)
        keys[:, len(axes)] = torch.from_numpy(axis.biases)
        parts.append(keys)
    along = [axis.values.reshape(-1) for axis in axes]
    values: Array = reduce(np.multiply.outer, along)
    column = np.ascontiguousarray(values[..., None])
    return GridMemory(parts, torch.from_numpy(column))


def _query(one: Inner, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """W_Q and b_Q of q = sqrt(d_k) (d_1 . x, ..., d_r . x, 1, 0, ...)."""
    size = key_width(len(one.factors))
    root = math.sqrt(size)
    query = zeros(width, size)
    offset = zeros(size)
    for a, factor in enumerate(one.factors):
        direction = numbers(factor.direction)
        query[: len(direction), a] = root * direction
    offset[len(one.factors)] = root
    return query, offset
