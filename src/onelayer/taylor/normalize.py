"""Layer normalisation on Taylor models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.formats import FLOAT32, FLOAT64, format_of
from onelayer.taylor.arithmetic import combine, mul, square
from onelayer.taylor.compose import compose, within_image
from onelayer.taylor.contraction import mean
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.elementary import RSQRT
from onelayer.taylor.reductions import moment_errors, squares
from onelayer.taylor.registry import implements
from onelayer.taylor.rounding import executed, inflate, relative_error, underflow_error


@implements("layer_norm")
def layer_norm(
    x: TaylorModel,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> TaylorModel:
    """(x - mean) / sqrt(var + eps) * weight + bias.

    Samuelson: of n numbers none is further from the mean than sqrt(n - 1) standard deviations, which bounds the
    normalised values whatever the enclosure of the variance.
    """
    dims = _last(x, normalized_shape)
    # In real arithmetic first; the execution, by whatever algorithm, is added as an error of its moments.
    exact = x.untag()
    centered = combine(exact, mean(exact, dims, keepdim=True), -1)
    mean_error, square_error = moment_errors(x, dims)
    limit = math.sqrt(max(math.prod(normalized_shape) - 1, 0))
    result = _normalised(x, centered, mean_error, square_error, dims, eps, limit)
    if weight is not None:
        result = mul(result, weight)
    if bias is None:
        return result
    return combine(result, bias, 1)


@implements("rms_norm")
def rms_norm(
    x: TaylorModel, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> TaylorModel:
    """x / sqrt(mean x^2 + eps) * weight; eps defaults to the machine epsilon of the type of x.

    In the execution of a coarser format that may be float64 all the same, where a constant was, and in exact arithmetic
    it is that of the weights, float64 or float32: both are enclosed.
    """
    dims = _last(x, normalized_shape)
    small = 2 * FLOAT64.unit if eps is None else eps
    coarse = eps is None and x.execution != FLOAT64.dtype
    spread = 2 * (FLOAT32 if x.execution is None else format_of(x.execution)).unit if coarse else 0.0
    _, square_error = moment_errors(x, dims)
    no_error = torch.zeros_like(square_error)  # nothing is subtracted
    limit = math.sqrt(math.prod(normalized_shape))
    result = _normalised(x, x.untag(), no_error, square_error, dims, small, limit, spread)
    if weight is None:
        return result
    return mul(result, weight)


def _last(x: TaylorModel, normalized_shape: Sequence[int]) -> list[int]:
    """The last dimensions, which torch wants to have exactly this shape."""
    count = len(normalized_shape)
    if not 0 < count <= x.ndim or tuple(x.shape[x.ndim - count :]) != tuple(normalized_shape):
        raise UnsupportedOperation(f"normalisation over {tuple(normalized_shape)}", f"the input is {tuple(x.shape)}")
    return list(range(x.ndim - count, x.ndim))


def _normalised(
    x: TaylorModel,
    centered: TaylorModel,
    mean_error: Tensor,
    square_error: Tensor,
    dims: list[int],
    eps: float,
    limit: float,
    spread: float = 0.0,
) -> TaylorModel:
    """y / sqrt(mean y^2 + eps) for y = ``centered``, at most ``limit``; it exists where that root is not zero.

    eps may be any number from the given one to ``spread`` more.
    """
    if not eps >= 0:
        raise UnsupportedOperation(f"normalisation with eps = {eps}", "use eps >= 0")
    power = mean(square(centered), dims, keepdim=True)
    under_root = combine(power, eps + spread / 2, 1).with_radius(spread / 2)
    scale = compose(RSQRT, under_root, floor=eps)
    # A mean of squares is not negative, whatever its enclosure says.
    least, _ = power.range()
    floor = least.clamp(min=0) + eps * (1 - 2.0**-40)
    defined = centered.decided() & power.decided() & (floor > 0)
    bound = torch.full_like(centered.rem, limit * (1 + 2.0**-40))
    result = within_image(mul(centered, scale), -bound, bound, defined)
    if x.execution is None:
        return result
    return _executed_norm(x, result, scale, mean_error, square_error, floor, dims)


def _executed_norm(
    x: TaylorModel,
    result: TaylorModel,
    scale: TaylorModel,
    mean_error: Tensor,
    square_error: Tensor,
    floor: Tensor,
    dims: list[int],
) -> TaylorModel:
    """Rounding of any usual algorithm: (y + e) / sqrt(v + d) with the errors e of a deviation and d of a mean square.

    Nothing on the way may overflow: neither a sum of squares, nor the reciprocal root, nor its products with x.
    """
    dtype = x.dtype
    step = relative_error(dtype, 1.0)
    size = x.magnitude()
    # eps itself may be rounded to the executing type.
    relative = inflate((square_error + underflow_error(dtype, 4)) / floor + 4 * step)
    # 1 / sqrt(1 + d) is within |d| of 1 while |d| <= 1/8; beyond, nothing is said.
    relative = torch.where(relative < 0.125, relative + 16 * step, torch.inf)
    largest = size.amax(dims, keepdim=True)
    rate = inflate(torch.rsqrt(floor)) * 2  # of the root as executed, which is no smaller than half
    centred = (mean_error + 8 * step * (size + largest)) * rate
    shift = inflate(centred + underflow_error(dtype, 16) * (1 + rate + size))
    result = result.with_radius(result.magnitude() * relative + shift).tagged(dtype)
    # With no roundings: only whether any of these may overflow is asked.
    for reach in (squares(x, dims), rate, rate * 2 * largest, scale.magnitude()):
        result.rem = executed(result.rem, inflate(reach), 0, dtype)
    return result


@implements("dropout")
def dropout(
    x: TaylorModel, p: float = 0.5, training: bool = True, inplace: bool = False, *, train: bool | None = None
) -> TaylorModel:
    """The identity in evaluation mode."""
    if (training if train is None else train) and p > 0:
        raise UnsupportedOperation("dropout in training mode", "call .eval() on the model first")
    return x
