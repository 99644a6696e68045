"""What a model is seen to return at some points, before anything is proved of it: a shape, a first guess of a range."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.guard import inward
from onelayer.proof.forward import execute
from onelayer.proof.objectives import Forward

SAMPLES = 512  # points from which a first guess of a range is taken


@torch.no_grad()
def outputs_seen(model: Forward, box: Box) -> tuple[int, ...]:
    """The shape of what a model returns for one point."""
    one = _points(model, box)[:1]
    return tuple(execute(model, one).shape[1:])


@torch.no_grad()
def values_seen(model: Forward, box: Box) -> Tensor:
    """Values of all outputs at some points, (S, K). Not rigorous."""
    values = execute(model, _points(model, box))
    return values.double().reshape(len(values), -1).cpu()


def _points(model: Forward, box: Box) -> Tensor:
    """Some points in the format of the model, none of them rounded out of the box."""
    points = torch.cat([box.center[None], box.corners(64), box.sample(SAMPLES, arcsine=True)])
    held = list(model.parameters()) if isinstance(model, nn.Module) else []
    if not held:
        return points
    dtype = held[0].dtype
    lowest = inward(box.lower, dtype, up=True)
    highest = inward(box.upper, dtype, up=False)
    return points.to(dtype).clamp(lowest, highest).to(held[0].device)
