"""Enclosures at the edges of floating point: huge logits, subnormals, cancellation, points, needles, wide boxes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from cases import (
    attention_layer,
    bilinear,
    expressions,
    grid_head,
    log_sums,
    lookup_head,
    network,
    normalised_layer,
    order_statistics,
)
from enclosure import Tally, enclosed
from torch import Tensor

import onelayer as ol
from onelayer.taylor import variables

Maker = Callable[[np.random.Generator], Any]
SIDES = {
    "point": lambda rng, n, d: rng.normal(size=(n, d)) * 0,
    "needle": lambda rng, n, d: np.full((n, d), 1e-12) * rng.integers(0, 2, size=(n, d)),
    "small": lambda rng, n, d: rng.uniform(0, 1e-3, size=(n, d)),
    "ordinary": lambda rng, n, d: rng.uniform(0, 0.5, size=(n, d)),
    "wide": lambda rng, n, d: np.full((n, d), 1e6),
}
CASES: dict[str, Maker] = {
    "logits 1e3": lambda rng: lookup_head(rng, 2, 1e3),
    "logits 1e3, values 1e6": lambda rng: lookup_head(rng, 2, 1e3, values=1e6),
    "sharp attention 1e4": lambda rng: lookup_head(rng, 2, 1e4, tokens=12),
    "sharp tokens": lambda rng: attention_layer(rng, 2, 2, 30.0),
    "sharp grid": lambda rng: grid_head(rng, 2, 300.0),
    "variance near zero": lambda rng: normalised_layer(rng, 2, 4, 1e-5, offset=1e-8),
    "variance near zero, tiny eps": lambda rng: normalised_layer(rng, 2, 4, 1e-12, offset=1e-7),
    "kinks": lambda rng: order_statistics(rng, 2),
    "relu network": lambda rng: network(rng, 2, 8, "relu"),
    "log sums of 1e3": lambda rng: log_sums(rng, 2, 1e3),
    "bilinear": lambda rng: bilinear(rng, 2),
    "expressions": lambda rng: expressions(rng, 2, 3, count=5),
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", CASES)
def test_case_on_boxes_of_this_size(name: str, side: str, long_run: bool) -> None:
    tally = Tally()
    for seed in range(12 if long_run else 2):
        rng = np.random.default_rng([seed, *name.encode(), *side.encode()])
        case = CASES[name](rng)
        lower = torch.from_numpy(rng.normal(size=(5, 2)) * 10 ** rng.uniform(-8, 0.5, size=(5, 1)))
        upper = lower + torch.from_numpy(SIDES[side](rng, 5, 2))
        tally += enclosed(case, lower, upper, int(rng.integers(1, 7)), count=6, seed=seed)
    assert not tally.violations, tally.violations[:3]
    assert tally.checks > 0 or side == "wide"


def _both_sides(values: list[float]) -> tuple[Tensor, Tensor]:
    grid = torch.tensor(values, dtype=torch.float64)
    pairs = torch.cartesian_prod(grid, grid)
    pairs = pairs[pairs[:, 0] <= pairs[:, 1]]
    return pairs[:, :1], pairs[:, 1:]


SMALL = [0.0, 5e-324, 1e-320, 1e-310, 2.3e-308, 1e-300, 1e-160]


@pytest.mark.parametrize("order", [1, 3, 6])
@pytest.mark.parametrize(
    "case",
    [
        lambda x, lib: lib.stack([x[..., 0] * x[..., 0], x[..., 0] * 0.3, x[..., 0] * 1e-200], -1),
        lambda x, lib: lib.stack([lib.exp(x[..., 0]), lib.sin(x[..., 0]), lib.tanh(x[..., 0])], -1),
        lambda x, lib: lib.stack([lib.erf(x[..., 0]), lib.atan(x[..., 0]), x[..., 0] / (x[..., 0] + 1e-300)], -1),
        lambda x, lib: lib.stack([lib.sqrt(x[..., 0] + 1e-310), lib.log(x[..., 0] + 1e-305)], -1),
        lambda x, lib: lib.stack([lib.abs(x[..., 0] - 1e-310), lib.relu(x[..., 0] - 1e-305)], -1),
        lambda x, lib: lib.softmax(lib.stack([x[..., 0] * 1e300, -x[..., 0] * 1e305, x[..., 0]], -1)),
    ],
)
def test_subnormal_boxes(case: Any, order: int) -> None:
    lower, upper = _both_sides(SMALL)
    tally = enclosed(case, lower, upper, order, count=8)
    assert not tally.violations, tally.violations[:3]
    assert tally.checks > 30


@pytest.mark.parametrize("exponent", [-200, -100, -66, -55, -46, -35, 80, 150])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_tiny_and_huge_scales(exponent: int, order: int) -> None:
    """Powers of small slopes underflow where derivatives are huge: sqrt, log, 1/x and x^a at 10^exponent."""

    def case(x: Any, lib: Any) -> Any:
        u = x[..., 0]
        return lib.stack([lib.sqrt(u), lib.log(u), lib.rsqrt(u), 1.0 / u, u * u, lib.atan(u), lib.erf(u)], -1)

    center = 10.0**exponent
    lower = torch.tensor([[1.0], [2.0], [0.5], [1.0]], dtype=torch.float64) * center
    upper = lower * torch.tensor([[1.1], [2.0], [1.5], [1.0 + 1e-9]], dtype=torch.float64)
    tally = enclosed(case, lower, upper, order, count=10)
    assert not tally.violations, tally.violations[:3]
    assert tally.checks > 0


@pytest.mark.parametrize("size", [1.0, 1e8, 1e16, 1e100])
def test_cancellation(size: float) -> None:
    """(a + x) - a, x^2 - y^2 against (x - y)(x + y), log(e^x) - x: what cancels must come back as remainder."""

    def case(x: Any, lib: Any) -> Any:
        u, v = x[..., 0], x[..., 1]
        return lib.stack(
            [(u + size) - size, u * u - v * v - (u - v) * (u + v), lib.log(lib.exp(u)) - u, (u + size) * (v - size)], -1
        )

    lower = torch.tensor([[0.1, 0.2], [-3.0, 2.0], [1.0, 1.0]], dtype=torch.float64)
    for width in (0.0, 1e-12, 0.3):
        tally = enclosed(case, lower, lower + width, 4, count=8)
        assert not tally.violations, tally.violations[:3]


SUMS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1) * x.shape[-1],
    "cumsum": lambda x: x.cumsum(-1)[:, -1],
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(2, x.shape[-1], dtype=torch.float64))[:, 0],
    "bias": lambda x: torch.nn.functional.linear(
        x[:, 1:], torch.ones(1, x.shape[-1] - 1, dtype=torch.float64), torch.tensor([1e16], dtype=torch.float64)
    )[:, 0],
    "matmul": lambda x: x @ torch.ones(x.shape[-1], dtype=torch.float64),
    "einsum": lambda x: torch.einsum("bi,ji->b", x, torch.ones(1, x.shape[-1], dtype=torch.float64)),
    "einsum of one": lambda x: torch.einsum("bi->b", x),
    "model times model": lambda x: (x[:, None] @ (0 * x + 1)[..., None])[:, 0, 0],
    "apart": lambda x: torch.einsum("bi,bi->b", x, 0 * x[:, :1] + torch.ones(1, x.shape[-1], dtype=torch.float64)),
    "additions": lambda x: sum(x[:, i] for i in range(1, x.shape[-1])) + x[:, 0],
    "pending": lambda x: (torch.softmax(0 * x, -1) * x).sum(-1) * x.shape[-1],
}


@pytest.mark.parametrize("width", [0.0, 1e-12])
@pytest.mark.parametrize("name", SUMS)
def test_the_rounding_of_a_sum_that_cancels_is_enclosed(name: str, width: float) -> None:
    """1e16 + 1 - 1e16 is 0 or 2 in some orders: the enclosure holds the real sum, whatever the order."""
    for last in (1.0, 3.0, 2.0**-20, 1e-300):
        terms = [1e16, last, -1e16, 0.7, -0.7 * (1 + 2.0**-50)]
        exact = sum(map(Fraction, terms))
        for order in ([0, 1, 2, 3, 4], [0, 3, 1, 4, 2], [0, 4, 3, 2, 1]):
            point = torch.tensor([[terms[i] for i in order]], dtype=torch.float64)
            low, high = SUMS[name](variables(point - width, point + width, 1)).range()
            assert Fraction(float(low)) <= exact <= Fraction(float(high)), (last, order)


@pytest.mark.parametrize(
    "case",
    [
        lambda x, lib: lib.log(x[..., :1]),
        lambda x, lib: lib.rsqrt(x[..., :1]),
        lambda x, lib: lib.reciprocal(x[..., :1]),
        lambda x, lib: lib.sqrt(x[..., :1]),
        lambda x, lib: lib.tan(x[..., :1]),
        lambda x, lib: lib.softmax(lib.log(x)),
        lambda x, lib: lib.softmax(lib.stack([lib.reciprocal(x[..., 0]), x[..., 1]], -1)),
    ],
)
def test_outside_the_domain_is_undecided(case: Any) -> None:
    """A box that meets the edge of the domain gets no finite bound, whatever is done with the result."""
    lower = torch.tensor([[0.0, 0.5], [-1.0, 0.5], [-1e-300, 0.5], [-2.0, 0.1]], dtype=torch.float64)
    upper = torch.tensor([[1.0, 0.6], [2.0, 0.6], [1e-300, 0.6], [1.7, 0.2]], dtype=torch.float64)
    tally = enclosed(case, lower, upper, 4, count=12)
    assert not tally.violations, tally.violations[:3]


def test_a_product_that_overflows_is_no_infinite_number() -> None:
    """2 x overflows on the whole box and comes back by 2^-1023: f is not 0 at the spike, which no sample sees."""
    spike = "(1 - tanh(1e-292*(x - 9.5371e307))**2)"
    f = f"(tanh(x*2*1.1125369292536007e-308) - 1)*{spike}"
    found = ol.certify(lambda x: x[..., 0] * 0.0, f, ol.Box([9e307], [1e308]), execution="real", max_boxes=60)
    assert found.upper >= 0.02
