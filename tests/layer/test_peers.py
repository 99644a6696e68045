"""The layer against PyTorch's own attention: every configuration that theirs can express, forward and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from onelayer.layer.attention import Softmax
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
DTYPES = st.sampled_from((torch.float64, torch.float32))
many = settings(max_examples=40, deadline=None, derandomize=True)


def close(found: Tensor, right: Tensor) -> None:
    assert found.shape == right.shape
    assert found.dtype == right.dtype
    scale = max(1.0, right.abs().max().item()) if right.numel() else 1.0
    assert (found - right).abs().max().item() <= TOLERANCE[right.dtype] * scale


def randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Every parameter random, so that zero biases and unit gains hide nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))


def attention_weights(peer: nn.MultiheadAttention) -> dict[str, Tensor]:
    d = peer.embed_dim
    weights = {"W_O": peer.out_proj.weight.T}
    for which, block in zip("QKV", peer.in_proj_weight.split(d), strict=True):
        weights[f"W_{which}"] = block.T
    if peer.in_proj_bias is not None:
        weights |= {f"b_{which}": b for which, b in zip("QKV", peer.in_proj_bias.split(d), strict=True)}
        weights["b_O"] = peer.out_proj.bias
    return weights


def attention_gradients(peer: nn.MultiheadAttention) -> dict[str, Tensor]:
    assert peer.in_proj_weight.grad is not None
    assert peer.out_proj.weight.grad is not None
    gradients = {"W_O": peer.out_proj.weight.grad.T}
    for which, block in zip("QKV", peer.in_proj_weight.grad.split(peer.embed_dim), strict=True):
        gradients[f"W_{which}"] = block.T
    if peer.in_proj_bias is not None:
        assert peer.in_proj_bias.grad is not None
        for which, block in zip("QKV", peer.in_proj_bias.grad.split(peer.embed_dim), strict=True):
            gradients[f"b_{which}"] = block
        assert peer.out_proj.bias.grad is not None
        gradients["b_O"] = peer.out_proj.bias.grad
    return gradients


def ours_like(shape: tuple[int, int], dtype: torch.dtype, weights: dict[str, Tensor], **options: Any) -> Any:
    """A tokens layer on (n, d) with identity embedding and read-out: what a stock layer is."""
    d = shape[1]
    return OneLayerTransformer.tokens(
        shape, shape, d_model=d, dtype=dtype, weights={"W_E": torch.eye(d), "W_R": torch.eye(d), **weights}, **options
    )


@st.composite
def problem(draw: Any) -> dict[str, Any]:
    heads = draw(st.integers(1, 4))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    return {
        "heads": heads,
        "d": heads * draw(st.integers(1, 4)),
        "n": draw(st.integers(1, 6)),
        "batch": batch,
        "dtype": draw(DTYPES),
        "generator": torch.Generator().manual_seed(draw(st.integers(0, 2**16))),
    }


def inputs(problem: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Two equal leaves and a random gradient for the output."""
    shape = (*problem["batch"], problem["n"], problem["d"])
    x = torch.randn(shape, generator=problem["generator"], dtype=problem["dtype"])
    slope = torch.randn(shape, generator=problem["generator"], dtype=problem["dtype"])
    return x.clone().requires_grad_(), x.clone().requires_grad_(), slope


@many
@given(problem(), st.integers(1, 7), st.integers(1, 5))
def test_scaled_dot_product_attention(problem: dict[str, Any], keys: int, d_v: int) -> None:
    generator, dtype = problem["generator"], problem["dtype"]

    def leaf(*shape: int) -> Tensor:
        tensor = torch.randn(*problem["batch"], problem["heads"], *shape, generator=generator, dtype=dtype)
        return tensor.requires_grad_()

    query, key, value = leaf(problem["n"], problem["d"]), leaf(keys, problem["d"]), leaf(keys, d_v)
    right = F.scaled_dot_product_attention(query, key, value)
    found = Softmax().average(query * problem["d"] ** -0.5, [(key, value)])
    close(found, right)
    slope = torch.randn(right.shape, generator=generator, dtype=dtype)
    for ours, theirs in zip(
        torch.autograd.grad(found, (query, key, value), slope),
        torch.autograd.grad(right, (query, key, value), slope),
        strict=True,
    ):
        close(ours, theirs)


@many
@given(problem(), st.booleans(), st.booleans(), st.booleans())
def test_multihead_attention(problem: dict[str, Any], bias: bool, bias_kv: bool, zero: bool) -> None:
    """``add_bias_kv`` and ``add_zero_attn`` are memory tokens: PyTorch's layer has up to two per head; so has ours."""
    heads, d, n, dtype = problem["heads"], problem["d"], problem["n"], problem["dtype"]
    peer = nn.MultiheadAttention(
        d, heads, bias=bias, add_bias_kv=bias_kv, add_zero_attn=zero, batch_first=True, dtype=dtype
    )
    randomise(peer, problem["generator"])
    memory: list[PlainMemory | None] = [None] * heads
    if bias_kv or zero:
        keys = torch.zeros(heads, bias_kv + zero, d // heads, dtype=dtype)
        values = torch.zeros_like(keys)
        if bias_kv:
            assert peer.bias_k is not None
            assert peer.bias_v is not None
            keys[:, 0], values[:, 0] = peer.bias_k.reshape(heads, -1), peer.bias_v.reshape(heads, -1)
        memory = [PlainMemory(keys[h], values[h]) for h in range(heads)]
    model = ours_like((n, d), dtype, attention_weights(peer), heads=heads, memory=memory)
    mine, theirs, slope = inputs(problem)
    found = model(mine)
    stacked = theirs.reshape(-1, n, d)
    right, weights = peer(stacked, stacked, stacked, average_attn_weights=False)
    close(found, right.reshape(found.shape))
    rows = torch.stack(model.attention_weights(mine), dim=-3)
    close(rows, weights.reshape(rows.shape))
    found.backward(slope)
    right.backward(slope.reshape(right.shape))
    close(mine.grad, theirs.grad)  # type: ignore[arg-type]
    for name, gradient in attention_gradients(peer).items():
        close(model.own(name).grad, gradient)
    if bias_kv:
        assert peer.bias_k is not None
        assert peer.bias_k.grad is not None
        close(torch.cat([m.keys.grad[:1] for m in model.memory.values()], -1), peer.bias_k.grad.reshape(1, -1))


@many
@given(problem(), st.booleans(), st.booleans(), st.integers(1, 9))
def test_encoder_layer(problem: dict[str, Any], pre: bool, bias: bool, hidden: int) -> None:
    heads, d, n, dtype = problem["heads"], problem["d"], problem["n"], problem["dtype"]
    peer = nn.TransformerEncoderLayer(
        d, heads, hidden, dropout=0.0, batch_first=True, norm_first=pre, bias=bias, dtype=dtype
    )
    randomise(peer, problem["generator"])
    pairs = {"W_1": peer.linear1.weight, "W_2": peer.linear2.weight, "gain_1": peer.norm1.weight}
    pairs |= {"gain_2": peer.norm2.weight}
    if bias:
        pairs |= {"b_1": peer.linear1.bias, "b_2": peer.linear2.bias}
        pairs |= {"shift_1": peer.norm1.bias, "shift_2": peer.norm2.bias}
    weights = attention_weights(peer.self_attn) | {name: p.T if p.ndim == 2 else p for name, p in pairs.items()}
    norm = "pre" if pre else "post"
    model = ours_like((n, d), dtype, weights, heads=heads, hidden=hidden, residual=True, norm=norm)
    mine, theirs, slope = inputs(problem)
    found, right = model(mine), peer(theirs.reshape(-1, n, d))
    close(found, right.reshape(found.shape))
    found.backward(slope)
    right.backward(slope.reshape(right.shape))
    gradients = attention_gradients(peer.self_attn)
    for name, p in pairs.items():
        assert p.grad is not None
        gradients[name] = p.grad.T if p.grad.ndim == 2 else p.grad
    for name, gradient in gradients.items():
        close(model.own(name).grad, gradient)
    close(mine.grad, theirs.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("pre", [True, False])
def test_encoder_layer_fast_path(pre: bool) -> None:
    """PyTorch evaluates its layer by other, fused code outside of autograd."""
    peer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=pre, dtype=torch.float64)
    weights = attention_weights(peer.self_attn)
    weights |= {"W_1": peer.linear1.weight.T, "W_2": peer.linear2.weight.T}
    weights |= {"b_1": peer.linear1.bias, "b_2": peer.linear2.bias}
    model = ours_like((5, 8), torch.float64, weights, heads=2, hidden=16, residual=True, norm="pre" if pre else "post")
    x = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        close(model(x), peer.eval()(x))
