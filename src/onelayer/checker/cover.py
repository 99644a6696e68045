"""The leaves of a box tree: that they cover the domain, which share of it each holds, in which order to prove them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onelayer.checker.outcome import Rejected
from onelayer.checker.reader import SavedProof
from onelayer.checker.weights import Array

LEAF = 255  # the byte of a box that is not cut
MAX_DEPTH = 2**14  # cuts above one box; the numbers of a side end long before


def leaves(proof: SavedProof) -> tuple[Array, Array]:
    """Corners of the leaf boxes; Rejected unless they cover the domain exactly.

    The tree lists cuts in preorder. A cut at m strictly inside [a, b] leaves [a, m] and [m, b], whose union is the box;
    so the leaves cover the root if every cut is of that kind and the bytes are exactly one tree. Count +1 for a cut and
    -1 for a leaf: the bytes are one tree iff the sum is first negative after the last of them. Let d be the sum before
    a node. A left child is the next node; the right child of a cut is the next node with the same d.
    """
    if proof.tree is None:
        raise Rejected("the proof has no boxes")
    code = proof.tree.tree
    leaf = code == LEAF
    sums = np.cumsum(np.where(leaf, -1, 1).astype(np.int8), dtype=np.int32)
    if sums[-1] != -1 or bool((sums[:-1] < 0).any()):
        raise Rejected("the boxes do not cover the domain: the bytes are not one tree")
    rank = np.cumsum(leaf, dtype=np.int32) - 1
    if int(rank[-1]) + 1 != proof.record.boxes:
        raise Rejected("the boxes do not cover the domain: the certificate states another number of them")
    following = _following(sums)
    # All boxes of one depth at a time, from the root.
    node = np.array([0])
    low, high = (np.array([side], dtype=np.float64) for side in proof.record.domain)
    # NaN, which no proof survives, should a leaf be left out.
    lows, highs = (np.full((proof.record.boxes, low.shape[1]), np.nan) for _ in range(2))
    for _ in range(MAX_DEPTH):
        ends = leaf[node]
        lows[rank[node[ends]]] = low[ends]
        highs[rank[node[ends]]] = high[ends]
        node = node[~ends]
        low = low[~ends]
        high = high[~ends]
        if not node.size:
            break
        low, high = _halves(code[node], low, high)
        node = np.concatenate([node + 1, following[node]])
    else:
        raise Rejected(f"the box tree has more than {MAX_DEPTH} cuts one inside another")
    return lows, highs


def _following(sums: NDArray[np.int32]) -> NDArray[np.int32]:
    """For each node the next one before which the sum is the same."""
    before = np.concatenate([[0], sums[:-1]]).astype(np.int32)
    order = np.argsort(before, kind="stable").astype(np.int32)
    following = np.empty_like(order)
    following[order[:-1]] = order[1:]
    following[order[-1]] = -1
    return following


def _halves(axis: NDArray[np.uint8], low: Array, high: Array) -> tuple[Array, Array]:
    """Lower halves of all boxes, then their upper halves."""
    if bool((axis >= low.shape[1]).any()):
        raise Rejected("the box tree cuts a coordinate that does not exist")
    rows = np.arange(len(axis))
    a = low[rows, axis]
    b = high[rows, axis]
    centre = a / 2 + b / 2
    if not bool(((a < centre) & (centre < b)).all()):
        raise Rejected("the box tree cuts an interval without a float inside")
    below = high.copy()
    above = low.copy()
    below[rows, axis] = above[rows, axis] = centre
    return np.concatenate([low, above]), np.concatenate([below, high])


def shares(low: Array, high: Array) -> Array:
    """Share of the volume in each box, over the coordinates that have a width; equal shares if none has."""
    widths = high / 2 - low / 2
    widths = widths[:, widths.max(0) > 0]
    # By logarithms: the volume of a box in hundreds of coordinates is no float.
    logs = np.zeros(len(low))
    if widths.size:
        with np.errstate(divide="ignore"):
            logs = np.log(widths / widths.max(0)).sum(1)
    volumes = np.exp(logs - logs.max())
    found: Array = volumes / volumes.sum()
    return found


def random_order(volumes: Array, first: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A permutation of the boxes: ``first``, then by turns one drawn by volume and one drawn by count.

    Whoever made the proof cannot know it: neither a wrong box among many nor a large one is likely to come late.
    """
    with np.errstate(divide="ignore"):
        by_volume = np.argsort(rng.exponential(size=len(volumes)) / volumes)
    by_count = rng.permutation(len(volumes))
    drawn = np.concatenate([first, np.stack([by_volume, by_count], 1).ravel()])
    _, at = np.unique(drawn, return_index=True)
    found: NDArray[np.int64] = drawn[np.sort(at)]
    return found
