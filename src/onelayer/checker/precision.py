"""The precision of the checker's balls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from flint import ctx

BITS = 128  # of every ball: more than twice the digits of float64, so that the checker's own rounding never decides


@contextmanager
def precise() -> Iterator[None]:
    """The precision of balls; an infinity or NaN of NumPy is no warning but a number that satisfies no comparison."""
    bits = ctx.prec
    cap = ctx.cap
    ctx.prec = BITS
    ctx.cap = 40
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        ctx.prec = bits
        ctx.cap = cap
