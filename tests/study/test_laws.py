"""Laws: planted rates are found, and the confidence interval covers them as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from onelayer.errors import OnelayerError
from onelayer.study.laws import best_law, fit_law


def test_planted_laws_are_found() -> None:
    sizes = [2, 4, 8, 16, 32]
    power = fit_law(sizes, [3 * size**-1.5 for size in sizes], "power")
    assert power.rate == pytest.approx(1.5)
    assert power.scale == pytest.approx(3)
    exponential = best_law(sizes, [0.5 * np.exp(-0.3 * size) for size in sizes])
    assert exponential.kind == "exponential"
    assert exponential.rate == pytest.approx(0.3)
    assert exponential(10) == pytest.approx(0.5 * np.exp(-3))
    assert "exp(-0.3 size)" in str(exponential)


def test_confidence_interval_covers_the_true_rate() -> None:
    generator = np.random.default_rng(0)
    sizes = np.repeat([1, 2, 4, 8, 16], 3)
    hits = 0
    for _ in range(400):
        errors = 2.0 * sizes**-0.7 * np.exp(0.3 * generator.normal(size=len(sizes)))
        law = fit_law(sizes.tolist(), errors.tolist(), "power")
        hits += law.low <= 0.7 <= law.high
    assert 0.92 <= hits / 400 <= 0.98


def test_flat_errors_are_not_called_decreasing() -> None:
    generator = np.random.default_rng(1)
    sizes = np.repeat([1, 2, 4, 8], 3).tolist()
    assert not fit_law(sizes, np.exp(0.2 * generator.normal(size=12)).tolist()).decreasing


def test_too_few_points_are_refused() -> None:
    with pytest.raises(OnelayerError, match="at least three"):
        fit_law([1, 2], [0.1, 0.2])
    with pytest.raises(OnelayerError, match="kind"):
        fit_law([1, 2, 3], [0.1, 0.2, 0.3], "cubic")
