"""Errors of products of inner functions: rounded up, whatever vanishes on the way to a factor that is large."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce

import mpmath
import numpy as np
import pytest
import torch

from onelayer import Box, approximate
from onelayer.lemmas.looked import _deviation, _product_error

# The peak is where no sample is, and the two small factors vanish before they meet the large one.
PLACE = 0.3141592
PEAK = f"(1 - tanh(1e8*(x1 - {PLACE}))**2)*exp(x1 - 376)*sin(x2 + 0.5)*exp(x2 - 376)*exp(383 + 1e-6*x3)*cos(1e-6*x3)"


def test_small_factors_do_not_vanish_before_they_meet_a_large_one() -> None:
    result = approximate(PEAK, Box([0.0] * 3, [1.0] * 3), eps=1e-160, max_seconds=20)
    with mpmath.workdps(50):
        c, d = mpmath.mpf(PLACE), mpmath.mpf(1e-6) / 2
        first = mpmath.exp(c - 376) * mpmath.sin(1.5) * mpmath.exp(-375)
        truth = first * mpmath.exp(383 + d) * mpmath.cos(d)
        value = float(result.model(torch.tensor([PLACE, 1.0, 0.5], dtype=torch.float64)))
        assert abs(value - truth) <= result.certificate.upper


@pytest.mark.parametrize("seed", range(4))
def test_the_error_of_a_product_is_rounded_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(200):
        count = int(rng.integers(1, 6))
        sizes, errors = (np.ldexp(rng.random(count), rng.integers(-1074, 1023, count)).tolist() for _ in range(2))
        exact = [Fraction(m) for m in sizes]
        strayed = [m + Fraction(d) for m, d in zip(exact, errors, strict=True)]
        wanted = math.prod(strayed) - math.prod(exact)
        found = _product_error(sizes, errors)
        most = wanted * (1 + Fraction(1, 2**52)) + Fraction(2) ** -1074
        assert found == math.inf or wanted <= Fraction(found) <= most


def test_what_is_no_number_bounds_no_product() -> None:
    assert _product_error([1.0, math.inf], [0.0, 0.0]) == math.inf
    assert _product_error([1.0, 1.0], [math.nan, 0.0]) == math.inf


@pytest.mark.parametrize("seed", range(4))
@np.errstate(all="ignore")
def test_the_deviation_from_a_product_is_rounded_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(100):
        axes = int(rng.integers(1, 5))
        along = [np.ldexp(rng.standard_normal(2), rng.integers(-1074, 1000, 2)) for _ in range(axes)]
        values = reduce(np.multiply.outer, along) * rng.choice([1.0, 0.0, 1 + 2.0**-40])
        wanted = max(
            abs(Fraction(value) - math.prod(Fraction(column[m]) for column, m in zip(along, place, strict=True)))
            if math.isfinite(value)
            else Fraction(0)
            for place, value in np.ndenumerate(values)
        )
        found = _deviation(values, along)
        assert not found < math.inf or wanted <= Fraction(found)
