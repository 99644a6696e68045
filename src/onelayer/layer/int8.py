"""Weights as whole numbers of 8 bits with one scale per channel; the layer computes in float32 with their products.

A channel is a column: the entries of a tensor with one last index. Its numbers are q s with q in -127 ... 127. A scale
has at most 17 significant bits, so that 7 bits of q and its own fit into the 24 of float32: every product is exact, and
an int8 layer is a float32 layer with weights of a special kind. Vectors (biases, gains) stay float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from onelayer.errors import OnelayerError

# The largest integer of eight bits whose negative is one too.
MOST = 127
# What the name of a weight is followed by in the name of its scales.
SCALE = ".scale"
# Of the mantissa of a scale: 17 + 7 bits of an integer make an exact product in float32.
SCALE_BITS = 17


def scale_for(largest: float) -> float:
    """The least scale of 17 bits with which ``largest`` is at most 127 steps; 1 for zero."""
    if not largest > 0:
        return 1.0
    mantissa, exponent = math.frexp(largest / MOST)
    # Upwards, so that the largest number is not cut off.
    steps = math.ceil(math.ldexp(mantissa, SCALE_BITS))
    return math.ldexp(steps, exponent - SCALE_BITS)


def integers(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """q (..., n) in int8 and s (n,) in float32 with tensor = q s exactly; OnelayerError where there are none.

    A column of multiples of a power of two has that scale; any other is known by its largest number, 127 steps.
    """
    numbers = tensor.detach().double().cpu()
    columns = numbers.reshape(-1, tensor.shape[-1])
    if not bool(torch.isfinite(columns).all()):
        raise OnelayerError("int8 weights must be finite")
    found = [_scale(column) for column in columns.T]
    scales = torch.tensor(found, dtype=torch.float32, device="cpu")
    # In float64 the product of 24 bits of a scale and 7 of an integer is exact: equal means that the file, which holds
    # the two, holds the weight itself and not one that is rounded to it.
    exact = scales.double()
    whole = (columns / exact).round()
    within = bool((whole.abs() <= MOST).all())
    if not within or not torch.equal(whole * exact, columns):
        raise OnelayerError("a column of weights is not on an int8 grid: build the layer with dtype='int8'")
    return whole.to(torch.int8).reshape(tensor.shape), scales


def stored_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of an int8 layer as a file has them: matrices as whole numbers with ``name.scale`` beside them."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        found[name] = tensor
        if tensor.ndim >= 2:
            found[name], found[name + SCALE] = integers(tensor)
    return found


def computed_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The float32 weights in the tensors of a file; OnelayerError unless each scale is the one of its column."""
    whole = {name: tensor for name, tensor in tensors.items() if tensor.dtype == torch.int8}
    integral = {*whole, *(name + SCALE for name in whole)}
    found = {name: tensor for name, tensor in tensors.items() if name not in integral}
    for name, tensor in whole.items():
        found[name] = _scaled(name, tensor, tensors.get(name + SCALE))
    if whole and _matrices(found) != whole.keys():
        raise OnelayerError("either every matrix of a layer is int8, or none")
    return found


def _scaled(name: str, whole: Tensor, scales: Tensor | None) -> Tensor:
    """The float32 weight of whole numbers and their scales; OnelayerError unless these are the ones of its columns."""
    if scales is None or scales.dtype != torch.float32 or scales.shape != whole.shape[-1:]:
        raise OnelayerError(f"int8 weight {name} needs a float32 scale for each of its {whole.shape[-1]} columns")
    found = products(whole, scales)
    # One layer has one file: other scales with the same products would be another hash for the same weights.
    if not torch.equal(integers(found)[1], scales):
        raise OnelayerError(f"the scales of int8 weight {name} are not those of its columns")
    return found


def _matrices(tensors: Mapping[str, Tensor]) -> set[str]:
    """The names of the tensors that are no vectors."""
    return {name for name, tensor in tensors.items() if tensor.ndim >= 2}


def products(whole: Tensor, scales: Tensor) -> Tensor:
    """q s in float32."""
    return whole.to(torch.float32) * scales.to(torch.float32)


def power_scale(column: Sequence[float]) -> float | None:
    """The largest power of two that divides all of these numbers, if 127 times it is enough for them."""
    present = [v for v in column if v != 0]
    if not present:
        return 1.0
    # A number of exponent e with z zeros at the end of its 53 bits is an odd multiple of 2^(e - 53 + z).
    lowest = []
    for v in present:
        _, exponent = math.frexp(v)
        lowest.append(exponent - 53 + _trailing_zeros(v))
    power = math.ldexp(1.0, min(lowest))
    if max(map(abs, present)) <= MOST * power:
        return power
    return None


def _scale(column: Tensor) -> float:
    numbers = column.tolist()
    return power_scale(numbers) or max(map(abs, numbers)) / MOST


def _trailing_zeros(value: float) -> int:
    """Zeros at the end of the 53 bits of a float64 number."""
    mantissa, _ = math.frexp(value)
    bits = int(math.ldexp(abs(mantissa), 53))
    # bits & -bits is the lowest bit that is set.
    return (bits & -bits).bit_length() - 1
