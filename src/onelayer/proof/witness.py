"""Lower bounds of sup|T - f|: real points, polished by local ascent, the best one verified rigorously."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from flint import arb
from torch import Tensor

from onelayer.ground import ball_precision
from onelayer.language.balls import in_balls
from onelayer.observer import Observer
from onelayer.proof.error import ErrorFunction
from onelayer.proof.forward import Forward, enclosed_at

CLIMBERS = 48  # points from which the error is climbed
# Steps of a climb; each halves its reach when it fails.
STEPS = 28
# Where every value of f is paid for: a black box.
PAID = {"points": 2**8, "climbers": 4, "steps": 8}
# After a third of a climb a third of the climbers goes on, or eight: the others rarely win.
SIFTED, FINALISTS = 3, 8
# Share of the time, if it is limited: a lower bound is no proof of the upper one.
SEARCH_SHARE = 0.25
# Working precision of the verification, 60 decimal digits.
BITS = 200


@dataclass(frozen=True)
class Witness:
    """A point of the box at which |T - f| >= value, rigorously."""

    point: tuple[float, ...]
    value: float


def search(error: ErrorFunction, *, seed: int = 0) -> Tensor:
    """The best points (K, D) found by sampling and ascent, best first.

    Candidates are quasi-random points, quasi-random points crowded towards the faces, the centre and the corners: in
    higher dimension the worst point is often a corner. They share a part of the time with the proof.
    """
    hurry = error.observer.share(SEARCH_SHARE)
    # Every value of a black box may cost seconds: few points, and no long climb.
    paid = error.target.paid
    # A box of three and more dimensions has more places to hide.
    count = 2**12 if error.dim <= 2 else 2**13
    count = PAID["points"] if paid else count
    box = error.box
    parts = [
        box.center[None],
        box.corners(64 if paid else 1024),
        box.sample(count, seed=seed),
        box.sample(count, seed=seed, arcsine=True),
    ]
    candidates = torch.cat([part.reshape(-1, box.dim) for part in parts])
    points = error.representable(candidates)
    # Half the distance between neighbours, if they were spread evenly.
    spacing = count ** (-1 / box.dim)
    reach = box.width.flatten() * 0.5 * spacing
    climbers = PAID["climbers"] if paid else CLIMBERS
    steps = PAID["steps"] if paid else STEPS
    return climb(error, best(error, points, climbers, hurry), reach, steps, hurry)


def best(error: ErrorFunction, points: Tensor, count: int, hurry: Observer | None = None) -> Tensor:
    """The ``count`` points with the largest |g|, largest first."""
    values = error.values(points, hurry)
    order = torch.argsort(values, descending=True, stable=True)[:count]
    return points[order[values[order] >= 0]]


def climb(
    error: ErrorFunction, points: Tensor, reach: Tensor, steps: int = STEPS, hurry: Observer | None = None
) -> Tensor:
    """Pattern search for max |g| from each of K points at once; kinks and rounding noise do not disturb it.

    Each step tries +-r along every axis and along a few oblique directions, moves to the best improvement, or halves
    r; soon the best points alone go on. The result is sorted, best first. Once ``hurry`` says that it is over, no
    further step is tried.
    """
    if not points.shape[0]:
        return points
    generator = torch.Generator().manual_seed(0)
    axes = torch.eye(error.dim, dtype=torch.float64, device="cpu")
    axes = torch.cat([axes, -axes])  # (2D, D)
    radius = torch.ones(points.shape[0], 1, dtype=torch.float64, device="cpu")
    value = error.values(points)
    for step in range(steps):
        if hurry is not None and hurry.over:
            break
        if step == steps // SIFTED:
            fewer = max(FINALISTS, len(points) // SIFTED)
            index = torch.argsort(value, descending=True, stable=True)[:fewer]
            points = points[index]
            radius = radius[index]
            value = value[index]
        # Ridges of |g| need not follow the axes.
        oblique = torch.randn(2 + error.dim, error.dim, generator=generator, dtype=torch.float64, device="cpu")
        moves = torch.cat([axes, oblique]) * reach  # (C, D)
        tried = points[:, None] + radius[:, None] * moves
        flat = error.representable(tried.reshape(-1, error.dim))
        # A box without a number of the format near some point: rows would no longer match their points.
        if flat.shape[0] != tried.shape[0] * tried.shape[1]:
            break
        found, at = error.values(flat).reshape(tried.shape[0], -1).max(1)
        better = found > value
        row = torch.arange(len(at), dtype=torch.int64, device="cpu")
        chosen = flat.reshape(tried.shape)[row, at]
        points = torch.where(better[:, None], chosen, points)
        value = torch.where(better, found, value)
        radius = torch.where(better[:, None], radius, radius / 2)
    return points[torch.argsort(value, descending=True, stable=True)]


def verified(error: ErrorFunction, points: Tensor) -> Witness | None:
    """The point with the largest verified |g|, or None if none is positive.

    T is enclosed there, rounding of the claimed execution included: what a forward pass returns depends on the batch
    and the machine, and the bound holds for each of them. f is enclosed to 60 digits from its formula, or by its Taylor
    model as well.
    """
    if not len(points):
        return None
    with ball_precision(BITS):
        values = list(zip(_errors_at(error, points), points, strict=True))
    value, point = max(values, key=lambda pair: pair[0])
    if value > 0:
        return Witness(tuple(point.tolist()), value)
    return None


@torch.no_grad()
def _errors_at(error: ErrorFunction, points: Tensor) -> list[float]:
    """Rigorous lower bounds of max over outputs of |g| at points; 0 where nothing can be said."""
    x = points.reshape(-1, *error.box.shape)
    outputs = tuple(error.target.output_shape)
    t = balls_at(error.model, x.to(error.device), outputs, error.execution)
    if error.target.lipschitz is not None:
        # A black box is what its code returns, one point at a time as it was declared.
        values = [error.target.function(point[None].clone()).double().flatten().tolist() for point in x]
        f = [[arb(value) for value in row] for row in values]
    elif error.target.formula is not None:
        f = [in_balls(error.target.formula, point) for point in points.tolist()]
    else:
        f = balls_at(error.target.function, x.to(error.device), outputs, None)
    return [distance_down(a, b) for a, b in zip(t, f, strict=True)]


def distance_down(t: Sequence[arb], f: Sequence[arb]) -> float:
    """max |t - f| over the outputs, rounded down; 0 where nothing is known."""
    gaps = [(a - b).abs_lower() for a, b in zip(t, f, strict=True)]
    # One float towards zero: the float of a ball is the nearest one.
    finite = [math.nextafter(float(gap), 0.0) for gap in gaps if gap.is_finite()]
    return max(finite, default=0.0)


def balls_at(function: Forward, x: Tensor, outputs: tuple[int, ...], execution: torch.dtype | None) -> list[list[arb]]:
    """The outputs at points x (C, *event) as balls, a row for each point; NaN where nothing is known."""
    rows = enclosed_at(function, x, outputs, execution)
    return [[_ball(*ends) for ends in row] for row in rows]


def _ball(value: float, radius: float) -> arb:
    if math.isfinite(value + radius):
        return arb(value, radius)
    return arb("nan")
