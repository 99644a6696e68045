"""Cube root and logarithm of gamma: real functions whose coefficients at a point are powers of it, or sums of such."""

from __future__ import annotations

from math import factorial

import torch
from torch import Tensor

from onelayer.language.analytic import SHIFT, cbrt, log_gamma
from onelayer.language.operations import OPERATIONS
from onelayer.taylor.elementary import Elementary, smallest_size, with_relative_error
from onelayer.taylor.rounding import ELEMENTARY, UNIT, inflate

# Bernoulli numbers B_2 ... B_18, each one rounding of a quotient.
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)


def _cbrt_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """g_n = binomial(1/3, n) c^(1/3 - n): each is the one before times (4 - 3n) / (3n) over c."""
    rows = [cbrt(c)]
    for n in range(1, k + 1):
        rows.append(rows[-1] * ((4.0 - 3.0 * n) / (3.0 * n)) / c)
    values, errors = with_relative_error(rows, 4 * k + 4)
    # Smaller ones may underflow, and then their relative error is no error of rounding.
    return values, torch.where(rows[0].abs() > 2.0**-300, errors, torch.nan)


def _cbrt_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """|g_n| falls with |x|."""
    near = smallest_size(lo, hi)
    away = near > 0
    values, errors = _cbrt_series(torch.where(away, near, 1.0), n)
    size = inflate(values[n].abs() + errors[n])
    return torch.where(away, size, torch.inf)


def _cbrt_ratio(c: Tensor, n: int) -> Tensor:
    return torch.where(c != 0, (1 + 4 * UNIT) / c.abs(), torch.nan)


def _shifted(c: Tensor) -> tuple[Tensor, list[Tensor]]:
    """z >= 10 at which the asymptotic series are taken, and the points between c and z, infinite where unused."""
    small = c < SHIFT
    between = [torch.where(small, c + step, torch.inf) for step in range(SHIFT)]
    return torch.where(small, c + SHIFT, c), between


def _digamma(c: Tensor) -> tuple[Tensor, Tensor]:
    """log z - 1/(2z) - sum_k B_2k / (2k z^(2k)) - sum_i 1 / (c + i), the error below the first term left out."""
    z, between = _shifted(c)
    tail = torch.zeros_like(z)
    for k in range(len(BERNOULLI) - 1, 0, -1):
        tail = (tail + BERNOULLI[k - 1] / (2 * k)) / (z * z)
    poles = sum((1 / point for point in between), torch.zeros_like(z))
    value = torch.log(z) - 0.5 / z - tail - poles
    last = 2 * len(BERNOULLI)
    beyond = abs(BERNOULLI[-1]) / last / z**last
    rounding = (torch.log(z) + 1 + poles) * (40 * UNIT)
    return value, rounding + beyond


def _hurwitz(c: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """zeta(n, c) = sum_i (c + i)^-n for n >= 2: ten terms, then the series of Euler and Maclaurin at z.

    zeta(n, z) = z^(1-n) / (n - 1) + z^-n / 2 + sum_k B_2k / (2k)! n (n + 1) ... (n + 2k - 2) z^(1 - n - 2k); its error
    is below the first term left out.
    """
    z, between = _shifted(c)
    leading = z ** (1 - n) / (n - 1) + z**-n / 2
    total = sum((point**-n for point in between), leading)
    rising = float(n)
    for k, bernoulli in enumerate(BERNOULLI, start=1):
        factor = bernoulli * rising / factorial(2 * k)
        term = z ** (1 - n - 2 * k) * factor
        # The last one is left out, and bounds the error.
        if k < len(BERNOULLI):
            total = total + term
        rising *= (n + 2 * k - 1.0) * (n + 2 * k)
    size = sum((point**-n for point in between), z ** (1 - n) * 2)
    rounding = size * (ELEMENTARY + 60 * UNIT)
    return total, rounding + term.abs()


def _lgamma_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """lgamma, digamma, then (-1)^n zeta(n, c) / n."""
    found = [log_gamma(c)]
    if k >= 1:
        found.append(_digamma(c))
    for n in range(2, k + 1):
        value, error = _hurwitz(c, n)
        scaled = value * ((-1) ** n / n)
        found.append((scaled, error / n + value.abs() * UNIT))
    defined = (c > 0) & (c < 2.0**50)  # beyond, half a unit of z is no longer small beside 1
    rows = torch.stack([value for value, _ in found])
    errors = torch.stack([error for _, error in found])
    return rows, torch.where(defined, inflate(errors), torch.nan)


def _lgamma_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """digamma rises and lies between log x - 1/x and log x; zeta(n, x) <= x^-n + x^(1-n) / (n - 1) falls."""
    if n == 1:
        below = torch.log(lo)
        above = torch.log(hi)
        ends = [below - 1 / lo, below, above - 1 / hi, above]
        sizes = torch.stack([end.abs() for end in ends])
        most = sizes.amax(0) * (1 + 32 * UNIT)
    else:
        zeta = lo**-n + lo ** (1 - n) / (n - 1)
        most = zeta * ((1 + 32 * UNIT) / n)
    return torch.where(lo > 0, inflate(most), torch.inf)


def _lgamma_ratio(c: Tensor, n: int) -> Tensor:
    """zeta(m + 1, c) <= zeta(m, c) / c, from m = 2 on."""
    known = (c > 0) & (n > 1)
    return torch.where(known, (1 + 4 * UNIT) / c, torch.nan)


CBRT = Elementary(
    "cbrt", _cbrt_series, _cbrt_bound, OPERATIONS["cbrt"].image, _cbrt_ratio, slope=lambda x: cbrt(x) / (3.0 * x)
)
LGAMMA = Elementary("lgamma", _lgamma_series, _lgamma_bound, OPERATIONS["lgamma"].image, _lgamma_ratio)

RULES = (CBRT, LGAMMA)
