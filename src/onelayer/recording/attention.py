"""How softmax and attention are written in the formula language."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.recording.algebra import add, div, mul, sub, unary
from onelayer.recording.choices import where
from onelayer.recording.dispatch import operation, same_type
from onelayer.recording.network import linear, matmul
from onelayer.recording.reductions import mean, total
from onelayer.recording.symbolic import CPU, MINUS_INFINITY, ZERO, Recording, Symbolic, Truth, lift


@operation("softmax", neutral="_stacklevel")
def softmax(tape: Recording, input: Any, dim: int | None = None, dtype: Any = None) -> Symbolic:
    """exp(x_i) / sum_j exp(x_j), unshifted (the real function is the same); masked logits weigh zero."""
    same_type(dtype)
    ids = lift(tape, input).ids
    # Masked entries have no node: the exponential of 0 stands in for them and is taken out again.
    masked = ids == MINUS_INFINITY
    weights = unary(tape, "exp", Symbolic(tape, ids.masked_fill(masked, ZERO)))
    weights = Symbolic(tape, weights.ids.masked_fill(masked, ZERO))
    along = _softmax_dim(ids.ndim, dim)
    return div(tape, weights, total(tape, weights, along, True))


@operation("log_softmax", neutral="_stacklevel")
def log_softmax(tape: Recording, input: Any, dim: int | None = None, dtype: Any = None) -> Symbolic:
    """x - logsumexp(x)."""
    same_type(dtype)
    along = _softmax_dim(lift(tape, input).ndim, dim)
    return sub(tape, input, logsumexp(tape, input, along, True))


def _softmax_dim(ndim: int, dim: int | None) -> int:
    """torch's choice where none is given: the first dimension of 0, 1 or 3, the second otherwise."""
    if dim is not None:
        return dim
    if ndim in (0, 1, 3):
        return 0
    return 1


@operation("logsumexp")
def logsumexp(tape: Recording, input: Any, dim: Any, keepdim: bool = False) -> Symbolic:
    """log of the sum of exponentials."""
    if not isinstance(dim, int) and len(dim) == 0:
        raise UnsupportedOperation("logsumexp", "name its dimensions")
    return unary(tape, "log", total(tape, unary(tape, "exp", input), dim, keepdim))


@operation("scaled_dot_product_attention")
def attention(
    tape: Recording,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Symbolic:
    """softmax(q k' scale + mask) v; a bool mask says which keys a query may attend to."""
    if dropout_p:
        raise UnsupportedOperation("scaled_dot_product_attention(dropout_p)", "call module.eval() first")
    if enable_gqa:
        raise UnsupportedOperation("scaled_dot_product_attention(enable_gqa)", "repeat the keys and values of a group")
    if is_causal and attn_mask is not None:
        raise UnsupportedOperation("scaled_dot_product_attention(is_causal)", "torch takes a mask or is_causal")
    return matmul(tape, _weights(tape, query, key, attn_mask, is_causal, scale), value)


def _weights(tape: Recording, query: Any, key: Any, mask: Any, is_causal: bool, scale: float | None) -> Symbolic:
    # A mask of comparisons is neither bool to torch's tests nor a number to add.
    if isinstance(mask, Truth):
        raise UnsupportedOperation("scaled_dot_product_attention(attn_mask)", "a mask that depends on x jumps")
    q = lift(tape, query)
    k = lift(tape, key)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    products = matmul(tape, q, Symbolic(tape, k.ids.mT))
    logits = mul(tape, products, factor)
    if is_causal:
        size = tuple(logits.shape[-2:])
        mask = torch.ones(size, dtype=torch.bool, device=CPU).tril()
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        logits = where(tape, mask, logits, -math.inf)
    elif mask is not None:
        logits = add(tape, logits, mask)
    return softmax(tape, logits, -1)


@operation("multi_head_attention_forward")
def multi_head(
    tape: Recording,
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Symbolic, Symbolic | None]:
    """nn.MultiheadAttention with one packed projection; inputs (N, B, width) or (N, width).

    Here a bool mask says which keys a query may *not* attend to. As in torch, ``is_causal`` replaces the mask when no
    weights are asked for, and is a hint without effect otherwise.
    """
    special = (bias_k, bias_v, key_padding_mask, q_proj_weight, k_proj_weight, v_proj_weight, static_k, static_v)
    if add_zero_attn or use_separate_proj_weight or any(part is not None for part in special):
        raise UnsupportedOperation("multi_head_attention_forward", "only the plain form is recorded")
    if training and dropout_p:
        raise UnsupportedOperation("multi_head_attention_forward(dropout_p)", "call module.eval() first")
    mask, causal = _mask_of_heads(attn_mask, is_causal, need_weights)
    packed = (in_proj_weight, in_proj_bias)
    q, k, v = (_heads(tape, x, packed, at, num_heads) for at, x in enumerate((query, key, value)))  # (B, H, N, d)
    weights = _weights(tape, q, k, mask, causal, None)
    per_head = matmul(tape, weights, v).ids
    joined = per_head.permute(2, 0, 1, 3).flatten(-2)  # (N, B, H d)
    done = linear(tape, Symbolic(tape, joined), out_proj_weight, out_proj_bias)
    batched = lift(tape, query).ndim == 3
    done = done if batched else Symbolic(tape, done.ids.squeeze(1))
    if not need_weights:
        return done, None
    return done, _shown(tape, weights, average_attn_weights, batched)


def _shown(tape: Recording, weights: Symbolic, average: bool, batched: bool) -> Symbolic:
    """The weights that torch returns beside the result: averaged over the heads or not, with a batch or without."""
    shown = mean(tape, weights, 1) if average else weights
    if batched:
        return shown
    return Symbolic(tape, shown.ids.squeeze(0))


def _mask_of_heads(given: Any, is_causal: bool, need_weights: bool) -> tuple[Any, bool]:
    """The mask in the sense of ``_weights``, True where a query attends, and whether it is the causal one."""
    name = "multi_head_attention_forward"
    if is_causal and given is None:
        raise UnsupportedOperation(f"{name}(is_causal)", "torch wants the mask as well")
    if is_causal and not need_weights:
        return None, True
    # Here a true entry hides a key; in scaled_dot_product_attention it shows one.
    mask = ~given if _is_bool(given) else given
    if mask is not None and mask.ndim == 3:
        raise UnsupportedOperation(f"{name}(attn_mask)", "use one mask (L, S) for all heads")
    return mask, False


def _is_bool(mask: Any) -> bool:
    return isinstance(mask, Tensor) and mask.dtype == torch.bool


def _heads(tape: Recording, x: Any, packed: tuple[Any, Any], at: int, heads: int) -> Symbolic:
    """The projection of x by one third of the packed weight and bias, split into heads: (B, H, N, d)."""
    weight, bias = packed
    width = len(weight) // 3
    rows = slice(at * width, (at + 1) * width)
    offset = None if bias is None else bias[rows]
    y = linear(tape, x, weight[rows], offset).ids
    y = y if y.ndim == 3 else y.unsqueeze(1)  # (N, B, H d)
    split = y.reshape(*y.shape[:2], heads, y.shape[-1] // heads)
    return Symbolic(tape, split.permute(1, 2, 0, 3))
