"""Branch and bound: enclose sup|T - f| over a box by cutting it until every piece is bounded."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import ModelAssumptionError
from onelayer.observer import Stopped
from onelayer.proof.boxes import Boxes, TreeBuilder, cut, root, updated
from onelayer.proof.cost import cost_of_box
from onelayer.proof.crew import Crew
from onelayer.proof.error import Enclosure, ErrorFunction
from onelayer.proof.pilot import candidate_orders, choose_order
from onelayer.proof.tree import BoxTree, Floats
from onelayer.proof.witness import Witness, best, climb, search, verified

CHUNKS_AT_ONCE = 64  # in one round: enough for the cores of a large machine
SMALLEST_CHUNK = 1024  # below it a call costs nearly the same however few boxes are in it
PARTS = 16  # into which a round is cut where it is large enough
CENTRES = 64
LEVEL = 1.25  # a stalled bound this much above the value at a point will fall again
SCOUTS = 32
PILOT_SHARE = 0.25  # of the time, if it is limited
REFUTED_GAP, REFUTED_BOXES = 1.0, 512


@dataclass(frozen=True)
class Goal:
    """What ends a search: every box bounded by ``eps``, or by (1 + gap) times the largest error seen."""

    eps: float | None
    gap: float

    def threshold(self, lower: float) -> float:
        """The bound that a box must meet: eps, or a little above what was found."""
        return lower * (1 + self.gap) if self.eps is None else self.eps


@dataclass(frozen=True)
class Budget:
    """Largest number of boxes to evaluate."""

    boxes: int


@dataclass(frozen=True)
class Outcome:
    """The enclosure that a search reached, its leaves with their bounds, and a box that resisted if it fell short."""

    reached: bool
    witness: Witness | None
    upper: float
    tree: BoxTree
    bounds: Floats
    order: int
    evaluated: int
    resisted: tuple[tuple[float, ...], tuple[float, ...]] | None

    @property
    def lower(self) -> float:
        """The error at the witness."""
        return self.witness.value if self.witness else 0.0


class Search:
    """State of one branch and bound. Boxes are open until their bound is <= the threshold; NaN and inf never are."""

    def __init__(self, error: ErrorFunction, goal: Goal, budget: Budget, crew: Crew | None = None) -> None:
        self.error, self.goal, self.budget, self.crew = error, goal, budget, crew or Crew(error)
        self.observer = error.observer
        self.span = error.box.width.flatten()
        self.tree = TreeBuilder()
        self.open = root(error.box.lower.flatten(), error.box.upper.flatten())
        self.closed_bound = 0.0
        self.closed_share = 0.0
        self.given_up: Boxes | None = None
        self.floor = 0.0
        self.evaluated = 0
        self.pilot_time = self.observer.share(PILOT_SHARE)
        self.witness: Witness | None = None
        self.order, self.chunk = 0, 1

    @property
    def lower(self) -> float:
        """The error at the witness so far."""
        return self.witness.value if self.witness else 0.0

    @property
    def upper(self) -> float:
        """Running upper bound, for the progress bar."""
        return max(self.closed_bound, float(self.open.bound.max()) if len(self.open) else 0.0)

    @property
    def threshold(self) -> float:
        """Bound at which a box is closed: the goal, or what is spoiled anyway, by rounding or by a box given up."""
        spoiled = float(self.given_up.bound[0]) if self.given_up else 0.0
        wanted = self.goal.threshold(self.lower)
        rounding = 2 * self.floor if self.floor > wanted else 0.0
        return max(wanted, spoiled, rounding)

    @property
    def refuted(self) -> bool:
        """Whether a point with an error above eps is known."""
        return self.goal.eps is not None and self.lower > self.goal.eps

    def run(self, order: int | None) -> Outcome:
        """Search until the goal or the budget is reached, or until the observer stops it; then say what is known.

        Stopped anywhere, the enclosure is read off the tree, in which every piece has at least the bound of the box
        that it was cut from.
        """
        with suppress(Stopped):
            self.branch(order)
        return self.outcome()

    def branch(self, order: int | None) -> None:
        """Sample, choose the order, then cut the most urgent boxes."""
        self.report()
        points = search(self.error)
        self.observe(points)
        self.floor = self.rounding_floor(points)
        self.prepare(order)
        whole, self.open = self.open, self.open[:0]
        self.absorb(whole)
        self.close()
        while len(self.open) and not self.exhausted():
            self.accept_refutation()
            group, self.open = self.pick()
            group = self.without_hopeless(group)
            if len(group):
                self.absorb(cut(group, self.levels(group), self.order, self.span, self.tree))
            self.close()
            self.report()

    def report(self) -> None:
        """Tell the observer where the search stands."""
        detail = f"{self.evaluated:,} boxes"
        self.observer.report("proving", self.closed_share, lower=self.lower, upper=self.upper, detail=detail)

    def rounding_floor(self, points: Tensor) -> float:
        """The largest bound on boxes of width zero at the points: no cut gets below it."""
        if not len(points):
            return 0.0
        bound = self.error.bounds(points, points, 1)
        return float(torch.where(torch.isfinite(bound), bound, 0.0).max())

    def prepare(self, order: int | None) -> None:
        """Fix the order, by a pilot unless it is given or there is no time left, and the boxes per chunk."""
        orders = candidate_orders(self.error.dim) if order is None else (order,)
        if len(orders) > 1 and not self.exhausted():
            self.order, cost = choose_order(self.error, self.threshold, orders, self.pilot_time)
        else:
            self.order, cost = orders[-1], cost_of_box(self.error, orders[-1])
        self.chunk = cost.chunk

    @property
    def room(self) -> int:
        """Boxes that may still be evaluated."""
        return self.budget.boxes - self.evaluated

    def exhausted(self) -> bool:
        """Whether one more cut would exceed the budget."""
        return self.room < 2 or self.observer.over

    def accept_refutation(self) -> None:
        """Once a witness exceeds eps the claim is lost; a few boxes more still give an upper bound worth stating."""
        if self.refuted:
            self.goal = Goal(None, REFUTED_GAP)
            self.budget = Budget(min(self.budget.boxes, self.evaluated + REFUTED_BOXES))

    def pick(self) -> tuple[Boxes, Boxes]:
        """The most urgent boxes whose pieces fit the budget and one round, and the others.

        When boxes resist, a few of them are followed down first: if those are hopeless, so is the goal, and the rest
        need not be cut as finely.
        """
        order = self.open.urgency()
        sizes = torch.exp2(self.levels(self.open[order]).double()).cumsum(0)
        resisting = bool(self.open.stall.max() > 2 * self.error.dim)
        room = min(max(SCOUTS, self.chunk // 4) if resisting else CHUNKS_AT_ONCE * self.chunk, self.room)
        count = max(int((sizes <= room).sum()), 1)
        return self.open[order[:count]], self.open[order[count:]]

    def levels(self, boxes: Boxes) -> Tensor:
        """Cuts in a row for each box, such that the pieces of one box fit the budget."""
        room = int(math.log2(max(self.room, 2)))
        return boxes.levels(self.threshold, self.order).clamp(max=room)

    def without_hopeless(self, group: Boxes) -> Boxes:
        """Give up the boxes that cuts do not improve, unless a box of width zero in their centre is far better.

        A kink of T a little beside the same kink of f keeps the bound level until boxes are smaller than the distance.
        """
        stuck = group.stuck()
        halted = (stuck & torch.isfinite(group.bound) & group.splittable.any(1)).nonzero()[:, 0]
        if len(halted):
            centre = group.low[halted] / 2 + group.high[halted] / 2
            point = self.error.bounds(centre, centre, 1)
            alive = halted[(point <= self.threshold) & (point < group.bound[halted] / LEVEL)]
            group.stall[alive] = 0
            stuck[alive] = False
        self.give_up(group[stuck])
        return group[~stuck]

    def give_up(self, boxes: Boxes) -> None:
        """Keep the worst of the boxes that cannot be improved; the others need be no better than it."""
        for at in boxes.urgency()[:1]:
            self.closed_bound = max(self.closed_bound, float(boxes.bound.max()))
            if self.given_up is None or boxes.bound[at] > self.given_up.bound[0]:
                self.given_up = boxes[at[None]]

    def absorb(self, pieces: Boxes) -> None:
        """Enclose g on the pieces, look for a better witness among them, and add them to the open boxes."""
        self.tree.state(pieces.node, pieces.bound)
        found = self.enclose(pieces)
        self.evaluated += len(pieces)
        pieces = updated(pieces, found.bound, found.sensitivity)
        self.tree.state(pieces.node, pieces.bound)
        self.probe(pieces)
        self.open = self.open.with_(pieces)

    def close(self) -> None:
        """Set aside every open box whose bound is <= the threshold."""
        proved = self.open.bound <= self.threshold  # false for NaN and inf
        if bool(proved.any()):
            self.closed_bound = max(self.closed_bound, float(self.open.bound[proved].max()))
            self.closed_share += float(torch.exp2(-self.open.depth[proved].double()).sum())
            self.observer.proved(self.open.low[proved], self.open.high[proved])
            self.open = self.open[~proved]

    def enclose(self, pieces: Boxes) -> Enclosure:
        """Enclosures of all pieces, in chunks fixed by their number alone: who computes them cannot change a result."""
        parts = PARTS if self.error.device.type == "cpu" else 1  # a GPU takes as much at once as it can hold
        size = min(self.chunk, max(SMALLEST_CHUNK, math.ceil(len(pieces) / parts)))
        groups = [pieces[start : start + size] for start in range(0, len(pieces), size)]
        try:
            found = self.crew.enclose(groups, self.order, self.threshold)
        except torch.OutOfMemoryError:
            if self.chunk == 1:
                raise
            torch.cuda.empty_cache()
            self.chunk //= 2
            return self.enclose(pieces)
        return Enclosure(torch.cat([part.bound for part in found]), torch.cat([part.sensitivity for part in found]))

    def probe(self, pieces: Boxes) -> None:
        """Try the centres of the pieces with the largest bounds as witnesses."""
        index = torch.argsort(pieces.bound, descending=True, stable=True)[:CENTRES]
        centres = self.error.representable((pieces.low / 2 + pieces.high / 2)[index])
        top = best(self.error, centres, 8)
        if len(top) and float(self.error.values(top[:1])) > self.lower:
            self.observe(climb(self.error, top, (pieces.high - pieces.low)[index].mean(0) / 2, steps=12))

    def observe(self, points: Tensor) -> None:
        """Look at points that may be the worst so far."""
        found = verified(self.error, points[:4])
        if found is not None and found.value > self.lower:
            self.witness = found

    def outcome(self) -> Outcome:
        """The enclosure, read off the leaves of the tree: a leaf without a number for a bound makes it infinite."""
        tree, bounds = self.tree.finish(self.error.box.lower.flatten(), self.error.box.upper.flatten())
        upper = math.inf if np.isnan(bounds).any() else float(bounds.max())
        if self.lower > upper:
            raise ModelAssumptionError(
                f"the enclosure {upper} is below the error {self.lower} at {self.witness}: the model is not what its "
                "operations on enclosures are, or the arithmetic of this machine is not what it should be"
            )
        reached = upper <= self.goal.threshold(self.lower)
        resisted = None if reached else _worst_leaf(tree, bounds)
        return Outcome(reached, self.witness, upper, tree, bounds, self.order, self.evaluated, resisted)


def nothing_known(box: Box) -> Outcome:
    """The outcome of no search at all: the whole box, without a bound."""
    tree, bounds = TreeBuilder().finish(box.lower.flatten(), box.upper.flatten())
    return Outcome(False, None, math.inf, tree, bounds, 0, 0, _worst_leaf(tree, bounds))


def _worst_leaf(tree: BoxTree, bounds: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    at = int(np.where(np.isnan(bounds), np.inf, bounds).argmax())
    low, high = tree.boxes()
    return tuple(low[at].tolist()), tuple(high[at].tolist())
