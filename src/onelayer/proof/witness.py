"""Lower bounds of sup|T - f|: real points, polished by local ascent, the best one verified rigorously."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from flint import arb, ctx
from torch import Tensor

from onelayer.language.balls import in_balls
from onelayer.proof.error import ErrorFunction
from onelayer.proof.forward import enclose
from onelayer.taylor import variables
from onelayer.taylor.core import TaylorModel

CLIMBERS = 48
STEPS = 28
BITS = 200  # working precision of the verification, 60 decimal digits


@dataclass(frozen=True)
class Witness:
    """A point of the box at which |T - f| >= value, rigorously."""

    point: tuple[float, ...]
    value: float


def search(error: ErrorFunction, *, seed: int = 0) -> Tensor:
    """The best points (K, D) found by sampling and ascent, best first.

    Candidates are quasi-random points, quasi-random points crowded towards the faces, the centre and the corners: in
    higher dimension the worst point is often a corner.
    """
    count = 2**12 if error.dim <= 2 else 2**13
    box = error.box
    parts = [
        box.center[None],
        box.corners(1024),
        box.sample(count, seed=seed),
        box.sample(count, seed=seed, arcsine=True),
    ]
    points = error.representable(torch.cat([part.reshape(-1, box.dim) for part in parts]))
    reach = box.width.flatten() * 0.5 * count ** (-1 / box.dim)
    return climb(error, best(error, points, CLIMBERS), reach)


def best(error: ErrorFunction, points: Tensor, count: int) -> Tensor:
    """The ``count`` points with the largest |g|, largest first."""
    values = error.values(points)
    order = torch.argsort(values, descending=True, stable=True)[:count]
    return points[order[values[order] >= 0]]


def climb(error: ErrorFunction, points: Tensor, reach: Tensor, steps: int = STEPS) -> Tensor:
    """Pattern search for max |g| from each of K points at once; kinks and rounding noise do not disturb it.

    Each step tries +-r along every axis and along a few oblique directions, moves to the best improvement, or halves
    r. The result is sorted, best first.
    """
    if not points.shape[0]:
        return points
    generator = torch.Generator().manual_seed(0)
    axes = torch.eye(error.dim, dtype=torch.float64, device="cpu")
    axes = torch.cat([axes, -axes])  # (2D, D)
    row = torch.arange(points.shape[0], dtype=torch.int64, device="cpu")
    radius = torch.ones(points.shape[0], 1, dtype=torch.float64, device="cpu")
    value = error.values(points)
    for _ in range(steps):
        oblique = torch.randn(2 + error.dim, error.dim, generator=generator, dtype=torch.float64, device="cpu")
        moves = torch.cat([axes, oblique]) * reach  # (C, D)
        tried = points[:, None] + radius[:, None] * moves
        flat = error.representable(tried.reshape(-1, error.dim))
        if flat.shape[0] != tried.shape[0] * tried.shape[1]:
            break
        found, at = error.values(flat).reshape(tried.shape[0], -1).max(1)
        better = found > value
        chosen = flat.reshape(tried.shape)[row, at]
        points = torch.where(better[:, None], chosen, points)
        value = torch.where(better, found, value)
        radius = torch.where(better[:, None], radius, radius / 2)
    return points[torch.argsort(value, descending=True, stable=True)]


def verified(error: ErrorFunction, points: Tensor) -> Witness | None:
    """The point with the largest verified |g|, or None if none is positive.

    T is the value that the model really returned there, on a private copy of the point (the enclosed real value when
    no execution is claimed); f is enclosed to 60 digits from its formula, or by its Taylor model on the box of width
    zero.
    """
    precision, ctx.prec = ctx.prec, BITS
    try:
        values = [(_error_at(error, point), point) for point in points]
    finally:
        ctx.prec = precision
    value, point = max(values, key=lambda pair: pair[0], default=(0.0, None))
    return None if point is None or not value > 0 else Witness(tuple(point.tolist()), value)


@torch.no_grad()
def _error_at(error: ErrorFunction, point: Tensor) -> float:
    """A rigorous lower bound of max over outputs of |g| at one point; 0 when nothing can be said."""
    x = point.reshape(1, *error.box.shape)
    if error.execution is None:
        t = _degenerate(error, error.model, x)
    else:
        t = [arb(value) for value in error.executed(point[None]).flatten().tolist()]
    if error.target.lipschitz is not None:
        f = [arb(value) for value in error.target.function(x.clone()).double().flatten().tolist()]
    elif error.target.formula is not None:
        f = in_balls(error.target.formula, point.tolist())
    else:
        f = _degenerate(error, error.target.function, x)
    gaps = [(a - b).abs_lower() for a, b in zip(t, f, strict=True)]
    finite = [math.nextafter(float(gap), 0.0) for gap in gaps if gap.is_finite()]
    return max(finite, default=0.0)


def _degenerate(error: ErrorFunction, function: Any, x: Tensor) -> list[arb]:
    """Values of ``function`` at one point as balls, from a Taylor model on the box of width zero."""
    x = x.to(error.device)
    y = enclose(function, variables(x, x, 1), tuple(error.target.output_shape))
    if not isinstance(y, TaylorModel):
        return [arb(value) for value in y.double().flatten().tolist()]
    low, high = (side.flatten().tolist() for side in y.range())
    return [
        arb(a).union(arb(b)) if math.isfinite(a) and math.isfinite(b) else arb("nan")
        for a, b in zip(low, high, strict=True)
    ]
