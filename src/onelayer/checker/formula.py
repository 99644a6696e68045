"""The formula's syntax tree in the checker's Taylor arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.checker.arithmetic import Taylor, constant
from onelayer.checker.functions import FUNCTIONS, Ends, Kinks, apply, power
from onelayer.checker.intervals import node_interval
from onelayer.language.formula import Formula, Node


def evaluate(formula: Formula, x: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
    """Enclosures of the K outputs for D coordinates ``x``; not finite where any node may be undefined.

    Beside each Taylor enclosure runs an interval of the same node, which knows that squares are not negative.
    """
    values: list[Taylor] = []
    bounds: list[Ends] = []
    edges = [item.ends() for item in x]
    defined = True
    for node in formula.nodes:
        inside = bounds[node.args[-1]] if node.args else None
        values.append(node_value(node, [values[at] for at in node.args], x, kinks, inside))
        bounds.append(node_interval(node, [bounds[at] for at in node.args], edges))
        defined = defined and finite(values[-1])
    undefined = constant(arb("nan"), x[0].order)
    return [values[at] if defined else undefined for at in formula.outputs]


def finite(value: Taylor) -> bool:
    """Whether every coefficient is a bounded ball: the functions of the arithmetic return others where undefined."""
    return all(c.is_finite() for c in value.c)


def node_value(
    node: Node, args: Sequence[Taylor], x: Sequence[Taylor], kinks: Kinks, inside: Ends | None = None
) -> Taylor:
    """One operation on enclosures of its arguments; ``inside`` bounds the last of them."""
    order = x[0].order
    match node.op:
        case "var":
            return x[int(node.value)]
        case "num":
            return constant(arb(node.value), order)
        case "pi":
            return constant(arb.pi(), order)
        case "e":
            return constant(arb.const_e(), order)
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "mul":
            return args[0] * args[1] if args[0] is not args[1] else power(args[0], 2)
        case "div":
            return args[0] * apply("inv", args[1], inside)
        case "neg":
            return -args[0]
        case "pow":
            return power(args[0], int(node.value))
        case "abs":
            return kinks.absolute(args[0])
        case "relu":
            return kinks.relu(args[0])
        case "min":
            return kinks.minimum(args[0], args[1])
        case "max":
            return kinks.maximum(args[0], args[1])
        case name if name in FUNCTIONS:
            return apply(name, args[0], inside)
        case name:
            raise NotImplementedError(f"formula operation {name}")
