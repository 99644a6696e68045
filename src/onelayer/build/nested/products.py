"""Formulas as sums of products of inner functions of one direction each: what a head with several axes can look up.

A *form* is a sum of rational multiples of monomials; a *monomial* is a product of rational powers of factors; a
*factor* is a node of the formula that depends on one linear form of x, its logarithm, or a constant such as pi. Sums
stay short: where multiplying out would make more than MOST_TERMS of them, or a node is no such sum, it has no form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from onelayer.box import Box
from onelayer.build.nested.apart import Reader, Summand
from onelayer.build.nested.directions import Direction
from onelayer.build.sequences.rational import add_to, affine_of, function_of, nonzero, rounded
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.tree import Tape
from onelayer.lemmas.kinks import added
from onelayer.lemmas.nested import MOST_FACTORS, Inner
from onelayer.lemmas.rational import raised as raised_number
from onelayer.lemmas.rational import short

# "node" or "log", and a node of one direction, or of none.
Factor = tuple[str, int]
Monomial = frozenset[tuple[Factor, Fraction]]
Form = dict[Monomial, Fraction]
ONE: Monomial = frozenset()
MOST_TERMS = 8  # of a form: each is a head
HALF = Fraction(1, 2)


def times(one: Monomial, other: Monomial, e: Fraction = Fraction(1)) -> Monomial:
    """one * other^e."""
    exponents = dict(one)
    add_to(exponents, dict(other), e)
    return frozenset(nonzero(exponents).items())


def multiplied(a: Form, b: Form) -> Form:
    """The product of two forms, multiplied out."""
    found: Form = {}
    for one, c in a.items():
        for other, d in b.items():
            add_to(found, {times(one, other): short(c * d)}, Fraction(1))
    return nonzero(found)


class Products:
    """The forms of all nodes of a formula on a box.

    expand  multiplies sums with each other
    whole   leaves powers of products of several directions to the outer function, and what terms of a sum share in it
    """

    def __init__(self, formula: Formula, box: Box, *, expand: bool, whole: bool = False) -> None:
        self.reader = Reader(formula, box)
        self.expand = expand
        self.whole = whole
        self.nodes = formula.nodes
        self.rules: dict[str, Callable[..., Form | None]] = {
            "add": lambda a, b: added(a, b, 1),
            "sub": lambda a, b: added(a, b, -1),
            "neg": lambda a: added({}, a, -1),
            "mul": self._times,
            "div": self._over,
            "sqrt": lambda a: self._power(a, HALF),
            "log": self._log,
        }
        self.forms: list[Form | None] = []
        for at in range(len(self.nodes)):
            self.forms.append(self._form(at))

    def _form(self, at: int) -> Form | None:
        exact = self.reader.affine.exact[at]
        if exact is not None:
            return {ONE: exact} if exact else {}
        single = self._varies(at) or not self.reader.affine.used[at]
        found = self._ruled(at)
        # A function of one direction is a factor itself, unless it is a single monomial.
        most = 1 if single else MOST_TERMS
        if found is not None and len(found) <= most:
            return found
        if single:
            return {frozenset({(("node", at), Fraction(1))}): Fraction(1)}
        return None

    def _ruled(self, at: int) -> Form | None:
        """The form that follows from those of the arguments."""
        node = self.nodes[at]
        args = [self.forms[arg] for arg in node.args]
        known = [arg for arg in args if arg is not None]
        if not args or len(known) < len(args):
            return None
        if node.op == "pow":
            return self._power(known[0], Fraction(int(node.value)))
        if node.op in self.rules:
            return self.rules[node.op](*known)
        return None

    def _times(self, a: Form, b: Form) -> Form | None:
        if min(len(a), len(b)) > 1 and not self.expand:
            return None
        if len(a) * len(b) <= MOST_TERMS:
            return multiplied(a, b)
        return None

    def _over(self, a: Form, b: Form) -> Form | None:
        if len(b) != 1:
            return None
        return self._times(a, self._power(b, Fraction(-1)) or {})

    def _power(self, a: Form, e: Fraction) -> Form | None:
        if len(a) != 1:
            square = self.expand and e == 2
            return self._times(a, a) if square else None
        ((monomial, c),) = a.items()
        kept = self.whole and e > 1 and self.spread(monomial) > 1
        scale = None if kept else self._rational_power(c, e)
        if scale is None or (e.denominator > 1 and not self.positive(monomial)):
            return None
        return {times(ONE, monomial, e): scale}

    def _rational_power(self, c: Fraction, e: Fraction) -> Fraction | None:
        """c^e where that is rational, e a whole number or the half of one; None of other roots."""
        if e.denominator == 1:
            return raised_number(c, int(e))
        if c < 0:
            return None
        up = math.isqrt(c.numerator)
        down = math.isqrt(c.denominator)
        if (up * up, down * down) == (c.numerator, c.denominator):
            return raised_number(Fraction(up, down), int(2 * e))
        return None

    def _log(self, a: Form) -> Form | None:
        if len(a) != 1:
            return None
        ((monomial, c),) = a.items()
        nested = any(kind == "log" for (kind, _), _ in monomial)
        if c != 1 or nested or not self.positive(monomial):
            return None
        logarithms: Form = {}
        for (_, at), e in monomial:
            factor = frozenset({(("log", at), Fraction(1))})
            logarithms[factor] = e
        return logarithms

    def sign(self, factor: Factor) -> int:
        """+1 or -1 where a factor keeps its sign, else 0."""
        kind, at = factor
        if kind == "log":
            return 0
        if self.reader.directions[at] is not None:
            return self.reader.sign(at)
        value = _number(self.reader, at)
        return 1 if value > 0 else -1

    def positive(self, monomial: Monomial) -> bool:
        """Whether all factors are positive on the box."""
        return all(self.sign(factor) > 0 for factor, _ in monomial)

    def direction(self, factor: Factor) -> Direction | None:
        """The linear form that a factor depends on; None of a constant."""
        return self.reader.directions[factor[1]]

    def spread(self, monomial: Monomial) -> int:
        """How many linear forms a monomial depends on."""
        directions = {self.direction(factor) for factor, _ in monomial}
        return len(directions - {None})

    def logarithms(self, monomial: Monomial) -> tuple[Summand, ...]:
        """The logarithm of a positive monomial as a sum of inner functions."""
        varying = [(at, e) for (_, at), e in _ordered(monomial) if self._varies(at)]
        return tuple(self.reader.inner("log", at, e) for at, e in varying)

    def _varies(self, at: int) -> bool:
        return self.reader.directions[at] is not None

    def summand(self, monomial: Monomial, c: Fraction) -> Summand:
        """c times a monomial as one inner function: a factor for every linear form, numbers with the first."""
        groups: dict[Direction | None, list[tuple[Factor, Fraction]]] = {}
        for factor, e in _ordered(monomial):
            groups.setdefault(self.direction(factor), []).append((factor, e))
        numbers = groups.pop(None, [])
        parts = [(direction, own) for direction, own in groups.items() if direction is not None]
        if not parts or len(parts) > MOST_FACTORS:
            raise OnelayerError("a product of too many inner functions, or of none")
        (first, own), *others = parts
        base, text = self._written([*numbers, *own], first, c)
        more = []
        for d, own in others:
            _, written = self._written(own, d, Fraction(1))
            more.append(Inner(self.reader.vector(d), written))
        inner = Inner(self.reader.vector(first), text, tuple(more))
        return Summand(inner, base, rounded(c))

    def _written(self, factors: list[tuple[Factor, Fraction]], direction: Direction, c: Fraction) -> tuple[str, str]:
        """A product of factors of one linear form as text, without and with a number before it."""
        tape = Tape()
        value = self._product(tape, factors, direction)
        scaled = affine_of(tape, c, value, Fraction(0))
        return str(function_of(tape, value)), str(function_of(tape, scaled))

    def _product(self, tape: Tape, factors: list[tuple[Factor, Fraction]], direction: Direction) -> int:
        """Powers of factors of one linear form, as a function of it."""
        value: int | None = None
        for (kind, at), e in factors:
            if self._varies(at):
                node = self.reader.along(tape, at, direction)
            else:
                node = self.constant(tape, at)
            if kind == "log":
                node = tape.add("log", node)
            power = raised(tape, node, e)
            value = power if value is None else tape.add("mul", value, power)
        return tape.number(1.0) if value is None else value

    def constant(self, tape: Tape, at: int) -> int:
        """A node without variables on another tape."""
        return self.reader.affine.rewrite(tape, at, {})


def raised(tape: Tape, at: int, e: Fraction) -> int:
    """A node to a rational power."""
    if e.denominator == 2:
        at = tape.add("sqrt", at)
        e = 2 * e
    if e.denominator == 1:
        if e == 1:
            return at
        return tape.add("pow", at, value=int(e))
    # Other powers by the logarithm, which the base has: only positive ones are raised to them.
    logarithm = tape.add("log", at)
    return tape.add("exp", affine_of(tape, e, logarithm, Fraction(0)))


def _ordered(monomial: Monomial) -> list[tuple[Factor, Fraction]]:
    return sorted(monomial)


def _number(reader: Reader, at: int) -> float:
    """The value of a node without variables."""
    tape = Tape()
    place = reader.affine.rewrite(tape, at, {})
    value = tape.constant[place]
    return 0.0 if value is None else value
