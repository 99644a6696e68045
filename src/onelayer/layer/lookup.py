"""Lookup layers from plain numbers: heads of separable logits over grids of memory tokens, ridges, an affine part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.float64 import eye, full, zeros
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer


@dataclass(frozen=True)
class AxisKeys:
    """One axis of a lookup head: token m has logit slopes[m] * u + biases[m], both (M,).

    u is the coordinate x[direction] of an int, or direction . x of a vector (D,). ``fine`` (M,) is added to the biases
    by a key feature of its own: two numbers of few bits hold what one cannot.
    """

    direction: int | Tensor
    slopes: Tensor
    biases: Tensor
    fine: Tensor | None = None

    @property
    def offsets(self) -> Tensor:
        """The logits at u = 0."""
        if self.fine is None:
            return self.biases
        return self.biases + self.fine


@dataclass(frozen=True)
class LookupHead:
    """coefficient * sum_m prod_a softmax_a(x)[m_a] values[m]; ``values`` is (M_1, ..., M_r, K)."""

    axes: Sequence[AxisKeys]
    values: Tensor
    coefficient: float = 1.0


@dataclass(frozen=True)
class Ridges:
    """sum_j relu(weight[j] . x + bias[j]) coefficient[j]; shapes (J, D), (J,), (J, K)."""

    weight: Tensor
    bias: Tensor
    coefficient: Tensor


@dataclass(frozen=True)
class Affine:
    """matrix x + offset; shapes (K, D), (K,)."""

    matrix: Tensor
    offset: Tensor


def _unit_count(ridges: Ridges | None) -> int:
    if ridges is None:
        return 0
    return ridges.weight.shape[0]


def _is_linear(affine: Affine | None) -> bool:
    """Whether there is an affine part that is no constant."""
    return affine is not None and bool(affine.matrix.count_nonzero())


def _sides(shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(shape, int):
        return (shape,)
    return tuple(shape)


def _head_weights(
    heads: Sequence[LookupHead], dim: int, d_model: int, first: int, width: int
) -> dict[str, Tensor | Sequence[Tensor]]:
    """Queries of the heads, and the matrix that adds their outputs into the stream from column ``first`` on."""
    queries = [_query(head, dim, d_model) for head in heads]
    outputs = zeros(len(heads) * width, d_model)
    for h, head in enumerate(heads):
        rows = slice(h * width, (h + 1) * width)
        columns = slice(first, first + width)
        factors = full((width,), head.coefficient)
        outputs[rows, columns] = factors.diag()
    weights = [w for w, _ in queries]
    biases = [b for _, b in queries]
    return {"W_Q": weights, "b_Q": biases, "W_O": outputs}


def lookup_model(
    input_shape: int | Sequence[int],
    output_shape: Sequence[int],
    heads: Sequence[LookupHead],
    ridges: Ridges | None = None,
    affine: Affine | None = None,
    *,
    dtype: torch.dtype = torch.float64,
) -> OneLayerTransformer:
    """The packed layer T(x) = sum of heads + ridges + affine part, frozen, with D = prod(input_shape) coordinates.

    A head of r axes gets d_k = max(4, r + 1): its query reads its r coordinates and a constant, times sqrt(d_k), which
    undoes the scale of eq (5). For r <= 3 the factors are powers of two, so logits are exactly those of AxisKeys;
    above, to a few roundings of the weights. Where biases have a fine part d_k is a power of four.

    Ridges are hidden units of the FFN on the residual stream, which carries (x, sum of heads). Without ridges there is
    no FFN; without ridges and matrix there is no residual either.
    """
    shape = _sides(input_shape)
    dim = math.prod(shape)
    width = math.prod(output_shape)
    heads = list(heads) or [_silent_head(width)]
    linear = _is_linear(affine)
    # A constant needs no stream: it is the bias of the readout.
    stream = linear or ridges is not None
    # Where the sum of heads is written: behind x if units or the readout still read x, else in its place.
    first = dim if stream else 0
    d_model = dim + width if stream else max(dim, width)

    # The output is what heads and units have written into these columns; a linear part reads x as well.
    readout = zeros(d_model, width)
    readout[first : first + width] = eye(width)
    weights = _head_weights(heads, dim, d_model, first, width)
    weights["W_E"] = eye(dim, d_model)
    weights["W_R"] = readout
    if affine is not None:
        weights["b_R"] = affine.offset
    if affine is not None and linear:
        readout[:dim] = affine.matrix.T
    if ridges is not None:
        weights |= _feed_forward(ridges, dim, d_model)
    model = OneLayerTransformer.packed(
        shape,
        output_shape,
        [_memory(head, dim, width) for head in heads],
        d_model=d_model,
        residual=stream,
        hidden=_unit_count(ridges),
        weights=weights,
        dtype=dtype,
    )
    return model.requires_grad_(False)


def _feed_forward(ridges: Ridges, dim: int, d_model: int) -> dict[str, Tensor]:
    """FFN that reads x from the first ``dim`` features of the stream and writes to the others."""
    count = ridges.weight.shape[0]
    into = zeros(d_model, count)
    out_of = zeros(count, d_model)
    into[:dim] = ridges.weight.T
    out_of[:, dim:] = ridges.coefficient
    return {"W_1": into, "b_1": ridges.bias, "W_2": out_of}


def _silent_head(width: int) -> LookupHead:
    """One token of value zero: a layer has at least one head, even when ridges do all the work."""
    keys = AxisKeys(0, zeros(1), zeros(1))
    return LookupHead([keys], zeros(1, width))


def _key_width(head: LookupHead) -> int:
    if not _is_fine(head):
        return max(4, len(head.axes) + 1)
    width = 4
    while width < len(head.axes) + 2:
        # By four, so that sqrt(d_k) is a power of two and rounds nothing.
        width *= 4
    return width


def _is_fine(head: LookupHead) -> bool:
    return any(axis.fine is not None for axis in head.axes)


def _query(head: LookupHead, dim: int, d_model: int) -> tuple[Tensor, Tensor]:
    """W_Q (d_model, d_k) and b_Q (d_k,) of q = sqrt(d_k) (u_1, ..., u_r, 1, 0, ...), with 1, 1 for a fine part."""
    d_k = _key_width(head)
    scale = math.sqrt(d_k)
    r = len(head.axes)
    weight = zeros(d_model, d_k)
    bias = zeros(d_k)
    for a, axis in enumerate(head.axes):
        weight[:dim, a] = scale * _direction(axis, dim)
    constants = 2 if _is_fine(head) else 1
    bias[r : r + constants] = scale
    return weight, bias


def _direction(axis: AxisKeys, dim: int) -> Tensor:
    if isinstance(axis.direction, Tensor):
        return axis.direction
    if not 0 <= axis.direction < dim:
        raise OnelayerError(f"coordinate {axis.direction} is outside an input of {dim} numbers")
    return eye(dim)[axis.direction]


def _memory(head: LookupHead, dim: int, width: int) -> GridMemory:
    """Axis a holds its slopes in key feature a, its biases in key feature r and their fine part in the next."""
    r = len(head.axes)
    shape = tuple(head.values.shape)
    if len(shape) != r + 1 or shape[-1] != width:
        raise OnelayerError(f"values of a head with {r} axes and {width} outputs have shape {shape}")
    axes = []
    for a, axis in enumerate(head.axes):
        keys = zeros(len(axis.slopes), _key_width(head))
        keys[:, a] = axis.slopes
        keys[:, r] = axis.biases
        if axis.fine is not None:
            keys[:, r + 1] = axis.fine
        axes.append(keys)
    return GridMemory(axes, head.values)
