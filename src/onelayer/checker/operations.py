"""The checker's own table of operations: one row each, on Taylor elements and on intervals given by their ends.

Intervals by ends know that a square or a root that touches zero stays at zero. A function of one variable is a row of
functions.py and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from flint import arb, ctx

from onelayer.checker import facets, splines
from onelayer.checker.arithmetic import UNIT_BALL, Taylor, constant
from onelayer.checker.functions import FUNCTIONS, Ends, Kinks, apply
from onelayer.checker.functions import power as power_of
from onelayer.errors import OnelayerError
from onelayer.language.formula import Node
from onelayer.language.knots import Facets, Spline

NOWHERE = arb("nan"), arb("nan")
CONSTANTS: dict[str, Callable[[], arb]] = {"pi": arb.pi, "e": arb.const_e}


@dataclass(frozen=True)
class CheckedOperation:
    """``taylor(args, kinks, inside)``: ``inside`` bounds the last argument. ``interval``: of the ends of each."""

    taylor: Callable[[Sequence[Taylor], Kinks, Ends | None], Taylor]
    interval: Callable[..., Ends]


def operation(node: Node) -> CheckedOperation:
    """The row of a node that is no leaf; a product of one node with itself is a square."""
    if node.op == "pow":
        return _power(int(node.value))
    if isinstance(node.value, Spline):
        return _spline(node.value)
    if isinstance(node.value, Facets):
        return _facets(node.value, ctx.prec)
    if node.op == "mul" and node.args[0] == node.args[1]:
        return _SQUARE
    if node.op not in OPERATIONS:
        raise OnelayerError(f"the checker does not know the operation '{node.op[:40]}'")
    return OPERATIONS[node.op]


@cache
def _power(exponent: int) -> CheckedOperation:
    return CheckedOperation(lambda args, kinks, inside: power_of(args[0], exponent), partial(_power_ends, n=exponent))


def _spline(data: Spline) -> CheckedOperation:
    return CheckedOperation(lambda args, kinks, inside: splines.enclosed(data, args), partial(splines.image, data))


def _facets(data: Facets, precision: int) -> CheckedOperation:
    return CheckedOperation(
        lambda args, kinks, inside: facets.enclosed(data, precision, args), partial(facets.image, data, precision)
    )


def _power_ends(x: Ends, n: int) -> Ends:
    low, high = x
    if n < 0:
        below, above = _power_ends(x, -n)
        if below > 0 or above < 0:
            return 1 / above, 1 / below
        return NOWHERE
    if n % 2:
        return low**n, high**n
    most = (abs(low).max(abs(high))) ** n
    least = low**n if low >= 0 else high**n if high <= 0 else arb(0)
    return least, most


_SQUARE = CheckedOperation(lambda args, kinks, inside: power_of(args[0], 2), lambda a, b: _power_ends(a, 2))


def _function(name: str) -> CheckedOperation:
    return CheckedOperation(lambda args, kinks, inside: apply(name, args[0], inside), FUNCTIONS[name].interval)


def _product(a: Ends, b: Ends) -> Ends:
    ends = [p * q for p in a for q in b]
    low = ends[0]
    high = ends[0]
    for end in ends[1:]:
        low = low.min(end)
        high = high.max(end)
    return low, high


def _quotient(a: Ends, b: Ends) -> Ends:
    if not (b[0] > 0 or b[1] < 0):
        return NOWHERE
    return _product(a, (1 / b[1], 1 / b[0]))


def _absolute(x: Ends) -> Ends:
    low, high = x
    least = low if low >= 0 else -high if high <= 0 else arb(0)
    return least, abs(low).max(abs(high))


def chosen(condition: Ends) -> int | None:
    """Which argument a choice takes for u > 0 from the ends of u: 1, 2, or None where both may be."""
    if condition[0] > 0:
        return 1
    return 2 if condition[1] <= 0 else None


def needed(node: Node, args: Sequence[Ends], defined: Sequence[bool]) -> bool:
    """Whether the arguments have values where they are needed: of a choice, those that may be chosen."""
    if node.op != "where":
        return all(defined)
    place = chosen(args[0])
    return defined[0] and (all(defined) if place is None else defined[place])


def _choice(args: Sequence[Taylor], kinks: Kinks, inside: Ends | None) -> Taylor:
    """a or b by the sign of u; where that is open, their mean within half their distance."""
    u, a, b = args
    low, high = u.ends()
    place = chosen((low, high))
    if place is not None:
        return args[place]
    if not (low.is_finite() and high.is_finite()):
        return constant(arb("nan"), u.order)
    half = (a - b).scaled(arb(0.5))
    return (b + half).shifted(half.range().abs_upper() * UNIT_BALL)


def _choice_ends(u: Ends, a: Ends, b: Ends) -> Ends:
    place = chosen(u)
    if place is not None:
        return (u, a, b)[place]
    if not (u[0].is_finite() and u[1].is_finite()):
        return NOWHERE
    return a[0].min(b[0]), a[1].max(b[1])


def _floor(args: Sequence[Taylor], kinks: Kinks, inside: Ends | None) -> Taylor:
    low, high = _floor_ends(args[0].ends())
    return constant(low.union(high), args[0].order)


def _floor_ends(x: Ends) -> Ends:
    if not (x[0].is_finite() and x[1].is_finite()):
        return NOWHERE
    return x[0].lower().floor(), x[1].upper().floor()


def _tighter_top(a: arb, b: arb) -> arb:
    """Of two numbers that nothing exceeds one; where balls overlap, the smaller top as it is: 1 stays 1."""
    if a.upper() <= b.upper():
        return a
    if b.upper() <= a.upper():
        return b
    return a.min(b)


OPERATIONS: dict[str, CheckedOperation] = {
    "where": CheckedOperation(_choice, _choice_ends),
    "floor": CheckedOperation(_floor, _floor_ends),
    "add": CheckedOperation(lambda args, kinks, inside: args[0] + args[1], lambda a, b: (a[0] + b[0], a[1] + b[1])),
    "sub": CheckedOperation(lambda args, kinks, inside: args[0] - args[1], lambda a, b: (a[0] - b[1], a[1] - b[0])),
    "mul": CheckedOperation(lambda args, kinks, inside: args[0] * args[1], _product),
    "div": CheckedOperation(lambda args, kinks, inside: args[0] * apply("inv", args[1], inside), _quotient),
    "neg": CheckedOperation(lambda args, kinks, inside: -args[0], lambda a: (-a[1], -a[0])),
    "min": CheckedOperation(
        lambda args, kinks, inside: kinks.minimum(args[0], args[1]),
        lambda a, b: (a[0].min(b[0]), _tighter_top(a[1], b[1])),
    ),
    "max": CheckedOperation(
        lambda args, kinks, inside: kinks.maximum(args[0], args[1]),
        lambda a, b: (-_tighter_top(-a[0], -b[0]), a[1].max(b[1])),
    ),
    "relu": CheckedOperation(
        lambda args, kinks, inside: kinks.relu(args[0]), lambda a: (a[0].max(arb(0)), a[1].max(arb(0)))
    ),
    "abs": CheckedOperation(lambda args, kinks, inside: kinks.absolute(args[0]), _absolute),
    **{name: _function(name) for name in FUNCTIONS},
}
