"""A formula at one point in ball arithmetic: the high-precision side of a witness."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flint import arb

from onelayer.target.formula import Formula

_OPERATIONS: dict[str, Callable[..., arb]] = {
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


def in_balls(formula: Formula, point: Sequence[float]) -> list[arb]:
    """The outputs of ``formula`` at ``point`` (D floats) as balls of the current flint precision.

    Where the formula is undefined, or cannot be told to be defined, the ball is not finite.
    """
    values: list[arb] = []
    for node in formula.nodes:
        args = [values[at] for at in node.args]
        if node.op == "var":
            values.append(arb(point[int(node.value)]))
        elif node.op == "num":
            values.append(arb(node.value))
        elif node.op in ("pi", "e"):
            values.append(arb.pi() if node.op == "pi" else arb.const_e())
        elif node.op == "pow":
            values.append(args[0] ** int(node.value))
        else:
            values.append(_OPERATIONS[node.op](*args))
    return [values[at] for at in formula.outputs]
