"""Branch and bound: enclose sup|T - f| over a box by cutting it until every piece is bounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import ModelAssumptionError
from onelayer.observer import Stopped
from onelayer.proof.boxes import Boxes, TreeBuilder, cut, root, together, updated
from onelayer.proof.checkpoint import Arrays, Checkpoint
from onelayer.proof.cost import Cost, cost_of_box, sized
from onelayer.proof.crew import Crew
from onelayer.proof.error import Enclosure, ErrorFunction
from onelayer.proof.pilot import candidate_orders, choose_order
from onelayer.proof.resume import frozen, match, thawed
from onelayer.proof.tree import BoxTree, Floats
from onelayer.proof.units import (
    FEWEST,
    SLICE,
    Explored,
    Goal,
    Knowledge,
    WorkUnit,
    as_arrays,
    as_boxes,
    dealt,
    size_of_unit,
)
from onelayer.proof.witness import Witness, best, climb, search, verified

CHUNKS_AT_ONCE = 64  # in one round
CENTRES = 64
# Boxes at the highest order before the order is chosen, as many as cost what a pilot costs, by the model of cost:
# pilots in 2, 4, 6 and 8 dimensions take two to five tenths of a second, three times what that model says of a box.
SPRINT, SPRINT_SECONDS, LONGEST_SPRINT = 512, 0.1, 2048
LEVEL = 1.25  # a stalled bound this much above the value at a point will fall again
SCOUTS = 32
PILOT_SHARE = 0.25  # of the time, if it is limited
REFUTED_GAP, REFUTED_BOXES = 1.0, 512
# Work left, by the model of cost, about half as long on one core: a search on an H200 began in ten seconds at most, and
# a machine that has one has many cores (benchmarks/results/gpu_proofs.json).
WORTH_A_GPU = 60.0


class Outgrown(Exception):
    """A search has found out that it is long, at this order, and there is a GPU on which it is short."""

    def __init__(self, order: int, place: torch.device) -> None:
        super().__init__(f"order {order} on {place}")
        self.order, self.place = order, place


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
        self.error = error
        self.goal = goal
        self.budget = budget
        self.crew = crew or Crew(error)
        self.observer = error.observer
        self.span = error.box.width.flatten().to(error.device)
        self.tree = TreeBuilder()
        self.open = self.domain()
        self.closed_bound = 0.0
        self.closed_share = 0.0
        self.spoiled = 0.0  # the worst bound of a box given up
        self.floor = 0.0
        self.evaluated = 0
        self.pilot_time = self.observer.share(PILOT_SHARE)
        self.witness: Witness | None = None
        self.order = 0
        self.cost = Cost(SPRINT, 0.0)
        self.checkpoint = Checkpoint(None, "")
        self.stored: list[Explored] | None = None  # what had come back of a wave where a search goes on
        self.gpu: Callable[[], torch.device | None] = lambda: None  # asked once it would pay

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

    def run(self, order: int | None) -> Outcome:
        """Search until the goal or the budget is reached, or until the observer stops it; then say what is known.

        Stopped anywhere, the enclosure is read off the tree, in which every piece has at least the bound of the box
        that it was cut from.
        """
        with suppress(Stopped):
            if self.stored is None:
                self.branch(order)
            else:
                self.rounds(math.inf)
            self.checkpoint.end(partial(frozen, self, []), finished=not len(self.open))
        return self.outcome()

    def resume(self, arrays: Arrays) -> None:
        """Go on where a checkpoint was left."""
        self.stored = thawed(self, arrays)

    def branch(self, order: int | None) -> None:
        """Sample, prove what is easy at the highest order, choose the order for the rest, cut the most urgent boxes."""
        self.report()
        points = search(self.error)
        self.observe(points)
        orders = self.orders(order)
        if len(orders) == 1 or self.goal.eps is None:
            self.floor = self.rounding_floor(points)
        self.begin(orders)
        self.rounds(self.sprint() if len(orders) > 1 else math.inf)
        if len(orders) > 1 and len(self.open) and not self.exhausted():
            self.floor = self.rounding_floor(points)  # an eps below it is rare, and found out here soon enough
            self.settle(orders)
            self.rounds(math.inf)

    def sprint(self) -> float:
        """Boxes to evaluate before a pilot is sent."""
        return max(SPRINT, min(LONGEST_SPRINT, SPRINT_SECONDS / self.cost.seconds))

    def orders(self, order: int | None) -> tuple[int, ...]:
        """The orders to choose from; the cheapest one where there is no room for a choice."""
        if order is not None:
            return (order,)
        every = candidate_orders(self.error.dim)
        return every[-1:] if self.exhausted() else every

    def begin(self, orders: tuple[int, ...]) -> None:
        """Enclose the whole domain, at the highest order: many a proof ends before a choice would have paid."""
        self.order = orders[0]
        self.error.decide()
        if len(orders) > 1:
            self.cost = sized(self.whole, self.error.in_one_call(1, self.order), self.error.device)
        else:
            self.cost = cost_of_box(self.error, self.order)
            self.whole()

    def settle(self, orders: tuple[int, ...]) -> None:
        """Choose the order by a pilot, and start anew if it is another one."""
        order, self.cost = choose_order(self.error, self.threshold, orders, self.pilot_time)
        if order != self.order:
            self.order = order
            self.tree = TreeBuilder()
            self.open = self.domain()
            self.closed_bound = 0.0
            self.closed_share = 0.0
            self.spoiled = 0.0
            self.whole()

    def whole(self) -> None:
        """Enclose the whole domain."""
        whole = self.open
        self.open = self.open[:0]
        self.absorb(whole)
        self.close()

    def rounds(self, most: float) -> None:
        """Cut boxes again and again, as long as no more than ``most`` are evaluated in all."""
        while len(self.open) and not self.exhausted():
            self.accept_refutation()
            if most == math.inf and self.wide():  # before the order is chosen nothing is worth handing out
                self.wave()
            elif not self.round(most):
                return
            if most == math.inf:
                self.checkpoint.leave(partial(frozen, self, []))
            self.report()

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

    def wide(self) -> bool:
        """Whether there are boxes enough for units of work, room for what becomes of them, and none that resists."""
        enough = len(self.open) >= FEWEST and self.pieces >= FEWEST * size_of_unit(self.cost.seconds)
        roomy = self.room > SLICE * len(self.open)
        return enough and roomy and self.error.device.type == "cpu" and not self.resisting

    def wave(self) -> None:
        """Hand out the open boxes, and put what comes back in their place."""
        if self.pieces * self.cost.seconds > WORTH_A_GPU and (place := self.gpu()) is not None:
            raise Outgrown(self.order, place)
        groups = dealt(self.open, self.pieces // size_of_unit(self.cost.seconds))
        units = [self.unit(group, self.room // len(groups)) for group in groups]
        found: list[Explored | None] = [*(self.stored or [])]
        stored = len(found)
        self.stored = []
        for one in self.crew.explored(explore, units[stored:]):
            found.append(one)
            self.checkpoint.leave(partial(frozen, self, _until_none(found)))
        self.open = together([self.grafted(*pair) for pair in zip(groups, found, strict=True)])
        if stored:
            match(self)
        self.close()

    def grafted(self, group: Boxes, found: Explored | None) -> Boxes:
        """Take over what became of a unit, if anything did; the boxes that are open after it."""
        if found is None:
            return group
        place = self.tree.graft(group.node, found.axis, found.left, found.bound)
        self.evaluated += found.evaluated
        self.closed_bound = max(self.closed_bound, found.closed_bound)
        self.closed_share += found.closed_share
        self.spoiled = max(self.spoiled, found.known.spoiled)
        if found.known.witness is not None and found.known.witness.value > self.lower:
            self.witness = found.known.witness
        self.observer.proved(torch.from_numpy(found.low), torch.from_numpy(found.high))
        left = as_boxes(found.open)
        return replace(left, node=torch.from_numpy(place[left.node.numpy()]))

    def unit(self, group: Boxes, room: int) -> WorkUnit:
        """Boxes as another process can go on with them."""
        known = Knowledge(self.witness, self.floor, self.spoiled)
        return WorkUnit(as_arrays(group), self.goal, known, self.order, self.chunk, room, SLICE * len(group))

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

    @property
    def chunk(self) -> int:
        """Boxes in one call."""
        return self.cost.chunk

    @property
    def pieces(self) -> int:
        """Into how many the open boxes are to be cut next."""
        return int(torch.exp2(self.levels(self.open).double()).sum())

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
            found = [self.error.enclose(part.low, part.high, self.order, self.threshold, part.stall) for part in parts]
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


class Exploration(Search):
    """A search that goes on with the boxes of a unit, and gives back what is left of them after its slice."""

    def __init__(self, error: ErrorFunction, unit: WorkUnit) -> None:
        super().__init__(error, unit.goal, Budget(unit.room))
        self.open = as_boxes(unit.boxes)
        self.tree = TreeBuilder(len(self.open))
        self.open = replace(self.open, node=torch.arange(len(self.open), dtype=torch.int64, device="cpu"))
        self.tree.state(self.open.node, self.open.bound)
        self.witness = unit.known.witness
        self.floor = unit.known.floor
        self.spoiled = unit.known.spoiled
        self.order = unit.order
        self.cost = Cost(unit.chunk, 0.0)
        self.shown = [self.open[:0]]

    def proved(self, boxes: Boxes) -> None:
        self.shown.append(boxes)

    def found(self, most: int) -> Explored:
        """Go on until ``most`` boxes are evaluated or nothing is left to do here."""
        while len(self.open) and not self.exhausted() and not self.refuted and self.evaluated < most:
            self.round(math.inf)
        shown = together(self.shown)
        size = self.tree.size
        return Explored(
            axis=self.tree.axis[:size],
            left=self.tree.left[:size],
            bound=self.tree.bound[:size],
            open=as_arrays(self.open),
            low=shown.low.numpy(),
            high=shown.high.numpy(),
            known=Knowledge(self.witness, self.floor, self.spoiled),
            closed_bound=self.closed_bound,
            closed_share=self.closed_share,
            evaluated=self.evaluated,
        )


def explore(error: ErrorFunction, unit: WorkUnit) -> Explored:
    """What becomes of a unit: a function of the unit alone."""
    return Exploration(error, unit).found(unit.most)


def _until_none(found: list[Explored | None]) -> list[Explored]:
    """What came back of the first units, up to one that nothing came back of."""
    done: list[Explored] = []
    for one in found:
        if one is None:
            break
        done.append(one)
    return done


def nothing_known(box: Box) -> Outcome:
    """The outcome of no search at all: the whole box, without a bound."""
    tree, bounds = TreeBuilder().finish(box.lower.flatten(), box.upper.flatten())
    return Outcome(False, None, math.inf, tree, bounds, 0, 0, _worst_leaf(tree, bounds))


def _worst_leaf(tree: BoxTree, bounds: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    at = int(np.where(np.isnan(bounds), np.inf, bounds).argmax())
    low, high = tree.boxes()
    return tuple(low[at].tolist()), tuple(high[at].tolist())
