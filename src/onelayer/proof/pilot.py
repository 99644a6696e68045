"""Choose the order of the Taylor models by sending a few points down the tree."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from onelayer.observer import Observer
from onelayer.proof.boxes import Boxes, TreeBuilder, axis_to_cut, root, together, updated
from onelayer.proof.cost import Cost, metered
from onelayer.proof.error import ErrorFunction

POINTS = 16  # whose paths through the tree stand for all of them
# Cuts of the path; a side of float64 numbers allows little more.
MAX_DEPTH = 48
MAX_ORDER = 8  # above, products cost more than they tighten
# Cuts below a leaf of the highest order, and cuts between the boxes there.
BELOW, STEP = 10, 2
UNBOUNDED = 60.0  # log2(bound / threshold) where there is no bound
# Least fall of log2(bound) per cut, so that what does not fall needs boxes without number.
SLOWEST = 1e-3
MAX_COEFFICIENTS = 512  # of a Taylor model: products of two take their square
# A lower order, with more boxes to store and to check, must be cheaper by this factor.
FEWER_BOXES = 2.0


def candidate_orders(dim: int) -> tuple[int, ...]:
    """Orders worth trying, highest first. High orders win wherever their polynomials stay small enough to handle."""
    tractable = (k for k in range(2, MAX_ORDER + 1) if math.comb(dim + k, k) <= MAX_COEFFICIENTS)
    highest = max(tractable, default=1)
    # Among few orders one step less is a choice of its own; among many two steps and half of them tell enough.
    between = {highest - 1} if 2 < highest <= 4 else set()
    chosen = {highest, max(highest - 2, 1), max(highest // 2, 1)}
    return tuple(sorted(chosen | between, reverse=True))


def choose_order(
    error: ErrorFunction, threshold: float, orders: tuple[int, ...], observer: Observer, start: Boxes, cost: Cost
) -> tuple[int, Cost]:
    """The order with the least estimated total cost, in doubt the higher one, and the cost of one of its boxes.

    The points descend once, from the boxes in which they ``start``, at the highest order, whose ``cost`` is known
    roughly; every order is then asked for its bounds on the boxes they passed, all in one call and counted by one
    meter. Once the ``observer`` says that it is over, no further order is tried; the first is taken where none was.
    """
    best = orders[0]
    chunk = cost.chunk
    least = math.inf
    # One path for all orders: on different boxes their bounds could not be compared.
    path = followed(error, threshold, orders[0], observer, start)
    for order in orders:
        if observer.over:
            break
        found, each = measured(error, path, order, chunk)
        total = each.seconds * _expected_leaves(path, found, threshold)
        # Orders come from the highest down: a lower one must win clearly.
        if total < least / FEWER_BOXES:
            best = order
            cost = each
            least = total
    return best, cost


def stations(error: ErrorFunction, tree: TreeBuilder) -> Boxes:
    """For each sample point the leaf in which it lies, of a tree under way at the highest order.

    ``node`` is the number of the point. No lower order ends above these leaves, so no box above need be looked at.
    """
    whole = root(error.box.lower.flatten(), error.box.upper.flatten())
    return tree.leaves_with(_samples(error), whole)


def _samples(error: ErrorFunction) -> Tensor:
    return error.box.sample(POINTS, seed=1).reshape(POINTS, -1)


def followed(error: ErrorFunction, threshold: float, order: int, observer: Observer, boxes: Boxes) -> Boxes:
    """All boxes that the sample points pass on their way down by the rule of the search, and some below their leaves.

    ``node`` is the number of the point. Lower orders need smaller boxes: the ones below are for them.
    """
    points = _samples(error)
    span = error.box.width.flatten()
    path = [boxes[:0]]
    while len(boxes) and not observer.over:
        found = error.enclose(boxes.low, boxes.high, order, threshold, boxes.stall)
        boxes = updated(boxes, found.bound, found.sensitivity)
        path.append(boxes)
        proved = boxes.bound <= threshold
        settled = proved | boxes.stuck() | (boxes.depth >= MAX_DEPTH)
        below = boxes[settled & proved]
        for _ in range(BELOW // STEP if len(below) else 0):
            levels = torch.full_like(below.depth, STEP)
            below = descend(below, points[below.node], levels, order, span)
            path.append(below)
        boxes = boxes[~settled]
        if len(boxes):
            levels = boxes.levels(threshold, order)
            boxes = descend(boxes, points[boxes.node], levels, order, span)
    return together(path)


def measured(error: ErrorFunction, path: Boxes, order: int, chunk: int) -> tuple[Tensor, Cost]:
    """Bounds of one order on the path, and what one of its boxes costs."""
    bounds: list[Tensor] = []
    # As many in a call as in the search: larger calls would hide what a call costs.
    calls = math.ceil(len(path) / chunk)

    def run() -> None:
        for low, high in zip(path.low.chunk(calls), path.high.chunk(calls), strict=True):
            bounds.append(error.bounds(low, high, order))

    cost = metered(run, len(path), error.device, calls)
    return torch.cat(bounds), cost


def _expected_leaves(path: Boxes, bound: Tensor, threshold: float) -> float:
    """Estimated number of leaves of a proof of |g| <= threshold at the order that has these bounds on the path.

    Lemma: if x is uniform in the domain and its leaf has depth d(x), then E 2^d(x) is the number of leaves, because a
    leaf of depth d has 2^-d of the volume.
    """
    unreachable = torch.full_like(bound, torch.inf)
    ratio = bound / threshold if threshold > 0 else unreachable
    excess = torch.log2(ratio.clamp(min=1e-300))
    excess = excess.nan_to_num(UNBOUNDED, UNBOUNDED, -UNBOUNDED).clamp(max=UNBOUNDED)
    total = 0.0
    for point in range(POINTS):
        mine = path.node == point
        resists = bool(path[mine].stuck().any())
        stall = int(path.stall[mine].max()) if resists else 0
        depth = _depth_of_leaf(path.depth[mine].tolist(), excess[mine].tolist(), stall)
        total += 2.0**depth
    return total / POINTS


def _depth_of_leaf(depth: list[int], excess: list[float], stall: int) -> float:
    """Depth at which log2(bound / threshold), known on boxes one inside another, falls to zero.

    Between boxes and below the last one it is taken as linear. A search gives up where it stalls: a path that ended
    there, ``stall`` cuts after the bound last fell, has its leaf above them.
    """
    at = next((i for i, value in enumerate(excess) if value <= 0), None)
    if at == 0:
        return depth[0]
    if at is not None:
        # Between a box that is too large and the next one, which is not: where a line through both meets zero.
        share = excess[at - 1] / (excess[at - 1] - excess[at])
        step = depth[at] - depth[at - 1]
        return math.ceil(depth[at - 1] + share * step)
    if stall:
        return depth[-1] - stall
    cuts = max(depth[-1] - depth[0], 1)
    fall = max((excess[0] - excess[-1]) / cuts, SLOWEST)
    return depth[-1] + min(excess[-1] / fall, MAX_DEPTH)


def descend(boxes: Boxes, points: Tensor, levels: Tensor, order: int, span: Tensor) -> Boxes:
    """Cut each box ``levels`` times and keep the piece that contains its point."""
    row = torch.arange(len(boxes), dtype=torch.int64, device="cpu")
    for level in range(1, int(levels.max()) + 1):
        active = boxes.splittable.any(1) & (levels >= level)
        axis = axis_to_cut(boxes, span)
        chosen = torch.zeros_like(boxes.low, dtype=torch.bool)
        # A box that is done keeps all its sides.
        chosen[row, axis] = active
        middle = boxes.low / 2 + boxes.high / 2
        right = points >= middle
        lower_half, upper_half = chosen & ~right, chosen & right
        boxes = replace(
            boxes,
            low=torch.where(upper_half, middle, boxes.low),
            high=torch.where(lower_half, middle, boxes.high),
            sensitivity=torch.where(chosen, boxes.sensitivity * 2.0**-order, boxes.sensitivity),
            depth=boxes.depth + active,
            stall=boxes.stall + active,
        )
    return boxes
