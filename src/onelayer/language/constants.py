"""Real constants of the formula language: a float64 and a radius, so that the real number is enclosed."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RealConstant:
    """The real number named ``name`` lies within ``radius`` of the float64 ``value``."""

    name: str
    value: float
    radius: float


# Half a unit in the last place bounds the distance to the nearest float64; a whole one is safe and as small.
PI = RealConstant("pi", math.pi, math.ulp(math.pi))
E = RealConstant("e", math.e, math.ulp(math.e))
