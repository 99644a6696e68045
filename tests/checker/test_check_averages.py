"""Balls that hold averages: by what is known of the weights, and beside what an execution strays."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

from onelayer.checker.arithmetic import constant
from onelayer.checker.attention import Matrix, Vector
from onelayer.checker.averages import by_weight, hulls_of, unless_farther


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
