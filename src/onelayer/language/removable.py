"""Removable singularities: sin(u)/u and its like, written with functions that have a value where u vanishes.

Lemma. A factor that vanishes with u is u times a function that is known too, at every point:

    sin u = u sinrel(u)             exp(u) - 1 = u exprel(u)            1 - cos u = u sinrel(u/2) sin(u/2)
    tan u = u sinrel(u) / cos u     log(1 + u) = u / exprel(log(1 + u))     exp(u) - exp(-u) = 2 u exp(-u) exprel(2u)
    tanh u = 2 u exprel(2u) sigmoid(-2u)            log a - log b = log(a / b) = (a - b) / (b exprel(log(a / b)))
    exp(u) - exp(v) = (u - v) exp(v) exprel(u - v)  sqrt(a) - sqrt(b) = (a - b) / (sqrt(a) + sqrt(b))
    u^2 - v^2 = (u - v) (u + v)     asin u = u / sinrel(asin u)     atan u = u cos(atan u) / sinrel(atan u)

A quotient in which such a factor meets u, or a factor of u, on the other side, as it is or in another such factor, is
read as the one in which the two are cancelled: they are equal wherever both have values, and where u vanishes it is the
limit. Nothing else is cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from onelayer.language.constants import CONSTANTS
from onelayer.language.operations import OPERATIONS

if TYPE_CHECKING:
    from onelayer.language.tree import Node, Tape

MOST = 64  # factors of a product that are looked at; longer ones stay as they are written
DEEPEST = 16  # sums inside sums that are looked into, each a few calls deep
Factors = dict[int, int]  # node -> exponent > 0
Powers = tuple[tuple[int, int], ...]  # nodes and their exponents, of any sign


@dataclass(frozen=True)
class Vanishing:
    """A factor as its zero times the product of ``rest``, nodes and their exponents."""

    zero: int
    rest: Powers


class Cancelling:
    """A product of powers over another one."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.above: Factors = {}
        self.below: Factors = {}

    def multiply(self, at: int, exponent: int) -> bool:
        """Multiply by node(at)**exponent, taken apart; False where it has too many factors."""
        # A stack, with a limit: products of a recorded network are deep and wide.
        pending = [(at, exponent)]
        for _ in range(MOST):
            if not pending:
                return True
            here, power = pending.pop()
            factors = self._factors(here)
            if not factors:
                self.put(here, power)
            for factor, times in factors:
                pending.append((factor, power * times))
                # a / (b / c) has no value where c vanishes, and a c / b may have one: it is a c c / (b c).
                if power < 0 and times < 0:
                    pending += [(factor, power * times), (factor, -power * times)]
        return False

    def _factors(self, here: int) -> list[tuple[int, int]]:
        """What a node is the product of, with exponents, the last to be taken first; nothing where it is no product."""
        node = self.tape.nodes[here]
        match node.op:
            case "mul" | "div":
                first, second = node.args
                return [(second, 1 if node.op == "mul" else -1), (first, 1)]
            case "pow" if node.value:
                return [(node.args[0], int(node.value))]
            case "neg" if self.tape.constant[here] is None:
                return [(node.args[0], 1), (self.tape.number(-1), 1)]
            case "add" | "sub":
                return _taken_apart(self.tape, here)
        return []

    def put(self, at: int, exponent: int) -> None:
        """Multiply by node(at)**exponent as it is; only a number that is not zero meets its like below."""
        side, other = (self.above, self.below) if exponent > 0 else (self.below, self.above)
        times = abs(exponent)
        # x / x stays: it has no value at 0, and only the lemmas above say what to put there.
        if self.tape.exact[at] or self.tape.nodes[at].op in CONSTANTS:
            shared = min(times, other.get(at, 0))
            _take(other, at, shared)
            times -= shared
        if times:
            side[at] = side.get(at, 0) + times

    def replace(self, node: int, times: int, by: Vanishing, sign: int) -> None:
        """Take ``times`` copies of a factor, above or below by its ``sign``, as its zero and the rest.

        The zero is cancelled against what is on the other side.
        """
        own, other = (self.above, self.below) if sign > 0 else (self.below, self.above)
        _take(own, node, times)
        zero = Cancelling(self.tape)
        zero.multiply(by.zero, times)
        for at, n in zero.above.items():
            shared = min(n, other.get(at, 0))
            _take(other, at, shared)
            if n > shared:
                self.put(at, sign * (n - shared))
        for at, n in zero.below.items():
            self.put(at, -sign * n)
        for at, n in by.rest:
            self.put(at, sign * n * times)

    def node(self) -> int:
        """The quotient as one node."""
        above = _multiplied(self.tape, self.above)
        if not self.below:
            return above
        below = _multiplied(self.tape, self.below)
        return self.tape.add("div", above, below)


def cancelled(tape: Tape, op: str, a: int, b: int) -> int | None:
    """The node of a / b or a * b with its removable singularities removed; None where there are none."""
    if op == "mul" and not (divides(tape.nodes[a]) or divides(tape.nodes[b])):
        return None
    whole = Cancelling(tape)
    exponent = -1 if op == "div" else 1
    if not (whole.multiply(a, 1) and whole.multiply(b, exponent)):
        return None
    found = _removable(whole)
    if found is None:
        return None
    # Each replacement cancels something, so this ends; a quotient that takes longer stays as it is written.
    for _ in range(MOST):
        whole.replace(*found)
        found = _removable(whole)
        if found is None:
            return whole.node()
    return None


def _take(side: Factors, at: int, times: int) -> None:
    left = side.pop(at, 0) - times
    if left > 0:
        side[at] = left


def divides(node: Node) -> bool:
    """Whether a node is a quotient, or a power with a negative exponent."""
    return node.op == "div" or (node.op == "pow" and node.value < 0)


def _removable(whole: Cancelling) -> tuple[int, int, Vanishing, int] | None:
    """A factor whose zero meets the other side, how many copies of it do, how it vanishes, and on which side it is."""
    # Constants do not vanish: where nothing else is below, there is no singularity.
    if all(whole.tape.constant[at] is not None for at in whole.below):
        return None
    for side, other, sign in ((whole.above, whole.below, 1), (whole.below, whole.above, -1)):
        for node, copies in list(side.items()):
            for found in _vanishing(whole.tape, node):
                times = min(copies, _needed(whole.tape, other, found.zero))
                if times > 0:
                    return node, times, found, sign
    return _both_vanish(whole)


def _both_vanish(whole: Cancelling) -> tuple[int, int, Vanishing, int] | None:
    """A factor below whose zero is that of one above, as in sin(x) / sin(2 x); the one above is met afterwards."""
    tape = whole.tape
    zeros: set[int] = set()
    for node in list(whole.above):
        for found in _vanishing(tape, node):
            zeros |= _shared(tape, found.zero).keys()
    if not zeros:
        return None
    for node, copies in list(whole.below.items()):
        for found in _vanishing(tape, node):
            if zeros & _shared(tape, found.zero).keys():
                return node, copies, found, -1
    return None


def _shared(tape: Tape, zero: int) -> Factors:
    """The factors of a zero that depend on variables."""
    parts = Cancelling(tape)
    if tape.constant[zero] is not None or not parts.multiply(zero, 1):
        return {}
    return {at: n for at, n in parts.above.items() if tape.constant[at] is None}


def _needed(tape: Tape, other: Factors, zero: int) -> int:
    """How often the zero has to be multiplied in to cancel what it can of the other side."""
    shared = _shared(tape, zero).items()
    copies = (-(-other.get(at, 0) // n) for at, n in shared)  # quotients, rounded up
    return max(copies, default=0)


def _taken_apart(tape: Tape, at: int) -> list[tuple[int, int]]:
    """b - a as -(a - b) where that is known, and a c + b c as c (a + b); nothing where it is neither, or too deep.

    Looked at once for every node: where parts share their own parts there are far more ways down than nodes.
    """
    known = tape.apart.get(at)
    if known is not None:
        return known
    if tape.depth >= DEEPEST:
        return []
    tape.depth += 1
    try:
        tape.apart[at] = _factored(tape, at)
    finally:
        tape.depth -= 1
    return tape.apart[at]


def _factored(tape: Tape, at: int) -> list[tuple[int, int]]:
    """The factors of a sum or a difference that are seen in its two parts."""
    node = tape.nodes[at]
    a, b = node.args
    # Of a - b and b - a the earlier one is kept as it is, so that the two are not turned for ever.
    turned = tape.found("sub", b, a) if node.op == "sub" else None
    if turned is not None and turned < at:
        return [(turned, 1), (tape.number(-1), 1)]
    if not any(tape.nodes[arg].op in ("mul", "div") for arg in (a, b)):
        return []
    left = Cancelling(tape)
    right = Cancelling(tape)
    if not (left.multiply(a, 1) and right.multiply(b, 1)):
        return []
    common = _common(tape, left.above, right.above)
    if not common:
        return []
    for factor, n in common.items():
        _take(left.above, factor, n)
        _take(right.above, factor, n)
    rest = tape.add(node.op, left.node(), right.node())
    return [*common.items(), (rest, 1)]


def _common(tape: Tape, one: Factors, two: Factors) -> Factors:
    """Factors of both that may be taken out; of constants only exact ones that are not zero."""
    both = [factor for factor in one if factor in two]
    shared = [factor for factor in both if tape.constant[factor] is None or tape.exact[factor]]
    return {factor: min(one[factor], two[factor]) for factor in shared}


def _vanishing(tape: Tape, at: int) -> Iterator[Vanishing]:
    """The ways in which a node is known to vanish, by the lemmas above."""
    node = tape.nodes[at]
    if node.op == "log":
        yield from _logarithm(tape, at)
    elif node.op in ("sub", "add"):
        yield from _difference(tape, at)
    elif node.op == "tanh":
        (u,) = node.args
        two = tape.number(2)
        double = tape.add("mul", two, u)
        falling = tape.add("sigmoid", tape.add("neg", double))
        yield Vanishing(u, ((two, 1), (tape.add("exprel", double), 1), (falling, 1)))
    elif node.op in OPERATIONS and OPERATIONS[node.op].beside:
        (u,) = node.args
        factors = OPERATIONS[node.op].beside
        yield Vanishing(u, tuple((tape.add(one.op, at if one.own else u), one.exponent) for one in factors))


def _logarithm(tape: Tape, at: int) -> Iterator[Vanishing]:
    """log(w), which vanishes with w - 1, however that is written."""
    w = tape.nodes[at].args[0]
    inside = tape.nodes[w]
    one = tape.number(1)
    # log w = (w - 1) / exprel(log w)
    rest: Powers = ((tape.add("exprel", at), -1),)
    if inside.op == "div":
        above, below = inside.args
        yield Vanishing(tape.add("sub", above, below), (*rest, (below, -1)))
    if inside.op in ("add", "sub"):
        first, second = inside.args
        if tape.exact[first] == 1:
            yield Vanishing(second, rest if inside.op == "add" else _turned(tape, rest))
        elif inside.op == "add" and tape.exact[second] == 1:
            yield Vanishing(first, rest)
    yield Vanishing(tape.add("sub", w, one), rest)
    yield Vanishing(tape.add("sub", one, w), _turned(tape, rest))


def _turned(tape: Tape, rest: Powers) -> Powers:
    """The rest beside the opposite zero."""
    return (*rest, (tape.number(-1), 1))


def _difference(tape: Tape, at: int) -> Iterator[Vanishing]:
    """exp(u) - 1, 1 - cos(u), exp(u) - exp(v), log(a) - log(b), differences of roots and squares, in either order."""
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
    rest: Powers
    if left.op == "exp" and tape.exact[second] == 1:
        (u,) = left.args
        rest = ((tape.add("exprel", u), 1),)
        yield Vanishing(u, rest if sign > 0 else _turned(tape, rest))
    elif tape.exact[first] == 1 and right.op == "cos":
        (u,) = right.args
        half = tape.add("div", u, tape.number(2))
        rest = ((tape.add("sinrel", half), 1), (tape.add("sin", half), 1))
        yield Vanishing(u, rest if sign > 0 else _turned(tape, rest))
    elif sign < 0:  # what follows says the same in either order
        return
    elif left.op == right.op == "exp" and _opposite(tape, left.args[0], right.args[0]):
        (u,) = left.args
        double = tape.add("mul", tape.number(2), u)
        rest = ((tape.number(2), 1), (second, 1), (tape.add("exprel", double), 1))
        yield Vanishing(u, rest)
    else:
        yield from _alike(tape, first, second)


def _alike(tape: Tape, first: int, second: int) -> Iterator[Vanishing]:
    """The same function of two arguments, subtracted: it vanishes where they are equal."""
    left = tape.nodes[first]
    right = tape.nodes[second]
    if left.op == right.op == "exp":
        apart = tape.add("sub", left.args[0], right.args[0])
        yield Vanishing(apart, ((second, 1), (tape.add("exprel", apart), 1)))
    elif left.op == right.op == "log":
        apart = tape.add("sub", left.args[0], right.args[0])
        ratio = tape.add("exprel", tape.add("sub", first, second))
        yield Vanishing(apart, ((right.args[0], -1), (ratio, -1)))
    elif left.op == "sqrt" and (right.op == "sqrt" or tape.exact[second] == 1):
        over_the_sum = ((tape.add("add", first, second), -1),)
        below_root = right.args[0] if right.op == "sqrt" else second  # 1 is its own root
        yield from _apart(tape, left.args[0], below_root, over_the_sum)
    elif (left.op, left.value) == ("pow", 2):
        yield from _squares(tape, first, second)


def _apart(tape: Tape, a: int, b: int, rest: Powers) -> Iterator[Vanishing]:
    """(a - b) times the rest, and u times it where a is b + u."""
    node = tape.nodes[a]
    if node.op == "add" and b in node.args:
        first, second = node.args
        yield Vanishing(second if first == b else first, rest)
    elif node.op == "sub" and node.args[0] == b:
        yield Vanishing(node.args[1], _turned(tape, rest))
    yield Vanishing(tape.add("sub", a, b), rest)


def _squares(tape: Tape, first: int, second: int) -> Iterator[Vanishing]:
    """u^2 - v^2, v a power too or a number whose root is known exactly."""
    u = tape.nodes[first].args[0]
    right = tape.nodes[second]
    exact = tape.exact[second]
    root = None
    if (right.op, right.value) == ("pow", 2):
        root = right.args[0]
    elif exact is not None and exact > 0 and exact.denominator == 1:
        whole = math.isqrt(exact.numerator)
        # A root that no float64 is, as 2^53 + 1, would be another number on the tape.
        known = whole * whole == exact and float(whole) == whole
        root = tape.number(whole) if known else None
    if root is not None:
        less = tape.add("sub", u, root)
        more = tape.add("add", u, root)
        yield Vanishing(less, ((more, 1),))
        yield Vanishing(more, ((less, 1),))


def _opposite(tape: Tape, a: int, b: int) -> bool:
    pairs = ((tape.nodes[a], b), (tape.nodes[b], a))
    return any(node.op == "neg" and node.args[0] == other for node, other in pairs)


def _multiplied(tape: Tape, factors: Factors) -> int:
    """The product as one node, without powers of 1 and -1 that say nothing."""
    powers = []
    for at, n in factors.items():
        if tape.exact[at] == 1 or (tape.exact[at] == -1 and n % 2 == 0):
            continue
        n = 1 if tape.exact[at] == -1 else n
        powers.append(at if n == 1 else tape.add("pow", at, value=n))
    if not powers:
        return tape.number(1)
    return reduce(lambda a, b: tape.add("mul", a, b), powers)
