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
from functools import reduce

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.operations import OPERATIONS
from onelayer.lemmas.algebra import Normal
from onelayer.lemmas.kinks import PEAK, Base, Monomial, Sum, added, affine, in_words, peak_of, terms_of
from onelayer.lemmas.pieces import CurveTerm, Pieces, PieceSum, SharpHead

MOST_HEADS = 256  # a layer of more is slower than any other way
RISING, FALLING = "relu(x)", "-relu(x)"
HINGES = {RISING: 1.0, FALLING: -1.0}  # curves that are a ReLU themselves, which one unit is exactly: their slopes


class NoPieces(OnelayerError):
    """The formula is not made of kinks and functions of one sum."""


@dataclass(frozen=True)
class MaxOfAffine:
    """peak = factor * max(lines) + rest, the lines in numbers that people write."""

    lines: tuple[Sum, ...]
    factor: Fraction
    rest: Sum


def take_pieces(formula: Formula, box: Box) -> Pieces:
    """The sums and curves of f, constants and units of the curves still open; NoPieces where there are none."""
    return _PieceReader(box).read(formula)


class _PieceReader:
    def __init__(self, box: Box) -> None:
        self.normal = Normal(box)
        self.dim = box.dim
        self.heads: dict[Base, MaxOfAffine] = {}
        self.curves: list[tuple[int, str, Sum]] = []

    def read(self, formula: Formula) -> Pieces:
        direct = [self._output(o, total) for o, total in enumerate(self.normal.outputs(formula))]
        if not 1 <= len(self.heads) <= MOST_HEADS:
            raise NoPieces("there are no kinks, or too many")
        curves = tuple(CurveTerm(o, text, 0.0, self._stated(argument)) for o, text, argument in self.curves)
        heads = tuple(SharpHead(tuple(self._line(line) for line in head.lines)) for head in self.heads.values())
        return Pieces(self.dim, len(direct), heads, tuple(self._stated(one) for one in direct), curves, ())

    def _output(self, o: int, total: Sum) -> Sum:
        """The direct part of an output; what is curved becomes curves."""
        direct: Sum = {}
        for monomial, c in sorted(total.items(), key=in_words):
            part = {monomial: c}
            direct = added(direct, part if self._flat(part) else self._curved(o, monomial, c), 1)
        return direct

    def _flat(self, total: Mapping[Monomial, Fraction]) -> bool:
        """Whether a sum is affine but for peaks of affine functions; these become heads."""
        peaks = [peak for monomial in sorted(total, key=in_words) if (peak := peak_of(monomial)) is not None]
        rest = {monomial: c for monomial, c in total.items() if peak_of(monomial) is None}
        flat = affine(rest) is not None and all(affine(term) is not None for peak in peaks for term in terms_of(peak))
        if flat:
            for peak in peaks:
                self.heads.setdefault(peak, _readable(peak))
        return flat

    def _curved(self, o: int, monomial: Monomial, c: Fraction) -> Sum:
        """Curves for one monomial; what they leave is returned."""
        peak = peak_of(monomial)
        if peak is not None and len(peak[1]) == 2:  # c |u| = relu(2 c u) - c u
            half = terms_of(peak)[0]
            if self._flat(half):
                self.curves.append((o, RISING if c > 0 else FALLING, added({}, half, 2 * abs(c))))
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
        if p == q and _float(c):
            self.curves.append((o, f"{float(c)!r}*x**2", p))
            return True
        balance = self._balance(p, q, abs(c))
        left = added({}, p, abs(c) * balance)
        right = added({}, q, 1 / balance)
        sign = "" if c > 0 else "-"
        other = "-" if c > 0 else ""
        self.curves.append((o, f"{sign}x**2/4", added(left, right, 1)))
        self.curves.append((o, f"{other}x**2/4", added(left, right, -1)))
        return True

    def _balance(self, p: Sum, q: Sum, c: Fraction) -> Fraction:
        """A power of two a, such that a c p and q/a are of about one size on the box."""
        sizes = [float(abs(self.normal.ball(one)).upper()) for one in (p, q)]
        ratio = sizes[1] / (sizes[0] * float(c)) if min(sizes) > 0 else 1.0
        if 0 < ratio < math.inf:
            return Fraction(2) ** round(math.log2(ratio) / 2)
        return Fraction(1)

    def _function(self, o: int, monomial: Monomial, c: Fraction) -> bool:
        """c g(u) for a known function g of one flat sum u."""
        if not _float(c):
            return False
        found = _exponential(monomial) or _elementary(monomial)
        if found is None or not self._flat(found[1]):
            return False
        self.curves.append((o, f"{float(c)!r}*{found[0]}", found[1]))
        return True

    def _stated(self, total: Sum) -> PieceSum:
        weights = dict.fromkeys(self.heads, Fraction(0))
        line: Sum = {}
        for monomial, c in total.items():
            peak = peak_of(monomial)
            if peak is None:
                line = added(line, {monomial: c}, 1)
                continue
            weights[peak] += c * self.heads[peak].factor
            line = added(line, self.heads[peak].rest, c)
        return PieceSum(tuple(str(w) for w in weights.values()), self._line(line))

    def _line(self, total: Sum) -> tuple[str, ...]:
        form = affine(total)
        if form is None:
            raise NoPieces("a part that is not affine")
        slopes, offset = form
        return (*(str(slopes.get(j, Fraction(0))) for j in range(self.dim)), str(offset))


def _readable(peak: Base) -> MaxOfAffine:
    """Two terms u, -u become max(2 u, 0) - u; of more, the smallest coefficient of every variable is taken out."""
    terms = terms_of(peak)
    if len(terms) == 2:
        return MaxOfAffine((added({}, terms[0], 2), {}), Fraction(1), added({}, terms[0], -1))
    names = set().union(*terms)
    common = {name: min(term.get(name, Fraction(0)) for term in terms) for name in names}
    lines = [added(term, common, -1) for term in terms]
    factor = max(c for line in lines for c in line.values())
    return MaxOfAffine(tuple(added({}, line, 1 / factor) for line in lines), factor, added({}, common, 1))


def _exponential(monomial: Monomial) -> tuple[str, Sum] | None:
    """exp of the sum that a product of powers of exponentials is."""
    if not all(base[0] == "exp" for base, _ in monomial):
        return None
    return "exp(x)", reduce(lambda total, part: added(total, {part[0][1]: Fraction(1)}, part[1]), monomial, Sum())


def _elementary(monomial: Monomial) -> tuple[str, Sum] | None:
    """A function of the language of one argument, to the first power."""
    if len(monomial) != 1:
        return None
    ((base, e),) = monomial
    is_function = base[0] in OPERATIONS and base[0] not in (PEAK, "exp", "log")
    if is_function and len(base) == 3 and base[1] == 0 and e == 1:
        return f"{base[0]}(x)", dict(base[2])
    return None


def _factors(monomial: Monomial) -> list[Sum]:
    """The bases of a monomial, each as often as its power says."""
    bases = [base for base, e in sorted(monomial, key=in_words) for _ in range(_whole(e))]
    return [{frozenset({(base, Fraction(1))}): Fraction(1)} for base in bases]


def _whole(e: Fraction) -> int:
    """The power of a base in a product of two; more than two for any that is none."""
    if e.denominator == 1 and 0 < e <= 2:
        return int(e)
    return 3


def _float(c: Fraction) -> bool:
    """Whether a number is a float, that text holds exactly."""
    return math.isfinite(float(c)) and Fraction(float(c)) == c
