"""Lawson's iteration: from weighted least squares to the smallest largest error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from onelayer.build.lookup.families import Array

Solution = TypeVar("Solution")


def never() -> bool:
    """Whether the time is over, for a solve without a deadline."""
    return False


def lawson(
    solve: Callable[[Array], tuple[Solution, Array]],
    points: int,
    *,
    sweeps: int,
    floor: float,
    goal: float = 0.0,
    over: Callable[[], bool] = never,
) -> tuple[Solution, float]:
    """Emphasise points in proportion to their error until it equioscillates; the best solution seen, and its error.

    solve       emphasis (P,) -> a solution and the size of its error at every point, (P,)
    floor       added to the share of the largest error, so that no point dies: one without error today may carry the
                next peak
    goal        an error that is small enough to stop; ``over`` says when the time is, after the first sweep
    """
    emphasis = np.ones(points)
    best, errors = solve(emphasis)
    least = _largest(errors)
    for _ in range(sweeps - 1):
        largest = errors.max()
        if least <= goal or largest == 0.0 or over():
            break
        emphasis = emphasis * (errors / largest + floor)
        emphasis /= emphasis.mean()
        found, errors = solve(emphasis)
        worst = _largest(errors)
        # The iteration does not descend at every sweep.
        if worst < least:
            best = found
            least = worst
    return best, least


def _largest(errors: Array) -> float:
    """The largest error; one that is no number is as bad as any."""
    worst = float(errors.max())
    return math.inf if math.isnan(worst) else worst
