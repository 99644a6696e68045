"""One unit of work, explored: its boxes are cut for a while, by whoever has time, and what is left is given back."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from onelayer.proof.boxes import Boxes, TreeBuilder, together
from onelayer.proof.cost import Cost
from onelayer.proof.error import ErrorFunction
from onelayer.proof.frontier import Budget, Frontier
from onelayer.proof.units import Explored, Knowledge, WorkUnit, as_arrays, as_boxes


class Exploration(Frontier):
    """A search that goes on with the boxes of a unit, and gives back what is left of them after its slice."""

    def __init__(self, error: ErrorFunction, unit: WorkUnit) -> None:
        super().__init__(error, unit.goal, Budget(unit.room))
        boxes = as_boxes(unit.boxes)
        # A tree with one root for each box: their numbers in the tree of the search mean nothing here, and go back.
        self.roots = boxes.node.numpy()
        node = torch.arange(len(boxes), dtype=torch.int64, device="cpu")
        self.open = replace(boxes, node=node)
        self.tree = TreeBuilder(len(boxes))
        self.tree.state(node, boxes.bound)
        self.witness = unit.known.witness
        self.floor = unit.known.floor
        self.spoiled = unit.known.spoiled
        self.order = unit.order
        # Calls as large as in the search: bounds may depend on the batch, and must not on who computes.
        self.cost = Cost(unit.chunk, 0.0)
        self.shown = [self.open[:0]]

    def proved(self, boxes: Boxes) -> None:
        # The observer is in another process: they are shown when they are back.
        self.shown.append(boxes)

    def found(self, most: int) -> Explored:
        """Go on until ``most`` boxes are evaluated or nothing is left to do here."""
        # A refutation ends the claim: what is left to do after it the search decides.
        while len(self.open) and not self.exhausted() and not self.refuted and self.evaluated < most:
            self.round(math.inf)
        shown = together(self.shown)
        size = self.tree.size
        return Explored(
            roots=self.roots,
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
