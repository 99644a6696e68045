"""Functions at the ends of their domains, where they are continuous and no power series converges."""

from __future__ import annotations

from collections.abc import Callable

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, constant

# (u, numbers below and above its values, the expansion) -> the better enclosure
Edge = Callable[[Taylor, arb, arb, Taylor], Taylor]


def root_at_zero(u: Taylor, low: arb, high: arb, found: Taylor) -> Taylor:
    """sqrt(u) where the expansion may fail: close to zero its chord is better."""
    if low >= 0 and not found.c[0].rad() < (high.sqrt() - low.sqrt()) / 8:
        return _root_above_chord(u, low, high)
    return found


def _root_above_chord(u: Taylor, low: arb, high: arb) -> Taylor:
    """sqrt(u) for u in [low, high], low >= 0, where the expansion fails at zero.

    With a = sqrt(low), b = sqrt(high): sqrt is concave, so it lies above its chord (u + a b) / (a + b), by at most
    (b - a)^2 / (4 (a + b)), attained where the tangent is parallel.
    """
    a = low.sqrt()
    b = high.sqrt()
    if not b > 0:
        return constant(ZERO, u.order)
    slope = (1 / (a + b)).mid()
    # sqrt(u) - slope u is v - slope v^2 in v = sqrt(u): smallest at an end of [a, b], largest at 1 / (2 slope).
    ends = (a - slope * a * a).min(b - slope * b * b)
    return u.scaled(slope).shifted(ends.union(1 / (4 * slope)))


def arc_at_one(ball: Callable[[arb], arb]) -> Edge:
    """asin and acos where the expansion may fail: close to -1 and 1 their image is better."""

    def edge(u: Taylor, low: arb, high: arb, found: Taylor) -> Taylor:
        if not (low >= -1 and high <= 1):
            return found
        image = ball(low).union(ball(high))
        return found if found.c[0].rad() < image.rad() else constant(image, u.order)

    return edge
