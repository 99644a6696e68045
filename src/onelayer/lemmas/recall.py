"""Proof that a memorising layer returns the stored output at every row of its table, executed in floating point."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.lemmas.forward import SLACK, UP, Rounding, upper_bound

ALONE = 1000.0  # the gap of a token without rivals
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SoftmaxRecall:
    """Keys (2 beta z_m, -beta |z_m|^2), values y_m; the query of row r is z_r.

    Lemma. Let l_m be the executed logits of row r, and suppose l_r exceeds every other one by at least G. Then the
    executed average is within 24 u |y_r| + 8 (N - 1) e^-G max|y| of y_r, for any order of the sums. Proof. The
    exponential of l_r - max l = 0 is within 8 u of 1; the others are together at most tau = (N-1) e^-G (1 + u G). A
    rounded sum a + b errs by at most min(|a|, |b|), because a and b are floats themselves: so adding the others to
    the leading term, in whatever order, errs by at most the sum of their sizes, never by N roundings of it.
    """

    rows: int
    width: int
    beta: float
    distance: float  # lower bound of |z_r - z_m|^2
    radius: float  # largest |z|^2
    rounding: Rounding
    query_error: float = 0.0  # of the executed query, in each coordinate

    @property
    def logit_error(self) -> float:
        """Of an executed logit: stored keys, scaled query, sum; relative to the sum of absolute products."""
        # 2 z . (error of the query) <= 2 |z| sqrt(D) query_error, by Cauchy and Schwarz.
        drift = 2 * self.query_error * math.sqrt(self.width * self.radius)
        # Products below the normal range may be lost, each times a key or a coordinate.
        products = self.width + 2
        lost = 8 * products * self.rounding.tiny * (1 + self.beta) * (1 + self.radius)
        # |2 z . q| + |z|^2 <= 3 R: the absolute products of a logit, over beta.
        sizes = 3 * self.radius + drift
        relative = 2 * self.rounding.gamma(self.width + 8) * sizes
        return (relative + drift) * self.beta + lost

    def gap(self) -> float:
        """Lower bound of G: l_r - l_m = beta |z_r - z_m|^2 in real arithmetic."""
        if self.rows == 1:
            return ALONE
        real = self.beta * self.distance * (1 - 2.0**-40)
        return real - 2 * self.logit_error

    def error(self, largest: float) -> float:
        """Bound of |T - y| at every row, for outputs of size at most ``largest``."""
        gap = self.gap()
        if not gap > 1:
            return math.inf
        unit = self.rounding.unit
        # Weights of all other rows together; an executed exponential of -gap has a rounded argument.
        rounded_argument = 1 + gap * 2 * unit
        others = (self.rows - 1) * math.exp(-gap) * rounded_argument * 2
        flushed = 16 * self.rounding.tiny * self.rows * (1 + largest)
        total = (24 * unit + 8 * others) * largest + flushed
        return upper_bound(SLACK * total * UP)


def wanted_gap(rows: int, rounding: Rounding) -> float:
    """The gap at which the other tokens weigh less than a rounding."""
    return math.log(8 * rows) - math.log(rounding.unit)


@dataclass(frozen=True)
class ReluRecall:
    """F(s) = offset + sum_u coefficients[u] relu(s - knots[u]) through (knots[r], outputs[r]), s = p . x.

    Lemma. At row r the executed layer is within |F(s_r) - y_r| + L_r e + gamma_N sum_u |c_u| relu(s_r + e - t_u) of
    y_r, where e bounds the error of the executed projection and is less than half the gap to the neighbours, and L_r is
    the larger slope of F beside s_r. The first term is computed exactly in whole numbers.
    """

    knots: Floats  # (N,) ascending: the projections of the rows; the last one carries no unit
    outputs: Floats  # (N, K)
    offset: Floats  # (K,)
    coefficients: Floats  # (N - 1, K)
    projection_error: float
    rounding: Rounding

    @np.errstate(all="ignore")
    def error(self) -> float:
        """Bound of |T - y| over all rows and outputs; what overflows on the way bounds nothing."""
        gaps = np.diff(self.knots)
        # Twice the room that the lemma asks for; a row that reaches its neighbour is not told apart from it.
        if len(gaps) and not 4 * self.projection_error < float(gaps.min()):
            return math.inf
        worst = 0.0
        for k in range(self.outputs.shape[1]):
            worst = max(worst, self._output(k, gaps))
        return worst

    def _output(self, k: int, gaps: Floats) -> float:
        """The lemma for one output, at the worst row."""
        c = self.coefficients[:, k]
        y = self.outputs[:, k]
        size = np.abs(c)
        exact, slopes = exact_path(self.knots, float(self.offset[k]), c, y)
        # F is constant before the first knot and carries no unit at the last one.
        left = np.abs(np.concatenate([[0.0], slopes]))
        right = np.abs(np.concatenate([slopes, [0.0]]))
        drift = np.maximum(left, right) * (2 * self.projection_error)
        # Sums of sizes up to row r: sum_{u < r} |c_u| (t_r + e - t_u), built up piece by piece; all terms are >= 0.
        mass = np.concatenate([[0.0], np.cumsum(size)])
        pieces = np.cumsum(mass[1:] * gaps)
        up_to = np.concatenate([[0.0], pieces])
        reach = up_to + mass * 2 * self.projection_error
        summed = reach * UP + abs(self.offset[k]) + np.abs(y)
        bound = self.rounding.gamma(len(c) + 6) * summed
        largest = float(size.max(initial=0.0))
        tiny = len(c) * self.rounding.tiny * (1 + largest)
        errors = exact + SLACK * (drift * UP + bound) + tiny
        return upper_bound(float(errors.max()) * UP)


def exact_path(knots: Floats, offset: float, coefficients: Floats, outputs: Floats) -> tuple[Floats, Floats]:
    """|F(t_r) - y_r| rounded up, and the slopes of F on the pieces, from exact integer arithmetic."""
    shift = 1074  # every float64 is a whole multiple of 2^-1074
    t, c, y = ([_whole(v, shift) for v in array.tolist()] for array in (knots, coefficients, outputs))
    # Values of F are sums of products of two such numbers, multiples of 2^-2148; slopes are sums of single ones.
    wanted = [one << shift for one in y]
    value = _whole(offset, shift) << shift
    slope = 0
    errors = [abs(value - wanted[0])]
    slopes = []
    for r, step in enumerate(c):
        slope += step
        value += slope * (t[r + 1] - t[r])
        errors.append(abs(value - wanted[r + 1]))
        slopes.append(slope)
    # Rounded up: a quotient is correctly rounded, or lost below the smallest float.
    up = 1 + 2.0**-50
    distances = np.array([_ratio(e, 1 << 2 * shift) for e in errors]) * up + 2.0**-1070
    return distances, np.array([_ratio(s, 1 << shift) for s in slopes])


def _whole(value: float, shift: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    return (numerator << shift) // denominator


def _ratio(numerator: int, denominator: int) -> float:
    """The quotient of two whole numbers, correctly rounded; infinite beyond the largest float."""
    try:
        return numerator / denominator
    except OverflowError:
        if numerator > 0:
            return math.inf
        return -math.inf
