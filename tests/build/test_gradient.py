"""Layers whose slopes are proved close as well: built together, saved, loaded and checked together."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onelayer.box import Box
from onelayer.build.lookup.dense import basis, basis_slopes
from onelayer.checker.check import check
from onelayer.cli.proof import check_command
from onelayer.conductor import approximate
from onelayer.errors import FileError, OnelayerError
from onelayer.layer.lookup import AxisKeys, LookupHead
from onelayer.portfolio.slopes import _closer
from onelayer.proof.claims import gradient_error
from onelayer.result import GRADIENT, Approximation, load

WAVE, LINE = "sin(3*x)*exp(-x)", Box([-1.0], [1.0])


@pytest.fixture(scope="module")
def made() -> Approximation:
    return approximate(WAVE, LINE, 1e-3, gradient_eps=2e-3, jobs=1)


def test_both_claims_are_proved_and_true(made: Approximation) -> None:
    assert made.certificate.proved
    assert made.gradient is not None
    assert made.gradient.proved
    assert made.gradient.eps == 2e-3
    x = torch.cat([LINE.sample(2000), LINE.corners()]).requires_grad_(True)
    slope = torch.autograd.grad(made.model(x).sum(), x)[0]
    exact = torch.exp(-x) * (3 * torch.cos(3 * x) - torch.sin(3 * x))
    assert float((slope - exact).detach().abs().max()) <= made.gradient.upper


def test_saved_loaded_and_checked_together(made: Approximation, tmp_path: Path) -> None:
    made.save(tmp_path)
    again = load(tmp_path)
    assert made.gradient is not None
    assert again.gradient is not None
    assert made.gradient.upper <= again.gradient.upper <= 1.001 * made.gradient.upper  # room for the checker
    for folder in (tmp_path, tmp_path / GRADIENT):
        judged = check(folder, all=True)
        assert judged.ok, judged


def test_a_claim_about_other_slopes_is_refused(made: Approximation, tmp_path: Path) -> None:
    made.save(tmp_path)
    other = approximate(WAVE, LINE, 1e-1, jobs=1)
    gradient_error(other.model, WAVE, LINE).save(tmp_path / GRADIENT)
    with pytest.raises(FileError, match="does not speak of the slopes of this layer"):
        load(tmp_path)
    near = copy.deepcopy(made.model)
    with torch.no_grad():
        near.W_R.mul_(1 + 2.0**-50)  # no sample of points would tell
    gradient_error(near, WAVE, LINE, 2e-3).save(tmp_path / GRADIENT)
    with pytest.raises(FileError, match="does not speak of the slopes of this layer"):
        load(tmp_path)
    with pytest.raises(FileError, match="does not speak of the slopes of this layer"):
        check_command(tmp_path)
    with pytest.raises(OnelayerError, match="other weights"):
        Approximation(other.model, other.certificate, other.target, gradient=made.gradient)


def test_a_planted_bound_of_the_slopes_is_rejected(made: Approximation, tmp_path: Path) -> None:
    assert made.gradient is not None
    forged = replace(made.gradient, upper=made.gradient.lower / 2, lower=0.0, witness=None)
    forged.save(tmp_path)
    assert not check(tmp_path, all=True).ok


def test_the_command_checks_both_claims(
    made: Approximation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last word is about the slopes; a planted bound of theirs is rejected though the values are as claimed."""
    folder = made.save(tmp_path / "wave")
    assert check_command(folder, as_json=False) == 0
    assert "dT/dx" in capsys.readouterr().out
    assert made.gradient is not None
    planted = replace(made.gradient, upper=made.gradient.lower / 2, lower=0.0)
    replace(made, gradient=planted).save(tmp_path / "planted")
    assert check_command(tmp_path / "planted", as_json=False) == 1


def test_a_layer_without_slopes_leaves_none_behind(made: Approximation, tmp_path: Path) -> None:
    made.save(tmp_path)
    replace(made, gradient=None).save(tmp_path)
    assert load(tmp_path).gradient is None


def test_slopes_of_weights() -> None:
    axes = [AxisKeys(0, torch.randn(4).double(), torch.randn(4).double())]
    axes.append(AxisKeys(torch.tensor([0.5, 2.0]).double(), torch.randn(3).double(), torch.randn(3).double()))
    head = LookupHead(axes, torch.zeros(4, 3, 1).double(), 1.5)
    x, step = torch.rand(5, 2).double(), 1e-6
    for d in range(2):
        ahead, behind = x.clone(), x.clone()
        ahead[:, d] += step
        behind[:, d] -= step
        estimated = (basis(head, ahead) - basis(head, behind)) / (2 * step)
        assert abs(basis_slopes(head, x)[d] - estimated).max() < 1e-7


@pytest.mark.slow
def test_sums_of_sines_need_no_more_tokens_for_their_slopes() -> None:
    box = Box([0.0, 0.0], [2 * math.pi] * 2)
    plain = approximate("sin(x1) + sin(x2)", box, 1e-6, jobs=1)
    both = approximate("sin(x1) + sin(x2)", box, 1e-6, gradient_eps=1e-6, jobs=1)
    assert both.gradient is not None
    assert both.gradient.proved
    assert both.size()["tokens"] <= 1.5 * plain.size()["tokens"]


@pytest.mark.parametrize(
    ("f", "options", "says"),
    [
        ("abs(x)", {}, "has kinks in the domain"),
        (WAVE, {"dtype": "int8"}, "gradient_eps is for layers of float64 or float32"),
        (WAVE, {"layout": "tokens"}, "gradient_eps is for layers of float64 or float32"),
    ],
)
def test_what_has_no_slopes_is_refused(f: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(OnelayerError, match=says):
        approximate(f, LINE, 1e-2, gradient_eps=1e-2, jobs=1, **options)  # type: ignore[arg-type]


def test_gradient_eps_is_a_number_above_zero() -> None:
    with pytest.raises(OnelayerError, match="gradient_eps must be"):
        approximate(WAVE, LINE, 1e-2, gradient_eps=-1.0)


@pytest.mark.parametrize("text", ["abs(x1)**0.5", "x1**2; 1e150*abs(x1)**0.5"])
def test_a_point_without_a_slope_is_named(text: str) -> None:
    with pytest.raises(OnelayerError, match=r"f has no finite slope at x = \(0\)"):
        approximate(text, Box([0.0], [1.0]), 0.3, gradient_eps=1.0, jobs=1)


def test_slopes_that_overflow_a_fit_are_refused() -> None:
    with pytest.raises(OnelayerError, match="a fit of f overflows"):
        approximate(
            "1e-300*log(3 + x1/1e-30)", Box([7e-31], [1e-30]), 1e-303, gradient_eps=1.5e-308, layout="packed", jobs=1
        )


def test_a_fit_that_overflowed_is_made_closer_all_the_same() -> None:
    assert [_closer(missed) for missed in (1.0, 2.0, 1e9, math.inf, math.nan)] == [1.5, 2.0, 8.0, 8.0, 8.0]
