"""One axis: few tokens, honest estimates, bounded values, for functions that no constant was tuned to."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from onelayer.build.lookup.axis import AxisFit, fit_axis
from onelayer.build.lookup.groups import _extrapolated
from onelayer.build.lookup.ladder import KeyLadder
from onelayer.build.lookup.solve import axis_nodes, solve_axis
from onelayer.errors import OnelayerError

Function = Callable[[Tensor], Tensor]
INF, NAN = math.inf, math.nan


def dense(lower: float, upper: float) -> Tensor:
    """Points that no fit has seen, crowded at the edges too."""
    angles = torch.linspace(0, math.pi, 7001, dtype=torch.float64)
    even = torch.linspace(0, 1, 7919, dtype=torch.float64)
    return lower + (upper - lower) * torch.cat([even, (1 - torch.cos(angles)) / 2])


def sup_error(fit: AxisFit, g: Function, lower: float, upper: float) -> float:
    x = dense(lower, upper)
    exact = g(x).reshape(len(x), -1)
    return float((fit.basis(x) @ fit.values.double() - exact).abs().max())


@pytest.mark.parametrize(
    ("g", "eps", "tokens"),
    [
        (lambda x: torch.sin(math.pi * x), 1e-6, 6),
        (lambda x: torch.exp(torch.sin(math.pi * x)), 1e-3, 5),
        (lambda x: 1 / (1 + 25 * x**2), 1e-6, 9),
        (lambda x: torch.tanh(10 * x), 1e-9, 2),
        (lambda x: torch.cos(20 * x), 1e-3, 16),
        (lambda x: x**8, 1e-9, 9),
        (lambda x: torch.sqrt(x + 1.01), 1e-3, 6),
        (torch.exp, 1e-6, 3),
        (lambda x: torch.exp(-x) * torch.sin(5 * x), 1e-3, 7),
        (lambda x: torch.log(x + 2), 1e-6, 6),
        (lambda x: torch.erf(5 * x), 1e-3, 5),
        (lambda x: x**3 - x, 1e-6, 4),
        (lambda x: torch.tanh(1000 * (x - 0.3)), 1e-3, 3),
        (lambda x: 2 * x - 1, 1e-6, 2),
    ],
)
def test_few_tokens_and_the_estimate_holds(g: Function, eps: float, tokens: int) -> None:
    fit = fit_axis(g, -1.0, 1.0, eps)
    assert fit.meets
    assert fit.size <= tokens
    assert sup_error(fit, g, -1.0, 1.0) <= min(eps, 1.05 * fit.error + 1e-13)
    assert fit.vmax * 2.3e-16 <= eps / 20
    assert torch.isfinite(fit.slopes).all()
    assert torch.isfinite(fit.biases).all()


def test_sine_over_a_period_of_any_place() -> None:
    for lower, eps, tokens in ((0.0, 1e-3, 6), (0.0, 1e-9, 8), (100.0, 1e-6, 8)):
        fit = fit_axis(torch.sin, lower, lower + 2 * math.pi, eps)
        assert fit.meets
        assert fit.size <= tokens
        assert sup_error(fit, torch.sin, lower, lower + 2 * math.pi) <= eps


def test_constant_takes_one_token() -> None:
    fit = fit_axis(lambda x: 0 * x + 3.5, 0.0, 5.0, 1e-9)
    assert fit.size == 1
    assert fit.values.tolist() == [[3.5]]


def test_point_interval() -> None:
    fit = fit_axis(torch.sin, 2.0, 2.0, 1e-9)
    assert fit.size == 1
    assert float(fit.values) == pytest.approx(math.sin(2.0), abs=1e-15)


def test_columns_share_keys() -> None:
    def g(x: Tensor) -> Tensor:
        return torch.stack([torch.sin(x), torch.cos(x), x], -1)

    fit = fit_axis(g, 0.0, 3.0, 1e-5, effort="fast")
    assert fit.meets
    assert fit.values.shape == (fit.size, 3)
    assert sup_error(fit, g, 0.0, 3.0) <= 1e-5


def test_float32_weights_are_float32() -> None:
    fit = fit_axis(torch.sin, 0.0, 2 * math.pi, 1e-4, dtype=torch.float32)
    assert fit.meets
    assert fit.values.dtype == fit.slopes.dtype == fit.biases.dtype == torch.float32
    x = dense(0.0, 2 * math.pi).float()
    executed = (fit.basis(x) @ fit.values)[:, 0]
    assert float((executed.double() - torch.sin(x.double())).abs().max()) <= 1e-4


def test_out_of_reach_says_so() -> None:
    coarse = fit_axis(lambda x: torch.sin(30 * x), -1.0, 1.0, 1e-6, max_tokens=8, effort="fast")
    assert not coarse.meets
    assert coarse.size <= 8
    step = fit_axis(lambda x: (x > 0.1).double(), -1.0, 1.0, 1e-3, effort="fast")
    assert not step.meets
    finest = fit_axis(torch.sin, 0.0, 3.0, 1e-9, dtype=torch.float32, effort="fast")
    assert not finest.meets
    assert finest.error < 1e-4


def test_fits_do_not_depend_on_chance() -> None:
    first, second = (fit_axis(torch.exp, -1.0, 2.0, 1e-4, effort="fast") for _ in range(2))
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.slopes, second.slopes)


@pytest.mark.parametrize(
    ("weight", "sample", "penalty"), [(INF, 1, 0), (NAN, 1, 0), (1, NAN, 0), (1, INF, 0), (1, 1, NAN)]
)
def test_no_solver_sees_what_is_no_number(weight: float, sample: float, penalty: float) -> None:
    weights = np.array([[0.5, 0.5], [weight, 0.25], [0.0, 1.0]])
    samples = np.array([[0.0], [sample], [1.0]])
    with pytest.raises(OnelayerError, match="a fit of f overflows"):
        solve_axis(weights, samples, float(penalty))


def test_tokens_are_foreseen_whatever_the_error() -> None:
    assert [_extrapolated(4, error, 1e-200) for error in (1e-200, 4e-200, 1e200, INF, NAN)] == [4, 8, 8, 8, 8]


def test_pole_is_named() -> None:
    with pytest.raises(OnelayerError, match="not finite at"):
        fit_axis(_pole, -1.0, 1.0, 1e-3)


def _pole(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 0.02, torch.inf, x)


def test_keys_for_slices() -> None:
    """One set of keys serves a bundle of functions, between its nodes too."""
    nodes = axis_nodes(-1.0, 1.0, 120)
    rates = np.linspace(0.5, 2.0, 9)
    matrix = np.exp(np.sin((nodes[:, None] + 1) * rates))
    ladder = KeyLadder(nodes, matrix, 1e-10, 1e-6)
    keys, error = ladder.step(ladder.smallest(1e-5, 40))
    assert len(keys) <= 12
    assert error <= 1e-5
    values = solve_axis(keys.weights(nodes), matrix, 1e-10)
    t = np.linspace(-1.0, 1.0, 999)
    assert np.abs(keys.weights(t) @ values - np.exp(np.sin((t[:, None] + 1) * rates))).max() <= 2e-5


@np.errstate(all="ignore")
def test_a_tolerance_whose_square_is_beyond_all_floats_is_fitted_to() -> None:
    fit = fit_axis(lambda x: torch.sin(5 * x) * 2.0**606, 0.0, 1.0, 2.0**600, dtype=torch.float64, effort="fast")
    assert bool(torch.isfinite(fit.values).all())
