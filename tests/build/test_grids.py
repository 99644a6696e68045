"""Tensor heads and sparse combinations reach their tolerance on points they were not solved at."""

from __future__ import annotations

import numpy as np
import pytest

from onelayer.build.lookup.families import Array
from onelayer.build.lookup.sparse import SparseFitter
from onelayer.build.lookup.tensor import TensorFit, TensorFitter, arcsine_points

UNIT = 2.0**-53


def coupled(points: Array) -> Array:
    """Weakly coupled in six variables."""
    x = points
    first = np.exp(0.5 * x[:, 0]) * (2 + x[:, 1]) / (3 + x[:, 2])
    return (first + 0.1 * np.sin(x[:, 3] * x[:, 4]) + 0.2 * x[:, 5] ** 3)[:, None]


def plane(points: Array) -> Array:
    return np.stack([np.exp(points[:, 0] * points[:, 1]), np.cos(3 * points[:, 0] + points[:, 1])], -1)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_tensor_head_meets_its_tolerance_on_fresh_points(tolerance: float) -> None:
    fit = TensorFitter(plane, 2, tolerance, unit=UNIT).fit(tolerance, 5000)
    assert isinstance(fit, TensorFit)
    fresh = arcsine_points(2, 3000, seed=99)
    assert np.abs(fit(fresh) - plane(fresh)).max() <= 1.3 * tolerance
    assert fit.values.shape == (*[len(keys) for keys in fit.keys], 2)


def test_tensor_head_is_anisotropic() -> None:
    def slanted(p: Array) -> Array:
        return np.exp(2 * np.sin(3 * p[:, :1])) * (1 + 0.1 * p[:, 1:])

    fit = TensorFitter(slanted, 2, 1e-6, unit=UNIT).fit(1e-6, 5000)
    assert fit is not None
    assert len(fit.keys[0]) > 2 * len(fit.keys[1])


def test_sparse_combination_beats_one_tensor_head_when_coupling_is_weak() -> None:
    fitter = TensorFitter(coupled, 6, 1e-4, unit=UNIT)
    heads = SparseFitter(fitter).fit(1e-4, 5000)
    assert heads is not None
    fresh = arcsine_points(6, 4000, seed=99)
    assert np.abs(sum(head(fresh) for head in heads) - coupled(fresh)).max() <= 2e-4
    assert sum(head.tokens for head in heads) < fitter.predicted(1e-4) / 4


def test_no_fit_within_too_few_tokens() -> None:
    assert TensorFitter(plane, 2, 1e-9, unit=UNIT).fit(1e-9, 4) is None
    assert SparseFitter(TensorFitter(coupled, 6, 1e-2, unit=UNIT)).fit(1e-9, 10) is None


def test_large_heads_do_not_swing_between_their_nodes() -> None:
    """Kinks along lines of the grid: many keys are solved on more nodes than few keys are searched on."""

    def waves(points: Array) -> Array:
        return np.abs(np.sin(3 * points[:, :1]) * np.cos(3 * points[:, 1:]))

    fitter = TensorFitter(waves, 2, 0.02, unit=1e-16)
    for size in (40, 64):
        fit = fitter.solve((size, size))
        assert fit is not None
        assert fit.error < 0.02


def test_levelled_keys_save_a_token() -> None:
    """1/p on [1, 5] with three tokens: least squares misses 0.09 % of the largest value, level errors do not."""

    def ratio(p: Array) -> Array:
        return (3 + 2 * p[:, :1]) * (3 + 2 * p[:, 1:2]) / (3 + 2 * p[:, 2:])

    tolerance = 0.0009 * 25
    fitter = TensorFitter(ratio, 3, tolerance, unit=UNIT)
    plain = fitter.solve((2, 2, 3))
    assert plain is not None
    assert plain.error > tolerance
    start = fitter.solve((2, 2, 4))
    assert start is not None
    short = fitter.shortened(start, tolerance)
    assert [len(keys) for keys in short.keys] == [2, 2, 3]
    fresh = arcsine_points(3, 3000, seed=99)
    assert np.abs(short(fresh) - ratio(fresh)).max() <= tolerance
