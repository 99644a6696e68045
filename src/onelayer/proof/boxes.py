"""Open boxes of a search: how they are kept, cut and recorded in the tree."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.proof.tree import LEAF, BoxTree, Floats, Ints, preorder

MAX_LEVELS = 6  # halvings of one box in one call: 64 parts
# A cut that leaves more than this part of the bound has not helped.
STALLED = 0.998
# Cuts without effect before a box is given up: every axis has its turn five times, where there is no bound sixteen
# times, for many halvings may be needed before one appears.
STALL_LIMIT, STALL_PER_AXIS, UNBOUNDED_PER_AXIS = 4, 5, 16
# Cuts per axis that may fail to help before lengths decide.
PATIENCE = 2


@dataclass(frozen=True)
class Boxes:
    """B boxes with what is known of them; ``stall`` counts the cuts since the bound last improved."""

    node: Tensor  # (B,)
    low: Tensor  # (B, D)
    high: Tensor  # (B, D)
    bound: Tensor  # (B,)
    sensitivity: Tensor  # (B, D)
    depth: Tensor  # (B,)
    stall: Tensor  # (B,)

    def __len__(self) -> int:
        return self.node.shape[0]

    def __getitem__(self, index: Tensor | slice) -> Boxes:
        parts = (getattr(self, item.name)[index] for item in fields(self))
        return Boxes(*parts)

    @property
    def splittable(self) -> Tensor:
        """(B, D): whether there is a float strictly between the two ends of the axis."""
        middle = self.low / 2 + self.high / 2
        return (self.low < middle) & (middle < self.high)

    def urgency(self) -> Tensor:
        """Order of treatment, most urgent first: boxes that resist, then large bounds."""
        by_bound = torch.argsort(self.bound, descending=True, stable=True)
        by_stall = torch.argsort(self.stall[by_bound], descending=True, stable=True)
        return by_bound[by_stall]

    def stuck(self) -> Tensor:
        """(B,): no axis can be cut, or many cuts in a row have not improved the bound."""
        dim = self.low.shape[1]
        allowed = torch.full_like(self.stall, STALL_LIMIT + STALL_PER_AXIS * dim)
        unbounded = ~torch.isfinite(self.bound)
        allowed[unbounded] = STALL_LIMIT + UNBOUNDED_PER_AXIS * dim
        return ~self.splittable.any(1) | (self.stall > allowed)

    def levels(self, threshold: float, order: int) -> Tensor:
        """How many cuts in a row each box gets. Heuristic: the bound falls like side^(order + 1) until it is small."""
        unreachable = torch.full_like(self.bound, torch.inf)
        excess = self.bound / threshold if threshold > 0 else unreachable
        excess = excess.clamp(1, 1e300)
        dim = self.low.shape[1]
        # To halve all D sides takes D cuts and lets the bound fall by 2^(order + 1).
        levels = (dim * torch.log2(excess) / (order + 1)).floor()
        levels = torch.where(torch.isfinite(self.bound), levels, dim)
        return levels.clamp(1, MAX_LEVELS).long()


class TreeBuilder:
    """The bisection tree under construction: axis of every node (-1 at a leaf), left child (right = left + 1), bound.

    The bound of a node is NaN until it is stated, so a leaf that a search forgets can never count as bounded.
    """

    def __init__(self, roots: int = 1) -> None:
        self.axis = np.full(1024, -1, dtype=np.int16)
        self.left = np.zeros(1024, dtype=np.int64)
        self.bound = np.full(1024, np.nan)
        self.size = 0
        self._grow(roots)

    def _grow(self, count: int) -> int:
        """Room for so many nodes more; the number of the first of them."""
        first = self.size
        self.size += count
        # Twice as much each time, so that growing costs a constant per node on the whole.
        while self.size > len(self.axis):
            self.axis = np.concatenate([self.axis, np.full_like(self.axis, -1)])
            self.left = np.concatenate([self.left, np.zeros_like(self.left)])
            self.bound = np.concatenate([self.bound, np.full_like(self.bound, np.nan)])
        return first

    def cut(self, nodes: Tensor, axes: Tensor) -> Tensor:
        """Turn the leaves ``nodes`` into cuts; returns the numbers of their left children."""
        first = self._grow(2 * len(nodes))
        # Children are neighbours: the right one is always the left one's number plus 1.
        left = first + 2 * np.arange(len(nodes))
        at = nodes.cpu().numpy()
        self.axis[at] = axes.cpu().numpy()
        self.left[at] = left
        return torch.from_numpy(left).to(nodes.device)

    def state(self, nodes: Tensor, bound: Tensor) -> None:
        """Write down the bounds of nodes."""
        self.bound[nodes.cpu().numpy()] = bound.cpu().numpy()

    def graft(self, nodes: Tensor, axis: NDArray[np.int16], left: Ints, bound: Floats) -> Ints:
        """Put a tree with a root for each of the leaves ``nodes`` in their place; the numbers of its nodes here."""
        roots = nodes.numpy()
        first = self._grow(len(axis) - len(roots))
        # Its roots take the numbers of the leaves that they replace, all others follow the nodes that are here.
        place = np.concatenate([roots, np.arange(first, self.size)])
        child = left[axis >= 0]
        if bool((child < len(roots)).any() or (child + 1 >= len(axis)).any()):
            raise IndexError("a tree to be grafted points outside itself")
        self.axis[place] = axis
        self.left[place] = np.where(axis >= 0, place[left], 0)
        self.bound[place] = bound
        return place

    def leaves_with(self, points: Tensor, whole: Boxes) -> Boxes:
        """The leaf in which each point (C, D) lies, cut from the ``whole`` domain; ``node`` numbers the points."""
        who = torch.arange(len(points), dtype=torch.int64, device="cpu")
        at = np.zeros(len(points), dtype=np.int64)
        boxes = replace(whole[torch.zeros_like(who)], node=who)
        low = boxes.low.clone()
        high = boxes.high.clone()
        depth = boxes.depth.clone()
        # All points descend one level at a time; those that have reached a leaf wait there.
        while (inner := self.axis[at] >= 0).any():
            row = who[torch.from_numpy(inner)]
            axis = torch.from_numpy(self.axis[at[inner]].astype(np.int64))
            lower, upper = low[row, axis], high[row, axis]
            middle = lower / 2 + upper / 2
            right = points[row, axis] >= middle
            low[row, axis] = torch.where(right, middle, lower)
            high[row, axis] = torch.where(right, upper, middle)
            depth[row] += 1
            at[inner] = self.left[at[inner]] + right.numpy()
        bound = torch.from_numpy(self.bound[at])
        return replace(boxes, low=low, high=high, bound=bound, depth=depth)

    def places(self) -> Ints:
        """The place of every node in the preorder."""
        return self._preorder()[1]

    def _preorder(self) -> tuple[NDArray[np.uint8], Ints]:
        """The bytes of the tree in preorder, and the place of every node among them."""
        return preorder(self.axis[: self.size], self.left[: self.size])

    def finish(self, low: Tensor, high: Tensor) -> tuple[BoxTree, Floats]:
        """The tree, and the bounds of its leaves in preorder, NaN where none was stated."""
        code, place = self._preorder()
        bound = np.empty(self.size)
        bound[place] = self.bound[: self.size]
        leaves = bound[code == LEAF]
        return BoxTree(low.numpy(), high.numpy(), code), leaves


def root(low: Tensor, high: Tensor) -> Boxes:
    """The whole domain, nothing known."""
    zero = torch.zeros(1, dtype=torch.int64, device=low.device)
    unknown = torch.full((1,), torch.inf, dtype=torch.float64, device=low.device)
    # Before the first enclosure the sides stand for the sensitivities.
    side = (high - low)[None]
    return Boxes(zero, low[None], high[None], unknown, side, zero, zero)


def axis_to_cut(boxes: Boxes, span: Tensor) -> Tensor:
    """(B,): the splittable axis that contributes most to the bound; the longest one where that has not helped of late.

    ``span`` (D,): sides of the domain, in which lengths are measured. Sooner or later every axis is cut, so a wrong
    guess of the sensitivities costs boxes and never the proof.
    """
    keep = boxes.splittable
    # An axis that cannot be cut must never win, not even against a sensitivity of zero.
    score = torch.where(keep, boxes.sensitivity.nan_to_num(0.0, 1e300, 0.0), -1.0)
    side = (boxes.high - boxes.low) / torch.where(span > 0, span, 1.0)
    length = torch.where(keep, side, -1.0)
    impatient = boxes.stall >= PATIENCE * boxes.low.shape[1]
    misled = (score.amax(1) <= 0) | impatient
    return torch.where(misled, length.argmax(1), score.argmax(1))


def cut(boxes: Boxes, levels: Tensor, order: int, span: Tensor, tree: TreeBuilder) -> Boxes:
    """Cut every box ``levels`` times, each time all its pieces along the axis that contributes most to the bound.

    Lemma: a cut at the float m, low < m < high, gives two closed boxes whose union is the box. Pieces inherit the bound
    of their ancestor, which is valid on them. A cut axis is expected to contribute 2^-order of what it did before.
    """
    done: list[Boxes] = []
    for level in range(1, int(levels.max()) + 1):
        movable = boxes.splittable.any(1) & (levels >= level)
        done.append(boxes[~movable])
        boxes = boxes[movable]
        levels = levels[movable]
        if not len(boxes):
            break
        boxes = _halves(boxes, axis_to_cut(boxes, span), order, tree)
        # All left pieces come before all right ones.
        levels = torch.cat([levels, levels])
    return together([*done, boxes])


def _halves(boxes: Boxes, axis: Tensor, order: int, tree: TreeBuilder) -> Boxes:
    left = tree.cut(boxes.node, axis)
    row = torch.arange(len(boxes), dtype=torch.int64, device=axis.device)
    # As the tree is read: its split point is low / 2 + high / 2, the same float.
    middle = boxes.low[row, axis] / 2 + boxes.high[row, axis] / 2
    low = boxes.low.clone()
    high = boxes.high.clone()
    sensitivity = boxes.sensitivity.clone()
    high[row, axis] = middle
    low[row, axis] = middle
    sensitivity[row, axis] *= 2.0**-order
    # The stall counts on; fresh enclosures set it back to zero where the bound has fallen.
    depth = boxes.depth + 1
    stall = boxes.stall + 1
    first = Boxes(left, boxes.low, high, boxes.bound, sensitivity, depth, stall)
    second = Boxes(left + 1, low, boxes.high, boxes.bound, sensitivity, depth, stall)
    return together([first, second])


def together(parts: list[Boxes]) -> Boxes:
    """All boxes of the parts, in order."""
    columns = (torch.cat([getattr(part, item.name) for part in parts]) for item in fields(Boxes))
    return Boxes(*columns)


def updated(boxes: Boxes, bound: Tensor, sensitivity: Tensor) -> Boxes:
    """The boxes with fresh enclosures. The inherited bound stays where it is smaller: both hold."""
    better = torch.minimum(bound, boxes.bound)
    helped = better < STALLED * boxes.bound
    stall = torch.where(helped, 0, boxes.stall)
    return Boxes(boxes.node, boxes.low, boxes.high, better, sensitivity, boxes.depth, stall)
