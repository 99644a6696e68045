"""Continuous piecewise-linear functions within a tolerance of g, with nearly as few pieces as possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.errors import OnelayerError

Array = NDArray[np.float64]
Univariate = Callable[[Array], Array]
# The mesh interpolates g to tolerance / MESH, about 45 points per piece.
MESH = 2000
# Of a mesh: sixteen megabytes for each array on it.
MAX_POINTS = 2**21
# Halvings of an interval of the mesh, beyond the digits of float64.
MAX_LEVELS = 80
# Points of the mesh that are looked at together, at least.
WINDOW = 64


@dataclass(frozen=True)
class Piecewise:
    """The function through (knots[i], values[i]), linear between, N pieces; ``knots`` ascend."""

    knots: Array  # (N + 1,)
    values: Array  # (N + 1,)

    @property
    def pieces(self) -> int:
        """Number of affine pieces."""
        return len(self.knots) - 1

    @property
    def steepest(self) -> float:
        """Largest slope in absolute value."""
        return float(np.abs(self.slopes).max())

    @property
    def slopes(self) -> Array:
        """Slope of every piece."""
        slopes: Array = np.diff(self.values) / np.diff(self.knots)
        return slopes

    def changes(self) -> Array:
        """Coefficients of values[0] + sum_i changes[i] relu(x - knots[i]), i < N."""
        return np.diff(self.slopes, prepend=0.0)


def fit_piecewise(g: Univariate, low: float, high: float, tolerance: float) -> Piecewise:
    """A piecewise-linear function within ``tolerance`` of g on [low, high], estimated on a fine mesh.

    Greedy in the tube g +- tolerance: from the last knot, the longest line that stays inside; it ends on the border of
    the tube, below g where g is convex and above where it is concave, which is where the next line reaches farthest. A
    piece then has length 4 sqrt(tolerance / |g''|), the best possible, except beside inflections. With free knots the
    number of pieces is (integral of sqrt|g''|) / (4 sqrt(tolerance)).
    """
    if not high > low:
        # An interval of one point: a constant, on any interval that has a width.
        value = float(g(np.array([low]))[0])
        return Piecewise(np.array([low, low + 1.0]), np.array([value, value]))
    x, y = _mesh(g, low, high, tolerance / MESH)
    inner = tolerance * (1 - 1 / MESH)
    tries = [_greedy(x, y, inner, start) for start in (0.0, -inner, inner)]
    # A straight line, without an offset.
    if tries[0].pieces == 1:
        return tries[0]
    # A gentle slope is worth a piece: it multiplies the error of the argument in a composition.
    fewest = min(found.pieces for found in tries)
    short = [found for found in tries if found.pieces <= fewest + 2]
    return min(short, key=lambda found: found.steepest)


def _greedy(x: Array, y: Array, tolerance: float, start: float) -> Piecewise:
    """Lines one after another, from g(low) + start: each the longest that stays in the tube."""
    knots = [x[0]]
    values = [y[0] + start]
    at = 0
    window = WINDOW
    while at < len(x) - 1:
        value = values[-1]
        # Slopes that keep a line in the tube up to each point: none once the least exceeds the greatest.
        while True:
            stop = min(len(x), at + 1 + window)
            ahead = slice(at + 1, stop)
            step = x[ahead] - x[at]
            low = np.maximum.accumulate((y[ahead] - tolerance - value) / step)
            high = np.minimum.accumulate((y[ahead] + tolerance - value) / step)
            bad = np.flatnonzero(low > high)
            if len(bad) or stop == len(x):
                break
            window *= 2
        reach = int(bad[0]) - 1 if len(bad) else len(step) - 1
        # The next line is about as long as this one.
        window = max(WINDOW, 2 * (reach + 2))
        # The mesh is finer than the tube is wide: it cannot happen but for jumps.
        if reach < 0:
            raise OnelayerError("the function jumps: it has no continuous piecewise-linear approximation")
        if len(bad):
            rises = low[reach + 1] > high[reach]
            slope = high[reach] if rises else low[reach]
        else:
            slope = (low[reach] + high[reach]) / 2
        at += reach + 1
        knots.append(x[at])
        values.append(value + slope * step[reach])
    return Piecewise(np.array(knots), np.array(values))


def _mesh(g: Univariate, low: float, high: float, tolerance: float) -> tuple[Array, Array]:
    """Points such that linear interpolation of g between neighbours is within about ``tolerance`` of g."""
    x = np.linspace(low, high, 257)
    y = g(x)
    settled = np.zeros(len(x) - 1, dtype=bool)
    for _ in range(MAX_LEVELS):
        open_ = np.flatnonzero(~settled)
        if not len(open_):
            break
        left = x[open_]
        right = x[open_ + 1]
        middle = left / 2 + right / 2
        value = g(middle)
        chord = (y[open_] + y[open_ + 1]) / 2
        flat = np.abs(value - chord) <= tolerance
        # Neighbouring floats have nothing between them.
        flat |= (middle <= left) | (middle >= right)
        finite = np.isfinite(value)
        if not finite.all():
            raise OnelayerError(f"the function has no finite value near {middle[~finite][0]:g}")
        # Both halves of a flat interval are settled; the midpoint joins the mesh in any case.
        x = np.insert(x, open_ + 1, middle)
        y = np.insert(y, open_ + 1, value)
        settled = np.repeat(settled, np.where(settled, 1, 2))
        # Each interval before has moved the later ones by one place.
        places = open_ + np.arange(len(open_))
        settled[places] = flat
        settled[places + 1] = flat
        if len(x) > MAX_POINTS:
            raise OnelayerError(
                f"tolerance {tolerance * MESH:g} needs more than {MAX_POINTS:,} points; it is too small"
            )
    return x, y
