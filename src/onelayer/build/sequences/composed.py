"""From a layer and its composition to a certified result."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from onelayer.box import Box
from onelayer.language.balls import in_balls
from onelayer.language.formula import Formula
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Composition
from onelayer.lemmas.nested import Nested
from onelayer.lemmas.pieces import Pieces
from onelayer.proof.argued import LARGEST, argued_certificate, distance_at, representable, worst
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import function_text
from onelayer.recording.target import Target
from onelayer.result import Approximation

WITNESS_POINTS = 4096  # among which the lower bound is looked for
# Numbers in the largest arrays of the search.
WITNESS_WORK = 2**27


def certified(
    model: OneLayerTransformer,
    composition: Composition | Nested | Pieces,
    target: Target,
    box: Box,
    eps: float,
    upper: float,
    gap: Certificate | None,
    started: float,
) -> Approximation:
    """The result whose error against D is at most ``upper``; ``gap`` is the proof of |f - D|, None when f is D."""
    # The factor covers the rounding of the sum and its own.
    total = upper if gap is None else (upper + gap.upper) * (1 + 2.0**-50)
    if gap is not None and isinstance(composition, Composition):
        # Files hold finite numbers; where the gap is infinite the total is, and nothing is claimed.
        composition = replace(composition, gap=min(gap.upper, LARGEST))
    certificate = argued_certificate(
        model,
        box,
        eps,
        composition,
        total,
        _witness(model, target, box),
        function=function_text(target),
        method="composition",
        seconds=time.monotonic() - started,
        proof=None if gap is None else gap.proof,
        order=0 if gap is None else gap.order,
    )
    return Approximation(model, certificate, target)


def target_of(formula: Formula, box: Box, output_shape: tuple[int, ...], description: str) -> Target:
    """The target that a formula of D variables is, in the shapes of the layer."""
    shaped = formula.shaped(tuple(box.shape), output_shape)
    return Target(shaped, tuple(box.shape), output_shape, "formula", description, shaped)


def _witness(model: OneLayerTransformer, target: Target, box: Box) -> tuple[tuple[float, ...], float] | None:
    """The worst of some points and a verified lower bound of the error there."""
    config = model.config
    size = config.length * max(config.features, config.hidden, config.d_model)
    count = max(16, min(WITNESS_POINTS, WITNESS_WORK // size))
    corners = box.corners(min(64, count))
    scattered = [box.sample(count), box.sample(count, arcsine=True)]
    points = torch.cat([box.center[None], corners, *scattered])
    points = representable(points, box, model.dtype)
    formula = target.formula
    if not len(points) or formula is None:
        return None
    point = worst(model, target, points)
    place = point.flatten().tolist()
    return tuple(place), distance_at(model, point, lambda: in_balls(formula, place))
