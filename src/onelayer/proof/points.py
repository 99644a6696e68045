"""Points at which code is likely to differ from what it seems to compute."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.formats import format_of

# Corners of the 2^D; the other kinds of points reach the rest.
CORNERS = 256
# Exponent of the smallest dyadic step and of the smallest distance from an end, relative to the side.
FINEST = 40
# Whole numbers up to here are drawn on their own: code branches on 0, 1 and 2 more often than on other numbers.
COUNTED = 8


def hard_points(box: Box, count: int, dtype: torch.dtype) -> Tensor:
    """About ``count`` points (C, D) near the box, in float64, the same for the same box.

    Half of them are quasi-random, some crowded to the faces; then the centre, corners, and points whose coordinates are
    drawn from dyadic numbers, integers of every size and ends with their neighbours in ``dtype``, numbers close to the
    ends, and numbers of every size, from the smallest of the format up to the ends. They may leave the box by a little:
    the caller moves them into it.
    """
    generator = torch.Generator().manual_seed(1)
    special = count // 2
    plain = box.sample(count // 4, seed=5)
    crowded = box.sample(count // 8, seed=6, arcsine=True)
    corners = box.corners(min(CORNERS, count // 16))
    fixed = torch.cat([box.center[None], corners, plain, crowded]).reshape(-1, box.dim)
    kinds = torch.stack(_coordinates(box, special, dtype, generator))  # (kinds, C, D)
    # Each coordinate of a mixed point is of the kind whose lot is the largest.
    lots = torch.rand(kinds.shape, generator=generator, dtype=torch.float64, device="cpu")
    drawn = lots == lots.amax(0)
    mixed = torch.where(drawn, kinds, 0.0).sum(0)
    pure = kinds[:, : count // (8 * len(kinds))].flatten(0, 1)
    return torch.cat([fixed, pure, mixed])[:count]


def _coordinates(box: Box, count: int, dtype: torch.dtype, generator: torch.Generator) -> list[Tensor]:
    """Coordinates of each kind, (C, D) each."""
    low = box.lower.flatten()
    high = box.upper.flatten()

    def unit() -> Tensor:
        return torch.rand(count, box.dim, generator=generator, dtype=torch.float64, device="cpu")

    def inside() -> Tensor:
        share = unit()
        return low * (1 - share) + high * share

    def beside(x: Tensor) -> Tensor:
        """x in the executing format, or one of its two neighbours."""
        x = x.to(dtype)
        share = unit()
        up = torch.nextafter(x, torch.full_like(x, torch.inf))
        down = torch.nextafter(x, torch.full_like(x, -torch.inf))
        upper = torch.where(share < 2 / 3, up, x)
        return torch.where(share < 1 / 3, down, upper).double()

    end = torch.where(unit() < 0.5, low, high)
    # Where code branches on exact numbers, on ends and on underflow, uniform points never go.
    step = torch.exp2((unit() * -FINEST).round())
    dyadic = torch.round(inside() / step) * step
    near = end + (inside() - end) * torch.exp2(-FINEST * unit())
    # A box of side 1e20 holds hardly a uniform point below 1e16, and next to none at which code may branch.
    smallest = math.log2(format_of(dtype).smallest)
    largest = torch.log2(torch.maximum(low.abs(), high.abs())).clamp(min=smallest)

    def of_any_size(least: float) -> Tensor:
        """Numbers towards either end, as many below any power of two as their exponents have a share."""
        side = torch.where(unit() < 0.5, low, high).sign()
        top = largest.clamp(min=least)
        return side * torch.exp2(least + (top - least) * unit())

    few = torch.where(unit() < 0.5, low, high).sign() * COUNTED * unit()
    kind = unit()
    whole = torch.where(kind < 1 / 3, inside(), torch.where(kind < 2 / 3, of_any_size(0.0), few)).round()
    return [dyadic, beside(whole), beside(end.clone()), near, of_any_size(smallest)]


def rounded_into(box: Box, points: Tensor, dtype: torch.dtype) -> Tensor:
    """The points (C, D) moved to numbers of ``dtype``, into the box where its sides hold any; as float64."""
    low = box.lower.flatten()
    high = box.upper.flatten()
    rounded = points.clamp(low, high).to(dtype)
    if dtype == torch.float64:
        return rounded
    # A side of the box need not be a number of the format: rounding to nearest may leave it by one step.
    raised = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    rounded = torch.where(rounded.double() < low, raised, rounded)
    lowered = torch.nextafter(rounded, torch.full_like(rounded, -torch.inf))
    return torch.where(rounded.double() > high, lowered, rounded).double()
