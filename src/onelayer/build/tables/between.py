"""How far a layer that recalls rows is from the straight line between them: recalling promises nothing there."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from onelayer.errors import OnelayerError
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.recording.columns import Array
from onelayer.recording.table import on_grid

# Cells whose middles are tried; a larger grid is told by some of them.
MOST_CELLS = 100_000
MOST_COLUMNS = 8  # a cell has 2^D corners


@torch.no_grad()
def between_rows(model: OneLayerTransformer, inputs: Array, outputs: Array) -> float | None:
    """The largest |T - multilinear interpolant| seen at the middles of the cells; None where rows fill no grid.

    In the middle of a cell the multilinear interpolant is the mean of the values at its corners.
    """
    if inputs.ndim != 2 or outputs.ndim != 1 or inputs.shape[1] > MOST_COLUMNS:
        return None
    columns = inputs.shape[1]
    names = [f"x{at + 1}" for at in range(columns)]
    try:
        axes, values = on_grid(inputs, outputs, names, "the table")
    except OnelayerError:
        return None
    if min(values.shape) < 2:
        return None
    first = slice(None, -1)
    last = slice(1, None)
    ends = [(first, last)] * values.ndim
    corners = [values[corner] for corner in product(*ends)]
    means = np.mean(corners, axis=0).ravel()
    middles = [axis[first] / 2 + axis[last] / 2 for axis in axes]
    grid = np.meshgrid(*middles, indexing="ij")
    points = np.stack([side.ravel() for side in grid], axis=1)
    count = min(len(points), MOST_CELLS)
    tried = np.linspace(0, len(points) - 1, count).astype(np.int64)
    x = torch.from_numpy(points[tried])
    found = model(x.to(device=model.device, dtype=model.dtype))
    values_there = found.double().cpu().numpy().ravel()
    apart = np.abs(values_there - means[tried])
    return float(apart.max())
