"""The front of branch and bound: boxes that are open, the tree of those that were cut, and one round of cutting."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onelayer.proof.bounded import Enclosure
from onelayer.proof.boxes import Boxes, TreeBuilder, cut, root, updated
from onelayer.proof.cost import Cost
from onelayer.proof.error import ErrorFunction
from onelayer.proof.units import Goal
from onelayer.proof.witness import Witness, best, climb, verified

CHUNKS_AT_ONCE = (
    64  # in one round: enough that the most urgent boxes are chosen anew rarely, few enough to report often
)
CENTRES = 64  # of the pieces with the largest bounds, tried as witnesses in one batch
LEVEL = 1.25  # a stalled bound this much above the value at a point will fall again
SCOUTS = 32  # boxes that resist are followed down so many at a time
UNSIZED = 512  # boxes in a call until it is known what one costs


@dataclass(frozen=True)
class Budget:
    """Largest number of boxes to evaluate."""

    boxes: int


class Frontier:
    """State of one branch and bound. Boxes are open until their bound is <= the threshold; NaN and inf never are."""

    def __init__(self, error: ErrorFunction, goal: Goal, budget: Budget) -> None:
        self.error = error
        self.goal = goal
        self.budget = budget
        self.observer = error.observer
        self.span = error.box.width.flatten().to(error.device)
        self.tree = TreeBuilder()
        self.open = self.domain()
        self.closed_bound = 0.0
        self.closed_share = 0.0
        self.spoiled = 0.0  # the worst bound of a box given up
        self.floor = 0.0  # the largest bound that rounding alone makes
        self.evaluated = 0
        self.witness: Witness | None = None
        self.order = 0
        self.cost = Cost(UNSIZED, 0.0)

    def domain(self) -> Boxes:
        """The whole domain as the first box, where enclosures are computed: open boxes stay there."""
        box = self.error.box
        device = self.error.device
        return root(box.lower.flatten().to(device), box.upper.flatten().to(device))

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
        wanted = self.goal.threshold(self.lower)
        # No cut gets below the floor; as far above it as it lies above a value that was seen, cuts still get.
        rounding = 2 * self.floor - min(self.lower, self.floor) if self.floor > wanted else 0.0
        return max(wanted, self.spoiled, rounding)

    @property
    def refuted(self) -> bool:
        """Whether a point with an error above eps is known."""
        return self.goal.eps is not None and self.lower > self.goal.eps

    def round(self, most: float) -> bool:
        """Cut the most urgent boxes, unless more than ``most`` would be evaluated in all."""
        group, others = self.pick()
        if self.evaluated + float(torch.exp2(self.levels(group).double()).sum()) > most:
            return False
        self.open = others
        group = self.without_hopeless(group)
        if len(group):
            self.absorb(cut(group, self.levels(group), self.order, self.span, self.tree))
        self.close()
        return True

    @property
    def chunk(self) -> int:
        """Boxes in one call."""
        return self.cost.chunk

    @property
    def resisting(self) -> bool:
        """Whether a box has been cut along every axis, and again, without effect."""
        return bool(self.open.stall.max() > 2 * self.error.dim)

    @property
    def room(self) -> int:
        """Boxes that may still be evaluated."""
        return self.budget.boxes - self.evaluated

    def exhausted(self) -> bool:
        """Whether one more cut would exceed the budget."""
        return self.room < 2 or self.observer.over

    def pick(self) -> tuple[Boxes, Boxes]:
        """The most urgent boxes whose pieces fit the budget and one round, and the others.

        When boxes resist, a few of them are followed down first: if those are hopeless, so is the goal, and the rest
        need not be cut as finely.
        """
        order = self.open.urgency()
        sizes = torch.exp2(self.levels(self.open[order]).double()).cumsum(0)
        room = min(max(SCOUTS, self.chunk // 4) if self.resisting else CHUNKS_AT_ONCE * self.chunk, self.room)
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
        if len(boxes):
            worst = float(boxes.bound.max())
            self.closed_bound = max(self.closed_bound, worst)
            self.spoiled = max(self.spoiled, worst)

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
            self.proved(self.open[proved])
            self.open = self.open[~proved]

    def proved(self, boxes: Boxes) -> None:
        """Show boxes whose bounds are good enough."""
        self.observer.proved(boxes.low.cpu(), boxes.high.cpu())

    def enclose(self, pieces: Boxes) -> Enclosure:
        """Enclosures of all pieces, so many in a call."""
        try:
            parts = [pieces[start : start + self.chunk] for start in range(0, len(pieces), self.chunk)]
            found = [
                self.error.enclose(part.low, part.high, self.order, self.threshold, part.stall, part.bound)
                for part in parts
            ]
        except torch.OutOfMemoryError:
            if self.chunk == 1:
                raise
            torch.cuda.empty_cache()
            self.cost = replace(self.cost, chunk=self.chunk // 2)
            return self.enclose(pieces)
        return Enclosure(torch.cat([part.bound for part in found]), torch.cat([part.sensitivity for part in found]))

    def probe(self, pieces: Boxes) -> None:
        """Try the centres of the pieces with the largest bounds as witnesses."""
        index = torch.argsort(pieces.bound, descending=True, stable=True)[:CENTRES]
        low = pieces.low[index].cpu()
        high = pieces.high[index].cpu()
        centres = self.error.representable(low / 2 + high / 2)
        top = best(self.error, centres, 8)
        if len(top) and float(self.error.values(top[:1])) > self.lower:
            paid = self.error.target.paid
            self.observe(top if paid else climb(self.error, top, (high - low).mean(0) / 2, steps=12))

    def observe(self, points: Tensor) -> None:
        """Look at points that may be the worst so far."""
        found = verified(self.error, points[:4])
        if found is not None and found.value > self.lower:
            self.witness = found
