"""A formula with kinks as sums of maxima of affine functions, and functions of one such sum.

Read off the normal form of the formula (lemmas/algebra.py): monomials are affine, peaks, functions of a sum of both, or
products of two of them, p q = ((a p + q/a)^2 - (a p - q/a)^2) / 4. Nothing here is trusted: the result is compared with
the formula by its normal form again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.operations import OPERATIONS
from onelayer.lemmas.algebra import Normal
from onelayer.lemmas.kinks import PEAK, Base, Monomial, Sum, added, affine, in_words, peak_of, terms_of
from onelayer.lemmas.pieces import CurveTerm, Pieces, PieceSum, SharpHead
from onelayer.observer import Observer

# A layer of more is slower than any other way.
MOST_HEADS = 256
RISING, FALLING = "relu(x)", "-relu(x)"
# Curves that are a ReLU themselves, which one unit is exactly: their slopes.
HINGES = {RISING: 1.0, FALLING: -1.0}


class NoPieces(OnelayerError):
    """The formula is not made of kinks and functions of one sum."""


@dataclass(frozen=True)
class MaxOfAffine:
    """peak = factor * max(lines) + rest, the lines in numbers that people write."""

    lines: tuple[Sum, ...]
    factor: Fraction
    rest: Sum


def take_pieces(formula: Formula, box: Box, observer: Observer | None = None) -> Pieces:
    """The sums and curves of f, constants and units of the curves still open; NoPieces where there are none."""
    return _PieceReader(box, observer).read(formula)


class _PieceReader:
    def __init__(self, box: Box, observer: Observer | None) -> None:
        self.normal = Normal(box, observer)
        self.dim = box.dim
        self.heads: dict[Base, MaxOfAffine] = {}
        self.curves: list[tuple[int, str, Sum]] = []

    def read(self, formula: Formula) -> Pieces:
        totals = self.normal.outputs(formula)
        direct = [self._output(o, total) for o, total in enumerate(totals)]
        if not 1 <= len(self.heads) <= MOST_HEADS:
            raise NoPieces("there are no kinks, or too many")
        # Only now, since a sum states the weight of every head that any output has found.
        sums = tuple(map(self._stated, direct))
        curves = tuple(CurveTerm(o, text, 0.0, self._stated(argument)) for o, text, argument in self.curves)
        heads = tuple(SharpHead(tuple(map(self._line, head.lines))) for head in self.heads.values())
        return Pieces(self.dim, len(direct), heads, sums, curves, ())

    def _output(self, o: int, total: Sum) -> Sum:
        """The direct part of an output; what is curved becomes curves."""
        direct: Sum = {}
        for monomial, c in sorted(total.items(), key=in_words):
            part = {monomial: c}
            left = part if self._flat(part) else self._curved(o, monomial, c)
            direct = added(direct, left, 1)
        return direct

    def _flat(self, total: Mapping[Monomial, Fraction]) -> bool:
        """Whether a sum is affine but for peaks of affine functions; these become heads."""
        peaks = []
        rest: Sum = {}
        # In words, not as a set has them: the order of heads is that of the file, the same in every process.
        for monomial in sorted(total, key=in_words):
            peak = peak_of(monomial)
            if peak is None:
                rest[monomial] = total[monomial]
            else:
                peaks.append(peak)
        terms = [term for peak in peaks for term in terms_of(peak)]
        if any(affine(part) is None for part in (rest, *terms)):
            return False
        for peak in peaks:
            self.heads.setdefault(peak, _readable(peak))
        return True

    def _curved(self, o: int, monomial: Monomial, c: Fraction) -> Sum:
        """Curves for one monomial; what they leave is returned."""
        peak = peak_of(monomial)
        # c |u| = relu(2 c u) - c u, which is exact with one unit.
        if peak is not None and len(peak[1]) == 2:
            half = terms_of(peak)[0]
            if self._flat(half):
                twice = added({}, half, 2 * abs(c))
                self.curves.append((o, RISING if c > 0 else FALLING, twice))
                return added({}, half, -c)
        if not self._product(o, monomial, c) and not self._function(o, monomial, c):
            raise NoPieces("a part that is no function of one sum of kinks")
        return {}

    def _product(self, o: int, monomial: Monomial, c: Fraction) -> bool:
        """c p q as a difference of squares, with p and q scaled to one size."""
        factors = _factors(monomial)
        if len(factors) != 2 or not all(self._flat(one) for one in factors):
            return False
        p, q = factors
        # The coefficient stands in the text of the curve, so it must be a float.
        if p == q and _float(c):
            self.curves.append((o, f"{float(c)!r}*x**2", p))
            return True
        balance = self._balance(p, q, abs(c))
        left = added({}, p, abs(c) * balance)
        right = added({}, q, 1 / balance)
        upwards = "x**2/4"
        downwards = "-x**2/4"
        of_sum, of_difference = (upwards, downwards) if c > 0 else (downwards, upwards)
        self.curves.append((o, of_sum, added(left, right, 1)))
        self.curves.append((o, of_difference, added(left, right, -1)))
        return True

    def _balance(self, p: Sum, q: Sum, c: Fraction) -> Fraction:
        """A power of two a, such that a c p and q/a are of about one size on the box."""
        p_size = float(abs(self.normal.ball(p)).upper())
        q_size = float(abs(self.normal.ball(q)).upper())
        ratio = q_size / (p_size * float(c)) if min(p_size, q_size) > 0 else 1.0
        # Sizes may have over- or underflowed; any power is right, this one only saves units.
        if 0 < ratio < math.inf:
            return Fraction(2) ** round(math.log2(ratio) / 2)
        return Fraction(1)

    def _function(self, o: int, monomial: Monomial, c: Fraction) -> bool:
        """c g(u) for a known function g of one flat sum u."""
        if not _float(c):
            return False
        found = _exponential(monomial) or _elementary(monomial)
        if found is None:
            return False
        text, argument = found
        if not self._flat(argument):
            return False
        self.curves.append((o, f"{float(c)!r}*{text}", argument))
        return True

    def _stated(self, total: Sum) -> PieceSum:
        weights = dict.fromkeys(self.heads, Fraction(0))
        line: Sum = {}
        for monomial, c in total.items():
            peak = peak_of(monomial)
            if peak is None:
                line = added(line, {monomial: c}, 1)
                continue
            head = self.heads[peak]
            weights[peak] += c * head.factor
            line = added(line, head.rest, c)
        written = tuple(map(str, weights.values()))
        return PieceSum(written, self._line(line))

    def _line(self, total: Sum) -> tuple[str, ...]:
        form = affine(total)
        if form is None:
            raise NoPieces("a part that is not affine")
        slopes, offset = form
        numbers = [*(slopes.get(j, Fraction(0)) for j in range(self.dim)), offset]
        return tuple(map(str, numbers))


def _readable(peak: Base) -> MaxOfAffine:
    """Two terms u, -u become max(2 u, 0) - u; of more, the smallest coefficient of every variable is taken out."""
    terms = terms_of(peak)
    if len(terms) == 2:
        u = terms[0]
        return MaxOfAffine((added({}, u, 2), {}), Fraction(1), added({}, u, -1))
    names = set().union(*terms)
    common = {name: min(term.get(name, Fraction(0)) for term in terms) for name in names}
    above = [added(term, common, -1) for term in terms]
    factor = max(c for line in above for c in line.values())
    lines = tuple(added({}, line, 1 / factor) for line in above)
    return MaxOfAffine(lines, factor, added({}, common, 1))


def _exponential(monomial: Monomial) -> tuple[str, Sum] | None:
    """exp of the sum that a product of powers of exponentials is."""
    if not all(base[0] == "exp" for base, _ in monomial):
        return None
    total = Sum()
    for base, e in monomial:
        total = added(total, {base[1]: Fraction(1)}, e)
    return "exp(x)", total


def _elementary(monomial: Monomial) -> tuple[str, Sum] | None:
    """A function of the language of one argument, to the first power."""
    if len(monomial) != 1:
        return None
    ((base, e),) = monomial
    # The normal form has its own rules for the three, so that they are no functions of one argument there.
    is_function = base[0] in OPERATIONS and base[0] not in (PEAK, "exp", "log")
    if is_function and len(base) == 3 and base[1] == 0 and e == 1:
        return f"{base[0]}(x)", dict(base[2])
    return None


def _factors(monomial: Monomial) -> list[Sum]:
    """The bases of a monomial, each as often as its power says."""
    factors: list[Sum] = []
    for base, e in sorted(monomial, key=in_words):
        first_power = frozenset({(base, Fraction(1))})
        factors += [{first_power: Fraction(1)}] * _whole(e)
    return factors


def _whole(e: Fraction) -> int:
    """The power of a base in a product of two; more than two for any that is none."""
    if e.denominator == 1 and 0 < e <= 2:
        return int(e)
    return 3


def _float(c: Fraction) -> bool:
    """Whether a number is a float, that text holds exactly."""
    number = float(c)
    return math.isfinite(number) and Fraction(number) == c
