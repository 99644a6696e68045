"""Rounding: the constants every bound is built from.

Assumed is what float64.py says. Sums may be taken in any order, with or without
fused multiply-add: a sum of n products then errs by at most gamma(n) times the sum of absolute values.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.float64 import ELEMENTARY as ELEMENTARY
from onelayer.float64 import TINY as TINY
from onelayer.float64 import UNIT as UNIT
from onelayer.formats import format_of, spelled
from onelayer.narrow import ACCUMULATORS

SMALLEST = 2.0**-900  # of an exponential; below, powers of a radius times it would vanish
UNDERFLOW = 2.0**-1060  # absolute error of a few operations that underflow, where the same operation multiplies it on
FUSED = 64  # roundings allowed to a fused softmax kernel beside its sum: exp within 20 ulp, scaling, division
SMALL = 2.0**-8  # n u below which n roundings err by less than 1.01 n u, with room to spare
WORTHLESS = 0.5  # of the radius of an image: beside a larger remainder a polynomial only adds to the width
GROWTH = 1.0 + 2.0**-30  # covers the rounding of the remainder's own arithmetic, up to 2^20 nonnegative terms


def gamma(n: int) -> float:
    """Relative error bound of a sum of ``n`` products, n u / (1 - n u) <= 1.01 (n + 2) u for n < 2^40."""
    return 1.01 * (n + 2) * UNIT


def inflate(radius: Tensor) -> Tensor:
    """A float at least as large as the real value of the nonnegative expression that was computed as ``radius``."""
    return torch.add(radius, TINY).mul_(GROWTH)


def middle_and_reach(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """A number about the middle of each interval, and the distance of the farther end, rounded to nearest."""
    # Halved first: the sum of two large numbers would overflow.
    middle = low / 2 + high / 2
    return middle, torch.maximum(high - middle, middle - low)


def upward_power(size: Tensor, exponent: int) -> Tensor:
    """A float no smaller than size^exponent (up to ``inflate``) that does not vanish by underflow."""
    return size.clamp(min=2.0 ** (-1000 / max(exponent, 1))) ** exponent


def conversion_error(value: Tensor, dtype: torch.dtype | None) -> Tensor | None:
    """Radius of a float64 constant after it is cast to the executing type, or None where every cast is exact."""
    if dtype is None or dtype == torch.float64:
        return None
    exact = value.to(dtype).double() == value
    if bool(exact.all()):
        return None
    size = value.abs()
    error = inflate(size * (1.01 * _unit(dtype)) + _tiny(dtype))
    held = torch.where(size <= format_of(dtype).largest, error, torch.inf)
    return torch.where(exact, 0.0, held)


def check_cast(execution: torch.dtype | None, dtype: Any) -> None:
    """Refuse casts that change numbers: to integers, and to a type coarser than the executing one (or than the reals).

    Where a format is executed a cast to it rounds nothing that was not rounded: what came before is enclosed with the
    rounding of that format, even if it was computed in float64.
    """
    if dtype not in (None, torch.float64, execution):
        kind = spelled(dtype)
        raise UnsupportedOperation(f"cast to {kind}", "only to float64, and to the format that is executed")


def widens(execution: torch.dtype | None, dtype: Any) -> bool:
    """Whether a cast is one from a narrow format to the one it computes in: every number of it is exact there."""
    return execution is not None and ACCUMULATORS.get(execution) == dtype


def narrows(execution: torch.dtype | None, dtype: Any) -> bool:
    """Whether a cast rounds numbers of an accumulator to a narrow format."""
    return execution is not None and ACCUMULATORS.get(dtype) == execution


def rounded_once(radius: Tensor, magnitude: Tensor, dtype: torch.dtype) -> Tensor:
    """Remainder after one rounding to nearest in ``dtype`` of numbers up to ``magnitude``.

    Numbers of the binade [2^e, 2^(e+1)] are rounded by half a unit in the last place, 2^e u, those of lower binades by
    less; below the normal range by what ``underflow`` of the format says. What may lie above the largest number may
    overflow.
    """
    row = format_of(dtype)
    exponent = torch.frexp(magnitude)[1].to(torch.float64) - 1
    error = inflate(radius + row.unit * torch.exp2(exponent) + row.underflow)
    return torch.where(magnitude < row.largest, error, torch.inf)


def executed(
    radius: Tensor, magnitude: Tensor, roundings: float, dtype: torch.dtype | None, unit: Tensor | float = 1.0
) -> Tensor:
    """Remainder of the value an executed operation returns: ``roundings`` relative errors of the executing type more.

    ``magnitude`` bounds every intermediate result in absolute value; beyond the largest finite number the executed
    operation overflows and the remainder is infinite. ``unit`` is what one executed unit is worth in the numbers of a
    pending quotient: an upper bound of its denominator.
    """
    if dtype is None:
        return radius
    relative, absolute, largest = execution_step(dtype, roundings).tolist()
    error = magnitude * relative + absolute * unit
    return torch.where(magnitude < largest, inflate(radius + error), torch.inf)


@cache
def execution_step(dtype: torch.dtype | None, roundings: float) -> NDArray[np.float64]:
    """The numbers of ``executed`` with unit 1: relative error, absolute error, largest magnitude; none for exact."""
    if dtype is None:
        return np.empty(0)
    relative = relative_error(dtype, roundings)
    absolute = (roundings + 1) * _tiny(dtype)
    # Room for what the bound of a numerator does not show: denominators above 1/4, and the roundings themselves.
    largest = format_of(dtype).largest / 2**12
    return np.array([relative, absolute, largest])


def relative_error(dtype: torch.dtype, roundings: float) -> float:
    """Relative error of ``roundings`` executed operations in a row: n u / (1 - n u), at most 1.01 n u for small n u.

    In a narrow format nothing is computed: where kernels round there is up to them.
    """
    if dtype in ACCUMULATORS and roundings > 0:
        name = spelled(dtype)
        raise UnsupportedOperation(f"arithmetic in {name}", "compute in float32 and cast what is returned")
    total = roundings * _unit(dtype)
    if total < SMALL:
        return 1.01 * total
    if total < 0.5:
        return 1.01 * total / (1 - total)
    return math.inf


def underflow_error(dtype: torch.dtype, roundings: float) -> float:
    """Absolute error of ``roundings`` executed operations whose results may underflow."""
    return 1.01 * roundings * _tiny(dtype)


def _unit(dtype: torch.dtype) -> float:
    return format_of(dtype).unit


def _tiny(dtype: torch.dtype) -> float:
    """Absolute error of one executed operation whose result underflows (flush to zero allowed)."""
    return 4 * format_of(dtype).normal
