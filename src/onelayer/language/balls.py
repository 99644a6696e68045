"""Formulas in ball arithmetic: one node on balls, all nodes at a point."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flint import arb

from onelayer.language.constants import CONSTANTS
from onelayer.language.formula import Formula
from onelayer.language.operations import operation
from onelayer.language.tree import Node


def ball(node: Node, args: Sequence[arb]) -> arb:
    """One operation on balls of the current flint precision; not finite where it may be undefined."""
    if node.op == "num":
        return arb(node.value)
    if node.op in CONSTANTS:
        return CONSTANTS[node.op].ball()
    return operation(node.op, node.value).ball(*args)


def in_balls(formula: Formula, point: Sequence[float]) -> list[arb]:
    """The outputs of ``formula`` at ``point`` (D floats) as balls of the current flint precision.

    Where the formula is undefined, or cannot be told to be defined, the ball is not finite.
    """
    values: list[arb] = []
    for node in formula.nodes:
        if node.op == "var":
            values.append(arb(point[int(node.value)]))
        else:
            values.append(ball(node, [values[at] for at in node.args]))
    return [values[at] for at in formula.outputs]


def below(value: arb) -> float:
    """The largest float64 not above the real number in ``value`` (one below where the ball leaves it open)."""
    guess = float(value.mid())
    # The middle of a ball, rounded, is at most a few floats too high: a few steps down, however wide the number is.
    while not arb(guess) <= value:
        guess = math.nextafter(guess, -math.inf)
    return guess
