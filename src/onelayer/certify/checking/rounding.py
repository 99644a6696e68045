"""How far a forward pass in floating point strays from the real layer: the checker's own error analysis.

Assumed of the execution: every + - * / and square root rounds to nearest with unit roundoff u, sums run in any order
with or without fused multiply-add, exp is within 4 units in the last place (8 u), and a result below the normal range
errs by at most 4 times the smallest normal number. Notation: gamma(n) = n u / (1 - n u) bounds n accumulated roundings.
Every function takes bounds of real sizes and of the errors made so far and returns bounds of the errors of the results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb

from onelayer.certify.checking.arithmetic import ZERO, Taylor

INFINITE = arb.pos_inf()
_FORMATS = {
    "float64 execution": (2.0**-53, 2.0**-1022, 2.0**1023),
    "float32 execution": (2.0**-24, 2.0**-126, 2.0**127),
}


@dataclass(frozen=True)
class Execution:
    """A floating format. ``cast`` counts one more rounding per weight when weights are stored in a wider format."""

    unit: arb
    tiny: arb
    huge: arb
    cast: int

    @classmethod
    def of(cls, arithmetic: str, stored: str) -> Execution | None:
        """The execution that a certificate speaks of; None for exact real arithmetic."""
        if arithmetic == "real":
            return None
        unit, normal, huge = _FORMATS[arithmetic]
        narrows = arithmetic.startswith("float32") and stored == "F64"
        return cls(arb(unit), arb(4 * normal), arb(huge), 1 if narrows else 0)

    def gamma(self, n: int) -> arb:
        return n * self.unit / (1 - n * self.unit)

    def safe(self, size: arb, error: arb) -> arb:
        """``error``, or infinity if the result may overflow."""
        return error.upper() if size < self.huge else INFINITE

    def converted(self, value: arb) -> arb:
        """Error of a stored constant in the executing format."""
        return (self.unit * abs(value) + self.tiny).upper() if self.cast else ZERO

    def affine(self, terms: int, bias: arb, passed: arb, total: arb) -> arb:
        """One entry of x W + b with n = ``terms`` nonzero weights.

        |err| <= sum |w_i| err_i + gamma(n + 1) (sum |w_i| (size_i + err_i) + |b|); ``passed`` is the first sum,
        ``total`` the second. Without bias one rounding less; without terms none.
        """
        if terms == 0:
            return self.converted(bias)
        size = total + abs(bias)
        roundings = terms + (0 if bias.is_zero() else 1) + self.cast
        return self.safe(size, passed + self.gamma(roundings) * size + (2 * terms + 2) * self.tiny)

    def scaled(self, factor: float, sizes: Sequence[arb], errors: Sequence[arb]) -> list[arb]:
        """Times a float64 number that is first rounded to the executing format."""
        c = abs(arb(factor))
        if power_of_two(factor):
            return [(e * c + self.tiny).upper() for e in errors]
        pairs = zip(sizes, errors, strict=True)
        return [self.safe(c * s, e * c + self.gamma(2) * c * (s + e) + 2 * self.tiny) for s, e in pairs]

    def added(self, sizes: Sequence[arb], errors: Sequence[arb]) -> list[arb]:
        """One addition each: sizes of the results, errors of the summands together."""
        return [self.safe(s, e + self.unit * (s + e) + self.tiny) for s, e in zip(sizes, errors, strict=True)]

    def dot(self, a: Sequence[arb], ea: Sequence[arb], b: Sequence[arb], eb: Sequence[arb]) -> arb:
        """Inner product of two computed vectors."""
        passed = size = ZERO
        for x, ex, y, ey in zip(a, ea, b, eb, strict=True):
            passed = passed + x * ey + y * ex + ex * ey
            size = size + (x + ex) * (y + ey)
        return self.safe(size, passed + self.gamma(len(a)) * size + 2 * len(a) * self.tiny)

    def softmax(self, spreads: Sequence[arb], errors: Sequence[arb], weights: Sequence[arb]) -> tuple[list[arb], arb]:
        """Relative errors r_m of computed softmax weights, and an absolute one for underflow.

        The computed numerator is C exp(l_m) exp(theta_m) (1 + eps) with C common to all tokens, |theta_m| <= err_m +
        u d_m for d_m >= |l_m - max l|, and |eps| <= 8 u; so it errs by rho_m = e^theta (1 + 8u) - 1. The denominator
        errs by sigma = sum_m w_m rho_m + gamma(M), the division by at most two roundings. ``spreads`` are ranges of
        the logits less a common function, ``errors`` of the logits, ``weights`` upper bounds of the w_m.
        """
        top = spreads[0].upper()
        for spread in spreads[1:]:
            top = top.max(spread.upper())
        rho = []
        for spread, error in zip(spreads, errors, strict=True):
            theta = error + self.unit * (top - spread.lower() + 2 * error)
            rho.append((theta.exp() * (1 + 8 * self.unit) - 1).upper())
        mean = sum((w * r for w, r in zip(weights, rho, strict=True)), ZERO)
        worst = rho[0]
        for r in rho[1:]:
            worst = worst.max(r)
        sigma = (mean.min(worst) + self.gamma(len(rho) + 1) * (1 + worst)).upper()
        if not sigma < 0.5:
            return [INFINITE] * len(rho), INFINITE
        relative = [((1 + r) * (1 + self.gamma(2)) / (1 - sigma) - 1).upper() for r in rho]
        return relative, 8 * (len(rho) + 1) * self.tiny

    def average(self, weights: Sequence[arb], relative: Sequence[arb], absolute: arb, terms: int) -> list[arb]:
        """What multiplies |v_m| in the error of sum w_m v_m: wrong weights, then a sum of ``terms`` products."""
        g = self.gamma(terms + 1 + self.cast)
        return [
            (w * r + absolute + g * (w * (1 + r) + absolute)).upper() for w, r in zip(weights, relative, strict=True)
        ]

    def norm(
        self,
        sizes: Sequence[arb],
        errors: Sequence[arb],
        centred: Sequence[arb],
        gain: Sequence[float],
        shift: Sequence[float],
        low: arb,
    ) -> list[arb]:
        """LayerNorm. ``centred`` bounds |x - mean|, ``low`` is a lower bound of var + eps.

        Covers moments taken in one pass (error gamma of the mean square) and x r - mean r instead of (x - mean) r.
        """
        n = len(sizes)
        total = sum((s + e for s, e in zip(sizes, errors, strict=True)), ZERO) / n
        mean_error = sum(errors, ZERO) / n + self.gamma(n + 2) * total
        square = sum(((s + e) * (s + e) for s, e in zip(sizes, errors, strict=True)), ZERO) / n
        moved = [e + mean_error for e in errors]
        variance = sum(((2 * c + m) * m for c, m in zip(centred, moved, strict=True)), ZERO) / n
        variance = (variance + self.gamma(2 * n + 8) * square + self.tiny).upper()
        floor = (low - variance).lower()
        if not floor > 0:
            return [INFINITE] * n
        root = (1 / low.sqrt()).upper()
        root_error = (variance / (2 * floor * floor.sqrt()) + self.gamma(4) / floor.sqrt()).upper()
        found = []
        for s, e, c, m, g, b in zip(sizes, errors, centred, moved, gain, shift, strict=True):
            big = abs(arb(g)) * (s + e + total + mean_error) * (root + root_error)
            passed = abs(arb(g)) * (c * root_error + m * (root + root_error))
            found.append(self.safe(big, passed + self.gamma(6 + self.cast) * (big + abs(arb(b))) + 8 * self.tiny))
        return found


def size(u: Taylor) -> arb:
    """Upper bound of |u| on the box."""
    return u.range().abs_upper()


def power_of_two(value: float) -> bool:
    """Multiplication by such a number is exact up to underflow."""
    return abs(math.frexp(value)[0]) == 0.5
