"""The paper's equations (1)-(10) in NumPy float64, one function per equation, to be read beside the paper.

Sections II-IV of the paper write dense layers with column vectors, h = phi(Wx + b), and attention with row vectors,
q = x W^Q. Each function keeps the orientation of its equation. The whole layer, forward and hand-written backward, is
in layer.py; optimisers.py and diagnostics.py hold the rest of what the paper names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def dense_layer(x: Array, weight: Array, bias: Array, phi: Callable[[Array], Array]) -> Array:
    """Eq (1): h = phi(W x + b). ``x`` (d,), ``weight`` (d', d), ``bias`` (d',)."""
    return phi(weight @ x + bias)


def expected_loss(
    loss: Callable[[Array, Array], float], model: Callable[[Array], Array], samples: Sequence[tuple[Array, Array]]
) -> float:
    """Eq (2): E[loss(f(x), y)], approximated by the mean over the given (x, y), as the paper says."""
    return float(np.mean([loss(model(x), y) for x, y in samples]))


def cross_entropy(label: Array, probability: Array) -> float:
    """Eq (3): L(y, y_hat) = -sum_c y_c log y_hat_c. Classes of label 0 do not count, even at probability 0."""
    counts = label > 0
    return float(-np.sum(label[counts] * np.log(probability[counts])))


def gradient_descent_step(theta: Array, gradient: Array, eta: float) -> Array:
    """Eq (4): theta <- theta - eta grad L(theta), for a learning rate eta > 0."""
    return theta - eta * gradient


def attention_weights(query: Array, keys: Array) -> Array:
    """Eq (5): alpha_ij = exp(q_i . k_j / sqrt(d)) / sum_l exp(q_i . k_l / sqrt(d)), written with its sums.

    ``query`` (N, d), ``keys`` (S, d) -> (N, S). Rows are shifted by their largest logit, which cancels.
    """
    logits = np.einsum("id,jd->ij", query, keys) / np.sqrt(query.shape[-1])
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def attention_output(weights: Array, values: Array) -> Array:
    """Eq (6): z_i = sum_j alpha_ij v_j. ``weights`` (N, S), ``values`` (S, d_v) -> (N, d_v)."""
    return np.asarray(np.einsum("ij,jd->id", weights, values))


def self_attention(query: Array, keys: Array, values: Array) -> Array:
    """Eq (7): Z = softmax(Q K^T / sqrt(d)) V, softmax by rows; equal to eqs (5) and (6) together. Any batch shape."""
    logits = query @ np.swapaxes(keys, -2, -1) / np.sqrt(query.shape[-1])
    return np.asarray(softmax(logits) @ values)


@dataclass(frozen=True)
class HeadMatrices:
    """W^Q, W^K (d, d_k) and W^V (d, d_v) of one head."""

    query: Array
    key: Array
    value: Array


def multi_head_attention(x: Array, heads: Sequence[HeadMatrices], output: Array) -> Array:
    """Eq (8): MHA(X) = Concat(Z_1, ..., Z_h) W^O with Z_i by eq (7) from X W_i^Q, X W_i^K, X W_i^V.

    ``x`` (..., N, d), ``output`` (sum d_v, d) -> (..., N, d).
    """
    parts = [self_attention(x @ head.query, x @ head.key, x @ head.value) for head in heads]
    side_by_side = np.concatenate(parts, axis=-1)
    return np.asarray(side_by_side @ output)


def backpropagated_error(weight: Array, delta: Array, slope: Array) -> Array:
    """Eq (9): delta^{l-1} = (W^l)^T delta^l * phi'(z^{l-1}), true for delta^l = dL/dz^l.

    The paper defines delta^l = dL/dh^l, for which the factor phi' belongs to layer l:
    dL/dh^{l-1} = (W^l)^T (dL/dh^l * phi'(z^l)). With that definition eq (9) as printed is false, and so is eq (10).
    """
    return np.asarray(weight.T @ delta * slope)


def parameter_gradients(delta: Array, previous: Array) -> tuple[Array, Array]:
    """Eq (10): dL/dW^l = delta^l (h^{l-1})^T and dL/db^l = delta^l, true for delta^l = dL/dz^l."""
    return np.outer(delta, previous), delta


def backpropagate(
    weights: Sequence[Array], biases: Sequence[Array], x: Array, loss_slope: Callable[[Array], Array]
) -> list[tuple[Array, Array]]:
    """Gradients (dL/dW^l, dL/db^l) of a ReLU network with a linear last layer, by eqs (1), (9) and (10).

    ``loss_slope`` maps the prediction h^L to dL/dh^L, which is dL/dz^L because the last layer is linear.
    """
    z: list[Array] = []
    h = [x]
    last = len(weights) - 1
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        before = dense_layer(h[-1], weight, bias, np.asarray)
        z.append(before)
        h.append(before if layer == last else relu(before))
    delta = loss_slope(h[-1])
    gradients = [parameter_gradients(delta, h[-2])]
    for layer in range(last, 0, -1):
        slope = relu_slope(z[layer - 1])
        delta = backpropagated_error(weights[layer], delta, slope)
        gradients.append(parameter_gradients(delta, h[layer - 1]))
    return gradients[::-1]


EQUATIONS: dict[int, Callable[..., object]] = {
    1: dense_layer,
    2: expected_loss,
    3: cross_entropy,
    4: gradient_descent_step,
    5: attention_weights,
    6: attention_output,
    7: self_attention,
    8: multi_head_attention,
    9: backpropagated_error,
    10: parameter_gradients,
}


def softmax(logits: Array) -> Array:
    """exp and division by the sum along the last axis, shifted by the largest entry, which cancels."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def relu(z: Array) -> Array:
    """max(z, 0)."""
    return np.maximum(z, 0.0)


def relu_slope(z: Array) -> Array:
    """Derivative of relu, 0 at the kink."""
    return (z > 0).astype(np.float64)
