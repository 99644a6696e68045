"""The formula's syntax tree in the checker's Taylor arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, constant
from onelayer.checker.functions import Ends, Kinks
from onelayer.checker.intervals import node_interval
from onelayer.checker.operations import CONSTANTS, needed, operation
from onelayer.language.formula import Formula, Node

Item = TypeVar("Item")


def evaluate(formula: Formula, x: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
    """Enclosures of the K outputs for D coordinates ``x``; not finite where one may be undefined.

    Beside each Taylor enclosure runs an interval of the same node, which knows that squares are not negative. Both hold
    every value of the node, so the interval stands in where the enclosure is mostly remainder.
    """
    values: list[Taylor] = []
    bounds: list[Ends] = []
    edges = [item.ends() for item in x]
    defined: list[bool] = []
    for node in formula.nodes:
        inside = bounds[node.args[-1]] if node.args else None
        bounds.append(node_interval(node, _at(bounds, node), edges))
        values.append(_narrowed(node_value(node, _at(values, node), x, kinks, inside), bounds[-1]))
        ends = [values[at].ends() for at in node.args[:1]]
        defined.append(finite(values[-1]) and needed(node, ends, _at(defined, node)))
    undefined = constant(arb("nan"), x[0].order)
    return [values[at] if defined[at] else undefined for at in formula.outputs]


def _narrowed(value: Taylor, ends: Ends) -> Taylor:
    """The interval as a constant ball where it is narrower than the remainder; what is not finite stays undefined."""
    low, high = ends
    if not (finite(value) and low.is_finite() and high.is_finite()):
        return value
    remainder = sum((c.rad() for c in value.c), ZERO)
    return constant(low.union(high), value.order) if (high - low) / 2 < remainder else value


def finite(value: Taylor) -> bool:
    """Whether every coefficient is a bounded ball: the functions of the arithmetic return others where undefined."""
    return all(c.is_finite() for c in value.c)


def node_value(
    node: Node, args: Sequence[Taylor], x: Sequence[Taylor], kinks: Kinks, inside: Ends | None = None
) -> Taylor:
    """One operation on enclosures of its arguments; ``inside`` bounds the last of them."""
    order = x[0].order
    if node.op == "var":
        return x[int(node.value)]
    if node.op == "num":
        return constant(arb(node.value), order)
    if node.op in CONSTANTS:
        return constant(CONSTANTS[node.op](), order)
    return operation(node).taylor(args, kinks, inside)


def _at(known: Sequence[Item], node: Node) -> list[Item]:
    """What is known of the arguments of a node."""
    return [known[at] for at in node.args]
