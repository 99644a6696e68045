"""The formula as N / D in the checker's arithmetic, so that |T - f| <= e can be read off |T D - N| <= e min|D|.

Every value is a product of powers of Taylor elements: products add exponents and quotients subtract them; a sum takes
out what its terms have in common, denominators included, and is a new element. Lemma: this equals the formula at every
point at which no divisor is zero, and that is demanded of every divisor on the whole box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import Taylor, constant
from onelayer.checker.formula import node_value
from onelayer.checker.functions import Kinks, apply, power
from onelayer.language.formula import Formula, Node


@dataclass(frozen=True)
class Product:
    """The product of the factors to their exponents; factors are told apart by identity."""

    factors: tuple[tuple[Taylor, int], ...]

    def __mul__(self, other: Product) -> Product:
        return self.combined(other, 1)

    def combined(self, other: Product, sign: int) -> Product:
        """self * other**sign."""
        exponents = {id(factor): (factor, n) for factor, n in self.factors}
        for factor, n in other.factors:
            _, known = exponents.get(id(factor), (factor, 0))
            exponents[id(factor)] = factor, known + sign * n
        kept = [(factor, n) for factor, n in exponents.values() if n]
        return Product(tuple(kept))

    def raised(self, exponent: int) -> Product:
        """The product to a whole power."""
        if not exponent:
            return Product(())
        return Product(tuple((factor, n * exponent) for factor, n in self.factors))

    def common(self, other: Product) -> Product:
        """For each factor the smaller of its exponents, 0 where it is missing."""
        mine = {id(factor): n for factor, n in self.factors}
        theirs = {id(factor): n for factor, n in other.factors}
        each = {id(factor): factor for factor, _ in (*self.factors, *other.factors)}
        found = []
        for key, factor in each.items():
            least = min(mine.get(key, 0), theirs.get(key, 0))
            if least:
                found.append((factor, least))
        return Product(tuple(found))

    def above(self, order: int) -> Taylor:
        """The product of the positive powers."""
        return _multiplied([(factor, n) for factor, n in self.factors if n > 0], order)

    def below(self, order: int) -> Taylor:
        """The product of the negative powers, inverted."""
        return _multiplied([(factor, -n) for factor, n in self.factors if n < 0], order)

    def value(self, order: int) -> Taylor:
        """The product as one polynomial."""
        below = self.below(order)
        above = self.above(order)
        if not below.support and below.c[0] == 1:
            return above
        return above * apply("inv", below)

    def size_below(self) -> arb:
        """A lower bound of the absolute value of the denominator."""
        least = arb(1)
        for factor, n in self.factors:
            for _ in range(-n):
                least = least * factor.range().abs_lower()
        return least

    def positive(self) -> Any:
        """Whether, or where, every factor is surely positive."""
        return reduce(np.logical_and, (factor.positive() for factor, _ in self.factors), True)

    def defined(self) -> Any:
        """Whether, or where, every factor has finite values."""
        return reduce(np.logical_and, (factor.defined() for factor, _ in self.factors), True)

    def nonzero(self) -> Any:
        """Whether, or where, no factor of a positive power can be zero."""
        return reduce(np.logical_and, (factor.nonzero() for factor, n in self.factors if n > 0), True)


def divides(formula: Formula) -> bool:
    """Whether the formula divides at all."""
    return any(map(_divides, formula.nodes))


def _divides(node: Node) -> bool:
    """Whether the node divides by its last argument."""
    return node.op == "div" or (node.op == "pow" and node.value < 0)


def quotients(formula: Formula, x: Sequence[Taylor], kinks: Kinks) -> tuple[list[Product], Any] | None:
    """The outputs as products, and whether, or on which of many boxes, no node is undefined and no divisor vanishes.

    None where that is nowhere.
    """
    order = x[0].order
    sound: Any = True
    minus_one = Product(((constant(arb(-1), order), 1),))
    values: list[Product] = []
    for node in formula.nodes:
        args = [values[at] for at in node.args]
        if node.op == "neg":
            # One factor for all of them, so that two cancel.
            value = minus_one * args[0]
        elif node.op in PRODUCTS:
            value = PRODUCTS[node.op](node, args, order)
        elif node.op == "log" and np.all(args[0].positive() | ~np.asarray(sound)):
            value = Product(((_logarithm(args[0], order), 1),))
        else:
            taken = [arg.value(order) for arg in args]
            value = Product(((node_value(node, taken, x, kinks), 1),))
        # Factors may cancel later, and with them the only sign that the formula has no value: so it is asked here.
        if _divides(node):
            sound = sound & args[-1].nonzero()
        sound = sound & value.defined()
        if not np.any(sound):
            return None
        values.append(value)
    return list(map(values.__getitem__, formula.outputs)), sound


def _divided(node: Node, args: Sequence[Product], order: int) -> Product:
    """A quotient, or a whole power; whether what is divided by may vanish is asked elsewhere."""
    if node.op == "div":
        return args[0].combined(args[1], -1)
    return args[0].raised(int(node.value))


def _added(node: Node, args: Sequence[Product], order: int) -> Product:
    """A sum or difference: what both terms share stays outside."""
    shared = args[0].common(args[1])
    # Without the least exponents of both no negative power is left on either side.
    a, b = (arg.combined(shared, -1).above(order) for arg in args)
    total = a + b if node.op == "add" else a - b
    return shared * Product(((total, 1),))


# How a product is made of products; every other operation makes a new factor.
PRODUCTS: dict[str, Callable[[Node, Sequence[Product], int], Product]] = {
    "mul": lambda node, args, order: args[0] * args[1],
    "div": _divided,
    "pow": _divided,
    "add": _added,
    "sub": _added,
}


def _logarithm(value: Product, order: int) -> Taylor:
    """The logarithm of a product of positive factors is the sum of theirs, of which each is easier to enclose."""
    total = constant(arb(0), order)
    for factor, n in value.factors:
        total = total + apply("log", factor).scaled(arb(n))
    return total


def _multiplied(powers: Sequence[tuple[Taylor, int]], order: int) -> Taylor:
    result = constant(arb(1), order)
    for factor, n in powers:
        result = result * power(factor, n)
    return result
