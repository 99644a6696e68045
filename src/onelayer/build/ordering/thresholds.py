"""Order statistics of any number of tokens: ramps, one uniform head that counts, two ReLU units per threshold.

The k-th smallest of x in [t_0, t_G]^n is t_0 + the integral over t of clip(k - N(t), 0, 1), N(t) = #{j : x_j <= t}.
On G cells [t_{g-1}, t_g] the count N becomes a sum of ramps, which attention averages and the FFN clips. The lemma and
its proof stand in lemmas/order.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from onelayer.float64 import counted, eye, numbers, ones, zeros
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.order import relu_form, statistic_error


def threshold_layer(n: int, edges: Tensor, weights: Sequence[float] | None, dtype: torch.dtype) -> OneLayerTransformer:
    """The layer for cell edges t_0, ..., t_G: T_i = t_0 + sum_g (t_g - t_{g-1}) clip(i - N_g, 0, 1) at position i.

    With ``weights`` the read-out of the first position is sum_k weights[k] T_k, centred on the range of its error.

        embedding   r_g(x_j) = clip((t_g - x_j) / (t_g - t_{g-1}), 0, 1), then position i and i^2 when sorting
        head 1      all logits 0: averages the ramps, N_g / n
        head 2      logits -64 (i - j)^2 up to a constant of i: copies the position (sorting only)
        FFN         relu(k - N_g) - relu(k - 1 - N_g), times the width of the cell
    """
    cells = len(edges) - 1
    sorts = weights is None
    width = torch.diff(edges)
    d_model = cells + (2 if sorts else 0)
    basis = eye(d_model)
    counts = -float(n) * eye(cells)
    if weights is None:
        levels = np.array([0.0, -1.0])
        factors = np.array([1.0, -1.0])
        offset = float(edges[0])
    else:
        levels, factors = relu_form(weights)
        _, centre = statistic_error(weights, float(width.max()))
        offset = float(edges[0]) * math.fsum(weights) + centre
    hidden = cells * len(levels)
    outer = zeros(hidden, d_model)
    heights = torch.from_numpy(factors)[:, None] * width
    outer[:, 0] = heights.reshape(-1)
    rows = [counts.repeat(1, len(levels))]
    # The position is added to -N_g; its square is not looked at.
    if sorts:
        rows += [ones(1, hidden), zeros(1, hidden)]
    named: dict[str, Tensor] = {
        "ramp_start": edges[None, 1:],
        "ramp_slope": -1 / width[None],
        "W_E": eye(cells, d_model),
        "W_1": torch.cat(rows),
        "b_1": torch.from_numpy(np.repeat(levels, cells)),
        "W_2": outer,
        "W_R": basis[:, :1],
        "b_R": numbers([offset]),
    }
    config = Config(
        layout="tokens",
        input_shape=(n,),
        output_shape=(n,) if sorts else (),
        d_model=d_model,
        heads=(HeadShape(4, cells), HeadShape(4, 1)) if sorts else (HeadShape(4, cells),),
        hidden=hidden,
        embedding="piecewise",
        ramps=cells,
        positions="learned" if sorts else "none",
        readout="each" if sorts else "first",
    )
    model = OneLayerTransformer(config, [None] * len(config.heads), dtype=dtype)
    model.set_weights(named | _heads(n, cells, d_model, sorts, dtype))
    return model.requires_grad_(False)


def _heads(n: int, cells: int, d_model: int, sorts: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    """The uniform head, and the head that copies the position by exact logits 2 s i j - s j^2, positions centred."""
    # A second head of d_k = 4 and one value when sorting.
    d_k, d_v = (8, cells + 1) if sorts else (4, cells)
    query = zeros(d_model, d_k)
    key = zeros(d_model, d_k)
    value = eye(d_model, d_v)
    output = eye(d_v, d_model)
    named = {"b_Q": zeros(d_k), "b_K": zeros(d_k), "b_V": zeros(d_v)}
    if sorts:
        # Neighbours weigh exp(-64), far below a rounding of float64, or exp(-16), about one of float32.
        sharpness = 64.0 if dtype == torch.float64 else 16.0
        place = counted(n) - (n - 1) / 2
        table = zeros(n, d_model)
        table[:, cells] = place
        table[:, cells + 1] = place**2
        # Both queries are 2 = sqrt(d_k), which the scale of the logits divides out again.
        query[cells, 4] = 2.0
        key[cells, 4] = 2 * sharpness
        named["b_Q"][5] = 2.0
        key[cells + 1, 5] = -sharpness
        # Positions 1 ... n from centred ones.
        named["b_V"][cells] = (n + 1) / 2
        named["position"] = table
    return named | {"W_Q": query, "W_K": key, "W_V": value, "W_O": output, "b_O": zeros(d_model)}
