"""Interval arithmetic of the checker by ends: the values of a formula on a box."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.checker.functions import Ends
from onelayer.checker.operations import CONSTANTS, NOWHERE, needed, operation
from onelayer.language.formula import Formula, Node


def image(formula: Formula, x: Sequence[Ends]) -> list[Ends]:
    """Ends of intervals that hold the outputs for x in intervals; not finite where one may be undefined."""
    values: list[Ends] = []
    defined: list[bool] = []
    for node in formula.nodes:
        args = [values[at] for at in node.args]
        values.append(node_interval(node, args, x))
        defined.append(bounded(values[-1]) and needed(node, args, [defined[at] for at in node.args]))
    return [values[at] if defined[at] else NOWHERE for at in formula.outputs]


def bounded(ends: Ends) -> bool:
    """Whether both ends are numbers."""
    return ends[0].is_finite() and ends[1].is_finite()


def node_interval(node: Node, args: Sequence[Ends], x: Sequence[Ends]) -> Ends:
    """One operation on intervals of its arguments."""
    if node.op == "var":
        return x[int(node.value)]
    if node.op == "num":
        return arb(node.value), arb(node.value)
    if node.op in CONSTANTS:
        return CONSTANTS[node.op](), CONSTANTS[node.op]()
    return operation(node).interval(*args)
