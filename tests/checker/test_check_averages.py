"""Balls that hold averages: by what is known of the weights, and beside what an execution strays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from flint import arb
from stated_folders import claimed

from onelayer.box import Box
from onelayer.checker.arithmetic import constant, coordinate
from onelayer.checker.attention import Matrix, Vector
from onelayer.checker.averages import by_weight, hulls_of, unless_farther
from onelayer.checker.check import check
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.precision import precise
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.layer.file import save_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer


def held(values: list[float], upper: list[float]) -> arb:
    table = Matrix(np.array(values)[:, None])
    (ball,) = by_weight([], table, [arb(w) for w in upper], hulls_of([], table, 1))
    return ball


def test_a_token_that_hardly_weighs_anything_does_not_count() -> None:
    ball = held([0.5, 0.0, 97.0], [1.0, 1.0, 1e-9])
    assert float(ball.upper()) < 0.5 + 1e-6
    assert float(ball.lower()) <= 0


@pytest.mark.parametrize("seed", range(20))
def test_averages_lie_in_their_ball(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=5) * 10.0 ** rng.integers(-3, 4, 5)
    weights = rng.dirichlet(np.full(5, 0.3), 50)  # (50, 5), many of them close to a corner
    ball = held(values.tolist(), weights.max(0).tolist())
    for row in weights:
        # Of the rounded weights the sum is not one: the average is taken of exact quotients.
        total = sum((arb(w) for w in row), arb(0))
        assert ball.overlaps(sum((arb(w) * arb(v) for w, v in zip(row, values, strict=True)), arb(0)) / total)


def test_what_has_no_value_has_no_ball() -> None:
    own = [Vector([constant(arb("nan"), 1)], [arb(0)]), Vector([constant(arb(1), 1)], [arb(0)])]
    (ball,) = by_weight(own, None, [arb(0), arb(1)], hulls_of(own, None, 1))
    assert not ball.is_finite()
    assert not by_weight(own[1:], None, [arb("nan")], [arb("nan")])[0].is_finite()


def test_an_execution_lies_beside_its_values() -> None:
    hull = arb(0, 10)
    item, error = unless_farther(constant(arb(0, 10), 1), arb(20), hull, arb(20.5))
    assert float(error) == pytest.approx(0.5, abs=1e-6)
    assert item.range().contains(hull)
    # A small error is kept as it is, and so is what follows the box.
    assert unless_farther(constant(arb(0, 10), 1), arb(1), hull, arb(20.5))[1] == 1


def cancelling() -> OneLayerTransformer:
    """T = 1/2: on a tent of width 2^-11 the query is a sum of products that cancel, and rounding is all that is left.

    T as executed in float32 is any number from 0 to 1 there: weights 10000001, 6000000 and -16000001, times 16.
    """

    def row(*numbers: float) -> torch.Tensor:
        return torch.tensor([numbers], dtype=torch.float32)

    width = 2.0**-12
    weights = {"ramp_start": row(0.73519 - width, 0.73519), "ramp_slope": row(1 / width, 1 / width)}
    weights |= {"W_E": torch.cat([row(1, 1, 1), -row(1, 1, 1)]), "W_Q": 16 * row(10000001, 6000000, -16000001).T}
    weights |= {"W_O": row(1, 0, 0), "W_R": row(1, 0, 0).T, "b_E": row(0, 0, 0)[0], "b_O": row(0, 0, 0)[0]}
    weights |= {"b_Q": row(0)[0], "b_R": row(0)[0]}
    memory = PlainMemory(row(1, 0).T, row(1, 0).T)
    model = OneLayerTransformer.packed(
        (1,), (), [memory], d_model=3, residual=False, hidden=0, ramps=2, embedding="piecewise", weights=weights
    )
    return model.float().requires_grad_(False)


def test_an_error_beside_the_real_layer_is_that_of_the_real_layer(tmp_path: Path) -> None:
    """Boxes in floats enclose the real layer and add errors: of another number in the ball of all values they lied."""
    model = cancelling()
    place = torch.linspace(0.735, 0.7354, 1001, dtype=torch.float32)[:, None]
    assert float((model(place) - 0.5).abs().max()) > 0.49
    box = Box(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    assert not check(claimed(tmp_path / "lie", model, "0.5+0*x1", box, [255], upper=1e-2)).ok
    # And with that error it is accepted.
    assert check(claimed(tmp_path / "true", model, "0.5+0*x1", box, [255], upper=0.5001)).ok


def test_a_layer_says_how_far_executions_stray_from_the_real_one(tmp_path: Path) -> None:
    save_model(cancelling(), tmp_path)
    stored = read_model(tmp_path)
    with precise():
        layer = Layer(stored, Execution.of("float32 execution", stored, ((0.0,), (1.0,))))
        x = [coordinate(0, 0.735, 0.7354, 1)]
        assert float(layer.strayed(x)[0]) > 0.5
        found = layer(x, Kinks())  # a number of the ball of all values is near
        assert float(found.errors[0]) < 1e-5
        assert found.items[0].range().contains(arb(0.5, 0.5))
