"""Certificates whose upper bound comes from an argument instead of boxes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from flint import arb

from onelayer.box import Box
from onelayer.formats import format_of
from onelayer.ground import ball_precision
from onelayer.layer.file import weights_sha256
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Argument, to_text
from onelayer.lemmas.overflow import overflows
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import ROUNDING
from onelayer.proof.rules import ARGUMENT
from onelayer.proof.tree import BoxTree
from onelayer.proof.witness import BITS, balls_at, distance_down
from onelayer.recording.target import Target

LARGEST = sys.float_info.max


def argued_certificate(
    model: OneLayerTransformer,
    box: Box,
    eps: float | None,
    argument: Argument,
    upper: float,
    witness: tuple[tuple[float, ...], float] | None,
    *,
    proof: BoxTree | None = None,
    attachments: Mapping[str, bytes] | None = None,
    **facts: Any,
) -> Certificate:
    """The certificate of sup|T - f| <= ``upper`` by ``argument``, for the execution in the dtype of the weights.

    No argument covers an execution that may overflow: the bound is then infinite, whatever the lemma says.
    ``witness`` is a point and a verified lower bound of the error there; ``facts`` are the function, the method, the
    seconds, and the order of a proof with boxes.
    """
    lower = witness[1] if witness else 0.0
    if math.isnan(upper) or overflows(model, box):
        upper = math.inf
    if lower > upper:
        # Both are rigorous: something that one of them rests on is not true.
        raise ArithmeticError(f"the bound {upper} is below the error {lower} at {witness}: the argument does not hold")
    executed = format_of(model.dtype)
    return Certificate.settled(
        eps=eps,
        lower=lower,
        upper=upper,
        witness=witness[0] if witness and lower > 0 else None,
        boxes=proof.leaves if proof else 0,
        arithmetic=executed.execution,
        domain=box,
        weights_sha256=weights_sha256(model),
        assumptions=(ROUNDING.format(name=executed.name),),
        proof=proof,
        attachments={ARGUMENT: to_text(argument), **(attachments or {})},
        **{"order": 0, **facts},
    )


def representable(points: torch.Tensor, box: Box, dtype: torch.dtype) -> torch.Tensor:
    """The points that are numbers of ``dtype`` inside the box once rounded to it, as float64."""
    rounded = points.to(dtype).double()
    return rounded[box.contains(rounded)]


@torch.no_grad()
def worst(model: OneLayerTransformer, target: Target, points: torch.Tensor) -> torch.Tensor:
    """Of points (S, *shape) the one with the largest error seen. Not rigorous."""
    values = model(points.to(model.dtype)).double()
    gap = (values - target.function(points)).abs()
    error = gap.reshape(len(points), -1).amax(1)
    # Where there is no number there is nothing to verify.
    at = torch.nan_to_num(error, nan=-1.0, posinf=-1.0).argmax()
    return points[int(at)]


@torch.no_grad()
def distance_at(model: OneLayerTransformer, point: torch.Tensor, truth: Callable[[], Sequence[arb]]) -> float:
    """A lower bound of max over outputs of |T - truth| at a point (*shape) of the format of the weights.

    T is enclosed with its rounding, so that the bound holds in every batch and on every machine.
    """
    with ball_precision(BITS):
        x = point[None].to(model.device)
        outputs = tuple(model.config.output_shape)
        values = balls_at(model, x, outputs, model.dtype)[0]
        return distance_down(values, truth())
