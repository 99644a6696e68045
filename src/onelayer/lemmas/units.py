"""The hidden units of one term against the outer function that they stand for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.float64 import UNIT
from onelayer.language.formula import Formula
from onelayer.lemmas.forward import SLACK, UP, Rounding
from onelayer.lemmas.univariate import Ramps, piecewise_error
from onelayer.observer import Observer

Floats = NDArray[np.float64]
# Of the ends of s: the slope is taken a little beyond them, where the executed sum may lie after their own rounding.
MARGIN = 1e-9


@dataclass(frozen=True)
class ExecutedSum:
    """A sum s in [low, high] as the layer forms it: |s^ - s| <= drift, and numbers up to ``size`` were added."""

    low: float
    high: float
    drift: float
    size: float


def term_error(
    g: Formula, ramps: Ramps, s: ExecutedSum, r: Rounding, observer: Observer | None = None
) -> tuple[float, float]:
    """|G(s^) - g(s)| as executed, G = ramps, and the size of what the units add up.

    |G(s^) - g(s)| <= |G(s) - g(s)| + Lip(G) |s^ - s|, and a unit c relu(s^ - t) rounds as |c| (|s^| + |t|) does.
    """
    steepest = steepest_slope(ramps, s.low, s.high, s.drift)
    error = piecewise_error(g, ramps, s.low, s.high, observer)
    sizes = np.abs(ramps.changes)
    reach = s.size + 2 * s.drift + np.abs(ramps.knots)
    each = r.gamma(4) * reach + 8 * r.tiny * (1 + reach)  # of relu(s^ - t)
    rounding = float(sizes @ each)
    bound = error + steepest * s.drift + SLACK * rounding
    return bound * UP, float(sizes @ reach)


def steepest_slope(ramps: Ramps, low: float, high: float, drift: float) -> float:
    """Upper bound of |slope| of the ramps where a sum in [low, high] may lie once it is off by ``drift``."""
    margin = drift + MARGIN * (abs(low) + abs(high))
    # One float further: a knot as close to the rounded ends as the next number counts.
    _, _, slopes, _ = ramps.on(math.nextafter(low - margin, -math.inf), math.nextafter(high + margin, math.inf))
    # Slopes are running sums of the changes, which cancel: their rounding is relative to the changes, not to the sums.
    sizes = float(np.abs(ramps.changes).sum())
    summing = 8 * len(ramps.knots) * UNIT * sizes
    return float(np.abs(slopes).max()) * UP + summing


def ramps_of(knots: Floats, changes: Floats, constant: float) -> Ramps:
    """The piecewise-linear function of units in any order."""
    order = np.argsort(knots, kind="stable")
    return Ramps(knots[order], changes[order], constant)
