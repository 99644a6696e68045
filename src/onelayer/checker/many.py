"""Taylor arithmetic of the checker on many boxes at once: float64 coefficients, one remainder, counted rounding.

Lemma: an element stands, on each box, for the functions within ``rest`` of the polynomial t -> sum_p c_p t^p on
[-1, 1]^s. Sums and products contain the sums and products of the functions: ``rest`` takes what is cut off and what
rounding may have cost, a multiple of the sums of absolute coefficients. What is not finite stays so, and no bound of
it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import (
    Taylor,
    constant,
    count,
    degree_of,
    embedding,
    even_monomials,
    products,
    room,
    union,
)
from onelayer.checker.expansions import Expansion, Places
from onelayer.checker.outcome import Crowded
from onelayer.checker.spans import MOST_TERMS, SLACK, UNIT, Floats, Span, above, as_floats

EXTRA = 4  # further powers of functions of one variable
Ends = tuple[Any, Any]


class Many(Taylor):
    """An element on N boxes: ``p`` holds coefficients (P, N) in the order of :func:`monomials`, ``rest`` is (N,)."""

    __slots__ = ("longer", "p", "rest")

    def __init__(self, support: tuple[int, ...], p: Floats, rest: Floats, order: int, longer: bool = False) -> None:
        if len(p) > MOST_TERMS:
            raise Crowded(f"{len(p)} coefficients")
        self.support = support
        self.order = order
        self.p = p
        self.rest = rest
        self.longer = longer

    @property
    def degree(self) -> int:
        """The degree that its number of coefficients implies."""
        return degree_of(len(self.support), len(self.p))

    def is_finite(self) -> bool:
        """Whether it is bounded on every box."""
        return bool(self.defined().all())

    def defined(self) -> Any:
        """On which boxes it is bounded."""
        return np.isfinite(self.rest) & np.isfinite(self.p).all(0)

    def positive(self) -> Any:
        """On which boxes every value is surely positive."""
        return self.span().low > 0

    def nonzero(self) -> Any:
        """On which boxes no value can be zero."""
        return self.span().abs_lower().low > 0

    def norm(self) -> Floats:
        """At least the sum of the absolute coefficients."""
        return np.asarray(above(np.abs(self.p).sum(0)))

    def wide(self, support: tuple[int, ...], degree: int) -> Floats:
        """Coefficients as a function of more variables, up to a degree that is not lower."""
        if support == self.support and degree == self.degree:
            return self.p
        places = embedding(tuple(support.index(v) for v in self.support), len(support), self.degree)
        found = np.zeros((room(len(support), degree), self.p.shape[1]))
        found[list(places)] = self.p
        return found

    def _like(self, p: Floats, rest: Any) -> Many:
        return Many(self.support, p, np.asarray(rest), self.order)

    def __add__(self, other: Taylor) -> Taylor:
        if not isinstance(other, Many):
            return self.shifted(_number(other))
        support = union(self.support, other.support)
        degree = max(self.degree, other.degree)
        p = self.wide(support, degree) + other.wide(support, degree)
        found = Many(support, p, self.rest, self.order)
        # Each coefficient is rounded once.
        found.rest = above(self.rest + other.rest + UNIT * found.norm())
        return found

    __radd__ = __add__

    def __neg__(self) -> Taylor:
        return self._like(-self.p, self.rest)

    def __sub__(self, other: Taylor) -> Taylor:
        return self + -other

    def __rsub__(self, other: Taylor) -> Taylor:
        return -self + other

    def scaled(self, factor: arb) -> Taylor:
        """Times a number."""
        middle, radius = as_floats(factor)
        norm = self.norm()
        rest = abs(middle) * self.rest + radius * (norm + self.rest) + UNIT * abs(middle) * norm
        return self._like(self.p * middle, above(rest))

    def shifted(self, offset: Any) -> Taylor:
        """Plus a number, a ball or a span."""
        if isinstance(offset, Span):
            return self.moved(offset.mid(), offset.rad())
        return self.moved(*as_floats(offset))

    def moved(self, middle: Any, radius: Any) -> Many:
        """Plus anything within ``radius`` of ``middle``."""
        p = self.p.copy()
        p[0] += middle
        return self._like(p, above(self.rest + radius + UNIT * np.abs(p[0])))

    def __mul__(self, other: Taylor) -> Taylor:
        if isinstance(other, Many):
            return self.times(other)
        return self.scaled(_number(other))

    __rmul__ = __mul__

    def times(self, other: Many) -> Many:
        """Product cut off at ``order``; what is cut off is bounded degree by degree."""
        support = union(self.support, other.support)
        order = min(self.order, other.order)
        a = self.wide(support, self.degree)
        b = other.wide(support, other.degree)
        if len(a) > len(b):
            a, b = b, a
        norms = _norms(a, len(support)), _norms(b, len(support))
        p, terms = _product(a, b, len(support), order)
        whole = norms[0].sum(0) * norms[1].sum(0)
        lost = self.rest * (other.norm() + other.rest) + self.norm() * other.rest
        # A coefficient is a sum of so many products: each goes through as many roundings at most.
        rounding = (terms + 2) * UNIT * whole
        return Many(support, p, above(lost + _cut_off(*norms, order) + rounding), order)

    def at_order(self, order: int) -> Taylor:
        """The same enclosure for work at another order; terms above it become remainder."""
        kept = count(len(self.support), order)
        rest = above(self.rest + np.abs(self.p[kept:]).sum(0)) if len(self.p) > kept else self.rest
        return Many(self.support, self.p[:kept], rest, order)

    def span(self) -> Span:
        """Numbers below and above all values."""
        odd = self.p[1:][self._odd]
        even = self.p[1:][~self._odd]
        both = np.abs(odd).sum(0) + self.rest
        down = both + np.maximum(-even, 0.0).sum(0)
        up = both + np.maximum(even, 0.0).sum(0)
        low = self.p[0] - above(down)
        high = self.p[0] + above(up)
        # A constant without remainder is itself: 0 and 1 must not be lost to the outward step.
        exact = (down == 0) & (up == 0)
        low = np.nextafter(low, -np.inf)
        high = np.nextafter(high, np.inf)
        return Span(np.where(exact, self.p[0], low), np.where(exact, self.p[0], high))

    @property
    def _odd(self) -> Any:
        return _odd_monomials(len(self.support), self.degree)

    def range(self) -> Any:
        """See :meth:`span`."""
        return self.span()

    def ends(self) -> Any:
        """Both ends of :meth:`span`."""
        span = self.span()
        return span.lower(), span.upper()

    def unless_wider(self, known: Any) -> Taylor:
        """The same function, of which ``known`` holds all values: as a constant where the enclosure says much less."""
        known = Span.of(known)
        wider = ~(self.span().rad() <= 2 * known.rad()) | (known.low == known.high)
        p = np.where(wider, 0.0, self.p)
        p[0] = np.where(wider, known.mid(), p[0])
        return self._like(p, np.where(wider, known.rad(), self.rest))

    def centre(self) -> Any:
        """The values at the centres, about."""
        return self.p[0]

    def weighted(self, terms: Sequence[tuple[Any, Taylor]], offset: arb, order: int) -> Taylor:
        """offset + sum of factor * term; a factor is a ball, or an array of floats for the boxes."""
        if len(terms) > MOST_TERMS:
            raise Crowded(f"{len(terms)} terms")
        width = self.p.shape[1]
        degree = 0
        support: tuple[int, ...] = ()
        for _, term in terms:
            support = union(support, term.support)
            degree = max(degree, term.degree)
        p = np.zeros((room(len(support), degree), width))
        rest = np.zeros(width)
        norm = np.zeros(width)
        for factor, term in [*terms, (arb(1), constant(offset, order))]:
            middle, radius = as_floats(factor) if isinstance(factor, arb) else (factor, 0.0)
            item = term if isinstance(term, Many) else lifted(term, width)
            own = item.norm()
            p += middle * item.wide(support, degree)
            rest = rest + np.abs(middle) * item.rest + radius * (own + item.rest)
            norm = norm + np.abs(middle) * own
        # A product and the sums that it goes through, of the offset too.
        rounding = (len(terms) + 3) * UNIT * above(norm)
        return Many(support, p, np.asarray(above(above(rest) + rounding)), order)

    def composed(self, expand: Any, inside: Ends | None) -> Taylor:
        """phi(u) for an expansion of phi: u = c + h with c the constant coefficient, |h| <= reach.

        Of one variable a few more powers cost little, and what is cut off is then known.
        """
        if len(self.support) == 1 and not self.longer:
            longer = Many(self.support, self.p, self.rest, self.order + EXTRA, True)
            return longer.composed(expand, inside).at_order(self.order)
        span = self.span()
        low = span.low
        high = span.high
        if inside is not None:
            low = np.maximum(low, Span.of(inside[0]).low)
            high = np.minimum(high, Span.of(inside[1]).high)
        p = self.p.copy()
        p[0] = 0.0
        h = self._like(p, self.rest)
        found: Expansion = expand(Places(self.p[0], low, high, self.order))
        reach = h.span().abs_upper().high
        nothing = lifted(constant(arb(0), self.order), len(self.rest))
        total = nothing.moved(found.middle[-1], found.radius[-1])
        for middle, radius in zip(found.middle[-2::-1], found.radius[-2::-1], strict=True):
            total = h.times(total).moved(middle, radius)
        power = np.ones_like(reach)
        for _ in range(self.order + 1):
            power = above(power * reach)
        return total.moved(0.0, above(found.rest * power))

    def rectified(self) -> Taylor:
        """max(u, 0) between lines: for u in [l, h] it lies above a u by at most max(-a l, (1 - a) h), 0 <= a <= 1."""
        span = self.span()
        low = np.minimum(span.low, 0.0)
        high = np.maximum(span.high, 0.0)
        shut = span.high <= 0
        open_ = span.low >= 0
        slope = np.where(open_, 1.0, np.where(shut, 0.0, high / (high - low)))
        half = above(np.maximum(-slope * low, (1 - slope) * high)) / 2
        # Where the sign is known, relu is u or 0 and nothing is added.
        half = np.where((slope == 0) & shut | (slope == 1) & open_, 0.0, half)
        p = self.p * slope
        p[0] += half
        found = self._like(p, self.rest)
        found.rest = above(slope * self.rest + half + 2 * UNIT * found.norm())
        return found

    def raised(self, n: int) -> Taylor:
        """u**n for a whole n >= 1, by multiplication."""
        result = self
        for bit in bin(n)[3:]:
            result = result.times(result)
            result = result.times(self) if bit == "1" else result
        return result


def coordinates(low: Floats, high: Floats, order: int) -> list[Taylor]:
    """The coordinates of boxes (N, D) as variables: middle + radius t, and the box is inside."""
    found: list[Taylor] = []
    for at in range(low.shape[1]):
        a = low[:, at]
        b = high[:, at]
        middle = a / 2 + b / 2
        # The middle is rounded, so the sides differ: the longer one covers both.
        radius = np.maximum(_difference(b, middle), _difference(middle, a))
        found.append(Many((at,), np.stack([middle, radius]), np.zeros(len(a)), order))
    return found


def _difference(a: Floats, b: Floats) -> Floats:
    """At least a - b: Knuth's sum of two numbers tells whether the rounded one is too small."""
    total = a - b
    second = total - a
    error = (a - (total - second)) + (-b - second)
    return np.where(error > 0, np.nextafter(total, np.inf), total)


def _number(value: Taylor) -> arb:
    """The ball of a constant."""
    if value.support:
        raise Crowded("balls and floats in one sum")
    return value.c[0]


def lifted(value: Taylor, width: int) -> Many:
    """A constant on so many boxes."""
    middle, radius = as_floats(_number(value))
    return Many((), np.full((1, width), middle), np.full(width, radius), value.order)


@cache
def _odd_monomials(s: int, degree: int) -> Any:
    return ~np.array(even_monomials(s, degree), dtype=bool)


@cache
def _rows(s: int, da: int, db: int, order: int) -> tuple[tuple[Any, ...], int]:
    """For each monomial of the first factor the places of its products with a head of the second; most terms of one."""
    rows = products(s, da, db, order)
    places = tuple(np.array(row, dtype=np.intp) for row in rows)
    used = np.concatenate(places)
    return places, int(np.bincount(used).max())


def _product(a: Floats, b: Floats, s: int, order: int) -> tuple[Floats, int]:
    """The product of two polynomials up to a degree, and how many products one coefficient may be a sum of."""
    da = degree_of(s, len(a))
    db = degree_of(s, len(b))
    places, terms = _rows(s, da, db, order)
    out = np.zeros((room(s, min(da + db, order)), max(a.shape[1], b.shape[1])))
    for x, row in zip(a, places, strict=True):
        # A row of zeros adds nothing; a NaN counts as something.
        if x.any():
            out[row] += x * b[: len(row)]
    return out, terms


def _norms(p: Floats, s: int) -> Floats:
    """Per degree, at least the sum of the absolute coefficients."""
    starts = [0, *(count(s, d) for d in range(degree_of(s, len(p))))]
    return np.asarray(above(np.add.reduceat(np.abs(p), starts, axis=0)))


def _cut_off(a: Floats, b: Floats, order: int) -> Floats:
    """At least the sum of the absolute coefficients of the product above the order."""
    total = np.zeros(a.shape[1])
    for i, row in enumerate(a):
        for other in b[max(0, order + 1 - i) :]:
            total = total + row * other
    return np.asarray(above(total * SLACK))
