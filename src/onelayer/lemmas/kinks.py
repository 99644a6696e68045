"""Kinks in normal forms: every max, min, abs and relu becomes a sum of *peaks*, maxima of sums of monomials.

A peak is a base ("max", S), S a set of at least two sums with mean zero whose largest coefficient is 1, so that
    max(a, b) - a,   (b - a + abs(b - a)) / 2   and   relu(b - a)
have one normal form. Used are, for c > 0 and any q,
    c max(S) + r = max over s of (c s + r),   max(S) = max over s of (s + q) - q,   max(S with T) = max(max S, max T):
with q large enough the coefficients of all peaks inside a maximum become positive and it is multiplied out, a
difference of two maxima, if that takes few terms. Sums that others exceed on the whole box are dropped.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

from onelayer.language.tree import Node
from onelayer.lemmas.rational import short

Base = tuple[Any, ...]
Monomial = frozenset[tuple[Base, Fraction]]
Sum = dict[Monomial, Fraction]
Sides = Sequence[tuple[Fraction, Fraction]]

ONE: Monomial = frozenset()
PEAK = "max"
MOST_TERMS = 32  # of a maximum that is multiplied out; beyond, it stays a maximum of what it was
LONGEST = 100_000  # characters of a normal form that are written out
MOST_VARIABLES = 6  # of which minima and maxima are told apart by their values at 0 and 1


def added(a: Mapping[Monomial, Fraction], b: Mapping[Monomial, Fraction], factor: Fraction | int) -> Sum:
    """a + factor b, without what cancels; OnelayerError where a coefficient is too long."""
    total = dict(a)
    for monomial, c in b.items():
        total[monomial] = total.get(monomial, Fraction(0)) + factor * c
    return {monomial: short(c) for monomial, c in total.items() if c}


def peak_of(monomial: Monomial) -> Base | None:
    """The peak that a monomial is, if it is one and nothing else."""
    if len(monomial) != 1:
        return None
    ((base, e),) = monomial
    if base[0] == PEAK and e == 1:
        return base
    return None


def terms_of(peak: Base) -> list[Sum]:
    """The sums that a peak is the maximum of, in an order that does not depend on the hashes of a process."""
    terms = sorted(peak[1], key=in_words)
    return [dict(term) for term in terms]


@lru_cache(maxsize=2**14)
def in_words(part: Any) -> str:
    """One text for one normal form or a part of it; of a long one, a digest that is as good for telling them apart.

    Peaks of peaks share their parts: written out, they may be longer than any memory, and each is written once.
    """
    if isinstance(part, frozenset):
        text = "{" + " ".join(sorted(map(in_words, part))) + "}"
    elif isinstance(part, tuple):
        text = "(" + " ".join(map(in_words, part)) + ")"
    else:
        text = str(part)
    return text if len(text) <= LONGEST else hashlib.sha256(text.encode()).hexdigest()


def largest(sums: Sequence[Sum], sides: Sides) -> Sum:
    """The normal form of the maximum of these sums on a box with these sides."""
    lifted, lift = _lifted(sums)
    count = sum(_count(one) for one in lifted)
    if count > MOST_TERMS:
        return _centred(sums, sides)
    terms = [term for one in lifted for term in _opened(one)]
    return added(_centred(terms, sides), lift, -1)


def affine(a: Mapping[Monomial, Fraction]) -> tuple[dict[int, Fraction], Fraction] | None:
    """Coefficients of the variables and the constant, of a sum that has nothing else."""
    slopes, constant = {}, Fraction(0)
    for monomial, c in a.items():
        if not monomial:
            constant = c
            continue
        # A single variable to the first power, or the sum is not affine.
        ((base, e), *others) = monomial
        if others or base[0] != "x" or e != 1:
            return None
        slopes[int(base[1])] = c
    return slopes, constant


def _lifted(sums: Sequence[Sum]) -> tuple[list[Sum], Sum]:
    """The sums plus one more, so that all coefficients of peaks are positive; and what was added."""
    lift: Sum = {}
    for one in sums:
        for monomial, c in one.items():
            if c < 0 and peak_of(monomial) is not None:
                lift[monomial] = max(lift.get(monomial, Fraction(0)), -c)
    return [added(one, lift, 1) for one in sums], lift


def _count(one: Sum) -> int:
    """How many sums a sum with peaks becomes: one for every choice of a term of each peak."""
    peaks = [peak for monomial in one if (peak := peak_of(monomial)) is not None]
    return math.prod(len(peak[1]) for peak in peaks)


def _opened(one: Sum) -> list[Sum]:
    """A sum with peaks of positive coefficients, as sums whose maximum it is."""
    plain: Sum = {}
    factors = []
    maxima = []
    for monomial, c in one.items():
        peak = peak_of(monomial)
        if peak is None:
            plain[monomial] = c
        else:
            factors.append(c)
            maxima.append(terms_of(peak))
    found = []
    for choice in product(*maxima):
        total = plain
        for c, term in zip(factors, choice, strict=True):
            total = added(total, term, c)
        found.append(total)
    return found


def _centred(sums: Sequence[Sum], sides: Sides) -> Sum:
    """Mean of the sums that matter, plus a positive number times their peak."""
    kept = _undominated(sums, sides)
    if len(kept) == 1:
        return kept[0]
    mean: Sum = {}
    for one in kept:
        mean = added(mean, one, Fraction(1, len(kept)))
    centred = [added(one, mean, -1) for one in kept]
    # Mean zero and largest coefficient 1: maxima that differ by a sum and a positive factor have one peak.
    lead = max(abs(c) for one in centred for c in one.values())
    scaled = (frozenset((m, short(c / lead)) for m, c in one.items()) for one in centred)
    peak = (PEAK, frozenset(scaled))
    return added(mean, power_of(peak), lead)


def _undominated(sums: Sequence[Sum], sides: Sides) -> list[Sum]:
    """Each sum once, without those that another one reaches on the whole box."""
    distinct: list[Sum] = []
    for one in sums:
        if one not in distinct:
            distinct.append(one)
    # b > a somewhere is asked for too: two sums that are equal on the whole box must not drop each other.
    return [a for a in distinct if not any(_exceeds(b, a, sides) for b in distinct)]


def _exceeds(b: Sum, a: Sum, sides: Sides) -> bool:
    """Whether b >= a on the box, and b > a somewhere."""
    form = affine(added(b, a, -1))
    if form is None:
        return False
    slopes, constant = form
    # An affine difference takes its extremes at corners, side by side.
    ends = []
    for at, c in slopes.items():
        low, high = sides[at]
        ends.append((c * low, c * high))
    least = constant + sum(map(min, ends))
    most = constant + sum(map(max, ends))
    return least >= 0 and most > 0


def lattice_sum(table: int, sides: Sides) -> Sum:
    """f = sum over sets S of c_S max(x_S) for f made of min and max of variables alone, given its values at 0 and 1.

    Both sides are linear where the order of the variables is fixed, and there determined by their values at points of
    zeros and ones. Bit p of ``table`` is f at the point whose coordinate i is bit i of p. max(x_S) is 0 at p exactly
    where p and S are disjoint, so 1 - f at the complement of a set A is the sum of c_S over the S inside A.
    """
    variables = range(len(sides))
    everything = 2 ** len(sides) - 1
    c = []
    for part in range(everything + 1):
        complement = everything & ~part
        c.append(1 - (table >> complement & 1))
    # Sums over subsets, undone one variable at a time (Moebius inversion).
    for i in variables:
        for part in range(everything + 1):
            if part >> i & 1:
                c[part] -= c[part & ~(1 << i)]
    total: Sum = {}
    for part in range(1, everything + 1):
        if c[part]:
            members = [variable(i) for i in variables if part >> i & 1]
            total = added(total, _centred(members, sides), c[part])
    return total


def variable(at: int) -> Sum:
    """The normal form of a variable."""
    return power_of(("x", at))


def power_of(base: Base, e: Fraction = Fraction(1)) -> Sum:
    """The normal form of a power of one base."""
    return {frozenset({(base, e)}): Fraction(1)}


@dataclass(frozen=True)
class Tables:
    """Values at points of zeros and ones, of the nodes that are made of min and max of variables alone."""

    variables: int

    def of(self, node: Node, args: Sequence[int | None]) -> int | None:
        """The table of a node, given those of its arguments; None for other nodes, and for many variables."""
        if self.variables > MOST_VARIABLES:
            return None
        if node.op == "var":
            points = range(2**self.variables)
            return sum(1 << p for p in points if p >> int(node.value) & 1)
        if node.op not in ("max", "min"):
            return None
        a, b = args
        if a is None or b is None:
            return None
        # One bit per point: at zeros and ones, max is "or" and min is "and".
        if node.op == "max":
            return a | b
        return a & b
