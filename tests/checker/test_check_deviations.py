"""What a normalisation passes on of the errors of its numbers: never less than it moves by, and little more."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from flint import arb

from onelayer.checker.deviations import Deviations
from onelayer.checker.precision import precise

EPS = 1e-5
ROOM = 1e-12  # of the arithmetic of this test


def normalised(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean()
    return centred / np.sqrt((centred**2).mean() + EPS)


def passed(x: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The bound at a point."""
    with precise():
        exact = [arb(v) for v in x.tolist()]
        mean = sum(exact, arb(0)) / len(x)
        given = [arb(e) for e in errors.tolist()]
        found = Deviations([v - mean for v in exact], arb(EPS), EPS).strayed(given).passed(given)
        return np.array([float(v) for v in found])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_no_error_moves_a_normalised_number_further(count: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(60):
        x = rng.normal(size=count) * 10 ** rng.uniform(-3, 2)
        errors = np.abs(x).max() * 10 ** rng.uniform(-5, 0) * rng.random(count)
        bound = passed(x, errors)
        for _ in range(12):
            strayed = x + errors * rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=count)
            assert (np.abs(normalised(strayed) - normalised(x)) <= bound * (1 + ROOM) + ROOM).all()


def test_small_errors_are_passed_on_by_the_derivative() -> None:
    """Two numbers far apart are -1 and 1 once they are normalised, whatever they err by."""
    assert (passed(np.array([3.0, -2.0]), np.array([1e-3, 1e-3])) < 1e-5).all()
    x, errors = np.array([1.0, 2.0, 4.0]), np.full(3, 1e-6)
    strayed = [normalised(x + errors * np.array(signs)) for signs in product((-1, 1), repeat=3)]
    moved = max(abs(y - normalised(x))[0] for y in strayed)
    assert moved <= passed(x, errors)[0] <= 1.001 * moved


def test_everything_that_numbers_may_be_is_held() -> None:
    """Numbers at the ends of their errors: less their mean they lie in the balls, and vary no less than is said."""
    rng = np.random.default_rng(7)
    with precise():
        for count in (2, 3, 4) * 20:
            x = [arb(v) for v in (rng.normal(size=count) * 10 ** rng.uniform(-2, 1)).tolist()]
            errors = (rng.random(count) ** 4 * 10 ** rng.uniform(-3, 1)).tolist()
            mean = sum(x, arb(0)) / count
            low = sum(((v - mean) ** 2 for v in x), arb(0)) / count + EPS
            given = [arb(e) for e in errors]
            held = Deviations([v - mean for v in x], low.lower(), EPS).strayed(given)
            for signs in product((-1, 1), repeat=count):
                strayed = [v + e * s for v, e, s in zip(x, given, signs, strict=True)]
                middle = sum(strayed, arb(0)) / count
                centred = [v - middle for v in strayed]
                assert all(ball.overlaps(c) for ball, c in zip(held.centred, centred, strict=True))
                assert not held.low > sum((c * c for c in centred), arb(0)) / count + EPS
