"""The whole one-layer Transformer in NumPy float64: forward, and backward written by hand.

Weights are a dict of arrays under the names of the torch layer, inputs have one batch axis: (B, *input_shape). Grid
memory is written out token by token; nothing is factorised, fused or chunked. Every backward function returns the
gradient of a scalar L with respect to its inputs from ``d``, the gradient with respect to its output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onelayer.equations.functions import Array, relu, relu_slope
from onelayer.equations.heads import HeadTape, head_backward, head_forward
from onelayer.layer.config import Config

Arrays = dict[str, Array]
NORM_EPS = 1e-5  # torch's own


@dataclass
class ForwardTape:
    """What the forward pass leaves for the backward pass: the arrays of OneLayerTransformer's equations."""

    f: Array
    x: Array
    e: Array
    u: Array
    heads: list[HeadTape]
    z: Array
    sum_1: Array
    r: Array
    inner: Array | None
    pre: Array | None
    sum_2: Array | None
    y: Array
    pooled: Array
    out: Array


def _feed_forward(config: Config, weights: Arrays, r: Array) -> tuple[Array, Array, Array, Array]:
    """Y = [R +] FFN(R): what the units see, what they return before the ReLU, the sum, and the sum normalised."""
    inner = _layer_norm(weights, "2", r) if config.norm == "pre" else r
    pre = _affine(weights, "1", inner)
    written = _affine(weights, "2", relu(pre))
    total = r + written if config.residual else written
    y = _layer_norm(weights, "2", total) if config.norm == "post" else total
    return inner, pre, total, y


def forward(config: Config, weights: Arrays, x: Array) -> ForwardTape:
    """E = embed(X); A = MHA(U) W_O + b_O; R = [E +] A; Y = [R +] FFN(R); out = readout(Y). See OneLayerTransformer."""
    batch = x.shape[0]
    n = config.length
    x = x.reshape(batch, config.rows, config.token_width)
    f = _ramps(config, weights, x)
    e = _affine(weights, "E", f).reshape(batch, n, config.d_model)
    if config.positions != "none":
        e = e + weights["position"]
    u = _layer_norm(weights, "1", e) if config.norm == "pre" else e
    heads = [head_forward(config, weights, h, u) for h in range(len(config.heads))]
    z = np.concatenate([head.z for head in heads], axis=-1)
    a = _affine(weights, "O", z)
    sum_1 = e + a if config.residual else a
    r = _layer_norm(weights, "1", sum_1) if config.norm == "post" else sum_1
    inner = pre = sum_2 = None
    y = r
    if config.hidden:
        inner, pre, sum_2, y = _feed_forward(config, weights, r)
    pooled = _pool(config, y)
    out = _affine(weights, "R", pooled).reshape(batch, *config.output_shape)
    return ForwardTape(f, x, e, u, heads, z, sum_1, r, inner, pre, sum_2, y, pooled, out)


def backward(config: Config, weights: Arrays, tape: ForwardTape, d: Array) -> Arrays:
    """Gradients of L for every weight by name, and for the input under "x", from d = dL/d out."""
    gradients: Arrays = {}
    d = d.reshape(*tape.pooled.shape[:-1], config.readout_width)
    d = _affine_backward(weights, "R", tape.pooled, d, gradients)
    d = _pool_backward(config, d)
    d = _feed_forward_backward(config, weights, tape, d, gradients)
    if config.norm == "post":
        d = _layer_norm_backward(weights, "1", tape.sum_1, d, gradients)
    d_e = d if config.residual else np.zeros_like(tape.e)
    d_z = _affine_backward(weights, "O", tape.z, d, gradients)
    d_u = np.zeros_like(tape.u)
    column = 0
    for h, (shape, head) in enumerate(zip(config.heads, tape.heads, strict=True)):
        end = column + shape.d_v
        d_u += head_backward(config, weights, h, tape.u, head, d_z[..., column:end], gradients)
        column = end
    # Here the road around attention and the one through it meet again.
    if config.norm == "pre":
        d_u = _layer_norm_backward(weights, "1", tape.e, d_u, gradients)
    d_e = d_e + d_u
    if config.positions != "none":
        gradients["position"] = d_e.sum(axis=0)
    d_e = d_e.reshape(*tape.f.shape[:2], -1)
    d_f = _affine_backward(weights, "E", tape.f, d_e, gradients)
    d_x = _ramps_backward(config, weights, tape.x, d_f)
    gradients["x"] = d_x.reshape(-1, *config.input_shape)
    return gradients


def _feed_forward_backward(config: Config, weights: Arrays, tape: ForwardTape, d: Array, gradients: Arrays) -> Array:
    if tape.inner is None or tape.pre is None or tape.sum_2 is None:
        return d
    if config.norm == "post":
        d = _layer_norm_backward(weights, "2", tape.sum_2, d, gradients)
    d_hidden = _affine_backward(weights, "2", relu(tape.pre), d, gradients)
    d_inner = _affine_backward(weights, "1", tape.inner, d_hidden * relu_slope(tape.pre), gradients)
    if config.norm == "pre":
        d_inner = _layer_norm_backward(weights, "2", tape.r, d_inner, gradients)
    return d + d_inner if config.residual else d_inner


def _affine(weights: Arrays, which: str, x: Array) -> Array:
    return np.asarray(x @ weights[f"W_{which}"] + weights[f"b_{which}"])


def _affine_backward(weights: Arrays, which: str, x: Array, d: Array, gradients: Arrays) -> Array:
    """Y = X W + b: dL/dW = X^T d and dL/db = sum of d over all rows, dL/dX = d W^T. Eq (10) for rows."""
    rows = x.reshape(-1, x.shape[-1])
    slopes = d.reshape(-1, d.shape[-1])
    gradients[f"W_{which}"] = rows.T @ slopes
    gradients[f"b_{which}"] = slopes.sum(axis=0)
    return np.asarray(d @ weights[f"W_{which}"].T)


def _layer_norm(weights: Arrays, which: str, x: Array) -> Array:
    """gain * (x - mean) / sqrt(variance + 1e-5) + shift, per token."""
    u, _ = _normalised(x)
    return np.asarray(u * weights[f"gain_{which}"] + weights[f"shift_{which}"])


def _normalised(x: Array) -> tuple[Array, Array]:
    """(x - mean) / scale and the scale, per token."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    scale = np.sqrt(variance + NORM_EPS)
    return centred / scale, scale


def _layer_norm_backward(weights: Arrays, which: str, x: Array, d: Array, gradients: Arrays) -> Array:
    """With u = (x - mean)/scale and g = d * gain: dL/dx = (g - mean(g) - u mean(g u)) / scale."""
    u, scale = _normalised(x)
    gradients[f"gain_{which}"] = (d * u).sum(axis=(0, 1))
    gradients[f"shift_{which}"] = d.sum(axis=(0, 1))
    g = d * weights[f"gain_{which}"]
    # What moves the mean or the scale of a token is normalised away again.
    by_mean = g.mean(axis=-1, keepdims=True)
    by_scale = u * (g * u).mean(axis=-1, keepdims=True)
    return np.asarray((g - by_mean - by_scale) / scale)


def _pool(config: Config, y: Array) -> Array:
    if config.readout == "each":
        return y
    if config.readout == "mean":
        return np.asarray(y.mean(axis=1))
    return np.asarray(y[:, 0 if config.readout == "first" else -1])


def _pool_backward(config: Config, d: Array) -> Array:
    if config.readout == "each":
        return d
    share = np.zeros((d.shape[0], config.length, d.shape[-1]))
    if config.readout == "mean":
        share[:] = d[:, None] / config.length
    else:
        share[:, 0 if config.readout == "first" else -1] = d
    return share


def _ramps(config: Config, weights: Arrays, x: Array) -> Array:
    """What the embedding matrix multiplies: x itself, or clip((x - start) * slope, 0, 1) for every ramp."""
    if config.embedding == "linear":
        return x
    climbed = (x[..., None] - weights["ramp_start"]) * weights["ramp_slope"]
    ramps = np.clip(climbed, 0.0, 1.0)
    return np.asarray(ramps.reshape(*x.shape[:-1], config.features))


def _ramps_backward(config: Config, weights: Arrays, x: Array, d: Array) -> Array:
    """A ramp passes its slope on between its ends and nothing outside. The ramps themselves are not trained."""
    if config.embedding == "linear":
        return d
    inside = (x[..., None] - weights["ramp_start"]) * weights["ramp_slope"]
    open_ramps = ((inside > 0) & (inside < 1)) * weights["ramp_slope"]
    return np.asarray((d.reshape(open_ramps.shape) * open_ramps).sum(axis=-1))
