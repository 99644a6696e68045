"""Black boxes of declared structure: values on lines, a known function beside f, a claim that says what it assumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.observer import Observer
from onelayer.proof.claim import _digest
from onelayer.recording.lipschitz import Lipschitz
from onelayer.recording.separable import Lines, separate
from onelayer.result import Approximation

SIX = Box([0.0] * 6, [1.0] * 6)
SQUARE = Box([0.0, 0.0], [1.0, 1.0])


def plant(x: Any) -> float:
    return float(np.sin(x[0]) + x[1] ** 2 + np.exp(x[2]) + np.cos(x[3]) + 1 / (1 + x[4]) + np.tanh(x[5]))


def crossed(x: Any) -> float:
    return float(x[0] * x[1] + np.sin(x[0]))


@pytest.fixture(scope="module")
def made() -> tuple[Approximation, ol.BlackBox]:
    f = ol.BlackBox(plant, [1, 2, 2.8, 1, 1, 1], structure="additive")
    return ol.approximate(f, SIX, 0.2), f


def test_six_inputs_take_values_on_lines_alone(made: tuple[Approximation, ol.BlackBox]) -> None:
    a, f = made
    assert a.certificate.proved
    assert f.evaluations < 400
    assert "conditional on the declared structure" in str(a.certificate)
    assert any("f is a sum of functions of one input each" in text for text in a.certificate.assumptions)
    x = SIX.sample(2000)
    true = torch.tensor([plant(row) for row in x.numpy()], dtype=torch.float64)
    assert float((a.model(x) - true).abs().max()) <= a.certificate.upper


def test_the_checker_repeats_what_is_assumed(made: tuple[Approximation, ol.BlackBox], tmp_path: Path) -> None:
    a, _ = made
    a.save(tmp_path / "a")
    found = ol.check(tmp_path / "a")
    assert found.ok
    assert "is assumed, not proved" in found.reason
    assert ol.load(tmp_path / "a").certificate == a.certificate


@pytest.mark.parametrize("change", ["wider", "negative", "nan", "nothing assumed"])
def test_a_forged_distance_is_seen(tmp_path: Path, change: str) -> None:
    """More distance leaves the proof less than it needs; with less the same bound is a weaker claim."""
    a = ol.approximate(ol.BlackBox(lambda x: x[0] + x[1] ** 2, [1, 2], structure="additive"), SQUARE, 0.2)
    a.save(tmp_path / "a")
    path = tmp_path / "a" / "certificate.json"
    data = json.loads(path.read_text())
    if change == "nothing assumed":
        data["assumptions"] = []
    data["within"] = {"wider": data["upper"] * 0.9, "negative": -0.1, "nan": "nan"}.get(change, data["within"])
    del data["sha256"]
    data["sha256"] = _digest(data)
    path.write_text(json.dumps(data))
    if change == "wider":
        assert ol.check(tmp_path / "a").verdict == "rejected"
    else:
        with pytest.raises(OnelayerError):
            ol.check(tmp_path / "a")


@pytest.mark.parametrize("form", ["additive", "product"])
def test_values_that_contradict_the_structure_are_shown(form: str) -> None:
    with pytest.raises(OnelayerError, match=r"as declared: at \(.*\) it is .* through \(.*\) make .* was allowed"):
        ol.approximate(ol.BlackBox(crossed, [2, 1], structure=form), SQUARE, 0.05)
    with pytest.raises(OnelayerError, match="constant is too small"):
        ol.approximate(ol.BlackBox(plant, 0.1, structure="additive"), SIX, 0.05)


def test_a_product_with_changes_of_sign(tmp_path: Path) -> None:
    def f(x: Any) -> float:
        return float(np.cos(2 * x[0]) * (1 + x[1] ** 2) * np.exp(-x[2]))

    box = Box([0.0] * 3, [1.0] * 3)
    a = ol.approximate(ol.BlackBox(f, [4, 4, 2], structure="product"), box, 0.1)
    assert a.certificate.proved
    assert any("f is a product of functions" in text for text in a.certificate.assumptions)
    assert a.check().ok
    x = box.sample(2000)
    true = torch.tensor([f(row) for row in x.numpy()], dtype=torch.float64)
    assert float((a.model(x) - true).abs().max()) <= a.certificate.upper


def test_what_is_estimated_is_called_so(tmp_path: Path) -> None:
    f = ol.BlackBox(lambda x: x[0] + x[1] ** 2, [1, 2], structure="estimate")
    a = ol.approximate(f, SQUARE, 0.1)
    assert a.certificate.status == "estimated"
    assert "no proof" in str(a.certificate)
    a.save(tmp_path / "a")
    assert ol.load(tmp_path / "a").certificate.status == "estimated"
    with pytest.raises(OnelayerError, match="cannot be checked"):
        ol.check(tmp_path / "a")
    guessed = ol.approximate(ol.BlackBox(lambda x: x[0] + x[1] ** 2, "estimate", structure="additive"), SQUARE, 0.1)
    assert guessed.certificate.status == "estimated"


def test_where_no_structure_is_seen_none_is_used() -> None:
    a = ol.approximate(ol.BlackBox(crossed, [2, 1], structure="estimate"), SQUARE, 0.4)
    assert a.certificate.method == "conditional on Lipschitz constant"
    assert a.certificate.within == 0


def test_a_model_is_certified_against_it(made: tuple[Approximation, ol.BlackBox]) -> None:
    a, f = made
    found = ol.certify(a.model, f, SIX, 0.3)
    assert found.proved
    assert found.within > 0
    worse = ol.certify(lambda x: 0 * x[..., 0], f, SIX, 0.3)
    assert worse.status == "refuted"
    assert worse.lower <= np.sin(1) + 1 + np.exp(1) + 2 + np.tanh(1)
    with pytest.raises(OnelayerError, match="certified to an eps"):
        ol.certify(a.model, f, SIX)


@pytest.mark.parametrize("bad", ["sum", 3])
def test_other_structures_are_refused(bad: Any) -> None:
    with pytest.raises(OnelayerError, match="structure must be one of"):
        ol.BlackBox(plant, 3.0, structure=bad)
    with pytest.raises(OnelayerError, match="structure must be one of"):
        ol.BlackBox(plant, gradient=plant, curvature=1.0, structure="additive")


@pytest.mark.parametrize("seed", range(4))
def test_no_function_with_these_values_leaves_its_line_further(seed: int) -> None:
    """The steepest functions through the same values: they rise and fall at L between the nodes, and stay inside."""
    generator = np.random.default_rng(seed)
    steep = float(10.0 ** generator.integers(-150, 150))
    heights = generator.uniform(-1, 1, 7) * steep / 4
    ends = np.linspace(-1.0, 1.0, 7)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.clip(np.interp(x[..., 0].numpy(), ends, heights), -steep, steep))

    line = Lines(f, Box([-1.0], [1.0]), Lipschitz((steep,)), Observer()).along(0, steep / 50)
    left, right = line.nodes[:-1], line.nodes[1:]
    share = np.linspace(0, 1, 101)[:, None]
    at = left + share * (right - left)
    low, high = line.values[:-1, 0], line.values[1:, 0]
    above = np.minimum(low + steep * (at - left), high + steep * (right - at))
    below = np.maximum(low - steep * (at - left), high - steep * (right - at))
    chord = low + share * (high - low)
    assert max((above - chord).max(), (chord - below).max()) <= line.missed
    assert line.missed <= steep / 50


def test_several_outputs_and_a_flat_axis() -> None:
    box = Box([0.0, 2.0, 1.0], [1.0, 2.0, 3.0])

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[..., 0] + x[..., 2] ** 2, x[..., 1] - x[..., 0]], -1)

    found = separate(f, box, 0.5, Lipschitz((1.0, 1.0, 6.0), True), "additive", (2,), Observer())
    assert found is not None
    x = box.sample(500)
    assert float((found.formula(x) - f(x)).abs().max()) <= found.within <= 0.3


def test_saved_folders_of_other_claims_are_as_before(tmp_path: Path) -> None:
    """No distance, no field: files are what they were."""
    a = ol.approximate("x*y", SQUARE, 0.1)
    a.save(tmp_path / "a")
    assert "within" not in json.loads((tmp_path / "a" / "certificate.json").read_text())


@pytest.mark.parametrize("structure", ["additive", "product"])
def test_a_line_along_which_f_is_flat_is_not_refined_for_ever(structure: str) -> None:
    """Rounding is no cone: a constant of zero leaves nothing to look for between values."""
    f = ol.BlackBox(lambda x: 7.0, [0.0, 0.0], structure=structure)
    found = ol.approximate(f, SQUARE, 0.1)
    assert found.certificate.proved
    assert f.evaluations < 200


def test_lines_between_neighbouring_floats_have_ascending_knots() -> None:
    box = Box([1 - 2.0**-53, 0.0], [1.0, 1.0])
    f = ol.BlackBox(lambda x: 1e12 * x[0] + x[1], [1e12, 1.0], structure="additive")
    assert ol.approximate(f, box, 0.3).certificate.proved
