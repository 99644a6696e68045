"""The parts of the one-axis fit: families, solves, sampling, free slopes, each against what defines it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import comb, expit

from onelayer.build.lookup.axis import fit_axis
from onelayer.build.lookup.families import (
    Keys,
    bernstein,
    candidates,
    exponential,
    gaussian,
    graded,
    hinged,
    softmax,
    starts,
)
from onelayer.build.lookup.freeslopes import Descent, Projection, Round, equalise, tournament
from onelayer.build.lookup.ladder import KeyLadder
from onelayer.build.lookup.sampling import Sampler, peak, resolve
from onelayer.build.lookup.search import AxisProblem, deflated, to_interval
from onelayer.build.lookup.solve import axis_nodes, minimax, solve_axis
from onelayer.build.lookup.ties import ties

T = np.linspace(-1, 1, 201)


def test_bernstein_weights_are_the_bernstein_basis() -> None:
    size, kappa, centre = 9, 1.7, 0.3
    s = expit(kappa * (T - centre))[:, None]
    order = np.arange(size)
    exact = comb(size - 1, order) * s**order * (1 - s) ** (size - 1 - order)
    assert np.abs(bernstein(size, kappa, centre).weights(T) - exact).max() < 1e-14


def test_gaussian_weights_are_normalised_bumps() -> None:
    size, overlap, ghosts = 11, 1.5, 2.0
    spacing = 2 / (size - 1 - 2 * ghosts)
    centres = spacing * (np.arange(size) - (size - 1) / 2)
    bumps = np.exp(-((T[:, None] - centres) ** 2) / (overlap * spacing**2))
    assert np.abs(gaussian(size, overlap, ghosts).weights(T) - bumps / bumps.sum(1, keepdims=True)).max() < 1e-14


def test_graded_keys_are_gaussian_where_edges_are_equal_and_halve_between_places() -> None:
    size, overlap, ghosts = 11, 1.5, 2
    equal = graded(size, np.linspace(-1, 1, 5), overlap, ghosts)
    assert np.abs(equal.weights(T) - gaussian(size, overlap, ghosts).weights(T)).max() < 1e-12
    places = np.append(-np.geomspace(1, 1e-8, 9), np.geomspace(1e-8, 1, 9))
    crowded = graded(len(places), places, 1.0, 0)
    middle = (places[1:] + places[:-1]) / 2
    weights = crowded.weights(middle)
    left, right = weights[np.arange(17), np.arange(17)], weights[np.arange(17), np.arange(1, 18)]
    assert np.allclose(left, right, rtol=1e-6)
    assert (left > 0.3).all()


@pytest.mark.parametrize(("text", "most"), [("sqrt", 14), ("sine of a root", 24)])
def test_a_cusp_inside_takes_few_tokens_of_moderate_values(text: str, most: int) -> None:
    """Exponential sums that do not crowd at the cusp need forty tokens of size 1e8, or do not get there."""

    def cusp(x: torch.Tensor) -> torch.Tensor:
        root = torch.sqrt(torch.abs(x))
        return root if text == "sqrt" else torch.sin(10 * root)

    fit = fit_axis(cusp, -1.0, 1.0, 1e-2, effort="fast")
    near = torch.cat([torch.linspace(-1, 1, 2001), torch.logspace(-12, 0, 500), -torch.logspace(-12, 0, 500)]).double()
    assert fit.meets
    assert fit.size <= most
    assert fit.vmax < 1e3
    assert float((fit.basis(near) @ fit.values.flatten() - cusp(near)).abs().max()) <= 1e-2


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 20, 60])
def test_every_start_has_its_size_and_is_a_partition_of_unity(size: int) -> None:
    edges = np.append(-np.geomspace(1, 1e-6, 21), np.geomspace(1e-6, 1, 21))
    for keys in [*candidates(size, edges), *starts(size), *starts(size, (0.2, 1e-4), edges)]:
        assert len(keys) == len(keys.biases) == size
        assert np.abs(keys.weights(T).sum(1) - 1).max() < 1e-13


def test_exponential_logits_never_exceed_zero() -> None:
    for side in (-1, 0, 1):
        keys = exponential(9, 0.5, 100.0, side)
        assert (T[:, None] * keys.slopes + keys.biases).max() <= 1e-12
        assert np.unique(np.sign(keys.slopes)).tolist() == (
            [-1.0, 0.0, 1.0] if side == 0 else sorted({0.0, float(side)})
        )


def test_hinged_keys_meet_at_the_hinge() -> None:
    keys = hinged(5, 1e6, 0.25, 2)
    sides = np.sign(keys.slopes)
    assert sides.tolist() == [-1, -1, 1, 1, 1]
    assert keys.weights(np.array([0.25 - 1e-3]))[0, :2].sum() == pytest.approx(1.0)
    assert keys.weights(np.array([0.25 + 1e-3]))[0, 2:].sum() == pytest.approx(1.0)


def test_solve_is_least_squares_and_ridge_bounds_the_values() -> None:
    weights = bernstein(6, 1.0).weights(T)
    truth = np.array([[1.0], [-2.0], [3.0], [0.5], [0.0], [4.0]])
    assert np.abs(solve_axis(weights, weights @ truth) - truth).max() < 1e-9
    narrow = bernstein(14, 0.05).weights(T)
    samples = np.cos(5 * T)[:, None]
    sizes = [np.abs(solve_axis(narrow, samples, ridge)).max() for ridge in (1e-12, 1e-8, 1e-4)]
    assert sizes[0] > sizes[1] > sizes[2]
    repeated = np.repeat(weights[:, :1], 3, axis=1)
    assert np.isfinite(solve_axis(repeated, samples)).all()


def test_minimax_equioscillates() -> None:
    weights = bernstein(4, 1.0).weights(T)
    samples = np.exp(T)[:, None]
    squares = np.abs(weights @ solve_axis(weights, samples) - samples).max()
    values, error = minimax(weights, samples, 0.0, sweeps=60)
    assert error < 0.8 * squares
    residual = (weights @ values - samples)[:, 0]
    peaks = residual[np.abs(residual) > 0.9 * error]
    assert (np.diff(np.sign(peaks)) != 0).sum() == 4


def test_projection_jacobian_matches_differences() -> None:
    samples = np.stack([np.sin(3 * T), np.exp(T)], 1)
    problem = Projection(T, samples, 1e-8, origin=0.2)
    keys = gaussian(5, 1.4, 0.25)
    parameters = problem.pack(keys)
    assert np.allclose(problem.unpack(parameters).biases, keys.biases)
    point = problem.at(parameters)
    gradient = -2 * problem._jacobian(point).T @ point.residual.T.ravel()
    for index in range(len(parameters)):
        step = np.zeros(len(parameters))
        step[index] = 1e-5
        difference = (problem.at(parameters + step).loss - problem.at(parameters - step).loss) / 2e-5
        assert difference == pytest.approx(gradient[index], rel=1e-4, abs=1e-9)


def test_descent_finds_tanh_in_two_tokens() -> None:
    problem = Projection(T, np.tanh(10 * T)[:, None], 1e-15)
    runner = tournament(problem, starts(2), 1e-12, (Round(40, 3, 1e99), Round(60, 1, 1e99)))[0]
    assert math.sqrt(runner.loss) < 1e-12
    slopes = np.sort(problem.unpack(runner.parameters).slopes)
    assert slopes[1] - slopes[0] == pytest.approx(20.0)


def test_equalise_lowers_the_sup_error() -> None:
    problem = Projection(T, np.exp(np.sin(3 * T))[:, None], 1e-15)
    runner = problem.descend(Descent(problem.pack(gaussian(5, 1.4, 0.25))), 80)
    _, error = equalise(problem, runner, 0.0)
    assert error < 0.9 * problem.sup_error(runner.parameters)


def test_deflation_keeps_what_matters() -> None:
    problem = Projection(T, np.tanh(10 * T)[:, None], 1e-15)
    keys = Keys(np.array([-10.0, 10.0, 3.0]), np.array([0.0, 0.0, -40.0]), "free")
    smaller = deflated(problem, keys, 2)[0]
    assert np.sort(smaller.slopes).tolist() == [-10.0, 10.0]


def test_interval_keys_give_the_same_weights() -> None:
    keys = Keys(np.array([3.0, 40.0, -2.0]), np.array([0.5, -30.0, 1.0]), "free")
    slopes, biases = to_interval(keys, 100.0, 104.0)
    x = 102 + 2 * T
    assert np.abs(softmax(x[:, None] * slopes + biases) - keys.weights(T)).max() < 1e-12
    assert slopes.max() == -slopes.min()


def test_sampler_finds_the_finest_feature() -> None:
    sampler = Sampler(lambda x: torch.abs(x - 0.7), 0.0, 2.0, 1e-7)
    focus = sampler.focus()
    assert focus is not None
    assert focus.centre == pytest.approx(-0.3, abs=1e-6)
    assert focus.width < 1e-4
    assert Sampler(torch.sin, 0.0, 2.0, 1e-7).focus() is None


def test_sampler_finds_a_needle_between_its_nodes() -> None:
    def needle(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(-(((x - 0.123) / 0.002) ** 2))

    sampler = Sampler(needle, -1.0, 1.0, 1e-4)
    assert sampler.points(40)[2].max() > 0.9
    assert len(Sampler(torch.sin, -1.0, 1.0, 1e-4).edges) == 9


def test_least_tokens_counts_zeros() -> None:
    assert Sampler(lambda x: torch.cos(10 * torch.acos(x.clamp(-1, 1))), -1.0, 1.0, 1e-7).least_tokens(1e-3) == 11
    assert Sampler(lambda x: x**2, -1.0, 1.0, 1e-7).least_tokens(1e-3) == 3
    assert Sampler(lambda x: 0 * x, -1.0, 1.0, 1e-7).least_tokens(1e-3) == 1


def test_peak_is_not_missed() -> None:
    edges = np.linspace(-1, 1, 65)

    def bump(t: np.ndarray) -> np.ndarray:
        return np.exp(-(((t - 0.123) / 0.004) ** 2))[:, None]

    finer = resolve(bump, edges, 1e-3, 200)
    assert len(finer) > len(edges)
    assert peak(bump, finer) == pytest.approx(1.0, abs=1e-3)


def test_ladder_errors_fall() -> None:
    nodes = axis_nodes(-1.0, 1.0, 96)
    slices = np.exp(np.sin(3 * nodes[:, None]) * np.linspace(0.2, 1.0, 7))
    ladder = KeyLadder(nodes, slices, 1e-13, 1e-6)
    errors = [ladder.step(size)[1] for size in (2, 4, 8)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    size = ladder.smallest(1e-3, 20)
    assert ladder.step(size)[1] <= 1e-3 < ladder.step(size - 1)[1]
    few = KeyLadder(axis_nodes(-1.0, 1.0, 12), slices[::8], 1e-13, 1e-6)
    assert len(few.step(10)[0]) == 10


@pytest.mark.parametrize(("size", "parity"), [(2, 1), (5, -1), (6, 1), (7, 0)])
def test_ties_leave_fewer_numbers_than_free_keys(size: int, parity: int) -> None:
    found = list(ties(size, parity))
    numbers = [tie.numbers for tie in found]
    assert numbers == sorted(numbers)
    assert numbers[-1] < 3 * size - 2
    for tie in found:
        slopes, biases = np.split(tie.matrix @ np.linspace(1, 2, tie.matrix.shape[1]), 2)
        assert not parity or (np.allclose(slopes, -slopes[::-1]) and np.allclose(biases, biases[::-1]))


@pytest.mark.parametrize(
    ("g", "low", "high", "parity"),
    [(lambda u: torch.cos(20 * u), -1.0, 1.0, 1), (lambda u: 2 + torch.sin(u), math.pi - 3, math.pi + 3, -1)],
)
def test_thrifty_keys_of_even_and_odd_functions_are_mirrored(g, low: float, high: float, parity: int) -> None:
    free = fit_axis(g, low, high, 1e-3)
    fit = fit_axis(g, low, high, 1e-3, effort="thrifty")
    assert fit.meets
    assert fit.family == "tied"
    assert free.size <= fit.size <= free.size + free.size // 3 + 1
    middle = (low + high) / 2
    biases = fit.biases + fit.slopes * middle
    values = fit.values[:, 0] - (0.0 if parity > 0 else float(g(torch.tensor(middle, dtype=torch.float64))))
    assert torch.allclose(fit.slopes, -fit.slopes.flip(0), atol=1e-9)
    assert torch.allclose(biases, biases.flip(0), atol=1e-9)
    assert torch.allclose(values, parity * values.flip(0), atol=1e-9)
    u = torch.linspace(low, high, 2001, dtype=torch.float64)
    assert float((fit.basis(u) @ fit.values[:, 0] - g(u)).abs().max()) <= 1e-3


def test_thrifty_keys_without_parity_are_equally_spaced_where_that_will_do() -> None:
    fit = fit_axis(lambda u: torch.exp(torch.sin(math.pi * u)), -1.0, 1.0, 1e-3, effort="thrifty")
    assert fit.meets
    gaps = fit.slopes.diff()
    assert torch.allclose(gaps, gaps.mean().expand_as(gaps), rtol=1e-9)


def test_polishing_many_keys_looks_at_enough_points_where_few_panels_resolve_the_error() -> None:
    axis = AxisProblem(Sampler(lambda u: torch.sin(20 * u).abs(), -1.0, 1.0, 0.1), 1.0, torch.float64)
    t, _, samples = axis.sampler.points(300)
    problem = Projection(t, samples, 1e-12)
    found = axis.polish(problem, Descent(problem.pack(gaussian(44, 2.0, 2.0))), goal=1e-9)
    assert found.size == 44
    assert found.error < 1.0
