"""The precision of the checker's balls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from onelayer.ground import ball_precision

BITS = 128  # of every ball: more than twice the digits of float64, so that the checker's own rounding never decides
TERMS = 40  # of every power series: more than any order of the Taylor arithmetic asks for


@contextmanager
def precise() -> Iterator[None]:
    """The precision of balls; an infinity or NaN of NumPy is no warning but a number that satisfies no comparison."""
    with ball_precision(BITS, TERMS), np.errstate(all="ignore"):
        yield
