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
        return not _Sizes(model).largest(box) <= limit


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
        ends = torch.maximum(box.lower.abs(), box.upper.abs()).reshape(config.rows, config.token_width)
        e = self._embedded(ends.amax(0).numpy())
        a = self._attended(self._normed(e, "1") if config.norm == "pre" else e)
        r = self._noted(e + a) if config.residual else a
        r = self._normed(r, "1") if config.norm == "post" else r
        y = self._fed(r) if config.hidden else r
        self._affine(self._noted(y * config.length) if config.readout == "mean" else y, "R")
        return max(self.seen)  # numpy's nan never compares, and is noted as inf

    def _noted(self, sizes: Floats) -> Floats:
        worst = float(sizes.max(initial=0.0))
        self.seen.append(worst if worst < np.inf else np.inf)
        return sizes

    def _own(self, name: str) -> Floats:
        found: Floats = self.model.own(name).detach().double().abs().cpu().numpy()
        return found

    def _affine(self, x: Floats, which: str) -> Floats:
        return self._noted(x @ self._own(f"W_{which}") + self._own(f"b_{which}"))

    def _embedded(self, x: Floats) -> Floats:
        if self.config.embedding == "piecewise":
            self._noted(x[:, None] + self._own("ramp_start"))
            self._noted(self._own("ramp_slope"))
            x = np.ones(self.config.features)
        e = self._affine(self._noted(x), "E")
        if self.config.pieces:
            e = e.reshape(self.config.length, self.config.d_model).max(0)
        if self.config.positions == "none":
            return e
        return self._noted(e + self._own("position").max(0))

    def _normed(self, x: Floats, which: str) -> Floats:
        """Squares of centred numbers are summed; |x - mean| / deviation <= sqrt(d), twice that when executed."""
        count = self.config.d_model
        self._noted(count * (2 * x.max(initial=0.0, keepdims=True)) ** 2)
        return self._noted(2 * count**0.5 * self._own(f"gain_{which}") + self._own(f"shift_{which}"))

    def _attended(self, e: Floats) -> Floats:
        query = self._affine(e, "Q")
        tokens = self.config.token_attention
        key = value = np.zeros(0)
        if tokens:
            key = self._affine(e, "K")
            value = self._affine(e, "V")
        parts = []
        k = 0
        v = 0
        for h, head in enumerate(self.config.heads):
            keys = [key[k : k + head.d_k]] if tokens else []
            values = [value[v : v + head.d_v]] if tokens else []
            memory = self.model.memory_of(h)
            if memory is not None:
                axes = list(memory.axes) if isinstance(memory, GridMemory) else [memory.keys]
                keys.append(np.sum([_columns(axis) for axis in axes], axis=0))
                values.append(_columns(memory.values.flatten(0, -2)))
            self._noted(4 * np.max(keys, axis=0, keepdims=True) @ query[k : k + head.d_k] + 100)
            parts.append(self._noted(2 * np.max(values, axis=0)))
            k = k + head.d_k
            v = v + head.d_v
        return self._affine(np.concatenate(parts), "O")

    def _fed(self, r: Floats) -> Floats:
        hidden = self._affine(self._normed(r, "2") if self.config.norm == "pre" else r, "1")
        y = self._affine(hidden, "2")
        y = self._noted(r + y) if self.config.residual else y
        if self.config.norm == "post":
            return self._normed(y, "2")
        return y


def _columns(tensor: torch.Tensor) -> Floats:
    """The largest |entry| of every column."""
    found: Floats = tensor.detach().double().abs().amax(0).cpu().numpy()
    return found
