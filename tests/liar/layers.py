"""Random layers of this package, and their value in balls: the layer written down once more, from its definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from flint import arb
from torch import nn

from liar.expressions import Unclear
from onelayer import OneLayerTransformer
from onelayer.layer.memory import GridMemory, Memory, PlainMemory

NORM_EPS = 1e-5
Array = Any  # object arrays of balls


def random_layer(rng: Random, dim: int, dtype: torch.dtype) -> OneLayerTransformer:
    """A small layer of any kind: layout, attention, memory, norm, residual, hidden units, read-out, weights."""
    packed = rng.random() < 0.6
    options: dict[str, Any] = {
        "hidden": rng.choice([0, 3]),
        "residual": rng.random() < 0.5,
        "norm": rng.choice(["none", "pre", "post"]),
        **rng.choice(
            [
                {"attention": "softmax"},
                {"attention": "softmax"},
                {"attention": "softmax"},
                {"attention": "linear", "feature": "taylor", "order": 2},
                {"attention": "linear", "feature": "elu"},
                {"attention": "topk", "top_k": 2},
                {"attention": "hardmax"},
            ]
        ),
    }
    if rng.random() < 0.2:
        options |= {"embedding": "piecewise", "ramps": rng.randint(1, 3)}
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    seed = rng.randrange(1000)
    if packed:
        memory = [_memory(rng, generator, dtype, dim) for _ in range(rng.randint(1, 2))]
        width = rng.randint(1, 4)
        model = OneLayerTransformer.packed((dim,), (), memory, d_model=width, dtype=dtype, seed=seed, **options)
    else:
        options |= {"readout": rng.choice(["mean", "first", "last"])}
        options |= {"positions": rng.choice(["none", "sinusoidal", "learned"])}
        heads = rng.randint(1, 2)
        model = OneLayerTransformer.tokens(
            (dim, 1), (), d_model=2 * heads, heads=heads, dtype=dtype, seed=seed, **options
        )
    with torch.no_grad():
        for parameter in model.parameters():
            if rng.random() < 0.25:
                parameter.mul_(rng.choice([3.0, 10.0, 0.1, 1e-3, 50.0]))
            elif rng.random() < 0.04 and dtype != torch.float16:
                parameter.mul_(rng.choice([1e20, 1e-20, 1e30, 1e150 if dtype == torch.float64 else 1e15]))
    return model


def _memory(rng: Random, generator: torch.Generator, dtype: torch.dtype, dim: int) -> Memory:
    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)

    d_k, d_v = rng.randint(1, 3), rng.randint(1, 2)
    sharp, large = rng.choice([1.0, 3.0, 10.0, 100.0]), rng.choice([1.0, 10.0, 1e3])
    if rng.random() < 0.25:
        counts = [rng.randint(1, 3) for _ in range(2)]
        return GridMemory([normal(count, d_k) * sharp for count in counts], normal(*counts, d_v) * large)
    count = rng.randint(1, 5)
    return PlainMemory(normal(count, d_k) * sharp, normal(count, d_v) * large)


class Flat(nn.Module):
    """A tokens layer as a function of a flat point."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x[..., None])


def in_balls(model: OneLayerTransformer, point: Sequence[float]) -> list[arb]:
    """T at one point in exact real arithmetic of the stored weights, in the precision of the context.

    Ties of sparse attention that balls cannot break are Unclear.
    """
    config = model.config
    x = _array(np.array(point, dtype=object)).reshape(config.length, config.token_width)
    if config.embedding == "piecewise":
        start, slope = _weights(model, "ramp_start"), _weights(model, "ramp_slope")
        ramps = (x[..., None] - start) * slope
        x = _each(ramps, lambda u: u.max(arb(0)).min(arb(1))).reshape(config.length, -1)
    e = _affine(model, x, "E")
    if config.positions != "none":
        e = e + _weights(model, "position")
    a = _attend(model, _norm(model, e, "1") if config.norm == "pre" else e)
    r = e + a if config.residual else a
    r = _norm(model, r, "1") if config.norm == "post" else r
    y = r
    if config.hidden:
        seen = _norm(model, r, "2") if config.norm == "pre" else r
        y = _affine(model, _each(_affine(model, seen, "1"), lambda u: u.max(arb(0))), "2")
        y = r + y if config.residual else y
        y = _norm(model, y, "2") if config.norm == "post" else y
    if config.readout == "mean":
        y = y.sum(0, keepdims=True) / arb(config.length)
    elif config.readout != "each":
        y = y[:1] if config.readout == "first" else y[-1:]
    return list(_affine(model, y, "R").reshape(-1))


def _array(values: Array) -> Array:
    return _each(np.asarray(values, dtype=object), lambda value: value if isinstance(value, arb) else arb(value))


def _each(values: Array, function: Any) -> Array:
    return np.frompyfunc(function, 1, 1)(values)


def _weights(model: OneLayerTransformer, name: str) -> Array:
    return _array(model.own(name).detach().double().numpy())


def _affine(model: OneLayerTransformer, x: Array, which: str) -> Array:
    return x @ _weights(model, f"W_{which}") + _weights(model, f"b_{which}")


def _norm(model: OneLayerTransformer, x: Array, which: str) -> Array:
    width = arb(x.shape[-1])
    centred = x - x.sum(-1, keepdims=True) / width
    variance = (centred * centred).sum(-1, keepdims=True) / width + arb(NORM_EPS)
    scaled = centred / _each(variance, lambda u: u.sqrt())
    return scaled * _weights(model, f"gain_{which}") + _weights(model, f"shift_{which}")


def _attend(model: OneLayerTransformer, e: Array) -> Array:
    config = model.config
    query, parts, k, v = _affine(model, e, "Q"), [], 0, 0
    tokens = (_affine(model, e, "K"), _affine(model, e, "V")) if config.token_attention else None
    for h, shape in enumerate(config.heads):
        # The forward pass scales by the float nearest to 1 / sqrt(d_k); both are what "real" may mean.
        scale = arb(1 / math.sqrt(shape.d_k)).union(1 / arb(shape.d_k).sqrt())
        q = query[:, k : k + shape.d_k] * scale
        keys, values = [], []
        if tokens is not None:
            keys.append(tokens[0][:, k : k + shape.d_k])
            values.append(tokens[1][:, v : v + shape.d_v])
        memory = model.memory_of(h)
        if memory is not None:
            found = _tokens_of(memory)
            keys.append(found[0])
            values.append(found[1])
        weights = _attention(config, q, np.concatenate(keys))
        parts.append(weights @ np.concatenate(values))
        k, v = k + shape.d_k, v + shape.d_v
    return _affine(model, np.concatenate(parts, axis=-1), "O")


def _tokens_of(memory: Memory) -> tuple[Array, Array]:
    values = _array(memory.values.detach().double().numpy())
    if isinstance(memory, PlainMemory):
        return _array(memory.keys.detach().double().numpy()), values
    axes = [_array(axis.detach().double().numpy()) for axis in memory.axes]
    keys = axes[0]
    for axis in axes[1:]:
        keys = (keys[:, None, :] + axis).reshape(-1, axis.shape[-1])
    return keys, values.reshape(len(keys), -1)


def _attention(config: Any, query: Array, keys: Array) -> Array:
    """Weights (N, S) with rows of sum one."""
    if config.attention == "linear" and config.feature == "elu":
        query, keys = (_each(u, lambda x: x.max(arb(0)) + x.min(arb(0)).exp()) for u in (query, keys))
        kernel = query @ keys.T
    else:
        logits = query @ keys.T
        if config.attention == "linear":
            kernel = sum(_power(logits, p) / arb(math.factorial(p)) for p in range(config.order + 1))
        else:
            kernel = np.stack([_softmax_row(config, list(row)) for row in logits])
    return kernel / kernel.sum(-1, keepdims=True)


def _power(x: Array, exponent: int) -> Array:
    result = _each(x, lambda _: arb(1))
    for _ in range(exponent):
        result = result * x
    return result


def _softmax_row(config: Any, logits: list[arb]) -> Array:
    top = max(logits, key=lambda u: float(u.mid()))
    masses = [(u - top).exp() for u in logits]
    kept = {"softmax": len(logits), "topk": min(config.top_k, len(logits)), "hardmax": 1}[config.attention]
    if kept < len(logits):
        threshold = sorted(logits, key=lambda u: float(u.mid()))[-kept]
        for at, logit in enumerate(logits):
            if logit < threshold:
                masses[at] = arb(0)
            elif not (logit is threshold or logit > threshold or (logit - threshold) == 0):
                raise Unclear("tie")
    if config.attention == "hardmax":
        masses = [mass if mass == 0 else arb(1) for mass in masses]
    return np.array(masses, dtype=object)
