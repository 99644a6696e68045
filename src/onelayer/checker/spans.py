"""Intervals for many boxes at once, in float64 with counted rounding: the numbers of the checker's fast arithmetic.

Assumed of NumPy: + - * / and square roots round to nearest; a result below the normal range errs by at most 2^-1022.
Nothing is assumed of its exponentials, sines and the like: those come from Arb. An infinity or a NaN stays one, and
satisfies no comparison.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

Floats = NDArray[np.float64]
UNIT = 2.0**-53  # unit roundoff
MOST_TERMS = 2**12  # of a sum whose rounding ``above`` covers
SLACK = 1 + 2.0**-40  # 2^13 roundings
TINY = 2.0**-990  # 2^32 results below the normal range
SQUARINGS = 10  # of a bound of exp


def above(x: Any) -> Any:
    """At least the number that x >= 0 was computed for, by sums of up to MOST_TERMS products of numbers >= 0."""
    return x * SLACK + TINY


def as_floats(ball: arb) -> tuple[float, float]:
    """A float near the middle of a ball, and at least the distance to every number in it."""
    middle = float(ball)
    gap = ball - arb(middle)
    return middle, 0.0 if gap.is_zero() else math.nextafter(float(gap.abs_upper()), math.inf)


def exponential_above(x: Floats) -> Floats:
    """At least exp(x) for x >= 0: exp(x) <= (1 - x/m)^-m for x < m; infinite from m / 2 on."""
    m = 2.0**SQUARINGS
    # Relative errors double with each squaring: 2^10 times the few roundings of the base stay within its slack.
    base = np.where(x < m / 2, 1 / (1 - x / m), np.inf) * SLACK
    for _ in range(SQUARINGS):
        base = base * base * SLACK
    return np.where(np.isnan(x), np.nan, base)


class Span:
    """[low, high] for each of many boxes, with as much of the manner of a ball as the layer's code asks for."""

    __slots__ = ("high", "low")

    def __init__(self, low: Any, high: Any) -> None:
        self.low = np.asarray(low, dtype=np.float64)
        self.high = np.asarray(high, dtype=np.float64)

    @classmethod
    def of(cls, value: Any) -> Span:
        """A ball, a float or a span as a span."""
        if isinstance(value, Span):
            return value
        ball = value if isinstance(value, arb) else arb(value)
        middle, radius = as_floats(ball)
        return cls(middle, middle).widened(radius)

    def widened(self, radius: Any) -> Span:
        """Moved apart by ``radius`` >= 0, outwards; without it nothing moves."""
        low = np.nextafter(self.low - radius, -np.inf)
        high = np.nextafter(self.high + radius, np.inf)
        return Span(np.where(radius == 0, self.low, low), np.where(radius == 0, self.high, high))

    def lower(self) -> Span:
        """The lower end."""
        return Span(self.low, self.low)

    def upper(self) -> Span:
        """The upper end."""
        return Span(self.high, self.high)

    def mid(self) -> Floats:
        """A number close to the middle."""
        return self.low / 2 + self.high / 2

    def rad(self) -> Floats:
        """At least the distance of the middle to the ends."""
        middle = self.mid()
        return np.asarray(above(np.maximum(self.high - middle, middle - self.low)))

    def abs_lower(self) -> Span:
        """The least absolute value, 0 where the sign is open."""
        least = np.maximum(np.maximum(self.low, -self.high), 0.0)
        return Span(least, least)

    def abs_upper(self) -> Span:
        """The largest absolute value."""
        most = np.maximum(-self.low, self.high)
        return Span(most, most)

    def is_finite(self) -> bool:
        """Whether the ends are numbers on every box."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    def is_zero(self) -> bool:
        """Whether it is 0 on every box."""
        return bool((self.low == 0).all() and (self.high == 0).all())

    def union(self, other: Any) -> Span:
        """The smallest span around both."""
        other = Span.of(other)
        return Span(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def max(self, other: Any) -> Span:
        """The larger number."""
        other = Span.of(other)
        return Span(np.maximum(self.low, other.low), np.maximum(self.high, other.high))

    def exp(self) -> Span:
        """The exponential of numbers of either sign, not sharply: good for bounds."""
        most = exponential_above(np.abs(self.high))
        least = np.nextafter(1 / exponential_above(np.abs(self.low)), 0.0)
        return Span(np.where(self.low >= 0, 1.0, least), np.where(self.high <= 0, 1.0, most))

    def __add__(self, other: Any) -> Span:
        other = Span.of(other)
        low = self.low + other.low
        high = self.high + other.high
        return Span(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Span:
        other = Span.of(other)
        products = [p * q for p in (self.low, self.high) for q in (other.low, other.high)]
        ends = np.stack(np.broadcast_arrays(*products))
        return Span(np.nextafter(ends.min(0), -np.inf), np.nextafter(ends.max(0), np.inf))

    __rmul__ = __mul__

    def __gt__(self, other: float) -> bool:
        return bool((self.low > other).all())

    def __ge__(self, other: float) -> bool:
        return bool((self.low >= other).all())

    def __le__(self, other: float) -> bool:
        return bool((self.high <= other).all())
