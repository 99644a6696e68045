"""Layers that recall a finite table: softmax memory with a token per row, or a projection and a ReLU unit per row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.arguments import ROOM, narrowest
from onelayer.build.tables.table import Rows
from onelayer.float64 import counted, eye, full, indices, ones, zeros
from onelayer.formats import format_of
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.distance import smallest_squared_distance
from onelayer.lemmas.forward import UP, rounding_of
from onelayer.lemmas.overflow import overflows
from onelayer.lemmas.recall import ReluRecall, SoftmaxRecall, wanted_gap
from onelayer.observer import Stopped
from onelayer.recording.columns import Array

DIRECTIONS = 16  # random projections tried; the one with the largest smallest gap is kept


@dataclass(frozen=True)
class Recaller:
    """A layer with the proved bound of its error on the rows, the numbers it stores, and a Lipschitz constant.

    ``lipschitz`` bounds |T(x) - T(y)| / max_i |x_i - y_i| everywhere, outputs in the maximum norm.
    """

    recipe: str
    model: OneLayerTransformer
    error: float
    stored_numbers: int
    lipschitz: float


@dataclass(frozen=True)
class Query:
    """How a row x becomes the query z: weights of the embedding, z of every row, and the error of an executed z."""

    weights: dict[str, Tensor]
    options: dict[str, Any]
    z: Tensor  # (N, width)
    error: float
    slope: float  # bound of |z(x) - z(y)| / max_i |x_i - y_i|, Euclidean norm of z
    stored: int


def softmax_recall(table: Rows, dtype: torch.dtype, device: torch.device, report: Callable[[float], None]) -> Recaller:
    """One memory token per row: key (2 beta z_m, -beta |z_m|^2), value y_m.

    beta is chosen so large, from the smallest distance between rows, that the other tokens together weigh less than one
    rounding; then recall is exact up to a few roundings and no system has to be solved. The query z is x, centred and
    scaled; rows of one number that lie too close for that are first spread by ramps to their ranks.
    """
    made = _softmax_layer(table, _scaled(table, dtype), dtype, device, report)
    close = not made.error < math.inf
    if close and table.inputs[0].size == 1:
        return _softmax_layer(table, _ranked(table, dtype), dtype, device, report)
    return made


def _softmax_layer(
    table: Rows, query: Query, dtype: torch.dtype, device: torch.device, report: Callable[[float], None]
) -> Recaller:
    y = torch.from_numpy(table.outputs.reshape(len(table), -1))
    z = query.z
    rounding = rounding_of(dtype)
    (count, width), outputs = z.shape, y.shape[1]
    radius = float((z * z).sum(1).max()) * (1 + 2.0**-40)
    try:
        distance = smallest_squared_distance(z.to(device), report)
    except Stopped:
        distance = 0.0  # is a lower bound too, and proves nothing
    free = SoftmaxRecall(count, width, 1.0, distance, radius, rounding, query.error)
    beta = 1.0 if count == 1 else wanted_gap(count, rounding) / max(free.gap(), 2.0**-900)
    beta = beta if math.isfinite(beta) and beta * (1 + radius) < format_of(dtype).largest / 8 else 1.0
    d_model = max(width, outputs)
    root = math.sqrt(width + 1)
    basis = eye(d_model)
    extended = eye(d_model, width + 1) * (indices(width + 1) < width)
    first = zeros(query.weights["W_E"].shape[0], d_model)
    first[:, :width] = query.weights["W_E"]
    shift = zeros(d_model)
    shift[:width] = query.weights["b_E"]
    weights = query.weights | {
        "W_E": first,
        "b_E": shift,
        "W_Q": root * extended,
        "b_Q": root * (indices(width + 1) == width).double(),
        "W_O": basis[:outputs],
        "W_R": basis[:, :outputs],
    }
    squares = (z * z).sum(1, keepdim=True)
    memory = PlainMemory(torch.cat([2 * beta * z, -beta * squares], 1), y)
    shapes = table.inputs.shape[1:], table.outputs.shape[1:]
    model = OneLayerTransformer.packed(
        *shapes, [memory], d_model=d_model, weights=weights, dtype=dtype, **query.options
    ).requires_grad_(False)
    bound = SoftmaxRecall(count, width, beta, distance, radius, rounding, query.error)
    spread = float((y.amax(0) - y.amin(0)).max())
    lipschitz = beta * spread * math.sqrt(radius) * query.slope * UP
    stored = count * (width + 1 + outputs) + query.stored
    error = math.inf if overflows(model, _hull(table)) else bound.error(float(y.abs().max()))
    return Recaller("softmax", model, error, stored, lipschitz)


def _scaled(table: Rows, dtype: torch.dtype) -> Query:
    """z = scale x + shift with powers of two as scales: one rounding, so z is exactly what the layer computes.

    But for products below the normal range, which may be lost. Columns that hardly vary are not scaled.
    """
    x = torch.from_numpy(table.inputs.reshape(len(table), -1))
    deviation = (x - x.mean(0)).abs().amax(0)
    varies = deviation > narrowest(dtype)
    scale = torch.exp2(-torch.round(torch.log2(torch.where(varies, deviation, 1.0))))
    shift = (-scale * x.mean(0)).to(dtype).double()
    z = (x.to(dtype) * scale.to(dtype) + shift.to(dtype)).double()
    weights = {"W_E": torch.diag(scale), "b_E": shift}
    return Query(weights, {}, z, rounding_of(dtype).tiny, float(scale.norm()), 2 * x.shape[1])


def _ranked(table: Rows, dtype: torch.dtype) -> Query:
    """z = rank of x among the rows, from 0, centred: a sum of ramps, each rising from 0 to 1 between two neighbours.

    At a row every ramp is 0, or within 4 u + 4 tiny / gap of 1, if the inverse of its gap is a number of the format;
    sums of N numbers of size at most 1 err by at most N^2 u.
    """
    x = torch.from_numpy(table.inputs.reshape(-1))
    ordered, rank = torch.sort(x)
    count = len(x)
    unit = rounding_of(dtype).unit
    slope = (1 / torch.diff(ordered)).clamp(max=format_of(dtype).largest * ROOM)
    steepest = float(slope.max())
    z = zeros(count, 1)
    z[rank, 0] = counted(count) - (count - 1) / 2
    weights = {
        "ramp_start": ordered[None, :-1],
        "ramp_slope": slope[None],
        "W_E": ones(count - 1, 1),
        "b_E": full((1,), -(count - 1) / 2),
    }
    rounded = 2 * (4 * count + count * (count + 2)) * unit
    error = rounded + 4 * count * rounding_of(dtype).tiny * steepest
    error = error if steepest < format_of(dtype).largest * ROOM else math.inf
    return Query(weights, {"embedding": "piecewise", "ramps": count - 1}, z, error, steepest, 2 * count - 1)


@np.errstate(all="ignore")
def relu_recall(table: Rows, dtype: torch.dtype, seed: int) -> Recaller:
    """Project the rows to distinct numbers s_r = p . x_r and interpolate linearly: N - 1 ReLU units.

    F(s) = y_1 + sum_r c_r relu(s - s_r), c_r the change of slope at s_r. The coefficients alternate in sign and grow
    like the inverse gaps, about N^2, which is where digits are lost to cancellation.
    """
    x = table.inputs.reshape(len(table), -1)
    y = table.outputs.reshape(len(table), -1)
    projection, shift = _projection(x, seed)
    projection = projection.astype(_numpy(dtype)).astype(np.float64)
    shift = float(_numpy(dtype).type(shift))
    s = x @ projection + shift
    order = np.argsort(s)
    knots = s[order].astype(_numpy(dtype)).astype(np.float64)
    values = y[order]
    gaps = np.diff(knots)[:, None]
    slopes = np.diff(values, axis=0) / gaps
    solid = bool(np.isfinite(slopes).all()) and bool((gaps > 0).all())
    coefficients = np.diff(slopes, axis=0, prepend=0.0).astype(_numpy(dtype)).astype(np.float64)
    solid = solid and bool(np.isfinite(coefficients).all())
    coefficients = coefficients if solid else np.zeros_like(coefficients)
    rounding = rounding_of(dtype)
    size = float((np.abs(x) @ np.abs(projection)).max()) + abs(shift)
    # of the executed projection and of the float64 product above, which rounds again when narrowed
    lost = 4 * (x.shape[1] + 3) * rounding.tiny * (1 + float(np.abs(projection).max()))
    drift = (2 * rounding.gamma(x.shape[1] + 3) * size + lost) * UP
    offset = values[0].astype(_numpy(dtype)).astype(np.float64)
    bound = ReluRecall(knots, values, offset, coefficients, drift, rounding)
    model = _relu_layer(table, projection, shift, knots, coefficients, offset, dtype)
    lipschitz = float(np.abs(slopes).max(initial=0.0)) * float(np.abs(projection).sum()) * UP
    stored = x.shape[1] + 1 + len(knots) - 1 + coefficients.size + offset.size
    proved = solid and not overflows(model, _hull(table))
    return Recaller("relu", model, bound.error() if proved else math.inf, stored, lipschitz)


def _hull(table: Rows) -> Box:
    return Box(table.inputs.min(0), table.inputs.max(0))


def _relu_layer(
    table: Rows, projection: Array, shift: float, knots: Array, coefficients: Array, offset: Array, dtype: torch.dtype
) -> OneLayerTransformer:
    """The stream carries s and the outputs; the only head looks at one token of value zero and is silent."""
    outputs = coefficients.shape[1]
    units = max(1, len(coefficients))
    d_model = 1 + outputs
    first = zeros(d_model, units)
    bias = zeros(units)
    second = zeros(units, d_model)
    first[0, : len(coefficients)] = 1.0
    bias[: len(coefficients)] = torch.from_numpy(-knots[:-1])
    second[: len(coefficients), 1:] = torch.from_numpy(coefficients)
    basis = eye(d_model)
    weights: dict[str, Tensor] = {
        "W_E": torch.from_numpy(projection)[:, None] * basis[:1],
        "b_E": shift * basis[0],
        "W_Q": zeros(d_model, 1),
        "W_O": zeros(1, d_model),
        "W_1": first,
        "b_1": bias,
        "W_2": second,
        "W_R": basis[:, 1:],
        "b_R": torch.from_numpy(offset),
    }
    zero = zeros(1, 1)
    return OneLayerTransformer.packed(
        table.inputs.shape[1:],
        table.outputs.shape[1:],
        [PlainMemory(zero, zero)],
        d_model=d_model,
        hidden=units,
        residual=True,
        weights=weights,
        dtype=dtype,
    ).requires_grad_(False)


def _projection(x: Array, seed: int) -> tuple[Array, float]:
    """Of several random directions in standardised columns, the one whose projections keep the largest distance."""
    deviation = np.abs(x - x.mean(0)).max(0)
    scale = 1 / np.where(deviation > narrowest(torch.float64), deviation, 1.0)
    generator = np.random.default_rng(seed)
    tries = generator.standard_normal((DIRECTIONS, x.shape[1])) if x.shape[1] > 1 else np.ones((1, 1))
    centred = (x - x.mean(0)) * scale
    best = tries[0]
    best_gap = -1.0
    for direction in tries:
        s = np.sort(centred @ direction)
        closest = np.diff(s).min(initial=np.inf)
        gap = float(closest / max(s[-1] - s[0], 1e-300)) if len(s) > 1 else 1.0
        if gap > best_gap:
            best, best_gap = direction, gap
    p = best * scale
    return p, -float(p @ x.mean(0))


def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(format_of(dtype).name)
