"""Projection pursuit: a function of several variables as a sum of polynomials of a few linear combinations.

Every polynomial is such a sum, and every smooth function is close to one; how many directions it takes is where the
dimension bites. Directions are added greedily and then moved together by Gauss-Newton steps, the polynomials being
solved for at every step (variable projection, Kaufman's form of the Jacobian).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.build.arguments import relative, scale_of
from onelayer.build.lookup.lawson import lawson
from onelayer.build.sequences.directed import directed_term
from onelayer.build.sequences.recognise import FormulaTerm
from onelayer.errors import OnelayerError
from onelayer.observer import Observer

Array = NDArray[np.float64]
# Of a polynomial along one direction; higher ones are ill-conditioned in monomials.
MAX_DEGREE = 16
# Times the largest degree: chords that need more are not made up for by more directions.
STIFF = 1.7
# With MAX_DEGREE terms each a fit has 1,536 columns.
MAX_DIRECTIONS = 96
CANDIDATES = 160  # random directions tried for the next one
# Of a descent on one direction; most end earlier.
STEPS = 12
LAWSON = 12  # sweeps towards the maximum norm
# Share of the largest error that every point counts for at least: points are few and random.
FLOOR = 0.05
# Rows of the fit per unknown, so that it does not interpolate.
POINTS_PER_COLUMN = 6
# Of the coefficients, in units of the tolerance relative to the values.
PENALTY = 3.0
# Test points with the largest errors that join the fit of the next round.
HARD = 60
# Chords along which the degree of a function is looked at, and points of each.
CHORDS, CHORD_POINTS = 24, 64
# Points by which candidates for a direction are compared: a ranking needs no more.
SAMPLED = 1200


@dataclass(frozen=True)
class RidgeSum:
    """sum_k P_k(w_k . t) on t in [-1, 1]^D: rows w_k with |w_k|_1 = 1, Chebyshev coefficients (K, degree + 1)."""

    directions: Array
    coefficients: Array

    def __call__(self, t: Array) -> Array:
        s = np.clip(t @ self.directions.T, -1, 1)  # (S, K)
        values: Array = np.zeros(len(t))
        for along, row in zip(s.T, self.coefficients, strict=True):
            values = values + chebyshev.chebval(along, row)
        return values


class Pursued(NamedTuple):
    """Terms of a function and the largest error of their sum at the points tried."""

    terms: list[FormulaTerm]
    error: float


def pursue(
    values: Callable[[Array], Array],
    box: Box,
    tolerance: float,
    *,
    max_units: int,
    seed: int = 0,
    single: bool = False,
    max_degree: int = MAX_DEGREE,
    observer: Observer | None = None,
) -> Pursued:
    """Terms whose sum is within ``tolerance`` of the function at all points tried, or the best there was time for.

    ``values`` maps points (S, D) of the box to (S,). OnelayerError when the directions, or the hidden units that
    their polynomials would need at this tolerance, are too many. ``single`` directions are numbers of float32, so that
    sums of two of them are floats.
    """
    low = box.lower.flatten().numpy()
    high = box.upper.flatten().numpy()
    centre = (low + high) / 2
    radius = (high - low) / 2
    generator = np.random.default_rng(seed)
    watch = observer or Observer()
    dim = len(low)
    test = np.concatenate([_points(generator, 4000, dim), _box_corners(dim)])
    raw = values(centre + radius * test)
    # Very large and very small values are fitted in units of it.
    scale = scale_of(float(np.abs(raw).max()))

    def scaled(t: Array) -> Array:
        return values(centre + radius * t) / scale

    truth = raw / scale
    wanted = tolerance
    tolerance = relative(tolerance, scale)
    needed = _degree(scaled, dim, tolerance / 3, generator)
    if single and needed > STIFF * max_degree:
        raise OnelayerError(f"the function turns too often for polynomials of degree {max_degree}")
    degrees = min(needed, max_degree), max_degree
    search = _DirectionSearch(scaled, dim, degrees, tolerance, generator, watch)
    while True:
        search.grow()
        fit = search.fit
        errors = np.abs(fit(test) - truth)
        error = float(errors.max())
        reached = f"{len(fit.directions)} directions reach {error * scale:.2g}"
        watch.report("fitting", detail=reached)
        if error <= tolerance or watch.over:
            break
        worst = np.argsort(errors)[-HARD:]
        search.learn(test[worst], truth[worst])
        if search.hopeless(tolerance, max_units):
            raise OnelayerError(
                f"{reached}, the tolerance is {wanted:.2g}: in {dim} variables this function is out of reach; "
                "use the packed layout or a larger eps"
            )
    parts = zip(fit.directions, fit.coefficients, strict=True)
    terms = [directed_term(w, c * scale, centre, radius, single) for w, c in parts]
    return Pursued(terms, error * scale)


@dataclass(frozen=True)
class _Solved:
    """The best polynomials for some directions: an orthonormal basis, coefficients, what is left, and the sums."""

    q: Array
    coefficients: Array
    residual: Array
    sums: Array  # (S, K)

    @property
    def loss(self) -> float:
        """The sum of squares of what is left."""
        return float((self.residual**2).sum())


class _DirectionSearch:
    """Directions found so far and the best polynomials for them."""

    def __init__(
        self,
        values: Callable[[Array], Array],
        dim: int,
        degrees: tuple[int, int],  # to begin with, and at most
        tolerance: float,
        generator: np.random.Generator,
        observer: Observer,
    ) -> None:
        self.values = values
        self.dim = dim
        self.generator = generator
        self.degree, self.max_degree = degrees
        self.tolerance = tolerance
        self.observer = observer
        self.directions = np.zeros((0, dim))
        self.points = np.concatenate([_box_corners(dim), _points(generator, 1500, dim)])
        self.y = values(self.points)
        self.fit = RidgeSum(self.directions, np.zeros((0, self.degree + 1)))
        self.sizes: list[float] = []

    def grow(self) -> None:
        """One more direction, all of them refined, the polynomials polished towards the smallest largest error."""
        columns = (len(self.directions) + 1) * self.degree + 1
        if len(self.points) < POINTS_PER_COLUMN * columns:
            more = _points(self.generator, POINTS_PER_COLUMN * columns, self.dim)
            self.learn(more, self.values(more))
        residual = self.y - self.fit(self.points)
        size = float(np.abs(residual).max())
        # Another direction did not help: the polynomials are too stiff.
        if self.sizes and size > 0.9 * self.sizes[-1] and self.degree < self.max_degree:
            self.degree += 2
        self.sizes.append(size)
        added = self._candidate(residual)
        self.directions = np.concatenate([self.directions, added[None]])
        self._refine()
        basis, _ = self._basis(self.directions)
        coefficients = _minimax(basis, self.y, self._penalty(), self.observer)
        self.fit = self._unpacked(coefficients)

    def _penalty(self) -> float:
        """Weight of the coefficients in the fit: polynomials that cancel each other cost pieces later."""
        largest = max(float(np.abs(self.y).max()), 1e-300)
        return PENALTY * self.tolerance / largest

    def learn(self, points: Array, values: Array) -> None:
        """Points to fit from now on."""
        self.points = np.concatenate([self.points, points])
        self.y = np.concatenate([self.y, values])

    def hopeless(self, tolerance: float, max_units: int) -> bool:
        """Whether directions are too many, or their polynomials would take more pieces than allowed.

        Together they take the sum of integral sqrt|P''| / (4 sqrt(tolerance / K)) pieces.
        """
        count = max(1, len(self.directions))
        if count >= MAX_DIRECTIONS:
            return True
        s = np.linspace(-1, 1, 257)
        bent = []
        for c in self.fit.coefficients:
            second = chebyshev.chebval(s, chebyshev.chebder(c, 2))
            # The mean times the length of [-1, 1] is the integral.
            bent.append(np.sqrt(np.abs(second)).mean() * 2)
        pieces = sum(bent) / 4 * np.sqrt(count / tolerance)
        return bool(pieces > 4 * max_units)

    def _candidate(self, residual: Array) -> Array:
        """The direction whose polynomial alone explains most of the residual."""
        points = self.points[:SAMPLED]
        sought = residual[:SAMPLED]
        # Many functions mix only a few of their variables: half of the random directions are sparse.
        tries = self.generator.standard_normal((CANDIDATES, self.dim))
        half = CANDIDATES // 2
        sparse = self.generator.random((half, self.dim)) < 2.0 / self.dim
        tries[:half] *= sparse
        tries = np.concatenate([np.eye(self.dim), _pairs(self.dim), tries])
        tries = tries[np.abs(tries).sum(1) > 0]
        tries /= np.abs(tries).sum(1, keepdims=True)
        best: Array = tries[0]
        most = -1.0
        for w in tries:
            q, _ = np.linalg.qr(chebyshev.chebvander(points @ w, self.degree))
            explained = float(((q.T @ sought) ** 2).sum())
            if explained > most:
                best = w
                most = explained
        return best

    def _basis(self, directions: Array) -> tuple[Array, Array]:
        """Columns 1, T_1(s_1), ..., T_p(s_1), T_1(s_2), ... and the sums s (S, K)."""
        s = np.clip(self.points @ directions.T, -1, 1)
        blocks = [chebyshev.chebvander(along, self.degree)[:, 1:] for along in s.T]
        ones = np.ones((len(s), 1))
        return np.concatenate([ones, *blocks], axis=1), s

    def _refine(self) -> None:
        """Levenberg-Marquardt in the directions, polynomials eliminated."""
        damping = 1e-2
        directions = self.directions
        here = self._solve(directions)
        for _ in range(STEPS):
            if self.observer.over:
                break
            jacobian = self._jacobian(here)
            normal = jacobian.T @ jacobian
            gradient = jacobian.T @ here.residual
            mean = np.trace(normal) / len(normal) + 1e-300
            normal += damping * mean * np.eye(len(normal))
            step = np.linalg.solve(normal, gradient)
            moved = directions + step.reshape(directions.shape)
            moved /= np.maximum(np.abs(moved).sum(1, keepdims=True), 1e-300)
            trial = self._solve(moved)
            if trial.loss < here.loss:
                gain = 1 - trial.loss / here.loss
                directions = moved
                here = trial
                damping = damping / 4
                if gain < 1e-3:
                    break
            else:
                damping *= 8
        self.directions = directions

    def _jacobian(self, here: _Solved) -> Array:
        """How the residual changes with the directions, polynomials following: (S + penalties, K D)."""
        rows = self._unpacked(here.coefficients).coefficients
        blocks = []
        for along, row in zip(here.sums.T, rows, strict=True):
            slope = chebyshev.chebval(along, chebyshev.chebder(row))
            blocks.append(slope[:, None] * self.points)
        jacobian = np.concatenate(blocks, axis=1)
        # Rows of the penalty do not see the directions.
        penalised = len(here.residual) - len(jacobian)
        jacobian = np.concatenate([jacobian, np.zeros((penalised, jacobian.shape[1]))])
        # Kaufman: what the polynomials make up for is no change.
        jacobian -= here.q @ (here.q.T @ jacobian)
        return jacobian

    def _solve(self, directions: Array) -> _Solved:
        basis, s = self._basis(directions)
        columns = basis.shape[1]
        penalties = self._penalty() * np.sqrt(len(basis)) * np.eye(columns)
        q, r = np.linalg.qr(np.concatenate([basis, penalties]))
        y = np.concatenate([self.y, np.zeros(columns)])
        explained = q.T @ y
        c = np.linalg.lstsq(r, explained, rcond=1e-13)[0]
        return _Solved(q, c, y - q @ explained, s)

    def _unpacked(self, c: Array) -> RidgeSum:
        """Coefficients by direction; the constant goes to the first."""
        count = (len(c) - 1) // self.degree
        table = np.zeros((count, self.degree + 1))
        table[:, 1:] = c[1:].reshape(-1, self.degree)
        table[0, 0] = c[0]
        return RidgeSum(self.directions[:count], table)


def _minimax(basis: Array, y: Array, penalty: float, observer: Observer) -> Array:
    """Coefficients of the smallest largest error, those that are large at a cost."""
    columns = basis.shape[1]
    damping = penalty * np.sqrt(len(y)) * np.eye(columns)

    def solved(emphasis: Array) -> tuple[Array, Array]:
        root = np.sqrt(emphasis)
        rows = np.concatenate([root[:, None] * basis, damping])
        right = np.concatenate([root * y, np.zeros(columns)])
        c = np.linalg.lstsq(rows, right, rcond=1e-13)[0]
        return c, np.abs(basis @ c - y)

    best, _ = lawson(solved, len(y), sweeps=LAWSON, floor=FLOOR, over=lambda: observer.over)
    return best


def _degree(values: Callable[[Array], Array], dim: int, tolerance: float, generator: np.random.Generator) -> int:
    """The polynomial degree that resolves the function along the axes and from corner to corner of the cube."""
    s = np.cos(np.pi * (np.arange(CHORD_POINTS) + 0.5) / CHORD_POINTS)
    first = 2.0 * generator.integers(0, 2, (CHORDS, dim)) - 1
    last = -first
    # Half of the chords at most are edges of the cube, along one axis each; the others are diagonals.
    for i in range(min(dim, CHORDS // 2)):
        last[i] = first[i]
        first[i, i] = -1
        last[i, i] = 1
    share = (s[:, None] + 1) / 2
    chords = first[:, None] + share * (last - first)[:, None]  # (CHORDS, CHORD_POINTS, D)
    table = values(chords.reshape(-1, dim)).reshape(CHORDS, CHORD_POINTS)
    transform = chebyshev.chebvander(s, CHORD_POINTS - 1).T
    coefficients = np.abs(transform @ table.T * 2 / CHORD_POINTS)  # (CHORD_POINTS, CHORDS)
    tails = coefficients[::-1].cumsum(0)[::-1].max(1)
    resolved = np.flatnonzero(tails <= tolerance)
    if not len(resolved):
        return CHORD_POINTS
    return max(2, int(resolved[0]) - 1)


def _points(generator: np.random.Generator, count: int, dim: int) -> Array:
    """Half uniform, half crowded towards the faces: the worst point is often a corner."""
    u = generator.uniform(-1, 1, (count, dim))
    u[::2] = np.sin(np.pi / 2 * u[::2])
    return u


def _box_corners(dim: int) -> Array:
    """Corners of [-1, 1]^D, at most 4,096."""
    index = np.arange(min(2**dim, 4096))[:, None]
    return np.where((index >> np.arange(dim)) & 1, 1.0, -1.0)


def _pairs(dim: int) -> Array:
    """Sums and differences of two coordinates, which many functions are made of."""
    axes = np.eye(dim)
    rows = []
    for i in range(dim):
        for j in range(i):
            rows += [axes[i] + axes[j], axes[i] - axes[j]]
    return np.array(rows).reshape(-1, dim)
