"""Torch's fused calls of attention, written in the operations of the modules that make them.

Those modules make them for plain numbers alone, and then read the weights of their parts without running the parts: an
activation, a linear map or a block that stands in the place of the usual one is passed over, and a mask of numbers is
taken for one that hides. So what a fused call computes is said here by its arguments alone, as a layer of torch's own
with these weights computes it operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

Written = Callable[[], Any]


def unfused(name: str, args: Sequence[Any], *, causal: bool) -> Written | None:
    """What computes the same as the fused call of this name, operation by operation; None for any other call.

    ``causal``: with the hint that the mask is causal, which a fused call does not say. None too where it is not.
    """
    return _FUSED[name](*args, causal=causal) if name in _FUSED else None


def _layer(
    src: Tensor,
    width: int,
    heads: int,
    in_weight: Tensor,
    in_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    *weights_and_mask: Any,
    causal: bool,
) -> Written | None:
    """nn.TransformerEncoderLayer."""
    weights, mask = weights_and_mask[:8], _mask_of_all(*weights_and_mask[8:9])
    if not _known(mask, causal):
        return None
    activation = "gelu" if use_gelu else "relu"
    how: dict[str, Any] = {"activation": activation, "layer_norm_eps": eps, "norm_first": norm_first}
    hidden = len(weights[4])
    # Without numbers of its own: all are given.
    layer = nn.TransformerEncoderLayer(
        width, heads, hidden, batch_first=True, device="meta", dtype=src.dtype, **how
    ).eval()
    names = [f"{part}.{kind}" for part in ("norm1", "norm2", "linear1", "linear2") for kind in ("weight", "bias")]
    held = dict(zip(names, weights, strict=True))
    held |= {f"self_attn.{key}": value for key, value in _of_heads(in_weight, in_bias, out_weight, out_bias).items()}
    given = {"src_mask": mask, "is_causal": causal}
    return lambda: functional_call(layer, held, (src,), given)


def _heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    in_weight: Tensor,
    in_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
    *,
    causal: bool,
) -> Written | None:
    """nn.MultiheadAttention, of one tensor for queries, keys and values."""
    shared = _mask_of_all(mask)
    if not _known(shared, causal) or query is not key or key is not value:
        return None
    module = nn.MultiheadAttention(width, heads, batch_first=True, device="meta", dtype=query.dtype).eval()
    held = _of_heads(in_weight, in_bias, out_weight, out_bias)
    asked = {"need_weights": need_weights, "average_attn_weights": average_attn_weights}
    given = {"attn_mask": shared, "is_causal": causal, **asked}
    return lambda: functional_call(module, held, (query, query, query), given)


def _of_heads(in_weight: Tensor, in_bias: Tensor, out_weight: Tensor, out_bias: Tensor) -> dict[str, Tensor]:
    names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    return dict(zip(names, (in_weight, in_bias, out_weight, out_bias), strict=True))


def _mask_of_all(mask: Tensor | None = None) -> Tensor | None:
    """The mask of one point and head, where all have the same."""
    if mask is None or mask.ndim != 4 or not bool((mask == mask[:1, :1]).all()):
        return mask
    return mask[0, 0]


def _known(mask: Tensor | None, causal: bool) -> bool:
    """Whether the call is what the module makes of this mask and hint.

    The mask hides entries and adds nothing to others; where there is the hint, it hides what comes later.
    """
    if mask is None:
        return not causal
    hidden = torch.isneginf(mask)
    later = torch.ones_like(hidden).triu(1)
    return mask.ndim == 2 and bool((hidden | (mask == 0)).all()) and (not causal or torch.equal(hidden, later))


_FUSED: dict[str, Callable[..., Written | None]] = {
    "aten::_transformer_encoder_layer_fwd": _layer,
    "aten::_native_multi_head_attention": _heads,
}
