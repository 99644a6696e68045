"""Gathering layers: sequences as tokens, shared and gated units, residual and normalised streams, proofs that check."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from onelayer.box import Box
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.pursuit import pursue
from onelayer.checker.check import check
from onelayer.errors import OnelayerError
from onelayer.lemmas.argument import Composition, from_text
from onelayer.proof.certify import certify
from onelayer.proof.files import ARGUMENT
from onelayer.result import Approximation, load

SINES = Box([0.0, 0.0], [2 * math.pi] * 2)
CUBE = Box([-1.0] * 4, [1.0] * 4)


def times_mean(x: torch.Tensor) -> torch.Tensor:
    return x * x.mean(-1, keepdim=True)


def measured(a: Approximation, count: int = 4000) -> float:
    x = torch.cat([a.box.sample(count, seed=5), a.box.sample(count, seed=6, arcsine=True), a.box.corners(64)])
    assert a.target is not None
    return float((a.model(x.to(a.model.dtype)).double() - a.target.function(x)).abs().max())


def composition(a: Approximation) -> Composition:
    found = from_text(a.certificate.attachments[ARGUMENT])
    assert isinstance(found, Composition)
    return found


@pytest.mark.parametrize(("eps", "units"), [(1e-3, 115), (1e-4, 360)])
def test_two_sines_as_two_tokens(eps: float, units: int, tmp_path: Path) -> None:
    a = gather("sin(x1) + sin(x2)", SINES, eps)
    assert a.certificate.proved
    assert a.certificate.method == "composition"
    assert a.model.config.layout == "tokens"
    assert a.size()["hidden_units"] <= units
    assert measured(a) <= a.certificate.upper
    a.save(tmp_path / "sines")
    assert check(tmp_path / "sines").ok


@pytest.mark.parametrize(("residual", "norm"), [(r, norm) for norm in ("none", "pre", "post") for r in (True, False)])
def test_an_equivariant_function_shares_its_units(residual: bool, norm: str, tmp_path: Path) -> None:
    a = gather(times_mean, CUBE, 1e-3, residual=residual, norm=norm)
    assert a.certificate.proved
    assert a.size()["hidden_units"] <= 64
    assert all(term.position is None for term in composition(a).terms)
    assert measured(a) <= a.certificate.upper
    a.save(tmp_path / "made")
    x = CUBE.sample(8)
    assert torch.equal(load(tmp_path / "made").model(x), a.model(x))
    assert check(tmp_path / "made").ok


@pytest.mark.parametrize("residual", [True, False])
def test_other_functions_are_gated_by_position(residual: bool, tmp_path: Path) -> None:
    a = gather("x1*x2; sin(x1-x2) + 1", Box([-1.0, 0.0], [1.0, 2.0]), 1e-3, residual=residual)
    assert a.certificate.proved
    assert {term.position for term in composition(a).terms} == {0, 1}
    assert measured(a) <= a.certificate.upper
    a.save(tmp_path / "gated")
    assert check(tmp_path / "gated").ok


def test_tokens_of_two_numbers() -> None:
    """Each token times the mean, as complex numbers: D = 6 inputs, proved on one box."""

    def product(x: torch.Tensor) -> torch.Tensor:
        m = x.mean(-2, keepdim=True)
        real, imaginary = x[..., 0] * m[..., 0] - x[..., 1] * m[..., 1], x[..., 0] * m[..., 1] + x[..., 1] * m[..., 0]
        return torch.stack([real, imaginary], -1)

    a = gather(product, Box(-torch.ones(3, 2), torch.ones(3, 2)), 1e-2)
    assert a.certificate.proved
    assert a.model.config.output_shape == (3, 2)
    assert a.size()["hidden_units"] <= 120
    assert measured(a) <= a.certificate.upper


def test_boxes_agree_with_the_composition() -> None:
    """Branch and bound on the whole layer, which knows nothing of terms, confirms the bound, refutes a smaller one."""
    a = gather("sin(x1) + x2**2", Box([0.0, -1.0], [2.0, 1.0]), 3e-2)
    assert certify(a.model, a.target, a.box, 1.05 * a.certificate.upper, max_boxes=50_000).proved
    assert certify(a.model, a.target, a.box, 0.5 * a.certificate.lower, max_boxes=1_000).status == "refuted"


def test_float32_layers() -> None:
    a = gather(times_mean, CUBE, 1e-2, dtype=torch.float32)
    assert a.certificate.proved
    assert a.certificate.arithmetic == "float32 execution"
    assert measured(a) <= a.certificate.upper


def test_pursuit_finds_the_directions_of_a_radial_function() -> None:
    """exp(-|x - y|^2) of two points of the plane depends on two differences; four directions do."""

    def values(points: np.ndarray) -> np.ndarray:
        x = points.reshape(-1, 2, 2)
        return np.exp(-((x[:, 0] - x[:, 1]) ** 2).sum(-1))

    box = Box([-0.5] * 4, [0.5] * 4)
    terms = pursue(values, box, 5e-3, max_units=1000).terms
    assert len(terms) <= 5
    points = box.sample(2000, seed=9)
    total = torch.zeros(2000, dtype=torch.float64)
    for term in terms:
        s = sum(float(weight) * points[:, variable] for variable, _, weight in term.inner)
        total = total + term.outer(s[:, None])
    assert float((total - torch.from_numpy(values(points.numpy()))).abs().max()) <= 7e-3


@pytest.mark.slow
def test_a_fitted_function_is_proved(tmp_path: Path) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(-((x - torch.roll(x, -1, -2)) ** 2).sum(-1))

    a = gather(kernel, Box(-0.5 * torch.ones(2, 2), 0.5 * torch.ones(2, 2)), 2e-2)
    assert a.certificate.proved
    assert a.certificate.boxes > 1
    assert measured(a) <= a.certificate.upper
    a.save(tmp_path / "kernel")
    assert check(tmp_path / "kernel").ok


def test_forgeries_are_rejected(tmp_path: Path) -> None:
    a = gather("x1*x2", Box([-1.0] * 2, [1.0] * 2), 1e-2)
    loose = {"lower": 0.0, "witness": None}
    replace(a, certificate=replace(a.certificate, upper=0.9 * a.certificate.upper, **loose)).save(tmp_path / "bound")
    assert not check(tmp_path / "bound").ok
    other = replace(a.certificate, function="x1*x2 + 0.01*x1", **loose)
    replace(a, certificate=other).save(tmp_path / "function")
    assert not check(tmp_path / "function").ok


@pytest.mark.parametrize(
    ("box", "options", "message"),
    [
        (Box([0.0] * 2, [1.0] * 2), {"norm": "batch"}, "norm"),
        (Box(torch.zeros(2, 2, 2), torch.ones(2, 2, 2)), {}, "shape"),
    ],
)
def test_bad_arguments_are_refused(box: Box, options: dict, message: str) -> None:
    with pytest.raises(OnelayerError, match=message):
        gather(lambda x: x.flatten(1).sum(-1), box, 1e-2, **options)


@pytest.mark.parametrize(("width", "single"), [(1e-310, False), (1e-40, True)])
def test_directions_whose_weights_overflow_are_refused(width: float, single: bool) -> None:
    with pytest.raises(OnelayerError, match="weights of its directions overflow"):
        pursue(lambda x: x[:, 0] / width + x[:, 1], Box([0.0, 0.0], [width, 1.0]), 1e-2, max_units=64, single=single)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_norm_is_refused_where_its_squares_overflow(norm: str) -> None:
    with pytest.raises(OnelayerError, match="a norm squares what it sees"):
        gather("x1/1e150 + sin(x2)", Box([0.0, 0.0], [1e150, 1.0]), 0.1, norm=norm, jobs=1)


@pytest.mark.parametrize("large", [1.0, 1.5e150])
def test_a_box_of_one_point_is_proved_without_a_stream(large: float, tmp_path: Path) -> None:
    point = [large, 1.6499500843582604]
    made = gather("log(2 + sin(x2))", Box(point, point), 0.3, residual=False, jobs=1)
    assert made.certificate.proved
    assert check(made.save(tmp_path)).ok
