"""The boxes of a proof as the leaves of a bisection tree, whose bytes the checker reads by code of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.errors import OnelayerError

LEAF = 255  # the byte of a box that is not cut
MAX_DIM = 254  # axes that a byte can name beside LEAF
MAX_NODES = 2**28 - 1  # a quarter of a gigabyte of them
# Nodes times coordinates: what their corners take in memory.
MAX_NUMBERS = 2**26
# Cuts one inside another: halvings from the largest float to the smallest, on eight axes.
MAX_DEPTH = 2**14

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def midpoint(low: Floats, high: Floats) -> Floats:
    """The split point of [low, high]: the float nearest to low/2 + high/2. It cannot overflow."""
    middle: Floats = low / 2 + high / 2
    return middle


@dataclass(frozen=True, eq=False)
class BoxTree:
    """A root box and the bisections that cut it; its leaves cover the root exactly, by construction.

    ``tree`` lists the nodes in preorder, one byte each: 255 is a leaf, any other byte is the axis at whose midpoint the
    box is cut, left child (the lower half) first. A cut needs a float strictly between the two ends.
    """

    lower: Floats  # (D,)
    upper: Floats  # (D,)
    tree: NDArray[np.uint8]
    _right: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        low = np.array(self.lower, dtype=np.float64)
        high = np.array(self.upper, dtype=np.float64)
        tree = np.array(self.tree, dtype=np.uint8)
        _need_box(low, high)
        if tree.ndim != 1 or not 1 <= tree.size <= MAX_NODES or tree.size * low.size > MAX_NUMBERS:
            raise OnelayerError(f"a box tree needs 1 to {min(MAX_NODES, MAX_NUMBERS // low.size)} nodes")
        # A byte may name an axis that this box does not have.
        if bool(((tree != LEAF) & (tree >= low.size)).any()):
            raise OnelayerError(f"a box tree over {low.size} coordinates cuts an axis that does not exist")
        for array in (low, high, tree):
            array.setflags(write=False)
        # A frozen class takes its arrays once, here: nobody can change a proof afterwards.
        held = {"lower": low, "upper": high, "tree": tree, "_right": _right_children(tree)}
        for name, value in held.items():
            object.__setattr__(self, name, value)

    @property
    def leaves(self) -> int:
        """Number of leaf boxes."""
        return (self.tree.size + 1) // 2

    def boxes(self) -> tuple[Floats, Floats]:
        """Lower and upper corners of the leaves in preorder, each (leaves, D)."""
        low = np.empty((self.tree.size, self.lower.size))
        high = np.empty_like(low)
        low[0] = self.lower
        high[0] = self.upper
        # Level by level instead of node by node: a few array operations per depth.
        level = np.flatnonzero(self.tree[:1] != LEAF)
        depth = 0
        while level.size:
            depth += 1
            if depth > MAX_DEPTH:
                raise OnelayerError(f"a box tree has at most {MAX_DEPTH} cuts one inside another")
            axis = self.tree[level].astype(np.int64)
            left = level + 1
            right = self._right[level]
            below, above = low[level, axis], high[level, axis]
            middle = midpoint(below, above)
            # Without a float between its ends a half would be the whole, and a tree of halves could go on for ever.
            if not bool(((below < middle) & (middle < above)).all()):
                raise OnelayerError("a box tree cuts an interval that has no float between its ends")
            for child in (left, right):
                low[child] = low[level]
                high[child] = high[level]
            high[left, axis] = middle
            low[right, axis] = middle
            level = np.concatenate([left, right])
            level = level[self.tree[level] != LEAF]
        keep = self.tree == LEAF
        return low[keep], high[keep]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoxTree):
            return NotImplemented
        names = ("tree", "lower", "upper")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)


def _right_children(tree: NDArray[np.uint8]) -> Ints:
    """Index of the right child of every cut of a preorder tree (0 at leaves), or an error if it is no binary tree.

    A preorder of cuts (+1) and leaves (-1) is one binary tree iff its running sum stays >= 0 before the last node and
    ends at -1. The right child of node i is the first node after i at which the sum is back at its value before i.
    """
    running = np.cumsum(np.where(tree == LEAF, -1, 1))
    if running[-1] != -1 or bool((running[:-1] < 0).any()):
        raise OnelayerError("the box tree is not one binary tree: cuts and leaves do not match")
    before = np.concatenate([[0], running[:-1]])
    # Nodes of equal value one after another, in preorder: each cut is followed by its right child.
    order = np.argsort(before, kind="stable")
    right = np.zeros(tree.size, dtype=np.int64)
    right[order[:-1]] = order[1:]
    right[tree == LEAF] = 0
    return right


def preorder(axis: NDArray[Any], left: NDArray[Any]) -> tuple[NDArray[np.uint8], Ints]:
    """Preorder bytes of a tree given by ``axis`` (-1 at leaves) and ``left`` (the right child is left + 1).

    Nodes are numbered so that children come after their parents; node 0 is the root. Also returns the place of every
    node in the preorder.
    """
    size = np.ones(axis.size, dtype=np.int64)  # nodes of the subtree below each node, itself included
    levels = []
    level = np.array([0], dtype=np.int64)
    while level.size:
        level = level[axis[level] >= 0]
        levels.append(level)
        level = np.concatenate([left[level], left[level] + 1])
    for level in reversed(levels):
        child = left[level]
        size[level] += size[child] + size[child + 1]
    place = np.zeros(axis.size, dtype=np.int64)
    # A left child follows its parent at once, a right child after the whole left subtree.
    for level in levels:
        child = left[level]
        place[child] = place[level] + 1
        place[child + 1] = place[child] + size[child]
    tree = np.empty(axis.size, dtype=np.uint8)
    tree[place] = np.where(axis >= 0, axis, LEAF)
    return tree, place


def _need_box(low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
    """The root of a tree is a box with finite bounds."""
    if low.ndim != 1 or low.shape != high.shape or not 1 <= low.size <= MAX_DIM:
        raise OnelayerError(f"a box tree needs 1 to {MAX_DIM} coordinates with two bounds each")
    finite = np.isfinite(low).all() and np.isfinite(high).all()
    if not (finite and (low <= high).all()):
        raise OnelayerError("the root box of a tree needs finite bounds with lower <= upper")
