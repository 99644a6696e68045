"""Sums of nodes with exact rational coefficients: what a separable node is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from onelayer.build.sequences.rational import add_to, as_float, nonzero, times

# Coefficients by node, each node of one variable.
Sum = dict[int, Fraction]


@dataclass(frozen=True)
class Separable:
    """sum over nodes of coefficient * node + constant."""

    parts: Sum
    constant: Fraction

    def scaled(self, factor: Fraction) -> Separable:
        """factor times the sum."""
        return Separable(nonzero(times(self.parts, factor)), factor * self.constant)

    def plus(self, other: Separable) -> Separable:
        """The sum of both."""
        parts = dict(self.parts)
        add_to(parts, other.parts, Fraction(1))
        return Separable(nonzero(parts), self.constant + other.constant)

    def proportion(self, base: Separable) -> Fraction | None:
        """The factor by which this is a multiple of ``base``, constants aside."""
        if self.parts.keys() != base.parts.keys():
            return None
        ratios = {weight / base.parts[key] for key, weight in self.parts.items()}
        if len(ratios) == 1:
            return ratios.pop()
        return None


def common_scale(weights: Iterable[Fraction]) -> Fraction:
    """A factor after whose division all weights are floats; the first weight if that will do, else 1."""
    values = list(weights)
    if not values:
        return Fraction(1)
    for unit in (Fraction(1), abs(values[0])):
        if all(as_float(w / unit) is not None for w in values):
            return unit
    return Fraction(1)
