"""Bounds of |g| on boxes, and what each axis contributes to them: what a Taylor model of g says of a cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onelayer.taylor import basis, tables, variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.fused import weighted_sizes


@dataclass(frozen=True)
class Enclosure:
    """Per box: a bound of max over outputs of |g|, inf where undecided, and how much each axis contributes to it."""

    bound: Tensor  # (B,)
    sensitivity: Tensor  # (B, D)


class Bounded(NamedTuple):
    """An enclosure on the way: ``remainder`` is the part of the bound that no axis is known to make."""

    bound: Tensor  # (B,)
    sensitivity: Tensor  # (B, D)
    remainder: Tensor  # (B,)


def as_taylor(t: Any, f: Any, low: Tensor, high: Tensor, order: int) -> list[TaylorModel]:
    """Both sides as Taylor models: a function that ignores x returns plain tensors, which are exact constants."""
    x = variables(low, high, order)
    flat = x.reshape(x.shape[0], -1)[:, 0] * 0.0
    return [side if isinstance(side, TaylorModel) else constant(flat, side) for side in (t, f)]


def steepness(y: Any) -> Tensor | float:
    """What each variable contributes to the terms of highest degree, (B, D): a guide to what was truncated."""
    # A constant has no terms to be truncated.
    if not isinstance(y, TaylorModel) or not y.support:
        return 0.0
    y = y.reshape(y.shape[0], -1)
    rows = basis.block(len(y.support), y.degree)
    table = tables.exponents(len(y.support), y.degree, y.device)[rows]
    share = torch.zeros(y.shape[0], y.space.dim, dtype=torch.float64, device=y.device)
    # Of all outputs the steepest one counts.
    sizes = weighted_sizes(y.coef[rows], table).amax(-1)
    share[:, tables.rows(y.support, y.device)] = sizes.T
    return share


def shares(g: TaylorModel, bound: Tensor, steep: Tensor | float) -> Tensor:
    """What each axis contributes to the bound, (B, D).

    What g keeps of polynomials that cancel says nothing of a remainder; the terms of their highest degree do.
    """
    told = g.rem.amax(1) < bound / 2
    return torch.where(told[:, None], g.sensitivity(), steep)


def smaller(a: Bounded, b: Bounded) -> Bounded:
    """Two enclosures of the same: b where its bound is the smaller one."""
    better = b.bound < a.bound
    return Bounded(
        torch.where(better, b.bound, a.bound),
        torch.where(better[:, None], b.sensitivity, a.sensitivity),
        torch.where(better, b.remainder, a.remainder),
    )


def constant(zero: TaylorModel, value: Tensor) -> TaylorModel:
    """Values (B or 1, ...) as a Taylor model on the boxes of ``zero``, (B,)."""
    spread = zero.reshape(zero.shape[0], *[1] * (value.ndim - 1))
    total: TaylorModel = spread + value.to(torch.float64)
    return total
