"""Taylor arithmetic of the checker: polynomials on [-1, 1]^s whose coefficients are Arb balls.

Lemma: a list of balls c_p stands for the functions t -> sum_p c_p(t) t^p with c_p(t) in the p-th ball for every t. Sums
and products of such lists contain the sums and products of the functions; a monomial that is cut off lies within
[-1, 1] ([0, 1] if all its exponents are even) times its ball, which is added to the constant coefficient. Rounding and
remainder therefore need no extra care: they are radii. Comparisons of balls hold only when certain, so a ball is
skipped as zero by ``is_zero`` alone, never because ``ball != 0`` is not certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations_with_replacement
from math import comb
from operator import mul
from typing import Any

from flint import arb

from onelayer.checker.outcome import Crowded

ZERO = arb(0)
UNIT_BALL = arb(0, 1)
HALF_BALL = arb(0.5, 0.5)  # [0, 1]
LONGEST = 2**18  # of one element: a product of two such takes minutes


class Taylor:
    """An element of the arithmetic: ``support`` are the variables it depends on, in increasing order.

    Sums are taken between elements of one order; a product has the lower order of its factors.

    ``c`` holds the balls of the monomials in ``support`` by degree, then lexicographically (the order of
    :func:`monomials`), up to some degree <= ``order``.
    """

    __slots__ = ("c", "order", "support")

    def __init__(self, support: tuple[int, ...], c: list[arb], order: int) -> None:
        self.support = support
        self.c = c
        self.order = order

    @property
    def degree(self) -> int:
        """The degree that its number of coefficients implies."""
        return degree_of(len(self.support), len(self.c))

    def is_finite(self) -> bool:
        """Whether every coefficient is a bounded ball: functions return others where they are undefined."""
        return all(value.is_finite() for value in self.c)

    def defined(self) -> Any:
        """Whether, or for many boxes where, it is bounded."""
        return self.is_finite()

    def positive(self) -> Any:
        """Whether, or where, every value is surely positive."""
        return bool(self.range() > 0)

    def nonzero(self) -> Any:
        """Whether, or where, no value can be zero."""
        return bool(self.range().abs_lower() > 0)

    def centre(self) -> Any:
        """The value at the centre, about."""
        return float(self.c[0].mid())

    def over(self, support: tuple[int, ...]) -> list[arb]:
        """Coefficients as a function of a larger set of variables, at the same degree."""
        if support == self.support:
            return self.c
        places = embedding(tuple(support.index(v) for v in self.support), len(support), self.degree)
        wide = [ZERO] * room(len(support), self.degree)
        for value, place in zip(self.c, places, strict=True):
            wide[place] = value
        return wide

    def __add__(self, other: Taylor) -> Taylor:
        support = union(self.support, other.support)
        a = self.over(support)
        b = other.over(support)
        if len(a) < len(b):
            a, b = b, a
        return Taylor(support, [x + y for x, y in zip(a, b, strict=False)] + a[len(b) :], self.order)

    def __neg__(self) -> Taylor:
        return Taylor(self.support, [-x for x in self.c], self.order)

    def __sub__(self, other: Taylor) -> Taylor:
        return self + -other

    def scaled(self, factor: arb) -> Taylor:
        """Times a number."""
        return Taylor(self.support, [x * factor for x in self.c], self.order)

    def shifted(self, offset: arb) -> Taylor:
        """Plus a number."""
        return Taylor(self.support, [self.c[0] + offset, *self.c[1:]], self.order)

    def __mul__(self, other: Taylor) -> Taylor:
        """Product cut off at ``order``; what is cut off is bounded degree by degree."""
        if not self.support:
            return other.scaled(self.c[0])
        if not other.support:
            return self.scaled(other.c[0])
        support = union(self.support, other.support)
        a = self.over(support)
        b = other.over(support)
        s = len(support)
        da = self.degree
        db = other.degree
        order = min(self.order, other.order)
        out = [ZERO] * room(s, min(da + db, order))
        known = other.is_finite()  # zero times what is not known is not known either
        for x, row in zip(a, products(s, da, db, order), strict=True):
            if not (known and x.is_zero()):
                for place, y in zip(row, b, strict=False):
                    out[place] = out[place] + x * y
        if da + db > order:
            out[0] = out[0] + _cut_off(norms(a, s), norms(b, s), order)
        return Taylor(support, out, order)

    def at_order(self, order: int) -> Taylor:
        """The same enclosure for work at another order; terms above it are added to the constant."""
        kept = count(len(self.support), order)
        c = self.c[:kept]
        for value in self.c[kept:]:
            c[0] = c[0] + value * UNIT_BALL
        return Taylor(self.support, c, order)

    def within(self, variables: int) -> Taylor:
        """The same enclosure with the first ``variables`` alone; a monomial of any other lies in [-1, 1] or [0, 1]."""
        kept = tuple(v for v in self.support if v < variables)
        if kept == self.support:
            return self
        places = {exponents: at for at, exponents in enumerate(monomials(len(kept), self.degree))}
        out = [ZERO] * len(places)
        for value, exponents in zip(self.c, monomials(len(self.support), self.degree), strict=True):
            own, rest = exponents[: len(kept)], exponents[len(kept) :]
            factor = 1 if not any(rest) else HALF_BALL if all(e % 2 == 0 for e in rest) else UNIT_BALL
            out[places[own]] = out[places[own]] + value * factor
        return Taylor(kept, out, self.order) if kept else constant(out[0], self.order)

    def range(self) -> arb:
        """A ball that contains every value on the box."""
        total = self.c[0]
        for value, even in zip(self.c[1:], even_monomials(len(self.support), self.degree), strict=True):
            total = total + value * (HALF_BALL if even else UNIT_BALL)
        return total

    def ends(self) -> tuple[arb, arb]:
        """Numbers below and above every value on the box; a value of zero at a corner is not lost to a radius."""
        low = high = self.c[0]
        for value, even in zip(self.c[1:], even_monomials(len(self.support), self.degree), strict=True):
            down, up = (value.min(ZERO), value.max(ZERO)) if even else (-abs(value), abs(value))
            low = low + down
            high = high + up
        return low.lower(), high.upper()

    def restricted(self, variable: int, upper: bool) -> Taylor:
        """The same function on one half of the box: t -> (t + 1)/2 or (t - 1)/2 in one variable."""
        s = len(self.support)
        at = self.support.index(variable)
        out = [ZERO] * len(self.c)
        for value, row in zip(self.c, halves(s, at, self.degree, upper), strict=True):
            if not value.is_zero():
                for place, weight in row:
                    out[place] = out[place] + value * weight
        return Taylor(self.support, out, self.order)

    def unless_wider(self, known: arb) -> Taylor:
        """The same function, of which ``known`` holds all values: as a constant where the enclosure says less.

        That is where it ranges much wider, or is mostly remainder: what both have in common is narrower then.
        """
        values = self.range()
        if values.is_finite() and values.overlaps(known):
            remainder = sum((c.rad() for c in self.c), ZERO)
            common = values.intersection(known)
            if not known.is_exact() and values.rad() <= 2 * known.rad() and common.rad() >= remainder:
                return self
            return constant(common, self.order)
        return constant(known, self.order)

    def weighted(self, terms: Sequence[tuple[Any, Taylor]], offset: arb, order: int) -> Taylor:
        """offset + sum of factor * term, in this arithmetic."""
        support: tuple[int, ...] = ()
        for _, term in terms:
            support = union(support, term.support)
        out = [offset]
        for factor, term in terms:
            c = term.over(support)
            if len(c) > len(out):
                out += [ZERO] * (len(c) - len(out))
            for at, value in enumerate(c):
                out[at] = out[at] + factor * value
        return Taylor(support if len(out) > 1 else (), out, order)

    def slope(self, variable: int) -> arb:
        """A ball that holds the derivative by one variable on the whole box, coefficients being numbers."""
        s = len(self.support)
        at = self.support.index(variable)
        total = ZERO
        for value, exponents in zip(self.c, monomials(s, self.degree), strict=True):
            if exponents[at] and not value.is_zero():
                lone = exponents[at] == 1 and sum(exponents) == 1
                total = total + value * exponents[at] * (1 if lone else UNIT_BALL)
        return total

    def face(self, variable: int, upper: bool) -> Taylor:
        """The same function where one variable is 1 or -1."""
        support = tuple(v for v in self.support if v != variable)
        out = [ZERO] * count(len(support), self.degree)
        places = faces(len(self.support), self.support.index(variable), self.degree)
        for value, (place, odd) in zip(self.c, places, strict=True):
            if not value.is_zero():
                out[place] = out[place] + (-value if odd and not upper else value)
        return Taylor(support, out, self.order)


def constant(value: arb, order: int) -> Taylor:
    """A model without variables."""
    return Taylor((), [value], order)


def coordinate(variable: int, low: float, high: float, order: int) -> Taylor:
    """x = middle + radius t, exactly the interval [low, high] for t in [-1, 1]."""
    a = arb(low)
    b = arb(high)
    if low == high:
        return constant(a, order)
    return Taylor((variable,), [(a + b) / 2, (b - a) / 2], order)


def combination(terms: Sequence[tuple[Any, Taylor]], offset: arb, order: int) -> Taylor:
    """offset + sum of factor * term, over the union of the supports; a term of another arithmetic decides."""
    kind = next((term for _, term in terms if type(term) is not Taylor), constant(ZERO, order))
    return kind.weighted(terms, offset, order)


def norms(c: Sequence[arb], s: int) -> list[arb]:
    """Per degree, an upper bound of the sum of absolute coefficients."""
    sums = []
    at = 0
    degree = 0
    while at < len(c):
        end = count(s, degree)
        total = ZERO
        for value in c[at:end]:
            total = total + value.abs_upper()
        sums.append(total)
        at = end
        degree += 1
    return sums


def _cut_off(a: Sequence[arb], b: Sequence[arb], order: int) -> arb:
    total = ZERO
    for i, x in enumerate(a):
        for y in b[max(0, order + 1 - i) :]:
            total = total + x * y
    return total * UNIT_BALL


@cache
def union(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The variables of either, in order."""
    if a == b:
        return a
    return tuple(sorted({*a, *b}))


@cache
def monomials(s: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """Exponents of all monomials in s variables up to ``degree``; a lower degree is a prefix."""
    room(s, degree)
    found = []
    for d in range(degree + 1):
        for chosen in combinations_with_replacement(range(s), d):
            found.append(tuple(chosen.count(v) for v in range(s)))
    return tuple(found)


@cache
def _places(s: int, degree: int) -> dict[tuple[int, ...], int]:
    return {exponents: at for at, exponents in enumerate(monomials(s, degree))}


@cache
def count(s: int, degree: int) -> int:
    """Number of monomials in s variables up to a degree."""
    return comb(s + degree, degree)


@cache
def room(s: int, degree: int) -> int:
    """The same for a list of coefficients that is made; Crowded where it would fill the memory."""
    if count(s, degree) > LONGEST:
        raise Crowded(f"{count(s, degree):,} coefficients of a function of {s} variables are more than can be enclosed")
    return count(s, degree)


@cache
def degree_of(s: int, length: int) -> int:
    """The degree up to which s variables have this many monomials."""
    if not s:
        return 0
    return next(d for d in range(length) if count(s, d) == length)


@cache
def even_monomials(s: int, degree: int) -> tuple[bool, ...]:
    """For every monomial but the constant, whether it is a square: then it is never negative."""
    return tuple(all(e % 2 == 0 for e in exponents) for exponents in monomials(s, degree)[1:])


@cache
def embedding(at: tuple[int, ...], s: int, degree: int) -> tuple[int, ...]:
    """Where the monomials of a subset of the variables lie among those of all s."""
    places = _places(s, degree)
    found = []
    for exponents in monomials(len(at), degree):
        wide = [0] * s
        for variable, exponent in zip(at, exponents, strict=True):
            wide[variable] = exponent
        found.append(places[tuple(wide)])
    return tuple(found)


@cache
def _keys(s: int, degree: int, base: int) -> tuple[int, ...]:
    """The exponents of each monomial as digits of one number: keys of products are sums while no digit reaches base."""
    scale = [base**v for v in range(s)]
    return tuple(sum(map(mul, exponents, scale)) for exponents in monomials(s, degree))


@cache
def products(s: int, da: int, db: int, order: int) -> tuple[tuple[int, ...], ...]:
    """For each monomial of the first factor the places of its products with those of the second, up to ``order``.

    A row ends where the order does: monomials are sorted by degree, so what is left out comes last.
    """
    most = min(da + db, order)
    places = {key: at for at, key in enumerate(_keys(s, most, most + 1))}
    second = _keys(s, db, most + 1)
    rows = []
    for exponents, key in zip(monomials(s, da), _keys(s, da, most + 1), strict=True):
        left = order - sum(exponents)
        within = second[: count(s, min(left, db))] if left >= 0 else ()
        rows.append(tuple([places[key + other] for other in within]))
    return tuple(rows)


@cache
def outer_places(a: tuple[int, ...], b: tuple[int, ...], da: int, db: int, order: int) -> tuple[int, ...]:
    """Where products of monomials in disjoint variables lie, row-major; -1 for those above ``order``."""
    s = len(a) + len(b)
    places = _places(s, min(order, da + db))
    found = []
    for p in monomials(len(a), da):
        for q in monomials(len(b), db):
            wide = [0] * s
            for variable, exponent in [*zip(a, p, strict=True), *zip(b, q, strict=True)]:
                wide[variable] = exponent
            found.append(places[tuple(wide)] if sum(wide) <= order else -1)
    return tuple(found)


@cache
def faces(s: int, at: int, degree: int) -> tuple[tuple[int, bool], ...]:
    """For each monomial its place without one variable, and whether that variable has an odd exponent."""
    places = _places(s - 1, degree)
    without = ((e[:at] + e[at + 1 :], e[at]) for e in monomials(s, degree))
    return tuple((places[others], own % 2 == 1) for others, own in without)


@cache
def halves(s: int, at: int, degree: int, upper: bool) -> tuple[tuple[tuple[int, arb], ...], ...]:
    """((t +- 1)/2)^n = sum_j C(n, j) (+-1)^(n - j) 2^-n t^j: for each monomial, (place, weight) for j <= n."""
    places = _places(s, degree)
    rows = []
    for exponents in monomials(s, degree):
        n = exponents[at]
        row = []
        for j in range(n + 1):
            sign = 1 if upper or (n - j) % 2 == 0 else -1
            lowered = (*exponents[:at], j, *exponents[at + 1 :])
            row.append((places[lowered], arb(sign * comb(n, j)) / 2**n))
        rows.append(tuple(row))
    return tuple(rows)


def whole_power(x: arb, n: int) -> arb:
    """x**n for n >= 0 by multiplication; Arb's general power gives nan for balls around zero."""
    result = arb(1)
    for _ in range(n):
        result = result * x
    return result
