"""Every claim of the paper is run and its verdict asserted; and experiments are shown able to come out otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.paper.backward import Network
from onelayer.paper.finding import FAILS, HOLDS, REPAIRED, Setting
from onelayer.paper.layers import random_layer
from onelayer.paper.obstruction import BOUND, SignedMeasure, best_fit, head_span, random_heads, squared_determinant
from onelayer.paper.positionwise import _regions_then_ffn
from onelayer.paper.regions import region_heads, separable_cells, sine_lookup
from onelayer.paper.registry import ROWS, chosen, experiments
from onelayer.proof.certify import certify

VERDICTS = {
    "1": FAILS,
    "2": FAILS,
    "3": FAILS,
    "4": FAILS,
    "5": FAILS,
    "6": FAILS,
    "7": REPAIRED,
    "8": REPAIRED,
    "9": REPAIRED,
    "10": FAILS,
    "11": REPAIRED,
    "12": FAILS,
    "13": FAILS,
    "14": REPAIRED,
    "15": REPAIRED,
    "16": REPAIRED,
    "17": REPAIRED,
    "18": HOLDS,
    "equations-1-4": HOLDS,
    "equations-5-8": HOLDS,
}
LONG = ("theorem", "sequences", "size", "digits", "distillation", "training", "trainability", "depth", "kinds")


def test_all_eighteen_rows_are_experiments() -> None:
    keys = [item.key for item in experiments()]
    assert set(keys) == {*VERDICTS, *LONG}
    assert len(set(keys)) == len(keys)
    assert set(ROWS) <= set(keys)
    assert len(ROWS) == 18


@pytest.mark.parametrize("key", VERDICTS)
def test_verdict(key: str) -> None:
    (experiment,) = chosen([key])
    finding = experiment.run(Setting(quick=True))
    assert [check for check in finding.checks if not check.holds] == []
    assert finding.judged == VERDICTS[key]


@pytest.mark.slow
@pytest.mark.parametrize("key", LONG)
def test_verdict_of_long_experiments(key: str) -> None:
    (experiment,) = chosen([key])
    finding = experiment.run(Setting(quick=True))
    assert [check for check in finding.checks if not check.holds] == []


def test_row_1_finds_hyperplanes_where_there_are_some() -> None:
    assert separable_cells(2, 1) == 2
    assert separable_cells(3, 1) == 2
    assert separable_cells(2, 2) == 0


def test_row_3_needs_the_gap_between_the_heads() -> None:
    """Heads that meet at one threshold add up to a constant; a gap of any width brings the error back."""
    box = Box([-1], [1])
    assert certify(region_heads(0.0, 200.0), "1 + 0*x", box, 1e-9).proved
    assert certify(region_heads(0.02, 2000.0), "1 + 0*x", box, 0.9).status == "refuted"


@pytest.mark.parametrize("angles", [24, 48])
def test_row_5_measure(angles: int) -> None:
    """Mass 4, integral 3/4, and no head sees it; a function beyond the reach of heads does."""
    measure = SignedMeasure.on_grid(angles)
    assert np.abs(measure.weight).sum() == pytest.approx(4, abs=1e-12)
    assert measure.weight.sum() == pytest.approx(0, abs=1e-12)
    assert measure.integral(squared_determinant(measure.x)) == pytest.approx(0.75, abs=1e-12)
    assert max(measure.leak(random_heads(heads, seed)) for heads in (1, 7) for seed in range(3)) < 1e-10
    assert abs(measure.integral(np.abs(np.linalg.det(measure.x)))) > 0.1


def test_row_5_program_is_bounded_by_the_measure_and_by_nothing_else() -> None:
    found = best_fit(20, 24, seed=3)
    assert found.error >= BOUND - 1e-6
    assert np.abs(found.residual).max() == pytest.approx(found.error, abs=1e-6)
    x = np.random.default_rng(0).uniform(-1, 1, size=(400, 2, 2))
    basis = head_span(random_heads(20, 3), x)
    inside = x[:, 0, 0] + 0.5  # linear in a token: heads of equal weights can do it
    assert np.abs(basis @ (basis.T @ inside) - inside).max() < 0.05
    assert np.abs(basis @ (basis.T @ squared_determinant(x)) - squared_determinant(x)).max() > 0.05


def test_row_5_few_inputs_are_interpolated() -> None:
    """On a grid too coarse for the measure the program has no bound: the obstruction is not an artefact of solving."""
    assert best_fit(100, 6, seed=0).error < 1e-6
    assert best_fit(100, 8, seed=0).error > BOUND - 1e-5


def test_row_8_positions_tell_equal_rows_apart() -> None:
    x = torch.full((2, 1), 0.7, dtype=torch.float64)
    out = random_layer(2, 1, hidden=8, positions="learned", seed=1)(x)
    assert float((out[0] - out[1]).abs().max()) > 1e-3


def test_row_9_positions_break_equivariance() -> None:
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.tensor([1, 0, 2, 3])
    model = random_layer(4, 2, positions="learned", seed=1)
    assert float((model(x[order]) - model(x)[order]).abs().max()) > 1e-3


def test_row_12_merging_is_the_reason() -> None:
    """The same random networks do tell 0.10 and 0.60 apart, which lie in different regions."""
    apart = torch.tensor([[0.10], [0.60]], dtype=torch.float64)
    merged = torch.tensor([[0.10], [0.40]], dtype=torch.float64)
    for seed in range(5):
        network = _regions_then_ffn(seed)
        assert torch.equal(network(merged)[0], network(merged)[1])
        assert not torch.equal(network(apart)[0], network(apart)[1])


def test_row_14_readings_agree_while_every_unit_is_open() -> None:
    """The two readings of δ differ by ReLU slopes only: with all units switched on there is no difference."""
    network = Network([np.array([[1.0, 0.5]]), np.array([[2.0]])], [np.array([1.0]), np.array([1.0])])
    x, slope = np.array([0.3, 0.4]), np.array([1.0])
    for printed, repaired in zip(
        network.gradients(x, slope, printed=True), network.gradients(x, slope, printed=False), strict=True
    ):
        assert np.array_equal(printed[0], repaired[0])
        assert np.array_equal(printed[1], repaired[1])


def test_row_16_a_smaller_scale_breaks_the_promise() -> None:
    """The β of the bound keeps ε; a hundredth of it does not."""
    model, _, beta = sine_lookup(0.2)
    box = Box([0.0], [2 * math.pi])
    assert certify(model, "sin(x)", box, 0.2).proved
    assert beta > 100
    soft = sine_lookup(0.2)[0]
    with torch.no_grad():
        for memory in soft.memory.values():
            for axis in memory.axes:
                axis.mul_(0.001)
    assert certify(soft, "sin(x)", box, 0.2).status == "refuted"
