"""The formula's syntax tree in the checker's Taylor arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from flint import arb

from onelayer.checker.arithmetic import Taylor, constant
from onelayer.checker.functions import Ends, Kinks, narrowed
from onelayer.checker.intervals import Images
from onelayer.checker.operations import CONSTANTS, NOWHERE, needed, operation
from onelayer.language.formula import Formula, Node

Item = TypeVar("Item")


def evaluate(formula: Formula, x: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
    """Enclosures of the K outputs for D coordinates ``x``; not finite where one may be undefined."""
    return [item for item, _ in enclosed(formula, x, kinks)]


def enclosed(formula: Formula, x: Sequence[Taylor], kinks: Kinks) -> list[tuple[Taylor, Ends]]:
    """Of the K outputs enclosures for D coordinates ``x``, and ends of their values; not finite where undefined.

    Beside each Taylor enclosure runs an interval of the same node, which knows that squares are not negative. Both hold
    every value of the node, so the interval stands in where the enclosure is mostly remainder, or says nothing; and it
    ends where the enclosure does, if that comes first.
    """
    values: list[Taylor] = []
    images = Images(formula, [item.ends() for item in x])
    for at, node in enumerate(formula.nodes):
        images.add()
        inside = images.values[node.args[-1]] if node.args else None
        value = node_value(node, _at(values, node), x, kinks, inside)
        values.append(narrowed(value, images.values[at], images.defined[at]))
        known = value.is_finite() and needed(node, _at(images.values, node), _at(images.defined, node))
        if node.args and known:  # of a leaf the ends are known
            images.narrow(values[at].ends())
    undefined = constant(arb("nan"), x[0].order), NOWHERE
    return [(values[at], images.values[at]) if images.defined[at] else undefined for at in formula.outputs]


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
