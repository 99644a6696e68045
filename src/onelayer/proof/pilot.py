"""Choose the order of the Taylor models by sending a few points down the tree."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from onelayer.proof.boxes import Boxes, axis_to_cut, root, updated
from onelayer.proof.cost import Cost, cost_of_box
from onelayer.proof.error import ErrorFunction

POINTS = 16
MAX_DEPTH = 48
MAX_ORDER = 8
MAX_COEFFICIENTS = 512
FEWER_BOXES = 2.0  # a lower order, with more boxes to store and to check, must be cheaper by this factor


def candidate_orders(dim: int) -> tuple[int, ...]:
    """Orders worth trying, highest first. High orders win wherever their polynomials stay small enough to handle."""
    highest = max((k for k in range(2, MAX_ORDER + 1) if math.comb(dim + k, k) <= MAX_COEFFICIENTS), default=1)
    between = {highest - 1} if 2 < highest <= 4 else set()
    return tuple(sorted({highest, max(highest - 2, 1), max(highest // 2, 1)} | between, reverse=True))


def choose_order(
    error: ErrorFunction, threshold: float, orders: tuple[int, ...], late: Callable[[], bool]
) -> tuple[int, Cost]:
    """The order with the least estimated total cost, in doubt the higher one, and the cost of one of its boxes.

    Once ``late()`` holds, no further order is tried; of none tried to its end, the first is taken.
    """
    costs = {order: cost_of_box(error, order) for order in orders}
    best, best_total = orders[0], math.inf
    for order, cost in costs.items():
        limit = best_total / FEWER_BOXES / cost.seconds
        total = cost.seconds * expected_leaves(error, threshold, order, limit, late)
        if total < best_total / FEWER_BOXES:
            best, best_total = order, total
    return best, costs[best]


def expected_leaves(
    error: ErrorFunction,
    threshold: float,
    order: int,
    limit: float = math.inf,
    late: Callable[[], bool] = lambda: False,
) -> float:
    """Estimated number of leaves of a proof of |g| <= threshold, or inf as soon as it must exceed ``limit`` or is late.

    Lemma: if x is uniform in the domain and its leaf has depth d(x), then E 2^d(x) is the number of leaves, because a
    leaf of depth d has 2^-d of the volume. Each sample point is followed down the tree by the rule of the search.
    """
    points = error.box.sample(POINTS, seed=1).reshape(POINTS, -1)
    low, high = error.box.lower.flatten(), error.box.upper.flatten()
    start = root(low, high)
    boxes = start[torch.zeros(POINTS, dtype=torch.int64, device="cpu")]
    leaves = 0.0
    while len(boxes):
        if late():
            return math.inf
        found = error.enclose(boxes.low, boxes.high, order, threshold, boxes.stall)
        boxes = updated(boxes, found.bound, found.sensitivity)
        stuck = boxes.stuck()
        settled = (boxes.bound <= threshold) | stuck | (boxes.depth >= MAX_DEPTH)
        depth = torch.where(stuck, boxes.depth - boxes.stall, boxes.depth)  # a search gives up where it stalls
        leaves += float(torch.exp2(depth[settled].double()).sum())
        points, boxes = points[~settled], boxes[~settled]
        if (leaves + float(torch.exp2(boxes.depth.double()).sum())) / POINTS > limit:
            return math.inf
        if len(boxes):
            boxes = descend(boxes, points, boxes.levels(threshold, order), order, high - low)
    return leaves / POINTS


def descend(boxes: Boxes, points: Tensor, levels: Tensor, order: int, span: Tensor) -> Boxes:
    """Cut each box ``levels`` times and keep the piece that contains its point."""
    row = torch.arange(len(boxes), dtype=torch.int64, device="cpu")
    for level in range(1, int(levels.max()) + 1):
        active = boxes.splittable.any(1) & (levels >= level)
        axis = axis_to_cut(boxes, span)
        chosen = torch.zeros_like(boxes.low, dtype=torch.bool)
        chosen[row, axis] = active
        middle = boxes.low / 2 + boxes.high / 2
        right = points >= middle
        boxes = replace(
            boxes,
            low=torch.where(chosen & right, middle, boxes.low),
            high=torch.where(chosen & ~right, middle, boxes.high),
            sensitivity=torch.where(chosen, boxes.sensitivity * 2.0**-order, boxes.sensitivity),
            depth=boxes.depth + active,
            stall=boxes.stall + active,
        )
    return boxes
