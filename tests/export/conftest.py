"""The models that every export must carry: one per construction, from one to four inputs, in both formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.blueprint import draw_up
from onelayer.build.lookup.groups import FitBudget
from onelayer.build.memorize import memorize
from onelayer.build.sort import median, sort
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation


@dataclass(frozen=True)
class Sample:
    """A model with its box, points of it and the model's own answers there."""

    name: str
    model: OneLayerTransformer
    box: Box

    @property
    def points(self) -> Tensor:
        return self.box.sample(64, seed=5).to(self.model.dtype)

    def expected(self) -> Tensor:
        with torch.no_grad():
            return self.model(self.points)

    def difference(self, values: Tensor) -> float:
        """Largest difference to the model's own outputs, over the larger of one and the largest output."""
        expected = self.expected()
        assert values.shape == expected.shape
        assert values.dtype == expected.dtype
        return float((values - expected).abs().max() / expected.abs().max().clamp(min=1))

    @property
    def bar(self) -> float:
        return 1e-9 if self.model.dtype == torch.float64 else 1e-5


FORMULAS = {
    "one axis": ("sin(3*x1)", [-1], [1]),
    "kink": ("abs(x1) + x1**2", [-1], [1]),
    "two axes": ("sin(x1) + sin(x2)", [0, 0], [6.3, 6.3]),
    "tensor": ("exp(x1*x2)", [-1, -1], [1, 1]),
    "ridge": ("tanh(2*x1 - x2)", [-1, -1], [1, 1]),
    "vector": ("sin(x1 + x2); abs(x1 - x2); x1*x2", [0, 0], [1, 1]),
    "three": ("cos(x1)*x2 + relu(x3 - x1)", [-1, -1, 0], [1, 1, 1]),
    "four": ("exp(-x1*x2) + sin(x3) + 0.5*x4", [0, 0, 0, 0], [1, 1, 1, 1]),
}


def formula(name: str, dtype: torch.dtype) -> Sample:
    text, lower, upper = FORMULAS[name]
    box = Box(lower, upper)
    budget = FitBudget(dtype, 500, 0, effort="fast")
    return Sample(name, draw_up(as_target(text, box), box, 1e-3, budget).build(dtype), box)


def sorted_numbers(dtype: torch.dtype) -> Sample:
    a = sort(4, 0.0, 1.0, 0.05, kind="thresholds", dtype=dtype)
    return Sample("sort", a.model, a.box)


def middle_number(dtype: torch.dtype) -> Sample:
    a = median(3, -1.0, 1.0, 0.05, kind="subsets", dtype=dtype)
    return Sample("median", a.model, a.box)


def table(dtype: torch.dtype) -> Sample:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(12, 2, generator=generator, dtype=torch.float64)
    a = memorize(x.numpy(), torch.sin(7 * x).numpy(), recipe="softmax", dtype=dtype)
    return Sample("table", a.model, a.box)


def mixed_tokens(dtype: torch.dtype) -> Sample:
    """Tokens that attend to tokens and, in two of three heads, to memories of different sizes."""
    generator = torch.Generator().manual_seed(1)

    def memory(count: int, d_k: int) -> PlainMemory:
        return PlainMemory(torch.randn(count, d_k, generator=generator), torch.randn(count, 2, generator=generator))

    model = OneLayerTransformer.tokens(
        (3, 2),
        (3, 2),
        d_model=6,
        heads=3,
        d_k=3,
        d_v=2,
        memory=[memory(3, 3), None, memory(5, 4)],
        hidden=5,
        positions="sinusoidal",
        dtype=dtype,
    )
    return Sample("mixed tokens", model.requires_grad_(False), Box([[-1.0, -1.0]] * 3, [[2.0, 2.0]] * 3))


BUILDERS: dict[str, Callable[[torch.dtype], Sample]] = {
    **{name: (lambda dtype, name=name: formula(name, dtype)) for name in FORMULAS},
    "sort": sorted_numbers,
    "median": middle_number,
    "table": table,
    "mixed tokens": mixed_tokens,
}
TOKENS = ("sort", "median", "mixed tokens")
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@cache
def built(name: str, dtype: str) -> Sample:
    return BUILDERS[name](DTYPES[dtype])


@pytest.fixture(params=[f"{name}-{dtype}" for dtype in DTYPES for name in BUILDERS])
def sample(request: pytest.FixtureRequest) -> Sample:
    """Every model of the zoo in turn."""
    name, _, dtype = request.param.rpartition("-")
    return built(name, dtype)


@pytest.fixture(params=[f"{name}-{dtype}" for dtype in DTYPES for name in BUILDERS if name not in TOKENS])
def packed_sample(request: pytest.FixtureRequest) -> Sample:
    """Every packed model of the zoo in turn."""
    name, _, dtype = request.param.rpartition("-")
    return built(name, dtype)


@pytest.fixture(scope="session")
def plane() -> Sample:
    """sin x1 + sin x2 on the square of side 2 pi, fitted to 1e-6."""
    box = Box([0, 0], [2 * torch.pi] * 2)
    budget = FitBudget(torch.float64, 500, 0, effort="fast")
    model = draw_up(as_target("sin(x1) + sin(x2)", box), box, 1e-6, budget).build(torch.float64)
    return Sample("plane", model, box)


@pytest.fixture(scope="session")
def approximation(plane: Sample) -> Approximation:
    """The same with a certificate of 1e-5, ready to be saved."""
    target = as_target("sin(x1) + sin(x2)", plane.box)
    return Approximation(plane.model, certify(plane.model, target, plane.box, 1e-5), target)


@pytest.fixture(scope="session")
def zoo() -> Callable[[str], Sample]:
    """A model of the zoo by name and format, for example "sort-float32"."""

    def pick(label: str) -> Sample:
        name, _, dtype = label.rpartition("-")
        return built(name, dtype)

    return pick
