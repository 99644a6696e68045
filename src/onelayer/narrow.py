"""Numbers of narrow formats, float16 and bfloat16: a layer holds them, and computes in their accumulator.

Every operation of a layer widens what it reads, which is exact, computes in float32, and rounds what it returns once.
The casts are written out, so that no kernel of torch decides where numbers are rounded: on every device the pass is
one in float32, with roundings at known places.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.formats import FORMATS

ACCUMULATORS = {row.dtype: row.computing.dtype for row in FORMATS if row.accumulator is not None}


def widened(x: Tensor) -> Tensor:
    """The same numbers in the format that a layer computes in."""
    wide = ACCUMULATORS.get(x.dtype)
    if wide is None:
        return x
    return x.to(wide)


def held(y: Tensor, like: Tensor) -> Tensor:
    """What an operation returns to the layer: rounded once where ``like`` is of a narrow format."""
    if like.dtype in ACCUMULATORS:
        return y.to(like.dtype)
    return y


def linear(x: Any, w: Tensor, b: Tensor) -> Any:
    """x W + b, (..., n) -> (..., m).

    A map that selects is exact in any format; enclosures take it as it stands, so that they need not round it.
    """
    enclosed = not isinstance(x, Tensor)
    exact = x.dtype not in ACCUMULATORS or (enclosed and selects(w, b))
    if exact:
        return F.linear(x, w.transpose(0, 1), b)
    w = widened(w).transpose(0, 1)
    wide = F.linear(widened(x), w, widened(b))
    return held(wide, x)


def selects(w: Tensor, b: Tensor | None) -> bool:
    """Whether every entry of x W + b is a constant, or one entry of x times a power of two."""
    counts = (w != 0).sum(0)
    if b is not None:
        counts = counts + (b != 0)
    # The mantissa of a power of two is a half.
    mantissas = torch.frexp(w.double())[0].abs()
    shifts = (w == 0) | (mantissas == 0.5)
    return bool((counts <= 1).all()) and bool(shifts.all())
