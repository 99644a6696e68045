"""Formulas in ball arithmetic: one node on balls, all nodes at a point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from flint import arb

from onelayer.language.formula import Formula
from onelayer.language.tree import POWER, Node

_OPERATIONS: dict[str, Callable[..., arb]] = {
    "pi": arb.pi,
    "e": arb.const_e,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": lambda a, b: a.min(b),
    "max": lambda a, b: a.max(b),
    "neg": lambda a: -a,
    "abs": abs,
    "relu": lambda a: a.max(arb(0)),
    "sigmoid": lambda a: 1 / (1 + (-a).exp()),
    **{op: getattr(arb, op) for op in ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "atan", "erf")},
}


def ball(node: Node, args: Sequence[arb]) -> arb:
    """One operation on balls of the current flint precision; not finite where it may be undefined."""
    if node.op == "num":
        return arb(node.value)
    if node.op == POWER:
        return power(args[0], int(node.value))
    return _OPERATIONS[node.op](*args)


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
