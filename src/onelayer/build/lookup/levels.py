"""Levels of sparse grids: one whole number per axis, and sets of them that hold with a level all levels below it."""

from __future__ import annotations

import itertools
from collections.abc import Set

Level = tuple[int, ...]


def moved(level: Level, axis: int, step: int) -> Level:
    """The neighbour of a level along one axis."""
    return tuple(n + step * (at == axis) for at, n in enumerate(level))


def held_below(level: Level, levels: Set[Level]) -> bool:
    """Whether every level just below is there already."""
    refined = [axis for axis, n in enumerate(level) if n > 0]
    return all(moved(level, axis, -1) in levels for axis in refined)


def coefficient(level: Level, levels: Set[Level]) -> int:
    """Of a full grid in the combination: sum over z in {0, 1}^r of (-1)^|z|, as far as level + z is in the set.

    Where the level is not held along an axis, none beyond it is: such z are left out at once.
    """
    steps = [(0, 1) if moved(level, axis, 1) in levels else (0,) for axis in range(len(level))]
    total = 0
    for z in itertools.product(*steps):
        raised = tuple(n + s for n, s in zip(level, z, strict=True))
        if raised in levels:
            total += (-1) ** sum(z)
    return total
