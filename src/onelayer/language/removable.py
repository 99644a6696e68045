"""Removable singularities: sin(u)/u and its like, written with functions that have a value where u vanishes.

Lemma. A factor that vanishes with u is u times a function that is known too, at every point:

    sin u = u sinrel(u)             exp(u) - 1 = u exprel(u)            1 - cos u = u sinrel(u/2) sin(u/2)
    tan u = u sinrel(u) / cos u     log(1 + u) = u / exprel(log(1 + u))     exp(u) - exp(-u) = 2 u exp(-u) exprel(2u)

A quotient in which such a factor meets u, or a factor of u, in the denominator is read as the one in which the two are
cancelled: they are equal wherever both have values, and where u vanishes it is the limit. Nothing else is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onelayer.language.tree import Tape

MOST = 64  # factors of a product that are looked at; longer ones stay as they are written
Factors = dict[int, int]  # node -> exponent > 0


@dataclass(frozen=True)
class Vanishing:
    """A factor as its zero times the product of ``rest``, nodes and their exponents."""

    zero: int
    rest: tuple[tuple[int, int], ...]


class Cancelling:
    """A product of powers over another one."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.above: Factors = {}
        self.below: Factors = {}

    def multiply(self, at: int, exponent: int) -> bool:
        """Multiply by node(at)**exponent, taken apart; False where it has too many factors."""
        pending = [(at, exponent)]
        for _ in range(MOST):
            if not pending:
                return True
            here, power = pending.pop()
            node = self.tape.nodes[here]
            if node.op in ("mul", "div"):
                pending += [(node.args[1], power if node.op == "mul" else -power), (node.args[0], power)]
            elif node.op == "pow" and node.value:
                pending.append((node.args[0], power * int(node.value)))
            elif node.op == "neg" and self.tape.constant[here] is None:
                pending += [(node.args[0], power), (self.tape.number(-1), power)]
            else:
                self.put(here, power)
        return False

    def put(self, at: int, exponent: int) -> None:
        """Multiply by node(at)**exponent as it is; only a number that is not zero meets its like below."""
        side, other = (self.above, self.below) if exponent > 0 else (self.below, self.above)
        times = abs(exponent)
        if self.tape.exact[at]:
            shared = min(times, other.get(at, 0))
            _take(other, at, shared)
            times -= shared
        if times:
            side[at] = side.get(at, 0) + times

    def replace(self, node: int, times: int, by: Vanishing) -> None:
        """Take ``times`` copies of a factor as its zero and the rest, and cancel the zero against what is below."""
        _take(self.above, node, times)
        zero = Cancelling(self.tape)
        zero.multiply(by.zero, times)
        for at, n in zero.above.items():
            shared = min(n, self.below.get(at, 0))
            _take(self.below, at, shared)
            if n > shared:
                self.put(at, n - shared)
        for at, n in zero.below.items():
            self.put(at, -n)
        for at, n in by.rest:
            self.put(at, n * times)

    def node(self) -> int:
        """The quotient as one node."""
        above = _multiplied(self.tape, self.above)
        return self.tape.add("div", above, _multiplied(self.tape, self.below)) if self.below else above


def cancelled(tape: Tape, op: str, a: int, b: int) -> int | None:
    """The node of a / b or a * b with its removable singularities removed; None where there are none."""
    if op == "mul" and not (_divides(tape, a) or _divides(tape, b)):
        return None
    whole = Cancelling(tape)
    if not (whole.multiply(a, 1) and whole.multiply(b, -1 if op == "div" else 1)):
        return None
    found = _removable(whole)
    if found is None:
        return None
    while found is not None:
        whole.replace(*found)
        found = _removable(whole)
    return whole.node()


def _take(side: Factors, at: int, times: int) -> None:
    left = side.pop(at, 0) - times
    if left > 0:
        side[at] = left


def _divides(tape: Tape, at: int) -> bool:
    node = tape.nodes[at]
    return node.op == "div" or (node.op == "pow" and node.value < 0)


def _removable(whole: Cancelling) -> tuple[int, int, Vanishing] | None:
    """A factor whose zero meets a denominator, how many copies of it do, and how it vanishes."""
    if all(whole.tape.constant[at] is not None for at in whole.below):
        return None
    for node, copies in list(whole.above.items()):
        for found in _vanishing(whole.tape, node):
            times = min(copies, _needed(whole, found.zero))
            if times > 0:
                return node, times, found
    return None


def _needed(whole: Cancelling, zero: int) -> int:
    """How often the zero has to be multiplied in to cancel what it can of the denominators."""
    parts = Cancelling(whole.tape)
    if whole.tape.constant[zero] is not None or not parts.multiply(zero, 1):
        return 0
    shared = [at for at in parts.above if whole.tape.constant[at] is None]
    return max((-(-whole.below.get(at, 0) // parts.above[at]) for at in shared), default=0)


def _vanishing(tape: Tape, at: int) -> Iterator[Vanishing]:
    """The ways in which a node is known to vanish."""
    node = tape.nodes[at]
    if node.op == "sin":
        yield Vanishing(node.args[0], ((tape.add("sinrel", node.args[0]), 1),))
    elif node.op == "tan":
        u = node.args[0]
        yield Vanishing(u, ((tape.add("sinrel", u), 1), (tape.add("cos", u), -1)))
    elif node.op == "log":
        yield from _logarithm(tape, at)
    elif node.op in ("sub", "add"):
        yield from _difference(tape, at)


def _logarithm(tape: Tape, at: int) -> Iterator[Vanishing]:
    """log(w), which vanishes with w - 1, however that is written."""
    w = tape.nodes[at].args[0]
    inside = tape.nodes[w]
    one = tape.number(1)
    rest = ((tape.add("exprel", at), -1),)
    if inside.op == "add" and tape.exact[inside.args[0]] == 1:
        yield Vanishing(inside.args[1], rest)
    elif inside.op == "add" and tape.exact[inside.args[1]] == 1:
        yield Vanishing(inside.args[0], rest)
    elif inside.op == "sub" and tape.exact[inside.args[0]] == 1:
        yield Vanishing(inside.args[1], (*rest, (tape.number(-1), 1)))
    yield Vanishing(tape.add("sub", w, one), rest)
    yield Vanishing(tape.add("sub", one, w), (*rest, (tape.number(-1), 1)))


def _difference(tape: Tape, at: int) -> Iterator[Vanishing]:
    """exp(u) - 1, 1 - cos(u) and exp(u) - exp(-u), in either order."""
    node = tape.nodes[at]
    a, b = node.args
    if node.op == "add":  # exp(u) + (-1)
        a, b = (b, a) if tape.exact[a] == -1 else (a, b)
        if tape.exact[b] != -1:
            return
        b = tape.number(1)
    yield from _subtracted(tape, a, b, 1)
    yield from _subtracted(tape, b, a, -1)


def _subtracted(tape: Tape, first: int, second: int, sign: int) -> Iterator[Vanishing]:
    """The ways in which sign (first - second) vanishes, read in this order."""
    left = tape.nodes[first]
    right = tape.nodes[second]
    turned = ((tape.number(sign), 1),) if sign < 0 else ()
    if left.op == "exp" and tape.exact[second] == 1:
        yield Vanishing(left.args[0], ((tape.add("exprel", left.args[0]), 1), *turned))
    elif tape.exact[first] == 1 and right.op == "cos":
        half = tape.add("div", right.args[0], tape.number(2))
        yield Vanishing(right.args[0], ((tape.add("sinrel", half), 1), (tape.add("sin", half), 1), *turned))
    elif left.op == right.op == "exp" and _opposite(tape, left.args[0], right.args[0]) and sign > 0:
        u = left.args[0]
        double = tape.add("mul", tape.number(2), u)
        yield Vanishing(u, ((tape.number(2), 1), (second, 1), (tape.add("exprel", double), 1)))


def _opposite(tape: Tape, a: int, b: int) -> bool:
    nodes = tape.nodes
    return (nodes[b].op == "neg" and nodes[b].args[0] == a) or (nodes[a].op == "neg" and nodes[a].args[0] == b)


def _multiplied(tape: Tape, factors: Factors) -> int:
    result: int | None = None
    for at, n in factors.items():
        if tape.exact[at] == 1:
            continue
        power = at if n == 1 else tape.add("pow", at, value=n)
        result = power if result is None else tape.add("mul", result, power)
    return tape.number(1) if result is None else result
