"""The packed layer of inner and outer functions, from an argument and its fitted parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.build.sequences.piecewise import Piecewise
from onelayer.float64 import eye, zeros
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.nested import Nested, Outer, RidgeTerm
from onelayer.lemmas.nesting import KEY_WIDTH

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
    lookups: Sequence[Lookup | None],
    fitted: Sequence[Piecewise],
    dtype: torch.dtype,
) -> OneLayerTransformer:
    """T = sum_k G_k(s_k) + direct part; the stream holds x, the sums s_k of the ridges, and the outputs.

    ``lookups`` has a head for every inner function that is not plain, ``fitted`` the function G_k of every ridge.
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
    for c, (one, lookup) in enumerate(zip(nested.inner, lookups, strict=True)):
        direction = torch.tensor(one.direction, dtype=torch.float64, device="cpu")
        if lookup is None:
            embedding += direction[:, None] * written[c]
            continue
        keys = zeros(len(lookup.slopes), KEY_WIDTH)
        keys[:, 0], keys[:, 1] = torch.from_numpy(lookup.slopes), torch.from_numpy(lookup.biases)
        heads.append(GridMemory([keys], torch.from_numpy(lookup.values.reshape(-1, 1))))
        query = zeros(width, KEY_WIDTH)
        offset = zeros(KEY_WIDTH)
        query[:d, 0], offset[1] = 2 * direction, 2.0
        queries.append(query)
        offsets.append(offset)
        out.append(written[c])
    if not heads:  # a layer has a head, even where none is needed
        heads = [GridMemory([zeros(1, KEY_WIDTH)], zeros(1, 1))]
        out = [zeros(width)]
        queries = [zeros(width, KEY_WIDTH)]
        offsets = [zeros(KEY_WIDTH)]
    weights: dict[str, torch.Tensor | Sequence[torch.Tensor]] = {
        "W_E": embedding,
        "W_Q": queries,
        "b_Q": offsets,
        "W_O": torch.stack(out),
        "W_R": eye(width)[:, width - nested.outputs :],
    }
    constants = zeros(nested.outputs)
    for (part, ridge), _ in zip(ridges, fitted, strict=True):
        constants[part.output] += ridge.constant
    weights["b_R"] = constants
    if nested.units:
        weights |= _units(nested, [part.output for part, _ in ridges], fitted, width)
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


def _units(nested: Nested, outputs: Sequence[int], fitted: Sequence[Piecewise], width: int) -> dict[str, torch.Tensor]:
    """Unit u of ridge k: relu(s_k - knot), times the change of slope there, into its output."""
    into = zeros(width, len(nested.units))
    out_of = zeros(len(nested.units), width)
    knots, changes = (
        np.concatenate(parts) for parts in zip(*((f.knots[:-1], f.changes()) for f in fitted), strict=True)
    )
    for u, k in enumerate(nested.units):
        into[nested.inputs + k, u] = 1.0
        out_of[u, width - nested.outputs + outputs[k]] = float(changes[u])
    return {"W_1": into, "b_1": torch.from_numpy(-knots), "W_2": out_of}
