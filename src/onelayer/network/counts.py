"""Whole numbers that depend on how many points a batch has: a multiple of that number, or refused.

The sizes of a batch of any size are such numbers. They are carried as they are through what exporters compute of sizes,
so that nothing is known of the number but that it is one or more. A comparison at one size or at two would not tell
(B - 1) (B - 2) from nothing.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from onelayer.errors import FileError
from onelayer.network.builder import Value

MIXED = "it mixes the points of a batch, or counts them; each must be treated alone"


def mixed(*_: Any) -> NoReturn:
    """Whatever may depend on how many points there are, or on another point."""
    raise FileError(MIXED)


class Count:
    """``each`` B, for the number B >= 1 of points; whatever is no such multiple or no plain number is refused."""

    __slots__ = ("each",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, each: int) -> None:
        self.each = each

    def __mul__(self, other: Any) -> Any:
        if type(other) is not int or other < 0:
            mixed()
        return Count(self.each * other) if other else 0

    def __add__(self, other: Any) -> Count:
        return self if type(other) is int and other == 0 else mixed()

    def __mod__(self, other: Any) -> int:
        return 0 if type(other) is int and other > 0 and self.each % other == 0 else mixed()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Count):
            return self.each == other.each
        # B may be one: each B is more than every number below ``each``, and may be any other multiple.
        return False if type(other) is int and other < self.each else mixed()

    __rmul__, __radd__, __sub__ = __mul__, __add__, __add__
    __rsub__ = __rmod__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = mixed
    __neg__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __int__ = __float__ = __index__ = mixed


def divided(a: Any, b: Any) -> Any:
    """The quotient of two whole numbers towards zero."""
    if isinstance(a, Count) and isinstance(b, Count):
        return a.each // b.each
    if isinstance(a, Count):
        return Count(a.each // b) if type(b) is int and b > 0 and a.each % b == 0 else mixed()
    if isinstance(b, Count) or b == 0:
        mixed()
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def counted(x: Any) -> bool:
    """Whether some of these numbers depend on how many points there are."""
    return isinstance(x, np.ndarray) and x.dtype == object and any(isinstance(v, Count) for v in x.flat)


def settled(x: Any) -> Any:
    """Plain numbers as such, where none of them is left that depends on how many points there are."""
    if x is None or isinstance(x, Value) or np.asarray(x).dtype != object:
        return x
    found = np.asarray(x)
    if counted(found):
        return found
    return np.array(list(found.flat), dtype=np.int64).reshape(found.shape)


def at_one(x: Any) -> Any:
    """Sizes as a batch of one point has them."""
    if not counted(x):
        return x
    sizes = [v.each if isinstance(v, Count) else v for v in x.flat]
    return np.array(sizes, dtype=np.int64).reshape(x.shape)
