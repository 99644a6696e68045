"""Layer normalisation on Taylor models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from onelayer.certify.taylor.arithmetic import combine, mul, square
from onelayer.certify.taylor.compose import compose, within_image
from onelayer.certify.taylor.contraction import mean
from onelayer.certify.taylor.core import TaylorModel
from onelayer.certify.taylor.elementary import RSQRT
from onelayer.certify.taylor.registry import implements
from onelayer.certify.taylor.rounding import executed, inflate, relative_error
from onelayer.errors import UnsupportedOperation


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
    dims = list(range(-len(normalized_shape), 0))
    exact = x.untag()
    centered = combine(exact, mean(exact, dims, keepdim=True), -1)
    variance = mean(square(centered), dims, keepdim=True)
    scale = compose(RSQRT, combine(variance, eps, 1), floor=eps)
    limit = torch.full_like(centered.rem, math.sqrt(max(math.prod(normalized_shape) - 1, 0)) * (1 + 2.0**-40))
    result = within_image(mul(centered, scale), -limit, limit)
    if x.execution is not None:
        result = _executed_norm(x, centered, variance, scale, result, dims, eps, x.execution)
    if weight is not None:
        result = mul(result, weight)
    return result if bias is None else combine(result, bias, 1)


def _executed_norm(
    x: TaylorModel,
    centered: TaylorModel,
    variance: TaylorModel,
    scale: TaylorModel,
    result: TaylorModel,
    dims: list[int],
    eps: float,
    dtype: torch.dtype,
) -> TaylorModel:
    """Rounding of any usual algorithm: the mean errs by n u mean|x|, the variance by 4 (n + 8) u mean x^2 at worst."""
    size = x.magnitude()
    count = math.prod(x.shape[d] for d in dims)
    step = relative_error(dtype, 1.0)
    mean_error = inflate((count + 4) * step * size.mean(dims, keepdim=True))
    variance_error = inflate(4 * (count + 8) * step * (size * size).mean(dims, keepdim=True))
    floor = variance.range()[0].clamp(min=0) + eps * (1 - 2.0**-40)
    relative = inflate(variance_error / floor)
    relative = torch.where(relative < 0.125, relative + 16 * step, torch.inf)
    shift = inflate((mean_error + 8 * step * (size + size.mean(dims, keepdim=True))) * scale.magnitude() * 2)
    result = result.with_radius(result.magnitude() * relative + shift).tagged(dtype)
    result.rem = executed(result.rem, inflate(centered.magnitude() * scale.magnitude()), 4, dtype)
    return result


@implements("rms_norm")
def rms_norm(
    x: TaylorModel, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> TaylorModel:
    """x / sqrt(mean x^2 + eps) * weight; eps defaults to the machine epsilon of the executing type."""
    dims = list(range(-len(normalized_shape), 0))
    small = torch.finfo(x.execution or x.dtype).eps if eps is None else eps
    exact = x.untag()
    scale = compose(RSQRT, combine(mean(square(exact), dims, keepdim=True), small, 1), floor=small)
    limit = torch.full_like(x.rem, math.sqrt(math.prod(normalized_shape)) * (1 + 2.0**-40))
    result = within_image(mul(exact, scale), -limit, limit).tagged(x.execution)
    result.rem = executed(result.rem, result.magnitude(), math.prod(normalized_shape) + 16, x.execution)
    return result if weight is None else mul(result, weight)


@implements("dropout", "alpha_dropout", "feature_dropout", "dropout1d", "dropout2d")
def dropout(x: TaylorModel, p: float = 0.5, training: bool = True, inplace: bool = False) -> TaylorModel:
    """The identity in evaluation mode."""
    if training and p > 0:
        raise UnsupportedOperation("dropout in training mode", "call .eval() on the model first")
    return x
