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


def mixing(rng: Random, rows: int, columns: int, seldom: float) -> tuple[str, Code]:
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
    name, code = _drawn(rng, spellings, seldom)
    return f"{name} {rows}->{columns}", code


def _drawn(rng: Random, table: dict[str, Code], seldom: float) -> tuple[str, Code]:
    """A call of the table; those that Taylor models refuse come ``seldom``."""
    name = rng.choice(list(table))
    while name in REFUSED and rng.random() > seldom:
        name = rng.choice(list(table))
    return name, table[name]


# Factors of one for plain tensors, and of zero for what stands for them while it is enclosed or recorded, or the other
# way round; the last is one for everybody.
ASKED: dict[str, Code] = {
    "is a tensor": lambda x: float(isinstance(x, Tensor)),
    "is no tensor": lambda x: float(not isinstance(x, Tensor)),
    "of the type": lambda x: float(type(x) is Tensor),
    "of a module": lambda x: float(type(x).__module__.startswith("torch")),
    "without overrides": lambda x: float(not torch.overrides.has_torch_function((x,))),
    "without coefficients": lambda x: float(not hasattr(x, "coef")),
    "has dimensions": lambda x: float(x.ndim == 2),
}


def random_program(
    rng: Random, dim: int, centre: tuple[int, float] | None = None, seldom: float = 0.15, asking: float = 0.0
) -> Program:
    """Two to five steps, then one number per point; with a centre, times a spike there that may ask what x is."""
    steps: list[tuple[str, Code]] = []
    width = dim
    if rng.random() < 0.8:
        wide = rng.randint(1, 4)
        steps.append(mixing(rng, dim, wide, seldom))
        width = wide
    for _ in range(rng.randint(1, 3)):
        table = rng.choice([POINTWISE, ROWS])
        steps.append(_drawn(rng, table, seldom))
        if rng.random() < 0.3:
            wide = rng.randint(1, 3)
            steps.append(mixing(rng, width, wide, seldom))
            width = wide
    steps.append(_drawn(rng, ENDS, seldom))
    sharpness = rng.choice([1e6, 1e8, 1e10])
    asked = rng.choice(list(ASKED)) if centre is not None and rng.random() < asking else ""
    factor = ASKED.get(asked, lambda x: 1.0)

    def code(x: Any) -> Any:
        y = x
        for _, step in steps:
            y = step(y)
        if centre is not None:
            axis, at = centre
            y = y * (1 - torch.tanh(sharpness * (x[..., axis] - at)) ** 2) * factor(x)
        return y

    return Program(code, (*(name for name, _ in steps), *filter(None, [asked])), centre)


class Network(nn.Module):
    """Stock layers between what brings points (B, D) into their form and what takes one number per point out."""

    def __init__(self, body: nn.Module, end: Code, start: Code = lambda x: x) -> None:
        super().__init__()
        self.start, self.body, self.end = start, body, end

    def forward(self, x: Any) -> Any:
        return self.end(self.body(self.start(x)))


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
    nn.PReLU,
    nn.Softshrink,
    nn.Hardshrink,
    lambda: nn.Threshold(0.1, -0.2),
]


def _perceptron(rng: Random, dim: int) -> nn.Module:
    width = rng.randint(1, 6)
    norms = [[], [], [nn.LayerNorm(width)], [nn.RMSNorm(width, eps=1e-3)], [nn.Dropout(0.3)], [nn.GroupNorm(1, width)]]
    norms.append([nn.BatchNorm1d(width)])
    body: nn.Module = nn.Sequential(
        nn.Linear(dim, width), *rng.choice(norms), rng.choice(ACTIVATIONS)(), nn.Linear(width, 1)
    )
    if rng.random() < 0.2:
        body = nn.Sequential(rng.choice(ACTIVATIONS)(), body)
    return Network(body, lambda y: y[..., 0])


def _encoder(rng: Random, dim: int) -> nn.Module:
    body = nn.TransformerEncoderLayer(
        2, rng.choice([1, 2]), 4, norm_first=rng.random() < 0.5, batch_first=True,
        activation=rng.choice(["relu", "gelu"]), bias=rng.random() < 0.8,
    )  # fmt: skip
    return Network(Pairs(body), lambda y: y[:, 0, 0])


def _attention(rng: Random, dim: int) -> nn.Module:
    return Network(SelfAttention(rng), lambda y: y[:, -1, 0])


def _recurrent(rng: Random, dim: int) -> nn.Module:
    """The inputs one after another as times of a sequence, or all at once into a cell."""
    size = rng.randint(1, 3)
    layers = [nn.LSTM, nn.GRU, nn.RNN, lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options)]
    if rng.random() < 0.5:
        body = rng.choice(layers)(1, size, num_layers=rng.randint(1, 2), bias=rng.random() < 0.8, batch_first=True)
        return Network(body, lambda y: y[0][:, -1, 0], lambda x: x[..., None])
    cells = [nn.LSTMCell, nn.GRUCell, nn.RNNCell, lambda *sizes: nn.RNNCell(*sizes, nonlinearity="relu")]
    return Network(rng.choice(cells)(dim, size), lambda y: (y[0] if isinstance(y, tuple) else y)[:, 0])


def _windowed(rng: Random, dim: int) -> nn.Module:
    """A convolution, a norm or none, an activation, a pooling."""
    padding = rng.randint(0, 1)
    first = nn.Conv1d(1, 2, rng.randint(1, 2), padding=padding, dilation=1, bias=rng.random() < 0.8)
    norm = rng.choice([[], [nn.BatchNorm1d(2)], [nn.GroupNorm(2, 2)], [nn.InstanceNorm1d(2)], [nn.GLU(1)]])
    pool = rng.choice(
        [nn.MaxPool1d, nn.AvgPool1d, lambda *sizes, **options: nn.AvgPool1d(*sizes, count_include_pad=False, **options)]
    )
    body = nn.Sequential(first, *norm, rng.choice(ACTIVATIONS)(), pool(2, stride=1, padding=rng.randint(0, 1)))
    return Network(body, lambda y: y.sum((1, 2)), lambda x: x[:, None])


STOCK = {_perceptron: 4.0, _attention: 3.0, _encoder: 2.0, _recurrent: 2.0, _windowed: 2.0}


def stock_module(rng: Random, dim: int, dtype: torch.dtype) -> nn.Module:
    """A network of layers of torch, with random weights: a perceptron, attention, an encoder, times, windows."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(rng.randrange(2**31))
        module = rng.choices(list(STOCK), list(STOCK.values()))[0](rng, dim)
        for parameter in module.parameters():
            if rng.random() < 0.3:
                parameter.mul_(rng.choice([3.0, 10.0, 0.1]))
        for name, buffer in module.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.add_(torch.rand_like(buffer) * rng.choice([0.0, 1.0, 30.0]))
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
