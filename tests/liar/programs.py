"""Random torch programs: a row of numbers through a few operations, each with keywords drawn at random.

A program maps (B, D) to (B,). Its steps map rows (B, n) to rows (B, m).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from liar.calls import ENDS, POINTWISE, REFUSED, ROWS, Code, constant, triangle


@dataclass(frozen=True)
class Program:
    """Torch code with the point at which its spike stands, if it has one."""

    code: Code
    steps: tuple[str, ...]
    centre: tuple[int, float] | None = None

    def __call__(self, x: Any) -> Any:
        return self.code(x)


def mixing(rng: Random, rows: int, columns: int) -> tuple[str, Code]:
    """A linear map of the row, in one of its spellings."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    weight = torch.randn(columns, rows, generator=generator, dtype=torch.float64)
    bias = torch.randn(columns, generator=generator, dtype=torch.float64)
    spellings: dict[str, Code] = {
        "linear": lambda y: F.linear(y, constant(y, weight), constant(y, bias)),
        "matmul": lambda y: y @ constant(y, weight.T) + constant(y, bias),
        "einsum": lambda y: torch.einsum("bi,ji->bj", y, constant(y, weight)),
        "einsum dots": lambda y: torch.einsum("...i,ji->...j", y, constant(y, weight)),
        "addmm": lambda y: torch.addmm(constant(y, bias), y, constant(y, weight.T), beta=0.5, alpha=2.0),
        "tensordot": lambda y: torch.tensordot(y, constant(y, weight.T), dims=1),
        "constants": lambda y: torch.einsum("bi,ji,j->bj", y, constant(y, weight), constant(y, bias)),
    }
    name = rng.choice(list(spellings))
    return f"{name} {rows}->{columns}", spellings[name]


def _drawn(rng: Random, table: dict[str, Code], seldom: float) -> tuple[str, Code]:
    """A call of the table; those that Taylor models refuse come ``seldom``."""
    name = rng.choice(list(table))
    while name in REFUSED and rng.random() > seldom:
        name = rng.choice(list(table))
    return name, table[name]


def random_program(rng: Random, dim: int, centre: tuple[int, float] | None = None, seldom: float = 0.15) -> Program:
    """Two to five steps, then one number per point; with a centre, times a spike there."""
    steps: list[tuple[str, Code]] = []
    width = dim
    if rng.random() < 0.8:
        wide = rng.randint(1, 4)
        steps.append(mixing(rng, dim, wide))
        width = wide
    for _ in range(rng.randint(1, 3)):
        table = rng.choice([POINTWISE, ROWS])
        steps.append(_drawn(rng, table, seldom))
        if rng.random() < 0.3:
            wide = rng.randint(1, 3)
            steps.append(mixing(rng, width, wide))
            width = wide
    steps.append(_drawn(rng, ENDS, seldom))
    sharpness = rng.choice([1e6, 1e8, 1e10])

    def code(x: Any) -> Any:
        y = x
        for _, step in steps:
            y = step(y)
        if centre is not None:
            axis, at = centre
            y = y * (1 - torch.tanh(sharpness * (x[..., axis] - at)) ** 2)
        return y

    return Program(code, tuple(name for name, _ in steps), centre)


class Network(nn.Module):
    """A perceptron with a stock activation, between stock layers."""

    def __init__(self, body: nn.Module, end: Code) -> None:
        super().__init__()
        self.body, self.end = body, end

    def forward(self, x: Any) -> Any:
        return self.end(self.body(x))


ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.ReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    lambda: nn.GELU(approximate="tanh"),
    nn.SiLU,
    nn.ELU,
    nn.Softplus,
    nn.LeakyReLU,
    lambda: nn.LeakyReLU(0.2, inplace=True),
    lambda: nn.ReLU(inplace=True),
    nn.Hardtanh,
    nn.ReLU6,
    nn.Identity,
    nn.Mish,
    lambda: nn.ELU(inplace=True),
    lambda: nn.Softmax(dim=-1),
    nn.Softsign,
    nn.Hardswish,
    lambda: nn.Softplus(2.0, 0.5),
]


def stock_module(rng: Random, dim: int, dtype: torch.dtype) -> nn.Module:
    """A perceptron, a normalised one, an encoder layer or an attention layer of torch, with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.randrange(2**31))
        kind = rng.randrange(5)
        if kind <= 1:
            width = rng.randint(1, 6)
            norm = rng.choice([[], [], [nn.LayerNorm(width)], [nn.RMSNorm(width, eps=1e-3)], [nn.Dropout(0.3)]])
            body: nn.Module = nn.Sequential(
                nn.Linear(dim, width), *norm, rng.choice(ACTIVATIONS)(), nn.Linear(width, 1)
            )
            if rng.random() < 0.2:
                body = nn.Sequential(rng.choice(ACTIVATIONS)(), body)
            module = Network(body, lambda y: y[..., 0])
        elif kind == 2:
            body = nn.TransformerEncoderLayer(
                2, rng.choice([1, 2]), 4, norm_first=rng.random() < 0.5, batch_first=True,
                activation=rng.choice(["relu", "gelu"]), bias=rng.random() < 0.8,
            )  # fmt: skip
            module = Network(Pairs(body), lambda y: y[:, 0, 0])
        else:
            module = Network(SelfAttention(rng), lambda y: y[:, -1, 0])
        with torch.no_grad():
            for parameter in module.parameters():
                if rng.random() < 0.3:
                    parameter.mul_(rng.choice([3.0, 10.0, 0.1]))
    return module.to(dtype).eval()


class Pairs(nn.Module):
    """Tokens (x_i, 1 - x_i) into a layer of width two."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(torch.stack([x, 1.0 - x], -1))


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of tokens (x_i, x_i^2) on themselves, with a mask or without."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(2, rng.choice([1, 2]), batch_first=True)
        self.mask = rng.choice(["none", "bool", "float", "causal", "hint"])

    def forward(self, x: Any) -> Any:
        rows = torch.stack([x, x * x], -1)
        n = rows.shape[1]
        mask: Tensor | None = None
        if self.mask in ("bool", "float"):
            mask = triangle(x, self.mask == "float")
            mask = ~mask if self.mask == "bool" else constant(x, mask)
        elif self.mask in ("causal", "hint"):
            mask = (
                torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
                if self.mask == "causal"
                else torch.zeros(n, n, dtype=torch.bool)
            )
        causal = self.mask in ("causal", "hint")
        return self.attention(rows, rows, rows, attn_mask=mask, is_causal=causal, need_weights=False)[0]
