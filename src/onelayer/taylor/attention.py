"""Softmax, logsumexp and attention on Taylor models."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor import logits as keys
from onelayer.taylor.arithmetic import combine, mul, operand, size_of
from onelayer.taylor.compose import compose
from onelayer.taylor.conditions import masked_fill
from onelayer.taylor.contraction import einsum, einsum_of, linear, sum_
from onelayer.taylor.core import TaylorModel, prune
from onelayer.taylor.dimensions import axis
from onelayer.taylor.elementary import EXP, LOG
from onelayer.taylor.fused import any_of
from onelayer.taylor.opaque import AttentionWeights
from onelayer.taylor.registry import call, implements, unhandled
from onelayer.taylor.rounding import (
    FUSED,
    UNIT,
    check_cast,
    executed,
    gamma,
    inflate,
    middle_and_reach,
    relative_error,
)


@implements("softmax")
def softmax(x: TaylorModel, dim: int | None = None, dtype: Any = None, _stacklevel: int = 3) -> TaylorModel:
    """softmax(l) = e^(l - q) / sum e^(l - q) for any function q: here the polynomial of the strongest key of the box.

    Returned as a pending quotient. In boxes where the sum cannot be kept away from zero the weights are enclosed by
    intervals instead, inside [0, 1].
    """
    check_cast(x.execution, dtype)
    dim = _given(x, dim, "softmax")
    shifted, masked, powers = _powers(x, dim)
    # Summed exactly as far as the value goes: the executed sum is counted with the weights.
    total = keys.summed(powers, dim)
    total = sum_(powers, dim, keepdim=True) if total is None else total
    powers, total = _or_intervals(powers, total, shifted, masked, dim)
    result = TaylorModel(powers.coef, powers.rem, x.space, powers.support, powers.degree, (total,))
    if x.execution is not None:
        result.rem = _executed_weights(result, total, shifted, dim, x.execution)
    return result


def _powers(x: TaylorModel, dim: int) -> tuple[TaylorModel, Tensor | None, TaylorModel]:
    """l - q, which keys are masked, and e^(l - q)."""
    found = keys.powers_of(prune(x.untag()), dim)
    if found is not None:
        return found.shifted, None, found.powers
    shifted, _, masked = _shifted(x, dim)
    return shifted, masked, _unmasked(compose(EXP, shifted), masked)


def _given(x: TaylorModel, dim: int | None, operation: str) -> int:
    """The dimension as it is given; torch guesses one where none is."""
    if dim is None:
        raise UnsupportedOperation(f"{operation} without dim", "say which dimension")
    return axis(x, dim)


def _shifted(x: TaylorModel, dim: int) -> tuple[TaylorModel, TaylorModel, Tensor | None]:
    """l - q exactly on the executed logits, q itself, and which keys are masked by -inf."""
    x = prune(x.untag())
    # Only a mask leaves no remainder: a logit that overflowed to -inf has an infinite one.
    masked = torch.isneginf(x.coef[0]) & (x.rem == 0)
    hidden = bool(masked.any())
    best = x.coef[0].argmax(dim, keepdim=True)
    if hidden:
        coef = torch.where(masked, 0.0, x.coef)
        x = x.with_(coef, torch.where(masked, 0.0, x.rem))
    index = best.unsqueeze(0).expand(len(x.coef), *best.shape)
    reference = torch.gather(x.coef, dim + 1, index)
    shift = x.with_(reference, torch.zeros_like(reference[0]))
    return combine(x, shift, -1), shift, masked if hidden else None


def _unmasked(powers: TaylorModel, masked: Tensor | None) -> TaylorModel:
    if masked is None:
        return powers
    coef = torch.where(masked, 0.0, powers.coef)
    return powers.with_(coef, torch.where(masked, 0.0, powers.rem))


def _or_intervals(
    powers: TaylorModel, total: TaylorModel, shifted: TaylorModel, masked: Tensor | None, dim: int
) -> tuple[TaylorModel, TaylorModel]:
    """Weights as intervals over the denominator 1 in the boxes where the sum of powers is not surely above 1/4."""
    lower, upper = total.range()
    # The strongest key alone adds about 1: a bound below 1/4 says that the enclosure is of no use as a divisor.
    poor = ~((lower > 0.25) & (upper < torch.inf))
    if not any_of(poor):
        return powers, total
    low, high = _interval_softmax(*shifted.range(), masked, dim)
    middle, reach = middle_and_reach(low, high)
    radius = inflate(reach + UNIT)
    coef = torch.where(poor, 0.0, powers.coef)
    base = torch.where(poor, 0.0, total.coef)
    coef[0] = torch.where(poor, middle, coef[0])
    base[0] = torch.where(poor, 1.0, base[0])
    powers = powers.with_(coef, torch.where(poor, radius, powers.rem))
    return powers, total.with_(base, torch.where(poor, 0.0, total.rem))


def _interval_softmax(lower: Tensor, upper: Tensor, masked: Tensor | None, dim: int) -> tuple[Tensor, Tensor]:
    """Each weight is largest when its own logit is at the top of its range and all others at the bottom."""
    if masked is not None:
        lower = torch.where(masked, -torch.inf, lower)
        upper = torch.where(masked, -torch.inf, upper)
    # Shifted by the largest logit: no exponential overflows, and weights do not change.
    top = upper.amax(dim, keepdim=True)
    small = torch.exp(lower - top)
    large = torch.exp(upper - top).clamp(min=2.0**-900)  # so that no quotient is 0 / 0
    slack = 1 + 2.0**-30  # far above the rounding of an exponential, a sum of two and a quotient
    # The sum of the others is a difference: its rounding error is relative to the whole sum.
    least = small.sum(dim, keepdim=True)
    most = large.sum(dim, keepdim=True)
    noise = gamma(small.shape[dim] + 2)
    others_at_bottom = (least - small - noise * least).clamp(min=0)
    others_at_top = (most - large + noise * most).clamp(min=0)
    high = (large / (large + others_at_bottom) * slack).clamp(max=1)
    low = small / (small + others_at_top) / slack
    # What underflows is not known relatively, and no weight is below 0.
    low = torch.where(small > 2.0**-900, low, 0.0)
    # A logit without finite bounds is a domain error, and it reaches every weight of its row.
    finite = upper - lower < torch.inf
    finite = finite if masked is None else finite | masked
    sure = finite.all(dim, keepdim=True)
    if masked is not None:
        high = torch.where(masked, 0.0, high)
        sure = sure & ~masked.all(dim, keepdim=True)
    return torch.where(sure, low, torch.nan), torch.where(sure, high, torch.nan)


def _executed_weights(
    weights: TaylorModel, total: TaylorModel, shifted: TaylorModel, dim: int, dtype: torch.dtype
) -> Tensor:
    """Remainder of the executed weights: max subtracted, exponentials summed in any order, divided.

    With d the distance of a logit to the largest one, rounding the difference changes e^(-d) by the factor e^(u d). In
    the sum these factors average to at most min(max d, M / e) u, because sum d e^(-d) <= M / e and sum e^(-d) >= 1.
    """
    unit = total.magnitude()
    found = keys.executed_weights(weights, unit, shifted, dtype) if dim == weights.ndim - 1 else None
    if found is not None:
        return found
    count = shifted.shape[dim]
    lower, upper = shifted.range()
    distance = inflate(upper.amax(dim, keepdim=True) - lower)
    shared = distance.amax(dim, keepdim=True).clamp(max=0.37 * count)  # 0.37 > 1 / e
    # First the own factor e^(u d), then those of the sum, then exponentials, sum and division.
    own = torch.expm1(relative_error(dtype, 1.0) * distance)
    rem = inflate(weights.rem + weights.magnitude() * own)
    rem = executed(rem, inflate(weights.magnitude() * shared), 1.01, dtype, unit)
    grown = weights.with_(weights.coef, rem, weights.den)
    return executed(rem, grown.magnitude(), 2 * count + FUSED, dtype, unit)


@implements("logsumexp")
def logsumexp(x: TaylorModel, dim: Any, keepdim: bool = False) -> TaylorModel:
    """q + log sum e^(l - q), executed with the maximum in place of q."""
    one = dim[0] if isinstance(dim, list | tuple) and len(dim) == 1 else dim
    if not isinstance(one, int):
        raise UnsupportedOperation("logsumexp over several dimensions")
    at = axis(x, one)
    shifted, shift, masked = _shifted(x, at)
    total = sum_(_unmasked(compose(EXP, shifted), masked), at, keepdim=True)
    result = combine(shift, compose(LOG, total), 1).tagged(x.execution)
    # Logits less their maximum, a sum of exponentials up to the count, and the maximum again.
    size = x.magnitude() if masked is None else torch.where(masked, 0.0, x.magnitude())
    reach = inflate(result.magnitude() + size.amax(at, keepdim=True) + 1)
    result.rem = executed(result.rem, reach, 2 * x.shape[at] + FUSED, x.execution)
    return result if keepdim else call("squeeze", result, at)


@implements("log_softmax")
def log_softmax(x: TaylorModel, dim: int | None = None, dtype: Any = None, _stacklevel: int = 3) -> TaylorModel:
    """x - logsumexp(x)."""
    check_cast(x.execution, dtype)
    return combine(x, logsumexp(x, _given(x, dim, "log_softmax"), keepdim=True), -1)


@implements("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> TaylorModel:
    """softmax(q k^T scale + mask) v; a bool mask is True where a query may attend."""
    unhandled("scaled_dot_product_attention", dropout_p=dropout_p > 0, enable_gqa=enable_gqa)
    if is_causal and attn_mask is not None:
        raise UnsupportedOperation("scaled_dot_product_attention(attn_mask, is_causal)", "give one of the two")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    logits = _scaled(query, key, factor)
    if is_causal:
        everyone = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device)
        attn_mask = everyone.tril()
    weights = softmax(_with_mask(logits, attn_mask, query.shape[-1]), -1)
    return einsum("...ij,...jd->...id", weights, value)


def _scaled(query: Any, key: Any, factor: float) -> TaylorModel:
    """q k^T times a factor that may be executed on q, on k, or on both before the product, or on it."""
    equation = "...id,...jd->...ij"
    product = einsum(equation, query, key)
    scale = operand(factor, product).with_radius(abs(factor) * 4 * UNIT)
    logits = mul(product, scale)
    if logits.execution is None:
        return logits
    # Any factor between 1 and this one may meet q or k first: neither may overflow there, and both round.
    a = size_of(query)
    b = size_of(key)
    most = max(1.0, abs(factor))
    reach = inflate(einsum_of(equation, a, b) * abs(factor))
    rows = a.sum(-1)[..., :, None]
    columns = b.sum(-1)[..., None, :]
    pairs = rows + columns
    ends = inflate(most * pairs)
    logits.rem = executed(logits.rem, ends, 0, logits.execution)
    logits.rem = executed(logits.rem, reach, 8, logits.execution, 1 + ends)
    return logits


def _with_mask(logits: TaylorModel, mask: Any, terms: int) -> TaylorModel:
    """Logits plus a mask of numbers, in one executed sum of any order, or of -inf where a bool mask is False."""
    if mask is None:
        return logits
    if not isinstance(mask, Tensor):
        raise UnsupportedOperation("attn_mask that depends on x", "use a constant mask")
    hidden = ~mask if mask.dtype == torch.bool else torch.isneginf(mask)
    masked = logits
    if mask.dtype != torch.bool:
        finite = torch.where(hidden, torch.zeros_like(mask), mask)
        masked = combine(logits, finite, 1)
        reach = inflate(logits.magnitude() + size_of(finite))
        masked.rem = executed(masked.rem, reach, terms + 1, masked.execution)
    # A mask is added: -inf hides a number, and not what is none.
    decided = masked.decided()
    masked = masked_fill(masked, hidden, -torch.inf)
    return masked.with_(masked.coef, torch.where(decided, masked.rem, torch.inf))


def _thirds(packed: Tensor | None) -> tuple[Any, ...]:
    """The parts of a packed projection for queries, keys and values."""
    if packed is None:
        return None, None, None
    return packed.chunk(3)


def _projected(x: TaylorModel, weight: Any, bias: Any, heads: int) -> TaylorModel:
    """x W + b of (N, B, E), cut into heads: (B, H, N, width)."""
    found = linear(x, weight, bias)
    cut = call("reshape", found, *found.shape[:2], heads, found.shape[-1] // heads)
    turned: TaylorModel = call("permute", cut, 1, 2, 0, 3)
    return turned


@implements("multi_head_attention_forward")
def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[TaylorModel, AttentionWeights | None]:
    """nn.MultiheadAttention outside its fused path: (N, B, E) inputs, projections, heads, output projection.

    Attention weights are not enclosed, averaged or not.
    """
    name = "multi_head_attention_forward"
    unhandled(name, bias_k=bias_k, bias_v=bias_v, add_zero_attn=add_zero_attn, key_padding_mask=key_padding_mask)
    unhandled(name, static_k=static_k, static_v=static_v)
    if len(query.shape) != 3:
        raise UnsupportedOperation(f"{name} without a batch", "inputs must be (N, B, E)")
    if training and dropout_p > 0:
        raise UnsupportedOperation("dropout in training mode", "call .eval() on the model first")
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights: Any = separate if use_separate_proj_weight else _thirds(in_proj_weight)
    biases = _thirds(in_proj_bias)
    tokens = (query, key, value)
    like = next(item for item in tokens if isinstance(item, TaylorModel))
    projections = zip(tokens, weights, biases, strict=True)
    q, k, v = (_projected(operand(item, like), weight, bias, num_heads) for item, weight, bias in projections)
    mask, causal = mask_of_heads(attn_mask, is_causal, need_weights)
    out = scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
    merged = call("flatten", call("permute", out, 2, 0, 1, 3), 2)  # (N, B, E)
    read = linear(merged, out_proj_weight, out_proj_bias)
    return read, AttentionWeights() if need_weights else None


def mask_of_heads(mask: Any, causal: bool, need_weights: bool) -> tuple[Any, bool]:
    """The mask and the flag that multi-head attention hands on.

    Its bool masks are True where a query may *not* attend. ``is_causal`` is a hint beside a mask: where no weights are
    wanted torch follows it and forgets the mask, otherwise it forgets the hint.
    """
    if causal and mask is None:
        raise UnsupportedOperation("multi_head_attention_forward(is_causal) without attn_mask")
    if mask is not None and len(mask.shape) != 2:
        raise UnsupportedOperation("attn_mask per head", "use a mask (N, N) for all heads")
    if causal and not need_weights:
        return None, True
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        return ~mask, False
    return mask, False
