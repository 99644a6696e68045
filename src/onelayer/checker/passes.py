"""A forward pass of a network in floating point, beside that of a layer: who counts its roundings and its overflow."""

from __future__ import annotations

from flint import arb

from onelayer.checker.formats import BY_ARITHMETIC
from onelayer.checker.rounding import INFINITE, Execution

HEADROOM = 2.0**12  # of the largest number of a format: what a step computes on its way stays below it


class NetworkPass(Execution):
    """A forward pass of a network: every step checks for itself that nothing overflows."""

    def __init__(self, arithmetic: str) -> None:
        row = BY_ARITHMETIC[arithmetic]
        self.unit = arb(row.unit)
        self.tiny = arb(4 * row.normal)
        self.kind = row.kind
        self.most = arb(row.largest / HEADROOM)
        self.sure = True  # as far as bounds ask, which the steps do not leave to them

    def rounded(self, size: arb, error: arb, roundings: int) -> arb:
        """The error of a result that erred already, after some roundings of numbers of this size."""
        reach = size + error
        if not reach < self.most:
            return INFINITE
        return (error + self.gamma(roundings) * reach + (roundings + 1) * self.tiny).upper() if roundings else error
