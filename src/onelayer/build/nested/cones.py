"""Outer functions of two sums that grow in proportion to them, such as hypot(u, v): a sum of absolute values.

In the plane |cos t u + sin t v| averaged over all t is hypot(u, v) times a constant, so K directions leave a relative
error of about (pi / 4K)^2; other norms are fitted in the same directions. Absolute values take two hidden units each
and are made exactly; smooth ridges would need many for the tip of the cone.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from onelayer.build.lookup.families import Array
from onelayer.build.lookup.solve import minimax
from onelayer.build.sequences.piecewise import Piecewise
from onelayer.build.sequences.rational import function_of
from onelayer.language.formula import Formula
from onelayer.language.tree import Tape
from onelayer.lemmas.cone import around_zero, homogeneous
from onelayer.lemmas.nested import Outer, RidgeTerm

# Beyond, smooth ridges and boxes are the better way.
FEWEST, MOST_DIRECTIONS = 4, 400
# Of the rim of the box per direction, so that many lie between two kinks.
POINTS = 64
# Of large coefficients: directions between others are nearly redundant.
SIZE_COST = 1e-9


def is_cone(outer: Outer) -> bool:
    """Whether g(t u) = t g(u) for all t >= 0, and the box of the sums holds zero inside."""
    return around_zero(outer) and homogeneous(outer.formula)


def cone_ridges(outer: Outer, tolerance: float) -> tuple[RidgeTerm, ...] | None:
    """Ridges c |a . u| whose sum is within the tolerance of g at points of the rim; None where no number of them is."""
    reach = np.maximum(np.abs(outer.low), np.abs(outer.high))
    # In these units g is round.
    along = np.array([_values(outer.formula, axis[None])[0] for axis in np.eye(2)])
    if not (along > 0).all():
        return None
    count = FEWEST
    while count <= MOST_DIRECTIONS:
        angles = (np.arange(count) + 0.5) * np.pi / count
        directions = np.stack([np.cos(angles), np.sin(angles)], -1)
        weights = directions * along / float((along * reach).max())
        # Numbers of float32, so that sums of two are floats.
        weights = weights.astype(np.float32).astype(np.float64)
        # Inside, errors are those of the rim in proportion: both sides are cones.
        rim = _rim(outer, POINTS * count)
        basis = np.abs(rim @ weights.T)
        truth = _values(outer.formula, rim)
        columns, _ = minimax(basis, truth[:, None], SIZE_COST)
        coefficients = columns[:, 0]
        error = float(np.abs(basis @ coefficients - truth).max())
        if error <= tolerance:
            rows = zip(weights.tolist(), coefficients.tolist(), strict=True)
            return tuple(RidgeTerm(tuple(row), _text(c), 0.0) for row, c in rows)
        # The error falls with the square of their number; at most twice as many, for it is an estimate.
        growth = math.sqrt(error / tolerance) if error < math.inf else 2.0
        count = max(count + 1, math.ceil(count * min(2.0, growth)))
    return None


def exactly(ridge: RidgeTerm, low: float, high: float) -> Piecewise:
    """c |s| on [low, high] around zero, in two pieces."""
    knots = np.array([low, 0.0, high])
    values: Array = ridge.formula(torch.from_numpy(knots)[:, None]).numpy()
    return Piecewise(knots, values)


def _text(c: float) -> str:
    """c |x1|."""
    tape = Tape()
    size = tape.add("abs", tape.variable(0))
    value = tape.add("mul", tape.number(c), size)
    return str(function_of(tape, value))


def _values(formula: Formula, u: Array) -> Array:
    found: Array = formula(torch.from_numpy(u)).numpy()
    return found


def _rim(outer: Outer, count: int) -> Array:
    """Points on the four edges of the box."""
    share = np.linspace(0, 1, max(2, count // 4))
    a, c = outer.low
    b, d = outer.high
    across = a + (b - a) * share
    upwards = c + (d - c) * share
    left, right, bottom, top = (np.full_like(share, end) for end in (a, b, c, d))
    edges = [(left, upwards), (right, upwards), (across, bottom), (across, top)]
    return np.concatenate([np.stack(edge, -1) for edge in edges])
