"""Functions that are affine on simplices, on Taylor models: one plane, and what the others that may count differ."""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.language.facets import CHUNK, candidates, forms, underflow
from onelayer.language.intervals import Interval
from onelayer.language.knots import Facets
from onelayer.taylor.arithmetic import combine, mul, operand
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.piecewise import aligned
from onelayer.taylor.registry import implements
from onelayer.taylor.rounding import UNIT, executed, inflate, middle_and_reach


@implements("facets")
def facets(data: Facets, *args: TaylorModel) -> TaylorModel:
    """The plane in the middle of each box, and the hull of the differences of the others from it."""
    like, models = aligned(args)
    shape = models[0].shape
    sides = [model.range() for model in models]
    low = torch.stack([side[0].flatten() for side in sides], dim=1)  # (E, D)
    high = torch.stack([side[1].flatten() for side in sides], dim=1)
    # Ends that are not finite would make NaN of other candidates too: they are set aside, and undecided at the end.
    known = (torch.isfinite(low) & torch.isfinite(high)).all(1)
    low = torch.where(known[:, None], low, 0.0)
    high = torch.where(known[:, None], high, 0.0)
    plane, (below, above) = _in_chunks(data, low, high)
    below = below.reshape(shape)
    above = above.reshape(shape)
    # The plane on models, so that it keeps what they know of each other.
    slopes = plane[:, :-1]
    offset = plane[:, -1]
    result = operand(offset.reshape(shape), models[0])
    for at, model in enumerate(models):
        term = mul(model, slopes[:, at].reshape(shape))
        result = combine(result, term, 1)
    middle, radius = middle_and_reach(below, above)
    # The numbers of the plane are rounded once each; so is the middle.
    reach = torch.maximum(-low, high).clamp(min=0) + torch.maximum(low, -high).clamp(min=0)
    size = (slopes.abs() * reach).sum(1) + offset.abs()
    slack = size.reshape(shape) * (4 * UNIT)
    slack = slack + underflow(low, high).reshape(shape)
    result = combine(result, middle, 1).with_radius(radius + slack)
    decided = torch.stack([model.decided() for model in models]).all(0)
    defined = decided & known.reshape(shape)
    result.rem = torch.where(defined, result.rem, torch.inf)
    if like.execution is None:
        return result
    summed = plane.abs().sum(1) * (1 + reach.amax(1))
    grown = inflate(result.magnitude() + summed.reshape(shape))
    result.rem = executed(result.rem, grown, 16 + 4 * data.dim, like.execution)
    return result.tagged(like.execution)


def _in_chunks(data: Facets, low: Tensor, high: Tensor) -> tuple[Tensor, Interval]:
    """What ``_around`` finds, for as many boxes at a time as memory allows."""
    size = max(1, CHUNK // data.simplices.size)
    boxes = zip(torch.split(low, size), torch.split(high, size), strict=True)
    parts = [_around(data, a, b) for a, b in boxes]
    planes = torch.cat([plane for plane, _ in parts])
    below = torch.cat([ends[0] for _, ends in parts])
    above = torch.cat([ends[1] for _, ends in parts])
    return planes, (below, above)


def _around(data: Facets, low: Tensor, high: Tensor) -> tuple[Tensor, Interval]:
    """The plane (E, D + 1) that counts in the middle, and the ends of what any other adds to it."""
    coordinates, planes = (form.to(low.device) for form in forms(data))
    middle, away = middle_and_reach(low, high)
    one = torch.ones_like(middle[:, :1])
    ones = torch.cat([middle, one], dim=1)
    barycentric = torch.einsum("sij,nj->nsi", coordinates, ones)
    inside = barycentric.amin(-1)  # (E, S), the least coordinate
    chosen = planes[inside.argmax(1)]
    # Differences of planes on each box: value in the middle, slopes times radii, and the rounding of both.
    change = planes[None] - chosen[:, None]
    centre = (change * ones[:, None]).sum(-1)
    radius = away[:, None]
    size = torch.maximum(low.abs(), high.abs())[:, None]
    both = planes[None].abs() + chosen[:, None].abs()
    summed = (both[..., :-1] * size).sum(-1) + both[..., -1]
    rounding = summed * ((data.dim + 10) * 4 * UNIT) + underflow(low, high)
    slope = (change[..., :-1].abs() * radius).sum(-1)
    reach = inflate(slope + rounding)
    may = candidates(data, low, high)
    below = torch.where(may, centre - reach, torch.inf).amin(1)
    above = torch.where(may, centre + reach, -torch.inf).amax(1)
    return chosen, (below, above)
