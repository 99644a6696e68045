"""One head over a tensor grid of memory tokens: the softmax factorises, so everything reduces to one axis at a time.

With keys of axis a alone in each factor, alpha_m(u) = prod_a alpha^a_{m_a}(u_a), and the least-squares values are the
Kronecker product of one-axis solves applied to samples of f on a grid. Nothing of size prod M_a squared is ever formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.families import Array, Keys, products
from onelayer.build.lookup.ladder import KeyLadder
from onelayer.build.lookup.sampling import Sampler
from onelayer.build.lookup.solve import axis_nodes, minimax, solve_axis
from onelayer.observer import Observer

# Points (S, r) of [-1, 1]^r -> values (S, K).
UnitFunction = Callable[[Array], Array]

MAX_SAMPLES = 2_000_000  # 16 MB of float64 numbers
# Resolve the sharpest keys on offer; values solved on fewer nodes may swing between them.
AXIS_NODES = 96
# Up to which a grid has that many nodes on every axis.
EASY_SAMPLES = 300_000
# Of one axis: for so many its slices have nodes.
MOST_KEYS = 160
# Penalty on large values in units of the relative tolerance, so that it never decides the error.
PENALTY = 1e-4
# At least: keys solved on fewer swing between them.
NODES_PER_KEY = 3
# The least penalty in unit roundoffs, that of a sum of a few dozen terms.
ROUNDINGS = 20
FREE_NODES = 240  # up to which slopes are searched freely
# Free slopes lean on large values, which float32 cannot carry.
FREE_UNIT = 1e-12
# Up to which the dense basis, eight points a token, takes ten megabytes.
POLISH_TOKENS = 420
# Of an axis, up to which its keys are levelled: a tenth of a second.
LEVELLED_KEYS = 12
# Of the tolerance, tried first: rows of a table have noise, below which keys are found slowly.
LARGE_SHARE = 0.5


@dataclass(frozen=True)
class TensorFit:
    """Keys per axis (in the normalised coordinates) and values (M_1, ..., M_r, K) with their held-out sup error."""

    keys: tuple[Keys, ...]
    values: Array
    error: float

    @property
    def tokens(self) -> int:
        """Tokens of the whole grid."""
        return math.prod(len(keys) for keys in self.keys)

    def __call__(self, points: Array) -> Array:
        """Evaluate at points (S, r) -> (S, K)."""
        # (M_1, ..., M_r, K), then (S, M_1, ..., M_axis, K).
        out = self.values
        last = len(self.keys) - 1
        for axis in reversed(range(len(self.keys))):
            weights = self.keys[axis].weights(points[:, axis])  # (S, M)
            # At first the points are not yet an axis of ``out``.
            rule = "sm,...mk->s...k" if axis == last else "sm,s...mk->s...k"
            out = np.einsum(rule, weights, out)
        return out


class TensorFitter:
    """Searches the sizes of one tensor head for f on [-1, 1]^r.

    tolerance: the error that matters, which sets how closely slices are looked at and what large values cost.
    unit: unit roundoff of the executing format. Once the ``observer`` says that it is over the best found has to do.
    """

    def __init__(
        self,
        f: UnitFunction,
        rank: int,
        tolerance: float,
        *,
        unit: float,
        seed: int = 0,
        slices: int = 48,
        observer: Observer | None = None,
    ) -> None:
        self.f = f
        self.rank = rank
        self.tolerance = tolerance
        self.unit = unit
        self.seed = seed
        self.slices = slices
        self.observer = observer or Observer()
        self._grid: tuple[list[Array], Array] | None = None

    @cached_property
    def penalty(self) -> float:
        """The cost of one unit of |v|: values much larger than f are hard on rounding and on the proof."""
        largest = float(np.abs(self.holdout[1]).max()) or 1.0
        return max(ROUNDINGS * self.unit, PENALTY * self.tolerance / largest)

    @cached_property
    def holdout(self) -> tuple[Array, Array]:
        """Arcsine-distributed points, corners included, and f there: never used to solve for values."""
        scattered = arcsine_points(self.rank, 4096, self.seed + 7)
        grid = np.meshgrid(*[[-1.0, 1.0]] * self.rank)
        corners = np.array(grid).reshape(self.rank, -1).T
        points = np.concatenate([scattered, corners[:1024]])
        return points, self.f(points)

    @cached_property
    def ladders(self) -> list[KeyLadder]:
        """For every axis, its keys by number of tokens."""
        return [self._ladder(axis, AXIS_NODES) for axis in range(self.rank)]

    @cached_property
    def fine(self) -> list[KeyLadder]:
        """The same at so many nodes that the largest sizes are held by them; families alone."""
        return [self._ladder(axis, NODES_PER_KEY * MOST_KEYS) for axis in range(self.rank)]

    def _ladder(self, axis: int, minimum: int) -> KeyLadder:
        """Keys for slices of f along the axis through scattered points, at nodes that resolve them."""
        anchors = arcsine_points(self.rank, self.slices, self.seed)

        def along(x: Tensor) -> Array:
            points = np.repeat(anchors[None], len(x), axis=0)  # (P, C, r)
            points[:, :, axis] = x.numpy()[:, None]
            values = self.f(points.reshape(-1, self.rank))
            return values.reshape(len(x), -1)

        sampler = Sampler(along, -1.0, 1.0, self.tolerance / 8)
        nodes, _, slices = sampler.points(minimum)
        focus = sampler.focus()
        return KeyLadder(
            nodes,
            slices,
            self.penalty,
            self.tolerance / 10,
            free=len(nodes) <= FREE_NODES and self.unit <= FREE_UNIT,
            focus=None if focus is None else (focus.centre, focus.width),
            edges=sampler.crowded,
            observer=self.observer,
        )

    def _holding(self, sizes: Sequence[int]) -> list[KeyLadder]:
        """For every axis the ladder whose nodes hold that many keys."""
        found = []
        for axis, size in enumerate(sizes):
            ladder = self.ladders[axis]
            enough = NODES_PER_KEY * size <= len(ladder.nodes)
            found.append(ladder if enough else self.fine[axis])
        return found

    def fit(self, tolerance: float, max_tokens: int) -> TensorFit | None:
        """The smallest tensor head found with held-out error <= tolerance, or None when none fits in ``max_tokens``.

        One number c ties the axes together: each axis gets the least size whose slice error is <= c * tolerance. The
        largest c that passes is found by bisection; then single axes are shortened while the head still passes.
        """
        best: TensorFit | None = None
        # Four times the tokens, since shortening may yet bring a head within them.
        most = 4 * max_tokens
        low = 0.002
        high = 1.5
        for turn in range(7):
            if self.observer.over:
                break
            share = math.sqrt(low * high) if turn else LARGE_SHARE
            sizes = self._sizes(share * tolerance, most)
            fit = self.solve(sizes) if math.prod(sizes) <= most else None
            if fit is not None and fit.error <= tolerance:
                best = fit
                low = share
            else:
                high = share
        if best is None:
            return None
        return self.shortened(best, tolerance)

    def hasty(self, max_tokens: int) -> TensorFit | None:
        """The best of a few heads of equal sizes: what can be had when there is no time left to search."""
        most = min(MOST_KEYS, int(max_tokens ** (1 / self.rank)))
        sizes = sorted({most, max(most // 2, 1), min(most, 8)})
        tried = [self.solve([size] * self.rank) for size in sizes]
        fits = [fit for fit in tried if fit is not None]
        return min(fits, key=lambda fit: fit.error, default=None)

    def oscillates(self, tolerance: float) -> bool:
        """Whether the slices of some axis turn too often for the sizes that are searched."""
        return any(ladder.by_family(_most_searched(ladder)) > tolerance for ladder in self.ladders)

    def plain(self, tolerance: float, max_tokens: int) -> TensorFit | None:
        """The smallest head of equal sizes that passes, shortened axis by axis: keys by family, values solved.

        For functions with many oscillations, whose slices have more of them than the search of keys looks at.
        """
        # Smaller ones were searched.
        size = 1 + max(map(_most_searched, self.ladders))
        found: TensorFit | None = None
        while found is None and size**self.rank <= max_tokens and size <= MOST_KEYS and not self.observer.over:
            fit = self.solve([size] * self.rank)
            if fit is not None and fit.error <= tolerance:
                found = fit
            size = size * 5 // 4
        if found is not None:
            for axis in range(self.rank):
                found = self._thinned(found, axis, tolerance)
        return found

    def _thinned(self, fit: TensorFit, axis: int, tolerance: float) -> TensorFit:
        """One axis a sixteenth shorter at a time, while the error stays within tolerance."""
        while not self.observer.over:
            sizes = [len(keys) for keys in fit.keys]
            sizes[axis] = sizes[axis] * 15 // 16
            # Sizes for which keys were found one by one.
            searched = sizes[axis] <= len(self.ladders[axis].nodes) // 3
            shorter = None if searched else self.solve(sizes)
            if shorter is None or shorter.error > tolerance:
                break
            fit = shorter
        return fit

    def solve(self, sizes: Sequence[int]) -> TensorFit | None:
        """Values by one-axis least squares along every axis in turn; None when the sample grid would be too large."""
        nodes = self._grid_nodes(sizes)
        if math.prod(map(len, nodes)) > MAX_SAMPLES:
            return None
        values = self._on_grid(nodes)
        keys = []
        for ladder, size in zip(self._holding(sizes), sizes, strict=True):
            best, _ = ladder.step(size)
            keys.append(best)
        for axis, own in enumerate(keys):
            weights = own.weights(nodes[axis])
            values = solve_along(values, axis, weights, self.penalty)
        return self._measured(tuple(keys), values)

    def _on_grid(self, nodes: Sequence[Array]) -> Array:
        """f on the grid of the nodes; the last grid is kept, since most solves ask for the same one."""
        if self._grid is None or not all(map(np.array_equal, self._grid[0], nodes)):
            grid = np.stack(np.meshgrid(*nodes, indexing="ij"), -1)  # (P_1, ..., P_r, r)
            counts = grid.shape[:-1]
            values = self.f(grid.reshape(-1, self.rank))
            self._grid = list(nodes), values.reshape(*counts, -1)
        _, on_grid = self._grid
        return on_grid

    def _grid_nodes(self, sizes: Sequence[int]) -> list[Array]:
        """Per axis the nodes that resolve its slices while the grid stays easy, else Chebyshev nodes, two per token."""
        # One token is a constant along its axis: one node in the middle decides on it.
        middle = np.zeros(1)
        resolved = [ladder.nodes for ladder in self._holding(sizes)]
        resolved = [middle if m == 1 else nodes for m, nodes in zip(sizes, resolved, strict=True)]
        if math.prod(map(len, resolved)) <= EASY_SAMPLES:
            return resolved
        room = int(MAX_SAMPLES ** (1 / self.rank))
        plenty = min(AXIS_NODES, int(EASY_SAMPLES ** (1 / self.rank)))
        found = []
        for m in sizes:
            count = max(m, plenty, min(2 * m + 2, room))
            found.append(middle if m == 1 else axis_nodes(-1.0, 1.0, count))
        return found

    def _sizes(self, tolerance: float, limit: int = MOST_KEYS) -> list[int]:
        """Per axis the least size whose slices are met."""
        found = []
        for ladder in self.ladders:
            most = min(limit, MOST_KEYS, len(ladder.nodes) // 3)
            found.append(ladder.smallest(tolerance, most))
        return found

    def predicted(self, tolerance: float) -> int:
        """Tokens a head of that tolerance would need, from the slices alone."""
        return math.prod(self._sizes(tolerance / self.rank))

    def polish(self, fit: TensorFit) -> TensorFit:
        """Minimax polish of all values at once, for heads small enough to hold the dense basis."""
        if fit.tokens > POLISH_TOKENS or self.rank > 3:
            return fit
        count = max(8 * fit.tokens, 512)
        held_out, _ = self.holdout
        corners = held_out[-(2**self.rank) :]
        scattered = arcsine_points(self.rank, count, self.seed + 3)
        points = np.concatenate([scattered, corners])
        weights = products([keys.weights(points[:, axis]) for axis, keys in enumerate(fit.keys)])
        values, _ = minimax(weights, self.f(points), self.penalty, sweeps=8)
        polished = self._measured(fit.keys, values.reshape(fit.values.shape))
        if polished.error < fit.error:
            return polished
        return fit

    def shortened(self, fit: TensorFit, tolerance: float) -> TensorFit:
        """Drop tokens from single axes, most expensive slab first, while the polished error stays within tolerance."""
        improved = True
        while improved and not self.observer.over:
            improved = False
            sizes = [len(keys) for keys in fit.keys]
            for axis in sorted(range(self.rank), key=lambda a: sizes[a]):
                shorter = self._without(sizes, axis, tolerance) if sizes[axis] > 1 else None
                if shorter is not None and shorter.error <= tolerance:
                    fit = shorter
                    improved = True
                    break
        return fit

    def _without(self, sizes: list[int], axis: int, tolerance: float) -> TensorFit | None:
        """The fit with one token less on an axis, polished or levelled where that may bring it within tolerance."""
        fewer = [m - (a == axis) for a, m in enumerate(sizes)]
        shorter = self.solve(fewer)
        # Below half of it there is nothing to gain yet, beyond four times nothing helps.
        if shorter is None or not tolerance / 2 < shorter.error < 4 * tolerance:
            return shorter
        return self._levelled(fewer, axis, self.polish(shorter))

    def _levelled(self, sizes: list[int], axis: int, fit: TensorFit) -> TensorFit:
        """The fit with keys and values of one axis for the sup norm, where that is better than what there is.

        That axis is solved first and for all slices at once: what its tokens miss is the largest part of the error.
        """
        ladder = self.ladders[axis]
        held = self._holding(sizes)[axis] is ladder
        if not 1 < sizes[axis] <= LEVELLED_KEYS or not ladder.free or not held:
            return fit
        nodes = self._grid_nodes(sizes)
        own = ladder.levelled(sizes[axis])
        keys = (*fit.keys[:axis], own, *fit.keys[axis + 1 :])
        weights = own.weights(nodes[axis])
        values = _along(self._on_grid(nodes), axis, lambda columns: minimax(weights, columns, self.penalty)[0])
        for other in range(self.rank):
            if other != axis:
                weights_there = keys[other].weights(nodes[other])
                values = solve_along(values, other, weights_there, self.penalty)
        levelled = self._measured(keys, values)
        return levelled if levelled.error < fit.error else fit

    def _measured(self, keys: tuple[Keys, ...], values: Array) -> TensorFit:
        points, truth = self.holdout
        fit = TensorFit(keys, values, math.inf)
        error = float(np.abs(fit(points) - truth).max())
        # An error that is no number is as bad as any.
        return replace(fit, error=error if math.isfinite(error) else math.inf)


def _most_searched(ladder: KeyLadder) -> int:
    """The largest size for which the nodes of an axis decide on keys."""
    return max(1, len(ladder.nodes) // 3)


def solve_along(samples: Array, axis: int, weights: Array, penalty: float | Array) -> Array:
    """Samples (P_1, ..., P_r, K) with those of one axis replaced by the values of its tokens, weights (P_axis, M)."""
    return _along(samples, axis, lambda columns: solve_axis(weights, columns, penalty))


def _along(samples: Array, axis: int, solve: Callable[[Array], Array]) -> Array:
    """An array with one axis replaced by what ``solve`` makes of it, (P_axis, all the rest) -> (M, all the rest)."""
    moved = np.moveaxis(samples, axis, 0)
    solved = solve(moved.reshape(len(moved), -1))
    unfolded = solved.reshape(-1, *moved.shape[1:])
    return np.moveaxis(unfolded, 0, axis)


def arcsine_points(rank: int, count: int, seed: int) -> Array:
    """Scrambled Sobol points of [-1, 1]^rank crowded towards the faces, where smooth fits err most."""
    cube = Box([0.0] * rank, [1.0] * rank)
    unit = cube.sample(count, seed=seed).numpy()
    points: Array = -np.cos(np.pi * unit)
    return points
