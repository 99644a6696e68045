"""Black boxes with their gradient: what is assumed, that it suffices, and that values which contradict it are shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.observer import Observer
from onelayer.proof.trusted import trusted
from onelayer.recording.curvature import Curvature, as_curvature
from onelayer.recording.target import as_target

SQUARE = ol.Box(a=(0, 2), b=(-1, 1))


def wave(x: Any) -> float:
    return float(np.sin(x[0]) * np.cos(x[1]))


def slopes(x: Any) -> Any:
    return np.array([np.cos(x[0]) * np.cos(x[1]), -np.sin(x[0]) * np.sin(x[1])])


def test_a_gradient_proves_with_few_values_and_says_on_what():
    f = ol.BlackBox(wave, gradient=slopes, curvature={"a": 1, "b": 1})
    made = ol.approximate(f, SQUARE, 0.05)
    certificate = made.certificate
    assert certificate.proved
    assert certificate.method == "conditional on Lipschitz constant of the gradient"
    assert "conditional on the given gradient" in str(certificate)
    assert any("|g_i(x) - g_i(y)| <= sum_j M_ij |x_j - y_j| with M = (1.0" in text for text in certificate.assumptions)
    plain = ol.certify(made.model, ol.BlackBox(wave, 1.5), SQUARE, 0.05, max_boxes=certificate.boxes * 4)
    assert plain.status == "undecided"
    x = SQUARE.sample(2000)
    error = (made.model(x) - torch.sin(x[:, 0]) * torch.cos(x[:, 1])).abs().max()
    assert float(error) <= certificate.upper


def test_it_is_saved_and_never_accepted_without_f(tmp_path):
    f = ol.BlackBox(lambda x: float(x[0] ** 2), gradient=lambda x: 2 * x, curvature=2)
    ol.approximate(f, ol.Box([0], [1]), 0.1).save(tmp_path / "square")
    assert ol.load(tmp_path / "square").certificate.proved
    with pytest.raises(OnelayerError, match="function"):
        ol.check(tmp_path / "square")
    assert ol.check(tmp_path / "square", f="x**2").ok


def test_an_estimated_curvature_proves_nothing():
    made = ol.approximate(ol.BlackBox(wave, gradient=slopes, curvature="estimate"), SQUARE, 0.2)
    assert made.certificate.status == "estimated"
    assert any("estimated from 192 gradients" in text for text in made.certificate.assumptions)


def exact_gap(matrix: list[list[int]], x: list[float], c: list[float]) -> Fraction:
    """f(x) - f(c) - g(c) . (x - c) of f = x A x / 2, without rounding."""
    step = [Fraction(a) - Fraction(b) for a, b in zip(x, c, strict=True)]
    pairs = [(i, j) for i in range(len(x)) for j in range(len(x))]
    return sum((matrix[i][j] * step[i] * step[j] / 2 for i, j in pairs), Fraction(0))


@pytest.mark.parametrize("form", ["matrix", "number"])
def test_the_bound_holds_where_it_is_attained(form):
    """Quadratic forms leave their tangents exactly as far as is allowed, at the corners of every box."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix = rng.integers(0, 9, (3, 3))
        matrix = matrix + matrix.T
        curvature = matrix.tolist() if form == "matrix" else int(matrix.sum())
        low = rng.normal(size=(8, 3)) * 10.0 ** rng.integers(-5, 6, (8, 1))
        high = low + rng.random((8, 3)) * 10.0 ** rng.integers(-5, 6, (8, 1))
        box = ol.Box(low.min(0), high.max(0))
        f = ol.BlackBox(
            lambda x, a=matrix: float(x @ a @ x / 2), gradient=lambda x, a=matrix: a @ x, curvature=curvature
        )
        bounds = trusted(as_target(f, box), box, torch.tensor(low), torch.tensor(high), 2, Observer())[1].tolist()
        for a, b, bound in zip(low.tolist(), high.tolist(), bounds, strict=True):
            centre = torch.tensor(a, dtype=torch.float64) / 2 + torch.tensor(b, dtype=torch.float64) / 2
            for corner in (a, b):
                assert exact_gap(matrix.tolist(), corner, centre.tolist()) <= Fraction(bound)


def test_a_planted_fault_is_caught(monkeypatch):
    """Half of the half would call a parabola proved where it is not."""
    over = Curvature.over
    model = lambda x: 0 * x[..., 0]  # noqa: E731
    f = ol.BlackBox(lambda x: float(x[0] ** 2), gradient=lambda x: 2 * x, curvature=2)
    honest = ol.certify(model, f, ol.Box([-1], [1]), gap=0.5)
    assert honest.upper >= 1
    monkeypatch.setattr(Curvature, "over", lambda self, reach: over(self, reach) / 4)
    with pytest.raises(OnelayerError, match="away from its tangent"):
        ol.certify(model, f, ol.Box([-1], [1]), gap=0.5)


@pytest.mark.parametrize(
    ("gradient", "curvature", "says"),
    [
        (lambda x: -slopes(x), 5.0, r"away from its tangent at \(.*\), where half the declared curvature allows"),
        (slopes, 0.1, "curvature or gradient is wrong: at"),
        (slopes, [0.01, 1], "curvature or gradient is wrong: at"),
        (lambda x: slopes(x) + 1e-9 * (x > 0.5), 100.0, None),
        (lambda x: slopes(x)[:1], 1.0, "one slope per coordinate"),
        (lambda x: np.full(2, np.nan), 1.0, "the gradient of wave is not finite at x ="),
        (slopes, [1, 2, 3], "2 numbers or a 2 x 2 matrix"),
        (slopes, {"a": 1}, "curvature by name needs a, b"),
        (slopes, [-1, 1], "finite number >= 0"),
        (slopes, [[1, float("inf")], [1, 1]], "finite number >= 0"),
        (slopes, "steep", "curvature must be a number"),
    ],
)
def test_what_contradicts_it_is_shown(gradient: Callable[[Any], Any], curvature: Any, says: str | None):
    f = ol.BlackBox(wave, gradient=gradient, curvature=curvature)
    if says is None:
        as_target(f, SQUARE)
        return
    with pytest.raises(OnelayerError) as caught:
        as_target(f, SQUARE)
    assert re.search(says, str(caught.value))
    assert "\n" not in str(caught.value)


def test_gradients_that_change_too_fast_are_shown():
    """Values alone would allow it: a kink between the evaluated points is seen in the gradients."""
    f = ol.BlackBox(lambda x: 0.0, gradient=lambda x: np.sign(x - 0.3) * 1e-3, curvature=1e-2)
    with pytest.raises(OnelayerError, match="gradient"):
        as_target(f, ol.Box([0], [1]))


@pytest.mark.parametrize(
    "given", [{}, {"gradient": slopes}, {"curvature": 1}, {"lipschitz": 1, "gradient": slopes, "curvature": 1}]
)
def test_one_assumption_and_whole(given: dict[str, Any]):
    with pytest.raises(OnelayerError, match="gradient="):
        ol.BlackBox(wave, **given)


def test_several_outputs_and_the_cache(tmp_path):
    def both(x: Any) -> Any:
        return [np.sin(x[0]), x[0] ** 2]

    def steep(x: Any) -> Any:
        return [[np.cos(x[0])], [2 * x[0]]]

    line = ol.Box([0], [1])
    first = ol.approximate(ol.BlackBox(both, gradient=steep, curvature=2, cache=tmp_path / "c"), line, 0.05)
    again = ol.BlackBox(both, gradient=steep, curvature=2, cache=tmp_path / "c", max_evaluations=0)
    assert ol.approximate(again, line, 0.05).certificate.upper == first.certificate.upper
    assert first.certificate.proved


def test_constants_are_read_in_every_form():
    def read(given: object) -> Curvature:
        return as_curvature(given, SQUARE, lambda x: x)

    assert read(3).constants == ((3.0,),)
    assert read([4, 9]) == read({"b": 9, "a": 4})
    assert read([4, 9]).constants[0][1] >= 6
    assert read([[1, 2], [3, 4]]).constants == ((1.0, 2.0), (3.0, 4.0))
