"""How large the numbers of a forward pass can become, by sizes alone: mostly that excludes overflow at once.

Where it does not, overflow is decided box by box, from enclosures of the numbers (``Execution``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onelayer.checker.weights import Array, Stored
from onelayer.errors import UnsupportedOperation

NORM_EPS = 1e-5  # torch's own, as docs/file-format.md states it

Domain = tuple[tuple[float, ...], tuple[float, ...]]


def need_known(config: dict[str, Any]) -> None:
    """Refuse a layer whose attention has no enclosure here."""
    if config["attention"] not in ("softmax", "linear"):
        raise UnsupportedOperation(
            f"attention {config['attention']}", "only softmax and linear attention are re-proved"
        )
    grids = any(head["memory"] == "grid" for head in config["heads"])
    if grids and (config["layout"] != "packed" or config["attention"] == "linear"):
        raise UnsupportedOperation("grid memory beside tokens or features", "save model.materialize() instead")


def factor(power: int) -> float:
    """1 / sqrt(p!), the float64 number that the layer multiplies with."""
    return 1 / math.sqrt(math.factorial(power))


def feature_count(width: int, feature: str, order: int) -> int:
    """Numbers in phi(u) for ``width`` numbers u."""
    if feature == "elu":
        return width
    return sum(width**p for p in range(order + 1))


def largest_numbers(
    stored: Stored, domain: Domain, unit: float, normal: float, held: float = 0.0
) -> tuple[float, float]:
    """Bounds of what the layer holds, and of what it computes on the way, for inputs in the box; inf or nan: none.

    Lemma: let m bound the executed |x|. Products and partial sums of x W + b, in any order, with or without fused
    multiplication, are at most (m |W| + |b|) (1 + 2 n u) + 4 n times the smallest normal number if 4 n u <= 1, n
    being the number of terms and u the unit roundoff. A softmax takes differences of two logits, exponentials <= 1
    and a sum of them; its weights sum to at most 1 + 2 n u, so an average of values and its partial sums stay below
    (1 + 2 n u) max|v|. A normalisation of n numbers up to M computes no more than (2 n M)^2 and 2 M / sqrt(eps) on the
    way. It returns at most 2 sqrt(n) + 1 + 10 sqrt(n p) M / sqrt(eps) before gain and shift, p = (n + 8) u: a deviation
    errs by 4 p M and the variance v by 8 p M^2, so either v > 16 p M^2, the executed variance is at least v / 2 and
    no deviation exceeds sqrt(n v); or every deviation is below (4 sqrt(n p) + 4 p) M. What is held in a narrow format
    of unit roundoff ``held`` may grow by the factor 1 + held with each operation; what is computed on the way to it, in
    a wider format, need not fit the narrow one. Bounds are computed in float64, which costs less than the slack. Of
    linear attention nothing follows from sizes alone: a denominator may be near zero as executed.
    """
    if stored.config["attention"] == "linear":
        return math.inf, math.inf
    with np.errstate(all="ignore"):
        return _Pass(stored, unit, normal, held).largest(domain)


class _Pass:
    """One forward pass on bounds of absolute values: ``peak`` of what is held, ``inner`` of what is not returned."""

    def __init__(self, stored: Stored, unit: float, normal: float, held: float) -> None:
        self.config = stored.config
        self.stored = stored
        need_known(self.config)
        self.unit = unit
        self.t = {name: np.abs(value) for name, value in stored.tensors.items()}
        # More than the terms of any one sum of the pass.
        terms = 16 + stored.length + sum(max(value.shape, default=1) for value in self.t.values())
        # The lemma's factor, and 2^-20 for the float64 in which the bounds themselves are computed.
        self.slack = 1 + 4 * terms * unit + 2.0**-20
        if not 4 * terms * unit <= 1:
            self.slack = math.inf
        self.slack *= 1 + 2 * held
        self.least = 4 * terms * normal
        self.peak = self.inner = 0.0

    def _seen(self, values: Array) -> Array:
        """Bounds of what an operation returns."""
        bounds = values * self.slack + self.least
        self.peak = float(np.maximum(self.peak, bounds.max(initial=0.0)))  # nan stays
        return bounds

    def _passing(self, values: Array) -> Array:
        """Bounds of what is computed inside an operation."""
        bounds = values * self.slack + self.least
        self.inner = float(np.maximum(self.inner, bounds.max(initial=0.0)))
        return bounds

    def largest(self, domain: Domain) -> tuple[float, float]:
        config = self.config
        stored = self.stored
        farthest = np.maximum(np.abs(domain[0]), np.abs(domain[1]))
        x = farthest.reshape(stored.rows, stored.token_width)
        e = self._embed(self._seen(x))
        asked = self._norm(e, "1") if config["norm"] == "pre" else e
        a = self._attend(asked)
        r = self._seen(e + a) if config["residual"] else a
        if config["norm"] == "post":
            r = self._norm(r, "1")
        y = self._feed_forward(r) if config["hidden"] else r
        if config["readout"] == "mean":
            y = self._passing(y.sum(0, keepdims=True))
        self._affine(y, "R")
        return self.peak, self.inner

    def _affine(self, x: Array, name: str) -> Array:
        return self._seen(x @ self.t[f"W_{name}"] + self.t[f"b_{name}"])

    def _embed(self, x: Array) -> Array:
        if self.config["embedding"] == "piecewise":
            shifted = self._passing(x[..., None] + self.t["ramp_start"])  # (N, token_width, G)
            rising = self._passing(shifted * self.t["ramp_slope"])
            x = np.minimum(rising, 1.0).reshape(len(x), -1)
        e = self._affine(x, "E").reshape(self.stored.length, self.config["d_model"])
        if self.config["positions"] == "none":
            return e
        return self._seen(e + self.t["position"])

    def _memory(self, h: int) -> tuple[list[Array], list[Array]]:
        """Keys, or their axes, and values that head h remembers; no values where it has no memory."""
        head = self.config["heads"][h]
        keyed = (f"memory.{h}.keys", f"memory.{h}.axes")
        sources = [value for name, value in self.t.items() if name.startswith(keyed)]
        if head["memory"] == "none":
            return sources, []
        return sources, [self.t[f"memory.{h}.values"].reshape(-1, head["d_v"])]

    def _attend(self, u: Array) -> Array:
        queries = self._affine(u, "Q")
        own = self.config["layout"] != "packed"
        keys = self._affine(u, "K") if own else None
        values = self._affine(u, "V") if own else None
        parts = []
        k = 0
        v = 0
        for h, head in enumerate(self.config["heads"]):
            mine = slice(k, k + head["d_k"])
            theirs = slice(v, v + head["d_v"])
            k = mine.stop
            v = theirs.stop
            sources, tables = self._memory(h)
            if keys is not None and values is not None:
                sources = [*sources, keys[:, mine]]
                tables = [*tables, values[:, theirs]]
            largest = np.max([table.max(0) for table in tables], axis=0)
            query = queries[:, mine].max(0)
            for source in sources:
                self._passing(2 * source @ query)  # the difference of two logits
            parts.append(self._seen(largest))
        average = np.concatenate(parts)[None]
        return np.broadcast_to(self._affine(average, "O"), (len(u), self.config["d_model"]))

    def _norm(self, x: Array, which: str) -> Array:
        most = x.max(1, keepdims=True)
        n = x.shape[1]
        self._passing((2 * n * most) ** 2)
        scaled = self._passing(2 * most / math.sqrt(NORM_EPS))
        # By the lemma; it says more where numbers are large, the line above where they are small.
        strayed = 10 * math.sqrt(n * (n + 8) * self.unit) * most / math.sqrt(NORM_EPS)
        bounded = self._passing(2 * math.sqrt(n) + 1 + strayed)
        scaled = np.minimum(scaled, bounded)
        product = self._passing(scaled * self.t[f"gain_{which}"])
        return self._seen(product + self.t[f"shift_{which}"])

    def _feed_forward(self, r: Array) -> Array:
        inner = self._norm(r, "2") if self.config["norm"] == "pre" else r
        y = self._affine(self._affine(inner, "1"), "2")
        y = self._seen(r + y) if self.config["residual"] else y
        if self.config["norm"] == "post":
            return self._norm(y, "2")
        return y
