"""Keys for a bundle of functions on one axis: the slices of a multivariate f along it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from onelayer.build.lookup.families import Array, Keys, candidates, starts
from onelayer.build.lookup.freeslopes import FAST, THOROUGH, Descent, Projection, equalise, tournament
from onelayer.observer import Observer

Effort = Literal["fast", "thorough", "thrifty"]
# Sweeps of Lawson's iteration with free keys: a few tokens settle in about as many.
LEVELLING = 30


class KeyLadder:
    """For each size, the best keys found for a bundle of slices along one axis (in t of [-1, 1]), and their sup error.

    nodes (P,), slices (P, C). penalty is the cost of one unit of |v| and bounds the values: about 1e-3 of the tolerance
    over the largest |slice| keeps them near 1e3 times f, which a proof likes. resolution: the error below which no
    effort is spent. Free slopes see the ``columns`` principal directions of the bundle. The families serve alone when
    slopes are not ``free``, there are too few nodes for them, or the ``observer`` says that it is over.
    focus: centre and width of the finest feature along the axis; edges: ends of panels where they are uneven.
    """

    def __init__(
        self,
        nodes: Array,
        slices: Array,
        penalty: float,
        resolution: float,
        effort: Effort = "fast",
        *,
        columns: int = 12,
        free: bool = True,
        focus: tuple[float, float] | None = None,
        edges: Array | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.nodes = nodes
        self.resolution = resolution
        self.free = free
        self.focus = focus
        self.edges = edges
        self.observer = observer or Observer()
        self.rounds = FAST if effort == "fast" else THOROUGH
        u, s, _ = np.linalg.svd(slices, full_matrices=False)
        # Directions below the rounding of the largest one are noise.
        significant = int((s > 1e-13 * s[0]).sum())
        keep = max(1, min(columns, significant))
        principal = u[:, :keep] * s[:keep]
        self.problem = Projection(nodes, principal, penalty, focus[0] if focus else 0.0)
        self.slices = slices
        self._steps: dict[int, tuple[Keys, float]] = {}
        self._levelled: dict[int, Keys] = {}

    def step(self, size: int) -> tuple[Keys, float]:
        """Best keys found with ``size`` tokens and their sup error over nodes and slices."""
        if size not in self._steps:
            self._steps[size] = self._search(size)
        return self._steps[size]

    def levelled(self, size: int) -> Keys:
        """The keys of a step moved on until the largest errors are level: what the sup norm asks for."""
        if size not in self._levelled:
            keys, _ = self.step(size)
            start = Descent(self.problem.pack(keys))
            parameters, _ = equalise(self.problem, start, 0.0, sweeps=LEVELLING)
            self._levelled[size] = self.problem.unpack(parameters)
        return self._levelled[size]

    def by_family(self, size: int) -> float:
        """The sup error of the best keys of ``size`` tokens among the families, without a search."""
        errors = [self.trial(keys)[1] for keys in candidates(size, self.edges)]
        return min(errors)

    def smallest(self, tolerance: float, limit: int) -> int:
        """The least size found with error at most ``tolerance`` (or ``limit``): climbing by thirds, then bisection."""
        low, high = 0, 1
        while high < limit and not self.step(high)[1] <= tolerance:
            low = high
            high = min(max(high + 1, high * 4 // 3), limit)
        while high - low > 1:
            middle = (low + high) // 2
            if self.step(middle)[1] <= tolerance:
                high = middle
            else:
                low = middle
        return high

    def trial(self, keys: Keys) -> tuple[Keys, float]:
        """Given keys and their sup error when every slice is solved with them."""
        point = self.problem.at(self.problem.pack(keys))
        # Fitted values are projections on the span of the weights, so no slice needs a solve of its own.
        q = point.q[: len(self.slices)]
        fitted = q @ (q.T @ self.slices)
        return keys, float(np.abs(fitted - self.slices).max())

    def _search(self, size: int) -> tuple[Keys, float]:
        rows, columns = self.problem.samples.shape
        # Fewer equations than unknown slopes and biases, or fewer than three nodes for a key.
        few = 2 * size > (rows + size) * columns or 3 * size > rows
        if few or not self.free or self.observer.over:
            found = list(candidates(size, self.edges))
        else:
            # Every second or third start only where a step is slow.
            scan = starts(size, self.focus, self.edges)[:: 1 + size // 24]
            entrants = [*self._extended(size), *scan]
            field = tournament(self.problem, entrants, self.resolution, self.rounds)
            found = [self.problem.unpack(runner.parameters) for runner in field]
        return min(map(self.trial, found), key=lambda pair: pair[1])

    def _extended(self, size: int) -> list[Keys]:
        """The step below with one token more, of a weight that hardly matters yet."""
        if size < 3 or size - 1 not in self._steps:
            return []
        below, _ = self._steps[size - 1]
        slopes = np.append(below.slopes, below.slopes.mean())
        # exp(-4) of the largest: a fiftieth.
        biases = np.append(below.biases, below.biases.max() - 4.0)
        return [Keys(slopes, biases, below.family)]
