"""Whether a module is the same function in float64, where exact arithmetic is computed, as in its own format.

Code may ask a tensor for its format, and take the smallest number or the unit of it: converted, it is another function.

Lemma: at a number of its own format, what a module returns there lies within its rounding of the exact function. So the
enclosure of its own pass and that of the exact function share a number, if both are of one function.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.errors import ModelAssumptionError
from onelayer.observer import Observer
from onelayer.proof.fit import formats_held
from onelayer.proof.forward import enclosed_at, execute, settled
from onelayer.proof.objectives import innermost
from onelayer.proof.own import says_all
from onelayer.proof.points import hard_points, rounded_into
from onelayer.recording.target import place

POINTS = 64  # a few of each kind, as those under other settings: two enclosures each
CPU = torch.device("cpu")
# Of the sizes compared, far above the rounding of the comparison itself.
SLACK = 2.0**-40
CHANGED = (
    "the model is another function in float64, in which exact arithmetic is computed, than in {kind}, at x = {x}; it "
    "asks for the format of a tensor: use model.double(), or name the number that it takes from there"
)


@torch.no_grad()
def examine_formats(model: Any, box: Box, execution: torch.dtype | None, observer: Observer) -> None:
    """Raise ModelAssumptionError with a point at which a module, or one that a claim is about, is another function.

    Only exact arithmetic, no ``execution``, is about the module in its own format and computed in another one.
    """
    if execution is not None:
        return
    for part in innermost(model):
        if isinstance(part, nn.Module) and not says_all(part):
            _examine(part, box, observer)


def _examine(model: nn.Module, box: Box, observer: Observer) -> None:
    formats = formats_held(model)
    # A module of several formats has no pass in one of them, and in float64 nothing is converted.
    if len(formats) != 1 or formats == [torch.float64]:
        return
    (own,) = formats
    points = rounded_into(box, hard_points(box, POINTS, own), own)
    inside = ((points >= box.lower.flatten()) & (points <= box.upper.flatten())).all(1)
    points = points[inside]
    if not len(points):
        return
    observer.check()
    x = points.reshape(-1, *box.shape).to(own)
    here = settled(model, CPU, own)
    outputs = tuple(execute(here, x[:1]).shape[1:])
    executed = enclosed_at(here, x, outputs, own)
    exact = enclosed_at(settled(model, CPU, None), x, outputs, None)
    for point, one, other in zip(x, executed, exact, strict=True):
        if any(map(_apart, one, other)):
            _refuse(point, own)


def _apart(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether two numbers, each with a radius, have none in common; what is not known is apart from nothing."""
    (a, r), (b, s) = one, other
    return abs(a - b) > (r + s + SLACK * abs(a)) * (1 + SLACK)


def _refuse(point: Tensor, own: torch.dtype) -> None:
    kind = str(own).removeprefix("torch.")
    raise ModelAssumptionError(CHANGED.format(kind=kind, x=place(point.double())))
