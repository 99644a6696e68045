"""Where to look at a function of one variable: panels bisected until a local polynomial carries it to a tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onelayer.build.lookup.families import Array
from onelayer.errors import OnelayerError

# Chebyshev points of a panel: a smooth function has all its digits there, or the panel is cut.
DEGREE = 12
# DCT of the values at DEGREE Chebyshev points: row k gives the k-th Chebyshev coefficient.
_ANGLES = np.pi * (np.arange(DEGREE) + 0.5) / DEGREE
_TRANSFORM = 2.0 / DEGREE * np.cos(np.outer(np.arange(DEGREE), _ANGLES))

FIRST_EDGES: Array = -np.cos(np.linspace(0.0, np.pi, 9))
# Points at which the panels are compared with the function.
PROBES = 1025
# Beyond, the function is not smooth enough for tokens anyway.
MOST_PANELS = 160
DEEPEST = 40  # bisections of one panel
# Tolerances by which a probe must miss its panel's polynomial: less is the usual error between nodes.
NEEDLE = 16
# Quantiles of the values at which changes of sign are counted.
LEVELS = np.linspace(0.02, 0.98, 25)
# Bisections that some panels have more than others: they follow a cusp, a kink or a needle.
UNEVEN = 1.5
# Of the tolerance, there: polynomials carry a cusp to their tolerance long before tokens do.
CLOSER = 1 / 8


@dataclass(frozen=True)
class Focus:
    """The finest feature of a function: where it is in t of [-1, 1], and how wide."""

    centre: float
    width: float


class Sampler:
    """g on [lower, upper] seen from t in [-1, 1]: nodes that resolve it, and denser ones for holding out.

    Panels start as Chebyshev intervals, shorter towards the edges as the sup norm needs, and are bisected where g is
    rough. ``edges`` are their ends, and ``uneven`` says whether they crowd somewhere.
    """

    def __init__(self, g: Callable[[Any], Any], lower: float, upper: float, tolerance: float) -> None:
        self.g = g
        self.lower = lower
        self.upper = upper
        self.tolerance = tolerance
        smooth = resolve(self._values, FIRST_EDGES, tolerance, MOST_PANELS)
        self.edges = self._with_needles(smooth)
        self.uneven = float(np.ptp(_bisections(self.edges))) > UNEVEN
        if self.uneven:
            self.edges = resolve(self._values, self.edges, CLOSER * tolerance, MOST_PANELS)
        self._cache: dict[int, tuple[Array, Array, Array]] = {}

    def points(self, minimum: int) -> tuple[Array, Array, Array]:
        """t (P,), x (P,) and g (P, K) at Chebyshev nodes of every panel and both ends."""
        panels = len(self.edges) - 1
        count = max(4, math.ceil(minimum / panels))
        if count not in self._cache:
            self._cache[count] = self.points_of(self.edges, count)
        return self._cache[count]

    def points_of(self, edges: Array, count: int) -> tuple[Array, Array, Array]:
        """The same with ``count`` nodes in each panel between the given edges."""
        inner = _panel_nodes(_panels(edges), count).ravel()
        return self.at(np.concatenate([[-1.0], inner, [1.0]]))

    def at(self, t: Array) -> tuple[Array, Array, Array]:
        """The floats x nearest to t's points inside the interval, their exact t, and g there."""
        share = (t + 1) / 2
        between = self.lower + share * (self.upper - self.lower)
        x = np.clip(between, self.lower, self.upper)
        # Halved before they are added: the sum of two ends may overflow.
        centre = self.lower / 2 + self.upper / 2
        radius = self.upper / 2 - self.lower / 2
        exact = (x - centre) / radius if radius > 0 else np.zeros_like(x)
        return exact, x, self._evaluate(x)

    def _values(self, t: Array) -> Array:
        return self.at(t)[2]

    @property
    def crowded(self) -> Array | None:
        """The ends of the panels where they are uneven: tokens may be placed as they are."""
        return self.edges if self.uneven else None

    def focus(self) -> Focus | None:
        """The finest panel, when bisection made it much finer than the panels started."""
        widths = np.diff(self.edges)
        at = int(widths.argmin())
        if widths[at] > np.diff(FIRST_EDGES).min() / 4:
            return None
        around = self.edges[max(at - 1, 0) : at + 3]
        # A far smaller tolerance goes on cutting where the feature is, until its centre is known.
        closer = resolve(self._values, around, self.tolerance / 1000, 40)
        spot = int(np.diff(closer).argmin())
        centre = float(closer[spot] + closer[spot + 1]) / 2
        return Focus(centre, float(widths[at]))

    def least_tokens(self, eps: float) -> int:
        """No softmax lookup with fewer tokens comes within eps: an exponential sum of M terms has at most M - 1 zeros.

        For any level c, T - c is such a sum over a positive denominator. Where g - c exceeds eps in size with n changes
        of sign, T - c must change sign n times as well, so M >= n + 1.
        """
        samples = self.points(4 * DEGREE)[2]
        least = 1
        for column in samples.T:
            for level in np.unique(np.quantile(column, LEVELS)):
                above = column - level
                signs = np.sign(above[np.abs(above) > eps])
                changes = int((np.diff(signs) != 0).sum())
                least = max(least, 1 + changes)
        return least

    def _with_needles(self, edges: Array) -> Array:
        """The panels, bisected further around features that fell between the nodes but were hit by probes."""
        probes, _, values = self.at(np.linspace(-1.0, 1.0, PROBES))
        panels = _panels(edges)
        nodes = _panel_nodes(panels, DEGREE)
        samples = self._values(nodes.ravel()).reshape(len(panels), DEGREE, -1)
        coefficients = np.einsum("kn,pnc->pkc", _TRANSFORM, samples)  # (panels, coefficients, outputs)
        # The usual half of the constant in a Chebyshev sum.
        coefficients[:, 0] /= 2
        at = np.searchsorted(edges, probes, side="right") - 1
        home = np.clip(at, 0, len(panels) - 1)
        centre = panels[home].mean(axis=1)
        radius = np.diff(panels[home], axis=1)[:, 0] / 2
        # Chebyshev points ascend here, so the argument of T_k(cos angle) is minus the place within the panel.
        place = np.clip((centre - probes) / radius, -1.0, 1.0)
        angle = np.arccos(place)
        basis = np.cos(angle[:, None] * np.arange(DEGREE))  # (probes, DEGREE)
        fitted = np.einsum("ik,ikc->ic", basis, coefficients[home])
        missed = np.abs(fitted - values).max(axis=1) > NEEDLE * self.tolerance
        # With so many panels there would be no room to cut further.
        if not missed.any() or len(panels) > MOST_PANELS // 2:
            return edges
        needles = probes[missed]
        gap = 1.0 / PROBES
        both = np.concatenate([edges, needles - gap, needles + gap])
        closer = np.unique(np.clip(both, -1.0, 1.0))
        return resolve(self._values, closer, self.tolerance, MOST_PANELS)

    def _evaluate(self, x: Array) -> Array:
        found = self.g(torch.from_numpy(x))
        values = np.asarray(found, dtype=np.float64).reshape(len(x), -1)
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            bad = x[~finite][0]
            raise OnelayerError(f"the function is not finite at {bad:.6g}; choose a domain that avoids that point")
        return values


def resolve(function: Callable[[Array], Array], edges: Array, tolerance: float, limit: int) -> Array:
    """Edges of panels, bisected until the last Chebyshev coefficients of the function fall below ``tolerance``.

    function: points (P,) -> (P, K). Stops when there are ``limit`` panels.
    """
    done: list[Array] = []
    pending = _panels(edges)
    for _ in range(DEEPEST):
        nodes = _panel_nodes(pending, DEGREE)
        values = function(nodes.ravel()).reshape(len(pending), DEGREE, -1)
        # The highest four of each panel, since every second coefficient of an even or odd function is zero.
        last = np.einsum("kn,pnc->pkc", _TRANSFORM[-4:], values)
        tails = np.abs(last).max(axis=(1, 2))
        rounding = 1e-15 * np.abs(values).max(axis=(1, 2))
        rough = tails > np.maximum(tolerance, rounding)
        done.append(pending[~rough])
        pending = pending[rough]
        halved = sum(map(len, done)) + 2 * len(pending)
        if not len(pending) or halved > limit:
            break
        middle = pending.mean(axis=1)
        left = np.stack([pending[:, 0], middle], 1)
        right = np.stack([middle, pending[:, 1]], 1)
        pending = np.concatenate([left, right])
    done.append(pending)
    starts = np.concatenate(done)[:, 0]
    finer: Array = np.append(np.sort(starts), edges[-1])
    return finer


def _bisections(edges: Array) -> Array:
    """How often each panel was halved, (panels,)."""
    middles = (edges[1:] + edges[:-1]) / 2
    home = np.searchsorted(FIRST_EDGES[1:-1], middles)
    first_widths = np.diff(FIRST_EDGES)
    depth: Array = np.log2(first_widths[home] / np.diff(edges))
    return depth


def peak(function: Callable[[Array], Array], edges: Array) -> float:
    """Largest |function| seen: at nodes of all panels, then densely in the panels that come near the largest."""
    panels = _panels(edges)
    values = function(_panel_nodes(panels, DEGREE).ravel())
    sizes = np.abs(values).reshape(len(panels), -1).max(axis=1)
    largest = float(sizes.max())
    # Panels whose nodes come within a fifth of it may exceed it between them.
    close = panels[sizes >= 0.8 * largest]
    inner = _panel_nodes(close, 6 * DEGREE).ravel()
    dense = np.concatenate([edges[[0, -1]], inner])
    return max(largest, float(np.abs(function(dense)).max()))


def _panels(edges: Array) -> Array:
    """Panels [start, end] between neighbouring edges, (panels, 2)."""
    return np.stack([edges[:-1], edges[1:]], 1)


def _panel_nodes(panels: Array, count: int) -> Array:
    """``count`` Chebyshev nodes in each panel [start, end], (panels, count)."""
    angles = np.pi * (np.arange(count) + 0.5) / count
    unit = -np.cos(angles)
    centre = panels.mean(axis=1)[:, None]
    radius = np.diff(panels, axis=1) / 2
    nodes: Array = centre + radius * unit
    return nodes
