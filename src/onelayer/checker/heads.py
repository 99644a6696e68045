"""The heads of a stored layer: which columns are theirs, and what they remember."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onelayer.checker.attention import Matrix
from onelayer.checker.weights import Array, Stored


@dataclass(frozen=True)
class Head:
    """One head: its columns of Q, K and of V, 1/sqrt(d_k), the keys of its memory by axes, and the values."""

    keys: slice
    values: slice
    scale: float
    axes: tuple[Matrix, ...]
    table: Matrix | None
    tokens: tuple[Array, Array] | None = None  # of plain memory, keys and values as they are stored


def stored_head(stored: Stored, h: int) -> Head:
    """Head h: its columns come behind those of the heads before it."""
    t = stored.tensors
    heads = stored.config["heads"]
    head = heads[h]
    before = heads[:h]
    k = sum(other["d_k"] for other in before)
    v = sum(other["d_v"] for other in before)
    keys = slice(k, k + head["d_k"])
    columns = slice(v, v + head["d_v"])
    scale = 1 / math.sqrt(head["d_k"])
    if head["memory"] == "none":
        return Head(keys, columns, scale, (), None)
    values = t[f"memory.{h}.values"]
    table = Matrix(values.reshape(values.shape[0], -1))
    if head["memory"] == "plain":
        own = t[f"memory.{h}.keys"]
        return Head(keys, columns, scale, (Matrix(own.T),), table, (own, values))
    axes = [t[f"memory.{h}.axes.{a}"] for a in range(len(head["tokens"]))]
    return Head(keys, columns, scale, tuple(Matrix(axis.T) for axis in axes), table)
