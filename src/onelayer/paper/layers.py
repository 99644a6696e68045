"""Layers that several experiments take: random ones of the paper's form, and the lookup head of the repaired proof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.layer.lookup import AxisKeys, LookupHead
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.layer.weights import weight_shapes

Array = NDArray[np.float64]


def random_layer(
    length: int, width: int, *, heads: int = 2, d_model: int = 4, scale: float = 1.0, seed: int = 0, **options: Any
) -> OneLayerTransformer:
    """A tokens layer (length, width) -> the same shape whose weights and biases are all normal, times ``scale``."""
    model = OneLayerTransformer.tokens(
        (length, width), (length, width), d_model=d_model, heads=heads, seed=seed, **options
    )
    generator = torch.Generator().manual_seed(seed)
    shapes = dict(weight_shapes(model.config))
    # These positions are given by a formula; drawn ones would be another kind.
    if model.config.positions in ("one-hot", "sinusoidal"):
        shapes.pop("position", None)
    drawn = {}
    for name, shape in shapes.items():
        drawn[name] = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    model.set_weights(drawn)
    return model.requires_grad_(False)


def _centred_axis(coordinate: int, centres: Tensor, beta: float) -> AxisKeys:
    """Keys whose weights are proportional to exp(-beta (x - c_m)^2): logit 2 beta c_m x - beta c_m^2."""
    return AxisKeys(coordinate, 2 * beta * centres, -beta * centres**2)


def lookup_head(centres: Sequence[Tensor], beta: float, values: Tensor) -> LookupHead:
    """One softmax over the cells of a grid of centres; ``values`` (M_1, ..., M_r, K)."""
    return LookupHead([_centred_axis(a, points, beta) for a, points in enumerate(centres)], values)


def step_head(threshold: float, beta: float) -> LookupHead:
    """sigmoid(beta (x - threshold)) as a head of two tokens: a sink of value 0 and a token of value 1."""
    # The logits are 0 and beta (x - threshold), and a softmax of two is the sigmoid of their difference.
    keys = AxisKeys(0, points(0.0, beta), points(0.0, -beta * threshold))
    return LookupHead([keys], points(0.0, 1.0)[:, None])


def points(*values: float) -> Tensor:
    """These numbers as a tensor."""
    return torch.tensor(values, dtype=torch.float64)
