"""Dimensions and shapes as torch names and joins them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from onelayer.taylor.core import TaylorModel


def axes(x: TaylorModel, dim: Any) -> list[int]:
    """The dimensions that torch would reduce: one, several, or all for None and for an empty list."""
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(x.ndim))
    given = dim if isinstance(dim, Sequence) else [dim]
    return [axis(x, d) for d in given]


def axis(x: TaylorModel, dim: Any, extra: int = 0) -> int:
    """One dimension counted from the front, of ``extra`` more than the model has."""
    ndim = x.ndim + extra
    if isinstance(dim, bool) or not isinstance(dim, int) or not -ndim <= dim < ndim:
        raise IndexError(f"no dimension {dim!r} in {ndim}")
    return dim % ndim


def joint_shape(a: torch.Size, b: torch.Size) -> torch.Size:
    """Broadcast shape of two shapes."""
    if a == b:
        return a
    # By NumPy: torch's own imports a symbolic algebra system.
    return torch.Size(np.broadcast_shapes(tuple(a), tuple(b)))
