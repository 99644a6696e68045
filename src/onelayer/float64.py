"""Float64: what is assumed of its arithmetic, and tensors of it on the CPU whatever the global defaults of torch are.

Assumed: IEEE 754 round to nearest for + - * /; torch's elementary functions within 4 ulp (tested against mpmath), sqrt
among them, whose vector version misses the nearest float; results below the normal range may be flushed to zero.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.formats import FLOAT64

UNIT = FLOAT64.unit  # relative error of one rounding
# Relative error of an elementary function: 4 ulp, one ulp being at most 2 units.
ELEMENTARY = 8 * UNIT
# Absolute slack for underflow anywhere in one operation.
TINY = 2.0**-1000


def zeros(*size: int) -> Tensor:
    """Zeros of this size."""
    return torch.zeros(size, dtype=torch.float64, device="cpu")


def ones(*size: int) -> Tensor:
    """Ones of this size."""
    return torch.ones(size, dtype=torch.float64, device="cpu")


def full(size: Sequence[int], value: float) -> Tensor:
    """One value everywhere."""
    return torch.full(tuple(size), value, dtype=torch.float64, device="cpu")


def eye(rows: int, columns: int | None = None) -> Tensor:
    """Ones on the diagonal, square unless ``columns`` says otherwise."""
    width = rows if columns is None else columns
    return torch.eye(rows, width, dtype=torch.float64, device="cpu")


def numbers(values: Any) -> Tensor:
    """A tensor of these numbers."""
    return torch.tensor(values, dtype=torch.float64, device="cpu")


def counted(start: int, stop: int | None = None) -> Tensor:
    """0, 1, ... or start, ..., stop - 1 as float64 numbers."""
    if stop is None:
        return counted(0, start)
    return torch.arange(start, stop, dtype=torch.float64, device="cpu")


def indices(count: int) -> Tensor:
    """0, 1, ..., count - 1 as whole numbers, to index with."""
    return torch.arange(count, dtype=torch.int64, device="cpu")


def linspace(low: float, high: float, count: int) -> Tensor:
    """``count`` numbers at equal distances, both ends included."""
    return torch.linspace(float(low), float(high), count, dtype=torch.float64, device="cpu")


def one_number(value: Any) -> Any:
    """The number in a tensor or an array that holds one; anything else as it is."""
    array = isinstance(value, Tensor | np.ndarray)
    if array and math.prod(value.shape) == 1:
        return value.item()
    return value


def at_most(value: Any) -> float:
    """The largest float that is not above a number: a fraction, an integer of any size, a float of more digits."""
    rational = isinstance(value, Rational)
    exact = Fraction(int(value.numerator), int(value.denominator)) if rational else value
    try:
        near = float(exact)
    except OverflowError:
        return sys.float_info.max if exact > 0 else -math.inf
    return math.nextafter(near, -math.inf) if near > exact else near


def at_least(value: Fraction | int) -> float:
    """The smallest float that is not below a fraction."""
    return -at_most(-Fraction(value))


def product_above(*factors: float) -> float:
    """The product of numbers >= 0, rounded up once: none of them vanishes before it meets a large one."""
    if not all(map(math.isfinite, factors)):
        return math.inf
    return at_least(math.prod(map(Fraction, factors)))
