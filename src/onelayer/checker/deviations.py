"""How a normalisation y = (x - mean) / sqrt(var + eps) passes on what its numbers err by.

Lemma: dy_i = sum_j J_ij dx_j with J_ij = (delta_ij - 1/n - y_i y_j / n) / sqrt(var + eps). So y_i moves by no more than
sum_j max|J_ij| E_j when each x_j moves by up to E_j, the maximum taken over all x on the way. With c = x - mean,
y_i^2 = n c_i^2 / (c_i^2 + R + n eps) for the sum R of the other squares, which is at least c_i^2 / (n - 1).
"""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.checker.arithmetic import UNIT_BALL, ZERO


class Deviations:
    """Two numbers or more less their mean: balls that hold them, and a number that var + eps is no less than."""

    def __init__(self, centred: Sequence[arb], low: arb, eps: float) -> None:
        self.centred = centred
        self.low = low
        self.eps = eps

    def strayed(self, errors: Sequence[arb]) -> Deviations:
        """The same where each number may be off by its error: c_i then is by (1 - 2/n) E_i and the mean of all E."""
        n = len(errors)
        share = sum(errors, ZERO) / n
        moved = [share + e * (n - 2) / n for e in errors]
        centred = [c + m * UNIT_BALL for c, m in zip(self.centred, moved, strict=True)]
        less = sum(((2 * c.abs_upper() + m) * m for c, m in zip(self.centred, moved, strict=True)), ZERO) / n
        squares = sum((c.abs_lower() ** 2 for c in centred), ZERO) / n
        return Deviations(centred, (self.low - less).max(squares + self.eps).lower(), self.eps)

    def passed(self, errors: Sequence[arb]) -> list[arb]:
        """By how much each normalised number moves when the numbers err, these being all that they may then be."""
        n = len(errors)
        root = 1 / self.low.sqrt()
        squares, signed = self._normalised()
        found = []
        for i, error in enumerate(errors):
            own = (1 - (1 + squares[i]) / n).abs_upper() * error
            moved = root * (own + self._crossed(signed, errors, i) / n)
            found.append(moved.upper() if moved.is_finite() else arb.pos_inf())
        return found

    def _crossed(self, y: Sequence[arb], errors: Sequence[arb], i: int) -> arb:
        """sum over j other than i of max|1 + y_i y_j| E_j."""
        others = [(z, e) for j, (z, e) in enumerate(zip(y, errors, strict=True)) if j != i]
        return sum(((1 + y[i] * z).abs_upper() * e for z, e in others), ZERO)

    def _normalised(self) -> tuple[list[arb], list[arb]]:
        """Balls that hold the y_i^2, and the y_i."""
        n = len(self.centred)
        least = [c.abs_lower() ** 2 for c in self.centred]
        most = [c.abs_upper() ** 2 for c in self.centred]
        fewest = sum(least, ZERO)
        all_ = sum(most, ZERO)
        squares = []
        signed = []
        for c, low, high in zip(self.centred, least, most, strict=True):
            around = n * arb(self.eps)
            below = n * low / (low + (all_ - high) + around)
            above = n * high / (high + (fewest - low).max(high / (n - 1)) + around)
            squares.append(below.union(above))
            size = below.sqrt().union(above.sqrt())
            signed.append(size if c > 0 else -size if c < 0 else above.sqrt().upper() * UNIT_BALL)
        return squares, signed
