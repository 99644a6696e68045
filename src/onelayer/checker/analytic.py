"""The checker's own sinrel, exprel, cube root and logarithm of gamma: power series, values and remainders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from flint import arb, arb_series

from onelayer.checker.arithmetic import UNIT_BALL, ZERO, Taylor, constant

CLOSE = 16  # up to here the power series at zero is summed: what it cancels, 16 / log(2) bits, balls can spare
TERMS = 120  # of it: 16^120 / 120! < 1e-54
EVERYTHING = arb(0, arb.pos_inf())


def mean_series(signs: Sequence[int], h: Callable[[arb_series], arb_series]) -> Callable[[arb_series], arb_series]:
    """The power series of (h(u) - h(0)) / u = sum_m s_m u^m / (m + 1)!, of period four in the signs.

    At c its n-th coefficient is sum_{m >= n} s_m binomial(m, n) c^(m - n) / (m + 1)!; from the term number 120 on each
    is less than half the one before where |c| <= 16.
    """

    def series(x: arb_series) -> arb_series:
        c = x[0]
        length = x.prec
        if not c.abs_upper() <= CLOSE:
            return (h(x) - h(arb_series([0], length))[0]) / x
        return arb_series([_coefficient(signs, c, n) for n in range(length)], length)

    return series


def _coefficient(signs: Sequence[int], c: arb, n: int) -> arb:
    total = arb(0)
    for m in range(n + TERMS - 1, n - 1, -1):
        factor = arb(math.comb(m, n)) / math.factorial(m + 1)
        total = total * c + signs[m % 4] * factor
    # Twice the first term that is left out: each is less than half the one before.
    beyond = c.abs_upper() ** TERMS * math.comb(n + TERMS, n) / math.factorial(n + TERMS + 1)
    return total + UNIT_BALL * (2 * beyond)


def sinrel_rule(x: arb, n: int, c: arb, a: arb, k: int = 0) -> arb:
    """Of the k-th derivative a_n is the mean of t^(n + k) cos^(n + k)(ut) / n! over 0 <= t <= 1."""
    return UNIT_BALL / ((n + k + 1) * math.factorial(n))


def exprel_rule(x: arb, n: int, c: arb, a: arb, k: int = 0) -> arb:
    """Of the k-th derivative a_n is the mean of t^(n + k) exp(ut) / n!: positive, and it rises with u."""
    return arb(0.5, 0.5) * x.upper().exp().max(arb(1)) / ((n + k + 1) * math.factorial(n))


def differentiated(series: Callable[[arb_series], arb_series], k: int) -> Callable[[arb_series], arb_series]:
    """The power series of the k-th derivative at a point: that of the function with k terms more, differentiated."""

    def found(x: arb_series) -> arb_series:
        derivative = series(arb_series([x[0], 1], x.prec + k))
        for _ in range(k):
            derivative = derivative.derivative()
        return derivative

    return found


def sinrel_ball(x: arb) -> arb:
    """The mean of cos(ut): between -1 and 1, and 1 within u^2/6 where u may vanish."""
    if not x.is_finite():
        return arb("nan")
    if not x.contains(0):
        return x.sin() / x
    reach = x.abs_upper()
    return (1 - arb(0.5, 0.5) * reach * reach / 6).intersection(UNIT_BALL)


def exprel_end(x: arb) -> arb:
    """exprel of a short ball: the mean value theorem where it holds zero, and exp(|u|)/2 bounds the slope."""
    if not x.contains(0):
        return x.expm1() / x
    reach = x.abs_upper()
    return arb(1) + UNIT_BALL * (reach * reach.exp() / 2)


def _sign(x: arb) -> int:
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0


def cbrt_series(x: arb_series) -> arb_series:
    """exp(log(x) / 3) for x > 0, and its mirror image for x < 0."""
    sign = _sign(x[0])
    if not sign:
        raise ValueError("the cube root has no power series at zero")
    return sign * ((sign * x).log() / 3).exp()


def cbrt_end(x: arb) -> arb:
    """The cube root of a ball: of its two ends, between which it rises."""
    low, high = (x, x) if x.rad() == 0 else (x.lower(), x.upper())
    return _root(low).union(_root(high))


def _root(x: arb) -> arb:
    sign = _sign(x)
    if sign:
        return (sign * x).root(3) * sign
    if x.is_zero():
        return ZERO
    return arb("nan")


def cbrt_at_zero(u: Taylor, low: arb, high: arb, found: Taylor) -> Taylor:
    """The cube root where the expansion fails: close to zero its image is better."""
    if not (low.is_finite() and high.is_finite()):
        return found
    image = cbrt_end(low).union(cbrt_end(high))
    if found.c[0].rad() < image.rad():
        return found
    return constant(image, u.order)


def lgamma_series(x: arb_series) -> arb_series:
    """Arb's own, for positive numbers."""
    if not x[0] > 0:
        raise ValueError("log-gamma is taken of positive numbers")
    return x.lgamma()


def lgamma_ball(x: arb) -> arb:
    """The logarithm of gamma of positive numbers: convex, so below its ends, and above -0.1215."""
    if not x > 0:
        return arb("nan")
    whole = x.lgamma()
    hull = x.lower().lgamma().union(x.upper().lgamma())
    # The minimum -0.12148629053584960... is at 1.46163..., and counts unless the ball is surely beside it.
    beside = x.lower() > 1.4617 or x.upper() < 1.4616
    if not beside:
        hull = hull.union(arb("-0.1214862905358497"))
    if whole.is_finite() and whole.overlaps(hull):
        return whole.intersection(hull)
    return hull


def lgamma_rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """|a_n| = zeta(n, x) / n <= (x^-n + x^(1-n) / (n - 1)) / n for n >= 2, where x is smallest."""
    low = x.lower()
    if n < 2 or not low > 0:
        return EVERYTHING
    return UNIT_BALL * (low**-n + low ** (1 - n) / (n - 1)) / n
