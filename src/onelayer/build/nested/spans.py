"""Where inner functions, their factors and their sums have their values on a box, a little wider than they need be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onelayer.box import Box
from onelayer.build.nested.apart import Apart, Summand
from onelayer.lemmas.nested import Inner
from onelayer.lemmas.univariate import range_of

# Of its width, by which an interval of sums is widened: another proof may find it less tightly.
WIDER = 1e-3


@dataclass(frozen=True)
class Factor:
    """A factor of an inner function: its text, the ends of its argument, the ends of its values."""

    text: str
    ends: tuple[float, float]
    values: tuple[float, float]

    @property
    def size(self) -> float:
        """The largest absolute value."""
        return max(map(abs, self.values))


class Spans:
    """The inner functions of a target taken apart, each once, with their factors and the intervals of their values."""

    def __init__(self, apart: Apart, box: Box) -> None:
        self.box = box
        self.summands: dict[Inner, Summand] = {}
        for part in apart.sums:
            for one in part:
                self.summands.setdefault(one.inner, one)
        self.inner = list(self.summands)
        self.index = {one: c for c, one in enumerate(self.inner)}
        self.factors = [list(map(self._factor, inner.factors)) for inner in self.inner]
        self.values = [_product_range(factors) for factors in self.factors]

    def places(self, part: tuple[Summand, ...]) -> tuple[int, ...]:
        """The inner functions of a sum, by their numbers."""
        return tuple(self.index[one.inner] for one in part)

    def of_sum(self, part: tuple[Summand, ...]) -> tuple[float, float]:
        """Where a sum of inner functions has its values."""
        values = [self.values[place] for place in self.places(part)]
        low = sum(least for least, _ in values)
        high = sum(most for _, most in values)
        return _widened(low, high)

    def _factor(self, one: Inner) -> Factor:
        ends = self._argument(one)
        values = ends if one.plain else range_of(one.formula, *ends)
        return Factor(one.text, ends, values)

    def _argument(self, one: Inner) -> tuple[float, float]:
        """Values of direction . x, a little wider than rounding needs."""
        direction = np.array(one.direction)
        at_lower = direction * self.box.lower.flatten().numpy()
        at_upper = direction * self.box.upper.flatten().numpy()
        # A single product is as exact as its box.
        slack = 0.0
        if np.count_nonzero(direction) > 1:
            slack = 1e-15 * float(np.abs((at_lower, at_upper)).sum())
        low = float(np.minimum(at_lower, at_upper).sum())
        high = float(np.maximum(at_lower, at_upper).sum())
        return low - slack, high + slack


def _product_range(factors: list[Factor]) -> tuple[float, float]:
    """The product of all factors: its ends are products of theirs."""
    low, high = factors[0].values
    for factor in factors[1:]:
        ends = [x * y for x in (low, high) for y in factor.values]
        low = min(ends)
        high = max(ends)
    return low, high


def _widened(low: float, high: float) -> tuple[float, float]:
    """A little more on both sides, and no sign changed: logarithms and roots of a sum keep their values."""
    # The second part is for a sum that hardly varies.
    more = WIDER * (high - low) + 1e-12 * max(abs(low), abs(high))
    bottom = low - more
    top = high + more
    if low >= 0 > bottom:
        bottom = low / 2
    if high <= 0 < top:
        top = high / 2
    return bottom, top
