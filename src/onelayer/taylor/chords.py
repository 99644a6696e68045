"""Lines beside S-shaped functions: g(x) = slope x + [low, high] on an interval of any width.

On a wide interval the Taylor series of tanh is useless and its image [-1, 1] forgets x; the chord between the ends
keeps most of the correlation. Let g be odd, convex on x <= 0, concave on x >= 0, and h(x) = g(x) - slope x on [a, b].
Lemma. On the convex side h is largest at an end. On the concave side h lies below its tangent at any point t of it:
    h(x) <= h(t) + (g'(t) - slope)(x - t),
whose maximum is at an end, and is h(t) itself where g'(t) = slope. The minimum follows from -h(-x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.float64 import TINY, UNIT

ROUNDINGS = 256 * UNIT  # relative: values within 8 units, slopes within 40, and a handful of operations on them

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Chord:
    """g(x) - slope x lies in [low, high] on the interval that it was made for."""

    slope: Tensor
    low: Tensor
    high: Tensor

    def scaled(self, outer: float, inner: float, shift: float) -> Chord:
        """The chord of shift + outer g(inner x), for powers of two and outer, inner > 0."""
        low = shift + outer * self.low - TINY
        high = shift + outer * self.high + TINY
        return Chord(self.slope * (outer * inner), low, high)


@dataclass(frozen=True)
class SShape:
    """An odd function that rises, convex below 0 and concave above: its value, its slope, and where it has a slope."""

    value: Function
    slope: Function
    point: Function  # of a slope in (0, g'(0)]: the x >= 0 at which g has it

    def chord(self, low: Tensor, high: Tensor) -> Chord:
        """The chord of the interval, and how far g leaves it on either side."""
        width = high - low
        slope = (self.value(high) - self.value(low)) / torch.where(width > 0, width, 1.0)
        slope = torch.minimum(slope.clamp(min=0.0), self.slope(torch.zeros_like(slope)))
        above = self._above(slope, low, high)
        below = self._above(slope, -high, -low)
        return Chord(slope, -below, above)

    def _above(self, slope: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """An upper bound of h on [low, high]."""
        largest = torch.maximum(low.abs(), high.abs())
        convex = torch.maximum(self._over(slope, low), self._over(slope, high.clamp(max=0.0)))
        # The tangent where g has the slope, moved onto the concave side; any point of it is as true, and less tight.
        left = low.clamp(min=0.0)
        parallel = self.point(slope.clamp(min=TINY))
        t = torch.minimum(torch.maximum(parallel, left), high.clamp(min=0.0))
        excess = self.slope(t) - slope
        rest = torch.maximum(excess * (high - t), excess * (left - t))
        tangent = self._over(slope, t) + rest
        reach = torch.where(low < 0, convex, -torch.inf)
        concave = torch.where(high > 0, tangent, self._over(slope, high))
        reach = torch.maximum(reach, concave)
        return reach + (1.0 + largest) * ROUNDINGS

    def _over(self, slope: Tensor, x: Tensor) -> Tensor:
        return self.value(x) - slope * x


def _bell(x: Tensor) -> Tensor:
    return 1 / torch.cosh(x) ** 2


ERF_SLOPE = 1.1283791670955126  # 2 / sqrt(pi), the slope of erf at 0


def _tanh_point(slope: Tensor) -> Tensor:
    """tanh' = 1 - tanh^2."""
    return torch.atanh(torch.sqrt((1 - slope).clamp(0.0, 1.0 - UNIT)))


def _erf_slope(x: Tensor) -> Tensor:
    return torch.exp(-x * x) * ERF_SLOPE


def _erf_point(slope: Tensor) -> Tensor:
    return torch.sqrt((-torch.log(slope / ERF_SLOPE)).clamp(min=0.0))


def _atan_slope(x: Tensor) -> Tensor:
    return 1 / (1 + x * x)


def _atan_point(slope: Tensor) -> Tensor:
    return torch.sqrt((1 / slope - 1).clamp(min=0.0))


TANH = SShape(torch.tanh, _bell, _tanh_point)
ERF = SShape(torch.erf, _erf_slope, _erf_point)
ATAN = SShape(torch.atan, _atan_slope, _atan_point)
