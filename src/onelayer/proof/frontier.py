"""The front of branch and bound: boxes that are open, the tree of those that were cut, and one round of cutting."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onelayer.proof.bounded import Enclosure
from onelayer.proof.boxes import Boxes, TreeBuilder, cut, root, together, updated
from onelayer.proof.cost import Cost
from onelayer.proof.error import ErrorFunction
from onelayer.proof.units import Goal
from onelayer.proof.witness import Witness, best, climb, verified

# Chunks in one round: enough that the most urgent boxes are chosen anew rarely, few enough to report often.
CHUNKS_AT_ONCE = 64
# Centres of the pieces with the largest bounds, tried as witnesses in one batch.
CENTRES = 64
# A stalled bound this much above the value at a point will fall again.
LEVEL = 1.25
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
        self.floor = 0.0  # the largest bound that rounding alone makes
        self.begin_anew()
        self.evaluated = 0
        self.witness: Witness | None = None
        self.order = 0
        self.cost = Cost(UNSIZED, 0.0)

    def begin_anew(self) -> None:
        """Nothing is cut, nothing is bounded; the witness and what was learnt of rounding stay."""
        self.tree = TreeBuilder()
        self.open = self.domain()
        self.closed_bound = 0.0
        self.closed_share = 0.0
        self.spoiled = 0.0  # the worst bound of a box given up

    def domain(self) -> Boxes:
        """The whole domain as the first box, where enclosures are computed: open boxes stay there."""
        box = self.error.box
        device = self.error.device
        low = box.lower.flatten().to(device)
        high = box.upper.flatten().to(device)
        return root(low, high)

    @property
    def lower(self) -> float:
        """The error at the witness so far."""
        return self.witness.value if self.witness else 0.0

    @property
    def upper(self) -> float:
        """Running upper bound, for the progress bar."""
        worst_open = float(self.open.bound.max()) if len(self.open) else 0.0
        return max(self.closed_bound, worst_open)

    @property
    def threshold(self) -> float:
        """Bound at which a box is closed: the goal, or what is spoiled anyway, by rounding or by a box given up."""
        wanted = self.goal.threshold(self.lower)
        rounding = 0.0
        if self.floor > wanted:
            # No cut gets below the floor; as far above it as it lies above a value that was seen, cuts still get.
            rounding = 2 * self.floor - min(self.lower, self.floor)
        return max(wanted, self.spoiled, rounding)

    @property
    def refuted(self) -> bool:
        """Whether a point with an error above eps is known."""
        return self.goal.eps is not None and self.lower > self.goal.eps

    def round(self, most: float) -> bool:
        """Cut the most urgent boxes, unless more than ``most`` would be evaluated in all."""
        group, others = self.pick()
        # Nothing is cut that would not be evaluated: the tree and the boxes stay together.
        if self.evaluated + float(self.sizes(group).sum()) > most:
            return False
        self.open = others
        group = self.without_hopeless(group)
        if len(group):
            levels = self.levels(group)
            self.absorb(cut(group, levels, self.order, self.error.span, self.tree))
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
        running = self.sizes(self.open[order]).cumsum(0)
        at_once = max(SCOUTS, self.chunk // 4) if self.resisting else CHUNKS_AT_ONCE * self.chunk
        fitting = running <= min(at_once, self.room)
        # At least one: a box whose pieces fit no round must not end the search.
        count = max(int(fitting.sum()), 1)
        chosen, others = order[:count], order[count:]
        return self.open[chosen], self.open[others]

    def levels(self, boxes: Boxes) -> Tensor:
        """Cuts in a row for each box, such that the pieces of one box fit the budget."""
        room = int(math.log2(max(self.room, 2)))
        return boxes.levels(self.threshold, self.order).clamp(max=room)

    def sizes(self, boxes: Boxes) -> Tensor:
        """(B,): into how many pieces each box is to be cut next."""
        return torch.exp2(self.levels(boxes).double())

    def without_hopeless(self, group: Boxes) -> Boxes:
        """Give up the boxes that cuts do not improve, unless a box of width zero in their centre is far better.

        A kink of T a little beside the same kink of f keeps the bound level until boxes are smaller than the distance.
        """
        stuck = group.stuck()
        # Where there is no bound a point has none either, and where no axis can be cut there is nothing to hope for.
        hopeful = stuck & torch.isfinite(group.bound) & group.splittable.any(1)
        halted = hopeful.nonzero()[:, 0]
        if len(halted):
            centre = group.low[halted] / 2 + group.high[halted] / 2
            point = self.error.bounds(centre, centre, 1)
            far_better = point < group.bound[halted] / LEVEL
            alive = halted[(point <= self.threshold) & far_better]
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
        # First the inherited bounds, which hold on the pieces: stopped in the next line, the tree is complete all the
        # same.
        self.tree.state(pieces.node, pieces.bound)
        found = self.enclose(pieces)
        self.evaluated += len(pieces)
        pieces = updated(pieces, found.bound, found.sensitivity)
        self.tree.state(pieces.node, pieces.bound)
        self.probe(pieces)
        self.open = together([self.open, pieces])

    def close(self) -> None:
        """Set aside every open box whose bound is <= the threshold."""
        proved = self.open.bound <= self.threshold  # false for NaN and inf
        if bool(proved.any()):
            closed = self.open[proved]
            self.closed_bound = max(self.closed_bound, float(closed.bound.max()))
            # A box of depth d has 2^-d of the volume.
            self.closed_share += float(torch.exp2(-closed.depth.double()).sum())
            self.proved(closed)
            self.open = self.open[~proved]

    def proved(self, boxes: Boxes) -> None:
        """Show boxes whose bounds are good enough."""
        self.observer.proved(boxes.low.cpu(), boxes.high.cpu())

    def enclose(self, pieces: Boxes) -> Enclosure:
        """Enclosures of all pieces, so many in a call."""
        try:
            starts = range(0, len(pieces), self.chunk)
            parts = [pieces[start : start + self.chunk] for start in starts]
            found = [self.enclosed(part) for part in parts]
        except torch.OutOfMemoryError:
            # Memory ran out: half as many at a time, until one box alone does not fit.
            if self.chunk == 1:
                raise
            torch.cuda.empty_cache()
            self.cost = replace(self.cost, chunk=self.chunk // 2)
            return self.enclose(pieces)
        bound = torch.cat([part.bound for part in found])
        return Enclosure(bound, torch.cat([part.sensitivity for part in found]))

    def enclosed(self, part: Boxes) -> Enclosure:
        """Enclosures of the boxes of one call."""
        return self.error.enclose(part.low, part.high, self.order, self.threshold, part.stall, part.bound)

    def probe(self, pieces: Boxes) -> None:
        """Try the centres of the pieces with the largest bounds as witnesses."""
        index = torch.argsort(pieces.bound, descending=True, stable=True)[:CENTRES]
        low = pieces.low[index].cpu()
        high = pieces.high[index].cpu()
        centres = self.error.representable(low / 2 + high / 2)
        # Values in floating arithmetic are cheap and choose; what they choose is verified before it counts.
        top = best(self.error, centres, 8)
        if len(top) and float(self.error.values(top[:1])) > self.lower:
            if not self.error.target.paid:
                reach = (high - low).mean(0) / 2
                top = climb(self.error, top, reach, steps=12)
            self.observe(top)

    def observe(self, points: Tensor) -> None:
        """Look at points that may be the worst so far."""
        found = verified(self.error, points[:4])
        if found is not None and found.value > self.lower:
            self.witness = found
