"""Which axis to cut where coefficients do not tell: each is tried at half its side. A heuristic, no part of a bound."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Steep functions need boxes a hundred times longer than wide, hardly any more than that.
LOPSIDED = 2.0**8
LARGEST = 1e300  # stands for "no bound", so that differences are numbers


def with_trials(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(D + 1) B boxes from B: for each axis the boxes cut to the middle half of that side, then the boxes themselves.

    One call on all of them: on few boxes a call costs the same however many they are.
    """
    dim = low.shape[1]
    each = torch.arange(dim, dtype=torch.int64, device=low.device)
    lows = low.repeat(dim + 1, 1, 1)  # (D + 1, B, D)
    highs = high.repeat(dim + 1, 1, 1)
    # The middle half stands for either half: what a cut wins at the ends alone is not seen.
    lows[each, :, each] = (0.75 * low + 0.25 * high).T
    highs[each, :, each] = (0.25 * low + 0.75 * high).T
    return lows.reshape(-1, dim), highs.reshape(-1, dim)


def gains(bound: Tensor, dim: int) -> Tensor:
    """How much the bound falls, (B, D), when one axis is cut, from the bounds of ``with_trials``; 0 if unbounded."""
    parts = bound.clamp(max=LARGEST).reshape(dim + 1, -1)
    return (parts[dim] - parts[:dim]).T


class Families(NamedTuple):
    """Boxes that were one box before they were cut, and the one of each that is tried for all of them."""

    member: Tensor  # (B,) number of the family
    tried: Tensor  # (families,) number of the box


def families(inherited: Tensor, bound: Tensor) -> Families:
    """Boxes by the bound (B,) that they have inherited, by themselves where it is none; the worst of each is tried.

    Pieces of one box lie side by side and have one shape: what helps one of them mostly helps all.
    """
    # Boxes without a bound have inherited none in common: each is a family of its own.
    alone = torch.arange(len(bound), dtype=torch.int64, device=bound.device)
    same = torch.unique(inherited, return_inverse=True)[1]
    family = torch.where(torch.isfinite(inherited), same, len(bound) + alone)
    member = torch.unique(family, return_inverse=True)[1]
    worst_first = torch.argsort(bound, descending=True, stable=True)
    by_family = worst_first[torch.argsort(member[worst_first], stable=True)]
    first = torch.ones_like(by_family, dtype=torch.bool)
    in_order = member[by_family]
    first[1:] = in_order[1:] != in_order[:-1]
    return Families(member, by_family[first])


def balanced(sensitivity: Tensor, low: Tensor, high: Tensor, whole: Tensor) -> Tensor:
    """The sensitivities, or the sides where the axis to be cut is by far the shortest, each relative to the domain.

    Beside a place where f has no slope, cuts of one axis help a little each time and never enough: the other has its
    turn.
    """
    share = _share(low, high, whole)
    axis = sensitivity.argmax(1, keepdim=True)
    chosen = share.gather(1, axis)
    longest = share.amax(1, keepdim=True)
    return torch.where(chosen * LOPSIDED < longest, share, sensitivity)


def by_length(low: Tensor, high: Tensor, whole: Tensor) -> Tensor:
    """What is left where no trial is bounded: sides relative to their distance from zero and to the domain, (B, D)."""
    share = _share(low, high, whole)
    distance = (high.abs() + low.abs()).clamp(min=1e-300)
    return share * (high - low) / distance


def _share(low: Tensor, high: Tensor, whole: Tensor) -> Tensor:
    """Sides relative to those of the domain; an axis of no width has no share."""
    return (high - low) / torch.where(whole > 0, whole, 1.0)
