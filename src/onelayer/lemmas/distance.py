"""The smallest distance between rows of a table, as a rigorous lower bound, in blocks that fit the memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from onelayer.float64 import UNIT

BLOCK = {"cpu": 2**22, "cuda": 2**28}  # entries of one block of pairwise numbers
DIRECT = 2**31  # subtractions up to which pairs are compared coordinate by coordinate
SMALL, LARGE = 2.0**-900, 2.0**1000  # between them a squared distance keeps its digits


def smallest_squared_distance(z: Tensor, report: Callable[[float], None] = lambda share: None) -> float:
    """A lower bound of min over i < j of |z_i - z_j|^2 for float64 rows (N, D), within rounding of it; inf for one row.

    Small tables: direct differences, relative error (D + 16) 2 u. Large ones: |a|^2 + |b|^2 - 2 a.b by matrix products,
    whose error is at most (D + 8) u 4 R^2 with R the largest norm, and directly for the rows that come that close.
    """
    count, width = z.shape
    if count < 2:
        return float("inf")
    if count * count * width <= DIRECT:
        everyone = torch.arange(count, dtype=torch.int64, device=z.device)
        return _trusted(_direct(everyone, z, report))
    norms = (z * z).sum(1)
    error = (width + 8) * 4 * UNIT * float(norms.max()) * 2
    # One product gives |b|^2 - 2 a.b: a row (-2 a, 1) times a column (b, |b|^2).
    left = torch.cat([-2 * z, torch.ones_like(z[:, :1])], 1)
    right = torch.cat([z, norms[:, None]], 1).T.contiguous()
    nearest = torch.full((count,), torch.inf, dtype=torch.float64, device=z.device)
    step = max(1, _block(z) // count)
    for start in range(0, count, step):
        rows = slice(start, start + step)
        # Pairs are compared once: a block of rows with itself and the rows after it.
        found = left[rows] @ right[:, start:]
        found.diagonal().fill_(torch.inf)
        nearest[rows] = norms[rows] + found.amin(1)
        done = (start + step) / count
        report(done * (2 - done))  # of the triangle of pairs
    least = float(nearest.min())
    if not least < torch.inf:  # overflow, or nan
        return 0.0
    # A pair that is nearer than all others shows a distance within twice the error of the least.
    close = torch.nonzero(nearest <= least + 2 * error).flatten()
    return _trusted(min(_direct(close, z, report), least + error))


def _trusted(squared: float) -> float:
    """A bound whose squares had all their digits: 0 where they may have been lost, and never inf for two rows."""
    if not squared > SMALL:
        return 0.0
    return min(squared, LARGE)


def _direct(chosen: Tensor, z: Tensor, report: Callable[[float], None]) -> float:
    """Lower bound of the squared distance between a chosen row and another one, by differences, within rounding.

    A root is taken and undone. Rows may be equal: distinct rows of a table can be, once they are centred and rounded.
    """
    width = z.shape[1]
    step = max(1, _block(z) // len(z))
    least = float("inf")
    for start in range(0, len(chosen), step):
        rows = chosen[start : start + step]
        found = torch.cdist(z[rows], z, compute_mode="donot_use_mm_for_euclid_dist")
        found.scatter_(1, rows[:, None], torch.inf)
        least = float(np.minimum(least, float(found.min())))  # min of Python would lose a nan
        report(min(1.0, (start + step) / len(chosen)))
    return least * least * (1 - (width + 16) * 2 * UNIT)


def _block(z: Tensor) -> int:
    return BLOCK.get(z.device.type, BLOCK["cpu"])
