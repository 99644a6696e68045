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
from onelayer.proof.tree import LEAF
from onelayer.proof.units import Explored, Goal, Knowledge, as_arrays, as_boxes
from onelayer.proof.witness import Witness

if TYPE_CHECKING:
    from onelayer.proof.search import Search

TRIED = 64  # boxes of a checkpoint whose bounds are computed again
SLACK = 1.01  # between two computations of one bound in different batches

NUMBERS = ("closed_bound", "closed_share", "spoiled", "floor")


def frozen(search: Search, found: list[Explored]) -> Arrays:
    """A search between two rounds, with what has come back of the units of a wave so far."""
    size = search.tree.size
    goal = search.goal
    arrays: Arrays = {
        "axis": search.tree.axis[:size],
        "left": search.tree.left[:size],
        "bound": search.tree.bound[:size],
        "numbers": np.array([getattr(search, name) for name in NUMBERS]),
        "goal": np.array([np.nan if goal.eps is None else goal.eps, goal.gap, search.cost.seconds]),
        "counts": np.array([search.order, search.cost.chunk, search.evaluated, search.budget.boxes, len(found)]),
        **_witness("", search.witness),
        **_named("open", search.open),
    }
    for at, unit in enumerate(found):
        arrays |= {f"{at}.{name}": getattr(unit, name) for name in ("axis", "left", "bound", "low", "high")}
        arrays |= {f"{at}.open.{item.name}": array for item, array in zip(fields(Boxes), unit.open, strict=True)}
        arrays[f"{at}.numbers"] = np.array([unit.closed_bound, unit.closed_share, unit.known.spoiled, unit.known.floor])
        arrays[f"{at}.counts"] = np.array([unit.evaluated])
        arrays |= _witness(f"{at}.", unit.known.witness)
    return arrays


def _named(name: str, boxes: Boxes) -> Arrays:
    return {f"{name}.{item.name}": array for item, array in zip(fields(Boxes), as_arrays(boxes), strict=True)}


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
        if goal != search.goal:  # refuted: a few boxes more were allowed
            search.goal = goal
            search.budget = type(search.budget)(budget)
        search.witness = _read_witness(arrays["witness"])
        search.tree = _tree(arrays, search.error.dim)
        search.open = as_boxes(tuple(arrays[f"open.{item.name}"] for item in fields(Boxes)))
        found = [_found(arrays, at) for at in range(units)]
    except (KeyError, ValueError, TypeError) as error:
        raise FileError(f"the checkpoint lacks a part of a proof ({str(error)[:80]}); start anew") from error
    match(search)
    _try_again(search)
    return found


def _read_witness(values: NDArray[Any]) -> Witness | None:
    if values.size:
        return Witness(tuple(values[1:].tolist()), float(values[0]))
    return None


def _found(arrays: Arrays, at: int) -> Explored:
    closed_bound, closed_share, spoiled, floor = arrays[f"{at}.numbers"].tolist()
    return Explored(
        axis=arrays[f"{at}.axis"],
        left=arrays[f"{at}.left"],
        bound=arrays[f"{at}.bound"],
        open=tuple(arrays[f"{at}.open.{item.name}"] for item in fields(Boxes)),
        low=arrays[f"{at}.low"],
        high=arrays[f"{at}.high"],
        known=Knowledge(_read_witness(arrays[f"{at}.witness"]), floor, spoiled),
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
    if not bool(((nodes >= 0) & (nodes < axis.size)).all()) or len(set(nodes.tolist())) < nodes.size:
        raise FileError("the checkpoint has open boxes that are none of its tree; start anew")
    try:
        tree, _ = search.tree.finish(box.lower.flatten(), box.upper.flatten())
        low, high = tree.boxes()
    except OnelayerError as error:
        raise FileError(f"the checkpoint cuts boxes that cannot be cut ({error}); start anew") from error
    place = search.tree.places()[nodes]
    leaf = np.cumsum(tree.tree == LEAF) - 1
    same = np.array_equal(low[leaf[place]], search.open.low.numpy())
    if bool((axis[nodes] >= 0).any()) or not same or not np.array_equal(high[leaf[place]], search.open.high.numpy()):
        raise FileError("the checkpoint has open boxes with other corners than those of its tree; start anew")


def _try_again(search: Search) -> None:
    """Some of the bounds, computed again."""
    box = search.error.box
    tree, bounds = search.tree.finish(box.lower.flatten(), box.upper.flatten())
    stated = np.flatnonzero(bounds <= search.threshold)
    if not stated.size:
        return
    chosen = np.random.default_rng(0).choice(stated, min(TRIED, stated.size), replace=False)
    low, high = (torch.from_numpy(side[chosen]) for side in tree.boxes())
    again = search.error.bounds(low, high, search.order).numpy()
    if not bool((again <= SLACK * bounds[chosen]).all()):
        raise FileError("the checkpoint states bounds that are not found again; start anew")
