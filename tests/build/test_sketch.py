"""A sketch needs few values, finds sums by their mixed second differences, and gives up on what is not smooth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import onelayer as ol
from onelayer.build.lookup.sketch import MOST, Sketch, sketch
from onelayer.language.formula import parse
from onelayer.recording.target import looked_at


class Counted:
    """A flat function that counts its points."""

    def __init__(self, text: str, dim: int) -> None:
        self.formula, self.points = parse(text, dim), 0

    def __call__(self, x: Tensor) -> Tensor:
        self.points += len(x)
        return self.formula(x).reshape(len(x), -1)


SUM = "sin(3*x1) + exp(x2) + x3**2 + cos(x4) + x5**3"


@pytest.mark.parametrize(
    ("text", "dim", "most"),
    [
        (SUM, 5, 120),
        ("sin(2*pi*x1)*x2", 2, 60),
        ("exp(x1*x2)*cos(x3); x1", 3, 300),
        ("x1 + 2*x2 - x3 + x4 - x5 + x6", 6, 60),
        ("1/(1 + 25*(2*x1 - 1)**2)", 1, 70),
        ("3", 2, 4),
    ],
)
def test_it_is_close_from_few_values(text: str, dim: int, most: int) -> None:
    box = ol.Box([0.0] * dim, [1.0] * dim)
    tested, f = looked_at(box), Counted(text, dim)
    made = sketch(f, box, 8e-3, tested)
    assert made is not None
    assert f.points - len(tested) <= most
    x = box.sample(2000, seed=5)
    assert float((made(x) - f(x)).abs().max()) < 8e-3


def test_a_sum_grows_along_its_axes_alone() -> None:
    box = ol.Box([0.0] * 5, [1.0] * 5)
    made = sketch(Counted(SUM, 5), box, 1e-4, looked_at(box))
    assert isinstance(made, Sketch)
    assert max(max(level) for level in made.levels) >= 3
    assert all(max(level) <= max(1, sum(level) - 1) for level in made.levels if sum(n > 0 for n in level) > 1)


def test_kinks_are_left_to_the_fit_itself() -> None:
    box = ol.Box([0.0] * 2, [1.0] * 2)
    f = Counted("abs(x1 - x2/3 - 0.3)", 2)
    assert sketch(f, box, 1e-3, looked_at(box)) is None
    assert f.points < 2 * MOST


def test_a_flat_side_and_many_axes_have_none() -> None:
    for box in (ol.Box([0.0, 1.0], [1.0, 1.0]), ol.Box([0.0] * 9, [1.0] * 9)):
        assert sketch(Counted("x1", box.dim), box, 1e-3, looked_at(box)) is None


def test_a_black_box_is_not_asked_a_hundred_thousand_times() -> None:
    f = ol.BlackBox(
        lambda x: float(np.sin(x[0]) * np.cos(x[1])),
        gradient=lambda x: np.array([np.cos(x[0]) * np.cos(x[1]), -np.sin(x[0]) * np.sin(x[1])]),
        curvature=[1, 1],
    )
    made = ol.approximate(f, ol.Box(a=(0, 2), b=(-1, 1)), 0.05)
    assert made.certificate.proved
    assert f.evaluations < 2000
    assert made.target.function is not None
    x = made.box.sample(500)
    error = (made.model(x) - torch.sin(x[:, 0]) * torch.cos(x[:, 1])).abs().max()
    assert float(error) <= made.certificate.upper
