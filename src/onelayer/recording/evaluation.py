"""Evaluating f without losing sight of the time: a slow f gets its points in small parts, a fast one all at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.language.formula import Formula
from onelayer.observer import Observer
from onelayer.points import dense, need_tensor, points_of

# Points of the second probe: enough to tell a slow point from a slow call.
PROBED = 17
# Seconds of a probe below which f is fast: a busy machine must not change how a fast f is called.
NOTICED = 0.02
PART = 0.25  # seconds between two looks at the clock
# Operations that stand for quotients with a removable singularity.
CONTINUED = ("sinrel", "exprel")


@dataclass(frozen=True)
class Pace:
    """Seconds that one call of f takes, and each point of it; zeros for a function too fast to notice."""

    call: float = 0.0
    point: float = 0.0

    def batch(self, count: int) -> int:
        """How many of ``count`` points to evaluate at once."""
        # So fast that no look at the clock is missed.
        if self.point * count <= 2 * PART:
            return max(1, count)
        return max(1, int(max(PART, self.call) / self.point))


def pace_of(function: Callable[[Any], Any], points: Tensor) -> Pace:
    """The pace of a function, from one point and from a few."""
    one = _seconds(function, points[:1])
    few = _seconds(function, points[:PROBED])
    if few < NOTICED:
        return Pace()
    # What the second probe takes longer than the first is due to its points alone.
    more = max(1, len(points[:PROBED]) - 1)
    return Pace(one, max(0.0, few - one) / more)


def _seconds(function: Callable[[Any], Any], points: Tensor) -> float:
    started = time.monotonic()
    with torch.no_grad():
        function(points.clone())
    return time.monotonic() - started


def evaluate(function: Callable[[Any], Any], points: Tensor, pace: Pace, observer: Observer) -> Tensor:
    """f at points (C, *shape), in parts as long as the pace allows; raises Stopped between two parts."""
    parts: list[Tensor] = []
    for part in torch.split(points, pace.batch(len(points))):
        if parts:
            observer.check()
        parts.append(function(part.clone()))
    # The very tensor that f returned, in its own format.
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts)


def at_points(formula: Formula, x: Any) -> Any:
    """A formula at a tensor of points, or at an array or a list of them as an array."""
    if isinstance(x, np.ndarray | list | tuple):
        return formula(torch.from_numpy(points_of(x))).numpy()
    need_tensor(x)
    return formula(dense(x) if isinstance(x, Tensor) else x)


def continued(function: Callable[[Tensor], Tensor], formula: Formula) -> Callable[[Tensor], Tensor]:
    """The function, with the value of its formula where the code has none: sin(x) / x is 1 at zero, not NaN."""
    if not any(node.op in CONTINUED for node in formula.nodes):
        return function

    def value(x: Tensor) -> Tensor:
        # 0/0 is what the formula answers.
        with np.errstate(divide="ignore", invalid="ignore"):
            found = function(x)
        holes = ~torch.isfinite(found)
        if bool(holes.any()):
            values = formula(x.to(found.device))
            return torch.where(holes, values.to(found), found)
        return found

    return value
