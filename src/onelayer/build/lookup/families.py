"""Softmax bases on one axis: families of keys in the normalised coordinate t of [-1, 1].

With slopes a_m and biases b_m the softmax weights w_m(t) = exp(a_m t + b_m) / sum_k exp(a_k t + b_k) are a partition of
unity. Equal slopes kappa*m make them c_m z^m / Q(z) in z = exp(kappa t): the numerators span all polynomials of degree
M - 1 in z, and the biases choose only the positive denominator Q.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Keys:
    """Keys of M tokens on one axis: the logit of token m at t is ``slopes[m] * t + biases[m]``."""

    slopes: Array
    biases: Array
    family: str

    def __len__(self) -> int:
        return len(self.slopes)

    def weights(self, points: Array) -> Array:
        """Softmax weights, (..., M)."""
        return softmax(points[..., None] * self.slopes + self.biases)

    def drop(self, token: int) -> Keys:
        """The same keys without one token."""
        slopes = np.delete(self.slopes, token)
        biases = np.delete(self.biases, token)
        return Keys(slopes, biases, self.family)

    def merge(self, token: int) -> Keys:
        """The same keys with a token and the next one replaced by one between them, of their joint weight at 0."""
        pair = slice(token, token + 2)
        first_slope, second_slope = self.slopes[pair]
        fewer = self.drop(token)
        fewer.slopes[token] = (first_slope + second_slope) / 2
        # exp of the logit at 0 is the weight there, up to what all tokens share.
        fewer.biases[token] = np.logaddexp(*self.biases[pair])
        return fewer


def softmax(logits: Array) -> Array:
    """Softmax over the last dimension."""
    # Logits below zero, so that nothing overflows.
    weights: Array = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights


def products(parts: Sequence[Array], factor: float = 1.0) -> Array:
    """Products of one weight (S, M_a) per axis, row-major: (S, M_1 ... M_r)."""
    dense: Array = np.full((len(parts[0]), 1), factor)
    for own in parts:
        dense = (dense[:, :, None] * own[:, None]).reshape(len(own), -1)  # (S, M_1 ... M_a)
    return dense


def bernstein(size: int, kappa: float, centre: float = 0.0) -> Keys:
    """Bias log C(M-1, m) makes the weights exactly the Bernstein basis in s = sigmoid(kappa (t - centre))."""
    order = np.arange(size, dtype=np.float64)
    binomial = gammaln(size) - gammaln(order + 1) - gammaln(size - order)
    slopes = kappa * (order - (size - 1) / 2)
    return Keys(slopes, binomial - slopes * centre, "bernstein")


def gaussian(size: int, overlap: float, ghosts: float) -> Keys:
    """Gaussian bumps exp(-(t - t_m)^2 / (overlap h^2)), centred at equal spacing h on [-1 - ghosts h, 1 + ghosts h].

    exp(t^2 / ...) is common to all tokens and cancels, so an affine logit is enough.
    """
    spacing = 2.0 / max(size - 1 - 2 * ghosts, 1.0)
    order = np.arange(size, dtype=np.float64)
    centres = spacing * (order - (size - 1) / 2)
    beta = 1.0 / (overlap * spacing**2)
    return Keys(2 * beta * centres, -beta * centres**2, "gaussian")


def exponential(size: int, first: float, last: float, side: int) -> Keys:
    """Slope 0 and slopes growing geometrically from ``first`` to ``last``, of one sign or (side 0) of both.

    Bias -|a_m| bounds every logit by 0 on [-1, 1]. Resolves a singularity at or beyond the edge of the axis.
    """
    if side == 0:
        right = geometric(size // 2, first, last)
        left = -geometric((size - 1) // 2, first, last)
        slopes = np.concatenate([left[::-1], [0.0], right])
    else:
        growing = geometric(size - 1, first, last)
        slopes = np.concatenate([[0.0], side * growing])
    return Keys(slopes, -np.abs(slopes), "exponential")


def pivoted(size: int, first: float, last: float, centre: float) -> Keys:
    """Slopes of both signs growing geometrically whose logits all meet at ``centre``: for a kink or a step inside."""
    keys = exponential(size, first, last, 0)
    return Keys(keys.slopes, -keys.slopes * centre, "pivoted")


def hinged(size: int, steep: float, centre: float, share: int) -> Keys:
    """Two bundles of Bernstein slopes, tilted by -steep and +steep about ``centre``: a smooth piece on either side.

    share: tokens of the left piece.
    """
    left = bernstein(share, 1.0)
    right = bernstein(size - share, 1.0)
    tilt = np.repeat([-steep, steep], [len(left), len(right)])
    slopes = np.concatenate([left.slopes, right.slopes]) + tilt
    biases = np.concatenate([left.biases, right.biases]) - tilt * centre
    return Keys(slopes, biases, "hinged")


def graded(size: int, edges: Array, overlap: float, ghosts: int) -> Keys:
    """Gaussian bumps whose width follows their distance: as many tokens between two edges as between any other two.

    Tokens m and m + 1 at distance h_m weigh the same half-way, and their slopes differ by 2 / (overlap h_m), as those
    of equally spaced bumps do. Around a cusp, where edges crowd geometrically, the weights are bumps in the logarithm
    of the distance to it. ``ghosts`` tokens lie beyond each end.
    """
    # Equal steps between edges, so that tokens crowd where these do.
    ranks = np.linspace(0, len(edges) - 1, size - 2 * ghosts)
    places = np.interp(ranks, np.arange(len(edges)), edges)
    beyond = np.arange(1, ghosts + 1)
    first_gap = places[1] - places[0]
    last_gap = places[-1] - places[-2]
    left = places[0] - first_gap * beyond[::-1]
    right = places[-1] + last_gap * beyond
    places = np.concatenate([left, places, right])
    rise = 2 / (overlap * np.diff(places))
    slopes = np.append(0.0, np.cumsum(rise))
    half_way = rise * (places[1:] + places[:-1]) / 2
    biases = np.append(0.0, -np.cumsum(half_way))
    return Keys(slopes - slopes.mean(), biases, "graded")


def geometric(size: int, first: float, last: float) -> Array:
    """``size`` numbers in geometric progression from ``first`` to ``last``."""
    if size > 1:
        return np.geomspace(first, last, size)
    return np.full(size, first)


def candidates(size: int, edges: Array | None = None) -> Iterator[Keys]:
    """The members of every family that are worth trying with ``size`` tokens, a coarse scan.

    edges: ends of panels that follow the features of a function, where these differ in size.
    """
    if size == 1:
        yield Keys(np.zeros(1), np.zeros(1), "constant")
        return
    for kappa in (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6):
        yield bernstein(size, kappa)
    yield from gaussians(size, overlaps=(0.7, 1.0, 1.4, 2.0, 2.8, 4.0), ghosts=(1.0, 2.0, 3.0, 4.5))
    if size > 3:
        for last in (4.0, 16.0, 64.0, 256.0, 1024.0):
            for side in (-1, 1, 0):
                yield exponential(size, 0.5, last, side)
    if edges is not None:
        yield from _graded(size, edges)


def gaussians(size: int, overlaps: Sequence[float], ghosts: Sequence[float]) -> list[Keys]:
    """Gaussian bumps of these overlaps and numbers of ghosts, as far as there are tokens inside too."""
    room = [beyond for beyond in ghosts if size > 2 * beyond + 1]
    return [gaussian(size, overlap, beyond) for overlap in overlaps for beyond in room]


def starts(size: int, focus: tuple[float, float] | None = None, edges: Array | None = None) -> list[Keys]:
    """Keys from which free slopes descend: a few members of every family, scaled to the finest feature if there is one.

    focus: centre and width of that feature; edges: as for the candidates.
    """
    if size == 1:
        return [Keys(np.zeros(1), np.zeros(1), "constant")]
    keys = [bernstein(size, kappa) for kappa in (0.5, 1.0, 1.4, 2.8, 5.6)]
    keys += gaussians(size, overlaps=(0.7, 1.4, 2.8), ghosts=(0.25, 1.0, 2.0, 3.0))
    for last in (8.0, 64.0, 256.0, 1024.0):
        keys += [exponential(size, 0.5, last, side) for side in (-1, 1, 0)]
    if focus is not None:
        keys += _focused(size, *focus)
    # Where features differ in size, keys that follow them are the most promising, and the first to be tried.
    if edges is None:
        return keys
    return [*_graded(size, edges), *keys]


def _graded(size: int, edges: Array) -> list[Keys]:
    """Graded keys with little and much overlap."""
    members = ((1.4, 0), (4.0, 0), (4.0, 1), (4.0, 2))
    room = [(overlap, ghosts) for overlap, ghosts in members if size > 2 * ghosts + 2]
    return [graded(size, edges, overlap, ghosts) for overlap, ghosts in room]


def _focused(size: int, centre: float, width: float) -> list[Keys]:
    """Members whose steepest slopes resolve a feature of this centre and width, by one or eight slopes across it."""
    keys = []
    for last in (1.0 / width, 8.0 / width):
        keys += [pivoted(size, first, last, centre) for first in (0.5, last / 8)]
        keys += [exponential(size, 0.5, last, side) for side in (-1, 1)]
        keys += [bernstein(size, 2 * last / size, centre)]
        shares = sorted({1, size // 2, size - 1})
        keys += [hinged(size, last / 8, centre, share) for share in shares]
    return keys
