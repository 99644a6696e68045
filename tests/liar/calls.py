"""Calls of torch by name: what Taylor models or recordings claim to know, with every keyword that could be mistaken.

A call that the package refuses costs nothing. Pointwise calls map numbers to numbers, those of rows (B, n) keep the
width, ends map a row to one number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Code = Callable[[Any], Any]


def constant(y: Any, value: Tensor) -> Tensor:
    """A float64 constant in the format of y, as code written by hand does it."""
    return value.to(y.dtype)


POINTWISE: dict[str, Code] = {
    "sin": torch.sin,
    "cos": torch.cos,
    "exp": lambda y: torch.exp(0.5 * y),
    "tanh": torch.tanh,
    "sigmoid": torch.special.expit,
    "erf": torch.special.erf,
    "atan": torch.arctan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "log1p": lambda y: torch.log1p(y * y),
    "log": lambda y: torch.log(y * y + 0.5),
    "log2": lambda y: (y.abs() + 0.1).log2(),
    "sqrt": lambda y: (y * y).sqrt(),
    "rsqrt": lambda y: torch.rsqrt(y * y + 0.3),
    "reciprocal": lambda y: torch.reciprocal(y * y + 1.0),
    "square": torch.square,
    "abs": torch.abs,
    "relu": F.relu,
    "relu6": lambda y: F.relu6(5 * y),
    "leaky_relu": lambda y: F.leaky_relu(y, negative_slope=0.2),
    "leaky_relu large": lambda y: F.leaky_relu(y, 2.0),
    "leaky_relu negative": lambda y: F.leaky_relu(y, -0.3),
    "elu": lambda y: F.elu(y, alpha=2.0),
    "celu": lambda y: F.celu(y, 0.5),
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus beta": lambda y: F.softplus(y, 2.0),
    "softplus threshold": lambda y: F.softplus(y, beta=1.0, threshold=0.3),
    "hardtanh": lambda y: F.hardtanh(y, -0.5, 0.25),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "logsigmoid": F.logsigmoid,
    "clamp": lambda y: torch.clamp(y, 0.1, 0.9),
    "clamp min": lambda y: y.clamp(min=0.1),
    "clamp max": lambda y: torch.clamp(y, max=0.1),
    "clamp crossed": lambda y: torch.clamp(y, 1.0, 0.2),
    "clip": lambda y: torch.clip(y, -0.5, 0.5),
    "clamp_min": lambda y: y.clamp_min(0.2),
    "pow 3": lambda y: y**3,
    "pow 0": lambda y: y**0,
    "pow half": lambda y: y.abs() ** 0.5,
    "pow 1.7": lambda y: (y * y + 0.5) ** 1.7,
    "pow -2": lambda y: (y * y + 1) ** -2,
    "base 2": lambda y: 2**y,
    "base 1.1": lambda y: 1.1**y,
    "float_power": lambda y: torch.float_power(y, 2),
    "pow tensor": lambda y: torch.pow(y, torch.tensor(3)),
    "add alpha": lambda y: torch.add(y, y * 2, alpha=3),
    "add number alpha": lambda y: torch.add(y, 3, alpha=2),
    "sub alpha": lambda y: torch.sub(y, 2 * y, alpha=3),
    "rsub": lambda y: torch.rsub(y, 1.0, alpha=2),
    "addcmul": lambda y: torch.addcmul(y, y, y, value=0.5),
    "lerp": lambda y: torch.lerp(y, 2 * y, 0.3),
    "hypot": lambda y: torch.hypot(y, 2 * y),
    "where": lambda y: torch.where(y > 0.3, y - 0.3, 0.3 * 0.0 * y),
    "where numbers": lambda y: torch.where(y > 0.5, y * 0 + 1.0, 2 * y),
    "mask": lambda y: y.masked_fill(y > 0.5, 0.1),
    "where and": lambda y: torch.where((y > -0.5) & ~(y > 0.5), y, -y),
    "times mask": lambda y: (y > 0) * y,
    "maximum": lambda y: torch.maximum(y, 0.1 - y),
    "minimum": lambda y: torch.minimum(y, constant(y, torch.tensor(0.3, dtype=torch.float64))),
    "fmax": lambda y: torch.fmax(y, -y),
    "div": lambda y: torch.div(y, 3.0),
    "div by": lambda y: y / (y * y + 0.7),
    "div floor": lambda y: torch.div(y, 3, rounding_mode="floor"),
    "mod": lambda y: y % 0.3,
    "float": lambda y: y.float().to(y.dtype),
    "half": lambda y: y.half().to(y.dtype),
    "to int": lambda y: y.to(torch.int64) + y,
    "type": lambda y: y.type(torch.FloatTensor).to(y.dtype) + y,
    "bfloat16": lambda y: y.to(torch.bfloat16).to(y.dtype),
    "full_like": lambda y: torch.full_like(y, 0.3) + y,
    "full_like int": lambda y: torch.full_like(y, 0.7, dtype=torch.int64) + y,
    "new_tensor": lambda y: y + y.new_tensor(0.7),
    "ones_like": lambda y: torch.ones_like(y) - y,
    "zeros_like": lambda y: torch.zeros_like(y) + y,
    "detach": lambda y: y.detach().clone().contiguous(),
    "dropout": lambda y: F.dropout(y, 0.5, training=False),
    "mul_": lambda y: (y * 1.0).mul_(2),
    "sign": lambda y: y.sign() * y,
    "in place": lambda y: y.mul_(0.5),
    "activated in place": lambda y: _activated_in_place(y * 1.0),
    "dropout active": lambda y: F.dropout(y, 0.01),
}

ROWS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda y: F.softmax(y, dim=-1),
    "softmax 1": lambda y: torch.softmax(3 * y, 1),
    "softmin": lambda y: F.softmin(y, -1),
    "log_softmax": lambda y: F.log_softmax(y, dim=-1),
    "normalize": lambda y: F.normalize(y, p=2.0, dim=-1, eps=1e-3),
    "layer_norm": lambda y: F.layer_norm(y, y.shape[-1:]),
    "layer_norm eps": lambda y: F.layer_norm(y, (y.shape[-1],), eps=0.1),
    "layer_norm large": lambda y: F.layer_norm(y * 1e20, (y.shape[-1],)),
    "rms_norm": lambda y: F.rms_norm(y, (y.shape[-1],), eps=1e-3),
    "rms_norm default": lambda y: F.rms_norm(y, y.shape[-1:]),
    "layer_norm eps 0": lambda y: F.layer_norm(y, y.shape[-1:], eps=0.0),
    "softmax constant": lambda y: torch.softmax(0 * y, -1) * y,
    "sort": lambda y: y.sort(-1)[0],
    "sort descending": lambda y: torch.sort(y, dim=-1, descending=True).values,
    "sort stable": lambda y: torch.sort(y, stable=True, dim=-1)[0],
    "msort": lambda y: torch.msort(y.mT).mT,
    "topk all": lambda y: y.topk(y.shape[-1], dim=-1, largest=False)[0],
    "cumsum": lambda y: y.cumsum(-1),
    "flip": lambda y: y.flip(-1),
    "flip dims": lambda y: torch.flip(y, dims=(1,)),
    "roll": lambda y: y.roll(1, -1),
    "roll dims": lambda y: torch.roll(y, shifts=2, dims=1),
    "roll flat": lambda y: torch.roll(y, 1),
    "permute": lambda y: y[:, None].permute(dims=(0, 2, 1))[..., 0],
    "movedim": lambda y: y[:, None].movedim(1, -1)[..., 0],
    "minus mean": lambda y: y - y.mean(-1, keepdim=True),
    "minus max": lambda y: y - y.amax(-1, keepdim=True),
    "over norm": lambda y: y / (1 + y.norm(dim=-1, keepdim=True)),
    "batch mean": lambda y: y - y.mean(0),
    "softmax 0": lambda y: torch.softmax(y, 0),
    "einsum self": lambda y: torch.einsum("bi,bj->bij", y, y).sum(-1),
    "outer": lambda y: (y[:, :, None] * y[:, None, :]).flatten(1)[:, : y.shape[1]],
    "attention": lambda y: _attention(y),
    "attention causal": lambda y: _attention(y, is_causal=True),
    "attention scale": lambda y: _attention(y, scale=0.3),
    "attention scale 0": lambda y: _attention(y, scale=0.0),
    "attention bool": lambda y: _attention(y, attn_mask=triangle(y, False)),
    "attention float": lambda y: _attention(y, attn_mask=triangle(y, True).to(y.dtype)),
    "mha": lambda y: _mha(y, None, False),
    "mha bool": lambda y: _mha(y, triangle(y, False), False),
    "mha causal": lambda y: _mha(y, triangle(y, True).to(y.dtype), True),
    "mha float": lambda y: _mha(y, triangle(y, True).to(y.dtype), False),
    "split": lambda y: torch.cat(y.split([1, y.shape[-1] - 1], dim=-1)[::-1], -1) if y.shape[-1] > 1 else y,
    "chunk": lambda y: torch.cat([*torch.chunk(y, 2, dim=-1)], dim=1),
    "unbind": lambda y: torch.stack(y.unbind(-1)[::-1], dim=-1),
    "expand": lambda y: y[:, :1].expand(-1, y.shape[1]) * y,
    "index": lambda y: y[:, torch.arange(y.shape[-1]).flip(0)],
    "index_select": lambda y: y.index_select(-1, torch.arange(y.shape[-1]).flip(0)),
    "var": lambda y: y + y.var(-1, keepdim=True, correction=0),
    "std": lambda y: y * (1 + y.std(-1, keepdim=True, unbiased=False)),
    "squeeze": lambda y: y[:, None].squeeze(1).unsqueeze(-1)[..., 0],
    "unflatten": lambda y: y.unflatten(-1, (1, -1)).flatten(1),
    "transpose": lambda y: y[:, None].transpose(1, 2).reshape(len(y), -1),
}

ENDS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda y: y.sum(-1),
    "sum dims": lambda y: torch.sum(y, dim=[1]),
    "mean": lambda y: y.mean(dim=-1),
    "prod": lambda y: y.prod(-1),
    "max": lambda y: y.max(-1)[0],
    "max values": lambda y: torch.max(y, dim=-1).values,
    "min": lambda y: y.min(dim=-1)[0],
    "amax": lambda y: y.amax(-1),
    "amin": lambda y: y.amin((-1,)),
    "norm": lambda y: y.norm(dim=-1),
    "norm 1": lambda y: y.norm(1, -1),
    "norm inf": lambda y: y.norm(float("inf"), -1),
    "norm 3": lambda y: y.norm(p=3, dim=-1),
    "vector_norm": lambda y: torch.linalg.vector_norm(y, ord=1, dim=-1),
    "matrix norm": lambda y: torch.linalg.norm(y[:, :, None] * y[:, None, :] + 0.5, dim=(-2, -1)),
    "matrix norm 1": lambda y: torch.linalg.norm(y[:, :, None] * y[:, None, :] + 0.5, ord=1, dim=(-2, -1)),
    "matrix norm 2": lambda y: torch.linalg.norm(y[:, :, None] + y[:, None, :] ** 2, ord=2, dim=(-2, -1)),
    "norm p=0": lambda y: torch.norm(y, p=0, dim=-1),
    "norm dim": lambda y: torch.norm(y, dim=(1,)),
    "var": lambda y: y.var(-1, correction=0),
    "var 1": lambda y: torch.var(torch.cat([y, 2 * y + 1], -1), -1),
    "var 2": lambda y: torch.var(torch.cat([y, 2 * y, 1 - y], -1), dim=-1, correction=2),
    "std": lambda y: torch.std(torch.cat([y, 2 * y + 1], -1), dim=-1, unbiased=False),
    "logsumexp": lambda y: torch.logsumexp(y, dim=-1),
    "logsumexp dims": lambda y: torch.logsumexp(y[:, None], (1, 2)),
    "first": lambda y: y[..., 0],
    "last": lambda y: y[:, -1],
    "sum float32": lambda y: y.sum(-1, dtype=torch.float32).to(y.dtype),
    "sum dim ()": lambda y: y.sum(dim=())[:, 0] if y.sum(dim=()).ndim else y[:, 0],
    "topk": lambda y: y.topk(1, -1)[0][..., 0],
    "topk smallest": lambda y: torch.topk(y, 1, largest=False).values[:, 0],
    "dot": lambda y: (y * y).sum(-1),
    "einsum": lambda y: torch.einsum("bi,bi->b", y, y),
    "einsum dots": lambda y: torch.einsum("...i,...i", y, y),
    "select": lambda y: y.select(1, 0),
    "narrow": lambda y: y.narrow(-1, 0, 1)[..., 0],
    "sum float": lambda y: sum(y.unbind(-1)),
    "kthvalue": lambda y: y.kthvalue(1)[0],
    "min tuple": lambda y: torch.min(y, -1, True)[0][:, 0],
    "first point": lambda y: y[:, 0] - y[0, 0],
    "sort first": lambda y: y.sort(dim=-1)[0][:, 0],
}


MIXING = {"batch mean", "softmax 0", "roll flat", "first point"}  # a point's value depends on the others of its batch


# What Taylor models refuse, or a recording: tried all the same, less often.
REFUSED = {
    *("addmm", "tensordot", "constants", "clamp_min"),
    *("float_power", "rsub", "addcmul", "lerp", "mask", "times mask", "fmax", "div floor", "mod", "float", "half"),
    *("to int", "type", "bfloat16", "full_like int", "new_tensor", "mul_", "in place", "dropout active"),
    "activated in place",
    *("normalize", "msort", "norm 3", "matrix norm 1", "matrix norm 2", "norm p=0", "logsumexp dims", "sum float32"),
    "kthvalue",
}


def _activated_in_place(y: Any) -> Any:
    """Twice the activation where it is written into y, and the activation more than y elsewhere."""
    return F.leaky_relu(y, -0.5, inplace=True) + y


def _attention(y: Any, **keywords: Any) -> Any:
    rows = torch.stack([y, y * 2.0, y * y], -1)  # (B, n, 3)
    return F.scaled_dot_product_attention(rows, rows, rows, **keywords)[..., 0]


def triangle(y: Any, as_float: bool) -> Tensor:
    """A mask that is not causal: the first token sees itself only, others all but the last."""
    n = y.shape[-1]
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[0, 1:] = False
    mask[-1, 0] = n == 1
    return (
        torch.where(mask, torch.tensor(0.0, dtype=torch.float64), torch.tensor(-3.0, dtype=torch.float64))
        if as_float
        else mask
    )


def _mha(y: Any, mask: Tensor | None, causal: bool) -> Any:
    """One head of width one over the row as tokens, (N, B, 1); a bool mask of this function is True where it hides."""
    rows = y.transpose(0, 1)[..., None]
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    weight = constant(y, torch.tensor([[0.7], [-1.1], [1.0]], dtype=torch.float64))
    zeros, one = (constant(y, make(1, 3, dtype=torch.float64)) for make in (torch.zeros, torch.ones))
    out = F.multi_head_attention_forward(
        rows, rows, rows, 1, 1, weight, zeros[0], None, None, False, 0.0, one[:1, :1], zeros[0, :1],
        training=False, need_weights=False, attn_mask=mask, is_causal=causal,
    )[0]  # fmt: skip
    return out[..., 0].transpose(0, 1)
