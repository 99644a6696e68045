"""How far a forward pass in floating point strays from the real layer: the checker's own error analysis.

Assumed of the execution: every + - * / and square root rounds to nearest with unit roundoff u, sums run in any order
with or without fused multiply-add, exp is within 4 units in the last place (8 u), and a result below the normal range
errs by at most 4 times the smallest normal number; operands are taken as they are. Notation: gamma(n) = n u / (1 - n u)
bounds n accumulated roundings. Every function takes bounds of real sizes and of the errors made so far and returns
bounds of the errors of the results; an error is infinite where any number on the way to its result may overflow. A
layer of float16 or bfloat16 does all this in float32, and rounds what each operation returns to nearest in its own
format.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor
from onelayer.checker.deviations import Deviations
from onelayer.checker.formats import BY_ARITHMETIC, REAL
from onelayer.checker.magnitudes import NORM_EPS, Domain, largest_numbers
from onelayer.checker.outcome import Rejected
from onelayer.checker.weights import Stored

INFINITE = arb.pos_inf()
ROUNDABLE = arb(2) ** 1000  # what is below has an exponent that floats tell; no format holds more


class Execution:
    """A forward pass of one layer on one box in a floating format.

    Where the pass is ``sure``, no number that it computes there overflows: that follows from the weights and the box
    alone. Where it is not, every bound asks for itself how large the numbers on its way can be, which is at most what
    sizes and errors say, and :meth:`safe` notes in ``open`` that some number may overflow. Then nothing that the pass
    returns is known, however finite later errors are: a weight of zero, a softmax or a maximum would hide it.

    What a layer of a narrow format holds need not fit it either; ``ceiling`` is then the largest number that does.
    """

    sure = True
    open = False

    def __init__(self, arithmetic: str, stored: Stored, domain: Domain) -> None:
        row = BY_ARITHMETIC[arithmetic]
        if row.tag != stored.dtype:
            raise Rejected(f"the weights are not stored in the format of a {arithmetic}")
        peaks = largest_numbers(stored, domain, row.unit, row.normal, row.held[0] if row.held else 0.0)
        self.peak = max(peaks, key=lambda peak: math.inf if math.isnan(peak) else peak)
        self.sure = all(peak <= row.largest for peak in peaks)
        self.ceiling = None if peaks[0] <= row.most else arb(row.most)
        self.unit = arb(row.unit)
        self.tiny = arb(4 * row.normal)
        self.most = arb(row.largest)
        self.kind = row.kind
        self.held = row.held

    @classmethod
    def of(cls, arithmetic: str, stored: Stored, domain: Domain) -> Execution | None:
        """The execution that a certificate speaks of; None for exact real arithmetic."""
        if arithmetic == REAL:
            return None
        return cls(arithmetic, stored, domain)

    def need_sure(self) -> None:
        """Rejected where overflow is not excluded: what an argument counts on that does not look at every number."""
        if not self.sure:
            raise Rejected(f"a number of the forward pass may overflow: only |number| <= {self.peak:.3g} follows")

    def safe(self, error: arb, reach: arb) -> arb:
        """An error; infinite, and noted, where numbers of this size may overflow."""
        if reach < self.most:
            return error.upper()
        self.open = True
        return INFINITE

    def gamma(self, n: int) -> arb:
        """Relative error of n operations in a row, n u / (1 - n u)."""
        if n * self.unit < 1:
            return n * self.unit / (1 - n * self.unit)
        return INFINITE

    def affine(self, terms: int, bias: arb, passed: arb, total: arb) -> arb:
        """One entry of x W + b with n = ``terms`` nonzero weights.

        |err| <= sum |w_i| err_i + gamma(n + 1) (sum |w_i| (size_i + err_i) + |b|); ``passed`` is the first sum,
        ``total`` the second. Without bias one rounding less; without terms none, unless the bias itself underflows.
        """
        if terms == 0:
            if bias.is_zero() or abs(bias) >= self.tiny:
                return ZERO
            return self.tiny
        # A product and the sums it goes through: as many roundings as there are terms, in any order.
        roundings = terms if bias.is_zero() else terms + 1
        rounding = self.gamma(roundings) * (total + abs(bias))
        error = (passed + rounding + self.underflow(terms)).upper()
        return error if self.sure else self.safe(error, total + abs(bias) + error)

    def selected(self, passed: arb, total: arb) -> arb:
        """One number times a power of two, and what it erred by already: exact up to underflow."""
        error = (passed + 2 * self.tiny).upper()
        return error if self.sure else self.safe(error, total + error)

    def scaled(self, factor: float, sizes: Sequence[arb], errors: Sequence[arb]) -> list[arb]:
        """Times a float64 number, which is rounded to the executing format first if it is not one of its numbers."""
        c = abs(arb(factor))
        cast = self.cast(factor)
        exact = power_of_two(factor) and cast.is_zero()
        g = cast if exact else cast + self.gamma(1) * (c + cast)
        found = [(e * c + g * (s + e) + 2 * self.tiny).upper() for s, e in zip(sizes, errors, strict=True)]
        if self.sure:
            return found
        return [self.safe(error, s * c + error) for s, error in zip(sizes, found, strict=True)]

    def cast(self, number: float) -> arb:
        """How far the format's number for a float64 number lies from it: nothing for its own, infinitely beyond all."""
        with np.errstate(all="ignore"):
            given = float(self.kind.type(number))
        if given == number:
            return ZERO
        if not math.isfinite(given):
            return INFINITE
        # It may be flushed to zero.
        lost = self.tiny if abs(arb(number)) < self.tiny else ZERO
        return (abs(arb(given) - arb(number)) + lost).upper()

    def added(self, sizes: Sequence[arb], errors: Sequence[arb]) -> list[arb]:
        """One addition each: sizes of the results, errors of the summands together."""
        found = [(e + self.unit * (s + e) + self.tiny).upper() for s, e in zip(sizes, errors, strict=True)]
        if self.sure:
            return found
        return [self.safe(error, s + error) for s, error in zip(sizes, found, strict=True)]

    def fits(self, sizes: Sequence[arb], errors: Sequence[arb]) -> bool:
        """Whether executed numbers of these sizes and errors, rounded to what the layer holds, are finite."""
        if self.ceiling is None:
            return True
        return all(s + e <= self.ceiling for s, e in zip(sizes, errors, strict=True))

    def stored(self, sizes: Sequence[arb], errors: Sequence[arb], exact: Sequence[bool]) -> list[arb]:
        """What a layer of a narrow format holds: each number rounded to nearest once more.

        |x| <= size + err lies below 2^(e+1) for the exponent e of that bound, and is rounded by at most 2^e u. What is
        ``exact`` is a number of the format already, unless it is too small for that.
        """
        if self.held is None:
            return list(errors)
        return [
            self._once(s, e, same) if s + e < ROUNDABLE else INFINITE
            for s, e, same in zip(sizes, errors, exact, strict=True)
        ]

    def _once(self, size: arb, error: arb, exact: bool) -> arb:
        """One rounding to the format that is held: of a number in its normal range or of one below, never both."""
        unit, lost, _ = self.held or (0.0, 0.0, 0.0)
        step = ZERO if exact else arb(unit) * arb(2) ** _exponent(size + error)
        return (error + step.max(arb(lost))).upper()

    def summed(self, sizes: Sequence[arb], errors: Sequence[arb]) -> arb:
        """One sum of computed numbers, in any order."""
        passed = sum(errors, ZERO)
        size = sum(sizes, ZERO)
        n = len(sizes) - 1
        error = (passed + self.gamma(n) * (size + passed) + n * self.tiny).upper()
        return error if self.sure else self.safe(error, size + error)

    def dot(self, a: Sequence[arb], ea: Sequence[arb], b: Sequence[arb], eb: Sequence[arb]) -> arb:
        """Inner product of two computed vectors."""
        passed = size = ZERO
        for x, ex, y, ey in zip(a, ea, b, eb, strict=True):
            passed = passed + x * ey + y * ex + ex * ey
            size = size + (x + ex) * (y + ey)
        error = (passed + self.gamma(len(a)) * size + 2 * len(a) * self.tiny).upper()
        return error if self.sure else self.safe(error, size + error)

    def softmax(self, spreads: Sequence[arb], errors: Sequence[arb], weights: Sequence[arb]) -> tuple[list[arb], arb]:
        """Relative errors r_m of computed softmax weights, and an absolute one for underflow.

        The computed numerator is C exp(l_m) exp(theta_m) (1 + eps) with C common to all tokens, |theta_m| <= err_m +
        u d_m for d_m >= |l_m - max l| as executed, and |eps| <= 8 u; so it errs by rho_m = e^theta (1 + 8u) - 1. The
        denominator errs by sigma = (1 + gamma(M)) (1 + sum_m w_m rho_m) - 1, the division by at most two roundings. A
        common factor of all numerators changes nothing, so the theta_t of the heaviest token may be taken out of every
        theta_m: the smaller bound counts. ``spreads`` are ranges of the logits less a common function, ``errors`` of
        the logits, ``weights`` upper bounds of the w_m.
        """
        top = largest([spread.upper() for spread in spreads])
        worst_error = largest(errors)
        if not self.sure:
            # The difference of any two logits as executed.
            width = top + largest([-spread.lower() for spread in spreads]) + 2 * worst_error
            if not self.safe(ZERO, width * (1 + self.unit)).is_finite():
                return [INFINITE] * len(spreads), INFINITE
        theta = [
            error + self.unit * (top - spread.lower() + error + worst_error)
            for spread, error in zip(spreads, errors, strict=True)
        ]
        heaviest = max(range(len(theta)), key=lambda at: float(spreads[at].mid()))
        moved = [one + theta[heaviest] for one in theta]
        moved[heaviest] = ZERO
        plain = self._quotients(theta, weights)
        relative = [a.min(b) for a, b in zip(plain, self._quotients(moved, weights), strict=True)]
        # Exponentials, the sum and a quotient that underflow; the largest exponential is about 1, so none is amplified.
        absolute = 8 * (len(theta) + 1) * self.tiny
        return relative, absolute if relative[0].is_finite() else INFINITE

    def _quotients(self, theta: Sequence[arb], weights: Sequence[arb]) -> list[arb]:
        """Relative errors of numerators e^theta (1 + 8 u) over their sum; infinite where it may be twice as far."""
        rho = [(one.exp() * (1 + 8 * self.unit) - 1).upper() for one in theta]
        # Bounds of the weights may sum to more than one; the mean of the errors is still no more than the largest.
        weighed = sum((w * r for w, r in zip(weights, rho, strict=True)), ZERO)
        mean = weighed.min(largest(rho))
        sigma = (mean + self.gamma(len(rho) + 1) * (1 + mean)).upper()
        if not sigma < 0.5:
            return [INFINITE] * len(rho)
        return [((1 + r) * (1 + self.gamma(2)) / (1 - sigma) - 1).upper() for r in rho]

    def average(self, weights: Sequence[arb], relative: Sequence[arb], absolute: arb, terms: int) -> list[arb]:
        """What multiplies |v_m| in the error of sum w_m v_m: wrong weights, then a sum of ``terms`` products.

        Products that underflow err by :meth:`underflow` in all, whatever the values.
        """
        g = self.gamma(terms + 1)
        found = []
        for w, r in zip(weights, relative, strict=True):
            strayed = w * r + absolute
            found.append((strayed + g * (w + strayed)).upper())
        return found

    def underflow(self, terms: int) -> arb:
        """Absolute error of a sum of products that may all underflow."""
        return (2 * terms + 2) * self.tiny

    def within(self, terms: int, centre: arb, radius: arb) -> arb:
        """Error of any executed softmax average of ``terms`` values in centre +- radius, whatever the logits.

        The executed weights are >= 0 and their sum is within gamma(n + 4) of 1, so the average strays from the centre
        by (1 + gamma) radius + gamma |centre|, then by the roundings of the sum; the real one by the radius. No partial
        sum exceeds (1 + gamma) (|centre| + radius) and what underflows, and so no more than that and the error.
        """
        if centre.is_zero() and radius.is_zero():
            return ZERO
        g = 2 * self.gamma(terms + 4) + 2 * terms * self.tiny
        error = ((2 + g) * radius + g * (abs(centre) + radius) + self.underflow(terms)).upper()
        return error if self.sure else self.safe(error, abs(centre) + radius + error)

    def norm(
        self,
        sizes: Sequence[arb],
        errors: Sequence[arb],
        centred: Sequence[arb],
        gain: Sequence[float],
        shift: Sequence[float],
        low: arb,
        eps: float = NORM_EPS,
    ) -> list[arb]:
        """LayerNorm. ``centred`` are ranges of x - mean, ``low`` is a lower bound of var + eps.

        Errors of the numbers are passed on as deviations.py says; the rest is the normalisation of the numbers that
        are executed. One number less its mean is 0 whatever the number: its error does not pass.
        """
        numbers = [s + e for s, e in zip(sizes, errors, strict=True)]
        if not all(number.is_finite() for number in numbers):
            self.open = self.open or not self.sure
            return [INFINITE] * len(numbers)
        if len(numbers) == 1:
            return self._normalised(numbers, [ZERO], gain, shift, arb(eps), eps)
        executed = Deviations(centred, low, eps).strayed(errors)
        rounding = self._normalised(numbers, [c.abs_upper() for c in executed.centred], gain, shift, executed.low, eps)
        passed = executed.passed(errors)
        return [(abs(arb(g)) * p + r).upper() for g, p, r in zip(gain, passed, rounding, strict=True)]

    def _on_the_way(self, most: arb, n: int, root: arb, gain: Sequence[float], shift: Sequence[float]) -> arb:
        """What no number in a normalisation of n numbers up to ``most`` exceeds, ``root`` bounding 1 / sqrt(var + eps).

        Numbers differ by no more than 2 most from each other, from their mean and from that of some of them. Squares,
        sums of squares, and squares of such differences times a count are at most 4 n most^2, before rounding.
        """
        factors = [1.0, *map(abs, gain)]
        scaled = 2 * most * root * max(factors) + max(map(abs, shift))
        reach = largest([4 * n * most * most, root, scaled])
        return (1 + self.gamma(4 * n + 64)) * reach + 8 * n * self.tiny

    def _normalised(
        self,
        sizes: Sequence[arb],
        centred: Sequence[arb],
        gain: Sequence[float],
        shift: Sequence[float],
        low: arb,
        eps: float,
    ) -> list[arb]:
        """Rounding of a normalisation of numbers up to ``sizes``, ``centred`` bounds |x - mean|.

        Covers moments taken in one pass (error gamma of the mean square) and x r - mean r instead of (x - mean) r. With
        an error d of v = var + eps >= low, |1 / sqrt(v + d) - 1 / sqrt(v)| <= d / (2 f sqrt(v)), f = low - d; and
        |x - mean| / sqrt(v) is at most sqrt(n - 1).
        """
        n = len(sizes)
        tiny = self.tiny
        total = sum(sizes, ZERO) / n
        mean_error = self.gamma(n + 2) * total + tiny
        square = sum((s * s for s in sizes), ZERO) / n
        variance = sum(((2 * c + mean_error) * mean_error for c in centred), ZERO) / n
        variance = (variance + self.gamma(2 * n + 8) * square + self.unit * eps + 4 * tiny).upper()
        floor = (low - variance).lower()
        if not self.sure:
            # The variance is not negative, executed or not.
            root = (1 + self.gamma(8)) / floor.max(arb(eps)).sqrt()
            self.safe(ZERO, self._on_the_way(largest(sizes), n, root, gain, shift))
        if not floor > 0:
            return [INFINITE] * n
        strayed = variance / (2 * floor)
        root = (1 + strayed + self.gamma(4)) / floor.sqrt()
        found = []
        for s, c, g, b in zip(sizes, centred, gain, shift, strict=True):
            factor = abs(arb(g))
            big = factor * (s + total + mean_error) * root
            relative = (c / low.sqrt()).min(arb(n - 1).sqrt()) * strayed
            passed = factor * (relative + c * self.gamma(4) / floor.sqrt() + mean_error * root + 4 * tiny)
            found.append((passed + self.gamma(6) * (big + abs(arb(b))) + 8 * tiny).upper())
        return found


def size(u: Taylor) -> arb:
    """Upper bound of |u| on the box."""
    return u.range().abs_upper()


def _exponent(bound: arb) -> int:
    """e with bound < 2^(e+1), of a float above it."""
    return math.frexp(max(float(bound.upper()) * (1 + 2.0**-50), 2.0**-1000))[1] - 1


def power_of_two(value: float) -> bool:
    """Multiplication by such a number is exact up to underflow."""
    return abs(math.frexp(value)[0]) == 0.5


def largest(values: Sequence[arb]) -> arb:
    """The largest of some numbers."""
    most = values[0]
    for value in values[1:]:
        most = most.max(value)
    return most
