"""Elementary functions whose Taylor coefficients need a recurrence: tan, tanh, sigmoid, softplus, erf."""

from __future__ import annotations

from functools import cache
from math import factorial, pi, sqrt, tan
from typing import Any

import torch
from torch import Tensor

from onelayer.float64 import TINY
from onelayer.language.intervals import Image, Interval, between_poles, increasing, of_one
from onelayer.language.operations import OPERATIONS
from onelayer.taylor import chords
from onelayer.taylor.compose import compose
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.elementary import Elementary, largest_size, smallest_size
from onelayer.taylor.rounding import ELEMENTARY, UNIT, inflate


def _tan_rows(t: Tensor, k: int) -> list[Tensor]:
    """Coefficients of tan at a point where tan = t >= 0: (n + 1) g_{n+1} = [n = 0] + sum g_i g_{n-i}; all >= 0."""
    rows = [t]
    for n in range(k):
        products = (rows[i] * rows[n - i] for i in range(n + 1))
        one = torch.ones_like(t) * (n == 0)
        rows.append(sum(products, one) / (n + 1))
    return rows


def _tan_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    t = torch.tan(c)
    sign = torch.where(t < 0, -torch.ones_like(t), 1.0)
    # tan is odd, so at -c the coefficients of even degree change their sign; for t >= 0 none of them cancels.
    rows = _tan_rows(t.abs(), k)
    turned = [row * (sign if n % 2 == 0 else 1.0) for n, row in enumerate(rows)]
    values = torch.stack(turned)
    # Row n is a polynomial of degree n + 1 in t, which errs by an elementary function's error.
    errors = [row * (2 * (n + 1) * (ELEMENTARY + (n + 6) * UNIT)) for n, row in enumerate(rows)]
    return values, inflate(torch.stack(errors))


def _tan_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """The coefficients are polynomials in tan with nonnegative coefficients: largest where |tan| is."""
    left = torch.tan(lo).abs()
    right = torch.tan(hi).abs()
    t = inflate(torch.maximum(left, right))
    last = _tan_rows(t, n)[n]
    return torch.where(between_poles(lo, hi), inflate(last), torch.inf)


@cache
def _tanh_polynomial(n: int) -> tuple[float, ...]:
    """P_n with tanh^(n) / n! = (1 - t^2) P_n(t), t = tanh x: P_1 = 1, (n + 1) P_{n+1} = ((1 - t^2) P_n)'."""
    if n == 1:
        return (1.0,)
    before = _tanh_polynomial(n - 1)
    product = [0.0] * (len(before) + 2)
    for i, value in enumerate(before):
        product[i] += value
        product[i + 2] -= value
    derivative = [i * value / n for i, value in enumerate(product)]
    return tuple(derivative[1:])


def _tanh_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    t = torch.tanh(c)
    return _with_slope_factor(t, t, 1 / torch.cosh(c) ** 2, k, 1.0)


def _with_slope_factor(first: Tensor, t: Tensor, s: Tensor, k: int, step: float) -> tuple[Tensor, Tensor]:
    """Rows first, then s P_n(t) step^n: s = 1 - t^2 comes without cancellation from cosh."""
    rows = [first]
    errors = [first.abs() * ELEMENTARY]
    for n in range(1, k + 1):
        value = torch.zeros_like(t)
        size = torch.zeros_like(t)
        for coefficient in reversed(_tanh_polynomial(n)):
            value = value * t + coefficient
            size = size * t.abs() + abs(coefficient)
        rows.append(s * value * step**n)
        # Coefficients of P_n carry at most 3 n roundings, t and s 12 and 20 units, Horner 2 n.
        errors.append(s * size * step**n * ((20 * n + 40) * UNIT))
    return torch.stack(rows), inflate(torch.stack(errors))


def _tanh_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """The smaller of sup (1 - t^2) sum|P_n| |t|^i and Cauchy's estimate with |tanh(x + iy)| <= max(1, tan|y|)."""
    reach = torch.tanh(largest_size(lo, hi)).clamp(max=1.0)
    slope = 1 / torch.cosh(smallest_size(lo, hi)) ** 2
    size = torch.zeros_like(reach)
    for coefficient in reversed(_tanh_polynomial(n)):
        size = size * reach + abs(coefficient)
    cauchy = torch.full_like(size, _cauchy(n))
    return torch.minimum(inflate(slope * size), inflate(cauchy))


@cache
def _cauchy(n: int) -> float:
    # On every circle below the pole at i pi / 2 the estimate holds; the best of 200 is good enough.
    least = pi / 4
    most = 0.999 * pi / 2
    radii = [least + j * (most - least) / 200 for j in range(200)]
    return min(max(1.0, tan(r)) / r**n for r in radii)


def _sigmoid_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # sigmoid(x) = (1 + tanh(x / 2)) / 2: all coefficients but the first are half of those of tanh(x / 2).
    half = c / 2
    bell = 1 / torch.cosh(half) ** 2
    values, errors = _with_slope_factor(torch.sigmoid(c), torch.tanh(half), bell, k, 0.5)
    halves = (k + 1, *[1] * c.ndim)
    scale = torch.full(halves, 0.5, dtype=c.dtype, device=c.device)
    scale[0] = 1.0
    return values * scale, errors * scale


def _sigmoid_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    return inflate(_tanh_bound(lo / 2, hi / 2, n) * 0.5 ** (n + 1))


def _softplus_value(c: Tensor) -> Tensor:
    # log(1 + e^c) with the exponential of a number that is not positive: it cannot overflow.
    return torch.clamp(c, min=0) + torch.log1p(torch.exp(-c.abs()))


def _softplus_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """softplus' = sigmoid, so g_n = sigmoid_{n-1} / n."""
    slopes, slope_errors = _sigmoid_series(c, max(k - 1, 0))
    value = _softplus_value(c)
    rows = [value]
    errors = [value * (3 * ELEMENTARY)]
    for n in range(1, k + 1):
        slope = slopes[n - 1]
        rows.append(slope / n)
        errors.append(slope_errors[n - 1] / n + slope.abs() * UNIT)
    return torch.stack(rows), inflate(torch.stack(errors))


def _softplus_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    if n == 1:
        return inflate(torch.sigmoid(hi))
    return inflate(_sigmoid_bound(lo, hi, n - 1) / n)


def _erf_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """g_n = (-1)^(n-1) (2 / sqrt(pi)) H_{n-1}(c) e^(-c^2) / n!, Hermite by H_{m+1} = 2 c H_m - 2 m H_{m-1}."""
    value = torch.erf(c)
    size = c.abs()
    bell = torch.exp(-c * c) * (2 / sqrt(pi))
    relative = c * c + 16
    rows = [value]
    errors = [value.abs() * ELEMENTARY]
    before = torch.zeros_like(c)
    now = torch.ones_like(c)
    before_size = torch.zeros_like(c)
    now_size = torch.ones_like(c)
    for n in range(1, k + 1):
        whole = float(factorial(n))
        rows.append((now if n % 2 else -now) * bell / whole)
        # The sizes of the terms, since they cancel; the exponent c^2 is rounded, times itself.
        errors.append(now_size * bell * ((relative + 5 * n) * (2 * UNIT / whole)))
        before, now = now, 2 * c * now - 2 * (n - 1) * before
        before_size, now_size = now_size, 2 * size * now_size + 2 * (n - 1) * before_size
    return torch.stack(rows), inflate(torch.stack(errors))


def _erf_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """|H_m(x)| <= sqrt(2^m m!) e^(x^2/2) (Indritz 1961)."""
    slope = 1.1283791671  # 2 / sqrt(pi), rounded up
    square = smallest_size(lo, hi) ** 2
    if n == 1:
        return inflate(torch.exp(-square) * slope)
    hermite = sqrt(2.0 ** (n - 1) * factorial(n - 1))
    factor = slope * hermite / float(factorial(n))
    return inflate(torch.exp(-square / 2) * factor)


def _tan_slope(x: Any) -> Any:
    y = torch.tan(x)
    return 1.0 + y * y


def _bell(x: Interval) -> Interval:
    """Image of 1 / cosh^2, which falls on either side of 0; it is computed within twenty units."""
    top = 1 / torch.cosh(smallest_size(*x)) ** 2
    bottom = 1 / torch.cosh(largest_size(*x)) ** 2
    low = bottom * (1 - 32 * UNIT) - TINY
    high = top * (1 + 32 * UNIT) + TINY
    return low, high


def _half(x: Interval) -> Interval:
    """Image of sigmoid' = bell(x / 2) / 4; halving is exact but for the smallest numbers, where the bell is flat."""
    low, high = _bell((x[0] / 2, x[1] / 2))
    return low / 4 - TINY, high / 4 + TINY


def _derivative(rule: Elementary, image: Image) -> Elementary:
    """g' as a rule of its own, (g')_n = (n + 1) g_{n+1}: its own image would be lost in products."""

    def series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, errors = rule.series(c, k + 1)
        order = torch.arange(1, k + 2, dtype=c.dtype, device=c.device)
        order = order.view(-1, *[1] * c.ndim)
        values = values[1:] * order
        return values, inflate(errors[1:] * order + values.abs() * UNIT)

    def bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
        return inflate((n + 1) * rule.bound(lo, hi, n + 1))

    return Elementary(f"slope of {rule.name}", series, bound, image)


SLOPE_ROUNDINGS = 64  # of a slope that is executed without cancellation: its image is as narrow where it is small


def _tanh_slope(x: Any) -> Any:
    if isinstance(x, TaylorModel):
        return compose(_TANH_SLOPE, x, SLOPE_ROUNDINGS)
    if isinstance(x, Tensor):
        return 1 / torch.cosh(x) ** 2
    y = torch.tanh(x)
    return 1.0 - y * y


def _sigmoid_slope(x: Any) -> Any:
    if isinstance(x, TaylorModel):
        return compose(_SIGMOID_SLOPE, x, SLOPE_ROUNDINGS)
    y = torch.sigmoid(x)
    if isinstance(x, Tensor):
        return y * torch.sigmoid(-x)
    return y * (1.0 - y)


TAN = Elementary("tan", _tan_series, _tan_bound, OPERATIONS["tan"].image, slope=_tan_slope)
TANH = Elementary(
    "tanh", _tanh_series, _tanh_bound, OPERATIONS["tanh"].image, slope=_tanh_slope, chord=chords.TANH.chord
)
SIGMOID = Elementary(
    "sigmoid",
    _sigmoid_series,
    _sigmoid_bound,
    OPERATIONS["sigmoid"].image,
    slope=_sigmoid_slope,
    chord=lambda lo, hi: chords.TANH.chord(lo / 2, hi / 2).scaled(0.5, 0.5, 0.5),
)
SOFTPLUS = Elementary("softplus", _softplus_series, _softplus_bound, of_one(increasing(_softplus_value)))
_TANH_SLOPE, _SIGMOID_SLOPE = _derivative(TANH, _bell), _derivative(SIGMOID, _half)
ERF = Elementary("erf", _erf_series, _erf_bound, OPERATIONS["erf"].image, chord=chords.ERF.chord)

RULES = (TAN, TANH, ERF)  # SIGMOID and SOFTPLUS are executed in more than one step, and registered with that
