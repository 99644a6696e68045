"""Every torch function that can be recorded, with every argument of its signature: equal to torch, or refused."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.language import analytic
from onelayer.recording.dispatch import CASTS, IDENTITY, JOINING, OPERATIONS, STRUCTURAL
from onelayer.recording.recorder import record
from onelayer.recording.symbolic import Symbolic

W = torch.tensor([[0.3, -1.2, 0.7, 2.0], [1.1, 0.4, -0.6, 0.1], [-0.2, 0.9, 1.3, -0.8]], dtype=torch.float64)
V = W[:, 0]
M = torch.tensor([True, False, True])
BAN = torch.tensor([[False, True], [False, False]])  # keys that a query may not attend to
HEADS = (3, 1, torch.cat([W[:, :3], W[:, 1:], W[:, :3]]), torch.cat([V, V, V]), None, None, False, 0.0, W[:, :3].T, V)
NAMES = {
    "torch": torch,
    "F": F,
    "math": math,
    "W": W,
    "V": V,
    "M": M,
    "BAN": BAN,
    "HEADS": HEADS,
    "Z": torch.zeros,
    "analytic": analytic,
}
POSITIVE = torch.rand(3, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1.5 + 0.3
SIGNED = torch.randn(3, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

# Calls separated by "; ", on x of shape (batch, 2, 3), that must be recorded and equal torch's values.
RECORDED = {
    "acosh": "torch.acosh(x * x + 1.1)",
    "arccosh": "torch.arccosh(x * x + 1.1)",
    "arcsinh": "torch.arcsinh(x)",
    "arctan2": "torch.arctan2(x, other=V)",
    "arctanh": "torch.arctanh(x / 9)",
    "asinh": "x.asinh()",
    "atan2": "torch.atan2(x, other=V); torch.atan2(x[..., 0], x[..., 1]); torch.atan2(0.1 - x, -x)",
    "atanh": "(x / 9).atanh()",
    "erfc": "torch.erfc(x)",
    "cbrt": "analytic.cbrt(x)",
    "exprel": "analytic.exprel(x)",
    "lgamma": "torch.lgamma(x * x + 0.1)",
    "median": "x.median(dim=-1, keepdim=True).values; x.median(1)[0]; torch.median(x, -1).values",
    "sinc": "torch.sinc(x)",
    "sinrel": "analytic.sinrel(x)",
    "batch_norm": "F.batch_norm(x, V[:2], V[:2].abs() + 0.1); F.batch_norm(x, running_mean=V[:2], "
    "running_var=V[:2].abs(), weight=V[1:], bias=V[:2], training=False, momentum=0.1, eps=0.01); "
    "torch.batch_norm(x, running_mean=V[:2], running_var=V[:2].abs(), weight=None, bias=None, training=False, "
    "momentum=0.1, eps=0.1, cudnn_enabled=False)",
    "celu": "F.celu(x, alpha=0.3, inplace=False)",
    "glu": "F.glu(x[..., :2], dim=-1)",
    "group_norm": "F.group_norm(x, num_groups=2, weight=V[:2], bias=V[1:], eps=0.01); F.group_norm(x, 1)",
    "gru_cell": "torch.gru_cell(x[:, 0], hx=x[:, 1, :1], w_ih=W.mT[:3], w_hh=W[:, :1], b_ih=V, b_hh=V)",
    "hardsigmoid": "F.hardsigmoid(3 * x, inplace=False)",
    "hardswish": "F.hardswish(3 * x, inplace=False)",
    "lstm_cell": "torch.lstm_cell(x[:, 0], hx=(x[:, 1, :1], x[:, 1, 1:2]), w_ih=W.mT[:4], w_hh=W.mT[:4, :1], "
    "b_ih=W[0, :4], b_hh=W[1, :4])[0]",
    "prelu": "F.prelu(x, weight=V[:1]); F.prelu(x, V[:2])",
    "rms_norm": "F.rms_norm(x, normalized_shape=(3,), weight=V, eps=0.1); F.rms_norm(x, (2, 3))",
    "selu": "F.selu(x, inplace=False)",
    "softmin": "F.softmin(x, dim=-1, _stacklevel=3, dtype=None)",
    "softshrink": "F.softshrink(x, lambd=0.2)",
    "tanhshrink": "F.tanhshrink(x)",
    "all": "torch.where((x > 0.2).all(dim=-1, keepdim=True), x, 1); torch.where((x < 1).all(-1), x[..., 0], 2)",
    "and": "torch.where((x > 0.2) & (x < 1), x, 3); torch.where(M & (x > 0.3), x, 3); "
    "torch.where(True & (x > 1), x, 3)",
    "any": "torch.where((x > 1).any(dim=-1, keepdim=True), x, 1)",
    "bitwise_and": "torch.where(torch.bitwise_and(x > 0.2, other=x < 1), x, 3)",
    "bitwise_not": "torch.where(torch.bitwise_not(x > 0.2), x, 3)",
    "bitwise_or": "torch.where(torch.bitwise_or(x > 1, other=x < 0.3), x, 3)",
    "ceil": "torch.ceil(3 * x)",
    "eq": "torch.where(torch.eq(x, other=0.25), 7, x)",
    "floor": "x.floor(); torch.floor(3 * x) + (x > 0.5).double()",
    "floor_divide": "torch.floor_divide(x, other=0.3)",
    "floordiv": "x // 0.3",
    "ge": "torch.where(x >= 0.5, x, 2 * x); torch.where(torch.ge(x, other=V), x, 2 * x)",
    "greater": "torch.where(torch.greater(x, other=0.5), x, 1)",
    "greater_equal": "torch.where(torch.greater_equal(x, other=0.5), x, 1)",
    "gt": "torch.where(x > 0.5, x, 2 * x); (x > 0.5) * x; torch.where(torch.gt(x, other=V), x, 1 - x)",
    "hardshrink": "F.hardshrink(x, lambd=0.4)",
    "heaviside": "torch.heaviside(x, values=torch.tensor(0.5, dtype=x.dtype))",
    "invert": "torch.where(~(x > 0.2), x, 3)",
    "le": "torch.where(x <= 0.5, x, 2 * x); torch.where(torch.le(x, other=0.5), x, 2 * x)",
    "less": "torch.where(torch.less(x, other=0.5), x, 1)",
    "less_equal": "torch.where(torch.less_equal(x, other=0.5), x, 1)",
    "logical_and": "torch.where(torch.logical_and(x > 0.2, other=x < 1), x, 3)",
    "logical_not": "torch.where(torch.logical_not(x > 0.2), x, 3)",
    "logical_or": "torch.where(torch.logical_or(x > 1, other=x < 0.3), x, 3)",
    "lt": "torch.where(x < 0.5, x, 2 * x)[..., 0]; torch.where((x[..., :1] < 0.5).expand(-1, -1, 3), x, 2 * x); "
    "torch.where(torch.lt(x, other=0.5), x, 1)",
    "mod": "x % 0.3",
    "ne": "torch.where(torch.ne(x, other=0.25), x, 7)",
    "not_equal": "torch.where(torch.not_equal(x, other=0.25), x, 7)",
    "or": "torch.where((x > 1) | (x < 0.3), x, 3)",
    "remainder": "torch.remainder(x, other=0.3)",
    "rfloordiv": "2 // (x * x + 0.3)",
    "rmod": "2 % (x * x + 0.3)",
    "sign": "torch.sign(x - 0.4)",
    "threshold": "F.threshold(x, threshold=0.3, value=-1.0, inplace=False)",
    "abs": "abs(x); x.abs()",
    "absolute": "torch.absolute(x)",
    "add": "x + 0.1; torch.add(x, x, alpha=2); torch.add(x, 3, alpha=0.3); torch.add(x, other=V)",
    "addmm": "torch.addmm(V, x[:, 0], W[:, :3]); torch.addmm(V, mat1=x[:, 0], mat2=W[:, :3], beta=0.3, alpha=2)",
    "adjoint": "x.adjoint()",
    "alpha_dropout": "F.alpha_dropout(x, p=0.3, training=False, inplace=False); F.alpha_dropout(x, 0.0, True)",
    "amax": "x.amax(-1); x.amax(dim=(1, 2), keepdim=True); x.amax(axis=-1, keepdims=True)",
    "amin": "x.amin(-1); torch.amin(x, dim=1, keepdim=True)",
    "acos": "torch.acos(x / 9)",
    "arccos": "(x / 9).arccos()",
    "arcsin": "torch.arcsin(x / 9)",
    "arctan": "torch.arctan(x)",
    "asin": "(x / 9).asin()",
    "atan": "x.atan()",
    "atleast_1d": "torch.atleast_1d(x)",
    "atleast_2d": "torch.atleast_2d(x)",
    "atleast_3d": "torch.atleast_3d(x)",
    "block_diag": "torch.stack([torch.block_diag(p, torch.arange(2)[None], V[None]) for p in x])",
    "bmm": "torch.bmm(x, x.mT)",
    "broadcast_tensors": "torch.broadcast_tensors(x, V)[1] + x",
    "broadcast_to": "torch.broadcast_to(x[..., :1], size=x.shape)",
    "cat": "torch.cat([x, 2 * x], -1); torch.cat((x, torch.arange(len(x) * 4).reshape(len(x), 2, 2) * 0 + 7), dim=-1)",
    "chunk": "x.chunk(chunks=2, dim=-1)[1]",
    "clamp": "x.clamp(0.5, 0.9); torch.clamp(x, min=0.5); x.clamp(max=V.abs()); torch.clamp(x, 1.0, 0.2)",
    "clip": "torch.clip(x, min=0.5, max=1.0)",
    "clone": "x.clone(memory_format=torch.preserve_format)",
    "column_stack": "torch.column_stack([x[:, 0], 2 * x[:, 1]])",
    "concat": "torch.concat([x, x * x], dim=1)",
    "concatenate": "torch.concatenate([x, x], dim=1)",
    "contiguous": "x.mT.contiguous(memory_format=torch.contiguous_format)",
    "cos": "x.cos()",
    "cosh": "x.cosh()",
    "cpu": "x.cpu()",
    "cuda": "x.cuda() if not isinstance(x, torch.Tensor) else x",
    "cumsum": "x.cumsum(-1); torch.cumsum(x, dim=1, dtype=torch.float64)",
    "detach": "x.detach()",
    "diag": "torch.stack([torch.diag(p[0], diagonal=1) for p in x])",
    "diag_embed": "torch.diag_embed(x, offset=1, dim1=-2, dim2=-1)",
    "diagonal": "x.diagonal(offset=1, dim1=1, dim2=2)",
    "div": "torch.div(x, 3); torch.div(x, V); torch.div(x, other=2.0, rounding_mode=None)",
    "divide": "torch.divide(x, other=V, rounding_mode=None)",
    "dot": "torch.stack([torch.dot(p[0], p[1]) for p in x])",
    "double": "x.double()",
    "dropout": "F.dropout(x, p=0.5, training=False, inplace=True); F.dropout(x, 0.0)",
    "einsum": "torch.einsum('bij,jk->bik', x, W); torch.einsum('...ij,jk', x, W); torch.einsum('bij->bji', x); "
    "torch.einsum('bij,bkj->bik', [x, x]); torch.einsum('b...,b...->b...', x, x); torch.einsum('k,k,bij->bi', V, V, x)",
    "elu": "F.elu(x, alpha=2.0, inplace=False); F.elu(x * 2, inplace=True)",
    "erf": "torch.erf(x)",
    "exp": "x.exp()",
    "expand": "x[..., :1].expand(-1, -1, 3); x.expand(size=x.shape, implicit=True)",
    "expand_as": "x[..., :1].expand_as(other=x); V.expand_as(x) + x",
    "expm1": "x.expm1()",
    "flatten": "x.flatten(start_dim=1, end_dim=2)",
    "flip": "x.flip(-1); x.flip(dims=(1, 2)); torch.flip(x, [1])",
    "fliplr": "torch.fliplr(x)",
    "flipud": "torch.stack([torch.flipud(p) for p in x])",
    "float_power": "torch.float_power(x, exponent=2)",
    "fmax": "torch.fmax(x, other=V)",
    "fmin": "torch.fmin(x, other=V)",
    "full_like": "torch.full_like(x, fill_value=0.1, dtype=x.dtype, layout=torch.strided, device='cpu', "
    "requires_grad=False, pin_memory=False, memory_format=torch.preserve_format) * x; torch.full_like(x, 7) + x",
    "gather": "torch.gather(x, dim=-1, index=Z(len(x), 2, 1, dtype=torch.int64) + 1, sparse_grad=False)",
    "gelu": "F.gelu(x); F.gelu(x, approximate='tanh')",
    "getitem": "x[:, 1, ::2]; x[..., None, 0]; x[:, [1, 0]]; x[..., M]; x[:, torch.tensor([1, 0]), None, 2]",
    "hardtanh": "F.hardtanh(x, min_val=-0.5, max_val=0.5, inplace=False)",
    "hstack": "torch.hstack([x, x])",
    "hypot": "torch.hypot(x, other=2 * x)",
    "index_select": "x.index_select(dim=-1, index=torch.tensor([2, 0]))",
    "layer_norm": "F.layer_norm(x, (3,)); F.layer_norm(x, normalized_shape=(2, 3), eps=0.1); "
    "F.layer_norm(x, (3,), weight=V, bias=W[:, 1]); torch.layer_norm(x, (3,), V, cudnn_enable=True)",
    "leaky_relu": "F.leaky_relu(x, negative_slope=-0.3, inplace=False); F.leaky_relu(x, 2.0)",
    "lerp": "torch.lerp(x, end=2 * x + 1, weight=0.3); torch.lerp(x, x * x, weight=V)",
    "linalg_matrix_norm": "torch.linalg.matrix_norm(x); torch.linalg.matrix_norm(x, ord=1, dim=(1, 2), keepdim=True); "
    "torch.linalg.matrix_norm(x, math.inf, dtype=torch.float64); torch.linalg.matrix_norm(x, ord=1, dim=(2, 1))",
    "linalg_norm": "torch.linalg.norm(x, dim=-1); torch.linalg.norm(x, ord='fro', dim=(-2, -1)); "
    "torch.linalg.norm(x, ord=1, dim=(1, 2), keepdim=True, dtype=torch.float64); "
    "torch.linalg.norm(x, math.inf, (2, 1)); torch.linalg.norm(x, dim=(1, 2)); "
    "torch.linalg.norm(x, ord=math.inf, dim=-1)",
    "linalg_vector_norm": "torch.linalg.vector_norm(x, ord=1, dim=(1, 2), keepdim=True, dtype=torch.float64); "
    "torch.linalg.vector_norm(x, math.inf, -1)",
    "linear": "F.linear(x, weight=W.T, bias=W[0]); F.linear(x, W.T)",
    "log": "x.log()",
    "log10": "x.log10()",
    "log1p": "x.log1p()",
    "log2": "x.log2()",
    "log_sigmoid": "F.logsigmoid(x)",
    "log_softmax": "F.log_softmax(x, dim=-1, _stacklevel=3, dtype=torch.float64); x[:, 0].log_softmax(1)",
    "logsumexp": "x.logsumexp(-1); torch.logsumexp(x, dim=(1, 2), keepdim=True)",
    "masked_fill": "x.masked_fill(M, 0.1); torch.masked_fill(x, mask=M, value=3); x.masked_fill(M, value=V[0])",
    "matmul": "x @ W; torch.matmul(x, other=W); x.matmul(V)",
    "max": "x.max(-1)[0]; torch.max(x, dim=1, keepdim=True).values; torch.max(x, other=V)",
    "maximum": "torch.maximum(x, other=V)",
    "mean": "x.mean(-1); torch.mean(x, dim=(1, 2), keepdim=True, dtype=torch.float64)",
    "meshgrid": "torch.stack([torch.stack(torch.meshgrid(p[0], p[1], indexing='ij')) for p in x]); "
    "torch.stack(torch.meshgrid(x[:, 0, 0], V, indexing='ij'), -1)",
    "min": "x.min(dim=-1, keepdim=True)[0]; torch.min(x, other=V)",
    "minimum": "torch.minimum(x, other=V)",
    "mish": "F.mish(x, inplace=False)",
    "mm": "torch.mm(x[:, 0], W)",
    "moveaxis": "torch.moveaxis(x, source=1, destination=2)",
    "movedim": "x.movedim(source=1, destination=-1)",
    "mul": "x * x; torch.mul(x, other=V)",
    "multi_head_attention_forward": "F.multi_head_attention_forward(x.transpose(0, 1), x.transpose(0, 1), "
    "x.transpose(0, 1), *HEADS, training=False, need_weights=False, attn_mask=BAN)[0].transpose(0, 1); "
    "F.multi_head_attention_forward(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), *HEADS, training=False, "
    "need_weights=False, attn_mask=Z(2, 2, dtype=x.dtype), is_causal=True)[0].transpose(0, 1); "
    "F.multi_head_attention_forward(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), *HEADS, training=False, "
    "need_weights=True, attn_mask=Z(2, 2, dtype=x.dtype), is_causal=True, average_attn_weights=True)[1]",
    "multiply": "torch.multiply(x, other=V)",
    "mv": "torch.mv(x[:, 0], V)",
    "narrow": "x.narrow(dim=-1, start=1, length=2)",
    "neg": "-x",
    "negative": "torch.negative(x)",
    "new_full": "x.new_full((3,), 0.1) + x; x + x.new_full(size=(2, 3), fill_value=2, dtype=torch.float64, "
    "device='cpu', requires_grad=False, layout=torch.strided, pin_memory=False)",
    "new_ones": "x.new_ones(3) + x; x + x.new_ones(size=(2, 3), dtype=torch.float64, device='cpu', "
    "requires_grad=False, layout=torch.strided, pin_memory=False)",
    "new_tensor": "x.new_tensor([1, 2, 3]) + x; x.new_tensor(0.1, dtype=torch.float64, device='cpu') * x",
    "new_zeros": "x.new_zeros(3) + x; x + x.new_zeros(size=(2, 3), dtype=torch.float64, device='cpu', "
    "requires_grad=False, layout=torch.strided, pin_memory=False)",
    "norm": "x.norm(dim=-1); torch.norm(x, p=1, dim=(1, 2), keepdim=True, dtype=torch.float64); "
    "torch.norm(x, math.inf, dim=(1, 2)); torch.norm(x, p='fro', dim=(1, 2)); x.norm(2, -1)",
    "ones_like": "x + torch.ones_like(x, dtype=None, layout=torch.strided, device='cpu', pin_memory=False, "
    "requires_grad=False, memory_format=torch.preserve_format)",
    "outer": "torch.stack([torch.outer(p[0], vec2=p[1]) for p in x])",
    "pad": "F.pad(x, (1, 1)); F.pad(x, (1, 0), 'constant', 2.0); F.pad(x, pad=(1, 1), mode='constant', value=0.1); "
    "F.pad(x, (1, 1), mode='reflect'); F.pad(x, (2, 1), mode='replicate')",
    "permute": "x.permute(0, 2, 1); x.permute(dims=(0, 2, 1))",
    "pos": "+x",
    "positive": "torch.positive(x)",
    "pow": "x**2; x**-1; x**0; torch.pow(x, exponent=3); x ** torch.tensor([1.0, 2.0, 3.0])",
    "prod": "x.prod(-1); torch.prod(x, dim=1, keepdim=True, dtype=torch.float64)",
    "radd": "0.1 + x",
    "ravel": "torch.stack([p.ravel() for p in x])",
    "reciprocal": "x.reciprocal()",
    "relu": "F.relu(x); F.relu(x * 2, inplace=True); torch.relu(x)",
    "relu6": "F.relu6(5 * x, inplace=False)",
    "repeat": "x.repeat(1, 2, 1); x.repeat(repeats=(1, 2, 1))",
    "repeat_interleave": "x.repeat_interleave(repeats=2, dim=-1, output_size=6)",
    "requires_grad": "x.clone().requires_grad_(requires_grad=False)",
    "reshape": "x.reshape(-1, 6); torch.reshape(x, shape=(-1, 3, 2))",
    "reshape_as": "x.reshape_as(other=x.mT)",
    "rmatmul": "x.mT.__rmatmul__(W.T)",
    "rmul": "0.1 * x",
    "roll": "x.roll(1, -1); torch.roll(x, shifts=(1, 1), dims=(1, 2))",
    "rot90": "x.rot90(k=1, dims=[1, 2])",
    "rpow": "2**x; 1.1**x",
    "rsqrt": "x.rsqrt()",
    "rsub": "2 - x; torch.rsub(x, other=V, alpha=2)",
    "rtruediv": "2 / x",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention(x, 2 * x, x); "
    "F.scaled_dot_product_attention(x, x, x, is_causal=True); F.scaled_dot_product_attention(x, x, x, scale=0.0); "
    "F.scaled_dot_product_attention(x, key=x, value=x * x, attn_mask=~BAN, dropout_p=0.0, scale=0.3, "
    "enable_gqa=False); F.scaled_dot_product_attention(x, x, x, W[:2, :2]); "
    "F.scaled_dot_product_attention(x, x, x, Z(2, 2, dtype=x.dtype).masked_fill(BAN, -math.inf))",
    "select": "x.select(dim=1, index=1)",
    "sigmoid": "x.sigmoid(); torch.sigmoid(x)",
    "silu": "F.silu(x, inplace=False)",
    "sin": "x.sin()",
    "sinh": "x.sinh()",
    "softmax": "x.softmax(-1); F.softmax(x, dim=1, _stacklevel=3, dtype=torch.float64); F.softmax(x[:, 0]); "
    "torch.softmax(x, -1, torch.float64)",
    "softplus": "F.softplus(x); F.softplus(x, beta=2.0, threshold=30); F.softplus(x + 9, threshold=2)",
    "softsign": "F.softsign(x)",
    "sort": "x.sort(-1)[0]; x.sort(dim=1, descending=True).values; torch.sort(x, stable=True, dim=-1)[0]",
    "split": "x.split(1, -1)[1]; x.split([1, 2], dim=-1)[1]; x.split(split_size=1, dim=-1)[0]",
    "sqrt": "x.sqrt()",
    "square": "x.square()",
    "squeeze": "x[:, :1].squeeze(dim=1)",
    "stack": "torch.stack([x, 2 * x], -1); torch.stack((x, torch.ones_like(x)), dim=1)",
    "std": "x.std(-1); x.std(dim=-1, keepdim=True, correction=0); torch.std(x, (1, 2), unbiased=False)",
    "sub": "x - 0.1; torch.sub(x, other=V, alpha=3); x.sub(1, alpha=2)",
    "subtract": "torch.subtract(x, other=V, alpha=2)",
    "sum": "x.sum(-1); torch.sum(x, dim=[1, 2], keepdim=True, dtype=torch.float64); x.sum(axis=-1); x.sum(1, True)",
    "swapaxes": "torch.swapaxes(x, axis0=1, axis1=2)",
    "swapdims": "torch.swapdims(x, dim0=1, dim1=2)",
    "t": "torch.stack([p.t() for p in x])",
    "take_along_dim": "torch.take_along_dim(x, indices=Z(1, 2, 1, dtype=torch.int64) + 2, dim=-1)",
    "tan": "x.tan()",
    "tanh": "x.tanh()",
    "tensor_split": "torch.tensor_split(x, 2, dim=-1)[0]; x.tensor_split(sections=2, dim=-1)[1]; "
    "x.tensor_split(indices=(1,), dim=-1)[1]",
    "tile": "x.tile(1, 2, 1); torch.tile(x, dims=(1, 2, 1))",
    "to": "x.to(torch.float64); x.to('cpu'); x.to(device='cpu', dtype=torch.float64, non_blocking=False, copy=True, "
    "memory_format=torch.preserve_format); x.to(V); V.to(x) * x",
    "transpose": "x.transpose(dim0=1, dim1=2)",
    "tril": "torch.tril(x, diagonal=-1) + x",
    "triu": "torch.triu(x, diagonal=1)",
    "true_divide": "torch.true_divide(x, other=V)",
    "truediv": "x / V",
    "type": "x.type(torch.float64); x.type('torch.DoubleTensor'); x.type(torch.DoubleTensor)",
    "type_as": "x.type_as(other=V); V.type_as(x) + x",
    "unbind": "x.unbind(dim=-1)[1]",
    "unflatten": "x.unflatten(dim=-1, sizes=(3, 1))",
    "unfold": "x.unfold(dimension=-1, size=2, step=1)",
    "unsqueeze": "x.unsqueeze(dim=1)",
    "var": "x.var(-1); x.var(dim=(1, 2), keepdim=True, correction=0); torch.var(x, -1, unbiased=False)",
    "view": "x.view(-1, 6); x.view(size=(-1, 6))",
    "view_as": "x.view_as(other=x.reshape(-1, 3, 2))",
    "vstack": "torch.stack([torch.vstack([p, 2 * p]) for p in x])",
    "where": "torch.where(M, x, 0.1); torch.where(M, 3, x); x.where(M, 2 * x); torch.where(M, x, other=V)",
    "zeros_like": "x + torch.zeros_like(x, dtype=None, layout=torch.strided, device='cpu', pin_memory=False, "
    "requires_grad=False, memory_format=torch.preserve_format)",
}

# Calls that must be refused: another function than any formula, or an argument that is not read.
REFUSED = {
    "addmm": "torch.addmm(V, x[:, 0], W[:, :3], out_dtype=torch.float32)",
    "alpha_dropout": "F.alpha_dropout(x, 0.5, training=True); torch.alpha_dropout(x, 0.5, train=True)",
    "bfloat16": "x.bfloat16().double()",
    "bmm": "torch.bmm(x, mat2=x.mT); torch.bmm(x, x.mT, out_dtype=torch.float32)",
    "bool": "x.bool() * x",
    "byte": "x.byte() + x",
    "cdouble": "x.cdouble().abs()",
    "cfloat": "x.cfloat().abs()",
    "char": "x.char() + x",
    "cumsum": "x.cumsum(-1, dtype=torch.float32)",
    "div": "torch.div(x, 3, rounding_mode='floor'); torch.div(x, 3, rounding_mode='trunc')",
    "dot": "torch.stack([torch.dot(p[0], tensor=p[1]) for p in x])",
    "dropout": "F.dropout(x, 0.5); torch.dropout(x, 0.5, train=True)",
    "float": "x.float().double(); x.float()",
    "full_like": "torch.full_like(x, 0.7, dtype=torch.int64) + x; torch.full_like(x, 0.1, dtype=torch.float32) + x",
    "gelu": "F.gelu(x, approximate='other')",
    "half": "x.half().double()",
    "hardtanh": "F.hardtanh(x, inplace=True)",
    "int": "x.int() + x",
    "linalg_matrix_norm": "torch.linalg.matrix_norm(x, ord=2); torch.linalg.matrix_norm(x, 'nuc'); "
    "torch.linalg.matrix_norm(x, dtype=torch.float32)",
    "linalg_norm": "torch.linalg.norm(x, ord=2, dim=(-2, -1)); torch.linalg.norm(x, ord=-1, dim=(1, 2)); "
    "torch.linalg.norm(x, ord='nuc', dim=(1, 2)); torch.linalg.norm(x, ord=3, dim=-1)",
    "linalg_vector_norm": "torch.linalg.vector_norm(x, ord=0, dim=-1); torch.linalg.vector_norm(x, 3, -1)",
    "long": "x.long() + x",
    "log_softmax": "F.log_softmax(x, -1, dtype=torch.float32)",
    "max": "x.max(-1)[1] * x[..., 0]; x[..., 0] + x.max(-1).indices",
    "mean": "x.mean(-1, dtype=torch.float32).double(); x - x.mean(0)",
    "mm": "torch.mm(x[:, 0], mat2=W); torch.mm(x[:, 0], W, out_dtype=torch.float32)",
    "multi_head_attention_forward": "; ".join(
        f"F.multi_head_attention_forward(x.mT, x.mT, x.mT, *HEADS, {argument})[0]"
        for argument in (
            "key_padding_mask=BAN",
            "is_causal=True",
            "use_separate_proj_weight=True",
            "q_proj_weight=W",
            "k_proj_weight=W",
            "v_proj_weight=W",
            "static_k=W",
            "static_v=W",
        )
    ),
    "mv": "torch.mv(x[:, 0], vec=V)",
    "new_full": "x + x.new_full((2, 3), 0.7, dtype=torch.int64)",
    "new_ones": "x * 0.5 + x.new_ones((2, 3), dtype=torch.int64)",
    "new_tensor": "x.new_tensor([0.7, 1.2, 3.1], dtype=torch.int64) + x",
    "new_zeros": "x + x.new_zeros(3, dtype=torch.float32)",
    "norm": "torch.norm(x, p=3, dim=-1); torch.norm(x, 'nuc', dim=(1, 2)); x.norm(dim=-1, dtype=torch.float32)",
    "ones_like": "torch.ones_like(x, dtype=torch.int64) * x",
    "prod": "x.prod(-1, dtype=torch.float32).double()",
    "relu": "F.relu(x, inplace=True); torch.relu_(x); x.relu_()",
    "roll": "torch.roll(x, 1); x.roll(1, 0)",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention(x, x, x, dropout_p=0.5); "
    "F.scaled_dot_product_attention(x, x, x, enable_gqa=True); "
    "F.scaled_dot_product_attention(x, x, x, attn_mask=BAN, is_causal=True)",
    "short": "x.short() + x",
    "softmax": "F.softmax(x); x.softmax(0); x.softmax(-1, dtype=torch.float32).double()",
    "softplus": "F.softplus(x, threshold=1.0); F.softplus(30 * x)",
    "std": "x.std(); x.std(0)",
    "sum": "x.sum(); x.sum(dim=()); x.sum(-1, dtype=torch.float32).double(); x.sum(-1, out=Z(3, 2, dtype=x.dtype))",
    "to": "x.to(torch.float32).double(); x.to(torch.int64) + x; x.to(V.float()); x.to(dtype=torch.bfloat16).double(); "
    "x.to(layout=torch.strided, dtype=torch.float16); x.to('cpu', torch.float32)",
    "type": "x.type(torch.LongTensor).double(); x.type(torch.float16).double(); x.type('torch.FloatTensor').double()",
    "type_as": "x.type_as(V.float()).double()",
    "unfold": "F.unfold(x[:, None], kernel_size=2, dilation=1, padding=0, stride=1)",
    "var": "x.var(False); x.var(unbiased=False)",
    "view": "x.view(torch.int64); x.view(dtype=torch.int64).double(); x.view(torch.float64)",
    "where": "torch.where(x, x, 2 * x)",
    "zeros_like": "x + torch.zeros_like(x, dtype=torch.float32)",
    "masks": "torch.where(M, x, -math.inf).amax(-1); x.masked_fill(M, -math.inf).sort(-1)[0]; "
    "torch.where(M, x, -math.inf).prod(-1); torch.where(M, x, -math.inf); torch.where(M, x, -math.inf).exp()",
    "in place": "x.mul_(2); x.add_(1)[..., 0]; x[:, 0].mul_(2); x.clone().copy_(x)",
    "index": "V[x.long()]; V.gather(0, x.flatten()); torch.index_select(V, 0, x[0, 0]); W[x]",
    "steps": "torch.fmod(x, 0.5); x.round(); x.trunc(); x if (x > 0).all() else 2 * x",
    "undefined": "torch.empty_like(x) * 0 + x; torch.rand_like(x) * 0 + x; torch.msort(x); "
    "torch.linalg.det(x[..., :2])",
    "batch": "x * len(x); x / x.shape[0]; x.flatten(); x[0]; x - x.roll(1, 0); x[None]; x.T; torch.rand(1) * x",
    "default dtype": "x * torch.tensor(0.1); x * (torch.arange(3) / 3); torch.ones(len(x))",
}

# torch's own names for arguments that Python does not pass, or not by name.
UNNAMED = {
    "tensor_split": {"tensor_indices_or_sections"},
    "repeat_interleave": {"output_size"},
    "einsum": {"tensors", "path"},
    "to": {"layout", "pin_memory", "other"},
    "split": {"split_sizes"},
    "sort": {"reverse"},
    "eq": {"b"},
    "ne": {"b"},
    "multi_head_attention_forward": set(list(inspect.signature(F.multi_head_attention_forward).parameters)[:13]),
}


def names() -> list[str]:
    return sorted(set(OPERATIONS) | STRUCTURAL | JOINING | IDENTITY | set(CASTS) | {"to", "type", "type_as"})


def rows(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(name, call) for name, calls in table.items() for call in calls.split("; ")]


def called(call: str, x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # F.softmax without a dimension
        return eval(call, dict(NAMES), {"x": x})


def arguments(name: str) -> set[str]:
    """Names of the arguments that the torch function takes beside the first."""
    found: set[str] = set()
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        kinds = [str(argument.type) for argument in schema.arguments]
        plain = [argument for argument in schema.arguments if argument.alias_info is None or not argument.is_out]
        tensors = bool(kinds) and kinds[0] in ("Tensor", "List[Tensor]") and "str" not in kinds[:1]
        if tensors and "Dimname" not in "".join(kinds) and not any(argument.is_out for argument in schema.arguments):
            found |= {argument.name for argument in plain[1:]}
    python = getattr(F, name, None)
    if inspect.isfunction(python):
        found = set(list(inspect.signature(python).parameters)[1:])
    return found - {"self", "names", *UNNAMED.get(name, set())}


@pytest.mark.parametrize("name", names())
def test_every_argument_of_every_operation_has_a_row(name: str) -> None:
    text = f"{RECORDED.get(name, '')}; {REFUSED.get(name, '')}"
    assert text != "; "
    missing = {argument for argument in arguments(name) if f"{argument}=" not in text}
    assert not missing


@pytest.mark.parametrize(("name", "call"), rows(RECORDED))
def test_recorded_calls_equal_torch(name: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    dispatch = Symbolic.dispatch

    def watched(func: Any, full_name: str, args: Any, kwargs: Any) -> Any:
        seen.append(full_name.strip("_"))
        return dispatch(func, full_name, args, kwargs)

    monkeypatch.setattr(Symbolic, "dispatch", staticmethod(watched))
    for data in (POSITIVE, SIGNED):
        box = Box(data.amin(0), data.amax(0))
        truth = called(call, data.clone())
        if not isinstance(truth, Tensor) or not bool(torch.isfinite(truth).all()):
            continue
        formula = record(lambda x: called(call, x), (2, 3), box=box)
        torch.testing.assert_close(formula(data), truth, rtol=1e-13, atol=1e-13)
    assert name in seen or name in ("getitem", "where", "cuda")


@pytest.mark.parametrize(("name", "call"), rows(REFUSED))
def test_refused_calls_are_refused_in_one_line(name: str, call: str) -> None:
    with pytest.raises(OnelayerError) as caught:
        record(lambda x: called(call, x), (2, 3), box=Box(POSITIVE.amin(0), POSITIVE.amax(0)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_unknown_argument_is_refused_by_name(name: str) -> None:
    x = torch.ones(3, dtype=torch.float64)
    with pytest.raises(UnsupportedOperation, match="nonsense"):
        record(lambda s: Symbolic.dispatch(torch.sum, name, (s, x), {"nonsense": 1}), (2, 3))
