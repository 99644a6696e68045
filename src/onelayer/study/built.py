"""Layers built without training where one resource grows: heads of two tokens, ReLU units, or memory tokens.

Keys are put on a grid, values follow by linear least squares on arcsine points, and the one width that a grid leaves
open is the best of a few. No claim that the grids are optimal: these curves show what the plainest construction reaches
at the same size.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.study.problems import StudyProblem

FIT_POINTS = 2048  # of the fits that trained layers are compared with
CUTOFF = 1e-11  # of the largest singular value: values stay small enough for float64
WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)  # of keys, in units of their distance: the best of them is taken

KINDS: dict[str, dict[str, Any]] = {
    "softmax": {"attention": "softmax"},
    "top-2": {"attention": "topk", "top_k": 2},
    "top-4": {"attention": "topk", "top_k": 4},
    "linear, order 2": {"attention": "linear", "feature": "taylor", "order": 2},
    "linear, order 8": {"attention": "linear", "feature": "taylor", "order": 8},
    "linear, elu": {"attention": "linear", "feature": "elu"},
}
BY_DISTANCE = {"softmax", "topk"}  # attention whose weights fall off like a Gaussian: its width is squared


def built_heads(problem: StudyProblem, heads: int) -> OneLayerTransformer:
    """``heads`` heads of two memory tokens on one coordinate each; a softmax over two tokens is a sigmoid.

    Every coordinate gets an equal share of sigmoids, centres at equal distances; an affine part is read off the input.
    """
    box = problem.box
    x = problem.box.sample(FIT_POINTS, seed=3, arcsine=True)
    axis, place, count = _shares(heads, box.dim)
    low = box.lower.flatten()[axis]
    width = box.width.flatten()[axis]
    centre = low + width * (place + 0.5) / count
    fits = []
    for factor in WIDTHS:
        # A sigmoid has the slope 1/4 at its centre: times 4, a step is about as wide as two centres are apart.
        slope = 4 * factor * (count + 1) / width
        steps = torch.sigmoid(slope * (x[:, axis] - centre))
        columns = torch.cat([steps, x, torch.ones(len(x), 1).double()], -1)
        residual, found = least_squares(columns, problem.function(x))
        fits.append((residual, found, slope))
    _, weights, slope = min(fits, key=lambda fit: fit[0])
    zero = torch.zeros(heads).double()
    # The first token of a head has logit 0 and value 0; the second makes the sigmoid and carries its weight.
    slopes = torch.stack([zero, slope], -1)  # (H, 2)
    biases = torch.stack([zero, -slope * centre], -1)  # (H, 2)
    values = torch.stack([zero, weights[:heads]], -1)[..., None]  # (H, 2, 1)
    parts = []
    for h in range(heads):
        keys = AxisKeys(int(axis[h]), slopes[h], biases[h])
        parts.append(LookupHead([keys], values[h]))
    affine = Affine(weights[heads:-1][None], weights[-1:])
    return lookup_model(box.dim, (), parts, affine=affine)


def built_ridges(problem: StudyProblem, hidden: int) -> OneLayerTransformer:
    """``hidden`` ReLU units, an equal share of kinks on each coordinate at equal distances: linear splines."""
    box = problem.box
    x = problem.box.sample(FIT_POINTS, seed=3, arcsine=True)
    axis, place, count = _shares(hidden, box.dim)
    weight = torch.eye(box.dim).double()[axis]
    low = box.lower.flatten()[axis]
    width = box.width.flatten()[axis]
    bias = -(low + width * (place + 1) / (count + 1))
    bent = torch.relu(x @ weight.T + bias)
    columns = torch.cat([bent, x, torch.ones(len(x), 1).double()], -1)
    _, found = least_squares(columns, problem.function(x))
    ridges = Ridges(weight, bias, found[:hidden, None])
    affine = Affine(found[hidden:-1][None], found[-1:])
    return lookup_model(box.dim, (), [], ridges=ridges, affine=affine)


def built_memory(problem: StudyProblem, tokens: int, kind: str = "softmax") -> OneLayerTransformer:
    """One head of ``tokens`` memory tokens per coordinate for any attention kind of KINDS.

    Token m has logit kappa (c_m u - c_m^2 / 2) for the coordinate u scaled to [-1, 1]: up to a factor common to all
    tokens a Gaussian bump around c_m, so softmax weights are a smooth partition of unity and top-k keeps the nearest.
    """
    if kind not in KINDS:
        raise OnelayerError(f"attention must be one of {', '.join(KINDS)}; got {kind!r}")
    box = problem.box
    x = box.sample(FIT_POINTS, seed=3, arcsine=True)
    by_distance = KINDS[kind]["attention"] in BY_DISTANCE
    fits = []
    for factor in WIDTHS:
        kappa = (factor * tokens) ** 2 if by_distance else factor
        model = _bare_layer(box, tokens, kind, kappa)
        with torch.no_grad():
            per_head = [rows.squeeze(-2) for rows in model.attention_weights(x)]  # (B, tokens) each
        columns = torch.cat(per_head, -1)
        residual, values = least_squares(columns, problem.function(x))
        fits.append((residual, values.reshape(box.dim, tokens), model))
    _, values, model = min(fits, key=lambda fit: fit[0])
    for h in range(box.dim):
        memory = model.memory_of(h)
        assert isinstance(memory, PlainMemory)
        with torch.no_grad():
            memory.values.copy_(values[h][:, None])
    return model.requires_grad_(False)


def _bare_layer(box: Box, tokens: int, kind: str, kappa: float) -> OneLayerTransformer:
    """Keys and queries of :func:`built_memory`, values still zero; the heads are summed into one number."""
    centres = torch.linspace(-1, 1, tokens, dtype=torch.float64)
    keys = torch.stack([kappa * centres, -kappa * centres.square() / 2], -1)  # (M, 2) against q = (u, 1)
    queries = torch.zeros(box.dim, 2 * box.dim).double()
    shift = torch.zeros(2 * box.dim).double()
    # Head h has q = (u, 1) with u = 2 (x_h - centre) / width.
    for h, (centre, width) in enumerate(zip(box.center.flatten(), box.width.flatten(), strict=True)):
        queries[h, 2 * h] = 2 / width
        shift[2 * h] = -2 * centre / width
        shift[2 * h + 1] = 1.0
    first = torch.eye(1, box.dim, dtype=torch.float64)
    scale = math.sqrt(2.0)  # the layer divides logits by sqrt(d_k)
    weights = {
        "W_E": torch.eye(box.dim).double(),
        "W_Q": scale * queries,
        "b_Q": scale * shift,
        "W_O": first.repeat(box.dim, 1),
        "W_R": first.T,
    }
    memory = [PlainMemory(keys, torch.zeros(tokens, 1).double()) for _ in range(box.dim)]
    return OneLayerTransformer.packed((box.dim,), (), memory, d_model=box.dim, weights=weights, **KINDS[kind])


def least_squares(columns: Tensor, values: Tensor) -> tuple[float, Tensor]:
    """Root mean square residual, and the weights of the columns that reproduce ``values`` best."""
    matrix = columns.detach().numpy()
    wanted = values.detach().numpy()
    found = np.linalg.lstsq(matrix, wanted, rcond=CUTOFF)[0]
    squared = (matrix @ found - wanted) ** 2
    return float(np.sqrt(np.mean(squared))), torch.from_numpy(found)


def _shares(parts: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """For parts dealt out to coordinates in turn: the coordinate of each, its place there, and how many are there."""
    if parts < 1:
        raise OnelayerError(f"a built layer needs at least one head or unit, got {parts}")
    index = torch.arange(parts)
    axis = index % dim
    place = index // dim
    return axis, place, torch.bincount(axis, minlength=dim)[axis]
