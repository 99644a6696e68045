"""A formula as a quotient: numerator over denominators that hold no division of their own.

A bound of T - N / D is a bound of (T D - N) / D, and there nothing is inverted: products and sums of well-behaved
functions stay well-behaved on boxes over which 1 / D is far from any polynomial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from onelayer.errors import FormulaError
from onelayer.language.formula import Formula
from onelayer.language.operations import POWER
from onelayer.language.removable import divides
from onelayer.language.tree import Node, Tape

MAX_NODES = 2000  # beyond, clearing denominators costs more than it brings
Factors = Mapping[int, int]  # node -> exponent: the product of these powers


@dataclass(frozen=True)
class Quotient:
    """f_j = numerator_j / product of factor^exponent over ``denominators[j]``, wherever f is defined.

    ``formula`` has the numerators as its first outputs and then all factors; denominators name outputs. ``source`` is f
    as it was written: what cancels is no longer in ``formula``, and f is undefined where it is.
    """

    formula: Formula
    denominators: tuple[tuple[tuple[int, int], ...], ...]
    source: Formula


def as_quotient(formula: Formula) -> Quotient | None:
    """The formula as a quotient, or None where it divides by constants only or would grow too long.

    Every value is kept as a product of powers of factors: products add exponents, quotients subtract them, and a sum
    takes out the common factors, those of the denominators among them, and is a new factor.
    """
    if not any(divides(node) for node in formula.nodes):
        return None
    builder = _FactorBuilder(Tape(limit=MAX_NODES))
    try:
        values = builder.values(formula)
        parts = [builder.split(values[at]) for at in formula.outputs]
        return _assembled(builder.tape, parts, formula)
    except FormulaError:
        return None


def _assembled(tape: Tape, parts: Sequence[tuple[int, Mapping[int, int]]], formula: Formula) -> Quotient | None:
    """One formula with all numerators and all factors of the denominators as its outputs; None without factors."""
    # Each factor once, in the order in which they are met.
    factors = list(dict.fromkeys(node for _, below in parts for node in below))
    if not factors:
        return None
    numerators = [above for above, _ in parts]
    place = {node: at for at, node in enumerate(factors, start=len(numerators))}
    outputs = [*numerators, *factors]
    whole = Formula.build(tape.nodes, outputs, (formula.dim,), (len(outputs),))
    denominators = []
    for _, below in parts:
        denominators.append(tuple((place[node], n) for node, n in below.items()))
    return Quotient(whole, tuple(denominators), formula)


class _FactorBuilder:
    """Rewrites nodes into factors on a tape of its own."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.one = tape.number(1.0)
        self.minus_one = tape.number(-1.0)

    def values(self, formula: Formula) -> list[Factors]:
        found: list[Factors] = []
        for node in formula.nodes:
            args = [found[at] for at in node.args]
            found.append(self._value(node, args))
        return found

    def _value(self, node: Node, args: list[Factors]) -> Factors:
        match node.op:
            case "mul":
                return _product(args[0], args[1])
            case "div":
                return _product(args[0], _power(args[1], -1))
            case "pow":
                return _power(args[0], int(node.value))
            case "neg":
                return _product({self.minus_one: 1}, args[0])
            case "add" | "sub":
                return self._sum(node.op, args[0], args[1])
            case "num" if node.value == 1:
                return {}
        whole = (self._node(arg) for arg in args)
        return {self.tape.add(node.op, *whole, value=node.value): 1}

    def split(self, value: Factors) -> tuple[int, Factors]:
        """Numerator as one node, and the denominators that depend on variables with their exponents."""
        negative = ((node, -n) for node, n in value.items() if n < 0)
        below = {node: n for node, n in negative if self.tape.constant[node] is None}
        above = {node: n for node, n in value.items() if node not in below}
        return self._node(above), below

    def _sum(self, op: str, a: Factors, b: Factors) -> Factors:
        """The least exponents of both, which are negative in denominators, times the sum of what is left of each."""
        common = {node: min(a.get(node, 0), b.get(node, 0)) for node in {**a, **b}}
        taken_out = _power(common, -1)
        rest = [self._node(_product(value, taken_out)) for value in (a, b)]
        return _product(common, {self.tape.add(op, *rest): 1})

    def _node(self, value: Factors) -> int:
        """The product as one node."""
        above = self._multiplied({node: n for node, n in value.items() if n > 0})
        below = self._multiplied({node: -n for node, n in value.items() if n < 0})
        if below == self.one:
            return above
        return self.tape.add("div", above, below)

    def _multiplied(self, value: Factors) -> int:
        # Sorted: one product has one node, in whatever order its factors were met.
        powers = [node if n == 1 else self.tape.add(POWER, node, value=n) for node, n in sorted(value.items())]
        if not powers:
            return self.one
        return reduce(lambda a, b: self.tape.add("mul", a, b), powers)


def _product(a: Factors, b: Factors) -> Factors:
    total = {node: a.get(node, 0) + b.get(node, 0) for node in {**a, **b}}
    return {node: n for node, n in total.items() if n}


def _power(value: Factors, exponent: int) -> Factors:
    return {node: n * exponent for node, n in value.items() if exponent}
