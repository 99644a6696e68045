"""Derivatives of what is made of other operations: attention with masks, nn.MultiheadAttention, extremes of an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.attention import mask_of_heads, multi_head_attention_forward
from onelayer.taylor.derivatives import real_number
from onelayer.taylor.dual import Dual, derivative, value_of, zeros_like
from onelayer.taylor.opaque import AttentionWeights

HEADS = "multi_head_attention_forward"


@derivative("masked_fill")
def masked_fill(function: Callable[..., Any], x: Dual, mask: Tensor, value: float) -> Dual:
    """A constant where a constant mask is true: no slope there."""
    if not isinstance(mask, Tensor):
        raise UnsupportedOperation("the derivative of masked_fill by a comparison", "use relu, abs, maximum or clamp")
    filled = torch.masked_fill(x.value, mask, value)
    return x.moved(filled, lambda t: torch.where(mask, zeros_like(t), t))


@derivative("scaled_dot_product_attention")
def attention(
    function: Callable[..., Any],
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q k / sqrt(d) + mask) v, in its own operations."""
    if dropout_p or enable_gqa or (is_causal and attn_mask is not None):
        raise UnsupportedOperation("the derivative of such attention", "without dropout, shared keys and two masks")
    logits = torch.matmul(query, key.transpose(-2, -1))
    usual = real_number(1 / math.sqrt(query.shape[-1]), value_of(logits))
    logits = logits * (usual if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(tuple(logits.shape)[-2:], dtype=torch.bool, device=logits.device).tril()
    return torch.matmul(torch.softmax(_masked(logits, attn_mask), -1), value)


def _masked(logits: Any, mask: Any) -> Any:
    """Logits with a constant mask, as torch adds it."""
    if mask is None:
        return logits
    if not isinstance(mask, Tensor):
        raise UnsupportedOperation("the derivative by a mask", "use a constant mask")
    hidden = ~mask if mask.dtype == torch.bool else torch.isneginf(mask)
    if mask.dtype != torch.bool:
        logits = logits + torch.where(hidden, torch.zeros_like(mask), mask)
    return logits.masked_fill(hidden, -torch.inf)


@derivative(HEADS)
def heads(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, AttentionWeights | None]:
    """nn.MultiheadAttention: projections, attention of each head, output projection; (N, B, E) inputs."""
    given = signature(multi_head_attention_forward).bind(*args, **kwargs)
    given.apply_defaults()
    asked = given.arguments
    refused = ("bias_k", "bias_v", "key_padding_mask", "static_k", "static_v")
    given_anyway = any(asked[name] is not None for name in refused)
    if given_anyway or asked["add_zero_attn"] or asked["use_separate_proj_weight"]:
        raise UnsupportedOperation("the derivative of such attention heads", "use plain self-attention")
    if asked["training"] and asked["dropout_p"] > 0:
        raise UnsupportedOperation("dropout in training mode", "call .eval() on the model first")
    weights = asked["in_proj_weight"].chunk(3)
    bias = asked["in_proj_bias"]
    biases = (None, None, None) if bias is None else bias.chunk(3)
    tokens = (asked["query"], asked["key"], asked["value"])
    parts = zip(tokens, weights, biases, strict=True)
    q, k, v = (_cut(functional.linear(x, w, b), asked["num_heads"]) for x, w, b in parts)
    mask, causal = mask_of_heads(asked["attn_mask"], asked["is_causal"], asked["need_weights"])
    out = attention(torch.matmul, q, k, v, mask, is_causal=causal)
    merged = out.permute(2, 0, 1, 3).flatten(2)  # (N, B, E)
    read = functional.linear(merged, asked["out_proj_weight"], asked["out_proj_bias"])
    return read, AttentionWeights() if asked["need_weights"] else None


def _cut(x: Any, count: int) -> Any:
    """(N, B, E) as heads (B, H, N, width)."""
    length, batch, width = x.shape
    return x.reshape(length, batch, count, width // count).permute(1, 2, 0, 3)


def _extreme(better: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def rule(function: Callable[..., Any], x: Dual, dim: Any = (), keepdim: bool = False) -> Any:
        """A tournament along each dimension."""
        dims = _axes(dim, x.ndim)
        found: Any = x
        for axis in dims:
            found = _tournament(found, axis, better)
        for axis in reversed(dims if not keepdim else []):
            found = found.squeeze(axis)
        return found

    return rule


def _axes(dim: Any, count: int) -> list[int]:
    """One, several, or all for an empty tuple."""
    chosen: Sequence[int] = [dim] if isinstance(dim, int) else tuple(dim or range(count))
    return sorted({axis % count for axis in chosen})


def _tournament(x: Any, axis: int, better: Callable[[Any, Any], Any]) -> Any:
    """The first half against the second until one is left: as many rounds as the logarithm of the length."""
    while x.shape[axis] > 1:
        half, odd = divmod(x.shape[axis], 2)
        winners = better(x.narrow(axis, 0, half), x.narrow(axis, half, half))
        x = torch.cat([winners, x.narrow(axis, 2 * half, 1)], axis) if odd else winners
    return x


derivative("amax")(_extreme(torch.maximum))
derivative("amin")(_extreme(torch.minimum))
