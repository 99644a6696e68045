"""How products, activations, normalisation and attention of torch.nn are written in the formula language."""

from __future__ import annotations

import math
from typing import Any

import torch

from onelayer.errors import UnsupportedOperation
from onelayer.target.functions import FUNCTIONS
from onelayer.target.operations import add, clamp, div, elementwise, mean, minimum, mul, neg, power, sub, total
from onelayer.target.symbolic import MINUS_INFINITY, Symbolic, lift, operation
from onelayer.target.tree import Tape

MAX_TERMS = 10**6


def _unary(tape: Tape, name: str, x: Any) -> Symbolic:
    return elementwise(tape, lambda tape, a: FUNCTIONS[name].build(tape, [a]), x)


@operation("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner")
def matmul(tape: Tape, a: Any, b: Any) -> Symbolic:
    a, b = lift(tape, a), lift(tape, b)
    left = a.ids if a.ndim > 1 else a.ids[None]
    right = b.ids if b.ndim > 1 else b.ids[:, None]
    if left.shape[-1] != right.shape[-2]:
        raise UnsupportedOperation("matmul", f"shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit")
    product = mul(tape, Symbolic(tape, left.unsqueeze(-1)), Symbolic(tape, right.unsqueeze(-3)))
    done = total(tape, product, -2).ids
    done = done if a.ndim > 1 else done.squeeze(-2)
    return Symbolic(tape, done if b.ndim > 1 else done.squeeze(-1))


@operation("rmatmul")
def rmatmul(tape: Tape, a: Any, b: Any) -> Symbolic:
    return matmul(tape, b, a)


@operation("outer", "ger")
def outer(tape: Tape, a: Any, b: Any) -> Symbolic:
    return mul(tape, Symbolic(tape, lift(tape, a).ids[:, None]), b)


@operation("addmm", "addmv")
def addmm(tape: Tape, bias: Any, a: Any, b: Any) -> Symbolic:
    return add(tape, bias, matmul(tape, a, b))


@operation("linear")
def linear(tape: Tape, x: Any, weight: Any, bias: Any = None) -> Symbolic:
    y = matmul(tape, x, Symbolic(tape, lift(tape, weight).ids.mT))
    return y if bias is None else add(tape, y, bias)


@operation("einsum")
def einsum(tape: Tape, equation: str, *operands: Any) -> Symbolic:
    """Lemma: an einsum is the product of its operands on the common index space, summed over the missing letters."""
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    left, _, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    tensors = [lift(tape, operand).ids for operand in operands]
    dots = max(
        t.ndim - len(part.replace("...", "")) if "..." in part else 0 for t, part in zip(tensors, parts, strict=True)
    )
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation][:dots]
    names = [_letters(part, t.ndim, spare) for part, t in zip(parts, tensors, strict=True)]
    used = "".join(names)
    if "->" in equation:
        out = right.replace("...", "".join(spare))
    else:
        out = "".join(spare) + "".join(sorted(c for c in set(used) if used.count(c) == 1 and c not in spare))
    order = out + "".join(sorted(set(used) - set(out)))
    sizes = {c: n for name, t in zip(names, tensors, strict=True) for c, n in zip(name, t.shape, strict=True)}
    if math.prod(sizes.values()) > MAX_TERMS or any(len(set(name)) < len(name) for name in names):
        raise UnsupportedOperation("einsum", "index space too large to record, or a repeated letter in one operand")
    spread = [
        Symbolic(
            tape,
            t.permute([name.index(c) for c in order if c in name])[
                tuple(slice(None) if c in name else None for c in order)
            ],
        )
        for name, t in zip(names, tensors, strict=True)
    ]
    product = spread[0]
    for factor in spread[1:]:
        product = mul(tape, product, factor)
    summed = list(range(len(out), len(order)))
    return total(tape, product, summed) if summed else product


def _letters(part: str, ndim: int, spare: list[str]) -> str:
    if "..." not in part:
        return part
    count = ndim - len(part) + 3
    return part.replace("...", "".join(spare[len(spare) - count :]))


@operation("gelu")
def gelu(tape: Tape, x: Any, approximate: str = "none") -> Symbolic:
    if approximate == "none":
        return _unary(tape, "gelu", x)
    inner = mul(tape, math.sqrt(2 / math.pi), add(tape, x, mul(tape, 0.044715, power(tape, x, 3))))
    return mul(tape, mul(tape, 0.5, x), add(tape, 1.0, _unary(tape, "tanh", inner)))


@operation("softplus")
def softplus(tape: Tape, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Symbolic:
    """log(1 + exp(beta x)) / beta; torch's shortcut above the threshold differs by less than exp(-threshold)."""
    return div(tape, _unary(tape, "softplus", mul(tape, float(beta), x)), float(beta))


@operation("elu")
def elu(tape: Tape, x: Any, alpha: float = 1.0, inplace: bool = False) -> Symbolic:
    """relu(x) + alpha (exp(min(x, 0)) - 1)"""
    return add(tape, _unary(tape, "relu", x), mul(tape, float(alpha), _unary(tape, "expm1", minimum(tape, x, 0.0))))


@operation("leaky_relu")
def leaky_relu(tape: Tape, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Symbolic:
    return sub(tape, _unary(tape, "relu", x), mul(tape, float(negative_slope), _unary(tape, "relu", neg(tape, x))))


@operation("relu6")
def relu6(tape: Tape, x: Any, inplace: bool = False) -> Symbolic:
    return clamp(tape, x, 0.0, 6.0)


@operation("logsigmoid", "log_sigmoid")
def logsigmoid(tape: Tape, x: Any) -> Symbolic:
    return _unary(tape, "log", _unary(tape, "sigmoid", x))


@operation("softsign")
def softsign(tape: Tape, x: Any) -> Symbolic:
    return div(tape, x, add(tape, 1.0, _unary(tape, "abs", x)))


@operation("mish")
def mish(tape: Tape, x: Any, inplace: bool = False) -> Symbolic:
    return mul(tape, x, _unary(tape, "tanh", _unary(tape, "softplus", x)))


@operation("softmax")
def softmax(tape: Tape, x: Any, dim: int | None = None, *_: Any, **__: Any) -> Symbolic:
    """exp(x_i) / sum_j exp(x_j), unshifted (the real function is the same); masked logits weigh zero."""
    ids = lift(tape, x).ids
    masked = ids == MINUS_INFINITY
    weights = _unary(tape, "exp", Symbolic(tape, ids.masked_fill(masked, 0)))
    weights = Symbolic(tape, weights.ids.masked_fill(masked, 0))
    return div(tape, weights, total(tape, weights, -1 if dim is None else dim, True))


@operation("log_softmax")
def log_softmax(tape: Tape, x: Any, dim: int, *_: Any, **__: Any) -> Symbolic:
    return sub(tape, x, logsumexp(tape, x, dim, True))


@operation("logsumexp")
def logsumexp(tape: Tape, x: Any, dim: Any, keepdim: bool = False) -> Symbolic:
    return _unary(tape, "log", total(tape, _unary(tape, "exp", x), dim, keepdim))


@operation("layer_norm")
def layer_norm(
    tape: Tape, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Symbolic:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions"""
    dims = list(range(-len(shape), 0))
    centred = sub(tape, x, mean(tape, x, dims, True))
    spread = add(tape, mean(tape, power(tape, centred, 2), dims, True), float(eps))
    y = div(tape, centred, _unary(tape, "sqrt", spread))
    y = y if weight is None else mul(tape, y, weight)
    return y if bias is None else add(tape, y, bias)


@operation("scaled_dot_product_attention")
def attention(
    tape: Tape, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, is_causal: bool = False, **kwargs: Any
) -> Symbolic:
    """softmax(q k' scale + mask) v"""
    mask = kwargs.get("attn_mask", mask)
    q, k = lift(tape, q), lift(tape, k)
    if kwargs.get("dropout_p", dropout):
        raise UnsupportedOperation("scaled_dot_product_attention(dropout)", "call module.eval() first")
    scale = kwargs.get("scale") or 1 / math.sqrt(q.shape[-1])
    logits = mul(tape, matmul(tape, q, Symbolic(tape, k.ids.mT)), float(scale))
    if is_causal:
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        logits = add(tape, logits, mask)
    return matmul(tape, softmax(tape, logits, -1), v)


@operation("multi_head_attention_forward")
def multi_head(
    tape: Tape,
    query: Any,
    key: Any,
    value: Any,
    width: int,
    heads: int,
    in_weight: Any,
    in_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_weight: Any,
    out_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    *_: Any,
    **kwargs: Any,
) -> tuple[Symbolic, None]:
    """nn.MultiheadAttention with one packed projection; inputs (N, B, width) or (N, width)."""
    special = bias_k is not None or bias_v is not None or add_zero_attn or key_padding_mask is not None
    if special or kwargs.get("use_separate_proj_weight") or (training and dropout_p):
        raise UnsupportedOperation("multi_head_attention_forward", "only the plain form (eval mode) is recorded")
    projected = []
    for at, x in enumerate((query, key, value)):
        rows = slice(at * width, (at + 1) * width)
        y = linear(tape, x, in_weight[rows], None if in_bias is None else in_bias[rows]).ids
        y = y if y.ndim == 3 else y.unsqueeze(1)
        projected.append(
            Symbolic(tape, y.reshape(*y.shape[:2], heads, width // heads).permute(1, 2, 0, 3))
        )  # (B, H, N, d)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask  # here True means "may not attend"
    q, k, v = projected
    joined = attention(tape, q, k, v, attn_mask).ids.permute(2, 0, 1, 3).flatten(-2)
    done = linear(tape, Symbolic(tape, joined), out_weight, out_bias)
    return (done if lift(tape, query).ndim == 3 else Symbolic(tape, done.ids.squeeze(1))), None


@operation("det", "linalg_det")
def det(tape: Tape, x: Any) -> Symbolic:
    """Determinants up to 4 x 4 by expansion along the first row."""
    ids = lift(tape, x).ids
    size = ids.shape[-1]
    if size > 4:
        raise UnsupportedOperation("det", "determinants are recorded up to 4 x 4")
    if size == 1:
        return Symbolic(tape, ids[..., 0, 0])
    result = None
    for column in range(size):
        minor = det(tape, Symbolic(tape, torch.cat([ids[..., 1:, :column], ids[..., 1:, column + 1 :]], -1)))
        term = mul(tape, Symbolic(tape, ids[..., 0, column]), minor)
        result = term if result is None else (sub if column % 2 else add)(tape, result, term)
    assert result is not None
    return result
