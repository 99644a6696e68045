"""Activations, normalisations and cells of torch.nn on Taylor models.

Each is enclosed as the real function of what its argument was executed to be. A kernel may compute it in another order;
``kernel`` therefore adds more roundings than any order needs, of numbers as large as any in between.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.arithmetic import combine, div, mul, operand
from onelayer.taylor.compose import compose
from onelayer.taylor.conditions import gt, where
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.elementary import RSQRT
from onelayer.taylor.piecewise import abs_, clamp, minimum, relu
from onelayer.taylor.registry import call, implements
from onelayer.taylor.rounding import executed, inflate
from onelayer.taylor.special import SIGMOID, SOFTPLUS, TANH

_ROUNDINGS = 64  # of one kernel: a few functions within 4 ulp each and a dozen operations
_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)  # alpha and scale, as torch has them


def kernel(exact: TaylorModel, x: TaylorModel, size: Tensor) -> TaylorModel:
    """What a kernel returns for an exact function of x; ``size`` bounds every number on the way."""
    result = exact.tagged(x.execution)
    bound = torch.maximum(inflate(size), exact.magnitude())
    result.rem = executed(result.rem, bound, _ROUNDINGS, x.execution)
    return result


@implements("mish")
def mish(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    """x tanh(log(1 + e^x))"""
    exact = x.untag()
    gate = compose(TANH, compose(SOFTPLUS, exact))
    return kernel(mul(exact, gate), x, x.magnitude())


@implements("selu")
def selu(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    """scale (max(x, 0) + alpha (e^min(x, 0) - 1))"""
    alpha, scale = _SELU
    exact = x.untag()
    curved = mul(call("expm1", minimum(exact, 0.0)), alpha)
    bent = combine(relu(exact), curved, 1)
    # alpha scale < 2, and both alpha and scale are below 2.
    return kernel(mul(bent, scale), x, 2 * x.magnitude() + 4)


@implements("celu")
def celu(x: TaylorModel, alpha: float = 1.0, inplace: bool = False) -> TaylorModel:
    """max(x, 0) + alpha (e^(min(x, 0) / alpha) - 1)"""
    if not alpha > 0:
        raise UnsupportedOperation(f"celu(alpha={alpha})", "alpha must be positive")
    exact = x.untag()
    curved = mul(call("expm1", div(minimum(exact, 0.0), alpha)), alpha)
    # The argument of the exponential is rounded too: relative to itself, times a slope of at most one.
    return kernel(combine(relu(exact), curved, 1), x, x.magnitude() + 2 * alpha)


@implements("prelu")
def prelu(x: TaylorModel, weight: Any) -> TaylorModel:
    """max(x, 0) + weight min(x, 0), one weight for all or one per entry of the second dimension"""
    if isinstance(weight, TaylorModel) or not isinstance(weight, Tensor):
        raise UnsupportedOperation("prelu(weight)", "the weight must be a tensor of constants")
    by_channel = weight.numel() > 1 and x.ndim > 1
    shaped = weight.reshape(-1, *[1] * (x.ndim - 2)) if by_channel else weight.reshape(())
    exact = x.untag()
    below = mul(minimum(exact, 0.0), shaped.double())
    bent = combine(relu(exact), below, 1)
    steepest = float(weight.detach().abs().max())
    return kernel(bent, x, x.magnitude() * (1 + steepest))


@implements("hardsigmoid")
def hardsigmoid(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    """min(max(x + 3, 0), 6) / 6"""
    return kernel(_hard_gate(x.untag()), x, x.magnitude() + 6)


def _hard_gate(exact: TaylorModel) -> TaylorModel:
    clipped = clamp(combine(exact, 3.0, 1), 0.0, 6.0)
    return div(clipped, 6.0)


@implements("hardswish")
def hardswish(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    """x min(max(x + 3, 0), 6) / 6; where x + 3 is rounded and counts, |x| <= 3"""
    exact = x.untag()
    return kernel(mul(exact, _hard_gate(exact)), x, 6 * x.magnitude() + 18)


@implements("softsign")
def softsign(x: TaylorModel) -> TaylorModel:
    """x / (1 + |x|) as one executed function."""
    exact = x.untag()
    divisor = combine(abs_(exact), 1.0, 1)
    return kernel(div(exact, divisor), x, x.magnitude() + 1)


@implements("log_sigmoid")
def log_sigmoid(x: TaylorModel) -> TaylorModel:
    """-log(1 + e^(-x))"""
    return kernel(-compose(SOFTPLUS, -x.untag()), x, x.magnitude() + 1)


@implements("tanhshrink")
def tanhshrink(x: TaylorModel) -> TaylorModel:
    """x - tanh(x) as one executed function."""
    exact = x.untag()
    return kernel(combine(exact, compose(TANH, exact), -1), x, x.magnitude() + 1)


@implements("softshrink")
def softshrink(x: TaylorModel, lambd: float = 0.5) -> TaylorModel:
    """x - min(max(x, -lambd), lambd)"""
    exact = x.untag()
    inner = clamp(exact, -float(lambd), float(lambd))
    return kernel(combine(exact, inner, -1), x, x.magnitude() + abs(lambd))


@implements("threshold")
def threshold(x: TaylorModel, threshold: float, value: float, inplace: bool = False) -> TaylorModel:
    """x above a number, else a constant."""
    return where(gt(x, float(threshold)), x, float(value))


@implements("glu")
def glu(x: TaylorModel, dim: int = -1) -> TaylorModel:
    """The first half times the sigmoid of the second."""
    a, b = call("chunk", x, 2, dim)
    gate = compose(SIGMOID, b.untag())
    return kernel(mul(a.untag(), gate), x, a.magnitude() + 1)


@implements("batch_norm")
def batch_norm(
    x: TaylorModel,
    running_mean: Any,
    running_var: Any,
    *,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> TaylorModel:
    """(x - mean) / sqrt(var + eps) weight + bias with constants along the second dimension: an affine map.

    A kernel may multiply out: x a + (bias - mean a) with a = weight / sqrt(var + eps). What follows the variance goes
    by keyword: torch.batch_norm has these arguments in another order than torch.nn.functional.batch_norm.
    """
    if training or running_mean is None or running_var is None:
        raise UnsupportedOperation("batch_norm(training)", "it mixes the points of a batch; call module.eval() first")
    shape = (-1, *[1] * (x.ndim - 2)) if x.ndim > 1 else (-1,)

    def per_channel(part: Any) -> TaylorModel:
        return operand(part.reshape(shape), x).untag()

    mean = per_channel(running_mean)
    gain = compose(RSQRT, combine(per_channel(running_var), float(eps), 1))
    gain = gain if weight is None else mul(gain, per_channel(weight))
    result = mul(combine(x.untag(), mean, -1), gain)
    size = (x.magnitude() + mean.magnitude()) * gain.magnitude()
    if bias is not None:
        offset = per_channel(bias)
        result = combine(result, offset, 1)
        size = size + offset.magnitude()
    return kernel(result, x, size)


@implements("group_norm")
def group_norm(
    x: TaylorModel, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> TaylorModel:
    """Layer normalisation within groups of channels, then a gain and an offset per channel.

    A kernel may multiply out: x a + (bias - mean a), where a is at most |weight| / sqrt(eps).
    """
    if not eps > 0:
        raise UnsupportedOperation("group_norm(eps)", "eps must be positive")
    batch, channels, *rest = x.shape
    size = x.rem[0].numel() // num_groups
    flat = call("layer_norm", x.reshape(batch, num_groups, size), (size,), eps=eps)
    y = cast(TaylorModel, flat.reshape(batch, channels, *rest)).untag()
    shape = (channels, *[1] * len(rest))
    gain = torch.ones(channels, dtype=torch.float64, device=x.device) if weight is None else weight.double()
    largest = x.magnitude().reshape(batch, -1).amax(1)
    largest = largest.reshape(batch, *[1] * (1 + len(rest)))
    bound = 2 * largest * gain.abs().reshape(shape) / eps**0.5
    y = mul(y, gain.reshape(shape))
    if bias is not None:
        y = combine(y, bias.double().reshape(shape), 1)
        bound = bound + bias.double().abs().reshape(shape)
    return kernel(y, x, bound.expand(x.shape))


@implements("instance_norm")
def instance_norm(
    x: TaylorModel,
    *,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> TaylorModel:
    """Normalisation of every channel by itself, or by the statistics that training left.

    All by keyword: torch.instance_norm has these arguments in another order than torch.nn.functional.instance_norm.
    """
    if use_input_stats:
        return group_norm(x, x.shape[1], weight, bias, eps)
    return batch_norm(x, running_mean, running_var, weight=weight, bias=bias, eps=eps)


@implements("hardshrink")
def hardshrink(x: TaylorModel, lambd: float = 0.5) -> TaylorModel:
    """x where it is larger than lambd in absolute value, else zero: it jumps there."""
    return where(gt(abs_(x), float(lambd)), x, 0.0)


@implements("softmin")
def softmin(x: TaylorModel, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> TaylorModel:
    """Softmax of -x."""
    if dim is None:
        raise UnsupportedOperation("softmin(dim)", "say along which dimension")
    found: TaylorModel = call("softmax", -x, dim, dtype=dtype)
    return found
