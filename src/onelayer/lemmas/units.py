"""The hidden units of one term against the outer function that they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.float64 import UNIT
from onelayer.language.formula import Formula
from onelayer.lemmas.forward import SLACK, UP, Rounding
from onelayer.lemmas.univariate import Ramps, piecewise_error

Floats = NDArray[np.float64]
MARGIN = 1e-9  # of the ends of s: the slope is taken a little beyond, where the executed sum may lie


@dataclass(frozen=True)
class ExecutedSum:
    """A sum s in [low, high] as the layer forms it: |s^ - s| <= drift, and numbers up to ``size`` were added."""

    low: float
    high: float
    drift: float
    size: float


def term_error(g: Formula, ramps: Ramps, s: ExecutedSum, r: Rounding) -> tuple[float, float]:
    """|G(s^) - g(s)| as executed, G = ramps, and the size of what the units add up.

    |G(s^) - g(s)| <= |G(s) - g(s)| + Lip(G) |s^ - s|, and a unit c relu(s^ - t) rounds as |c| (|s^| + |t|) does.
    """
    margin = s.drift + MARGIN * (abs(s.low) + abs(s.high))
    slopes = ramps.on(s.low - margin, s.high + margin)[2]
    sizes = np.abs(ramps.changes)
    summing = 8 * len(ramps.knots) * UNIT * float(sizes.sum())  # slopes are running sums of the changes
    steepest = float(np.abs(slopes).max()) * UP + summing
    error = piecewise_error(g, ramps, s.low, s.high)
    reach = s.size + 2 * s.drift + np.abs(ramps.knots)
    rounding = float(sizes @ (r.gamma(4) * reach + 8 * r.tiny * (1 + reach)))
    return (error + steepest * s.drift + SLACK * rounding) * UP, float(sizes @ reach)


def ramps_of(knots: Floats, changes: Floats, constant: float) -> Ramps:
    """The piecewise-linear function of units in any order."""
    order = np.argsort(knots, kind="stable")
    return Ramps(knots[order], changes[order], constant)
