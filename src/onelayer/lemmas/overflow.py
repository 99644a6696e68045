"""Whether an execution can leave the range of its format: the question every proof by lemma asks first."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.formats import format_of
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer

Floats = NDArray[np.float64]


def overflows(model: OneLayerTransformer, box: Box) -> bool:
    """False only if no number of the executed forward pass, on any input of the box, can become infinite or nan.

    Lemma. Put bounds of absolute values in the place of inputs and weights, and sums of absolute products in the place
    of sums. No partial sum of the execution, in whatever order, exceeds such a number by more than a factor
    1 + gamma <= 2, so nothing overflows where all of them stay below a quarter of the largest number. Softmax turns
    finite logits into weights in [0, 1] whose sum is 1 up to rounding; ramps are clamped to [0, 1] after a difference
    that must be finite, times a slope that need not leave a finite product: clamp(inf) = 1.
    """
    limit = format_of(model.dtype).largest / 4
    with np.errstate(all="ignore"):
        largest = _Sizes(model).largest(box)
    return not largest <= limit  # true for nan


class _Sizes:
    """Bounds of |.| through one layer, a row for all tokens together."""

    def __init__(self, model: OneLayerTransformer) -> None:
        self.model = model
        self.config = model.config
        self.seen: list[float] = []

    def largest(self, box: Box) -> float:
        """The largest bound met; inf for attention other than softmax, which no lemma speaks of."""
        config = self.config
        if config.attention != "softmax":
            return float("inf")
        # The forward pass of the layer, step by step, on sizes.
        ends = torch.maximum(box.lower.abs(), box.upper.abs())
        tokens = ends.reshape(config.rows, config.token_width)
        e = self._embedded(tokens.amax(0).numpy())
        attending = self._normed(e, "1") if config.norm == "pre" else e
        a = self._attended(attending)
        r = self._noted(e + a) if config.residual else a
        r = self._normed(r, "1") if config.norm == "post" else r
        y = self._fed(r) if config.hidden else r
        # A mean is a sum before it is divided.
        y = self._noted(y * config.length) if config.readout == "mean" else y
        self._affine(y, "R")
        return max(self.seen)

    def _noted(self, sizes: Floats) -> Floats:
        """The same sizes, the largest of them kept."""
        worst = float(sizes.max(initial=0.0))
        # nan never compares, and would be lost in a maximum: it is noted as inf.
        self.seen.append(worst if worst < np.inf else np.inf)
        return sizes

    def _own(self, name: str) -> Floats:
        found: Floats = self.model.own(name).detach().double().abs().cpu().numpy()
        return found

    def _affine(self, x: Floats, which: str) -> Floats:
        product = x @ self._own(f"W_{which}")
        return self._noted(product + self._own(f"b_{which}"))

    def _embedded(self, x: Floats) -> Floats:
        if self.config.embedding == "piecewise":
            self._noted(x[:, None] + self._own("ramp_start"))
            self._noted(self._own("ramp_slope"))
            x = np.ones(self.config.features)
        e = self._affine(self._noted(x), "E")
        # One row for all tokens together: pieces make every token from one row, so the largest of them stands for all.
        if self.config.pieces:
            e = e.reshape(self.config.length, self.config.d_model).max(0)
        if self.config.positions == "none":
            return e
        largest = self._own("position").max(0)
        return self._noted(e + largest)

    def _normed(self, x: Floats, which: str) -> Floats:
        """Squares of centred numbers are summed; |x - mean| / deviation <= sqrt(d), twice that when executed."""
        count = self.config.d_model
        centred = 2 * x.max(initial=0.0, keepdims=True)  # |x - mean| <= 2 max |x|
        self._noted(count * centred**2)
        scaled = 2 * count**0.5 * self._own(f"gain_{which}")
        return self._noted(scaled + self._own(f"shift_{which}"))

    def _attended(self, e: Floats) -> Floats:
        query = self._affine(e, "Q")
        tokens = self.config.token_attention
        key = value = np.zeros(0)
        if tokens:
            key = self._affine(e, "K")
            value = self._affine(e, "V")
        parts = []
        k = 0  # where the features of a head begin, in keys and in values
        v = 0
        for h, head in enumerate(self.config.heads):
            own = slice(k, k + head.d_k)
            keys = [key[own]] if tokens else []
            values = [value[v : v + head.d_v]] if tokens else []
            memory = self.model.memory_of(h)
            if memory is not None:
                # A key of a grid is a sum of one key per axis.
                axes = list(memory.axes) if isinstance(memory, GridMemory) else [memory.keys]
                keys.append(np.sum([_columns(axis) for axis in axes], axis=0))
                values.append(_columns(memory.values.flatten(0, -2)))
            # Four times and 100 more: scaling, differences from the largest logit, and constants on the way.
            largest = np.max(keys, axis=0, keepdims=True)
            self._noted(4 * largest @ query[own] + 100)
            # Weights sum to 1 up to rounding, so an average is at most twice the largest value.
            average = 2 * np.max(values, axis=0)
            parts.append(self._noted(average))
            k = k + head.d_k
            v = v + head.d_v
        return self._affine(np.concatenate(parts), "O")

    def _fed(self, r: Floats) -> Floats:
        fed = self._normed(r, "2") if self.config.norm == "pre" else r
        hidden = self._affine(fed, "1")
        y = self._affine(hidden, "2")
        y = self._noted(r + y) if self.config.residual else y
        if self.config.norm == "post":
            return self._normed(y, "2")
        return y


def _columns(tensor: torch.Tensor) -> Floats:
    """The largest |entry| of every column."""
    found: Floats = tensor.detach().double().abs().amax(0).cpu().numpy()
    return found
