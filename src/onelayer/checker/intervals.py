"""Interval arithmetic of the checker by ends: the values of a formula on a box."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.checker.functions import Ends
from onelayer.checker.operations import CONSTANTS, NOWHERE, operation
from onelayer.language.formula import Formula, Node


def image(formula: Formula, x: Sequence[Ends]) -> list[Ends]:
    """Ends of intervals that hold the outputs for x in intervals; not finite where any node may be undefined."""
    values: list[Ends] = []
    for node in formula.nodes:
        values.append(node_interval(node, [values[at] for at in node.args], x))
    defined = all(low.is_finite() and high.is_finite() for low, high in values)
    return [values[at] if defined else NOWHERE for at in formula.outputs]


def node_interval(node: Node, args: Sequence[Ends], x: Sequence[Ends]) -> Ends:
    """One operation on intervals of its arguments."""
    if node.op == "var":
        return x[int(node.value)]
    if node.op == "num":
        return arb(node.value), arb(node.value)
    if node.op in CONSTANTS:
        return CONSTANTS[node.op](), CONSTANTS[node.op]()
    return operation(node).interval(*args)
