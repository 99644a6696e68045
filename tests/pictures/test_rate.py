"""The fitted law of a sweep is the law that made the rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from onelayer.errors import OnelayerError
from onelayer.pictures.rate import draw_rate, fit_rate


def test_geometric_law() -> None:
    rate = fit_rate([(m, 3.0 * 2.0**-m) for m in (4, 8, 12, 20)])
    assert (rate.root, rate.scale, math.exp(rate.speed)) == (1, pytest.approx(3.0), pytest.approx(2.0))
    assert rate(10) == pytest.approx(3.0 * 2.0**-10)
    assert str(rate) == "3 * 2^-tokens"


def test_algebraic_law() -> None:
    rate = fit_rate([(m, 5.0 / m**2) for m in (4, 8, 16, 64)])
    assert (rate.root, rate.speed, rate.spread) == (0, pytest.approx(2.0), pytest.approx(1.0))
    assert str(rate) == "5 tokens^-2.00"


def test_geometric_in_tokens_per_axis() -> None:
    rows = [(m * m, 3.0**-m) for m in (3, 5, 8, 12)]
    assert fit_rate(rows, axes=2).root == 2
    assert fit_rate(rows, axes=2).spread < fit_rate(rows).spread


def test_too_few_rows() -> None:
    for rows in ([], [(3, 0.1)], [(3, 0.1), (3, 0.2)], [(3, 0.1), (5, 0.0)], [(3, 0.1), (5, math.inf)]):
        with pytest.raises(OnelayerError, match="at least two rows"):
            fit_rate(rows)


def test_picture(is_picture: Callable[[Path], bool], tmp_path: Path) -> None:
    series = {"smooth": [(4, 1e-2), (8, 1e-4), (12, 1e-6)], "kinked": [(4, 1e-1), (8, 5e-2), (16, 2.5e-2)]}
    assert is_picture(draw_rate(series, tmp_path / "rate.png"))
