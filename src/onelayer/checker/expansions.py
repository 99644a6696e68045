"""Taylor coefficients of functions at many centres at once, and bounds of their remainders, with counted rounding.

Everything is an array over the boxes. For phi at c: ``middle[n]`` and ``radius[n]`` hold the n-th Taylor coefficient
for n <= k, and ``rest`` is a number with |phi(c + h) - sum_{n <= k} a_n h^n| <= rest |h|^(k+1) for all c + h in
[low, high]; NaN where phi may be undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from onelayer.checker.spans import SLACK, TINY, UNIT, Floats, above, exponential_above

STEP = 8 * UNIT  # relative error of a few operations in a row, generously


@dataclass(frozen=True)
class Places:
    """Where a function is expanded: centres, numbers below and above all arguments, and the order k."""

    centre: Floats
    low: Floats
    high: Floats
    order: int

    def least(self) -> Floats:
        """A lower bound of |argument|; NaN where the sign is open or differs from that of the centre."""
        same = ((self.low > 0) & (self.centre > 0)) | ((self.high < 0) & (self.centre < 0))
        return np.where(same, np.maximum(self.low, -self.high), np.nan)


@dataclass(frozen=True)
class Expansion:
    """See the head of this file."""

    middle: Floats
    radius: Floats
    rest: Floats


Rows = list[Floats]


def _from_rows(rows: Rows, rest: Floats, relative: float) -> Expansion:
    """Coefficients of which the n-th has made (n + 1) steps of this relative error."""
    middle = np.stack(rows)
    ones = [1] * (middle.ndim - 1)
    steps = np.arange(1, len(rows) + 1, dtype=np.float64).reshape(-1, *ones)
    return Expansion(middle, above(np.abs(middle) * steps * relative), rest)


def values(function: Callable[[arb], arb], x: Floats) -> Floats:
    """The function by Arb, within 2^-51 of itself, relatively; NaN where Arb knows less."""
    found = []
    for one in x.ravel().tolist():
        ball = function(arb(one))
        found.append(float(ball) if ball.rel_accuracy_bits() > 60 else math.nan)
    return np.array(found).reshape(x.shape)


def _exponential(at: Places) -> Expansion:
    """a_n = exp(c) / n!; the derivatives rise, so the remainder has that of the upper end."""
    rows = [values(arb.exp, at.centre)]
    for n in range(1, at.order + 2):
        rows.append(rows[-1] / n)
    rise = exponential_above(np.maximum(at.high - at.centre, 0.0) * SLACK)
    return _from_rows(rows[:-1], above(above(rows[-1]) * rise), STEP)


def _inverse(at: Places) -> Expansion:
    """1/u = sum (-h)^n / c^(n+1) + (-h)^(k+1) / (c^(k+1) u), for all c and u that are not zero."""
    one = 1 / at.centre
    rows = [one]
    for _ in range(at.order + 1):
        rows.append(-rows[-1] * one)
    rest = above(np.abs(rows[at.order])) / at.least()
    return _from_rows(rows[: at.order + 1], above(rest), STEP)


def _averaged(rows: Rows, at: Places) -> Expansion:
    """log, sqrt and 1/sqrt: the factor of h^n is at most max(1, c/u) |a_n(c)| for n >= 2 (see functions.py)."""
    least = np.where(at.low > 0, at.least(), np.nan)
    rest = above(np.abs(rows[-1])) * np.maximum(1.0, at.centre / least)
    return _from_rows(rows[:-1], above(rest), STEP)


def _logarithm(at: Places) -> Expansion:
    one = 1 / at.centre
    rows = [values(arb.log, at.centre)]
    power = -np.ones_like(one)
    for n in range(1, at.order + 2):
        power = -power * one
        rows.append(power / n)
    return _averaged(rows, at)


def _root(exponent: float) -> Callable[[Places], Expansion]:
    """c^p for p = 1/2 or -1/2: a_(n+1) = a_n (p - n) / ((n + 1) c)."""

    def expansion(at: Places) -> Expansion:
        root = np.sqrt(at.centre)
        rows = [root if exponent > 0 else 1 / root]
        for n in range(at.order + 1):
            rows.append(rows[-1] * (exponent - n) / (n + 1) / at.centre)
        return _averaged(rows, at)

    return expansion


def _wave(quarter: int) -> Callable[[Places], Expansion]:
    """sin (0) and cos (1): the derivatives are each other, up to sign, and at most 1."""

    def expansion(at: Places) -> Expansion:
        pair = values(arb.sin, at.centre), values(arb.cos, at.centre)
        rows = []
        for n in range(at.order + 1):
            # sin, cos, -sin, -cos.
            turn = (n + quarter) % 4
            derivative = pair[turn % 2] if turn < 2 else -pair[turn % 2]
            rows.append(derivative / math.factorial(n))
        inside = np.isfinite(at.low) & np.isfinite(at.high)
        return _from_rows(rows, np.where(inside, SLACK / math.factorial(at.order + 1), np.nan), STEP)

    return expansion


EXPANSIONS: dict[str, Callable[[Places], Expansion]] = {
    "exp": _exponential,
    "inv": _inverse,
    "log": _logarithm,
    "sqrt": _root(0.5),
    "rsqrt": _root(-0.5),
    "sin": _wave(0),
    "cos": _wave(1),
}


def by_balls(coefficients: Callable[[arb, int], list[arb]], rule: Any, at: Places) -> Expansion:
    """Any other function: its power series in balls, one centre after the other; the remainder on a ball around all."""
    n = at.order + 1
    shape = at.centre.shape
    middle = np.empty((n, at.centre.size))
    radius = np.empty((n, at.centre.size))
    rest = np.empty(at.centre.size)
    ends = (np.broadcast_to(side, shape).ravel().tolist() for side in (at.centre, at.low, at.high))
    for place, (c, low, high) in enumerate(zip(*ends, strict=True)):
        reached = arb(low).union(arb(high)).union(arb(c))
        a = coefficients(arb(c), n + 1)
        b = coefficients(reached, n + 1)[n]
        known = rule(reached, n, arb(c), a[n]) if rule is not None else None
        if known is not None:
            b = b.intersection(known) if b.is_finite() and b.overlaps(known) else known
        for row in range(n):
            middle[row, place] = float(a[row])
            radius[row, place] = float(a[row].rad()) if a[row].is_finite() else math.nan
        rest[place] = float(b.abs_upper()) if b.is_finite() else math.nan
    # A middle was rounded to a float, and a radius too: STEP and ``above`` cover both, TINY what was below all floats.
    radius = above(radius + np.abs(middle) * STEP) + TINY
    rest = np.asarray(above(rest))
    return Expansion(middle.reshape(n, *shape), radius.reshape(n, *shape), rest.reshape(shape))
