"""How the activations, normalisations and cells of torch.nn are written in the formula language."""

from __future__ import annotations

from typing import Any

import torch

from onelayer.errors import UnsupportedOperation
from onelayer.recording.algebra import add, clamp, div, minimum, mul, neg, power, sub, unary
from onelayer.recording.attention import softmax
from onelayer.recording.dispatch import operation
from onelayer.recording.network import layer_norm
from onelayer.recording.reductions import mean
from onelayer.recording.symbolic import Recording, Symbolic, lift

# Alpha and scale, as torch has them.
_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@operation("selu")
def selu(tape: Recording, input: Any, inplace: bool = False) -> Symbolic:
    """scale (max(x, 0) + alpha (exp(min(x, 0)) - 1))"""
    alpha, scale = _SELU
    curved = mul(tape, alpha, unary(tape, "expm1", minimum(tape, input, 0.0)))
    return mul(tape, scale, add(tape, unary(tape, "relu", input), curved))


@operation("celu")
def celu(tape: Recording, input: Any, alpha: float = 1.0, inplace: bool = False) -> Symbolic:
    """max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1)"""
    scaled = div(tape, minimum(tape, input, 0.0), float(alpha))
    curved = unary(tape, "expm1", scaled)
    return add(tape, unary(tape, "relu", input), mul(tape, float(alpha), curved))


@operation("prelu")
def prelu(tape: Recording, input: Any, weight: Any) -> Symbolic:
    """max(x, 0) + weight min(x, 0)"""
    slope = _channels(tape, input, weight)
    negative = mul(tape, slope, minimum(tape, input, 0.0))
    return add(tape, unary(tape, "relu", input), negative)


@operation("hardsigmoid")
def hardsigmoid(tape: Recording, input: Any, inplace: bool = False) -> Symbolic:
    """x + 3 between 0 and 6, divided by 6."""
    return div(tape, clamp(tape, add(tape, input, 3.0), 0.0, 6.0), 6.0)


@operation("hardswish")
def hardswish(tape: Recording, input: Any, inplace: bool = False) -> Symbolic:
    """x hardsigmoid(x)."""
    return mul(tape, input, hardsigmoid(tape, input))


@operation("tanhshrink")
def tanhshrink(tape: Recording, input: Any) -> Symbolic:
    """x - tanh(x)."""
    return sub(tape, input, unary(tape, "tanh", input))


@operation("softshrink")
def softshrink(tape: Recording, input: Any, lambd: float = 0.5) -> Symbolic:
    """x without its part between -lambda and lambda."""
    width = float(lambd)
    return sub(tape, input, clamp(tape, input, -width, width))


@operation("softmin", neutral="_stacklevel")
def softmin(tape: Recording, input: Any, dim: int | None = None, dtype: Any = None) -> Symbolic:
    """Softmax of -x."""
    return softmax(tape, neg(tape, input), dim, dtype)


@operation("glu")
def glu(tape: Recording, input: Any, dim: int = -1) -> Symbolic:
    """One half times the sigmoid of the other."""
    first, second = lift(tape, input).ids.chunk(2, dim)
    gate = unary(tape, "sigmoid", Symbolic(tape, second))
    return mul(tape, Symbolic(tape, first), gate)


@operation("rms_norm")
def rms_norm(
    tape: Recording, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Symbolic:
    """x / sqrt(mean(x**2) + eps) weight; eps defaults to the machine epsilon of float64, where f is given in that."""
    if eps is None and tape.narrower:
        raise UnsupportedOperation(
            "rms_norm", "its eps is the unit of the format, which is narrower than float64 here; give eps="
        )
    dims = list(range(-len(normalized_shape), 0))
    small = torch.finfo(torch.float64).eps if eps is None else float(eps)
    squares = mean(tape, power(tape, input, 2), dims, True)
    spread = add(tape, squares, small)
    y = div(tape, input, unary(tape, "sqrt", spread))
    if weight is None:
        return y
    return mul(tape, y, weight)


@operation("batch_norm", neutral="cudnn_enabled")
def batch_norm(
    tape: Recording,
    input: Any,
    running_mean: Any,
    running_var: Any,
    *,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Symbolic:
    """(x - mean) / sqrt(var + eps) weight + bias, constants along the second dimension

    What follows the variance goes by keyword: torch.batch_norm has these arguments in another order.
    """
    # Without stored statistics it takes those of the batch, and so mixes its points.
    if training or running_mean is None or running_var is None:
        raise UnsupportedOperation("batch_norm", "it mixes the points of a batch; call module.eval() first")
    variance = _channels(tape, input, running_var)
    spread = unary(tape, "sqrt", add(tape, variance, float(eps)))
    centred = sub(tape, input, _channels(tape, input, running_mean))
    return _gained(tape, div(tape, centred, spread), weight, bias)


@operation("group_norm", neutral="cudnn_enabled")
def group_norm(
    tape: Recording, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Symbolic:
    """Layer normalisation within groups of channels, then a gain and an offset per channel"""
    x = lift(tape, input)
    size = x.ids[0].numel() // num_groups
    groups = Symbolic(tape, x.ids.reshape(len(x), num_groups, size))
    flat = layer_norm(tape, groups, (size,), eps=eps)
    return _gained(tape, Symbolic(tape, flat.ids.reshape(x.ids.shape)), weight, bias)


def _gained(tape: Recording, y: Symbolic, weight: Any, bias: Any) -> Symbolic:
    """A gain and an offset per channel, where there are any."""
    if weight is not None:
        y = mul(tape, y, _channels(tape, y, weight))
    if bias is None:
        return y
    return add(tape, y, _channels(tape, y, bias))


def _channels(tape: Recording, x: Any, values: Any) -> Symbolic:
    """One constant, or one per entry of the second dimension of x."""
    ids = lift(tape, values).ids
    ndim = lift(tape, x).ndim
    if ids.numel() == 1:
        return Symbolic(tape, ids.reshape(()))
    # Dimensions behind the second one, and none where x is one point of channels.
    behind = [1] * (ndim - 2) if ndim > 1 else []
    return Symbolic(tape, ids.reshape(-1, *behind))


@operation("instance_norm", neutral="cudnn_enabled")
def instance_norm(
    tape: Recording,
    input: Any,
    *,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Symbolic:
    """Normalisation of every channel by itself, or by the statistics that training left.

    All by keyword: torch.instance_norm has these arguments in another order than torch.nn.functional.instance_norm.
    """
    # By the statistics of one point alone: groups of one channel each.
    if use_input_stats:
        channels = lift(tape, input).ids.shape[1]
        return group_norm(tape, input, channels, weight, bias, eps)
    return batch_norm(tape, input, running_mean, running_var, weight=weight, bias=bias, eps=eps)
