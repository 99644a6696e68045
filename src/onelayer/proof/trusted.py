"""What is known of a black box on boxes: its value or its tangent at the centre, and how far it may be from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.observer import Observer
from onelayer.recording.evaluation import evaluate
from onelayer.recording.target import Target
from onelayer.taylor import variables
from onelayer.taylor.rounding import inflate


def trusted(target: Target, box: Box, low: Tensor, high: Tensor, order: int, observer: Observer) -> tuple[Any, Tensor]:
    """p on B boxes (B, D), and bounds (B,) of |f - p| that follow from what was declared of f.

    Without a gradient p = f(c) for the centre c of a box; with one, p = f(c) + g(c) . (x - c) as a Taylor model.
    """
    if target.lipschitz is None:
        raise OnelayerError("nothing was declared of f; enclose its formula")
    # Halves of the smallest floats are rounded to zero: the middle could lie outside.
    centre = (low / 2 + high / 2).clamp(low, high)
    reach = torch.maximum(high - centre, centre - low)
    distance = inflate(target.lipschitz.over(reach))
    points = centre.reshape(-1, *box.shape).cpu()
    value = target.values(points, observer).to(low.device, torch.float64)
    if target.gradient is None:
        return value, distance
    gradients = evaluate(target.gradient, points, target.pace, observer)
    slopes = gradients.to(low.device, torch.float64)  # (B, *out, D)
    step = variables(low, high, order) - centre
    p: Any = value
    for axis in range(box.dim):
        along = step[:, axis].reshape(len(low), *(1 for _ in target.output_shape))
        p = along * slopes[..., axis] + p
    return p, distance
