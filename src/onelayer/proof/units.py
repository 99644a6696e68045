"""Units of work: open boxes that are cut until they are bounded, by whoever has time, and what comes back of them.

A unit is explored by a function of the unit alone, and a search deals its open boxes into units by their number and by
a model of cost alone. Who explores a unit, and in which order units finish, cannot change a certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.proof.boxes import Boxes
from onelayer.proof.tree import Floats, Ints
from onelayer.proof.witness import Witness

# Units of a wave: work for the cores of a large machine, several times over.
FEWEST, MOST = 16, 64
# By the model of cost, in one call: below, a call costs nearly the same however few boxes are in it.
LEAST_SECONDS = 0.1
# Boxes evaluated for each box of a unit before the rest is dealt anew: no unit takes long.
SLICE = 16
SMALLEST, LARGEST = 32, 2048  # boxes of a unit

Numbers = tuple[NDArray[np.generic], ...]


@dataclass(frozen=True)
class Goal:
    """What ends a search: every box bounded by ``eps``, or by (1 + gap) times the largest error seen."""

    eps: float | None
    gap: float

    def threshold(self, lower: float) -> float:
        """The bound that a box must meet: eps, or a little above what was found."""
        if self.eps is None:
            return lower * (1 + self.gap)
        return self.eps


@dataclass(frozen=True)
class Knowledge:
    """What a search knows beside its boxes: the error at the best point, rounding and boxes that spoil the goal."""

    witness: Witness | None
    floor: float
    spoiled: float


@dataclass(frozen=True)
class WorkUnit:
    """Open boxes as arrays, and all that a search needs to go on with them."""

    boxes: Numbers
    goal: Goal
    known: Knowledge
    order: int
    chunk: int
    room: int  # boxes that may be evaluated
    most: int  # and after how many the rest is given back


@dataclass(frozen=True)
class Explored:
    """What became of a unit: its tree, one root for each of its boxes first, and the boxes that are still open."""

    roots: Ints  # the numbers that its boxes have in the tree of the search
    axis: NDArray[np.int16]
    left: Ints
    bound: Floats
    open: Numbers
    # Corners of the boxes that are bounded, for those who look on.
    low: Floats
    high: Floats
    known: Knowledge
    closed_bound: float
    closed_share: float
    evaluated: int


def as_arrays(boxes: Boxes) -> Numbers:
    """Boxes as they travel."""
    columns = (getattr(boxes, item.name) for item in fields(boxes))
    return tuple(column.numpy() for column in columns)


def as_boxes(arrays: Numbers) -> Boxes:
    """Boxes that have arrived, in memory of their own."""
    return Boxes(*(torch.from_numpy(np.array(array)) for array in arrays))


def size_of_unit(seconds: float) -> int:
    """Boxes of a unit, from what one box costs."""
    if seconds > 0:
        return max(SMALLEST, min(LARGEST, math.ceil(LEAST_SECONDS / seconds)))
    return LARGEST


def dealt(boxes: Boxes, count: int) -> list[Boxes]:
    """Boxes in about ``count`` units, each with its share of the urgent ones."""
    # No unit without a box, and no wave without a unit.
    count = max(1, min(MOST, len(boxes), count))
    order = boxes.urgency()
    # Dealt like cards: the urgent boxes are the hard ones, and every unit gets some.
    return [boxes[order[first::count]] for first in range(count)]
