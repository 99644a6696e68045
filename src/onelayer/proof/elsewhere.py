"""Whether a module is the same function in float64, where exact arithmetic is computed, as in its own format.

Code may ask a tensor for its format, and take the smallest number or the unit of it: converted, it is another function.

Lemma: at a number of its own format, what a module returns there lies within its rounding of the exact function. So the
enclosure of its own pass and that of the exact function share a number, if both are of one function.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import nn

from onelayer.box import Box
from onelayer.errors import ModelAssumptionError, UnsupportedOperation
from onelayer.formats import FLOAT32
from onelayer.observer import Observer
from onelayer.proof.fit import formats_held
from onelayer.proof.forward import Forward, enclosed_at, execute, settled
from onelayer.proof.objectives import innermost
from onelayer.proof.own import says_all
from onelayer.proof.points import hard_points, rounded_into
from onelayer.recording.target import Target, place

POINTS = 64  # a few of each kind, as those under other settings: two enclosures each
CPU = torch.device("cpu")
# Of the sizes compared, far above the rounding of the comparison itself.
SLACK = 2.0**-40
CHANGED = (
    "{name} is another function in float64, in which exact arithmetic is computed, than in {kind}, at x = {x}; it "
    "asks for the format of a tensor: give it in float64, or name the number that it takes from there"
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


@torch.no_grad()
def examine_target(target: Target, box: Box, observer: Observer) -> None:
    """The same of a function that was given in a narrower format, as far as its code can be enclosed there."""
    given = target.narrower
    if given is None:
        return
    with suppress(UnsupportedOperation):
        if isinstance(given, nn.Module):
            _examine(given, box, observer, "f")
        else:
            # Constants in float32 are what a function is widened for.
            _compare(given, target.function, target.output_shape, box, FLOAT32.dtype, observer, "f")


def _examine(model: nn.Module, box: Box, observer: Observer, name: str = "the model") -> None:
    formats = formats_held(model)
    # A module of several formats has no pass in one of them, and in float64 nothing is converted.
    if len(formats) != 1 or formats == [torch.float64]:
        return
    (own,) = formats
    here = settled(model, CPU, own)
    _compare(here, settled(model, CPU, None), None, box, own, observer, name)


def _compare(
    here: Forward,
    exact: Forward,
    outputs: tuple[int, ...] | None,
    box: Box,
    own: torch.dtype,
    observer: Observer,
    name: str,
) -> None:
    """Refuse a function that is another one ``here``, in a format of its own, than the exact one at some point."""
    points = rounded_into(box, hard_points(box, POINTS, own), own)
    inside = ((points >= box.lower.flatten()) & (points <= box.upper.flatten())).all(1)
    points = points[inside]
    if not len(points):
        return
    observer.check()
    x = points.reshape(-1, *box.shape).to(own)
    outputs = tuple(execute(here, x[:1]).shape[1:]) if outputs is None else outputs
    executed = enclosed_at(here, x, outputs, own)
    real = enclosed_at(exact, x, outputs, None)
    for point, one, other in zip(x, executed, real, strict=True):
        if any(map(_apart, one, other)):
            kind = str(own).removeprefix("torch.")
            raise ModelAssumptionError(CHANGED.format(name=name, kind=kind, x=place(point.double())))


def _apart(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether two numbers, each with a radius, have none in common; what is not known is apart from nothing."""
    (a, r), (b, s) = one, other
    return abs(a - b) > (r + s + SLACK * abs(a)) * (1 + SLACK)
