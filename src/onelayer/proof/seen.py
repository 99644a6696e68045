"""What a model is seen to return at some points, before anything is proved of it: a shape, a first guess of a range."""

from __future__ import annotations

import copy
from contextlib import suppress

import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.guard import inward
from onelayer.proof.fit import formats_held
from onelayer.proof.forward import execute
from onelayer.proof.objectives import Forward

SAMPLES = 512  # points from which a first guess of a range is taken


@torch.no_grad()
def outputs_seen(model: Forward, box: Box) -> tuple[int, ...]:
    """The shape of what a model returns for one point."""
    one = _points(model, box)[:1]
    shape = tuple(_returned(model, one).shape[1:])
    if 0 in shape:
        raise OnelayerError("the model returns no numbers, of which nothing can be proved")
    return shape


@torch.no_grad()
def values_seen(model: Forward, box: Box) -> Tensor:
    """Values of all outputs at some points, (S, K). Not rigorous."""
    values = _returned(model, _points(model, box))
    return values.double().reshape(len(values), -1).cpu()


def _returned(model: Forward, points: Tensor) -> Tensor:
    """What a model returns; a copy of it runs, so that what it keeps of a call is no change of the model itself."""
    if isinstance(model, nn.Module):
        # Some modules cannot be copied, as those that keep a tensor that torch computed.
        with suppress(Exception):
            model = copy.deepcopy(model)
    return execute(model, points)


def _points(model: Forward, box: Box) -> Tensor:
    """Some points in the format of the model, none of them rounded out of the box."""
    points = torch.cat([box.center[None], box.corners(64), box.sample(SAMPLES, arcsine=True)])
    if not isinstance(model, nn.Module):
        return points
    dtype = next(iter(formats_held(model)), torch.float64)
    lowest = inward(box.lower, dtype, up=True)
    highest = inward(box.upper, dtype, up=False)
    place = next((held.device for held in (*model.parameters(), *model.buffers())), points.device)
    return points.to(dtype).clamp(lowest, highest).to(place)
