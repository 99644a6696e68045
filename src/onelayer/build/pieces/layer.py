"""The layer of pieces, from an argument, the sharpness of its heads and its fitted curves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch

from onelayer.box import Box
from onelayer.build.sequences.ffn import stream_units
from onelayer.build.sequences.piecewise import Piecewise
from onelayer.build.sequences.rational import rounded
from onelayer.float64 import eye, full, numbers, zeros
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.pieces import Pieces, SharpHead

# Logits of tokens that are not of the head stay this far below its largest: their weight is below 1e-27.
MARGIN = 64.0


def pieces_layer(
    input_shape: tuple[int, ...],
    output_shape: tuple[int, ...],
    pieces: Pieces,
    sharpness: Sequence[float],
    fits: Sequence[Piecewise],
    box: Box,
    dtype: torch.dtype,
) -> OneLayerTransformer:
    """Token 0 is the query and holds the affine parts of the sums; then come the lines of every head.

    Features of a token: one per head, its line where the token is its own and a floor elsewhere; the sums of the
    curves; the outputs. Head h has keys beta_h l and values l of feature h.
    """
    heads = len(pieces.heads)
    curves = len(pieces.curves)
    width = heads + curves + pieces.outputs
    tokens = 1 + sum(len(head.lines) for head in pieces.heads)
    slopes, offsets = _embedding(pieces, sharpness, box, tokens, width)
    out = zeros(heads, width)
    for k, one in enumerate(pieces.sums):
        out[:, heads + k] = numbers([rounded(Fraction(w)) for w in one.weights])
    constants = zeros(pieces.outputs)
    for curve in pieces.curves:
        constants[curve.output] += curve.constant
    weights = {
        "W_E": slopes.reshape(pieces.inputs, tokens * width),
        "b_E": offsets.reshape(tokens * width),
        "W_Q": zeros(width, heads),
        "b_Q": full((heads,), 1.0),
        "W_K": eye(width, heads) * torch.from_numpy(np.array(sharpness)),
        "W_V": eye(width, heads),
        "W_O": out,
        "W_R": eye(width)[:, width - pieces.outputs :],
        "b_R": constants,
    }
    if pieces.units:
        sums = [heads + k for k in range(curves)]
        outputs = [width - pieces.outputs + curve.output for curve in pieces.curves]
        weights |= stream_units(fits, pieces.units, sums, outputs, width)
    config = Config(
        layout="pieces",
        input_shape=input_shape,
        output_shape=output_shape,
        d_model=width,
        heads=tuple(HeadShape(1, 1) for _ in range(heads)),
        hidden=len(pieces.units),
        residual=True,
        pieces=tokens,
    )
    model = OneLayerTransformer(config, [None] * heads, dtype=dtype)
    model.set_weights(weights)
    return model.requires_grad_(False)


def _embedding(
    pieces: Pieces, sharpness: Sequence[float], box: Box, tokens: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every feature of every token as an affine function of the input: slopes and offsets."""
    heads = len(pieces.heads)
    slopes = zeros(pieces.inputs, tokens, width)
    offsets = zeros(tokens, width)
    floors = [_floor(*one, box) for one in zip(pieces.heads, sharpness, strict=True)]
    offsets[:, :heads] = numbers(floors)
    for k, one in enumerate(pieces.sums):
        slope, offset = _numbers(one.line)
        slopes[:, 0, heads + k] = slope
        offsets[0, heads + k] = offset
    token = 1
    for h, head in enumerate(pieces.heads):
        for line in head.lines:
            slope, offset = _numbers(line)
            slopes[:, token, h] = slope
            offsets[token, h] = offset
            token += 1
    return slopes, offsets


def _numbers(line: Sequence[str]) -> tuple[torch.Tensor, float]:
    *slopes, offset = (rounded(Fraction(a)) for a in line)
    return numbers(slopes), offset


def _floor(head: SharpHead, beta: float, box: Box) -> float:
    """A value so far below the largest line, wherever x is, that softmax does not see it."""
    low = box.lower.flatten().numpy()
    high = box.upper.flatten().numpy()
    bottoms = []
    for line in head.lines:
        slopes, offset = _numbers(line)
        least = np.minimum(slopes.numpy() * low, slopes.numpy() * high)
        bottoms.append(float(least.sum() + offset))
    # The largest line is nowhere below the best of the smallest values.
    return max(bottoms) - MARGIN / beta
