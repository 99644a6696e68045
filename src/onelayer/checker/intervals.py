"""Interval arithmetic of the checker by ends, so that a square or a root that touches zero stays at zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flint import arb

from onelayer.checker.functions import FUNCTIONS, Ends
from onelayer.language.formula import Formula, Node

NOWHERE = arb("nan"), arb("nan")


def image(formula: Formula, x: Sequence[Ends]) -> list[Ends]:
    """Ends of intervals that hold the outputs for x in intervals; not finite where any node may be undefined."""
    values: list[Ends] = []
    for node in formula.nodes:
        values.append(node_interval(node, [values[at] for at in node.args], x))
    defined = all(low.is_finite() and high.is_finite() for low, high in values)
    return [values[at] if defined else NOWHERE for at in formula.outputs]


def node_interval(node: Node, args: Sequence[Ends], x: Sequence[Ends]) -> Ends:
    """One operation on intervals of its arguments."""
    match node.op:
        case "var":
            return x[int(node.value)]
        case "num":
            return arb(node.value), arb(node.value)
        case "pi":
            return arb.pi(), arb.pi()
        case "e":
            return arb.const_e(), arb.const_e()
        case "mul" if node.args[0] == node.args[1]:
            return _power(args[0], 2)
        case "pow":
            return _power(args[0], int(node.value))
        case name if name in _RULES:
            return _RULES[name](*args)
        case name if name in FUNCTIONS:
            return _spread(FUNCTIONS[name].ball(args[0][0].union(args[0][1])))
        case name:
            raise NotImplementedError(f"formula operation {name}")


def _spread(ball: arb) -> Ends:
    return ball.lower(), ball.upper()


def _power(x: Ends, n: int) -> Ends:
    low, high = x
    if n < 0:
        return _spread(1 / low.union(high) ** -n)
    if n % 2:
        return low**n, high**n
    most = (abs(low).max(abs(high))) ** n
    least = low**n if low >= 0 else high**n if high <= 0 else arb(0)
    return least, most


def _product(a: Ends, b: Ends) -> Ends:
    ends = [p * q for p in a for q in b]
    low, high = ends[0], ends[0]
    for end in ends[1:]:
        low, high = low.min(end), high.max(end)
    return low, high


def _quotient(a: Ends, b: Ends) -> Ends:
    if not (b[0] > 0 or b[1] < 0):
        return NOWHERE
    return _product(a, (1 / b[1], 1 / b[0]))


def _root(x: Ends) -> Ends:
    low, high = x
    start = arb(0) if low.is_zero() else low.sqrt()
    return start, high.sqrt()


def _absolute(x: Ends) -> Ends:
    low, high = x
    least = low if low >= 0 else -high if high <= 0 else arb(0)
    return least, abs(low).max(abs(high))


_RULES: dict[str, Callable[..., Ends]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "neg": lambda a: (-a[1], -a[0]),
    "mul": _product,
    "div": _quotient,
    "min": lambda a, b: (a[0].min(b[0]), a[1].min(b[1])),
    "max": lambda a, b: (a[0].max(b[0]), a[1].max(b[1])),
    "relu": lambda a: (a[0].max(arb(0)), a[1].max(arb(0))),
    "abs": _absolute,
    "sqrt": _root,
    "exp": lambda a: (a[0].exp(), a[1].exp()),
    "log": lambda a: (a[0].log(), a[1].log()),
    "tanh": lambda a: (a[0].tanh(), a[1].tanh()),
    "atan": lambda a: (a[0].atan(), a[1].atan()),
    "erf": lambda a: (a[0].erf(), a[1].erf()),
}
