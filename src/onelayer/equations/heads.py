"""One attention head in NumPy float64, forward and hand-written backward, for every attention kind."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onelayer.equations.functions import Array, softmax
from onelayer.layer.config import Config

Arrays = dict[str, Array]


@dataclass
class HeadTape:
    """query (B, N, d_k) before scaling, keys (B, S, d_k), values (B, S, d_v), weights (B, N, S), z (B, N, d_v)."""

    query: Array
    keys: Array
    values: Array
    weights: Array
    z: Array


def head_forward(config: Config, weights: Arrays, h: int, u: Array) -> HeadTape:
    """Z_h of eq (8): queries of all tokens against token keys (tokens layout), then memory keys."""
    k, v = _columns(config, h)
    query = u @ weights["W_Q"][:, k] + weights["b_Q"][k]
    keys, values = [], []
    if config.token_attention:
        keys.append(u @ weights["W_K"][:, k] + weights["b_K"][k])
        values.append(u @ weights["W_V"][:, v] + weights["b_V"][v])
    if config.heads[h].memory != "none":
        memory_keys, memory_values = memory_tokens(config, weights, h)
        keys.append(np.broadcast_to(memory_keys, (len(u), *memory_keys.shape)))
        values.append(np.broadcast_to(memory_values, (len(u), *memory_values.shape)))
    all_keys = np.concatenate(keys, axis=1)
    all_values = np.concatenate(values, axis=1)
    scaled = query / math.sqrt(query.shape[-1])
    alpha = _weights(config, scaled, all_keys)
    z = np.asarray(alpha @ all_values)
    return HeadTape(query, all_keys, all_values, alpha, z)


def head_backward(
    config: Config, weights: Arrays, h: int, u: Array, tape: HeadTape, d: Array, gradients: Arrays
) -> Array:
    """dL/du from d = dL/dZ_h; adds the gradients of this head's columns and of its memory.

    Z = alpha V gives dL/dV = alpha^T d and dL/dalpha = d V^T; ``_weights_backward`` takes that to queries and keys.
    """
    scale = math.sqrt(tape.query.shape[-1])
    d_values = np.swapaxes(tape.weights, 1, 2) @ d
    d_weights = d @ np.swapaxes(tape.values, 1, 2)
    d_query, d_keys = _weights_backward(config, tape.query / scale, tape.keys, tape.weights, d_weights)
    d_query = d_query / scale
    own = u.shape[1] if config.token_attention else 0
    k, v = _columns(config, h)
    parts = [("Q", k, d_query)]
    if config.token_attention:
        parts += [("K", k, d_keys[:, :own]), ("V", v, d_values[:, :own])]
    d_u = np.zeros_like(u)
    for name, columns, slope in parts:
        matrix = weights[f"W_{name}"]
        bias = weights[f"b_{name}"]
        d_matrix = gradients.setdefault(f"W_{name}", np.zeros_like(matrix))
        d_bias = gradients.setdefault(f"b_{name}", np.zeros_like(bias))
        d_matrix[:, columns] = np.einsum("bnd,bnk->dk", u, slope)
        d_bias[columns] = slope.sum(axis=(0, 1))
        d_u += slope @ matrix[:, columns].T
    if config.heads[h].memory != "none":
        # Memory is shared by the batch: what its tokens receive is added up over it.
        d_memory_keys = d_keys[:, own:].sum(axis=0)
        d_memory_values = d_values[:, own:].sum(axis=0)
        _memory_backward(config, h, d_memory_keys, d_memory_values, gradients)
    return d_u


def memory_tokens(config: Config, weights: Arrays, h: int) -> tuple[Array, Array]:
    """Keys (M, d_k) and values (M, d_v) of head h; grid token (m_1, ..., m_r) has the key sum_a axes[a][m_a]."""
    shape = config.heads[h]
    values = weights[f"memory.{h}.values"].reshape(-1, shape.d_v)
    if shape.memory == "plain":
        return weights[f"memory.{h}.keys"], values
    index = np.indices(shape.tokens).reshape(len(shape.tokens), -1)  # (r, M)
    keys = sum(weights[f"memory.{h}.axes.{a}"][index[a]] for a in range(len(shape.tokens)))
    return np.asarray(keys), values


def _memory_backward(config: Config, h: int, d_keys: Array, d_values: Array, gradients: Arrays) -> None:
    shape = config.heads[h]
    gradients[f"memory.{h}.values"] = d_values.reshape(*shape.tokens, shape.d_v)
    if shape.memory == "plain":
        gradients[f"memory.{h}.keys"] = d_keys
        return
    grid = d_keys.reshape(*shape.tokens, shape.d_k)
    for a in range(len(shape.tokens)):
        others = tuple(axis for axis in range(len(shape.tokens)) if axis != a)
        gradients[f"memory.{h}.axes.{a}"] = grid.sum(axis=others)


def _weights(config: Config, query: Array, keys: Array) -> Array:
    """Eq (5) and its relatives from scaled queries (B, N, d_k) and keys (B, S, d_k)."""
    logits = query @ np.swapaxes(keys, 1, 2)
    if config.attention == "softmax":
        return softmax(logits)
    if config.attention == "topk":
        count = min(config.top_k, logits.shape[-1])
        least = np.sort(logits, axis=-1)[..., -count, None]  # of those that are kept
        kept = np.where(logits < least, -np.inf, logits)
        return softmax(kept)
    if config.attention == "hardmax":
        largest = logits.max(axis=-1, keepdims=True)
        kernel = (logits == largest).astype(np.float64)
    else:
        kernel = _kernel(config, query, keys)
    return np.asarray(kernel / kernel.sum(axis=-1, keepdims=True))


def _weights_backward(config: Config, query: Array, keys: Array, alpha: Array, d: Array) -> tuple[Array, Array]:
    """dL/dquery and dL/dkeys from d = dL/dalpha.

    Softmax: dL/dlogit = alpha (d - sum_l d_l alpha_l), the same for top-k where dropped weights are 0. Hardmax is
    piecewise constant. Linear: alpha = kernel / sum gives dL/dkernel = (d - sum_l d_l alpha_l) / sum.
    """
    centred = d - (d * alpha).sum(axis=-1, keepdims=True)
    if config.attention == "hardmax":
        return np.zeros_like(query), np.zeros_like(keys)
    if config.attention != "linear":
        slope = alpha * centred
    else:
        total = _kernel(config, query, keys).sum(axis=-1, keepdims=True)
        slope = centred / total
        if config.feature == "elu":
            d_query = (slope @ _elu(keys)) * _elu_slope(query)
            d_keys = (np.swapaxes(slope, 1, 2) @ _elu(query)) * _elu_slope(keys)
            return d_query, d_keys
        logits = query @ np.swapaxes(keys, 1, 2)
        slope = slope * _taylor(logits, config.order - 1)
    d_query = np.asarray(slope @ keys)
    d_keys = np.asarray(np.swapaxes(slope, 1, 2) @ query)
    return d_query, d_keys


def _kernel(config: Config, query: Array, keys: Array) -> Array:
    """phi(q) . phi(k): the Taylor polynomial of exp at q . k, or elu features plus one."""
    if config.feature == "elu":
        return np.asarray(_elu(query) @ np.swapaxes(_elu(keys), 1, 2))
    return _taylor(query @ np.swapaxes(keys, 1, 2), config.order)


def _taylor(t: Array, order: int) -> Array:
    """sum_{p <= order} t^p / p!, whose derivative is the same sum one order lower."""
    return np.asarray(sum(t**p / math.factorial(p) for p in range(order + 1)))


def _elu(u: Array) -> Array:
    return np.where(u > 0, u + 1, np.exp(np.minimum(u, 0.0)))


def _elu_slope(u: Array) -> Array:
    return np.where(u > 0, 1.0, np.exp(np.minimum(u, 0.0)))


def _columns(config: Config, h: int) -> tuple[slice, slice]:
    """Columns of the queries and keys of head h, and of its values."""
    own = config.heads[h]
    k = sum(head.d_k for head in config.heads[:h])
    v = sum(head.d_v for head in config.heads[:h])
    return slice(k, k + own.d_k), slice(v, v + own.d_v)
