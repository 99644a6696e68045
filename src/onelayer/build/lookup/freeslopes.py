"""Free slopes and biases: variable projection with geodesic acceleration, and a tournament of starts.

With values v eliminated by regularised least squares, the residual of T(t) = sum_m w_m(t) v_m depends on slopes a and
biases b alone. Since dT/db_m = w_m (v_m - T) and dT/da_m = t w_m (v_m - T), the Jacobian costs one product. Valleys of
exponential sums are narrow and curved: a Levenberg step follows their tangent, and the second-order (geodesic)
correction of Transtrum and Sethna follows their bend, which is worth two or three digits at equal cost.
M tokens carry 3M - 2 free numbers, against one per token with fixed keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.linalg.lapack import dgeqrf, dorgqr, dtrtrs

from onelayer.build.lookup.families import Array, Keys
from onelayer.build.lookup.lawson import lawson

# Share of the step at which the curvature of the residual is measured.
PROBE = 0.1
LARGEST_STEP = 5.0  # in nats of logit
# Share of the largest error that every node counts for at least: keys move, so peaks do.
FLOOR = 0.02


@dataclass
class Descent:
    """One start on its way down: parameters (slopes, then biases), damping and loss (mean square + penalty)."""

    parameters: Array
    damping: float = 1e-4
    loss: float = math.inf
    stalled: bool = False


@dataclass(frozen=True)
class _Point:
    weights: Array  # (M, P)
    # Orthonormal basis of the column space, (P + M, M).
    q: Array
    values: Array  # (M, K)
    residual: Array  # (P + M, K)
    loss: float


class Projection:
    """The least-squares problem of fitting samples (P, K) at nodes (P,), values eliminated, keys free.

    penalty: cost of one unit of |v| in the residual; emphasis: non-negative weights of the nodes, (P,); origin: where
    biases are counted, best at the finest feature so that steep slopes pivot there; tie: (2M, n), keys as a linear
    function of n parameters, all slopes and biases free without it.
    """

    def __init__(
        self,
        nodes: Array,
        samples: Array,
        penalty: float,
        origin: float = 0.0,
        emphasis: Array | None = None,
        tie: Array | None = None,
    ) -> None:
        weight = np.ones(len(nodes)) if emphasis is None else emphasis
        self.nodes = nodes - origin
        self.samples = samples
        self.penalty = penalty
        self.origin = origin
        self.tie = tie
        self.scale = np.sqrt(weight / weight.sum())  # (P,)
        self.target = samples * self.scale[:, None]

    def emphasised(self, emphasis: Array) -> Projection:
        """The same problem with other weights of the nodes."""
        nodes = self.nodes + self.origin
        return Projection(nodes, self.samples, self.penalty, self.origin, emphasis, self.tie)

    def pack(self, keys: Keys) -> Array:
        """Parameters of keys: slopes, then biases at the origin; the nearest ones where keys are tied."""
        biases = keys.biases + keys.slopes * self.origin
        free = np.concatenate([keys.slopes, biases])
        if self.tie is None:
            return free
        nearest: Array = np.linalg.lstsq(self.tie, free, rcond=None)[0]
        return nearest

    def whole(self, parameters: Array) -> Array:
        """Slopes and biases in a row."""
        return parameters if self.tie is None else self.tie @ parameters

    def unpack(self, parameters: Array, family: str = "free") -> Keys:
        """Keys from parameters; biases are meant at the origin."""
        slopes, biases = np.split(self.whole(parameters), 2)
        return Keys(slopes, biases - slopes * self.origin, family)

    def at(self, parameters: Array) -> _Point:
        """Solve for the values and return what a step needs."""
        slopes, biases = np.split(self.whole(parameters), 2)
        size = len(slopes)
        rows = len(self.nodes)
        # In place, since this is where a search spends its time.
        weights = slopes[:, None] * self.nodes + biases[:, None]
        weights -= weights.max(0)
        np.exp(weights, out=weights)
        weights /= weights.sum(0)
        stacked = np.zeros((size, rows + size))
        np.multiply(weights, self.scale, out=stacked[:, :rows])
        stacked[:, rows:].flat[:: size + 1] = self.penalty
        q, r = _qr(stacked.T)
        part = q[:rows].T @ self.target
        residual = q @ -part
        residual[:rows] += self.target
        values, _ = dtrtrs(r, part)
        loss = float(np.vdot(residual, residual))
        return _Point(weights, q, values, residual, loss)

    def sup_error(self, parameters: Array) -> float:
        """Sup over nodes and columns of |T - samples|."""
        return float(np.abs(self.errors(parameters)).max())

    def errors(self, parameters: Array) -> Array:
        """T - samples at the nodes, (P, K)."""
        point = self.at(parameters)
        errors: Array = point.weights.T @ point.values - self.samples
        return errors

    def descend(self, start: Descent, steps: int) -> Descent:
        """At most ``steps`` accelerated Levenberg steps; stalls when twenty of them gain less than four percent."""
        parameters = start.parameters
        damping = start.damping
        point = self.at(parameters)
        # A slope of 1000 is no more delicate than one of 100 in proportion to itself.
        units = np.ones(len(parameters))
        if self.tie is None:
            slopes = slice(len(parameters) // 2)
            sizes = np.abs(parameters[slopes])
            units[slopes] = np.maximum(1.0, sizes / 100.0)
        losses = [point.loss]
        for _ in range(steps):
            step, new, damping = self._step(parameters, units, point, damping)
            if new is None:
                return Descent(parameters, damping, point.loss, stalled=True)
            parameters = parameters + step
            point = new
            # Bolder after every success, as Levenberg's method is; never so bold that the damping underflows.
            damping = max(damping / 3, 1e-18)
            losses.append(point.loss)
            if len(losses) > 22 and losses[-1] > 0.96 * losses[-21]:
                return Descent(parameters, damping, point.loss, stalled=True)
        return Descent(parameters, damping, point.loss)

    def _step(
        self, parameters: Array, units: Array, point: _Point, damping: float
    ) -> tuple[Array, _Point | None, float]:
        """The first step, damping raised as needed, that lowers the loss; None when none of twelve does."""
        count = len(parameters)
        jacobian = self._jacobian(point) * units
        residual = point.residual.T.ravel()
        q, r = _qr(jacobian)
        pull = q.T @ residual
        # The R of the Jacobian stands for it: each damping then costs a factorisation of its own small size.
        damped = np.zeros((count, 2 * count))
        damped[:, :count] = np.triu(r).T
        size = math.sqrt((damped * damped).sum(1).max())
        for _ in range(12):
            damped[:, count:].flat[:: count + 1] = math.sqrt(damping) * size
            q2, r2 = _qr(damped.T)
            step, _ = dtrtrs(r2, q2[:count].T @ pull)
            # Also where the step is no number.
            if not np.abs(step).max() <= LARGEST_STEP:
                damping *= 4
                continue
            ahead = self.at(parameters + PROBE * step * units)
            change = ahead.residual.T.ravel() - residual
            bend = 2 / PROBE * (change / PROBE + jacobian @ step)
            twice, _ = dtrtrs(r2, q2[:count].T @ (q.T @ bend))
            correction = twice / 2
            # A bend larger than the step says that the expansion does not hold there.
            if correction @ correction <= step @ step:
                step = step + correction
            new = self.at(parameters + step * units)
            if new.loss < point.loss:
                return step * units, new, damping
            damping *= 3
        return np.zeros(count), None, damping

    def _jacobian(self, point: _Point) -> Array:
        """Minus the derivative of the projected residual (Kaufman's form), columns stacked, (K (P + M), 2M or n)."""
        size, rows = point.weights.shape
        columns = point.values.shape[1]
        jacobian = np.zeros((2, size, columns, rows + size))
        fitted = point.values.T @ point.weights  # (K, P)
        apart = point.values[:, :, None] - fitted  # (M, K, P)
        spread = (point.weights * self.scale)[:, None] * apart
        np.multiply(spread, self.nodes, out=jacobian[0, :, :, :rows])
        jacobian[1, :, :, :rows] = spread
        jacobian -= (jacobian @ point.q) @ point.q.T
        free = jacobian.reshape(2 * size, -1).T
        return free if self.tie is None else free @ self.tie


def _qr(matrix: Array) -> tuple[Array, Array]:
    """Reduced QR by LAPACK without the wrappers, which cost more than the arithmetic; r is junk below."""
    packed, tau, _, _ = dgeqrf(matrix)
    r = packed[: packed.shape[1]].copy()
    q = dorgqr(packed, tau, overwrite_a=1)[0]
    return q, r


@dataclass(frozen=True)
class Round:
    """One round of a tournament: how far everyone descends, how many go on, and when even the best is hopeless."""

    steps: int
    keep: int
    hopeless: float  # root mean square in units of the goal


# More steps for fewer runners, as successive halving has it; no claim that the numbers are optimal.
FAST = (Round(10, 8, 3e4), Round(20, 4, 3e3), Round(40, 2, 100), Round(60, 1, 30))
THOROUGH = (Round(10, 10, 3e4), Round(20, 5, 3e3), Round(40, 3, 200), Round(80, 2, 30), Round(160, 1, 10))


def tournament(problem: Projection, keys: Iterable[Keys], goal: float, rounds: Sequence[Round]) -> list[Descent]:
    """Successive halving of starts; ends when the sup error at the nodes is within ``goal`` or the best is hopeless.

    Returns those still in the field, best first. A goal of 0 lets the tournament run to its end.
    """
    field = [Descent(problem.pack(start)) for start in keys]
    for stage in rounds:
        field = [runner if runner.stalled else problem.descend(runner, stage.steps) for runner in field]
        ranked = sorted(field, key=lambda runner: runner.loss)
        field = _distinct(ranked)[: stage.keep]
        size = math.sqrt(field[0].loss)
        if (size > stage.hopeless * goal > 0) or all(runner.stalled for runner in field):
            break
        if size <= goal and problem.sup_error(field[0].parameters) <= goal:
            break
    return field


def _distinct(ranked: list[Descent]) -> list[Descent]:
    """Runners whose loss differs from the one before: equal losses are the same valley."""
    kept = ranked[:1]
    for before, runner in pairwise(ranked):
        if runner.loss > before.loss * (1 + 1e-4):
            kept.append(runner)
    return kept


def equalise(problem: Projection, start: Descent, goal: float, sweeps: int = 12, steps: int = 5) -> tuple[Array, float]:
    """Lawson's iteration with free keys, which descend a little at every emphasis of the nodes.

    Returns the best parameters seen and their sup error at the nodes; stops early once that is within ``goal``.
    """
    runner = start

    def descended(emphasis: Array) -> tuple[Array, Array]:
        nonlocal runner
        current = problem.emphasised(emphasis)
        # Equal emphasis is what the start comes from.
        if (emphasis != 1.0).any():
            runner = current.descend(Descent(runner.parameters), steps)
        errors = current.errors(runner.parameters)
        return runner.parameters, np.abs(errors).max(axis=1)

    return lawson(descended, len(problem.nodes), sweeps=sweeps, floor=FLOOR, goal=goal)
