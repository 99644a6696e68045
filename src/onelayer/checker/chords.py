"""S-shaped functions on wide boxes, in the checker's own arithmetic: a line and two numbers, or the image alone.

Let g be odd, convex below 0 and concave above, and h(x) = g(x) - s x for any number s. On the convex side h is largest
at an end; on the concave side it stays below h(t) + (g'(t) - s)(x - t) for every t there. So is -h(-x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, constant

NARROW = 16  # times narrower than the image: an expansion that good is kept
WIDER = arb(1.5)  # times the image: what an expansion may range over for the sake of its polynomial
HALF = arb(0.5)

Map = Callable[[arb], arb]


@dataclass(frozen=True)
class Sigmoidal:
    """g + level: g rises, is odd, bends as above; ``slope`` is g', ``point`` an x >= 0 at which g has about a slope.

    ``whole`` is g + level where their sum would cancel.
    """

    value: Map
    slope: Map
    point: Map
    level: arb = ZERO
    whole: Map | None = None

    def __call__(self, u: Taylor, low: arb, high: arb, found: Taylor) -> Taylor:
        """The better of the expansion ``found``, the line between the ends, and the image, for u in [low, high]."""
        low = low.lower()
        high = high.upper()
        if not (low.is_finite() and high.is_finite() and low < high):
            return found
        whole = self.whole or self.value
        image = whole(low).union(whole(high))
        if found.c[0].rad() < image.rad() / NARROW:
            return found
        # The slope of the chord, about: any number is sound.
        s = ((self.value(high) - self.value(low)) / (high - low)).mid()
        gap = (-self._above(s, -high, -low)).union(self._above(s, low, high))
        line = u.scaled(s).shifted(gap + self.level)
        best = line if not found.c[0].rad() <= line.c[0].rad() else found
        if not best.c[0].rad() <= image.rad() * HALF:
            return constant(image, u.order)
        return best

    def _above(self, s: arb, low: arb, high: arb) -> arb:
        """A number above h on [low, high]."""
        tops = [self._over(s, high)]
        if low < 0:
            tops.append(self._over(s, low))
        # h(0), where the two sides meet.
        if low < 0 < high:
            tops.append(ZERO)
        if high > 0:
            left = low.max(ZERO).mid()
            # The tangent where h is about largest; written so that a point that is no number becomes an end.
            t = self.point(s).mid()
            if not t > left:
                t = left
            elif not t < high:
                t = high
            excess = self.slope(t) - s
            rise = (excess * (high - t)).max(excess * (left - t))
            tops.append(self._over(s, t) + rise)
        largest = tops[0]
        for top in tops[1:]:
            largest = largest.max(top)
        return largest.upper()

    def _over(self, s: arb, x: arb) -> arb:
        return self.value(x) - s * x


def _bell(x: arb) -> arb:
    return 1 / x.cosh() ** 2


def logistic(x: arb) -> arb:
    """1 / (1 + e^-x) of a ball by what does not overflow."""
    decay = (-abs(x)).exp()
    return (decay if x < 0 else 1) / (1 + decay) if x < 0 or x >= 0 else 1 / (1 + (-x).exp())


TANH = Sigmoidal(arb.tanh, _bell, lambda s: (1 - s).sqrt().atanh())
SIGMOID = Sigmoidal(
    lambda x: (x / 2).tanh() / 2, lambda x: _bell(x / 2) / 4, lambda s: 2 * (1 - 4 * s).sqrt().atanh(), HALF, logistic
)
ERF = Sigmoidal(
    arb.erf, lambda x: 2 / arb.pi().sqrt() * (-x * x).exp(), lambda s: (-(s * arb.pi().sqrt() / 2).log()).sqrt()
)
ATAN = Sigmoidal(arb.atan, lambda x: 1 / (1 + x * x), lambda s: (1 / s - 1).sqrt())


def within_bell(shape: Sigmoidal, u: Taylor, found: Taylor) -> Taylor:
    """g'(u) by its image where ``found`` is hardly narrower, or ranges wider: g' falls on either side of 0."""
    low = u.ends()[0].lower()
    high = u.ends()[1].upper()
    if not (low.is_finite() and high.is_finite()):
        return found
    near = low.max(-high).max(ZERO)
    image = shape.slope(near).union(shape.slope((-low).max(high)))
    sharp = found.c[0].rad() <= image.rad() * HALF and found.range().rad() <= image.rad() * WIDER
    return found if sharp else constant(image, u.order)
