"""A forward pass in float32 that rounds as badly as every lemma assumes that it may.

Each result that is no number of the format errs by one unit roundoff, in a direction that is drawn for the operation or
for the number, or away from zero in the whole pass, or towards it; what falls below the normal range is lost;
exponentials err by eight units; sums run in a drawn order, or with their largest terms first, which then err each time.
All of it is carried out in float64, whose own rounding does not count beside that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer

Floats = NDArray[np.float64]
UNIT, NORMAL = 2.0**-24, 2.0**-126  # of float32


@dataclass
class HostileRounding:
    """How one pass rounds, always in direction ``steady`` unless that is 0; with ``unit`` and ``normal`` zero not."""

    rng: np.random.Generator
    unit: float = UNIT
    normal: float = NORMAL
    steady: float = 0.0

    def rounded(self, exact: Floats, units: float = 1.0) -> Floats:
        """Numbers of the format as they are, all others in error; small ones lost."""
        if not self.unit:
            return exact
        signs: Any = self.steady
        if not self.steady:
            signs = self.rng.choice([-1.0, 1.0], exact.shape if self.rng.random() < 0.5 else ())
        with np.errstate(all="ignore"):
            known = exact.astype(np.float32).astype(np.float64) == exact
        strayed = np.where(known & (units == 1.0), exact, exact * (1 + signs * units * self.unit))
        return np.where(np.abs(strayed) < self.normal, 0.0, strayed)

    def product(self, a: Floats, b: Floats) -> Floats:
        """a b, exact with a factor of 1 or -1."""
        plain = (np.abs(a) == 1) | (np.abs(b) == 1)
        return np.where(plain, a * b, self.rounded(a * b))

    def plus(self, a: Floats, b: Floats) -> Floats:
        """a + b, exact where one of them is zero."""
        return np.where((a == 0) | (b == 0), a + b, self.rounded(a + b))

    def total(self, terms: Floats) -> Floats:
        """The sum over the last axis."""
        found = np.zeros(terms.shape[:-1])
        order = self.rng.permutation(terms.shape[-1])
        if self.steady:
            order = np.argsort(-np.abs(terms).reshape(-1, terms.shape[-1]).max(0), kind="stable")
        for at in order:
            found = self.plus(found, terms[..., at])
        return found

    def matmul(self, x: Floats, w: Floats) -> Floats:
        """(..., n) times (..., n, m)."""
        return self.total(self.product(x[..., None, :], np.swapaxes(w, -1, -2)))

    def affine(self, x: Floats, w: Floats, b: Floats) -> Floats:
        """x W + b"""
        return self.plus(self.matmul(x, w), b)

    def softmax(self, logits: Floats) -> Floats:
        """Over the last axis."""
        apart = self.rounded(logits - logits.max(-1, keepdims=True))
        weights = np.where(apart == 0, 1.0, self.rounded(np.exp(apart), 8.0))
        return self.rounded(weights / self.total(weights)[..., None])


def hostile_pass(model: OneLayerTransformer, points: Any, how: HostileRounding) -> Floats:
    """The outputs (S, outputs) at points (S, D) of a layer without norms, with softmax attention."""
    config = model.config
    assert (config.attention, config.norm) == ("softmax", "none")
    w = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    x = np.asarray(points, dtype=np.float64).reshape(len(points), config.rows, config.token_width)
    if config.embedding == "piecewise":
        beyond = how.rounded(x[..., None] - w["ramp_start"])
        ramps = np.clip(how.product(beyond, w["ramp_slope"]), 0.0, 1.0)
        x = ramps.reshape(len(points), config.rows, -1)
    e = how.affine(x, w["W_E"], w["b_E"]).reshape(len(points), config.length, config.d_model)
    if config.positions != "none":
        e = how.plus(e, w["position"])
    queries = how.affine(e, w["W_Q"], w["b_Q"])
    k = v = 0
    heads = []
    for h, head in enumerate(config.heads):
        own, values = slice(k, k + head.d_k), slice(v, v + head.d_v)
        k, v = own.stop, values.stop
        query = how.product(queries[..., own], np.float64(1 / math.sqrt(head.d_k)))
        memory = model.memory_of(h)
        if isinstance(memory, GridMemory):
            heads.append(_grid_average(memory, query, how))
            continue
        if memory is None:
            keys = how.affine(e, w["W_K"][:, own], w["b_K"][own])
            read = how.affine(e, w["W_V"][:, values], w["b_V"][values])
        else:
            keys, read = (part.detach().double().numpy()[None] for part in (memory.keys, memory.values))
        weights = how.softmax(how.matmul(query, np.swapaxes(keys, -1, -2)[:, None]))
        heads.append(how.matmul(weights, read[:, None]))
    a = how.affine(np.concatenate(heads, -1), w["W_O"], w["b_O"])
    r = how.plus(e, a) if config.residual else a
    if config.hidden:
        units = np.maximum(how.affine(r, w["W_1"], w["b_1"]), 0.0)
        y = how.affine(units, w["W_2"], w["b_2"])
        r = how.plus(r, y) if config.residual else y
    r = r if config.readout == "each" else r[:, :1]
    return how.affine(r, w["W_R"], w["b_R"]).reshape(len(points), -1)


def _grid_average(memory: GridMemory, query: Floats, how: HostileRounding) -> Floats:
    rest = memory.values.detach().double().numpy()[None, None]  # (1, 1, M_1, ..., M_r, d_v)
    for axis in memory.axes:
        keys = axis.detach().double().numpy()
        weights = how.softmax(how.matmul(query, keys.T))  # (S, N, M_a)
        moved = np.moveaxis(rest, 2, -1)
        shaped = weights.reshape(*weights.shape[:2], *(1,) * (moved.ndim - 3), weights.shape[-1])
        rest = how.total(how.product(moved, shaped))
    return rest
