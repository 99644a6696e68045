"""Test cases: random expressions and random layers, each f(x, lib) from (..., D) to (..., E), and boxes for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Case = Callable[[Any, Any], Any]
Random = np.random.Generator

# What each function is made safe with: most arguments should be inside the domain, some should not be.
SAFE: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda u, lib: u,
    "sin": lambda u, lib: u,
    "cos": lambda u, lib: u,
    "tan": lambda u, lib: u * 0.5,
    "tanh": lambda u, lib: u,
    "sigmoid": lambda u, lib: u,
    "atan": lambda u, lib: u,
    "asin": lambda u, lib: lib.sin(u) * 0.95,
    "acos": lambda u, lib: lib.tanh(u),
    "erf": lambda u, lib: u,
    "gelu": lambda u, lib: u,
    "softplus": lambda u, lib: u,
    "expm1": lambda u, lib: u,
    "relu": lambda u, lib: u,
    "abs": lambda u, lib: u,
    "square": lambda u, lib: u,
    "log": lambda u, lib: u * u + 0.5,
    "log1p": lambda u, lib: u * u,
    "sqrt": lambda u, lib: u * u + 0.25,
    "rsqrt": lambda u, lib: u * u + 0.75,
    "reciprocal": lambda u, lib: u * u + 1.5,
}


def scalar_expression(rng: Random, dim: int, depth: int) -> Case:
    """A random tree over + - * /, powers, extremes and the functions above."""
    if depth == 0 or rng.random() < 0.15:
        i, a, b = int(rng.integers(dim)), float(np.round(rng.normal(), 3)), float(rng.normal())
        return [lambda x, lib: x[..., i], lambda x, lib: x[..., i] * a + b][int(rng.integers(2))]
    left = scalar_expression(rng, dim, depth - 1)
    kind = int(rng.integers(10))
    if kind < 5:
        name = list(SAFE)[int(rng.integers(len(SAFE)))]
        bare = rng.random() < 0.1
        return lambda x, lib: getattr(lib, name)(left(x, lib) if bare else SAFE[name](left(x, lib), lib))
    right = scalar_expression(rng, dim, depth - 1)
    if kind == 5:
        return lambda x, lib: left(x, lib) + right(x, lib)
    if kind == 6:
        return lambda x, lib: left(x, lib) * right(x, lib)
    if kind == 7:
        return lambda x, lib: left(x, lib) / (right(x, lib) * right(x, lib) + 2.0)
    if kind == 8:
        n = int(rng.integers(2, 7))
        return lambda x, lib: lib.power(left(x, lib), n) - right(x, lib)
    larger = rng.random() < 0.5
    return lambda x, lib: (lib.maximum if larger else lib.minimum)(left(x, lib), right(x, lib))


def expressions(rng: Random, dim: int, depth: int, count: int = 3) -> Case:
    """Several random trees side by side, with a difference of two equal parts among them (cancellation)."""
    trees = [scalar_expression(rng, dim, depth) for _ in range(count)]
    return lambda x, lib: lib.stack(
        [*(tree(x, lib) for tree in trees), (trees[0](x, lib) + 1.0) - trees[0](x, lib)], -1
    )


def _tensor(rng: Random, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.from_numpy(rng.normal(size=shape) * scale)


def lookup_head(rng: Random, dim: int, sharpness: float, values: float = 1.0, tokens: int = 7) -> Case:
    """softmax(W x + b) V with logits of the given size."""
    weight, bias = _tensor(rng, tokens, dim, scale=sharpness), _tensor(rng, tokens, scale=sharpness)
    table = _tensor(rng, tokens, 2, scale=values)
    return lambda x, lib: lib.softmax(lib.linear(x, weight, bias)) @ lib.constant(table, x)


def grid_head(rng: Random, dim: int, sharpness: float, tokens: int = 5) -> Case:
    """One softmax per coordinate, contracted one axis at a time."""
    slopes, biases = _tensor(rng, dim, tokens, scale=sharpness), _tensor(rng, dim, tokens, scale=sharpness)
    table = _tensor(rng, *[tokens] * dim, scale=10.0)

    def case(x: Any, lib: Any) -> Any:
        rest = lib.constant(table, x)
        for i in reversed(range(dim)):
            logits = x[..., i : i + 1] * lib.constant(slopes[i], x) + lib.constant(biases[i], x)
            weights = lib.softmax(logits)
            letters = "abcd"[: i + 1]
            front = "..." if i < dim - 1 else ""
            rest = lib.einsum(f"{front}{letters},...{letters[-1]}->...{letters[:-1]}", rest, weights)
        return lib.stack([rest, rest * 2.0], -1)

    return case


def attention_layer(rng: Random, tokens: int, width: int, sharpness: float) -> Case:
    """Self-attention over tokens of one number each: projections, softmax(q k / sqrt d) v."""
    q, k, v = (_tensor(rng, width, 1, scale=sharpness) for _ in range(3))
    offsets = [_tensor(rng, tokens, width) for _ in range(3)]

    def case(x: Any, lib: Any) -> Any:
        rows = x[..., :, None]
        parts = [lib.linear(rows, w) + lib.constant(o, x) for w, o in zip((q, k, v), offsets, strict=True)]
        return lib.attention(*parts).reshape(*x.shape[:-1], tokens * width)

    return case


def normalised_layer(rng: Random, dim: int, width: int, eps: float, offset: float = 1.0) -> Case:
    """LayerNorm of an affine map; a small offset brings the variance near zero."""
    weight, bias = _tensor(rng, width, dim), _tensor(rng, width, scale=offset)
    gain, shift = _tensor(rng, width), _tensor(rng, width)
    return lambda x, lib: lib.layer_norm(lib.linear(x, weight, bias), (width,), gain, shift, eps)


def network(rng: Random, dim: int, width: int, activation: str) -> Case:
    """A two-layer network."""
    first, second = _tensor(rng, width, dim), _tensor(rng, 2, width)
    bias = _tensor(rng, width)
    return lambda x, lib: lib.linear(getattr(lib, activation)(lib.linear(x, first, bias)), second)


def order_statistics(rng: Random, dim: int) -> Case:
    """sort, amax, clamp, and a product of extremes."""
    shift = _tensor(rng, dim, scale=0.3)

    def case(x: Any, lib: Any) -> Any:
        y = x + lib.constant(shift, x)
        ordered = lib.sort(y)
        extra = lib.stack([lib.amax(y), lib.clamp(lib.sum(y), -0.25, 0.75), lib.abs(lib.mean(y))], -1)
        return lib.cat([ordered, extra], -1)

    return case


def log_sums(rng: Random, dim: int, sharpness: float) -> Case:
    weight = _tensor(rng, 5, dim, scale=sharpness)
    return lambda x, lib: lib.cat(
        [lib.log_softmax(lib.linear(x, weight)), lib.logsumexp(lib.linear(x, weight))[..., None]], -1
    )


def bilinear(rng: Random, dim: int) -> Case:
    """Products between models: matrix products and contractions over shared and separate variables."""
    a, b = _tensor(rng, 6, dim), _tensor(rng, 6, dim)

    def case(x: Any, lib: Any) -> Any:
        u, v = lib.sin(lib.linear(x, a)), lib.exp(lib.linear(x, b) * 0.25)
        m = u.reshape(*u.shape[:-1], 2, 3) @ v.reshape(*v.shape[:-1], 3, 2)
        dot = lib.einsum("...i,...i->...", u, v)
        return lib.cat([m.reshape(*u.shape[:-1], 4), dot[..., None]], -1)

    return case


def reductions(rng: Random, dim: int) -> Case:
    """Products, norms and variances along a dimension; the norm meets zero where all entries do."""
    weight, bias = _tensor(rng, 4, dim), _tensor(rng, 4, scale=float(rng.integers(2)))

    def case(x: Any, lib: Any) -> Any:
        y = lib.linear(x, weight, bias)
        return lib.stack([lib.prod(y), lib.norm(y), lib.var(y), lib.norm(x * 3.0)], -1)

    return case


def composed(rng: Random, dim: int) -> Case:
    """Expressions of the outputs of layers: pending quotients meet every other operation."""
    first = lookup_head(rng, dim, float(10 ** rng.uniform(-1, 1)))
    second = attention_layer(rng, dim, 1, 1.0)
    tree = expressions(rng, 2 + dim, int(rng.integers(1, 3)), count=2)
    return lambda x, lib: tree(lib.cat([first(x, lib), second(x, lib)], -1), lib)


def random_case(rng: Random, dim: int) -> Case:
    """One of everything, with random sizes."""
    makers: list[Callable[[], Case]] = [
        lambda: expressions(rng, dim, int(rng.integers(1, 4))),
        lambda: expressions(rng, dim, int(rng.integers(1, 4))),
        lambda: lookup_head(rng, dim, float(10 ** rng.uniform(-1, 2)), float(10 ** rng.uniform(0, 4))),
        lambda: grid_head(rng, min(dim, 3), float(10 ** rng.uniform(-1, 1))) if dim <= 3 else bilinear(rng, dim),
        lambda: attention_layer(rng, dim, 2, float(10 ** rng.uniform(-1, 0.7))),
        lambda: normalised_layer(rng, dim, 4, 1e-5, float(10 ** rng.uniform(-3, 0))),
        lambda: network(rng, dim, 6, ["relu", "tanh", "gelu", "sigmoid", "softplus"][int(rng.integers(5))]),
        lambda: order_statistics(rng, dim),
        lambda: log_sums(rng, dim, float(10 ** rng.uniform(-1, 1))),
        lambda: bilinear(rng, dim),
        lambda: composed(rng, dim),
        lambda: reductions(rng, dim),
    ]
    return makers[int(rng.integers(len(makers)))]()


def random_boxes(rng: Random, count: int, dim: int) -> tuple[Tensor, Tensor]:
    """Boxes of every size: points, 1e-12, ordinary, large; some touching zero, some sides degenerate."""
    center = rng.normal(size=(count, dim)) * 10 ** rng.uniform(-2, 0.5, size=(count, 1))
    width = 10 ** rng.uniform(-13, 0.3, size=(count, 1)) * rng.uniform(0.1, 1, size=(count, dim))
    width[rng.random((count, dim)) < 0.08] = 0.0
    width[rng.random(count) < 0.05] *= 1e6
    low = center - width / 2
    low[rng.random((count, dim)) < 0.05] = 0.0
    return torch.from_numpy(low), torch.from_numpy(low + width)
