"""What a search comes to: an enclosure of sup|T - f|, read off the leaves of its tree."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onelayer.box import Box
from onelayer.proof.boxes import TreeBuilder
from onelayer.proof.tree import BoxTree, Floats
from onelayer.proof.witness import Witness


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


def nothing_known(box: Box) -> Outcome:
    """The outcome of no search at all: the whole box, without a bound."""
    # One leaf without a bound: NaN, which counts as infinite.
    tree, bounds = TreeBuilder().finish(box.lower.flatten(), box.upper.flatten())
    return Outcome(False, None, math.inf, tree, bounds, 0, 0, worst_leaf(tree, bounds))


def worst_leaf(tree: BoxTree, bounds: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Corners of the leaf with the largest bound; one without a number for a bound counts as infinite."""
    known = np.where(np.isnan(bounds), np.inf, bounds)
    at = int(known.argmax())
    low, high = tree.boxes()
    return tuple(low[at].tolist()), tuple(high[at].tolist())
