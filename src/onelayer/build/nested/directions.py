"""Directions, and sums of inner functions along them, by their nodes in a formula."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from onelayer.build.sequences.rational import as_float

# Variables and their coefficients, the first of them 1.
Direction = tuple[tuple[int, Fraction], ...]
# "node" or "log", and a node that is an inner function.
Part = tuple[str, int]
Parts = dict[Part, Fraction]


def normalised(weights: Iterable[tuple[int, Fraction]], *, scale: bool = True) -> Direction | None:
    """Coefficients as floats, the first of them 1 if that leaves floats; None for nothing, or no floats."""
    items = sorted((i, w) for i, w in weights if w)
    if not items:
        return None
    first = items[0][1]
    units = (first, Fraction(1)) if scale else (Fraction(1),)
    for unit in units:
        if all(as_float(w / unit) is not None for _, w in items):
            return tuple((i, w / unit) for i, w in items)
    return None


def span(weights: Sequence[float], low: Sequence[float], high: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest value of sum_i w_i u_i for u between two corners."""
    ends = [(w * a, w * b) for w, a, b in zip(weights, low, high, strict=True)]
    return sum(map(min, ends)), sum(map(max, ends))
