"""What a proof assumes of the slopes of T, tested before the search: they are followed as T is executed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.proof.contract import FEW, examine
from onelayer.proof.ends import complain, enclosures, ends_of, everywhere, need_equal, on_device, shaped
from onelayer.proof.error import ErrorFunction
from onelayer.proof.forward import enclose_alone, followed
from onelayer.proof.points import hard_points
from onelayer.taylor import variables
from onelayer.taylor.dual import undirected

WITH_TANGENTS = "returns another value at x = {x} when its derivatives are followed; it asks what it is given"
SLOPES = "has another slope at x = {x} than torch finds; an operation of it is not differentiated as it is executed"
# A slope that is this wrong at most points is not so by rounding.
SLOPE_TOLERANCE = 1e-2


def examine_slopes(error: ErrorFunction) -> None:
    """T is what a proof of its slopes takes it for: examined itself, and run with tangents (taylor/dual.py).

    With tangents it returns what it returns without, and at most of some random points the slopes that torch
    differentiates; where torch cannot, there is nothing to compare with. Raises ModelAssumptionError.
    """
    examine(error)
    points = error.representable(hard_points(error.box, FEW, error.dtype))
    if len(points):
        values = followed(error.model, shaped(error, points))[0]
        excluded = enclosures(error, points, points).exclude(values.to("cpu", torch.float64))
        complain(error, points, excluded, WITH_TANGENTS)
    _enclosed_with_tangents(error)
    sampled = error.box.sample(FEW, seed=5).reshape(FEW, -1)
    _compare_slopes(error, error.representable(sampled))


def _enclosed_with_tangents(error: ErrorFunction) -> None:
    """All of the domain, in which any feature shows, has one enclosure as it is and where derivatives are followed.

    As many times as any claim follows them, and along no direction: rules may write an operation in others.
    """
    low, high = (on_device(error, side) for side in everywhere(error))
    given: Any = variables(low, high, 2, execution=error.dtype)
    usual = ends_of(enclose_alone(error.model, given))
    for _ in range(2):
        given = undirected(given)
        need_equal(error, usual, ends_of(enclose_alone(error.model, given)), WITH_TANGENTS)


def _compare_slopes(error: ErrorFunction, points: Tensor) -> None:
    x = shaped(error, points)
    try:
        with torch.enable_grad():
            given = x.clone().requires_grad_()
            outputs = error.model(given).reshape(len(x), -1).unbind(-1)
            # The rows of a batch do not mix, so the slopes of a sum over rows are those of each row.
            each = [torch.autograd.grad(y.sum(), given, retain_graph=True)[0] for y in outputs]
    except RuntimeError:
        return
    wanted = torch.stack([slope.reshape(len(x), -1) for slope in each], -1)  # (C, D, K)
    found = torch.stack(followed(error.model, x)[1], 1)
    # At a kink torch takes one side: only what is wrong at most points is wrong.
    size = found.abs() + wanted.abs() + 1
    wrong = (found - wanted).abs() > SLOPE_TOLERANCE * size
    mostly = wrong.double().mean(0) > 0.5
    anywhere = (wrong & mostly).flatten(1).any(1)
    complain(error, points, anywhere.cpu(), SLOPES)
