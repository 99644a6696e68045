"""Branch and bound: enclose sup|T - f| over a box by cutting it until every piece is bounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from onelayer.card import number_of
from onelayer.errors import ModelAssumptionError, OnelayerError
from onelayer.observer import Stopped
from onelayer.proof.boxes import Boxes, together
from onelayer.proof.checkpoint import Arrays, Checkpoint
from onelayer.proof.cost import cost_of_box, sized
from onelayer.proof.crew import Crew
from onelayer.proof.error import ErrorFunction
from onelayer.proof.exploration import explore
from onelayer.proof.frontier import Budget, Frontier
from onelayer.proof.outcome import Outcome, worst_leaf
from onelayer.proof.pilot import candidate_orders, choose_order, stations
from onelayer.proof.resume import frozen, match, thawed
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
from onelayer.proof.witness import search

# Boxes at the highest order before the order is chosen, as many as cost what a pilot costs, by the model of cost:
# pilots in 2, 4, 6 and 8 dimensions take two to five tenths of a second, three times what that model says of a box.
SPRINT, SPRINT_SECONDS, LONGEST_SPRINT = 512, 0.1, 2048
# Share of the time, if it is limited: a choice of order must leave most of it for the proof.
PILOT_SHARE = 0.25
# After a refutation the upper bound need only be of the size of the error found, and no more than this is spent on it.
REFUTED_GAP, REFUTED_BOXES = 1.0, 512
# Work left, by the model of cost, about half as long on one core: a search on an H200 began in ten seconds at most, and
# a machine that has one has many cores (benchmarks/results/gpu_proofs.json).
WORTH_A_GPU = 60.0


class Outgrown(Exception):
    """A search has found out that it is long, at this order, and there is a GPU on which it is short."""

    def __init__(self, order: int, place: torch.device) -> None:
        super().__init__(f"order {order} on {place}")
        self.order = order
        self.place = place


class Search(Frontier):
    """Branch and bound from the whole domain: by which order, who explores the boxes, and when enough is known."""

    def __init__(self, error: ErrorFunction, goal: Goal, budget: Budget, crew: Crew | None = None) -> None:
        super().__init__(error, goal, budget)
        self.crew = crew or Crew(error)
        self.pilot_time = self.observer.share(PILOT_SHARE)
        self.checkpoint = Checkpoint(None, "")
        # What had come back of a wave that a checkpoint interrupted; None for a search from the beginning.
        self.stored: list[Explored] | None = None
        # Asked for a GPU once one would pay.
        self.gpu: Callable[[], torch.device | None] = lambda: None

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
            # A stopped search leaves its last regular checkpoint: the present state may be amid a round.
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
        # Without an eps the floor sets the threshold from the first box on; with one order there is no later moment to
        # ask.
        if len(orders) == 1 or self.goal.eps is None:
            self.floor = self.rounding_floor(points)
        self.begin(orders)
        self.rounds(self.sprint() if len(orders) > 1 else math.inf)
        # What the sprint has not proved is long enough for a pilot to pay.
        if len(orders) > 1 and len(self.open) and not self.exhausted():
            # An eps below it is rare, and found out here soon enough.
            self.floor = self.rounding_floor(points)
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
        if self.exhausted():
            return every[-1:]
        return every

    def begin(self, orders: tuple[int, ...]) -> None:
        """Enclose the whole domain, at the highest order: many a proof ends before a choice would have paid."""
        self.order = orders[0]
        self.error.decide()
        if len(orders) > 1:
            # The first call is metered instead of one of its own: what it costs is needed roughly.
            boxes = self.error.in_one_call(1, self.order)
            self.cost = sized(self.whole, boxes, self.error.device)
        else:
            self.cost = cost_of_box(self.error, self.order)
            self.whole()

    def settle(self, orders: tuple[int, ...]) -> None:
        """Choose the order by a pilot, and start anew if it is another one."""
        start = stations(self.error, self.tree)
        found = choose_order(self.error, self.threshold, orders, self.pilot_time, start, self.cost)
        order, self.cost = found
        if order != self.order:
            # Bounds of the old order hold, but its boxes have the wrong sizes for the new one.
            self.order = order
            self.begin_anew()
            self.whole()

    def whole(self) -> None:
        """Enclose the whole domain."""
        whole, self.open = self.open, self.open[:0]
        self.absorb(whole)
        self.close()

    def rounds(self, most: float) -> None:
        """Cut boxes again and again, as long as no more than ``most`` are evaluated in all."""
        while len(self.open) and not self.exhausted():
            self.accept_refutation()
            # Before the order is chosen nothing is worth handing out.
            if most == math.inf and self.wide():
                self.wave()
            elif not self.round(most):
                return
            # A checkpoint before that would tie whoever resumes to an order that may lose.
            if most == math.inf:
                self.checkpoint.leave(partial(frozen, self, []))
            self.report()

    def wide(self) -> bool:
        """Whether there are boxes enough for units of work, room for what becomes of them, and none that resists."""
        wanted = FEWEST * size_of_unit(self.cost.seconds)
        # Half a unit each is worth it where others share the work, and costs little where nobody does.
        enough = len(self.open) >= FEWEST and 2 * self.pieces >= wanted
        roomy = self.room > SLICE * len(self.open)
        # A GPU wants all boxes in one call, and boxes that resist are better followed down one by one.
        return enough and roomy and self.error.device.type == "cpu" and not self.resisting

    def wave(self) -> None:
        """Hand out the open boxes, and put what comes back in their place."""
        # The search begins again there, at the order that was chosen here.
        if self.pieces * self.cost.seconds > WORTH_A_GPU and (place := self.gpu()) is not None:
            raise Outgrown(self.order, place)
        count = self.pieces // size_of_unit(self.cost.seconds)
        groups = dealt(self.open, max(FEWEST, count))
        # Each unit has its own share of the room, so that none depends on how far another one came.
        units = [self.unit(group, self.room // len(groups)) for group in groups]
        found: list[Explored | None] = [*_of_these(groups, self.stored or [])]
        stored = len(found)
        self.stored = []
        answers = self.crew.explored(explore, units[stored:])
        for group, one in zip(groups[stored:], answers, strict=True):
            found.append(_of_this(group, one))
            self.checkpoint.leave(partial(frozen, self, _until_none(found)))
        pairs = zip(groups, found, strict=True)
        self.open = together([self.grafted(group, one) for group, one in pairs])
        # Units from a file are foreign: their boxes are held against the tree that they claim to have made.
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
        known = found.known
        if known.witness is not None and known.witness.value > self.lower:
            self.witness = known.witness
        self.observer.proved(torch.from_numpy(found.low), torch.from_numpy(found.high))
        left = as_boxes(found.open)
        # A unit numbers its nodes by itself; here they have the places where its tree was grafted.
        node = place[left.node.numpy()]
        return replace(left, node=torch.from_numpy(node))

    def unit(self, group: Boxes, room: int) -> WorkUnit:
        """Boxes as another process can go on with them."""
        known = Knowledge(self.witness, self.floor, self.spoiled)
        most = SLICE * len(group)
        return WorkUnit(as_arrays(group), self.goal, known, self.order, self.chunk, room, most)

    def report(self) -> None:
        """Tell the observer where the search stands."""
        detail = number_of(self.evaluated, "boxes")
        self.observer.report("proving", self.closed_share, lower=self.lower, upper=self.upper, detail=detail)

    def rounding_floor(self, points: Tensor) -> float:
        """The largest bound on boxes of width zero at the points: no cut gets below it."""
        if not len(points):
            return 0.0
        # A point where nothing is bounded says nothing of rounding.
        bound = self.error.bounds(points, points, 1)
        return float(torch.where(torch.isfinite(bound), bound, 0.0).max())

    @property
    def pieces(self) -> int:
        """Into how many the open boxes are to be cut next."""
        return int(self.sizes(self.open).sum())

    def accept_refutation(self) -> None:
        """Once a witness exceeds eps the claim is lost; a few boxes more still give an upper bound worth stating."""
        if self.refuted:
            self.goal = Goal(None, REFUTED_GAP)
            most = self.evaluated + REFUTED_BOXES
            self.budget = Budget(min(self.budget.boxes, most))

    def outcome(self) -> Outcome:
        """The enclosure, read off the leaves of the tree: a leaf without a number for a bound makes it infinite."""
        box = self.error.box
        tree, bounds = self.tree.finish(box.lower.flatten(), box.upper.flatten())
        # A NaN would make the largest bound NaN, with which every comparison below is false.
        upper = math.inf if np.isnan(bounds).any() else float(bounds.max())
        # Both are rigorous, so this cannot happen unless something that they rest on is not true.
        if self.lower > upper:
            raise ModelAssumptionError(
                f"the enclosure {upper} is below the error {self.lower} at {self.witness}: the model is not what its "
                "operations on enclosures are, or the arithmetic of this machine is not what it should be"
            )
        reached = upper <= self.goal.threshold(self.lower)
        resisted = None if reached else worst_leaf(tree, bounds)
        return Outcome(reached, self.witness, upper, tree, bounds, self.order, self.evaluated, resisted)


def _of_these(groups: list[Boxes], stored: list[Explored]) -> list[Explored]:
    """Of stored units the first ones that began with the boxes that are dealt now; the others are explored again.

    Whoever resumes may have another budget, or a bound that is rounded in another way, and then boxes are dealt
    otherwise. A bound holds on the boxes that it was found for alone. The number of a leaf in the tree is that of one
    box for good, so equal numbers are the same boxes.
    """
    done: list[Explored] = []
    for group, one in zip(groups, stored, strict=False):
        if not _began_with(group, one):
            break
        done.append(one)
    return done


def _began_with(group: Boxes, one: Explored) -> bool:
    return np.array_equal(group.node.numpy(), one.roots)


def _of_this(group: Boxes, one: Explored | None) -> Explored | None:
    """What came back for a unit, if anything did: an executor may answer with what it computed for another one."""
    if one is not None and not _began_with(group, one):
        raise OnelayerError("the executor returned the result of other boxes than it was given; leave executor out")
    return one


def _until_none(found: list[Explored | None]) -> list[Explored]:
    """What came back of the first units, up to one that nothing came back of."""
    done: list[Explored] = []
    for one in found:
        if one is None:
            break
        done.append(one)
    return done
