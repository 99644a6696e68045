"""Sparse-grid combination: several small tensor heads, summed with signs by W^O, instead of one large one.

U_l is the tensor fit with m(l_a) tokens on axis a. For a downward-closed set I of levels,
    T = sum_{l in I} c_l U_l f,   c_l = sum_{z in {0,1}^r, l + z in I} (-1)^|z|     (Griebel, Schneider, Zenger),
whose error is the sum of the surpluses left out; I grows greedily by surplus per token (Gerstner, Griebel). The levels
of an axis use Bernstein keys with one kappa where they can, so the spaces are nested (polynomials in sigmoid(kappa t)
of growing degree) and every component that a larger one dominates is folded into it. Components that differ on an axis
with other keys stay apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from onelayer.build.lookup.families import Array, Keys, bernstein
from onelayer.build.lookup.levels import Level, coefficient, held_below, moved
from onelayer.build.lookup.solve import axis_nodes, rounding_cost
from onelayer.build.lookup.tensor import MAX_SAMPLES, TensorFit, TensorFitter, solve_along

# Tokens per level: about a quarter more each, so that few are wasted.
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 26, 32)
# Slopes of a coarse scan, doubled each time.
KAPPAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
# Centres of that scan, the ends of the axis being -1 and 1.
CENTRES = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
# A constant axis is sampled off centre: at 0 the surplus of x1 * x2 in x1 alone would vanish.
ANCHOR = 0.3137
# Keys with which families of an axis are compared: few enough to be cheap, on both sides of kinks.
PROBES = (3, 5, 8)
# Beyond, choosing the next component costs more than it brings.
MAX_COMPONENTS = 1200


class SparseFitter:
    """Grows a combination of tensor heads for the function of ``fitter`` on [-1, 1]^r."""

    def __init__(self, fitter: TensorFitter) -> None:
        self.fitter = fitter
        self.rank = fitter.rank
        self._components: dict[Level, TensorFit] = {}
        self._at_holdout: dict[Level, Array] = {}

    @cached_property
    def nested(self) -> list[tuple[float, float] | None]:
        """Per axis, the Bernstein (kappa, centre) whose small members fit the slices best.

        None where the ladder's own keys, which are not nested, are better by far (a singularity near an edge).
        """
        chosen: list[tuple[float, float] | None] = []
        for ladder in self.fitter.ladders:
            scores = {}
            for pair in itertools.product(KAPPAS, CENTRES):
                trials = [ladder.trial(bernstein(m, *pair)) for m in PROBES]
                scores[pair] = _digits(trials)
            best = min(scores, key=lambda pair: scores[pair])
            free = _digits([ladder.step(m) for m in PROBES])
            # By a factor of four at every size.
            better = scores[best] - free > len(PROBES) * math.log(4)
            chosen.append(None if better else best)
        return chosen

    def fit(self, tolerance: float, max_tokens: int) -> list[TensorFit] | None:
        """Heads whose sum has held-out error <= tolerance, or None when that needs more than ``max_tokens``.

        Once the fitter's time is over the heads found so far are returned, whatever their error.
        """
        _, truth = self.fitter.holdout
        zero = (0,) * self.rank
        chosen = {zero}
        total = self._value(zero).copy()
        frontier = self._candidates(chosen, zero)
        while np.abs(total - truth).max() > tolerance:
            if self.fitter.observer.over:
                break
            if not frontier or len(chosen) > MAX_COMPONENTS:
                return None
            best = max(frontier, key=self._profit)
            frontier.discard(best)
            chosen.add(best)
            total = total + self._surplus(best)
            frontier |= self._candidates(chosen, best)
            tokens = sum(math.prod(self._sizes(level)) for level in self._tops(chosen))
            if tokens > max_tokens:
                return None
        return self._heads(chosen, tolerance)

    def _heads(self, chosen: set[Level], tolerance: float) -> list[TensorFit] | None:
        """The chosen components as heads, measured together; None where folding has cost too much."""
        points, truth = self.fitter.holdout
        heads = self._folded(chosen)
        together = sum(head(points) for head in heads)
        error = float(np.abs(together - truth).max())
        # Folding is exact up to rounding, which large values magnify.
        good = error <= 1.05 * tolerance or self.fitter.observer.over
        if good:
            return [TensorFit(head.keys, head.values, error) for head in heads]
        return None

    def _sizes(self, level: Level) -> list[int]:
        return [SIZES[l] for l in level]

    def _candidates(self, chosen: set[Level], added: Level) -> set[Level]:
        """Upper neighbours of ``added`` all of whose lower neighbours are chosen."""
        found = set()
        for axis in range(self.rank):
            level = moved(added, axis, 1)
            if level[axis] >= len(SIZES):
                continue
            samples = math.prod(map(_samples, self._sizes(level)))
            if samples <= MAX_SAMPLES // 8 and held_below(level, chosen):
                found.add(level)
        return found

    def _profit(self, level: Level) -> float:
        """The largest change that a level brings, per token."""
        change = float(np.abs(self._surplus(level)).max())
        return change / math.prod(self._sizes(level))

    def _surplus(self, level: Level) -> Array:
        """sum over z of (-1)^|z| U_{l-z} f at the held-out points: what adding ``level`` changes."""
        # On an axis of level 0 there is nothing below to subtract.
        active = [a for a, l in enumerate(level) if l > 0]
        total = np.zeros_like(self.fitter.holdout[1])
        for count in range(len(active) + 1):
            for lowered in itertools.combinations(active, count):
                lower = tuple(l - (a in lowered) for a, l in enumerate(level))
                total += (-1) ** count * self._value(lower)
        return total

    def _value(self, level: Level) -> Array:
        if level not in self._at_holdout:
            points, _ = self.fitter.holdout
            self._at_holdout[level] = self._component(level)(points)
        return self._at_holdout[level]

    def _keys(self, axis: int, size: int) -> Keys:
        base = self.nested[axis]
        if base is None:
            return self.fitter.ladders[axis].step(size)[0]
        return bernstein(size, *base)

    def _component(self, level: Level) -> TensorFit:
        if level not in self._components:
            self._components[level] = self._solved(level)
        return self._components[level]

    def _solved(self, level: Level) -> TensorFit:
        sizes = self._sizes(level)
        keys = tuple(self._keys(axis, size) for axis, size in enumerate(sizes))
        nodes = [_nodes(size) for size in sizes]
        grid = np.stack(np.meshgrid(*nodes, indexing="ij"), -1)  # (P_1, ..., P_r, r)
        samples = self.fitter.f(grid.reshape(-1, self.rank))
        values = samples.reshape(*grid.shape[:-1], -1)
        for axis in range(self.rank):
            weights = keys[axis].weights(nodes[axis])
            values = solve_along(values, axis, weights, rounding_cost(weights, self.fitter.unit))
        return TensorFit(keys, values, math.inf)

    def _tops(self, chosen: set[Level]) -> list[Level]:
        """Levels with no upper neighbour in the set along a nested axis: the heads that remain."""
        axes = [axis for axis, base in enumerate(self.nested) if base is not None]

        def dominated(level: Level) -> bool:
            return any(moved(level, axis, 1) in chosen for axis in axes)

        return [level for level in sorted(chosen) if not dominated(level)]

    def _folded(self, chosen: set[Level]) -> list[TensorFit]:
        """One head per top level: each c_l U_l f is re-expanded, exactly up to rounding, in a level above it."""
        heads: dict[Level, Array] = {}
        tops = self._tops(chosen)
        for level in sorted(chosen):
            c = coefficient(level, chosen)
            if c:
                reachable = [top for top in tops if self._below(level, top)]
                above = min(reachable, key=math.prod)
                heads[above] = heads.get(above, 0.0) + c * self._lifted(level, above)
        return [TensorFit(self._component(level).keys, values, math.inf) for level, values in heads.items()]

    def _below(self, level: Level, top: Level) -> bool:
        pairs = zip(level, top, self.nested, strict=True)
        return all(l == t or (l < t and base is not None) for l, t, base in pairs)

    def _lifted(self, level: Level, above: Level) -> Array:
        """Values of the component of ``level`` in the basis of ``above``."""
        component = self._component(level)
        lifted = component.values
        for axis, size in enumerate(self._sizes(above)):
            if level[axis] != above[axis]:
                # What the tokens below say at nodes of the axis, solved for the tokens above.
                nodes = axis_nodes(-1.0, 1.0, _samples(size))
                own = component.keys[axis].weights(nodes)
                spread = np.tensordot(own, lifted, (1, axis))  # (P, other axes, K)
                weights = self._keys(axis, size).weights(nodes)
                cost = rounding_cost(weights, self.fitter.unit)
                lifted = solve_along(np.moveaxis(spread, 0, axis), axis, weights, cost)
        return lifted


def _digits(trials: Sequence[tuple[Keys, float]]) -> float:
    """Sum of the logarithms of errors, those below rounding counted as rounding."""
    return sum(math.log(error + 1e-15) for _, error in trials)


def _nodes(size: int) -> Array:
    """Nodes of an axis of that many tokens."""
    if size == 1:
        return np.full(1, ANCHOR)
    return axis_nodes(-1.0, 1.0, _samples(size))


def _samples(size: int) -> int:
    """Nodes of an axis: two more than tokens, so that values are fitted and not only interpolated."""
    return 1 if size == 1 else size + 2
