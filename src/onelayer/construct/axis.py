"""One axis: the smallest softmax lookup T(x) = sum_m softmax(a_m x + b_m) v_m with sup|T - g| <= eps on an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from onelayer.construct.families import Array, Keys, candidates, softmax
from onelayer.construct.solve import axis_nodes, minimax, rounding_cost, solve_axis

Effort = Literal["fast", "thorough"]
ROUNDING_SHARE = 1 / 20


@dataclass(frozen=True)
class AxisBasis:
    """Keys of M tokens on one axis, in the user's coordinate: logit m at x is ``slopes[m] * x + biases[m]``."""

    slopes: Tensor
    biases: Tensor
    family: str

    def basis(self, x: Tensor) -> Tensor:
        """Softmax weights at x, (..., M)."""
        return torch.softmax(x.unsqueeze(-1) * self.slopes.to(x.dtype) + self.biases.to(x.dtype), dim=-1)

    @property
    def size(self) -> int:
        return self.slopes.numel()


@dataclass(frozen=True)
class AxisFit(AxisBasis):
    """A fitted axis: T(x) = basis(x) @ values, with values (M, K).

    ``error`` is the sup of |T - g| seen on hold-out points, an estimate and not a proof; ``rounding`` estimates what
    execution in the dtype of the weights adds; ``meets`` says whether both together stay within eps.
    """

    values: Tensor
    error: float
    rounding: float
    vmax: float
    meets: bool


def fit_axis(
    g: Callable[[Any], Any],
    lower: float,
    upper: float,
    eps: float,
    *,
    dtype: torch.dtype = torch.float64,
    max_tokens: int = 512,
    effort: Effort = "thorough",
    seed: int = 0,
) -> AxisFit:
    """Smallest fit found with error + rounding <= eps, or the best one within ``max_tokens`` with ``meets`` False.

    g maps a float64 tensor (P,) to (P,) or (P, K). Deterministic for a seed.
    """
    problem = _Problem(g, float(lower), float(upper), float(eps), dtype)
    best = problem.fit(None)
    size, low = 1, 0
    while not best.meets and size < max_tokens:
        low, size = size, min(max(size + 1, size * 3 // 2), max_tokens)
        best = _better(best, problem.search(size))
    if not best.meets:
        return best
    high = best.size
    while high - low > 1:
        middle = (low + high) // 2
        attempt = problem.search(middle)
        if attempt.meets:
            best, high = attempt, middle
        else:
            low = middle
    return best


def choose_basis(
    samples: Callable[[Array], Array] | Array,
    lower: float,
    upper: float,
    tol: float,
    *,
    dtype: torch.dtype = torch.float64,
    max_tokens: int = 64,
    vmax: float = 1e6,
) -> AxisBasis:
    """Smallest basis that fits all columns (slices of f along this axis) to ``tol`` in sup norm with |v| <= vmax.

    samples: a function of nodes (P,) giving (P, C), or the matrix (P, C) at axis_nodes(lower, upper, P).
    The largest size tried is returned when tol is out of reach. Values are solved later by the caller.
    """
    matrix = samples if isinstance(samples, np.ndarray) else samples(axis_nodes(lower, upper, 4 * max_tokens + 1))
    limit = min(max_tokens, max(len(matrix) // 2, 1))
    reduced = _compress(matrix, tol)
    nodes = axis_nodes(-1.0, 1.0, len(matrix))

    def attempt(size: int) -> tuple[float, Keys]:
        best: tuple[float, Keys] | None = None
        for keys in candidates(size):
            weights = keys.weights(nodes)
            values = solve_axis(weights, reduced, tol / vmax / 4)
            error = float(np.linalg.norm(weights @ values - reduced, axis=1).max())
            if np.abs(values).max() > vmax:
                error = np.inf
            if best is None or error < best[0]:
                best = error, keys
        if best is None:
            raise ValueError("no candidate keys")
        return best

    high, low = 1, 0
    found = attempt(1)
    while found[0] > tol and high < limit:
        low, high = high, min(2 * high, limit)
        found = attempt(high)
    while found[0] <= tol and high - low > 1:
        middle = (low + high) // 2
        trial = attempt(middle)
        if trial[0] <= tol:
            found, high = trial, middle
        else:
            low = middle
    slopes, biases = _to_user(found[1], lower, upper)
    return AxisBasis(torch.from_numpy(slopes).to(dtype), torch.from_numpy(biases).to(dtype), found[1].family)


class _Problem:
    """g on one interval, sampled once per resolution, with the acceptance test for a set of keys."""

    def __init__(self, g: Callable[[Any], Any], lower: float, upper: float, eps: float, dtype: torch.dtype) -> None:
        self.g, self.lower, self.upper, self.eps, self.dtype = g, lower, upper, eps, dtype
        self.unit = torch.finfo(dtype).eps / 2
        self.samples: dict[int, tuple[Array, Array]] = {}

    def at(self, count: int) -> tuple[Array, Array]:
        """Nodes in [lower, upper] and g there as (P, K)."""
        if count not in self.samples:
            nodes = axis_nodes(self.lower, self.upper, count)
            values = np.asarray(self.g(torch.from_numpy(nodes)), dtype=np.float64)
            self.samples[count] = nodes, values.reshape(count, -1)
        return self.samples[count]

    def search(self, size: int) -> AxisFit:
        """The best member of the families with ``size`` tokens."""
        nodes, samples = self.at(_resolution(size))
        scored = []
        for keys in candidates(size):
            weights = softmax(self.logits(keys, nodes))
            cost = rounding_cost(weights, self.unit)
            values = solve_axis(weights, samples, cost)
            error = float(np.abs(weights @ values - samples).max())
            excess = float((cost[:, None] * np.abs(values)).max()) / (ROUNDING_SHARE * self.eps)
            scored.append((error * max(1.0, excess), keys))
        scored.sort(key=lambda pair: pair[0])
        best = self.fit(scored[0][1])
        for _, keys in scored[1:3]:
            best = _better(best, self.fit(keys))
        return best

    def logits(self, keys: Keys, nodes: Array) -> Array:
        slopes, biases = self.rounded(keys)
        return nodes[:, None] * slopes + biases

    def rounded(self, keys: Keys) -> tuple[Array, Array]:
        """Slopes and biases in the user's coordinate, rounded to the executing dtype."""
        slopes, biases = _to_user(keys, self.lower, self.upper)
        return _round(slopes, self.dtype), _round(biases, self.dtype)

    def fit(self, keys: Keys | None) -> AxisFit:
        """Solve, polish, round the values, and measure on hold-out points (None: the constant)."""
        keys = keys or Keys(np.zeros(1), np.zeros(1), "constant")
        slopes, biases = self.rounded(keys)
        nodes, samples = self.at(_resolution(len(keys)))
        weights = softmax(nodes[:, None] * slopes + biases)
        values = _round(minimax(weights, samples, rounding_cost(weights, self.unit))[0], self.dtype)
        nodes, samples = self.at(4 * _resolution(len(keys)) + 1)
        logits = nodes[:, None] * slopes + biases
        weights = softmax(logits)
        error = float(np.abs(weights @ values - samples).max())
        magnitude = np.abs(nodes[:, None] * slopes) + np.abs(biases)
        noise = ((weights * (magnitude + len(keys) + 8)) @ np.abs(values)).max() * self.unit
        vmax = float(np.abs(values).max())
        rounding = max(float(noise), 2 * self.unit * vmax)
        meets = error + rounding <= self.eps and rounding <= ROUNDING_SHARE * self.eps
        to = [torch.from_numpy(part).to(self.dtype) for part in (slopes, biases, values)]
        return AxisFit(to[0], to[1], keys.family, to[2], error, rounding, vmax, meets)


def _resolution(size: int) -> int:
    return 4 * size + 41


def _better(first: AxisFit, second: AxisFit) -> AxisFit:
    """Meeting eps beats not meeting it, then fewer tokens (if both meet), then the smaller error."""
    if first.meets != second.meets:
        return first if first.meets else second
    if first.meets and first.size != second.size:
        return first if first.size < second.size else second
    return first if first.error + first.rounding <= second.error + second.rounding else second


def _to_user(keys: Keys, lower: float, upper: float) -> tuple[Array, Array]:
    """Keys in t of [-1, 1] rewritten for x of [lower, upper], with slopes and logits centred near 0."""
    centre, radius = lower / 2 + upper / 2, upper / 2 - lower / 2
    shift = (keys.slopes.max() + keys.slopes.min()) / 2
    slopes = (keys.slopes - shift) / (radius or 1.0)
    return slopes, keys.biases - keys.biases.max() - slopes * centre


def _round(values: Array, dtype: torch.dtype) -> Array:
    rounded: Array = torch.from_numpy(values).to(dtype).to(torch.float64).numpy()
    return rounded


def _compress(matrix: Array, tol: float) -> Array:
    """Columns that carry the matrix to tol/10: row norms of residuals bound the residual of every original column."""
    u, s, _ = np.linalg.svd(matrix, full_matrices=False)
    keep = max(1, int((s > tol / 10).sum()))
    compressed: Array = u[:, :keep] * s[:keep]
    return compressed
