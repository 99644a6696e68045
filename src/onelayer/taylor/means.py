"""sinrel and exprel: means of cos(ut) and exp(ut) over 0 <= t <= 1, so entire, with derivatives that are means too.

With h = sin or exp: u g(u) = h(u) - h(0), hence u g^(n)(u) + n g^(n-1)(u) = h^(n)(u), which is stable away from zero;
close to it g = sum_m s_m u^m / (m + 1)!, s_m being the signs of the series of h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb, factorial

import torch
from torch import Tensor

from onelayer.language.analytic import exprel, sinrel
from onelayer.language.operations import OPERATIONS
from onelayer.taylor.elementary import Elementary, Series, smallest_size
from onelayer.taylor.rounding import ELEMENTARY, UNIT, gamma, inflate

CLOSE = 4.0  # up to here the power series is used: it loses exp(4)/4 = 14 units, the recurrence n!/4^n beyond
TERMS = 40  # of it: 4^40 / 40! < 2e-24


def _close(signs: Sequence[int], c: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """g_n = sum_{m >= n} s_m binomial(m, n) c^(m - n) / (m + 1)! by Horner; terms left out halve at least."""
    value = torch.zeros_like(c)
    size = torch.zeros_like(c)
    for m in range(n + TERMS - 1, n - 1, -1):
        coefficient = comb(m, n) / factorial(m + 1)
        value = value * c + signs[m % 4] * coefficient
        size = size * c.abs() + coefficient
    following = comb(n + TERMS, n) / factorial(n + TERMS + 1)
    beyond = 2 * c.abs() ** TERMS * following
    return value, size * gamma(2 * TERMS + 4) + beyond


def _mean(value: Callable[[Tensor], Tensor], rows: Callable[[Tensor], list[Tensor]], signs: Sequence[int]) -> Series:
    """``value`` is g, ``rows`` the four derivatives of h in their turn."""

    def series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
        near = c.abs() < CLOSE
        inner = torch.where(near, c, 0.0)
        outer = torch.where(near, CLOSE, c)
        cycle = rows(outer)
        far = value(outer)
        error = far.abs() * (ELEMENTARY + 2 * UNIT)
        found, errors = [], []
        for n in range(k + 1):
            # u g^(n) = h^(n) - n g^(n-1): the error before is carried on, and the difference rounds by its sizes.
            if n:
                size = (cycle[n % 4].abs() + n * far.abs()) / outer.abs()
                far = (cycle[n % 4] - n * far) / outer
                error = n * error / outer.abs() + size * (ELEMENTARY + 4 * UNIT)
            power, slack = _close(signs, inner, n)
            whole = float(factorial(n))
            found.append(torch.where(near, power, far / whole))
            errors.append(torch.where(near, slack, (error + far.abs() * UNIT) / whole))
        return torch.stack(found), inflate(torch.stack(errors))

    return series


def _sine_rows(c: Tensor) -> list[Tensor]:
    sine = torch.sin(c)
    cosine = torch.cos(c)
    return [sine, cosine, -sine, -cosine]


def _sinrel_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """|g^(m)| is at most 1 / (m + 1), the mean of t^m, and at most (1 + m |g^(m-1)|) / |u|."""
    size = smallest_size(lo, hi).abs()  # zero may come with a sign
    most = torch.ones_like(size)
    for m in range(1, n + 1):
        mean = torch.full_like(size, 1 / (m + 1))
        most = torch.minimum((1 + m * most) / size, mean)
    bound = inflate(most * ((1 + 8 * UNIT) / float(factorial(n))))
    return torch.where(hi - lo < torch.inf, bound, torch.nan)


def _exprel_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """The mean of t^n exp(ut) rises with u: at most exp(u) / (n + 1) and exp(u) / u for u > 0, else 1 / (n + 1)."""
    above = torch.exp(hi) / hi.clamp(min=n + 1.0)
    most = torch.where(hi > 0, above, torch.full_like(hi, 1 / (n + 1)))
    return inflate(most * ((1 + 16 * UNIT) / float(factorial(n))))


def _ratio(c: Tensor, n: int) -> Tensor:
    """Of exprel: the mean of t^(m+1) exp(ut) is below that of t^m exp(ut)."""
    return torch.full_like(c, 1 / (n + 1))


SINREL = Elementary(
    "sinrel",
    _mean(sinrel, _sine_rows, (1, 0, -1, 0)),
    _sinrel_bound,
    OPERATIONS["sinrel"].image,
    slope=lambda x: (torch.cos(x) - sinrel(x)) / x,
)
EXPREL = Elementary(
    "exprel",
    _mean(exprel, lambda c: [torch.exp(c)] * 4, (1, 1, 1, 1)),
    _exprel_bound,
    OPERATIONS["exprel"].image,
    _ratio,
    slope=lambda x: (torch.exp(x) - exprel(x)) / x,
)

RULES = (SINREL, EXPREL)
