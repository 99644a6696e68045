"""Proof by lemma that a layer of thresholds returns order statistics, for every sequence of the box, ties included."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.float64 import UNIT
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.forward import (
    SLACK,
    UP,
    Rounding,
    float64_weights,
    has_fields,
    has_form,
    rounding_of,
    upper_bound,
)
from onelayer.lemmas.overflow import overflows

Floats = NDArray[np.float64]
INEXACT = "the positions of this layer do not give exact logits"


def threshold_range(length: int, k: int) -> tuple[float, float]:
    """Least and greatest value of (T_k - x_(k)) / h in the lemma of :func:`thresholds_error`, k = 1..n."""
    return -(1 - 1 / (length - k + 1)), 1 - 1 / k


def thresholds_error(model: OneLayerTransformer, weights: Sequence[float] | None, box: Box) -> float:
    """Upper bound of sup over the box of |T - f| for f = sort (``weights`` None) or f = sum_k weights[k] x_(k).

    Lemma. Let t_0 < ... < t_G, x in [t_0, t_G]^n, r_g(x) = clip((t_g - x) / (t_g - t_{g-1}), 0, 1) and
    N_g = sum_j r_g(x_j). Then T_k = t_0 + sum_g (t_g - t_{g-1}) clip(k - N_g, 0, 1) obeys
        -h (1 - 1/(n-k+1)) <= T_k - x_(k) <= h (1 - 1/k),    h = max_g (t_g - t_{g-1}).
    Proof. Let x_(k) lie in cell c = [t_{c-1}, t_c]. For g < c the numbers x_(k), ..., x_(n) lie above cell g, so
    N_g <= k - 1 and the clip is 1; for g > c the numbers x_(1), ..., x_(k) lie below it, so N_g >= k and the clip is 0.
    Hence T_k and x_(k) lie in the same cell. There, with m numbers at heights q_1 <= ... <= q_m (in cell widths) and
    x_(k) the l-th of them, clip = clip(l - m + sum q_i, 0, 1). From q_i <= q_l for i <= l and q_i <= 1 it is at most
    min(1, l q_l) <= q_l + 1 - 1/l; from q_i >= 0 and q_i >= q_l for i >= l at least max(0, (m-l+1) q_l - (m-l)) >=
    q_l - 1 + 1/(m-l+1). Since l <= k and m - l <= n - k, the claim follows. Ties are nothing special.

    The stored weights must have exactly the form of the construction (checked); what differs from the lemma by the
    rounding of weights, the finite temperature of the head that copies the position, and the execution is added.
    """
    shape = Thresholds(model)
    if overflows(model, box):
        return math.inf
    n = shape.length
    edges = shape.edges(box)
    width = np.diff(edges)
    h = float(width.max()) * UP
    if weights is None:
        # clip(k - N, 0, 1) = relu(k - N) - relu(k - N - 1), where token k of the sorted sequence adds its own k.
        lemma = h * (1 - 1 / n)
        shift = 0.0
        levels = np.array([0.0, -1.0])
        factors = np.array([1.0, -1.0])
        total = 1.0
        mass = 0.0
    else:
        lemma, shift = statistic_error(weights, h)
        levels, factors = relu_form(weights)
        total = math.fsum(weights)
        mass = float(np.abs(weights).sum())
    if not np.array_equal(shape.levels(), np.repeat(levels, len(width))):
        raise OnelayerError("the thresholds of this layer do not belong to this order statistic")
    # A stored slope that is not -1 / width moves a ramp, which lies in [0, 1], by that much; N_g is a sum of n ramps.
    off = np.abs(shape.slopes() * width + 1)
    slope_error = float(off.max()) + 8 * UNIT
    each = n * slope_error + shape.position_error() + shape.execution_error()
    reach = n + float(np.abs(levels).max()) + 1  # the largest count that a unit sees
    stored = shape.outer()
    size = float(np.abs(stored).sum())
    summing = shape.rounding.gamma(len(stored) + 2)
    offset = edges[0] * total + shift
    added = size * (reach + each) + abs(offset)
    rest = size * each + summing * added
    # What the stored weights of the units differ from the lemma's by, and the rounding of the latter here.
    ideal = (factors[:, None] * width).reshape(-1)  # (units,)
    strayed = float(np.abs(stored - ideal).sum())
    strayed += 4 * UNIT * float(np.abs(ideal).sum())
    rest += reach * strayed
    # The same for the constant.
    shifted = abs(shape.offset() - offset)
    rounded = 8 * UNIT * (abs(edges[0]) + h) * (1 + mass)
    rest += shifted + rounded
    # Outputs of units and products with them that are flushed to zero.
    rest += (4 * len(stored) * reach + size) * shape.rounding.tiny
    return upper_bound((lemma + SLACK * rest) * UP)


def statistic_error(weights: Sequence[float], h: float) -> tuple[float, float]:
    """Bound of |sum_k a_k T_k + shift - sum_k a_k x_(k)| and the shift that makes the range of the error symmetric."""
    low, high = 0.0, 0.0
    for k, a in enumerate(weights, start=1):
        ends = [a * end for end in threshold_range(len(weights), k)]
        low = low + min(ends)
        high = high + max(ends)
    bound = (high - low) / 2 * h * UP
    shift = -(high + low) / 2 * h
    return bound, shift


def relu_form(weights: Sequence[float]) -> tuple[Floats, Floats]:
    """Levels k and factors of sum_k a_k clip(k - N, 0, 1) = sum_k (a_k - a_{k+1}) relu(k - N), for 0 <= N <= n."""
    a = np.array(weights)
    following = np.append(a[1:], 0.0)
    steps: Floats = a - following
    used = np.flatnonzero(steps)
    return (used + 1).astype(np.float64), steps[used]


class Thresholds:
    """A stored layer seen as the construction of build/sort.py; refuses one that does not have its exact form.

    d_model = G for a statistic, G + 2 for sorting: the ramps of one number, then its position and the square of it.
    """

    def __init__(self, model: OneLayerTransformer) -> None:
        config = model.config
        self.rounding: Rounding = rounding_of(model.dtype)
        self.length = config.length
        self.cells = config.ramps
        self.sorts = config.readout == "each"
        self.w = float64_weights(model)
        wanted = {
            "residual": False,
            "norm": "none",
            "attention": "softmax",
            "embedding": "piecewise",
            "d_model": self.cells + (2 if self.sorts else 0),
        }
        # Sorting has a second head, which copies the position.
        memories = ["none"] * (2 if self.sorts else 1)
        heads = [head.memory for head in config.heads] == memories
        positions = (config.positions != "none") == self.sorts
        if not (has_fields(config, wanted) and heads and positions) or config.hidden % self.cells:
            raise OnelayerError("this layer is not a construction of thresholds")
        self.keys = config.heads[0].d_k
        self.values = config.heads[0].d_v
        self._require_form()

    def _require_form(self) -> None:
        """Every fixed entry of every matrix, compared exactly."""
        w = self.w
        g = self.cells
        dk = self.keys
        width = w["W_E"].shape[1]
        units = w["b_1"].size // g
        # The uniform head averages over n tokens; the units see the sum N_g with a minus.
        sums = -float(self.length) * np.eye(g)
        counts = np.concatenate([sums] * units, axis=1)
        first = np.eye(width)[:, :1]
        fixed: list[tuple[Floats, Floats | float]] = [
            (w["W_E"], np.eye(g, width)),
            (w["b_E"], 0.0),
            (w["W_Q"][:, :dk], 0.0),
            (w["b_Q"][:dk], 0.0),
            (w["W_K"][:, :dk], 0.0),
            (w["b_K"][:dk], 0.0),
            (w["W_V"][:, :g], np.eye(width, g)),
            (w["b_V"][:g], 0.0),
            (w["W_O"][:g], np.eye(g, width)),
            (w["b_O"], 0.0),
            (w["W_1"][:g], counts),
            (w["W_2"][:, 1:], 0.0),
            (w["b_2"], 0.0),
            (w["W_R"], first),
        ]
        if self.sorts:
            fixed += [
                (w["position"][:, :g], 0.0),
                (w["W_Q"][:g, dk:], 0.0),
                (w["W_K"][:g, dk:], 0.0),
                (w["W_V"][:, g:], np.eye(width)[:, g : g + 1]),
                (w["W_O"][g:], np.eye(width)[g : g + 1]),
                (w["W_1"][g], 1.0),
                (w["W_1"][g + 1 :], 0.0),
            ]
        if self.values != g or not has_form(fixed):
            raise OnelayerError("the weights of this layer do not have the form of thresholds")

    def edges(self, box: Box) -> Floats:
        """t_0, ..., t_G, covering the box."""
        low = float(box.lower.min())
        high = float(box.upper.max())
        edges = np.concatenate([[low], self.w["ramp_start"][0]])
        if not (bool((np.diff(edges) > 0).all()) and edges[-1] >= high):
            raise OnelayerError("the thresholds of this layer do not cover the box in ascending order")
        return edges

    def slopes(self) -> Floats:
        """Slopes of the ramps."""
        slopes: Floats = self.w["ramp_slope"][0]
        return slopes

    def levels(self) -> Floats:
        """Levels of the hidden units."""
        return self.w["b_1"]

    def outer(self) -> Floats:
        """What each hidden unit adds to the output."""
        outer: Floats = self.w["W_2"][:, 0]
        return outer

    def offset(self) -> float:
        """The constant of the read-out."""
        return float(self.w["b_R"][0])

    def position_error(self) -> float:
        """|p_i - i| for the head that copies position i, in real arithmetic and executed.

        Its logits are exact, being small multiples of 1/4, and fall from the own position by at least ``gap``, so the
        other n - 1 tokens together weigh at most (n - 1) e^-gap.
        """
        if not self.sorts:
            return 0.0
        n = self.length
        g = self.cells
        dk = self.keys
        w = self.w
        place = w["position"]
        # Multiples of 1/4 below 1 / (4 u) are floats of the format, and so are their sums in any order.
        q, k = (self._exact(place, w[f"W_{name}"][:, dk:], w[f"b_{name}"][dk:]) for name in "QK")
        query = q * (1 / math.sqrt(q.shape[1]))
        sizes = np.abs(query) @ np.abs(k).T
        quarters = all(_are_quarters(part) for part in (query, sizes))
        if not (quarters and 4 * float(sizes.max()) * self.rounding.unit < 1):
            raise OnelayerError(INEXACT)
        logits = query @ k.T
        others = logits + np.where(np.eye(n) > 0, -np.inf, 0.0)
        lead = np.diag(logits) - others.max(1)
        gap = float(lead.min()) if n > 1 else math.inf
        value = place[:, g] + self.w["b_V"][g]
        if not (gap > 0 and np.array_equal(value, np.arange(1.0, n + 1))):
            raise OnelayerError("the position head of this layer does not copy positions")
        leak = (n - 1) * math.exp(-gap) * (1 + 2.0**-20)
        executed = self.rounding.softmax(n) + 2 * self.rounding.gamma(n + 2)
        # Positions lie in [1, n]: weight that goes elsewhere moves the average by at most n, there and here.
        return n * (2 * leak + executed) * UP

    def _exact(self, place: Floats, weight: Floats, bias: Floats) -> Floats:
        """place W + b, of which no order of sums rounds anything: large products that cancel would be rounded first."""
        sizes = np.abs(place) @ np.abs(weight) + np.abs(bias)
        small = 16 * float(sizes.max()) * self.rounding.unit < 1
        found: Floats = place @ weight + bias
        if not (small and all(_are_quarters(part) for part in (place, weight, bias, found))):
            raise OnelayerError(INEXACT)
        return found

    def execution_error(self) -> float:
        """Error of an executed k - N_g before its ReLU, |p_i - i| apart.

        A ramp has two roundings and lies in [0, 1]; an input or difference below the normal range may be lost, times
        the slope. The weights of the uniform head are softmax of exact zeros. N_g and k are at most n, and the sum
        k - n avg has three terms.
        """
        n = self.length
        r = self.rounding
        steepest = float(np.abs(self.slopes()).max())
        lost = 4 * r.tiny * (1 + steepest)
        average = r.gamma(3) + r.softmax(n) + 2 * r.gamma(n + 2) + lost
        summing = r.gamma(6) * (2 * n + 1)
        return n * average * UP + summing * UP


def _are_quarters(numbers: Floats) -> bool:
    """Whether all are whole multiples of 1/4."""
    return bool((np.rint(4 * numbers) == 4 * numbers).all())
