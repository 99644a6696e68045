"""Real constants of the formula language: a float64 and a radius, so that the real number is enclosed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flint import arb


@dataclass(frozen=True, slots=True)
class RealConstant:
    """The real number lies within ``radius`` of the float64 ``value``; ``ball()`` holds it at any precision."""

    value: float
    radius: float
    ball: Callable[[], arb]
    spellings: tuple[str, ...]


# Half a unit in the last place bounds the distance to the nearest float64; a whole one is safe and as small.
CONSTANTS = {
    "pi": RealConstant(math.pi, math.ulp(math.pi), arb.pi, ("pi", "π")),
    "e": RealConstant(math.e, math.ulp(math.e), arb.const_e, ("e",)),
}
SPELLED: dict[str, str] = {}
for _name, _constant in CONSTANTS.items():
    SPELLED |= dict.fromkeys(_constant.spellings, _name)
