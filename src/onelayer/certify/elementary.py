"""Elementary functions of one real variable: Taylor coefficients at a point and their bound over an interval.

For each function g two vectorised rules: ``series(c, k)`` returns g_n = g^(n)(c) / n! for n = 0..k with absolute error
bounds, and ``bound(lo, hi, n)`` an upper bound of |g_n| over [lo, hi], infinite or nan where g is not analytic there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import torch
from torch import Tensor

from onelayer.certify.rounding import ELEMENTARY, UNIT, inflate

Series = Callable[[Tensor, int], tuple[Tensor, Tensor]]
Bound = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Elementary:
    """The rules of one function; ``tail(c, size, k, bound)`` may sharpen bound * size^(k+1)."""

    name: str
    series: Series
    bound: Bound


def _relative(rows: list[Tensor], roundings: int) -> tuple[Tensor, Tensor]:
    """Rows whose relative error is an elementary function's plus some roundings."""
    values = torch.stack(rows)
    return values, inflate(values.abs() * (ELEMENTARY + 1.01 * roundings * UNIT))


def _exp_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    base = torch.exp(c)
    return _relative([base / factorial(n) for n in range(k + 1)], 2)


def _exp_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    return inflate(torch.exp(hi) / factorial(n))


def _sin_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    s, o = torch.sin(c), torch.cos(c)
    cycle = [s, o, -s, -o]
    return _relative([cycle[n % 4] / factorial(n) for n in range(k + 1)], 2)


def _cos_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    s, o = torch.sin(c), torch.cos(c)
    cycle = [o, -s, -o, s]
    return _relative([cycle[n % 4] / factorial(n) for n in range(k + 1)], 2)


def _wave_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    return inflate(torch.where(hi - lo < torch.inf, 1.0 / factorial(n), torch.nan))


EXP = Elementary("exp", _exp_series, _exp_bound)
SIN = Elementary("sin", _sin_series, _wave_bound)
COS = Elementary("cos", _cos_series, _wave_bound)
