"""log(1 + e^x) of elements in the checker's arithmetic, on wide boxes and far from zero too."""

from __future__ import annotations

from flint import arb, arb_series

from onelayer.checker.arithmetic import ZERO, Taylor
from onelayer.checker.elements import Element, chained, smooth
from onelayer.checker.functions import compose, sigmoid_rule

BETWEEN = arb(0.5, 0.5)  # [0, 1]


def softplus(u: Element) -> Element:
    """log(1 + e^u), whose slope is the logistic function: the better of its expansion and a strip along its chord."""
    if not isinstance(u, Taylor):
        return chained(u, softplus(u.value), smooth("sigmoid", u.value))
    found = compose(_series, u, None, _rule) if u.support else Taylor((), [at(u.c[0])], u.order)
    low, high = u.ends()
    if not (low.is_finite() and high.is_finite() and low < high):
        return found
    strip = _strip(u, low, high)
    return found if found.c[0].rad() <= strip.c[0].rad() else strip


def at(x: arb) -> arb:
    """The values on a ball: max(x, 0) + log(1 + e^-|x|) overflows nowhere."""
    return x.max(ZERO) + (-abs(x)).exp().log1p()


def _series(x: arb_series) -> arb_series:
    return (1 + x.exp()).log()


def _rule(x: arb, n: int, c: arb, a: arb) -> arb:
    """The coefficients are those of the logistic function, a_n = b_(n-1) / n."""
    return BETWEEN if n == 1 else sigmoid_rule(x, n - 1, c, a) / n


def _strip(u: Taylor, low: arb, high: arb) -> Taylor:
    """s u + [bottom, top] for u in [low, high] and any s.

    h(x) = log(1 + e^x) - s x is convex: largest at an end, and above each tangent h(t) + h'(t) (x - t).
    """
    s = ((at(high) - at(low)) / (high - low)).mid()
    top = (at(low) - s * low).max(at(high) - s * high)
    # Where the slope is about s; a number that is none becomes an end.
    t = (s / (1 - s)).log().mid()
    if not t > low:
        t = low
    elif not t < high:
        t = high
    excess = 1 / (1 + (-t).exp()) - s
    bottom = at(t) - s * t + (excess * (low - t)).min(excess * (high - t))
    return u.scaled(s).shifted(bottom.union(top))
