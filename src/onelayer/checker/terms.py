"""The hidden units of one term against its outer function, in ball arithmetic: the checker's own bound of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb
from numpy.typing import NDArray

from onelayer.checker.rounding import Execution
from onelayer.checker.univariate import above, below, distance, lines, steepest
from onelayer.language.formula import Formula

ZERO = arb(0)


@dataclass(frozen=True)
class FormedSum:
    """A sum s in [low, high] as the layer forms it: within ``drift`` of s, from numbers that add up to ``size``."""

    low: float
    high: float
    drift: arb
    size: arb


@dataclass(frozen=True)
class TermUnits:
    """``constant`` + sum of changes relu(s - knots), knots ascending."""

    knots: list[float]
    changes: list[arb]
    constant: arb

    @classmethod
    def stored(
        cls, biases: NDArray[np.float64], changes: NDArray[np.float64], mine: NDArray[np.int64], constant: float
    ) -> TermUnits:
        """The units ``mine`` of a layer whose unit u is relu(s + biases[u])."""
        order = mine[np.argsort(-biases[mine], kind="stable")]
        return cls([-float(b) for b in biases[order]], [arb(float(c)) for c in changes[order]], arb(constant))


def term_distance(g: Formula, units: TermUnits, s: FormedSum, execution: Execution) -> tuple[arb, arb]:
    """|G(s^) - g(s)| as executed, G made by the units, and the size of what they add to the output."""
    made = units.knots, units.changes, units.constant
    drift = s.drift.upper()
    # The executed sum stays within: floats outside, as a knot may lie as close to the end as the next number.
    slope = steepest(lines(*made, below(arb(s.low) - drift), above(arb(s.high) + drift)))
    error = distance(g, lines(*made, s.low, s.high)) + slope * drift
    total = ZERO
    for knot, change in zip(units.knots, units.changes, strict=True):
        reach = s.size + drift + abs(arb(knot))
        error = error + abs(change) * (execution.gamma(2) * reach + 4 * execution.tiny)
        total = total + abs(change) * reach
    return error, total
