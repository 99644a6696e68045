"""One head over a tensor grid of memory tokens: the softmax factorises, so everything reduces to one axis at a time.

With keys of axis a alone in each factor, alpha_m(u) = prod_a alpha^a_{m_a}(u_a), and the least-squares values are the
Kronecker product of one-axis solves applied to samples of f on a grid. Nothing of size prod M_a squared is ever formed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.quasirandom import SobolEngine

from onelayer.construct.lookup.families import Array, Keys, candidates
from onelayer.construct.lookup.solve import axis_nodes, minimax, rounding_cost, solve_axis

UnitFunction = Callable[[Array], Array]  # points (S, r) of [-1, 1]^r -> values (S, K)

MAX_SAMPLES = 2_000_000
AXIS_NODES = 96  # resolve the sharpest keys on offer; values solved on fewer nodes may swing between them
EASY_SAMPLES = 300_000  # up to which a grid has that many nodes on every axis
POLISH_TOKENS = 420


@dataclass(frozen=True)
class TensorFit:
    """Keys per axis (in the normalised coordinates) and values (M_1, ..., M_r, K) with their held-out sup error."""

    keys: tuple[Keys, ...]
    values: Array
    error: float

    @property
    def tokens(self) -> int:
        return math.prod(len(keys) for keys in self.keys)

    def __call__(self, points: Array) -> Array:
        """Evaluate at points (S, r) -> (S, K)."""
        out = self.values
        for axis in reversed(range(len(self.keys))):  # out: (M_1, ..., M_axis, K) or (S, M_1, ..., M_axis, K)
            weights = self.keys[axis].weights(points[:, axis])  # (S, M)
            out = np.einsum("sm,...mk->s...k" if axis == len(self.keys) - 1 else "sm,s...mk->s...k", weights, out)
        return out


class AxisLadder:
    """For each size, the keys that fit a bundle of slices of f along one axis best, and that error."""

    def __init__(self, nodes: Array, slices: Array, unit: float) -> None:
        self.nodes, self.slices, self.unit = nodes, slices, unit
        self._rungs: dict[int, tuple[Keys, float]] = {}

    def rung(self, size: int) -> tuple[Keys, float]:
        """Best keys with ``size`` tokens and their sup error over nodes and slices."""
        if size not in self._rungs:
            self._rungs[size] = min((self.trial(keys) for keys in candidates(size)), key=lambda pair: pair[1])
        return self._rungs[size]

    def smallest(self, tolerance: float, limit: int) -> int:
        """The least size whose error is at most ``tolerance`` (or ``limit``): doubling, then bisection."""
        high = 1
        while high < limit and not self.rung(high)[1] <= tolerance:
            high = min(2 * high, limit)
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.rung(middle)[1] <= tolerance else (middle, high)
        return high

    def trial(self, keys: Keys) -> tuple[Keys, float]:
        weights = keys.weights(self.nodes)
        cost = rounding_cost(weights, self.unit)
        values = solve_axis(weights, self.slices, cost)
        residual = np.abs(weights @ values - self.slices).max()
        return keys, float(residual + (cost[:, None] * np.abs(values)).sum(0).max())


class TensorFitter:
    """Searches the sizes of one tensor head for f on [-1, 1]^r."""

    def __init__(self, f: UnitFunction, rank: int, *, unit: float, seed: int = 0, slices: int = 48) -> None:
        self.f, self.rank, self.unit, self.seed = f, rank, unit, seed
        self.slices = slices

    @cached_property
    def holdout(self) -> tuple[Array, Array]:
        """Arcsine-distributed points, corners included, and f there: never used to solve for values."""
        points = arcsine_points(self.rank, 4096, self.seed + 7)
        corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * self.rank)).reshape(self.rank, -1).T[:1024]
        points = np.concatenate([points, corners])
        return points, self.f(points)

    @cached_property
    def ladders(self) -> list[AxisLadder]:
        nodes = axis_nodes(-1.0, 1.0, AXIS_NODES)
        anchors = arcsine_points(self.rank, self.slices, self.seed)
        ladders = []
        for axis in range(self.rank):
            points = np.repeat(anchors[None], len(nodes), axis=0)  # (P, C, r)
            points[:, :, axis] = nodes[:, None]
            values = self.f(points.reshape(-1, self.rank)).reshape(len(nodes), -1)
            ladders.append(AxisLadder(nodes, values, self.unit))
        return ladders

    def fit(self, tolerance: float, max_tokens: int, deadline: float = math.inf) -> TensorFit | None:
        """The smallest tensor head found with held-out error <= tolerance, or None when none fits in ``max_tokens``.

        One number c ties the axes together: each axis gets the least size whose slice error is <= c * tolerance. The
        largest c that passes is found by bisection; then single axes are shortened while the head still passes. After
        ``deadline`` (of time.monotonic) the best found so far has to do.
        """
        best: TensorFit | None = None
        low, high = 0.002, 1.5
        for _ in range(7):
            if time.monotonic() > deadline:
                break
            share = math.sqrt(low * high)
            sizes = [ladder.smallest(share * tolerance, 160) for ladder in self.ladders]
            fit = self.solve(sizes) if math.prod(sizes) <= 4 * max_tokens else None
            if fit is not None and fit.error <= tolerance:
                best, low = fit, share
            else:
                high = share
        return None if best is None else self._shorten(best, tolerance, deadline)

    def solve(self, sizes: Sequence[int]) -> TensorFit | None:
        """Values by one-axis least squares along every axis in turn; None when the sample grid would be too large."""
        room, plenty = int(MAX_SAMPLES ** (1 / self.rank)), min(AXIS_NODES, int(EASY_SAMPLES ** (1 / self.rank)))
        counts = [1 if m == 1 else max(m, plenty, min(2 * m + 2, room)) for m in sizes]
        if math.prod(counts) > MAX_SAMPLES:
            return None
        nodes = [np.zeros(1) if count == 1 else axis_nodes(-1.0, 1.0, count) for count in counts]
        grid = np.stack(np.meshgrid(*nodes, indexing="ij"), -1).reshape(-1, self.rank)
        values = self.f(grid).reshape(*counts, -1)
        keys = tuple(ladder.rung(size)[0] for ladder, size in zip(self.ladders, sizes, strict=True))
        for axis in range(self.rank):
            weights = keys[axis].weights(nodes[axis])
            moved = np.moveaxis(values, axis, 0)
            cost = rounding_cost(weights, self.unit) if self.unit else 0.0
            solved = solve_axis(weights, moved.reshape(len(moved), -1), cost)
            values = np.moveaxis(solved.reshape(-1, *moved.shape[1:]), 0, axis)
        return self._measured(keys, values)

    def predicted(self, tolerance: float) -> int:
        """Tokens a head of that tolerance would need, from the slices alone."""
        return math.prod(ladder.smallest(tolerance / self.rank, 160) for ladder in self.ladders)

    def polish(self, fit: TensorFit) -> TensorFit:
        """Minimax polish of all values at once, for heads small enough to hold the dense basis."""
        if fit.tokens > POLISH_TOKENS or self.rank > 3:
            return fit
        count = max(8 * fit.tokens, 512)
        points = np.concatenate([arcsine_points(self.rank, count, self.seed + 3), self.holdout[0][-(2**self.rank) :]])
        weights = self._dense(fit.keys, points)
        values, _ = minimax(weights, self.f(points), rounding_cost(weights, self.unit), sweeps=8)
        polished = self._measured(fit.keys, values.reshape(fit.values.shape))
        return polished if polished.error < fit.error else fit

    def _shorten(self, fit: TensorFit, tolerance: float, deadline: float) -> TensorFit:
        """Drop tokens from single axes, most expensive slab first, while the polished error stays within tolerance."""
        improved = True
        while improved and time.monotonic() < deadline:
            improved = False
            sizes = [len(keys) for keys in fit.keys]
            for axis in sorted(range(self.rank), key=lambda a: sizes[a]):
                if sizes[axis] == 1:
                    continue
                shorter = self.solve([m - (a == axis) for a, m in enumerate(sizes)])
                if shorter is not None and shorter.error > tolerance and shorter.error < 4 * tolerance:
                    shorter = self.polish(shorter)
                if shorter is not None and shorter.error <= tolerance:
                    fit, improved = shorter, True
                    break
        return fit

    def _measured(self, keys: tuple[Keys, ...], values: Array) -> TensorFit:
        points, truth = self.holdout
        fit = TensorFit(keys, values, math.inf)
        error = float(np.abs(fit(points) - truth).max())
        return TensorFit(keys, values, error if math.isfinite(error) else math.inf)

    def _dense(self, keys: tuple[Keys, ...], points: Array) -> Array:
        dense = np.ones((len(points), 1))
        for axis, axis_keys in enumerate(keys):
            dense = (dense[:, :, None] * axis_keys.weights(points[:, axis])[:, None]).reshape(len(points), -1)
        return dense


def arcsine_points(rank: int, count: int, seed: int) -> Array:
    """Scrambled Sobol points of [-1, 1]^rank crowded towards the faces, where smooth fits err most."""
    engine = SobolEngine(rank, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    sobol = engine.draw(count, dtype=torch.float64)
    points: Array = -np.cos(np.pi * sobol.numpy())
    return points
