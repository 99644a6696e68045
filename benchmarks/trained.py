"""A one-layer Transformer trained on sin x1 + sin x2, and the same layer in the operations of a peer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.layer.transformer import NORM_EPS, OneLayerTransformer

WIDTH, HEADS, HIDDEN = 32, 2, 128


def trained_layer(steps: int = 10_000, *, seed: int = 0) -> OneLayerTransformer:
    """Two tokens, d_model 32, 2 heads, post-norm, 128 ReLU units; Adam in float32 on arcsine-distributed points.

    The result is converted to float64, which is exact. Biases start at random: a token that is a multiple of one
    vector loses its size in the first normalisation.
    """
    model = OneLayerTransformer.tokens(
        (2,),
        (),
        d_model=WIDTH,
        heads=HEADS,
        hidden=HIDDEN,
        residual=True,
        norm="post",
        positions="learned",
        dtype=torch.float32,
        seed=seed,
    )
    generator = torch.Generator().manual_seed(seed + 1)
    sizes = {"b_E": (WIDTH,), "position": (2, WIDTH), "b_1": (HIDDEN,)}
    model.set_weights({name: torch.randn(size, generator=generator) for name, size in sizes.items()})
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.05)
    for _ in range(steps):
        x = math.pi * (1 - torch.cos(math.pi * torch.rand(256, 2, generator=generator)))
        loss = (model(x) - torch.sin(x).sum(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.double().requires_grad_(False).eval()


def peer_module(model: OneLayerTransformer, library: Any) -> nn.Module:
    """The trained layer as a graph of the modules that ``bound_propagation`` can bound; softmax over two tokens is a
    sigmoid, LayerNorm is written out."""
    w, width = model.own, WIDTH // HEADS
    e = linear(per_token(w("W_E")), (w("b_E") + w("position")).flatten())
    q, k, v = (per_token(w(f"W_{name}")) for name in "QKV")  # (2 d, 2 d), token-wise
    bq, bk, bv = (w(f"b_{name}").repeat(2) for name in "QKV")
    index = torch.arange(2 * WIDTH)
    other = index.roll(WIDTH)  # the same feature of the other token
    # logit of a token on itself minus on the other, per head: q . (k_self - k_other) / sqrt(d_k)
    keys = k - k[:, other]
    products = linear(torch.cat([q, keys], 1), torch.cat([bq, torch.zeros_like(bk)]))
    summed = torch.block_diag(*[torch.ones(width, 1, dtype=torch.float64)] * (2 * HEADS)) / math.sqrt(width)
    own_weight = nn.Sequential(
        products, library.VectorMul(), linear(summed), nn.Sigmoid(), linear((summed > 0).double().T)
    )
    out = per_token(w("W_O"))
    mixed = library.Parallel(own_weight, linear(v - v[:, other]))
    attended = library.Add(
        nn.Sequential(mixed, library.VectorMul(), linear(out)),
        linear(v[:, other] @ out, bv @ out + w("b_O").repeat(2)),
    )
    ffn = nn.Sequential(
        linear(per_token(w("W_1")), w("b_1").repeat(2)), nn.ReLU(), linear(per_token(w("W_2")), w("b_2").repeat(2))
    )
    read = torch.cat([w("W_R")] * 2) / 2
    return nn.Sequential(
        e,
        library.Residual(attended),
        layer_norm(w("gain_1"), w("shift_1"), library),
        library.Residual(ffn),
        layer_norm(w("gain_2"), w("shift_2"), library),
        linear(read, w("b_R")),
    ).double()


def per_token(weight: Tensor) -> Tensor:
    """The same map on each of two tokens, as one matrix."""
    return torch.block_diag(weight, weight)


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """x -> x weight + bias, for weight (in, out)."""
    layer = nn.Linear(*weight.shape, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight.T)
        layer.bias.copy_(torch.zeros(weight.shape[1]) if bias is None else bias)
    return layer.requires_grad_(False)


def layer_norm(gain: Tensor, shift: Tensor, library: Any) -> nn.Module:
    """gain (x - mean) / sqrt(var + eps) + shift on two tokens."""
    ones = torch.ones(WIDTH, WIDTH, dtype=torch.float64) / WIDTH
    mean = torch.block_diag(ones[:, :1], ones[:, :1])  # (2 d, 2)
    spread = torch.block_diag(ones[:1] * WIDTH, ones[:1] * WIDTH)  # (2, 2 d)
    scale = nn.Sequential(
        library.Pow(2),
        linear(mean, torch.full((2,), NORM_EPS, dtype=torch.float64)),
        library.Sqrt(),
        library.Reciprocal(),
        linear(spread),
    )
    return nn.Sequential(
        linear(per_token(torch.eye(WIDTH, dtype=torch.float64) - ones)),
        library.Parallel(nn.Identity(), scale),
        library.VectorMul(),
        linear(per_token(torch.diag(gain)), shift.repeat(2)),
    )
