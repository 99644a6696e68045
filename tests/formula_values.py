"""Values of formulas by mpmath, straight from the tree: a reference that shares nothing with the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath

from onelayer.language.formula import Formula

# What mpmath has under another name than the operation's, or under none.
OWN: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "abs": abs,
    "min": min,
    "max": max,
    "relu": lambda a: max(a, mpmath.mpf(0)),
    "sigmoid": lambda a: 1 / (1 + mpmath.exp(-a)),
}


def formula_values(formula: Formula, point: Sequence[float]) -> list[mpmath.mpf]:
    """The outputs at a point, in the digits that mpmath is set to."""
    values: list[mpmath.mpf] = []
    for node in formula.nodes:
        args = [values[at] for at in node.args]
        if node.op == "var":
            values.append(mpmath.mpf(point[int(node.value)]))
        elif node.op == "num":
            values.append(mpmath.mpf(node.value))
        elif node.op in ("pi", "e"):
            values.append(+getattr(mpmath, node.op))
        elif node.op == "pow":
            values.append(args[0] ** int(node.value))
        else:
            function = OWN.get(node.op) or getattr(mpmath, node.op)
            values.append(function(*args))
    return [values[at] for at in formula.outputs]
