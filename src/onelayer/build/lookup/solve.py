"""Stable solves for the values of a softmax basis: regularised least squares and its minimax polish.

Never an explicit inverse. The regularisation is the rounding the executing dtype will make: a value v_m whose weight
never exceeds d_m costs about (2 + 16 d_m) u |v_m| when executed, and that cost is added to the residual as extra rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from scipy.linalg import solve_triangular

from onelayer.build.lookup.families import Array
from onelayer.build.lookup.lawson import lawson, never
from onelayer.errors import OnelayerError

# Numbers of a matrix from which on a GPU factors it faster, the way there and back included.
LARGE = 2**21
# Operations per second of a factorisation on one slow core.
SPEED = 1e10
# Share of the largest error that every point counts for at least.
FLOOR = 1e-3
_PLACE: ContextVar[str] = ContextVar("fits are solved on", default="cpu")


def axis_nodes(lower: float, upper: float, count: int) -> Array:
    """``count`` Chebyshev points of the first kind mapped to [lower, upper], ascending, with both endpoints added.

    Chebyshev placement weighs the edges as the sup norm needs; the endpoints are where smooth fits err most.
    """
    inside = count - 2
    angles = np.pi * (np.arange(inside) + 0.5) / max(inside, 1)
    unit = np.concatenate([[-1.0], -np.cos(angles), [1.0]])
    share = (unit + 1) / 2
    return np.clip(lower + share * (upper - lower), lower, upper)


def rounding_cost(weights: Array, unit: float) -> Array:
    """Cost per unit of |v_m| of executing with unit roundoff ``unit``: its weight in the penalty, (M,)."""
    tokens = weights.shape[-1]
    largest = weights.max(axis=0)
    cost: Array = unit * (2.0 + (tokens + 16.0) * largest)
    return cost


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused or costs all
def solve_axis(weights: Array, samples: Array, penalty: float | Array = 0.0, emphasis: Array | None = None) -> Array:
    """Values v (M, K) minimising mean_i e_i |weights_i v - samples_i|^2 + |penalty * v|^2, by QR of the stacked matrix.

    weights: softmax basis at the nodes, (P, M); samples: (P, K); penalty: per token, (M,) or one number: 0 gives plain
    least squares, larger penalties bound |v| and with it the conditioning; emphasis: non-negative weights e_i, (P,).
    What overflowed or is no number is refused: no solver takes it.
    """
    points, size = weights.shape
    if emphasis is None:
        scale = np.full(points, points**-0.5)
    else:
        scale = np.sqrt(emphasis / emphasis.sum())
    costs = np.broadcast_to(np.asarray(penalty, float), (size,))
    stacked = np.concatenate([weights * scale[:, None], np.diag(costs)])
    nothing = np.zeros((size, samples.shape[1]))
    target = np.concatenate([samples * scale[:, None], nothing])
    # Columns of equal length: the factors stay well conditioned where the weight of a token is tiny everywhere.
    norms = np.linalg.norm(stacked, axis=0)
    norms[norms == 0] = 1.0
    seen, r = _factored(stacked / norms, target)
    # A column with an infinity, divided by its length, is no number, and is found in R.
    if not (np.isfinite(seen).all() and np.isfinite(r).all()):
        raise OnelayerError("a fit of f overflows: what it weighs is beyond 1.8e308 or no number; scale f or the box")
    diagonal = np.abs(np.diag(r))
    # Triangular where it can be; singular systems go by their singular values.
    if diagonal.min(initial=1.0) > 1e-15:
        solution: Array = solve_triangular(r, seen)
    else:
        solution = np.linalg.lstsq(stacked / norms, target, rcond=1e-15)[0]
    values: Array = solution / norms[:, None]
    return values


def solve_seconds(points: int, size: int) -> float:
    """About how long one solve takes: Q and R of (P + M) x M numbers cost 4 (P + M) M^2 operations."""
    return 4 * (points + size) * size**2 / SPEED


def _factored(matrix: Array, target: Array) -> tuple[Array, Array]:
    """Q^T target and R of matrix = Q R; a large matrix is factored where fits are to be solved."""
    place = _PLACE.get()
    if place == "cpu" or matrix.size < LARGE:
        q, r = np.linalg.qr(matrix)
        return q.T @ target, r
    q_there, r_there = torch.linalg.qr(torch.from_numpy(matrix).to(place))
    target_there = torch.from_numpy(np.ascontiguousarray(target)).to(place)
    seen = q_there.T @ target_there
    return seen.cpu().numpy(), r_there.cpu().numpy()


@contextmanager
def solved_on(place: torch.device) -> Iterator[None]:
    """Solve large fits on this device inside the block."""
    before = _PLACE.set(str(place))
    try:
        yield
    finally:
        _PLACE.reset(before)


def minimax(
    weights: Array, samples: Array, penalty: float | Array, sweeps: int = 12, over: Callable[[], bool] = never
) -> tuple[Array, float]:
    """The values of the smallest largest error, by Lawson's iteration; and that error.

    The sup is over points and columns. Each sweep is one regularised least-squares solve. A single token is the
    constant half way between the extremes. ``over`` says when the time is, after the first sweep.
    """
    if weights.shape[1] == 1:
        highest = samples.max(axis=0, keepdims=True)
        lowest = samples.min(axis=0, keepdims=True)
        middle: Array = highest / 2 + lowest / 2
        return middle, float(np.abs(middle - samples).max())

    def solved(emphasis: Array) -> tuple[Array, Array]:
        values = solve_axis(weights, samples, penalty, emphasis)
        errors = np.abs(weights @ values - samples)
        return values, errors.max(axis=1)

    return lawson(solved, len(weights), sweeps=sweeps, floor=FLOOR, over=over)
