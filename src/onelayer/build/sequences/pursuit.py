"""Projection pursuit: a function of several variables as a sum of polynomials of a few linear combinations.

Every polynomial is such a sum, and every smooth function is close to one; how many directions it takes is where the
dimension bites. Directions are added greedily and then moved together by Gauss-Newton steps, the polynomials being
solved for at every step (variable projection, Kaufman's form of the Jacobian).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.build.arguments import relative, scale_of
from onelayer.build.lookup.lawson import lawson
from onelayer.build.sequences.recognise import FormulaTerm
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula, parse
from onelayer.language.tree import Tape
from onelayer.observer import Observer

Array = NDArray[np.float64]
MAX_DEGREE = 16  # of a polynomial along one direction; higher ones are ill-conditioned in monomials
STIFF = 1.7  # times the largest degree: chords that need more are not made up for by more directions
MAX_DIRECTIONS = 96  # with MAX_DEGREE terms each a fit has 1,536 columns
CANDIDATES = 160  # random directions tried for the next one
STEPS = 12  # of a descent on one direction; most end earlier
LAWSON = 12  # sweeps towards the maximum norm
FLOOR = 0.05  # share of the largest error that every point counts for at least: points are few and random
POINTS_PER_COLUMN = 6  # rows of the fit per unknown, so that it does not interpolate
PENALTY = 3.0  # of the coefficients, in units of the tolerance relative to the values
HARD = 60  # test points with the largest errors that join the fit of the next round


@dataclass(frozen=True)
class RidgeSum:
    """sum_k P_k(w_k . t) on t in [-1, 1]^D: rows w_k with |w_k|_1 = 1, Chebyshev coefficients (K, degree + 1)."""

    directions: Array
    coefficients: Array

    def __call__(self, t: Array) -> Array:
        s = np.clip(t @ self.directions.T, -1, 1)  # (S, K)
        values: Array = sum(
            (chebyshev.chebval(s[:, k], row) for k, row in enumerate(self.coefficients)), np.zeros(len(t))
        )
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
    test = np.concatenate([_points(generator, 4000, len(low)), _box_corners(len(low))])
    raw = values(centre + radius * test)
    scale = scale_of(float(np.abs(raw).max()))  # very large and very small values are fitted in units of it

    def scaled(t: Array) -> Array:
        return values(centre + radius * t) / scale

    truth = raw / scale
    wanted = tolerance
    tolerance = relative(tolerance, scale)
    needed = _degree(scaled, len(low), tolerance / 3, generator)
    if single and needed > STIFF * max_degree:
        raise OnelayerError(f"the function turns too often for polynomials of degree {max_degree}")
    degrees = min(needed, max_degree), max_degree
    search = _DirectionSearch(scaled, len(low), degrees, tolerance, generator, watch)
    while True:
        search.grow()
        fit = search.fit
        errors = np.abs(fit(test) - truth)
        error = float(errors.max())
        watch.report("fitting", detail=f"{len(fit.directions)} directions reach {error * scale:.2g}")
        if error <= tolerance or watch.over:
            break
        worst = np.argsort(errors)[-HARD:]
        search.learn(test[worst], truth[worst])
        if search.hopeless(tolerance, max_units):
            raise OnelayerError(
                f"{len(fit.directions)} directions reach {error * scale:.2g}, the tolerance is {wanted:.2g}: in "
                f"{len(low)} variables this function is out of reach; use the packed layout or a larger eps"
            )
    parts = zip(fit.directions, fit.coefficients, strict=True)
    return Pursued([_term(w, c * scale, centre, radius, single) for w, c in parts], error * scale)


def constant_term(value: float, box: Box) -> FormulaTerm:
    """The term that is constant: what there is when the time ends before the pursuit begins."""
    centre = box.center.flatten().numpy()
    radius = (box.width / 2).flatten().numpy()
    return _term(np.eye(1, box.dim)[0], np.array([value, 0.0]), centre, radius)


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
        if self.sizes and size > 0.9 * self.sizes[-1] and self.degree < self.max_degree:
            self.degree += 2  # another direction did not help: the polynomials are too stiff
        self.sizes.append(size)
        self.directions = np.concatenate([self.directions, self._candidate(residual)[None]])
        self._refine()
        basis, _ = self._basis(self.directions)
        self.fit = self._unpacked(_minimax(basis, self.y, self._penalty(), self.observer))

    def _penalty(self) -> float:
        """Weight of the coefficients in the fit: polynomials that cancel each other cost pieces later."""
        return PENALTY * self.tolerance / max(float(np.abs(self.y).max()), 1e-300)

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
        second = [chebyshev.chebval(s, chebyshev.chebder(c, 2)) for c in self.fit.coefficients]
        bent = [np.sqrt(np.abs(values)).mean() * 2 for values in second]
        pieces = sum(bent) / 4 * np.sqrt(count / tolerance)
        return bool(pieces > 4 * max_units)

    def _candidate(self, residual: Array) -> Array:
        """The direction whose polynomial alone explains most of the residual."""
        sample = slice(0, 1200)
        # Many functions mix only a few of their variables: half of the random directions are sparse.
        tries = self.generator.standard_normal((CANDIDATES, self.dim))
        sparse = self.generator.random((CANDIDATES // 2, self.dim)) < 2.0 / self.dim
        tries[: CANDIDATES // 2] *= sparse
        tries = np.concatenate([np.eye(self.dim), _pairs(self.dim), tries])
        tries = tries[np.abs(tries).sum(1) > 0]
        tries /= np.abs(tries).sum(1, keepdims=True)
        best: Array = tries[0]
        most = -1.0
        for w in tries:
            q, _ = np.linalg.qr(chebyshev.chebvander(self.points[sample] @ w, self.degree))
            explained = float(((q.T @ residual[sample]) ** 2).sum())
            if explained > most:
                best, most = w, explained
        return best

    def _basis(self, directions: Array) -> tuple[Array, Array]:
        """Columns 1, T_1(s_1), ..., T_p(s_1), T_1(s_2), ... and the sums s (S, K)."""
        s = np.clip(self.points @ directions.T, -1, 1)
        blocks = [chebyshev.chebvander(s[:, k], self.degree)[:, 1:] for k in range(len(directions))]
        return np.concatenate([np.ones((len(s), 1)), *blocks], axis=1), s

    def _refine(self) -> None:
        """Levenberg-Marquardt in the directions, polynomials eliminated."""
        damping, directions = 1e-2, self.directions
        q, c, residual, s = self._solve(directions)
        for _ in range(STEPS):
            if self.observer.over:
                break
            rows = self._unpacked(c).coefficients
            slopes = [chebyshev.chebval(s[:, k], chebyshev.chebder(row)) for k, row in enumerate(rows)]
            jacobian = np.concatenate([slope[:, None] * self.points for slope in slopes], axis=1)  # (S, K D)
            penalised = len(residual) - len(jacobian)  # rows of the penalty do not see the directions
            jacobian = np.concatenate([jacobian, np.zeros((penalised, jacobian.shape[1]))])
            jacobian -= q @ (q.T @ jacobian)  # Kaufman: what the polynomials make up for is no change
            normal = jacobian.T @ jacobian
            gradient = jacobian.T @ residual
            normal += damping * (np.trace(normal) / len(normal) + 1e-300) * np.eye(len(normal))
            moved = directions + np.linalg.solve(normal, gradient).reshape(directions.shape)
            moved /= np.maximum(np.abs(moved).sum(1, keepdims=True), 1e-300)
            trial = self._solve(moved)
            if (trial[2] ** 2).sum() < (residual**2).sum():
                gain = 1 - (trial[2] ** 2).sum() / (residual**2).sum()
                directions, (q, c, residual, s), damping = moved, trial, damping / 4
                if gain < 1e-3:
                    break
            else:
                damping *= 8
        self.directions = directions

    def _solve(self, directions: Array) -> tuple[Array, Array, Array, Array]:
        basis, s = self._basis(directions)
        columns = basis.shape[1]
        basis = np.concatenate([basis, self._penalty() * np.sqrt(len(basis)) * np.eye(columns)])
        q, r = np.linalg.qr(basis)
        y = np.concatenate([self.y, np.zeros(columns)])
        c = np.linalg.lstsq(r, q.T @ y, rcond=1e-13)[0]
        return q, c, y - q @ (q.T @ y), s

    def _unpacked(self, c: Array) -> RidgeSum:
        """Coefficients by direction; the constant goes to the first."""
        table = np.zeros(((len(c) - 1) // self.degree, self.degree + 1))
        table[:, 1:] = c[1:].reshape(-1, self.degree)
        table[0, 0] = c[0]
        return RidgeSum(self.directions if len(self.directions) == len(table) else self.directions[: len(table)], table)


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

    return lawson(solved, len(y), sweeps=LAWSON, floor=FLOOR, over=lambda: observer.over)[0]


def _degree(values: Callable[[Array], Array], dim: int, tolerance: float, generator: np.random.Generator) -> int:
    """The polynomial degree that resolves the function along the axes and from corner to corner of the cube."""
    s = np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    corner = 2.0 * generator.integers(0, 2, (24, dim)) - 1
    ends = np.stack([corner, -corner], axis=1)
    for i in range(min(dim, 12)):
        ends[i, 1] = ends[i, 0]
        ends[i, 0, i] = -1
        ends[i, 1, i] = 1
    first, last = ends[:, None, 0], ends[:, None, 1]
    chords = first + (s[:, None] + 1) / 2 * (last - first)  # (24, 64, D)
    table = values(chords.reshape(-1, dim)).reshape(24, 64)
    coefficients = np.abs(np.polynomial.chebyshev.chebvander(s, 63).T @ table.T * 2 / 64)  # (64, 24)
    tails = coefficients[::-1].cumsum(0)[::-1].max(1)
    return max(2, int(np.flatnonzero(tails <= tolerance)[0]) - 1 if (tails <= tolerance).any() else 64)


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
    axes = np.eye(dim)
    rows = [axes[i] + sign * axes[j] for i in range(dim) for j in range(i) for sign in (1, -1)]
    return np.array(rows).reshape(-1, dim)


def _term(w: Array, c: Array, centre: Array, radius: Array, single: bool = False) -> FormulaTerm:
    """P(sum_i v_i x_i - v . centre) with v = w / radius, written with Horner's rule."""
    v = np.where(radius > 0, w / np.where(radius > 0, radius, 1.0), 0.0)
    v = v.astype(np.float32).astype(np.float64) if single else v
    inner = tuple((i, parse("x", 1), Fraction(float(weight))) for i, weight in enumerate(v) if weight)
    tape = Tape()
    s = tape.add("sub", tape.variable(0), tape.number(float(v @ centre)))
    power = chebyshev.cheb2poly(c)
    value = tape.number(float(power[-1]))
    for coefficient in power[-2::-1]:
        value = tape.add("add", tape.add("mul", value, s), tape.number(float(coefficient)))
    return FormulaTerm(Formula.build(tape.nodes, [value], (1,)), inner)
