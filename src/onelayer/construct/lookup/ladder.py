"""Keys for a bundle of functions on one axis: the slices of a multivariate f along it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from onelayer.construct.lookup.families import Array, Keys, starts
from onelayer.construct.lookup.freeslopes import FAST, THOROUGH, Projection, tournament

Effort = Literal["fast", "thorough"]


class KeyLadder:
    """For each size, the best keys found for a bundle of slices along one axis (in t of [-1, 1]), and their sup error.

    nodes (P,), slices (P, C). ridge is the cost of one unit of |v|; resolution is the error below which no effort is
    spent, so that a ladder serves every tolerance down to it.
    """

    def __init__(
        self, nodes: Array, slices: Array, ridge: float, resolution: float, effort: Effort = "fast", columns: int = 12
    ) -> None:
        self.rounds = FAST if effort == "fast" else THOROUGH
        self.resolution = resolution
        u, s, _ = np.linalg.svd(slices, full_matrices=False)
        keep = max(1, min(columns, int((s > resolution / 10).sum())))
        self.problem = Projection(nodes, u[:, :keep] * s[:keep], ridge)
        self.slices = slices
        self._rungs: dict[int, tuple[Keys, float]] = {}

    def rung(self, size: int) -> tuple[Keys, float]:
        """Best keys with ``size`` tokens and their sup error over nodes and slices."""
        if size not in self._rungs:
            warm = [_extended(self._rungs[size - 1][0])] if size - 1 in self._rungs and size > 2 else []
            runner = tournament(self.problem, [*warm, *starts(size)], self.resolution, self.rounds)[0]
            self._rungs[size] = self.problem.unpack(runner.parameters), self.sup_error(runner.parameters)
        return self._rungs[size]

    def sup_error(self, parameters: Array) -> float:
        """Sup over nodes and all original slices when every slice is solved with these keys."""
        point = self.problem.at(parameters)
        rows = len(self.problem.nodes)
        projected = point.q[:rows] @ (point.q[:rows].T @ self.slices)
        return float(np.abs(projected - self.slices).max())

    def smallest(self, tolerance: float, limit: int) -> int:
        """The least size found with error at most ``tolerance`` (or ``limit``): climbing by thirds, then bisection."""
        low, high = 0, 1
        while high < limit and not self.rung(high)[1] <= tolerance:
            low, high = high, min(max(high + 1, high * 4 // 3), limit)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.rung(middle)[1] <= tolerance else (middle, high)
        return high


def _extended(keys: Keys) -> Keys:
    """One token more, of a weight that hardly matters yet."""
    slopes = np.append(keys.slopes, keys.slopes.mean())
    return Keys(slopes, np.append(keys.biases, keys.biases.max() - 4.0), keys.family)
