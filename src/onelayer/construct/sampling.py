"""Where to look at a function of one variable: panels bisected until a local polynomial carries it to a tolerance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onelayer.construct.families import Array
from onelayer.errors import OnelayerError

DEGREE = 12
# DCT of the values at DEGREE Chebyshev points: row k gives the k-th Chebyshev coefficient.
_ANGLES = np.pi * (np.arange(DEGREE) + 0.5) / DEGREE
_TRANSFORM = 2.0 / DEGREE * np.cos(np.outer(np.arange(DEGREE), _ANGLES))
_UNIT_NODES = -np.cos(_ANGLES)


@dataclass(frozen=True)
class Focus:
    """The finest feature of a function: where it is in t of [-1, 1], and how wide."""

    centre: float
    width: float


class Sampler:
    """g on [lower, upper] seen from t in [-1, 1]: nodes that resolve it, and denser ones for holding out.

    Panels are equal in the angle of t = -cos(angle), which crowds nodes towards the edges as the sup norm needs.
    """

    def __init__(self, g: Callable[[Any], Any], lower: float, upper: float, tolerance: float) -> None:
        self.g, self.lower, self.upper = g, lower, upper
        self.edges = self._resolve(tolerance)

    def points(self, minimum: int, oversample: int = 1) -> tuple[Array, Array, Array]:
        """t (P,), x (P,) and g (P, K) at the panels' nodes and both ends, at least ``minimum`` times ``oversample``."""
        edges = self.edges
        while DEGREE * (len(edges) - 1) < minimum:
            edges = np.sort(np.concatenate([edges, (edges[1:] + edges[:-1]) / 2]))
        if oversample > 1:
            steps = np.arange(oversample) / oversample
            edges = np.append((edges[:-1, None] + np.diff(edges)[:, None] * steps).ravel(), edges[-1])
        t = np.concatenate([[-1.0], -np.cos(_panel_nodes(edges).ravel()), [1.0]])
        return self.at(t)

    def at(self, t: Array) -> tuple[Array, Array, Array]:
        """The floats x nearest to t's points inside the interval, their exact t, and g there."""
        x = np.clip(self.lower + (t + 1) / 2 * (self.upper - self.lower), self.lower, self.upper)
        centre, radius = self.lower / 2 + self.upper / 2, self.upper / 2 - self.lower / 2
        exact = (x - centre) / radius if radius > 0 else np.zeros_like(x)
        return exact, x, self._evaluate(x)

    def focus(self) -> Focus | None:
        """The finest panel, when it is much finer than the coarsest."""
        widths = np.diff(self.edges)
        at = int(widths.argmin())
        if widths[at] > widths.max() / 8:
            return None
        left, right = -np.cos(self.edges[at]), -np.cos(self.edges[at + 1])
        return Focus(float(left + right) / 2, float(right - left))

    def _evaluate(self, x: Array) -> Array:
        values = np.asarray(self.g(torch.from_numpy(x)), dtype=np.float64).reshape(len(x), -1)
        if not np.isfinite(values).all():
            bad = x[~np.isfinite(values).all(axis=1)][0]
            raise OnelayerError(f"the function is not finite at {bad:.6g}; choose a domain that avoids that point")
        return values

    def _resolve(self, tolerance: float, panels: int = 8, depth: int = 32, limit: int = 160) -> Array:
        """Edges of the panels (in angle): the unresolved ones are bisected, in batches, until ``limit`` panels."""
        edges = np.linspace(0.0, np.pi, panels + 1)
        done: list[Array] = []
        pending = np.stack([edges[:-1], edges[1:]], 1)  # (panels, 2)
        for _ in range(depth):
            angles = _panel_nodes(pending)
            values = self.at(-np.cos(angles.ravel()))[2].reshape(len(pending), DEGREE, -1)
            tails = np.abs(np.einsum("kn,pnc->pkc", _TRANSFORM[-2:], values)).max(axis=(1, 2))
            noise = 1e-15 * np.abs(values).max(axis=(1, 2))
            rough = tails > np.maximum(tolerance, noise)
            done.append(pending[~rough])
            pending = pending[rough]
            if not len(pending) or sum(map(len, done)) + 2 * len(pending) > limit:
                break
            middle = pending.mean(axis=1)
            pending = np.concatenate([np.stack([pending[:, 0], middle], 1), np.stack([middle, pending[:, 1]], 1)])
        starts = np.concatenate([part[:, 0] for part in [*done, pending]])
        resolved: Array = np.append(np.sort(starts), np.pi)
        return resolved


def _panel_nodes(panels: Array) -> Array:
    """Chebyshev nodes of each panel, (panels, DEGREE); panels: edges (p + 1,) or pairs (p, 2)."""
    pairs = panels if panels.ndim == 2 else np.stack([panels[:-1], panels[1:]], 1)
    nodes: Array = pairs.mean(axis=1)[:, None] + np.diff(pairs, axis=1) / 2 * _UNIT_NODES
    return nodes
