"""Formulas put together: one formula inside another, and sums of terms g(sum of atoms)."""

from __future__ import annotations

from collections.abc import Sequence

from onelayer.language.formula import Formula
from onelayer.language.tree import Tape


def inside(tape: Tape, formula: Formula, argument: int) -> int:
    """The formula of one variable with that node as its argument; returns the node of the value."""
    return substituted(tape, formula, [argument] * formula.dim)


def substituted(tape: Tape, formula: Formula, arguments: Sequence[int]) -> int:
    """The first output of a formula with these nodes in the place of its variables."""
    places: list[int] = []
    for node in formula.nodes:
        if node.op == "var":
            places.append(arguments[int(node.value)])
        else:
            args = [places[at] for at in node.args]
            places.append(tape.add(node.op, *args, value=node.value))
    return places[formula.outputs[0]]


def total(tape: Tape, nodes: Sequence[int]) -> int:
    """Their sum, added as a balanced tree so that no walk over it is deep."""
    items = list(nodes) or [tape.number(0.0)]
    while len(items) > 1:
        pairs = zip(items[::2], items[1::2], strict=False)
        odd_one = items[-1:] if len(items) % 2 else []
        items = [tape.add("add", a, b) for a, b in pairs] + odd_one
    return items[0]


def weighted(tape: Tape, weight: float, node: int) -> int:
    """weight * node, written plainly when the weight is 1."""
    if weight == 1:
        return node
    return tape.add("mul", tape.number(weight), node)
