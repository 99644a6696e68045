"""Maxima in the checker's own expansions: max, min, abs and relu as sums of symbols max[...].

A symbol max[t_1 | t_2 | ...] stands for the maximum of expansions with mean zero, scaled so that their largest
coefficient is 1. Laws used: a positive factor and a summand move into a maximum; a maximum of maxima is one maximum;
max(t) = max(t + q) - q. What another term reaches all over the box is left out. Minima and maxima of variables alone
are sums of maxima of variables (docs/theory.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from onelayer.checker.outcome import Rejected
from onelayer.language.formula import Formula, Node

Powers = tuple[tuple[str, Fraction], ...]  # symbols in alphabetical order, no exponent zero
Expansion = dict[Powers, Fraction]
Corners = Sequence[tuple[Fraction, Fraction]]

WIDEST = 32  # terms of a maximum that is multiplied out
LONGEST = 2**16  # bits of a number, and the highest power that is taken step by step
FEW = 6  # variables of which minima and maxima are told apart by their values at 0 and 1


def plus(a: Expansion, b: Expansion) -> Expansion:
    """Sum, without terms that cancel."""
    total = dict(a)
    for powers, c in b.items():
        total[powers] = total.get(powers, Fraction(0)) + c
        if not total[powers]:
            del total[powers]
    return total


def scale(a: Expansion, factor: Fraction) -> Expansion:
    """An expansion times a number."""
    if not factor:
        return {}
    scaled = {powers: factor * c for powers, c in a.items()}
    if any(_bits(c) > LONGEST for c in scaled.values()):
        raise Rejected("an expansion has a number of too many digits")
    return scaled


def power(c: Fraction, exponent: int) -> Fraction:
    """c^exponent, refused where it is too long before it is computed."""
    bits = _bits(c)
    # 1 and -1 stay as short as they are.
    if bits > 1 and (bits - 1) * abs(exponent) > LONGEST:
        raise Rejected("an expansion has a power of too many digits")
    return c**exponent


def _bits(c: Fraction) -> int:
    return max(c.numerator.bit_length(), c.denominator.bit_length())


def minus(a: Expansion, b: Expansion) -> Expansion:
    """Difference."""
    return plus(a, scale(b, Fraction(-1)))


def text(a: Expansion) -> str:
    """One text for one expansion: terms in order."""
    terms = []
    for powers, c in a.items():
        factors = " ".join(f"{name}^{e}" for name, e in powers)
        terms.append(f"{c} {factors}")
    return " + ".join(sorted(terms))


class Maxima:
    """The symbols max[...] met so far, over a box with these corners."""

    def __init__(self, corners: Corners) -> None:
        self.corners = corners
        self.terms: dict[str, list[Expansion]] = {}

    def of(self, parts: Sequence[Expansion]) -> Expansion:
        """The maximum of expansions."""
        # A maximum with a negative factor is none: it is added to all parts, and taken off in the end.
        lift: Expansion = {}
        for part in parts:
            for powers, c in part.items():
                if c < 0 and self._symbol(powers):
                    lift[powers] = max(lift.get(powers, Fraction(0)), -c)
        raised = [plus(part, lift) for part in parts]
        if sum(map(self._width, raised)) > WIDEST:
            return self._normal(list(parts))
        spread = [term for part in raised for term in self._spread(part)]
        return minus(self._normal(spread), lift)

    def _symbol(self, powers: Powers) -> list[Expansion]:
        """The terms of a maximum that stands alone, to the first power."""
        alone = len(powers) == 1 and powers[0][1] == 1
        if alone:
            return self.terms.get(powers[0][0], [])
        return []

    def _width(self, part: Expansion) -> int:
        width = 1
        for powers in part:
            width *= max(1, len(self._symbol(powers)))
        return width

    def _spread(self, part: Expansion) -> list[Expansion]:
        """The terms whose maximum an expansion is: one of every maximum in it, which have positive factors."""
        found = [{powers: c for powers, c in part.items() if not self._symbol(powers)}]
        for powers, c in part.items():
            terms = self._symbol(powers)
            if terms:
                found = [plus(one, scale(term, c)) for one in found for term in terms]
        return found

    def _normal(self, parts: list[Expansion]) -> Expansion:
        """Mean + positive number * symbol."""
        kept = self._uncovered(parts)
        if len(kept) == 1:
            return kept[0]
        mean: Expansion = {}
        for part in kept:
            mean = plus(mean, scale(part, Fraction(1, len(kept))))
        centred = [minus(part, mean) for part in kept]
        unit = max(abs(c) for part in centred for c in part.values())
        terms = sorted((scale(part, 1 / unit) for part in centred), key=text)
        name = "max[" + " | ".join(map(text, terms)) + "]"
        self.terms.setdefault(name, terms)
        return plus(mean, {((name, Fraction(1)),): unit})

    def _uncovered(self, parts: list[Expansion]) -> list[Expansion]:
        """The distinct terms that no other one makes superfluous in a maximum."""
        distinct = list({text(part): part for part in parts}.values())

        def superfluous(a: Expansion) -> bool:
            return any(self._covers(b, a) for b in distinct if b is not a)

        # Covering is strict somewhere, so no two terms leave each other out.
        return [a for a in distinct if not superfluous(a)]

    def _covers(self, b: Expansion, a: Expansion) -> bool:
        """b >= a all over the box and b > a somewhere, for a difference that is affine."""
        low = high = Fraction(0)
        for powers, c in minus(b, a).items():
            if not powers:
                ends = [c, c]
            elif len(powers) == 1 and powers[0][1] == 1 and variable(powers[0][0]) is not None:
                ends = [c * end for end in self.corners[int(powers[0][0][1:])]]
            else:
                return False
            low = low + min(ends)
            high = high + max(ends)
        return low >= 0 and high > 0

    def chosen(self, values: int) -> Expansion:
        """The sum of maxima of variables that has these values at zeros and ones; bit p is the value at point p."""
        count = len(self.corners)
        total: Expansion = {}
        for part, c in _coefficients(values, count).items():
            members = [_variable(i) for i in range(count) if part >> i & 1]
            if c:
                total = plus(total, scale(self._normal(members), Fraction(c)))
        return total


def _variable(i: int) -> Expansion:
    return {((f"x{i}", Fraction(1)),): Fraction(1)}


def _coefficients(values: int, count: int) -> dict[int, int]:
    """The coefficient of the maximum over each set of variables; bit i of a set is variable i.

    A maximum over a set S is 1 at p unless p misses S. The coefficients follow one set after another, smallest first:
    what the smaller sets leave at the complement of S is the coefficient of S.
    """
    full = (1 << count) - 1
    factors: dict[int, int] = {}
    for size in range(1, count + 1):
        for part in (p for p in range(1, full + 1) if p.bit_count() == size):
            missed = 1 - (values >> (full ^ part) & 1)
            smaller = sum(c for inner, c in factors.items() if inner & part == inner)
            factors[part] = missed - smaller
    return factors


def variable(name: str) -> int | None:
    """The number of a variable from its symbol."""
    if name.startswith("x") and name[1:].isdigit():
        return int(name[1:])
    return None


def choices(formula: Formula, count: int) -> list[int | None]:
    """For nodes made of min and max of variables alone, their values at all points of zeros and ones."""
    if count > FEW:
        return [None] * len(formula.nodes)
    found: list[int | None] = []
    for node in formula.nodes:
        args = [found[at] for at in node.args]
        found.append(_choice(node, args, count))
    return found


def _choice(node: Node, args: list[int | None], count: int) -> int | None:
    if node.op == "var":
        return sum(1 << p for p in range(1 << count) if p >> int(node.value) & 1)
    if node.op not in ("max", "min"):
        return None
    a, b = args
    if a is None or b is None:
        return None
    return a | b if node.op == "max" else a & b


def rational(value: str) -> Fraction:
    """A rational number from its text."""
    try:
        return Fraction(value)
    except (ValueError, ZeroDivisionError) as error:
        raise Rejected(f"'{value[:40]}' is no rational number") from error
