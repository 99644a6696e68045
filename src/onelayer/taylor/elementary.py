"""Elementary functions of one real variable: Taylor coefficients at a point and their bound over an interval.

For each function g two vectorised rules: ``series(c, k)`` returns g_n = g^(n)(c) / n! for n = 0..k with absolute error
bounds, and ``bound(lo, hi, n)`` an upper bound of |g_n| over [lo, hi] for n >= 1, infinite or nan where g is not
analytic there. ``image`` of the interval encloses the values themselves; that of an operation of the formula language
stands in its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb, factorial
from typing import Any

import torch
from torch import Tensor

from onelayer.language.intervals import Image, Interval, decreasing, increasing, where_defined
from onelayer.language.intervals import power as power_image
from onelayer.language.operations import OPERATIONS
from onelayer.taylor.chords import Chord
from onelayer.taylor.rounding import ELEMENTARY, UNIT, inflate, upward_power

Series = Callable[[Tensor, int], tuple[Tensor, Tensor]]
Bound = Callable[[Tensor, Tensor, int], Tensor]
Ratio = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Elementary:
    """The rules of one function.

    ``ratio(c, n)``, where given, bounds |g_{m+1} / g_m| at the point c for every m >= n, so that the tail of the Taylor
    series is below a geometric one. ``degree`` is set for polynomials, whose series ends there. ``slope`` is g' in
    operations of torch, which tangents run on. ``chord(lo, hi)`` encloses g beside a line, on intervals of any width.
    """

    name: str
    series: Series
    bound: Bound
    image: Image
    ratio: Ratio | None = None
    degree: int | None = None
    slope: Callable[[Any], Any] | None = None
    chord: Callable[[Tensor, Tensor], Chord] | None = None

    def tail(self, last: Tensor, c: Tensor, size: Tensor, lo: Tensor, hi: Tensor, k: int) -> Tensor:
        """Bound of |g(c + p) - sum_{n<=k} g_n p^n| for |p| <= size, c + p in [lo, hi]; ``last`` is |g_k|, rounded up.

        Lagrange: sup |g_{k+1}| size^(k+1); or the geometric tail |g_k| size^k q / (1 - q), q = ratio * size < 1.
        """
        lagrange = self.bound(lo, hi, k + 1) * upward_power(size, k + 1)
        if self.ratio is None:
            return inflate(lagrange)
        q = inflate(self.ratio(c, k) * size)
        series = q / (1 - q)
        geometric = last * upward_power(size, k) * series * (1 + 2.0**-20)
        # Close to 1 the rounding of 1 - q matters; there, and where it is nan, Lagrange stands alone.
        return inflate(torch.where((q < 0.99) & ~(lagrange < geometric), geometric, lagrange))


def with_relative_error(rows: list[Tensor], roundings: float) -> tuple[Tensor, Tensor]:
    """Rows whose relative error is an elementary function's plus some roundings."""
    values = torch.stack(rows)
    relative = ELEMENTARY + 1.01 * roundings * UNIT
    return values, inflate(values.abs() * relative)


def smallest_size(lo: Tensor, hi: Tensor) -> Tensor:
    """min |x| over [lo, hi]; nan stays nan."""
    return torch.maximum(lo, -hi).clamp(min=0)


def largest_size(lo: Tensor, hi: Tensor) -> Tensor:
    """max |x| over [lo, hi]."""
    return torch.maximum(-lo, hi)


def _exp_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    base = torch.exp(c)
    return with_relative_error([base / float(factorial(n)) for n in range(k + 1)], 2)


def _exp_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    return inflate(torch.exp(hi) / float(factorial(n)))


def _wave_series(shift: int) -> Series:
    def series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
        s = torch.sin(c)
        o = torch.cos(c)
        cycle = [s, o, -s, -o]
        rows = [cycle[(n + shift) % 4] / float(factorial(n)) for n in range(k + 1)]
        return with_relative_error(rows, 2)

    return series


def _wave_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """|sin|, |cos| <= 1, and close to a zero of the derivative that is all there is to say cheaply."""
    most = torch.full_like(lo, (1 + 4 * UNIT) / float(factorial(n)))
    return torch.where(hi - lo < torch.inf, most, torch.nan)


def _log_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # (-1)^(n-1) / (n c^n), each power of -1 / c from the one before.
    rows = [torch.log(c)]
    power = torch.ones_like(c)
    for n in range(1, k + 1):
        power = -power / c
        rows.append(-power / n)
    return with_relative_error(rows, k + 2)


def _log_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    most = 1 / (n * lo**n)
    return torch.where(lo > 0, inflate(most), torch.inf)


def power(exponent: float) -> Elementary:
    """x^a on x > 0 for a real exponent a: g_n = binomial(a, n) x^(a - n), monotone in x up to sign."""

    def value(x: Tensor) -> Tensor:
        if exponent == 0.5:
            return torch.sqrt(x)
        if exponent == -0.5:
            return torch.rsqrt(x)
        return torch.pow(x, exponent)

    def series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
        rows = [value(c)]
        for n in range(1, k + 1):
            rows.append(rows[-1] * ((exponent - (n - 1)) / n) / c)
        values, errors = with_relative_error(rows, 4 * k + 2)
        # A value that underflows would hide the size of the later rows.
        return values, torch.where(rows[0] > 2.0**-900, errors, torch.nan)

    def ratio(c: Tensor, n: int) -> Tensor:
        # |a - m| / (m + 1) <= (|a| + m) / (m + 1), which goes from its value at n to 1 as m grows.
        most = max(1.0, (abs(exponent) + n) / (n + 1))
        return torch.where(c > 0, most / c, torch.nan)

    def bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
        factor = 1.0
        for i in range(n):
            factor *= abs(exponent - i) / (i + 1)
        # A power is monotone, so its largest value is at an end.
        left = torch.pow(lo, exponent - n)
        right = torch.pow(hi, exponent - n)
        ends = torch.maximum(left, right)
        return torch.where(lo > 0, inflate(factor * ends), torch.inf)

    def image(x: Interval) -> Interval:
        rises = increasing(value) if exponent >= 0 else decreasing(value)
        return where_defined(x[0] > 0, rises(*x))

    return Elementary(f"pow {exponent}", series, bound, image, ratio)


def integer_power(exponent: int) -> Elementary:
    """x^m for an integer m >= 1 and any sign of x: the series ends at n = m."""

    def series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
        powers = [torch.ones_like(c)]
        for _ in range(exponent):
            powers.append(powers[-1] * c)
        last = min(k, exponent)
        rows = [comb(exponent, n) * powers[exponent - n] for n in range(last + 1)]
        rows += [torch.zeros_like(c)] * (k - last)
        return with_relative_error(rows, exponent + 2)

    def bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
        size = largest_size(lo, hi)
        # Zero, but not of an argument without bounds: what has no value leaves none.
        if n > exponent:
            return torch.where(size < torch.inf, torch.zeros_like(size), torch.nan)
        return inflate(comb(exponent, n) * size ** (exponent - n))

    return Elementary(f"pow {exponent}", series, bound, power_image(exponent), degree=exponent)


def _exp_ratio(c: Tensor, n: int) -> Tensor:
    return torch.full_like(c, 1 / (n + 1))


def _log_ratio(c: Tensor, n: int) -> Tensor:
    return torch.where(c > 0, 1 / c, torch.nan)


EXP = Elementary("exp", _exp_series, _exp_bound, OPERATIONS["exp"].image, _exp_ratio, slope=torch.exp)
SIN = Elementary("sin", _wave_series(0), _wave_bound, OPERATIONS["sin"].image, slope=torch.cos)
COS = Elementary("cos", _wave_series(1), _wave_bound, OPERATIONS["cos"].image, slope=lambda x: -torch.sin(x))
LOG = Elementary("log", _log_series, _log_bound, OPERATIONS["log"].image, _log_ratio, slope=lambda x: 1.0 / x)
SQRT = replace(power(0.5), name="sqrt", image=OPERATIONS["sqrt"].image, slope=lambda x: 0.5 / torch.sqrt(x))
RSQRT = replace(power(-0.5), name="rsqrt", slope=lambda x: -0.5 / (x * torch.sqrt(x)))

RULES = (EXP, SIN, COS, LOG, SQRT, RSQRT)
