"""Ridge regression on the heads of a table, its size chosen by cross-validation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from joblib import Parallel, delayed

from onelayer.export.tabular import Array, Basis, Head, PointHead, curvature, grid_head
from onelayer.model import OneLayerTransformer

ALPHAS = tuple(10.0 ** np.arange(-7, 2.1, 0.5))
AXIS_TOKENS = (0, 6, 12)
PAIRS = (1, 3, 6)
PAIR_TOKENS = 5
MEMORY_TOKENS = (64, 256)
REACHES = (0.5, 1.0, 2.0)
SCREENED = 15
SCREENING_ALPHA = 1e-3


@dataclass(frozen=True)
class Design:
    """How much of each kind: tokens per feature, pairs of features, scattered points, and how far a point reaches."""

    axis_tokens: int = 0
    pairs: int = 0
    memory_tokens: int = 0
    reach: float = 1.0


@dataclass(frozen=True)
class Ridge:
    """min |y - c - Phi v|^2 / n + alpha v' P v for every alpha, through one eigendecomposition."""

    centre: Array
    target: Array
    basis: Array  # (P, r): v = basis @ coordinates
    squares: Array  # (r,)
    moments: Array  # (r, K)

    @classmethod
    def of(cls, phi: Array, y: Array, root: Array) -> Ridge:
        """``root`` R has R R' = inverse of P, so that v = R w turns the penalty into alpha |w|^2."""
        centre, target = phi.mean(0), y.mean(0)
        free = (phi - centre) @ root
        rest = (y - target) / len(y)
        if len(phi) < free.shape[1]:
            squares, left = np.linalg.eigh(free @ free.T / len(y))
            keep = squares > 1e-14 * max(squares[-1], 1e-300)
            squares, left = squares[keep], left[:, keep]
            vectors = free.T @ left / np.sqrt(squares * len(y))
        else:
            squares, vectors = np.linalg.eigh(free.T @ free / len(y))
        return cls(centre, target, root @ vectors, np.maximum(squares, 0.0), vectors.T @ (free.T @ rest))

    def values(self, alpha: float) -> tuple[Array, Array]:
        """Values (P, K) and intercept (K,)."""
        v = self.basis @ (self.moments / (self.squares + alpha)[:, None])
        return v, self.target - self.centre @ v


@dataclass(frozen=True)
class Fit:
    """A basis with the values that ridge regression gave it."""

    basis: Basis
    values: Array
    intercept: Array

    def predict(self, x: Array) -> Array:
        return np.asarray(self.basis.features(x) @ self.values + self.intercept)

    def model(self) -> OneLayerTransformer:
        """The layer that predicts the same, (D,) -> (K,)."""
        return self.basis.model(self.values, self.intercept)


def build_basis(x: Array, y: Array, design: Design, rng: np.random.Generator) -> Basis:
    """The heads of a design on these data; y decides which pairs and which features matter."""
    mean, deviation = x.mean(0), x.std(0)
    scale = np.where(deviation > 1e-12 * np.maximum(np.abs(mean), 1e-300), deviation, 1.0)
    u = (x - mean) / scale
    heads: list[Head] = []
    if design.axis_tokens:
        singles = (grid_head(u, [feature], design.axis_tokens) for feature in range(x.shape[1]))
        heads += [head for head in singles if head is not None]
    basis = Basis(tuple(heads), mean, scale)
    if design.pairs or design.memory_tokens:
        fit = _ridge(basis, x, y, SCREENING_ALPHA)
        relevance = _relevance(fit, x)
        if design.pairs:
            heads += best_pairs(u, y - fit.predict(x), relevance, design.pairs)
        if design.memory_tokens:
            heads.append(_points(u, relevance, design, rng))
    return replace(basis, heads=tuple(heads))


def best_pairs(u: Array, residual: Array, relevance: Array, count: int) -> list[Head]:
    """The pairs of features whose grid explains most of what is left, by the squared length of its ridge fit."""
    screened = sorted(np.argsort(-relevance, kind="stable")[:SCREENED].tolist())
    singles = {i: grid_head(u, [i], PAIR_TOKENS) for i in screened}
    weights = {i: head.weights(u) for i, head in singles.items() if head is not None}
    scored = []
    for i, j in itertools.combinations(weights, 2):
        phi = (weights[i][:, :, None] * weights[j][:, None, :]).reshape(len(u), -1)
        phi -= phi.mean(0)
        sizes = weights[i].shape[1], weights[j].shape[1]
        gram = phi.T @ phi / len(u) + SCREENING_ALPHA * curvature(sizes)
        moment = phi.T @ residual / len(u)
        scored.append((float((moment * np.linalg.solve(gram, moment)).sum()), (i, j)))
    scored.sort(key=lambda item: -item[0])
    heads = (grid_head(u, pair, PAIR_TOKENS) for _, pair in scored[:count])
    return [head for head in heads if head is not None]


def cross_validate(
    x: Array, y: Array, designs: Sequence[Design], folds: Sequence[tuple[Array, Array]], seed: int, n_jobs: int | None
) -> Array:
    """Mean squared error on held-out rows, (designs, alphas)."""
    tasks = [(design, train, test) for design in designs for train, test in folds]
    errors = Parallel(n_jobs=n_jobs)(
        delayed(_held_out)(x, y, design, train, test, seed) for design, train, test in tasks
    )
    shaped = np.array(errors).reshape(len(designs), len(folds), len(ALPHAS))
    weights = np.array([len(test) for _, test in folds], dtype=float)
    return np.asarray(np.average(shaped, axis=1, weights=weights))


def _held_out(x: Array, y: Array, design: Design, train: Array, test: Array, seed: int) -> Array:
    basis = build_basis(x[train], y[train], design, np.random.default_rng(seed))
    ridge = Ridge.of(basis.features(x[train]), y[train], basis.root())
    phi = basis.features(x[test])
    errors = []
    for alpha in ALPHAS:
        values, intercept = ridge.values(alpha)
        errors.append(float(((phi @ values + intercept - y[test]) ** 2).mean()))
    return np.array(errors)


def fit_design(x: Array, y: Array, design: Design, alpha: float, seed: int) -> Fit:
    """The fit of one design with one penalty on all rows."""
    return _ridge(build_basis(x, y, design, np.random.default_rng(seed)), x, y, alpha)


def grow(score: Callable[[Sequence[Design]], Array], rows: int, fixed: dict[str, int]) -> list[Design]:
    """The designs to compare, stage by stage: tokens per feature, then pairs, then scattered points.

    Each stage starts from the best of the last; ``fixed`` holds what the user decided. Returns all designs scored,
    the best first.
    """
    found: dict[Design, float] = {}

    def stage(designs: Sequence[Design]) -> Design:
        new = [design for design in designs if design not in found]
        if new:
            found.update(zip(new, score(new).min(axis=1).tolist(), strict=True))
        return min(found, key=lambda design: found[design])

    axis = [fixed["axis_tokens"]] if "axis_tokens" in fixed else AXIS_TOKENS
    start = Design(pairs=fixed.get("pairs", 0), memory_tokens=fixed.get("memory_tokens", 0))
    best = stage([replace(start, axis_tokens=count) for count in axis])
    if "pairs" not in fixed:
        best = stage([replace(best, pairs=count) for count in PAIRS])
    sizes = [fixed["memory_tokens"]] if "memory_tokens" in fixed else [n for n in MEMORY_TOKENS if n <= rows // 2]
    options = [replace(best, memory_tokens=n, reach=reach) for n in sizes if n for reach in REACHES]
    if options:
        stage(options)
        if "memory_tokens" not in fixed and "pairs" not in fixed:
            stage([replace(option, pairs=0) for option in options])
    return sorted(found, key=lambda design: found[design])


def _ridge(basis: Basis, x: Array, y: Array, alpha: float) -> Fit:
    return Fit(basis, *Ridge.of(basis.features(x), y, basis.root()).values(alpha))


def _relevance(fit: Fit, x: Array) -> Array:
    """Spread of every feature's own part in an additive fit, relative to the largest, (D,)."""
    u = (x - fit.basis.mean) / fit.basis.scale
    dim, at = x.shape[1], 0
    parts = [u[:, [i]] * fit.values[len(fit.values) - dim + i] for i in range(dim)]
    for head in fit.basis.heads:
        weights = head.weights(u)
        assert not isinstance(head, PointHead)
        parts[head.features[0]] = parts[head.features[0]] + weights @ fit.values[at : at + weights.shape[1]]
        at += weights.shape[1]
    spread = np.array([part.std(0).sum() for part in parts])
    return np.asarray(spread / max(spread.max(), 1e-300))


def _points(u: Array, relevance: Array, design: Design, rng: np.random.Generator) -> PointHead:
    """Rows of the table as memory tokens; features count by their relevance, distances by the spacing of the rows."""
    count = min(design.memory_tokens, len(u))
    centres = u[np.sort(rng.choice(len(u), count, replace=False))]
    metric = np.sqrt(np.maximum(relevance, 0.01))
    scaled = centres * metric
    distances = ((scaled[:, None, :] - scaled[None, :64, :]) ** 2).sum(-1)
    typical = float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0
    return PointHead(centres, metric * np.sqrt(4.0 / typical) / design.reach)
