"""Nodes of a formula in ball arithmetic: their values at constants, and their ranges over a box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flint import arb, ctx

from onelayer.target.symbolic import Recording
from onelayer.target.tree import POWER, Node

_BITS = 64


def range_over(tape: Recording, at: int) -> tuple[float, float]:
    """Bounds of a node over the box of the recording, by interval arithmetic; infinite where nothing is known."""
    if tape.box is None:
        return -math.inf, math.inf
    low, high = tape.box.lower.flatten().tolist(), tape.box.upper.flatten().tolist()
    if tape.nodes[at].op == "var":
        coordinate = int(tape.nodes[at].value) % len(low)
        return low[coordinate], high[coordinate]
    known = tape.ranges
    with ctx.workprec(_BITS):
        for node in tape.nodes[len(known) : at + 1]:
            if node.op == "var":
                coordinate = int(node.value) % len(low)
                known.append(arb(low[coordinate]).union(arb(high[coordinate])))
            else:
                known.append(ball(node, [known[arg] for arg in node.args]))
        found = known[at]
        if not found.is_finite():
            return -math.inf, math.inf
        return below(found.lower()), -below(-found.upper())


def ball(node: Node, args: Sequence[arb]) -> Any:
    """One operation on balls; not finite where it may be undefined."""
    match node.op:
        case "num":
            return arb(node.value)
        case "pi":
            return arb.pi()
        case "e":
            return arb(1).exp()
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "mul":
            return args[0] * args[1]
        case "div":
            return args[0] / args[1]
        case "neg":
            return -args[0]
        case "abs":
            return abs(args[0])
        case "min" | "max":
            return getattr(args[0], node.op)(args[1])
        case "relu":
            return args[0].max(arb(0))
        case "sigmoid":
            return 1 / (1 + (-args[0]).exp())
        case _:
            return power(args[0], int(node.value)) if node.op == POWER else getattr(args[0], node.op)()


def power(base: arb, exponent: int) -> arb:
    """base ** exponent; of a ball around zero by products, where Arb's general power has no value."""
    if exponent < 0 or not base.contains(0):
        return base**exponent
    result = arb(1)
    for bit in bin(exponent)[2:]:
        result = result * result * base if bit == "1" else result * result
    return result


def below(value: arb) -> float:
    """The largest float64 not above the real number in ``value`` (one below where the ball leaves it open)."""
    guess = float(value.mid())
    while not arb(guess) <= value:
        guess = math.nextafter(guess, -math.inf)
    return guess
