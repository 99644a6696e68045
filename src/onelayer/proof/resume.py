"""The state of a search as arrays and back; what comes back is held against the tree that it claims to belong to."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.errors import FileError, OnelayerError
from onelayer.proof.boxes import Boxes, TreeBuilder
from onelayer.proof.checkpoint import Arrays
from onelayer.proof.cost import Cost
from onelayer.proof.error import ErrorFunction
from onelayer.proof.tree import LEAF
from onelayer.proof.units import Explored, Goal, Knowledge, Numbers, as_arrays, as_boxes
from onelayer.proof.witness import Witness, verified

if TYPE_CHECKING:
    from onelayer.proof.search import Search

TRIED = 64  # boxes of a checkpoint whose bounds are computed again
# Between two computations of one bound in different batches, whose sums are rounded in other orders.
SLACK = 1.01

NUMBERS = ("closed_bound", "closed_share", "spoiled", "floor")


def frozen(search: Search, found: list[Explored]) -> Arrays:
    """A search between two rounds, with what has come back of the units of a wave so far."""
    size = search.tree.size
    goal = search.goal
    # An array holds numbers alone: NaN stands for a search without an eps.
    eps = np.nan if goal.eps is None else goal.eps
    counts = [search.order, search.cost.chunk, search.evaluated, search.budget.boxes, len(found)]
    arrays: Arrays = {
        "axis": search.tree.axis[:size],
        "left": search.tree.left[:size],
        "bound": search.tree.bound[:size],
        "numbers": np.array([getattr(search, name) for name in NUMBERS]),
        "goal": np.array([eps, goal.gap, search.cost.seconds]),
        "counts": np.array(counts),
        **_witness("", search.witness),
        **_named("open", as_arrays(search.open)),
    }
    for at, unit in enumerate(found):
        known = unit.known
        arrays |= {f"{at}.{name}": getattr(unit, name) for name in ("roots", "axis", "left", "bound", "low", "high")}
        arrays |= _named(f"{at}.open", unit.open)
        arrays[f"{at}.numbers"] = np.array([unit.closed_bound, unit.closed_share, known.spoiled, known.floor])
        arrays[f"{at}.counts"] = np.array([unit.evaluated])
        arrays |= _witness(f"{at}.", known.witness)
    return arrays


def _named(name: str, boxes: Numbers) -> Arrays:
    columns = zip(fields(Boxes), boxes, strict=True)
    return {f"{name}.{item.name}": array for item, array in columns}


def _boxes(arrays: Arrays, name: str) -> Numbers:
    """The inverse of ``_named``."""
    return tuple(arrays[f"{name}.{item.name}"] for item in fields(Boxes))


def _witness(prefix: str, witness: Witness | None) -> Arrays:
    values = [] if witness is None else [witness.value, *witness.point]
    return {f"{prefix}witness": np.array(values, dtype=np.float64)}


def thawed(search: Search, arrays: Arrays) -> list[Explored]:
    """Put a search where it was; what had come back of the units of a wave. Raises FileError for what cannot be."""
    try:
        order, chunk, evaluated, budget, units = (int(n) for n in arrays["counts"])
        eps, gap, seconds = (float(n) for n in arrays["goal"])
        for name, value in zip(NUMBERS, arrays["numbers"].tolist(), strict=True):
            setattr(search, name, value)
        search.order = order
        search.cost = Cost(chunk, seconds)
        search.evaluated = evaluated
        goal = Goal(None if np.isnan(eps) else eps, gap)
        # After a refutation a few boxes more were allowed.
        if goal != search.goal:
            search.goal = goal
            search.budget = type(search.budget)(budget)
        search.witness = _read_witness(arrays["witness"], search.error)
        search.tree = _tree(arrays, search.error.dim)
        search.open = as_boxes(_boxes(arrays, "open"))
        found = [_found(arrays, at, search.error) for at in range(units)]
    except (KeyError, ValueError, TypeError) as error:
        raise FileError(f"the checkpoint lacks a part of a proof ({str(error)[:80]}); start anew") from error
    match(search)
    _try_again(search)
    return found


def _read_witness(values: NDArray[Any], error: ErrorFunction) -> Witness | None:
    """The witness with no larger an error than is verified at it again; a lower bound is never taken on trust."""
    if not values.size:
        return None
    stated = float(values[0])
    point = torch.from_numpy(np.array(values[1:]))
    again = verified(error, point[None]) if len(point) == error.dim else None
    if again is None or not stated <= SLACK * again.value:
        raise ValueError("its witness has not the error that it states")
    return Witness(tuple(point.tolist()), min(stated, again.value))


def _found(arrays: Arrays, at: int, error: ErrorFunction) -> Explored:
    closed_bound, closed_share, spoiled, floor = arrays[f"{at}.numbers"].tolist()
    return Explored(
        roots=arrays[f"{at}.roots"],
        axis=arrays[f"{at}.axis"],
        left=arrays[f"{at}.left"],
        bound=arrays[f"{at}.bound"],
        open=_boxes(arrays, f"{at}.open"),
        low=arrays[f"{at}.low"],
        high=arrays[f"{at}.high"],
        known=Knowledge(_read_witness(arrays[f"{at}.witness"], error), floor, spoiled),
        closed_bound=closed_bound,
        closed_share=closed_share,
        evaluated=int(arrays[f"{at}.counts"][0]),
    )


def _tree(arrays: Arrays, dim: int) -> TreeBuilder:
    """One binary tree: every node but the first is a child of one node before it."""
    axis = arrays["axis"]
    left = arrays["left"]
    bound = arrays["bound"]
    size = axis.size
    cuts = np.flatnonzero(axis >= 0)
    children = np.sort(np.concatenate([left[cuts], left[cuts] + 1]))
    alike = left.size == bound.size == size > 0
    # Downward, so that no node is its own ancestor; every number once, so that no node has two parents.
    downward = alike and bool((axis < dim).all()) and bool((left[cuts] > cuts).all())
    if not downward or not np.array_equal(children, np.arange(1, size)):
        raise ValueError("its boxes are not one tree")
    tree = TreeBuilder(size)
    tree.axis[:size] = axis
    tree.left[:size] = left
    tree.bound[:size] = bound
    return tree


def match(search: Search) -> None:
    """Every open box is the leaf of the tree that it says it is. A leaf that is not open counts with its bound."""
    box = search.error.box
    nodes = search.open.node.numpy()
    axis = search.tree.axis[: search.tree.size]
    known = bool(((nodes >= 0) & (nodes < axis.size)).all())
    if not known or len(set(nodes.tolist())) < nodes.size:
        raise FileError("the checkpoint has open boxes that are none of its tree; start anew")
    try:
        tree, _ = search.tree.finish(box.lower.flatten(), box.upper.flatten())
        low, high = tree.boxes()
    except OnelayerError as error:
        raise FileError(f"the checkpoint cuts boxes that cannot be cut ({error}); start anew") from error
    # The place of a node in the preorder, and of a leaf among the leaves.
    place = search.tree.places()[nodes]
    leaf = (np.cumsum(tree.tree == LEAF) - 1)[place]
    same_low = np.array_equal(low[leaf], search.open.low.numpy())
    same_high = np.array_equal(high[leaf], search.open.high.numpy())
    if bool((axis[nodes] >= 0).any()) or not same_low or not same_high:
        raise FileError("the checkpoint has open boxes with other corners than those of its tree; start anew")


def _try_again(search: Search) -> None:
    """Some of the bounds, computed again."""
    box = search.error.box
    tree, bounds = search.tree.finish(box.lower.flatten(), box.upper.flatten())
    stated = np.flatnonzero(bounds <= search.threshold)
    if not stated.size:
        return
    chosen = np.random.default_rng(0).choice(stated, min(TRIED, stated.size), replace=False)
    lows, highs = tree.boxes()
    low = torch.from_numpy(lows[chosen])
    high = torch.from_numpy(highs[chosen])
    again = search.error.bounds(low, high, search.order).numpy()
    # Written as "not <=", so that NaN is refused.
    if not bool((again <= SLACK * bounds[chosen]).all()):
        raise FileError("the checkpoint states bounds that are not found again; start anew")
