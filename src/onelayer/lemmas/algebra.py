"""Two formulas that algebra shows to be the same function on a box.

Every node becomes a sum of monomials c b_1^e_1 ... b_k^e_k with rational c and e and *bases* b: variables, constants,
powers of sums, and functions such as sin of a normal form. Products are expanded, and
    exp(c log b + rest) = b^c exp(rest),   log(c b^e) = log c + e log b,   sqrt(c b^e) = sqrt(c) b^(e/2)
are used where b > 0 is known from intervals, and powers of a sum take out what its monomials share; kinks become maxima
of sums (kinks.py), and m sin(t)^2 + m cos(t)^2 in a sum is m. Each step is an identity wherever the formula has a
value, so two formulas with values all over the box and one normal form are equal there; so are two whose difference
vanishes once it is multiplied by what it is divided by. Different normal forms prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce

from flint import arb

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.operations import OPERATIONS
from onelayer.language.tree import Node
from onelayer.lemmas.kinks import (
    ONE,
    PEAK,
    Base,
    Monomial,
    Sum,
    Tables,
    added,
    largest,
    lattice_sum,
    power_of,
    terms_of,
    variable,
)
from onelayer.lemmas.rational import LONGEST, raised, short
from onelayer.observer import Observer
from onelayer.taylor.hull import defined_on

MOST_MONOMIALS = 4000  # beyond, expanding costs more than it may show
HIGHEST_POWER = 12  # of a sum that is multiplied out
MOST_CLEARED = 8  # denominators that two formulas are multiplied by


def same_function(first: Formula, second: Formula, box: Box, *, second_defined: bool = False) -> bool:
    """Whether both are defined on the whole box and algebra shows them equal there; False proves nothing.

    ``second_defined`` leaves it to the caller to show that the second one is defined.
    """
    if first.dim != second.dim or len(first.outputs) != len(second.outputs):
        return False
    # The identities used hold where the formula has a value; where it has none, equal normal forms show nothing.
    shown = (first,) if second_defined else (first, second)
    if not all(defined_on(formula, box) for formula in shown):
        return False
    normal = Normal(box)
    try:
        pairs = zip(normal.outputs(first), normal.outputs(second), strict=True)
        return all(a == b or normal.vanishes(added(a, b, -1)) for a, b in pairs)
    except (OnelayerError, OverflowError, ZeroDivisionError):
        return False


class Normal:
    """Normal forms of formulas that are defined on one box; Stopped once the ``observer`` says that it is over."""

    def __init__(self, box: Box, observer: Observer | None = None) -> None:
        self.observer = observer or Observer()
        ends = list(zip(box.lower.flatten().tolist(), box.upper.flatten().tolist(), strict=True))
        self.sides = [arb(low).union(arb(high)) for low, high in ends]
        self.corners = [(Fraction(low), Fraction(high)) for low, high in ends]
        self.balls: dict[Base, arb] = {}
        self.rules: dict[str, Callable[..., Sum]] = {
            "add": lambda a, b: added(a, b, 1),
            "sub": lambda a, b: added(a, b, -1),
            "neg": _negative,
            "mul": self._times,
            "div": lambda a, b: self._times(a, self._power(b, Fraction(-1))),
            "sqrt": lambda a: self._power(a, Fraction(1, 2)),
            "exp": self._exp,
            "log": self._log,
            "max": lambda a, b: self.largest([a, b]),
            "min": lambda a, b: _negative(self.largest([_negative(a), _negative(b)])),
            "abs": lambda a: self.largest([a, _negative(a)]),
            "relu": lambda a: self.largest([a, {}]),
        }

    def outputs(self, formula: Formula, variables: Sequence[Sum] | None = None) -> list[Sum]:
        """The normal form of every output, with these sums in the place of the variables where given."""
        values: list[Sum] = []
        tables: list[int | None] = []
        tabulated = Tables(len(self.corners))
        for node in formula.nodes:
            self.observer.check()
            # Minima and maxima of variables alone have a table, whose sum does not depend on how they were nested.
            table = tabulated.of(node, [tables[at] for at in node.args]) if variables is None else None
            tables.append(table)
            if variables is not None and node.op == "var":
                values.append(variables[int(node.value)])
            elif table is not None and node.op != "var":
                values.append(lattice_sum(table, self.corners))
            else:
                args = [values[at] for at in within_domain(formula, node)]
                values.append(self._node(node, args))
        return [values[at] for at in formula.outputs]

    def vanishes(self, a: Sum) -> bool:
        """Whether a sum is zero once it is multiplied by the sums that it is divided by, which are not zero."""
        for _ in range(MOST_CLEARED):
            factors = (factor for monomial in a for factor in monomial)
            divisors = {base for base, e in factors if base[0] == "sum" and e < 0}
            if not divisors:
                break
            # Any order shows the same in the end; this one does not depend on the hashes of a process.
            divisor = min(divisors, key=repr)
            lowest = _least_exponent(a, divisor)
            a = _pythagorean(self._times(a, power_of(divisor, -lowest)))
        return not a

    def largest(self, sums: Sequence[Sum]) -> Sum:
        """The maximum of sums."""
        return largest(sums, self.corners)

    def _node(self, node: Node, args: list[Sum]) -> Sum:
        match node.op:
            case "var":
                return variable(int(node.value))
            case "num":
                return _number(Fraction(node.value))
            case "pi" | "e":
                return power_of((node.op,))
            case "pow":
                return self._power(args[0], Fraction(int(node.value)))
            case op if op in self.rules:
                return self.rules[op](*args)
            case op:
                # Nothing is known of it but that equal arguments give equal values.
                arguments = (frozenset(arg.items()) for arg in args)
                return power_of((op, node.value, *arguments))

    def _times(self, a: Sum, b: Sum) -> Sum:
        if len(a) * len(b) > MOST_MONOMIALS:
            raise OnelayerError("too many monomials")
        # Not one monomial times another alone: whole powers of sums open up, so a product may be a sum.
        found: Sum = {}
        for one, c in a.items():
            for other, d in b.items():
                found = added(found, self._monomial(one, other), c * d)
        return found

    def _monomial(self, one: Monomial, other: Monomial) -> Sum:
        """Exponents add up; whole powers of numbers and of sums are worked out."""
        exponents = dict(one)
        for base, e in other:
            exponents[base] = exponents.get(base, Fraction(0)) + e
        kept = {}
        factor = Fraction(1)
        opened = []
        for base, e in exponents.items():
            if base[0] == "num" and e.denominator == 1:
                factor *= raised(base[1], int(e))
            elif base[0] == "sum" and e.denominator == 1 and 0 < e <= HIGHEST_POWER:
                opened += [dict(base[1])] * int(e)
            elif e:
                kept[base] = e
        found: Sum = {frozenset(kept.items()): factor}
        for part in opened:
            found = self._times(found, part)
        return found

    def _power(self, a: Sum, e: Fraction) -> Sum:
        """a^e where that is defined."""
        if e.denominator == 1 and 0 <= e <= HIGHEST_POWER:
            return reduce(self._times, [a] * int(e), _number(Fraction(1)))
        a = _pythagorean(a)
        if len(a) == 1:
            ((monomial, c),) = a.items()
            # (b c)^e = b^e c^e for whole e, or where both are positive: sqrt(x^2) is |x|, not x.
            if e.denominator == 1 or (c > 0 and self._all_positive(monomial)):
                powers: Monomial = frozenset((base, own * e) for base, own in monomial)
                return self._times(_root(c, e), self._monomial(powers, ONE))
        return self._power_of_sum(a, e)

    def _power_of_sum(self, a: Sum, e: Fraction) -> Sum:
        """What the monomials share to that power, times the rest as one base."""
        if not a:
            raise OnelayerError("a power of zero")
        content = self._content(a, e)
        if content:
            inverse: Monomial = frozenset((base, -own) for base, own in content)
            rest = self._times(a, {inverse: Fraction(1)})
            return self._times(self._power({content: Fraction(1)}, e), self._power(rest, e))
        lead, base = _as_base(a)
        return self._times(_root(lead, e), self._monomial(frozenset({(base, e)}), ONE))

    def _content(self, a: Sum, e: Fraction) -> Monomial:
        """What all monomials share: of each base the smallest exponent, where a power of it may be taken out of a^e.

        With it, multiples of a sum by a monomial have the same base: 1 + x/y and y + x are (y + x) / y and y + x.
        """
        bases = {base for monomial in a for base, _ in monomial}
        least = {base: _least_exponent(a, base) for base in bases}
        whole = e.denominator == 1
        shared = {base: m for base, m in least.items() if m}
        return frozenset((base, m) for base, m in shared.items() if whole or self._positive(base))

    def _exp(self, a: Sum) -> Sum:
        """exp of a sum is the product of exp of its terms, and exp(c log b) = b^c."""
        found = _number(Fraction(1))
        for monomial, c in a.items():
            inner = _under_logarithm(monomial)
            if not monomial:
                factor = power_of(("e",), c)
            elif inner is None:
                factor = power_of(("exp", monomial), c)
            elif inner[0] == "num":
                factor = _root(inner[1], c)
            else:
                factor = self._monomial(frozenset({(inner, c)}), ONE)
            found = self._times(found, factor)
        return found

    def _log(self, a: Sum) -> Sum:
        """log of a product of positive bases is a sum of logarithms; any other sum is one base."""
        if len(a) == 1:
            ((monomial, c),) = a.items()
            if c > 0 and self._all_positive(monomial):
                found = _log_of_number(c)
                for base, e in monomial:
                    found = added(found, self._log_of(base), e)
                return found
        if not a:
            raise OnelayerError("the logarithm of zero")
        lead, base = _as_base(a)
        return added(_log_of_number(lead), power_of(("log", base)), 1)

    def _log_of(self, base: Base) -> Sum:
        if base[0] == "exp":
            return {base[1]: Fraction(1)}
        if base == ("e",):
            return _number(Fraction(1))
        return power_of(("log", base))

    def _positive(self, base: Base) -> bool:
        return bool(self._ball(base) > 0)

    def _all_positive(self, monomial: Monomial) -> bool:
        return all(self._positive(base) for base, _ in monomial)

    def ball(self, a: Mapping[Monomial, Fraction]) -> arb:
        """The values of a sum over the box."""
        return self._sum(a)

    def _ball(self, base: Base) -> arb:
        """The values of a base over the box, anything where no rule is at hand."""
        if base not in self.balls:
            self.balls[base] = self._enclosed(base)
        return self.balls[base]

    def _enclosed(self, base: Base) -> arb:
        match base[0]:
            case "x":
                return self.sides[base[1]]
            case "num":
                return arb(base[1].numerator) / arb(base[1].denominator)
            case "pi" | "e" as name:
                return _NUMBERS[name]()
            case "exp":
                return self._sum({base[1]: Fraction(1)}).exp()
            case "log":
                return self._ball(base[1]).log()
            case "sum":
                return self._sum(dict(base[1]))
            case op if op == PEAK:
                return reduce(arb.max, map(self._sum, terms_of(base)))
            case op if op in _BALLS:
                argument = self._sum(dict(base[2]))
                return _BALLS[op](argument)
            case _:
                return arb("nan")

    def _sum(self, a: Mapping[Monomial, Fraction]) -> arb:
        total = arb(0)
        for monomial, c in a.items():
            product = arb(c.numerator) / arb(c.denominator)
            for base, e in monomial:
                product = product * _raised(self._ball(base), e)
            total = total + product
        return total


_NUMBERS = {"pi": arb.pi, "e": arb.const_e}
_ENTIRE = ("sin", "cos", "tanh", "atan", "erf")  # defined for every number
_BALLS: dict[str, Callable[[arb], arb]] = {op: getattr(arb, op) for op in _ENTIRE}


def _raised(ball: arb, e: Fraction) -> arb:
    # One by one: a power of a ball that reaches below zero is no number in Arb.
    if e.denominator == 1 and abs(e) <= LONGEST:
        product = reduce(arb.__mul__, [ball] * abs(int(e)), arb(1))
        return product if e > 0 else 1 / product
    if ball > 0:
        exponent = arb(e.numerator) / arb(e.denominator)
        return (exponent * ball.log()).exp()
    return arb("nan")


def within_domain(formula: Formula, node: Node) -> tuple[int, ...]:
    """The arguments of a node; for asin(min(max(u, -1), 1)), which is asin(u) where that has a value, u itself.

    Functions that have values on [-1, 1] alone stand in a normal form for these functions continued by constants, and
    no law but equality of arguments is used of them.
    """
    nodes = formula.nodes
    one = Node("num", (), 1.0)
    row = OPERATIONS.get(node.op)
    if row is None or not row.within_one or nodes[node.args[0]].op != "min":
        return node.args
    inner, top = nodes[node.args[0]].args
    if nodes[inner].op != "max" or nodes[top] != one:
        return node.args
    kept, bottom = nodes[inner].args
    least = nodes[bottom]
    from_minus_one = least.op == "neg" and nodes[least.args[0]] == one
    return (kept,) if from_minus_one else node.args


def _as_base(a: Sum) -> tuple[Fraction, Base]:
    """A sum as a positive factor and one base, so that multiples of a sum have the same base."""
    lead = max(abs(c) for c in a.values())
    scaled = frozenset((monomial, short(c / lead)) for monomial, c in a.items())
    return lead, ("sum", scaled)


def _under_logarithm(monomial: Monomial) -> Base | None:
    """b of a monomial that is log b and nothing else."""
    if len(monomial) != 1:
        return None
    ((base, e),) = monomial
    if base[0] == "log" and e == 1:
        inner: Base = base[1]
        return inner
    return None


def _least_exponent(a: Sum, base: Base) -> Fraction:
    """The smallest exponent that a base has in the monomials of a sum, 0 where it is missing."""
    return min(dict(monomial).get(base, Fraction(0)) for monomial in a)


def _pythagorean(a: Sum) -> Sum:
    """c m sin(t)^2 + d m cos(t)^2 as c m + (d - c) m cos(t)^2, for every m and t of which both terms are there."""
    found = dict(a)
    for monomial in a:
        for base, e in monomial:
            if base[0] != "sin" or e < 2 or monomial not in found:
                continue
            rest = _without_square(monomial, base)
            beside = _without_square(rest, ("cos", *base[1:]), -1)
            if beside in found:
                # c m sin^2 = c m - c m cos^2.
                c = found.pop(monomial)
                found = added(found, {beside: Fraction(1)}, -c)
                found = added(found, {rest: Fraction(1)}, c)
    return found


def _without_square(monomial: Monomial, base: Base, sign: int = 1) -> Monomial:
    """A monomial divided by the square of a base, or with sign -1 multiplied by it."""
    exponents = dict(monomial)
    exponents[base] = exponents.get(base, Fraction(0)) - 2 * sign
    return frozenset((own, e) for own, e in exponents.items() if e)


def _number(value: Fraction) -> Sum:
    return {ONE: value} if value else {}


def _negative(a: Sum) -> Sum:
    return added({}, a, -1)


def _log_of_number(c: Fraction) -> Sum:
    return {} if c == 1 else power_of(("log", ("num", c)))


def _root(c: Fraction, e: Fraction) -> Sum:
    """c^e for c != 0, exactly where it is rational; c > 0 where e is no whole number."""
    if e.denominator == 1:
        return _number(raised(c, int(e)))
    if e.denominator == 2:
        root = Fraction(math.isqrt(c.numerator), math.isqrt(c.denominator))
        if root * root == c:
            return _number(raised(root, e.numerator))
    return power_of(("num", c), e)
