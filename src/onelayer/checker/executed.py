"""One forward pass in a floating format, by NumPy, from the stored tensors and docs/file-format.md alone.

What it returns is one of the executions that a certificate about that format speaks of: every operation rounds to
nearest, sums run in the order that NumPy takes. So its error at a point is a fact about the claim: an error above the
stated upper bound contradicts it, an error above the stated lower bound confirms that one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.checker.formats import BY_TAG, narrowed
from onelayer.checker.magnitudes import NORM_EPS, factor, need_known
from onelayer.checker.weights import Array, Stored

AT_ONCE = 2**22  # numbers in the largest array of a chunk of points

Numbers = NDArray[Any]


class Executed:
    """The layer in the format its weights are stored in: points (B, D) to outputs (B, K), both as float64."""

    def __init__(self, stored: Stored) -> None:
        config = stored.config
        need_known(config)
        self.stored = stored
        self.config = config
        self.row = BY_TAG[stored.dtype]
        self.kind = self.row.kind
        self.t = {name: value.astype(self.kind) for name, value in stored.tensors.items()}

    def __call__(self, points: Array) -> Array:
        chunk = max(1, AT_ONCE // self.cost)
        with np.errstate(all="ignore"):
            parts = [self._forward(points[at : at + chunk]) for at in range(0, len(points), chunk)]
        return np.concatenate(parts).astype(np.float64)

    @property
    def cost(self) -> int:
        """Numbers in the largest array for one point."""
        c = self.config
        n = self.stored.length
        memory = max(math.prod(head["tokens"]) * head["d_v"] for head in c["heads"])
        widths = (n + memory, c["d_model"], c["hidden"], self.stored.token_width * max(1, c["ramps"]))
        return n * int(max(widths))

    def representable(self, points: Array) -> Array:
        """The points rounded to the format."""
        return self._held(points.astype(self.kind)).astype(np.float64)

    def _held(self, values: Numbers) -> Numbers:
        """What an operation returns: rounded once where the format is narrower than what it computes in."""
        if self.row.held is None:
            return values
        return narrowed(values, self.row.tag)

    def _forward(self, points: Array) -> Numbers:
        c = self.config
        e = self._embed(points)
        asked = self._norm(e, "1") if c["norm"] == "pre" else e
        a = self._attend(asked)
        r = a
        if c["residual"]:
            r = self._held(e[:, : a.shape[1]] + a)  # in the pieces layout the first token alone goes on
        if c["norm"] == "post":
            r = self._norm(r, "1")
        y = self._feed_forward(r) if c["hidden"] else r
        return self._affine(self._read(y), "R").reshape(len(points), -1)

    def _embed(self, points: Array) -> Numbers:
        """Tokens (B, N, d_model) of points (B, D)."""
        stored = self.stored
        t = self.t
        x = points.astype(self.kind).reshape(len(points), stored.rows, stored.token_width)
        if self.config["embedding"] == "piecewise":
            rising = (x[..., None] - t["ramp_start"]) * t["ramp_slope"]
            ramps = self._held(np.clip(rising, 0, 1))
            x = ramps.reshape(*x.shape[:2], -1)
        e = self._affine(x, "E").reshape(len(points), stored.length, self.config["d_model"])
        if self.config["positions"] == "none":
            return e
        return self._held(e + t["position"])

    def _read(self, y: Numbers) -> Numbers:
        """What the read-out matrix multiplies."""
        kind = self.config["readout"]
        if kind == "each":
            return y
        if kind == "mean":
            share = self.kind.type(1 / self.stored.length)
            return self._held(y.sum(1, keepdims=True) * share)
        return y[:, :1] if kind == "first" else y[:, -1:]

    def _affine(self, x: Numbers, name: str) -> Numbers:
        found = x @ self.t[f"W_{name}"] + self.t[f"b_{name}"]
        return self._held(np.asarray(found))

    def _norm(self, x: Numbers, which: str) -> Numbers:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        root = np.sqrt(variance + self.kind.type(NORM_EPS))
        found = centred / root * self.t[f"gain_{which}"] + self.t[f"shift_{which}"]
        return self._held(np.asarray(found))

    def _feed_forward(self, r: Numbers) -> Numbers:
        inner = self._norm(r, "2") if self.config["norm"] == "pre" else r
        hidden = np.maximum(self._affine(inner, "1"), 0)
        y = self._affine(hidden, "2")
        if self.config["residual"]:
            y = self._held(r + y)
        if self.config["norm"] == "post":
            return self._norm(y, "2")
        return y

    def _attend(self, u: Numbers) -> Numbers:
        tokens = self.config["layout"] != "packed"
        # Of pieces one position alone is read.
        asking = u[:, :1] if self.config["layout"] == "pieces" else u
        query = self._affine(asking, "Q")
        keys = self._affine(u, "K") if tokens else None
        values = self._affine(u, "V") if tokens else None
        k = v = 0
        parts = []
        for h, head in enumerate(self.config["heads"]):
            columns = slice(k, k + head["d_k"])
            rows = slice(v, v + head["d_v"])
            q = query[..., columns] * self.kind.type(1 / math.sqrt(head["d_k"]))
            own = None if keys is None or values is None else (keys[..., columns], values[..., rows])
            parts.append(self._held(self._head(h, head, q, own)))
            k = columns.stop
            v = rows.stop
        return self._affine(np.concatenate(parts, -1), "O")

    def _head(self, h: int, head: dict[str, Any], q: Numbers, own: tuple[Numbers, Numbers] | None) -> Numbers:
        """Softmax average over the tokens of the sequence and the memory; a grid one axis at a time."""
        t = self.t
        if head["memory"] == "grid":
            return self._grid(h, head["tokens"], q)
        sources = [] if own is None else [own]
        if head["memory"] == "plain":
            sources.append((t[f"memory.{h}.keys"][None], t[f"memory.{h}.values"][None]))
        if self.config["attention"] == "linear":
            return self._linear(q, sources)
        logits = [q @ np.swapaxes(keys, -1, -2) for keys, _ in sources]
        weights = softmax(np.concatenate(logits, -1))
        first_keys, first_values = sources[0]
        end = first_keys.shape[-2]
        z = weights[..., :end] @ first_values
        if len(sources) > 1:
            z = z + weights[..., end:] @ sources[1][1]
        return np.asarray(z)

    def _grid(self, h: int, tokens: list[int], q: Numbers) -> Numbers:
        """The average over a grid, contracted from its first axis on."""
        t = self.t
        values = t[f"memory.{h}.values"].reshape(tokens[0], -1)
        z = softmax(q @ t[f"memory.{h}.axes.0"].T) @ values
        for a, m in enumerate(tokens[1:], start=1):
            weights = softmax(q @ t[f"memory.{h}.axes.{a}"].T)
            z = np.einsum("bnm,bnmk->bnk", weights, z.reshape(*z.shape[:2], m, -1))
        return np.asarray(z)

    def _linear(self, q: Numbers, sources: list[tuple[Numbers, Numbers]]) -> Numbers:
        """Features of the query times moments of the tokens, and a quotient."""
        asked = self._features(q)
        seen = [self._features(keys) for keys, _ in sources]
        top = sum(np.swapaxes(phi, -1, -2) @ values for phi, (_, values) in zip(seen, sources, strict=True))
        bottom = sum(phi.sum(-2)[..., None] for phi in seen)
        return np.asarray((asked @ top) / (asked @ bottom))

    def _features(self, u: Numbers) -> Numbers:
        if self.config["feature"] == "elu":
            return np.asarray(np.maximum(u, 0) + np.exp(-np.maximum(-u, 0)))
        power = np.ones_like(u[..., :1])
        terms = [power]
        for p in range(1, self.config["order"] + 1):
            power = (power[..., None] * u[..., None, :]).reshape(*u.shape[:-1], -1)
            terms.append(power * self.kind.type(factor(p)))
        return np.concatenate(terms, -1)


def softmax(logits: Numbers) -> Numbers:
    """exp of the distance to the largest logit, divided by the sum."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))
