"""Values solved for f and its slopes together: T and dT/dx_i are linear in the same values.

Rows of the system are points, weights over eps, and points, slopes of the weights over ``gradient_eps``: where the
largest residual is below one, both are close enough at every sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.blueprint import Blueprint
from onelayer.build.lookup.dense import DENSE_TOKENS, LEAST_POINTS, POINTS_PER_TOKEN, basis, basis_slopes, with_values
from onelayer.build.lookup.families import Array
from onelayer.build.lookup.solve import minimax, solve_seconds
from onelayer.build.lookup.structure import FlatFunction
from onelayer.observer import Observer

# Of Lawson's iteration; the residual hardly falls after eight.
SWEEPS = 12
# Unit roundoffs of a value that its size costs in the solve.
ROUNDINGS = 8

Slopes = Callable[[Tensor], Tensor]  # points (S, D) -> df/dx (S, K, D)


@dataclass(frozen=True)
class Closeness:
    """How close values and slopes have to be, and the unit roundoff of the weights."""

    eps: float
    gradient_eps: float
    unit: float


def smoothed(
    blueprint: Blueprint, f: FlatFunction, slopes: Slopes, box: Box, wanted: Closeness, observer: Observer
) -> tuple[Blueprint, float]:
    """The layer with values solved for both, and the largest of error over tolerance seen, of values and of slopes."""
    count = max(LEAST_POINTS, POINTS_PER_TOKEN * min(blueprint.tokens, DENSE_TOKENS))
    places = torch.cat([box.corners(256), box.sample(count, seed=9, arcsine=True)])
    points = places.reshape(-1, box.dim)
    rows, goals = _system(blueprint, points, f(points), slopes(points), wanted)
    # Without the time for one solve, the values of the fit have to do.
    in_time = solve_seconds(len(rows), blueprint.tokens) < observer.seconds_left
    if blueprint.tokens <= DENSE_TOKENS and in_time:
        penalty = ROUNDINGS * wanted.unit / wanted.eps
        values, _ = minimax(rows, goals, penalty, sweeps=SWEEPS, over=lambda: observer.over)
    else:
        columns = [head.values.flatten(0, -2).numpy() for head in blueprint.heads]
        values = np.concatenate(columns)
    with np.errstate(over="ignore", invalid="ignore"):
        seen = float(np.abs(rows @ values - goals).max())
    return replace(blueprint, heads=with_values(blueprint.heads, values)), seen


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused by the solve
def _system(
    blueprint: Blueprint, points: Tensor, values: Tensor, slopes: Tensor, wanted: Closeness
) -> tuple[Array, Array]:
    """Rows and right sides in units of the tolerances; what the affine part does is taken off the right sides."""
    matrix = blueprint.affine.matrix
    offset = blueprint.affine.offset
    heads = blueprint.heads
    weights = np.concatenate([basis(head, points) for head in heads], axis=1)  # (S, M)
    steep = np.concatenate([basis_slopes(head, points) for head in heads], axis=2)  # (D, S, M)
    goal = (values - points @ matrix.T - offset).numpy()  # (S, K)
    steep_goal = (slopes - matrix).permute(2, 0, 1).numpy()  # (D, S, K)
    rows = [weights / wanted.eps, *(steep / wanted.gradient_eps)]
    goals = [goal / wanted.eps, *(steep_goal / wanted.gradient_eps)]
    return np.concatenate(rows), np.concatenate(goals)
