"""Every rule of a function of one variable against Arb: coefficients within their errors, bounds and tails above."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from flint import arb, arb_series
from torch import Tensor

from onelayer.ground import ball_precision
from onelayer.language.intervals import Interval
from onelayer.taylor import elementary, inverse, means, roots, special, variables
from onelayer.taylor.compose import compose
from onelayer.taylor.elementary import Elementary, integer_power, power
from onelayer.taylor.rounding import inflate

# The highest order, four degrees more in one variable, and one more of which a slope is made.
BITS, DEGREE = 3000, 16 + 4 + 1
REAL = (1e-9, 0.3, 0.77, 1.0, 1.9, 2.6, 3.9, 4.1, 7.3, 14.0, 29.0)
BOTH = (*REAL, *(-x for x in REAL), 0.0)
INSIDE = (1e-9, 0.3, -0.3, 0.77, -0.9, 0.999999, -0.999999)
AWAY = tuple(x for x in BOTH if x)
WIDE = (*REAL, 1e-30, 1e-3, 1e5, 3e20)

Series = Callable[[arb_series], arb_series]


def _powered(exponent: float) -> Series:
    return lambda x: (x.log() * arb(exponent)).exp()


def _logistic(x: arb_series) -> arb_series:
    return arb_series([1]) / (arb_series([1]) + (-x).exp())


def _tanh(x: arb_series) -> arb_series:
    return arb_series([2]) * _logistic(x + x) - arb_series([1])


def _cbrt(x: arb_series) -> arb_series:
    return _powered_third(x) if x[0] > 0 else -_powered_third(-x)


def _powered_third(x: arb_series) -> arb_series:
    return (x.log() / arb_series([3])).exp()


CASES: list[tuple[Elementary, Series, tuple[float, ...]]] = [
    (elementary.EXP, lambda x: x.exp(), (*BOTH, 600.0, -600.0)),
    (elementary.SIN, lambda x: x.sin(), (*BOTH, 1e5)),
    (elementary.COS, lambda x: x.cos(), (*BOTH, 1e5)),
    (elementary.LOG, lambda x: x.log(), WIDE),
    (elementary.SQRT, lambda x: x.sqrt(), WIDE),
    (elementary.RSQRT, lambda x: x.rsqrt(), WIDE),
    (power(1.7), _powered(1.7), WIDE),
    (power(-0.3), _powered(-0.3), WIDE),
    (power(4.5), _powered(4.5), WIDE),
    (integer_power(3), lambda x: x * x * x, (*BOTH, 1e5)),
    (integer_power(6), lambda x: (x * x * x) * (x * x * x), BOTH),
    (special.TAN, lambda x: x.tan(), (0.3, -0.3, 1.5, -1.5, 2.0, 7.3)),
    (special.TANH, _tanh, AWAY),
    (special.SIGMOID, _logistic, AWAY),
    (special.SOFTPLUS, lambda x: (arb_series([1]) + x.exp()).log(), AWAY),
    (special.ERF, lambda x: x.erf(), BOTH),
    (special._TANH_SLOPE, lambda x: arb_series([1]) - _tanh(x) * _tanh(x), AWAY),
    (special._SIGMOID_SLOPE, lambda x: _logistic(x) * (arb_series([1]) - _logistic(x)), AWAY),
    (inverse.ATAN, lambda x: x.atan(), (*BOTH, 1e5)),
    (inverse.ASIN, lambda x: x.asin(), INSIDE),
    (inverse.ACOS, lambda x: x.acos(), INSIDE),
    (roots.CBRT, _cbrt, (*WIDE, *(-x for x in WIDE))),
    (roots.LGAMMA, lambda x: x.lgamma(), (*REAL, 1e-3, 1e5)),
    (means.SINREL, lambda x: x.sin() / x, AWAY),
    (means.EXPREL, lambda x: (x.exp() - arb_series([1])) / x, AWAY),
]
NAMES = [rule.name for rule, _, _ in CASES]


def coefficients(series: Series, center: float, degree: int = DEGREE) -> list[arb]:
    """g_n at a point, n = 0 ... degree, in balls."""
    found = series(arb_series([arb(center), 1], prec=degree + 1))
    return [found[n] for n in range(degree + 1)]


def upper(bound: Any) -> arb:
    return arb(float(bound))


def column(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("rule", "series", "centers"), CASES, ids=NAMES)
def test_coefficients_are_within_their_errors(rule: Elementary, series: Series, centers: tuple[float, ...]) -> None:
    values, errors = rule.series(column(centers), DEGREE)
    decided = 0
    with ball_precision(BITS, DEGREE + 1):
        for at, center in enumerate(centers):
            for n, exact in enumerate(coefficients(series, center)):
                error = float(errors[n, at])
                if error < float("inf"):
                    decided += 1
                    assert abs(exact - upper(values[n, at])) <= upper(error), (center, n)
    assert decided > DEGREE * len(centers) / 2


@pytest.mark.parametrize(("rule", "series", "centers"), CASES, ids=NAMES)
@pytest.mark.parametrize("width", [0.0, 1e-3, 0.4])
def test_no_coefficient_on_an_interval_is_above_its_bound(
    rule: Elementary, series: Series, centers: tuple[float, ...], width: float
) -> None:
    low = column(centers) - width * column(centers).abs()
    high = column(centers) + width * column(centers).abs() / 2
    bounds = [rule.bound(low, high, n) for n in range(1, DEGREE + 1)]
    with ball_precision(BITS, DEGREE + 1):
        for at, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            for share in (0.0, 0.3, 1.0):
                point = min(max(a + share * (b - a), a), b)
                limits = [float(bound[at]) for bound in bounds]
                if not all(limit < float("inf") for limit in limits):
                    continue  # a pole or an end of the domain inside
                exact = coefficients(series, point)
                for n, limit in enumerate(limits, start=1):
                    assert abs(exact[n]) <= upper(limit), (point, n)


@pytest.mark.parametrize(("rule", "series", "centers"), CASES, ids=NAMES)
@pytest.mark.parametrize("width", [1e-3, 0.2, 0.7])
@pytest.mark.parametrize("degree", [1, 3, 7, 20])
def test_what_a_series_leaves_out_is_below_its_tail(
    rule: Elementary, series: Series, centers: tuple[float, ...], width: float, degree: int
) -> None:
    center = column(centers)
    size = width * torch.where(center == 0, 1.0, center.abs())
    values, errors = rule.series(center, degree)
    last = inflate(values[degree].abs() + errors[degree])
    tails = rule.tail(last, center, size, center - size, center + size, degree)
    with ball_precision(BITS, DEGREE + 1):
        for at, point in enumerate(centers):
            if not float(tails[at]) < float("inf"):
                continue
            known = coefficients(series, point, degree)
            for sign in (-1, 1):
                p = float(sign * size[at])
                moved = point + p  # rounded: p is what is added to the centre
                if moved == 0 and rule in (means.SINREL, means.EXPREL):
                    continue
                exact = coefficients(series, moved, 0)[0]
                step = arb(moved) - arb(point)
                left = exact - sum((g * step**n for n, g in enumerate(known)), arb(0))
                assert abs(left) <= upper(tails[at]) * (1 + arb(2) ** -40), (point, p)


def test_products_of_slopes_below_the_normal_range_count_with_their_weights() -> None:
    """2^1000 (x1 + ... + x8)^6 on [-a, a]^8: each product of six slopes vanishes, and there are 8^6 of them."""
    rule = integer_power(6)

    def series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, errors = rule.series(c, k)
        return values * 2.0**1000, errors

    def image(x: Interval) -> Interval:
        return -torch.ones_like(x[0]), torch.ones_like(x[1])

    steep = replace(rule, series=series, bound=lambda low, high, n: rule.bound(low, high, n) * 2.0**1000, image=image)
    reach = torch.full((1, 8), 2.0**-179.2, dtype=torch.float64)
    total = variables(-reach, reach, 6).sum(-1)
    found = compose(steep, total)
    largest = arb(float(total.total())) ** 6 * arb(2) ** 1000
    assert largest <= arb(float(found.magnitude()))
