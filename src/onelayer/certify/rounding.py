"""Rounding: what is assumed of floating point, and the constants every bound is built from.

Assumed: IEEE 754 round to nearest for + - * / and sqrt in float64; torch's elementary functions within 4 ulp (tested
against mpmath); results below the normal range may be flushed to zero. Sums may be taken in any order, with or without
fused multiply-add: a sum of n products then errs by at most gamma(n) times the sum of absolute values.
"""

from __future__ import annotations

import torch
from torch import Tensor

UNIT = 2.0**-53
ELEMENTARY = 8 * UNIT  # relative error of an elementary function: 4 ulp, one ulp being at most 2 units
TINY = 2.0**-1000  # absolute slack for underflow anywhere in one operation
_GROWTH = 1.0 + 2.0**-30  # covers the rounding of the remainder's own arithmetic, up to 2^20 nonnegative terms


def gamma(n: int) -> float:
    """Relative error bound of a sum of ``n`` products, n u / (1 - n u) <= 1.01 (n + 2) u for n < 2^40."""
    return 1.01 * (n + 2) * UNIT


def inflate(radius: Tensor) -> Tensor:
    """A float at least as large as the real value of the nonnegative expression that was computed as ``radius``."""
    return radius * _GROWTH + TINY


def execution_unit(dtype: torch.dtype) -> float:
    """Unit roundoff of the executing type."""
    return torch.finfo(dtype).eps / 2


def execution_tiny(dtype: torch.dtype) -> float:
    """Absolute error of one executed operation whose result underflows (flush to zero allowed)."""
    return 4 * torch.finfo(dtype).tiny


def executed(radius: Tensor, magnitude: Tensor, roundings: float, dtype: torch.dtype | None) -> Tensor:
    """Remainder of the value an executed operation returns: ``roundings`` relative errors of the executing type more.

    ``magnitude`` bounds every intermediate result in absolute value; beyond the largest finite number the executed
    operation overflows and the remainder is infinite.
    """
    if dtype is None:
        return radius
    unit = execution_unit(dtype)
    error = magnitude * (1.01 * roundings * unit) + (roundings + 1) * execution_tiny(dtype)
    overflow = torch.finfo(dtype).max / (1 + 4 * unit)
    return torch.where(magnitude < overflow, inflate(radius + error), torch.inf)
