"""Inverse trigonometric functions: their derivatives are algebraic, and their coefficients follow from that."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onelayer.language.operations import OPERATIONS
from onelayer.taylor import chords
from onelayer.taylor.elementary import Elementary, Series, largest_size, smallest_size, with_relative_error
from onelayer.taylor.rounding import ELEMENTARY, UNIT, inflate


def _atan_series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """1 / (1 + x^2) is the imaginary part of 1 / (x - i), so g_n = Im((-1)^(n-1) w^n) / n with w = 1 / (c - i)."""
    square = 1 + c * c
    real = c / square
    imaginary = 1 / square
    x, y = real, imaginary
    value = torch.atan(c)
    rows = [value]
    errors = [value.abs() * ELEMENTARY]
    size = torch.where(square < 2.0**900, torch.rsqrt(square), torch.nan)
    for n in range(1, k + 1):
        rows.append((y if n % 2 else -y) / n)
        # Each complex product errs by less than eight units of |w|^n, whatever cancels in its parts.
        errors.append(size**n * (8 * (n + 1) * UNIT / n))
        x, y = x * real - y * imaginary, x * imaginary + y * real
    return torch.stack(rows), inflate(torch.stack(errors))


def _atan_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """|g_n| = |cos^n(theta) sin(...)| / n <= (1 + x^2)^(-n/2) / n."""
    square = 1 + smallest_size(lo, hi) ** 2
    return inflate(square ** (-n / 2) / n)


def _root_rows(size: Tensor, k: int) -> list[Tensor]:
    """Coefficients of w = (1 - x^2)^(-1/2) at x = size in [0, 1); all >= 0.

    (1 - x^2) w' = x w gives (1 - c^2) (n + 1) w_{n+1} = c (2 n + 1) w_n + n w_{n-1}: sums of nonnegative terms, so each
    step adds at most eight roundings. 1 - c^2 = (1 - c) (1 + c) has three.
    """
    slack = (1 - size) * (1 + size)
    rows = [torch.rsqrt(slack)]
    for n in range(k):
        before = rows[n - 1] * n if n else 0.0
        total = rows[n] * (2 * n + 1) * size + before
        rows.append(total / slack / (n + 1))
    return rows


def _arc_series(sign: int, value: Callable[[Tensor], Tensor]) -> Series:
    """asin (sign 1) and acos (-1): g_{n+1} = sign w_n / (n + 1), and w is even."""

    def series(c: Tensor, k: int) -> tuple[Tensor, Tensor]:
        negative = torch.where(c < 0, -torch.ones_like(c), 1.0)
        rows = [value(c)]
        slopes = _root_rows(c.abs(), k - 1) if k else []
        for n, row in enumerate(slopes):
            turned = negative if n % 2 else 1.0
            rows.append(row * (sign / (n + 1)) * turned)
        return with_relative_error(rows, 16 * (k + 1))

    return series


def _arc_bound(lo: Tensor, hi: Tensor, n: int) -> Tensor:
    """w has nonnegative coefficients at every x >= 0, so they are largest where |x| is."""
    reach = largest_size(lo, hi)
    last = _root_rows(reach, n - 1)[n - 1]
    return torch.where(reach < 1, inflate(last / n), torch.inf)


ATAN = Elementary(
    "atan",
    _atan_series,
    _atan_bound,
    OPERATIONS["atan"].image,
    slope=lambda x: 1.0 / (1.0 + x * x),
    chord=chords.ATAN.chord,
)
ASIN = Elementary(
    "asin",
    _arc_series(1, torch.asin),
    _arc_bound,
    OPERATIONS["asin"].image,
    slope=lambda x: 1.0 / torch.sqrt(1.0 - x * x),
)
ACOS = Elementary(
    "acos",
    _arc_series(-1, torch.acos),
    _arc_bound,
    OPERATIONS["acos"].image,
    slope=lambda x: -1.0 / torch.sqrt(1.0 - x * x),
)

RULES = (ATAN, ASIN, ACOS)
