"""Units that stand for a function of one sum: their bounds, of checker and package, against the worst execution.

Sums are off by as much as they may be, each unit rounds the worst way, and everything is known in fractions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb
from narrow_passes import ball

from onelayer.checker.precision import precise
from onelayer.checker.rounding import Execution
from onelayer.checker.terms import FormedSum, TermUnits, term_distance
from onelayer.language.formula import parse
from onelayer.lemmas.forward import Rounding
from onelayer.lemmas.units import ExecutedSum, ramps_of, term_error

U, NORMAL = 2.0**-24, 2.0**-126  # of float32


def executed(s: Fraction, knot: float, up: bool) -> Fraction:
    """relu(s - knot), rounded up or down, or lost below the normal range."""
    found = (s - Fraction(knot)) * (1 + Fraction(U) * (1 if up else -1))
    if found < Fraction(NORMAL) and not up:
        return Fraction(0)
    return max(Fraction(0), found)


class Drawn:
    """Units, a line that they are compared with, and a sum."""

    def __init__(self, rng: np.random.Generator) -> None:
        count = int(rng.integers(1, 5))
        self.low = float(rng.choice([0.0, -1.0, 3.0, 1000.0])) * float(rng.choice([1.0, 2.0**-120]))
        self.high = self.low + float(rng.choice([0.0, 1.0, 2.0**-20])) * max(abs(self.low), 1.0)
        reach = max(abs(self.low), abs(self.high))
        self.drift = float(rng.choice([0.0, 1e-9, 1e-3, 0.5])) * reach
        width = self.high - self.low
        ends = [self.low, self.high, self.low - self.drift, self.high + self.drift]
        # Some just beyond where the sum may truly be, some anywhere near it, some far off.
        near = [float(rng.choice(ends)) + self.drift * float(rng.uniform(-1.5, 1.5)) for _ in range(count)]
        inside = [self.low + width * float(rng.random()) for _ in range(count)]
        self.knots = sorted(np.where(rng.random(count) < 0.5, near, inside).tolist())
        self.changes = (rng.standard_normal(count) * 10.0 ** rng.uniform(-2, 3, count)).tolist()
        self.constant = float(rng.choice([0.0, 0.75]))
        self.line = float(rng.choice([0.0, 0.5])), float(rng.choice([0.0, -0.25]))
        self.size = reach * float(rng.choice([1.0, 4.0]))

    def text(self) -> str:
        return f"{self.line[0]}*x + ({self.line[1]})"

    def points(self) -> list[Fraction]:
        """Ends, middle and knots of the interval."""
        low, high = Fraction(self.low), Fraction(self.high)
        return [low, high, (low + high) / 2, *(s for s in map(Fraction, self.knots) if low <= s <= high)]

    def worst(self) -> tuple[Fraction, Fraction]:
        """The largest error found, and the largest sum of sizes that the units add before they round."""
        error = total = Fraction(0)
        drift = Fraction(self.drift)
        for s in self.points():
            wanted = Fraction(self.line[0]) * s + Fraction(self.line[1])
            stops = [k for k in map(Fraction, self.knots) if abs(k - s) < drift]
            for strayed in (s - drift, s, s + drift, *stops):
                for up in (False, True):
                    # Every unit rounds so that the sum becomes larger, or smaller.
                    units = [
                        Fraction(c) * executed(strayed, k, (c > 0) == up)
                        for k, c in zip(self.knots, self.changes, strict=True)
                    ]
                    error = max(error, abs(Fraction(self.constant) + sum(units) - wanted))
                open_ = [max(Fraction(0), strayed - Fraction(k)) for k in self.knots]
                total = max(total, sum((abs(Fraction(c)) * z for c, z in zip(self.changes, open_, strict=True))))
        return error, total


def by_checker(one: Drawn) -> tuple[Any, Any]:
    execution = Execution.__new__(Execution)
    execution.unit, execution.tiny, execution.sure = arb(U), arb(4 * NORMAL), True
    units = TermUnits(one.knots, [arb(c) for c in one.changes], arb(one.constant))
    formed = FormedSum(one.low, one.high, arb(one.drift), arb(one.size))
    with precise():
        return term_distance(parse(one.text(), 1), units, formed, execution)


def by_package(one: Drawn) -> tuple[Any, Any]:
    ramps = ramps_of(np.array(one.knots), np.array(one.changes), one.constant)
    # An interval of the package has two ends.
    s = ExecutedSum(one.low, one.high if one.high > one.low else np.nextafter(one.low, np.inf), one.drift, one.size)
    return tuple(map(arb, term_error(parse(one.text(), 1), ramps, s, Rounding(U, 8 * NORMAL))))


@pytest.mark.parametrize("bound", [by_checker, by_package])
def test_units_of_a_term_err_by_no_more_than_is_said(bound: Any) -> None:
    rng = np.random.default_rng(5)
    reached = []
    for _ in range(120):
        one = Drawn(rng)
        error, total = one.worst()
        said, size = bound(one)
        with precise():
            assert not ball(error) > said, vars(one)
            assert not ball(total) > size
        reached.append(float(error) / float(said) if float(said) else 1.0)
    assert np.median(reached) > 0.5
