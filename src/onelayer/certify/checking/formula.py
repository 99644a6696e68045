"""The formula's syntax tree in the checker's Taylor arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.certify.checking.arithmetic import Taylor, constant
from onelayer.certify.checking.functions import FUNCTIONS, Kinks, apply, power
from onelayer.target.formula import Formula


def evaluate(formula: Formula, x: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
    """Enclosures of the K outputs for D coordinates ``x``; not finite where the formula may be undefined."""
    order = x[0].order
    values: list[Taylor] = []
    for node in formula.nodes:
        args = [values[at] for at in node.args]
        match node.op:
            case "var":
                value = x[int(node.value)]
            case "num":
                value = constant(arb(node.value), order)
            case "pi":
                value = constant(arb.pi(), order)
            case "e":
                value = constant(arb.const_e(), order)
            case "add":
                value = args[0] + args[1]
            case "sub":
                value = args[0] - args[1]
            case "mul":
                value = args[0] * args[1] if args[0] is not args[1] else power(args[0], 2)
            case "div":
                value = args[0] * apply("inv", args[1])
            case "neg":
                value = -args[0]
            case "pow":
                value = power(args[0], int(node.value))
            case "abs":
                value = kinks.absolute(args[0])
            case "relu":
                value = kinks.relu(args[0])
            case "min":
                value = kinks.minimum(args[0], args[1])
            case "max":
                value = kinks.maximum(args[0], args[1])
            case name if name in FUNCTIONS:
                value = apply(name, args[0])
            case name:
                raise NotImplementedError(f"formula operation {name}")
        values.append(value)
    return [values[at] for at in formula.outputs]
