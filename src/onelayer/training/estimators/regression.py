"""Ridge regression on the heads of a table, its size chosen by cross-validation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from onelayer.layer.transformer import OneLayerTransformer
from onelayer.training.estimators.metric import learn_points
from onelayer.training.estimators.tabular import Array, Basis, GridHead, Head, PointHead, curvature, grid_head

ALPHAS = tuple(10.0 ** np.arange(-7, 2.1, 0.5))
AXIS_TOKENS = (0, 6, 12)  # per axis: none, as for a low polynomial, as for a curve
PAIRS = (1, 3, 6)  # of columns that get a table of their own
PAIR_TOKENS = 5  # per axis of such a table
MEMORY_TOKENS = (64, 200)  # rows that are remembered as centres
ROWS_PER_TOKEN = 3  # below, tokens only remember noise
MOST_COMPARED = 1500  # rows on which designs are compared: enough to tell them apart; the fit takes all rows
SCREENED = 15  # columns among which pairs are looked for
SCREENING_TOKENS = 6  # per axis of that look
SCREENING_ALPHA = 1e-3  # its penalty


@dataclass(frozen=True)
class Design:
    """How much of each kind: tokens per feature, pairs of features, scattered rows of the table."""

    axis_tokens: int = 0
    pairs: int = 0
    memory_tokens: int = 0


@dataclass(frozen=True)
class RidgeFactors:
    """min |y - c - Phi v|^2 / n + alpha v' P v for every alpha, through one eigendecomposition."""

    centre: Array
    target: Array
    basis: Array  # (P, r): v = basis @ coordinates
    squares: Array  # (r,)
    moments: Array  # (r, K)

    @classmethod
    def of(cls, phi: Array, y: Array, root: Array, weights: Array | None = None) -> RidgeFactors:
        """``root`` R has R R' = inverse of P, so that v = R w turns the penalty into alpha |w|^2.

        ``weights`` (n,) say how much each row counts.
        """
        share = np.ones(len(y)) if weights is None else weights * (len(y) / weights.sum())
        centre = (share @ phi) / len(y)
        target = (share @ y) / len(y)
        each = np.sqrt(share)[:, None]
        free = each * (phi - centre) @ root
        rest = each * (y - target) / len(y)
        # The smaller of the two products with the transpose has the same eigenvalues, zeros aside.
        if len(phi) < free.shape[1]:
            squares, left = np.linalg.eigh(free @ free.T / len(y))
            # Vectors of rounding noise would be divided by next to nothing.
            keep = squares > 1e-14 * max(squares[-1], 1e-300)
            squares = squares[keep]
            left = left[:, keep]
            vectors = free.T @ left / np.sqrt(squares * len(y))
        else:
            squares, vectors = np.linalg.eigh(free.T @ free / len(y))
        moments = vectors.T @ (free.T @ rest)
        return cls(centre, target, root @ vectors, np.maximum(squares, 0.0), moments)

    def values(self, alpha: float) -> tuple[Array, Array]:
        """Values (P, K) and intercept (K,)."""
        coordinates = self.moments / (self.squares + alpha)[:, None]
        v = self.basis @ coordinates
        return v, self.target - self.centre @ v


@dataclass(frozen=True)
class TableFit:
    """A basis with the values that ridge regression gave it."""

    basis: Basis
    values: Array
    intercept: Array

    def predict(self, x: Array) -> Array:
        """Predictions for rows."""
        return np.asarray(self.basis.features(x) @ self.values + self.intercept)

    def model(self) -> OneLayerTransformer:
        """The layer that predicts the same, (D,) -> (K,)."""
        return self.basis.model(self.values, self.intercept)


class Builder:
    """Bases for one table of inputs x (n, D) and outputs y (n, K); what several designs share is computed once."""

    def __init__(self, x: Array, y: Array, seed: int, weights: Array | None = None) -> None:
        self.x = x
        self.y = y
        self.seed = seed
        self.weights = weights
        self.mean = x.mean(0)
        deviation = x.std(0)
        # Below this a column is constant, and what its standard deviation shows is rounding.
        noise = 1e-12 * np.maximum(np.abs(self.mean), 1e-300)
        self.scale = np.where(deviation > noise, deviation, 1.0)
        self.u = (x - self.mean) / self.scale
        self.fits: dict[int, TableFit] = {}
        self.points: dict[int, PointHead] = {}

    def basis(self, design: Design) -> Basis:
        """The heads of a design; y decides which pairs and which features matter."""
        heads: list[Head] = list(self._additive(design.axis_tokens).basis.heads)
        if design.pairs:
            residual = self.y - self._additive(design.axis_tokens).predict(self.x)
            heads += _best_pairs(self.u, residual, self._relevance(), design.pairs)
        if design.memory_tokens:
            count = design.memory_tokens
            if count not in self.points:
                self.points[count] = learn_points(self.u, self.y, self._relevance(), count, self.seed)
            heads.append(self.points[count])
        return Basis(tuple(heads), self.mean, self.scale)

    def fit(self, design: Design, alpha: float) -> TableFit:
        """Ridge regression with one penalty on all rows."""
        return _ridge(self.basis(design), self.x, self.y, alpha, self.weights)

    def _additive(self, tokens: int) -> TableFit:
        if tokens not in self.fits:
            columns = range(self.x.shape[1]) if tokens else ()
            singles = [grid_head(self.u, [i], tokens) for i in columns]
            heads = tuple(head for head in singles if head is not None)
            basis = Basis(heads, self.mean, self.scale)
            self.fits[tokens] = _ridge(basis, self.x, self.y, SCREENING_ALPHA, self.weights)
        return self.fits[tokens]

    def _relevance(self) -> Array:
        """Spread of every feature's own part in an additive fit, relative to the largest, (D,)."""
        fit = self._additive(SCREENING_TOKENS)
        dim = self.x.shape[1]
        # The last values are those of the inputs themselves; before them come those of the heads, one after the other.
        slopes = fit.values[len(fit.values) - dim :]
        parts = [self.u[:, [i]] * slopes[i] for i in range(dim)]
        at = 0
        for head in fit.basis.heads:
            assert isinstance(head, GridHead)
            weights = head.weights(self.u)
            feature = head.features[0]
            end = at + weights.shape[1]
            parts[feature] = parts[feature] + weights @ fit.values[at:end]
            at = end
        spread = np.array([part.std(0).sum() for part in parts])
        return np.asarray(spread / max(spread.max(), 1e-300))


def _best_pairs(u: Array, residual: Array, relevance: Array, count: int) -> list[Head]:
    """The pairs of features whose grid explains most of what is left, by the squared length of its ridge fit."""
    most_relevant = np.argsort(-relevance, kind="stable")[:SCREENED]
    screened = sorted(most_relevant.tolist())
    singles = {i: grid_head(u, [i], PAIR_TOKENS) for i in screened}
    weights = {i: head.weights(u) for i, head in singles.items() if head is not None}
    scored = []
    for i, j in itertools.combinations(weights, 2):
        pairwise = weights[i][:, :, None] * weights[j][:, None, :]  # (n, tokens of i, tokens of j)
        phi = pairwise.reshape(len(u), -1)
        phi -= phi.mean(0)
        gram = phi.T @ phi / len(u) + SCREENING_ALPHA * curvature(pairwise.shape[1:])
        moment = phi.T @ residual / len(u)
        explained = (moment * np.linalg.solve(gram, moment)).sum()
        scored.append((float(explained), (i, j)))
    scored.sort(key=lambda item: -item[0])
    heads = (grid_head(u, pair, PAIR_TOKENS) for _, pair in scored[:count])
    return [head for head in heads if head is not None]


def cross_validate(
    x: Array,
    y: Array,
    designs: Sequence[Design],
    folds: Sequence[tuple[Any, Any]],
    seed: int,
    n_jobs: int | None,
    weights: Array | None = None,
) -> Array:
    """Mean squared error of every output on held-out rows, (designs, alphas, K); folds are the parallel work."""
    task = delayed(_held_out)
    tasks = [task(x, y, designs, train, test, seed, weights) for train, test in folds]
    errors = Parallel(n_jobs=n_jobs)(tasks)
    # Folds differ by a row in size, and every row counts once.
    sizes = np.array([len(test) for _, test in folds], dtype=float)
    return np.asarray(np.average(np.array(errors), axis=0, weights=sizes))


def _held_out(
    x: Array, y: Array, designs: Sequence[Design], train: Any, test: Any, seed: int, weights: Array | None
) -> Array:
    share = np.ones(len(x)) if weights is None else weights
    # What is held out decides nothing: not the scales of the columns, nor which pairs and features matter.
    builder = Builder(x[train], y[train], seed, None if weights is None else weights[train])
    errors = np.empty((len(designs), len(ALPHAS), y.shape[1]))
    for i, design in enumerate(designs):
        basis = builder.basis(design)
        taught = basis.features(x[train])
        ridge = RidgeFactors.of(taught, y[train], basis.root(), builder.weights)
        phi = basis.features(x[test])
        for j, alpha in enumerate(ALPHAS):
            values, intercept = ridge.values(alpha)
            squared = (phi @ values + intercept - y[test]) ** 2
            errors[i, j] = np.average(squared, axis=0, weights=share[test])
    return errors


def grow(score: Callable[[Sequence[Design]], Array], rows: int, fixed: dict[str, int]) -> list[Design]:
    """The designs to compare, stage by stage: tokens per feature, then pairs, then scattered points.

    Each stage starts from the best of the last; ``fixed`` holds what the user decided. Returns all designs scored,
    the best first.
    """
    found: dict[Design, float] = {}

    def stage(designs: Sequence[Design]) -> Design:
        new = [design for design in designs if design not in found]
        if new:
            least = score(new).min(axis=1)  # over the penalties
            found.update(zip(new, least.tolist(), strict=True))
        return min(found, key=lambda design: found[design])

    axis = [fixed["axis_tokens"]] if "axis_tokens" in fixed else AXIS_TOKENS
    start = Design(pairs=fixed.get("pairs", 0), memory_tokens=fixed.get("memory_tokens", 0))
    best = stage([replace(start, axis_tokens=count) for count in axis])
    if "pairs" not in fixed:
        best = stage([replace(best, pairs=count) for count in PAIRS])
    if "memory_tokens" not in fixed:
        stage(_scattered(best, rows, fixed))
    return sorted(found, key=lambda design: found[design])


def _scattered(best: Design, rows: int, fixed: Collection[str]) -> list[Design]:
    """The best design and simpler ones, each with as many scattered points as the rows allow."""
    simpler = [best]
    if "axis_tokens" not in fixed:
        simpler.append(replace(best, axis_tokens=0))
    if "pairs" not in fixed:
        simpler += [replace(design, pairs=0) for design in simpler]
    sizes = [count for count in MEMORY_TOKENS if ROWS_PER_TOKEN * count <= rows]
    return [replace(design, memory_tokens=count) for count in sizes for design in dict.fromkeys(simpler)]


def _ridge(basis: Basis, x: Array, y: Array, alpha: float, weights: Array | None = None) -> TableFit:
    factors = RidgeFactors.of(basis.features(x), y, basis.root(), weights)
    return TableFit(basis, *factors.values(alpha))
