"""Layers that recall a finite table: softmax memory with a token per row, or a projection and a ReLU unit per row."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.arguments import ROOM, narrowest
from onelayer.build.tables.table import Rows
from onelayer.float64 import UNIT, counted, eye, full, indices, ones, product_above, zeros
from onelayer.formats import format_of
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.distance import smallest_squared_distance
from onelayer.lemmas.forward import UP, rounding_of
from onelayer.lemmas.overflow import overflows
from onelayer.lemmas.recall import ReluRecall, SoftmaxRecall, wanted_gap
from onelayer.observer import Stopped
from onelayer.recording.columns import Array

# Random projections tried; the one with the largest smallest gap is kept.
DIRECTIONS = 16


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
    # Bound of |z(x) - z(y)| / max_i |x_i - y_i|, Euclidean norm of z.
    slope: float
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
    count, width = z.shape
    outputs = y.shape[1]
    squares = (z * z).sum(1, keepdim=True)
    # A bound of all |z|^2: what the sum above may have lost, 2^-40 of it up to some thousand columns; squares vanish.
    lost = max(2.0**-40, (width + 4) * 2.0**-52)
    radius = float(squares.max()) * (1 + lost) + width * sys.float_info.min
    try:
        distance = smallest_squared_distance(z.to(device), report)
    except Stopped:
        # Zero is a lower bound too, and proves nothing.
        distance = 0.0
    unscaled = SoftmaxRecall(count, width, 1.0, distance, radius, rounding, query.error)
    beta = _sharpness(unscaled, dtype)
    keys = torch.cat([2 * beta * z, -beta * squares], 1)
    model = OneLayerTransformer.packed(
        table.inputs.shape[1:],
        table.outputs.shape[1:],
        [PlainMemory(keys, y)],
        d_model=max(width, outputs),
        weights=_softmax_weights(query, width, outputs),
        dtype=dtype,
        **query.options,
    ).requires_grad_(False)
    bound = replace(unscaled, beta=beta)
    stored = count * (width + 1 + outputs) + query.stored
    largest = float(y.abs().max())
    error = math.inf if overflows(model, _hull(table)) else bound.error(largest)
    lipschitz = _softmax_slope(bound, y, query.slope)
    return Recaller("softmax", model, error, stored, lipschitz)


def _sharpness(unscaled: SoftmaxRecall, dtype: torch.dtype) -> float:
    """beta with which other tokens weigh less than a rounding; 1, and no proof, where logits would overflow."""
    if unscaled.rows == 1:
        return 1.0
    # Above zero, so that rows which fall together give a beta that is refused below, not a division by zero.
    gap = max(unscaled.gap(), 2.0**-900)
    beta = wanted_gap(unscaled.rows, unscaled.rounding) / gap
    # An eighth of the largest number: a logit is a sum of 2 beta z . z_m and beta |z_m|^2.
    most = format_of(dtype).largest / 8
    fits = math.isfinite(beta) and beta * (1 + unscaled.radius) < most
    return beta if fits else 1.0


def _softmax_weights(query: Query, width: int, outputs: int) -> dict[str, Tensor]:
    """The query is (z, 1), times sqrt(d_k); the value goes straight to the output."""
    d_model = max(width, outputs)
    basis = eye(d_model)
    features = indices(width + 1)
    root = math.sqrt(width + 1)
    first = zeros(query.weights["W_E"].shape[0], d_model)
    first[:, :width] = query.weights["W_E"]
    shift = zeros(d_model)
    shift[:width] = query.weights["b_E"]
    return query.weights | {
        "W_E": first,
        "b_E": shift,
        "W_Q": root * (eye(d_model, width + 1) * (features < width)),
        "b_Q": root * (features == width).double(),
        "W_O": basis[:outputs],
        "W_R": basis[:, :outputs],
    }


def _softmax_slope(bound: SoftmaxRecall, y: Tensor, slope: float) -> float:
    """A bound of |T(x) - T(x')| / max |x_i - x_i'|, where z moves by at most ``slope`` times that, in Euclidean norm.

    The slope of T in z is 2 beta times the covariance of values and z_m under the weights, and a deviation is at most
    half of a spread. Keys, W_Q and ramps are rounded to the format, each by at most its unit of themselves.
    """
    spread = float((y.amax(0) - y.amin(0)).max())
    rounded = 1 + 4 * bound.rounding.unit
    return product_above(bound.beta, spread, math.sqrt(bound.radius), slope, rounded * UP)


def _scaled(table: Rows, dtype: torch.dtype) -> Query:
    """z = scale x + shift with powers of two as scales: one rounding, so z is exactly what the layer computes.

    But for products below the normal range, which may be lost. Columns that hardly vary are not scaled.
    """
    x = torch.from_numpy(table.inputs.reshape(len(table), -1))
    deviation = (x - x.mean(0)).abs().amax(0)
    varies = deviation > narrowest(dtype)
    exponents = torch.round(torch.log2(torch.where(varies, deviation, 1.0)))
    scale = torch.exp2(-exponents)
    shift = (-scale * x.mean(0)).to(dtype).double()
    # In the format, operation by operation, as the layer does it.
    z = (x.to(dtype) * scale.to(dtype) + shift.to(dtype)).double()
    weights = {"W_E": torch.diag(scale), "b_E": shift}
    # Squares of scales may vanish or overflow; this root of their sum does neither.
    slope = math.hypot(*scale.tolist())
    return Query(weights, {}, z, rounding_of(dtype).tiny, slope, 2 * x.shape[1])


def _ranked(table: Rows, dtype: torch.dtype) -> Query:
    """z = rank of x among the rows, from 0, centred: a sum of ramps, each rising from 0 to 1 between two neighbours.

    At a row every ramp is 0, or within 4 u + 4 tiny / gap of 1, if the inverse of its gap is a number of the format;
    sums of N numbers of size at most 1 err by at most N^2 u.
    """
    x = torch.from_numpy(table.inputs.reshape(-1))
    ordered, rank = torch.sort(x)
    count = len(x)
    rounding = rounding_of(dtype)
    steep = format_of(dtype).largest * ROOM
    slope = (1 / torch.diff(ordered)).clamp(max=steep)
    steepest = float(slope.max())
    z = zeros(count, 1)
    z[rank, 0] = counted(count) - (count - 1) / 2
    weights = {
        "ramp_start": ordered[None, :-1],
        "ramp_slope": slope[None],
        "W_E": ones(count - 1, 1),
        "b_E": full((1,), -(count - 1) / 2),
    }
    # Twice what the lemma says: of every ramp, and of their sum with the constant.
    rounded = 2 * (4 * count + count * (count + 2)) * rounding.unit
    error = rounded + 4 * count * rounding.tiny * steepest
    # A slope that was cut off is no inverse of a gap, and its ramp does not reach 1.
    if not steepest < steep:
        error = math.inf
    options = {"embedding": "piecewise", "ramps": count - 1}
    return Query(weights, options, z, error, steepest, 2 * count - 1)


@np.errstate(all="ignore")
def relu_recall(table: Rows, dtype: torch.dtype, seed: int) -> Recaller:
    """Project the rows to distinct numbers s_r = p . x_r and interpolate linearly: N - 1 ReLU units.

    F(s) = y_1 + sum_r c_r relu(s - s_r), c_r the change of slope at s_r. The coefficients alternate in sign and grow
    like the inverse gaps, about N^2, which is where digits are lost to cancellation.
    """
    x = table.inputs.reshape(len(table), -1)
    y = table.outputs.reshape(len(table), -1)
    columns = x.shape[1]
    projection, shift = _projection(x, seed)
    projection = _narrowed(projection, dtype)
    shift = float(_narrowed(np.array(shift), dtype))
    s = x @ projection + shift
    order = np.argsort(s)
    knots = _narrowed(s[order], dtype)
    values = y[order]
    offset = _narrowed(values[0], dtype)
    gaps = np.diff(knots)[:, None]
    slopes = np.diff(values, axis=0) / gaps
    coefficients = _narrowed(np.diff(slopes, axis=0, prepend=0.0), dtype)
    # Rows that fall together, or so close that a slope is beyond the format, leave a layer that is constant.
    apart = bool((gaps > 0).all())
    finite = np.isfinite(slopes).all() and np.isfinite(coefficients).all()
    solid = apart and bool(finite)
    if not solid:
        coefficients = np.zeros_like(coefficients)
    rounding = rounding_of(dtype)
    sums = np.abs(x) @ np.abs(projection)
    size = float(sums.max()) + abs(shift)
    # Twice: by the executed projection, and by the float64 product above, which rounds again when narrowed.
    largest = 1 + float(np.abs(projection).max())
    lost = 4 * (columns + 3) * rounding.tiny * largest
    drift = (2 * rounding.gamma(columns + 3) * size + lost) * UP
    bound = ReluRecall(knots, values, offset, coefficients, drift, rounding)
    model = _relu_layer(table, projection, shift, knots, coefficients, offset, dtype)
    stretch = float(np.abs(projection).sum())
    lipschitz = product_above(_steepest(coefficients), stretch, UP)
    stored = columns + 1 + len(knots) - 1 + coefficients.size + offset.size
    proved = solid and not overflows(model, _hull(table))
    error = bound.error() if proved else math.inf
    return Recaller("relu", model, error, stored, lipschitz)


def _steepest(coefficients: Array) -> float:
    """A bound of the slopes of sum_r c_r relu(s - s_r): partial sums of the coefficients that the layer has.

    Rounded to a format they no longer add up to the slopes of the rows; the second term is the rounding of the sums.
    """
    partial = np.abs(np.cumsum(coefficients, axis=0)).max(initial=0.0)
    total = np.abs(coefficients).sum(0).max(initial=0.0)
    return float(partial + len(coefficients) * UNIT * total)


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
    varies = deviation > narrowest(torch.float64)
    scale = 1 / np.where(varies, deviation, 1.0)
    columns = x.shape[1]
    tries = np.ones((1, 1))
    if columns > 1:
        generator = np.random.default_rng(seed)
        tries = generator.standard_normal((DIRECTIONS, columns))
    centred = (x - x.mean(0)) * scale
    gaps = np.array([_smallest_gap(centred @ direction) for direction in tries])
    # A gap that is no number comes from a column that overflows, and is the worst there is.
    best = tries[int(np.where(np.isnan(gaps), -1.0, gaps).argmax())]
    p = best * scale
    return p, -float(p @ x.mean(0))


def _smallest_gap(s: Array) -> float:
    """The smallest distance of two numbers, relative to their range."""
    if len(s) < 2:
        return 1.0
    ordered = np.sort(s)
    closest = np.diff(ordered).min()
    return float(closest / max(ordered[-1] - ordered[0], 1e-300))


def _narrowed(numbers: Array, dtype: torch.dtype) -> Array:
    """Rounded to the format, as float64."""
    return numbers.astype(format_of(dtype).name).astype(np.float64)
