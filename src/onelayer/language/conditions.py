"""Conditions: comparisons joined by and, or, not, and the choice by them.

A condition is no number. Written into a formula it is a choice between two numbers, for which one operation is enough:
``where(u > 0, a, b)`` is a where u > 0 and b elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from onelayer.language.tree import Tape


class Condition(Protocol):
    """Something that holds at a point or not."""

    def choose(self, tape: Tape, a: int, b: int) -> int:
        """The node that is a where this holds, and b elsewhere."""
        ...


@dataclass(frozen=True)
class Positive:
    """u > 0, for a node u."""

    node: int

    def choose(self, tape: Tape, a: int, b: int) -> int:
        """A node of its own, unless both choices are one; a choice within it that asks the same is decided."""
        a = _decided(tape, a, self.node, 1)
        b = _decided(tape, b, self.node, 2)
        # Only if u has a value everywhere: a choice by what is undefined is undefined, whatever it chooses among.
        if a == b and tape.total[self.node]:
            return a
        minus_relu = tape.add("neg", tape.add("relu", tape.add("neg", self.node)))
        first = _knowing(tape, a, self.node, tape.add("relu", self.node))
        second = _knowing(tape, b, self.node, minus_relu)
        return tape.add("where", self.node, first, second)


def _decided(tape: Tape, at: int, node: int, side: int) -> int:
    """The side of a choice that is taken where it is known whether ``node`` is positive (1) or not (2)."""
    while tape.nodes[at].op == "where" and tape.nodes[at].args[0] == node:
        at = tape.nodes[at].args[side]
    return at


def _knowing(tape: Tape, at: int, node: int, same: int) -> int:
    """A choice with ``same`` in the place of ``node``, which it equals wherever the choice is taken.

    Lemma: where u > 0 is u = relu(u), elsewhere u = -relu(-u). So sqrt(u) beside its border is taken of numbers that
    are not negative even on a box that the border crosses. What has a value everywhere stays as it is.
    """
    if tape.total[at] or node == at:
        return at
    places = {node: same, same: same}
    for here in _made_after(tape, at, node):
        old = tape.nodes[here]
        args = tuple(places.get(arg, arg) for arg in old.args)
        # ``same`` is made of the node itself, and must not be replaced within itself.
        if here not in places and args != old.args:
            places[here] = tape.add(old.op, *args, value=old.value)
    return places.get(at, at)


def _made_after(tape: Tape, at: int, node: int) -> list[int]:
    """The nodes that ``at`` is made of, arguments first, but for those before ``node``, which are not made of it.

    No others: the tape holds what earlier choices have replaced, and copies of copies would double with each.
    """
    found: set[int] = set()
    pending = [at]
    while pending:
        here = pending.pop()
        if here > node and here not in found:
            found.add(here)
            pending += tape.nodes[here].args
    return sorted(found)


@dataclass(frozen=True)
class Known:
    """A condition that does not depend on the point."""

    holds: bool

    def choose(self, tape: Tape, a: int, b: int) -> int:
        """The one that is known to be meant."""
        return a if self.holds else b


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    inner: Condition

    def choose(self, tape: Tape, a: int, b: int) -> int:
        """The other one."""
        return self.inner.choose(tape, b, a)


@dataclass(frozen=True)
class Both:
    """Lemma: a where both hold, else b, is (a where the second holds, else b) where the first holds, else b."""

    first: Condition
    second: Condition

    def choose(self, tape: Tape, a: int, b: int) -> int:
        """a where both hold, else b."""
        where_first_holds = self.second.choose(tape, a, b)
        return self.first.choose(tape, where_first_holds, b)


def either(first: Condition, second: Condition) -> Condition:
    """Whether one of them holds."""
    return Not(Both(Not(first), Not(second)))


def greater(tape: Tape, a: int, b: int) -> Condition:
    """a > b; a difference with the literal 0 is not written."""
    if tape.exact[b] == 0:
        return Positive(a)
    if tape.exact[a] == 0:
        return Positive(tape.add("neg", b))
    return Positive(tape.add("sub", a, b))


def _equal(tape: Tape, a: int, b: int) -> Condition:
    return Both(Not(greater(tape, a, b)), Not(greater(tape, b, a)))


COMPARISONS: dict[str, Callable[[Tape, int, int], Condition]] = {
    ">": greater,
    "<": lambda tape, a, b: greater(tape, b, a),
    ">=": lambda tape, a, b: Not(greater(tape, b, a)),
    "<=": lambda tape, a, b: Not(greater(tape, a, b)),
    "==": _equal,
    "!=": lambda tape, a, b: Not(_equal(tape, a, b)),
}
