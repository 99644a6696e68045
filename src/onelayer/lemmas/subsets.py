"""Proof by lemma that a layer of subset maxima returns order statistics, for every sequence of the box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.forward import (
    SLACK,
    UP,
    exp_up,
    float64_weights,
    has_fields,
    has_form,
    rounding_of,
    upper_bound,
)
from onelayer.lemmas.overflow import overflows

MARGIN = 64.0  # logits of tokens outside a head's subset stay this far below those inside
LONGEST = 64  # positions; more subsets than a layer has heads, unless only the very largest are asked for
Floats = NDArray[np.float64]


def coefficients_by_size(n: int, weights: Sequence[float] | None) -> list[list[Fraction]]:
    """Row m - 1 says how much the maximum of a subset of m positions adds to each output.

    x_(k) = sum over |S| >= k of (-1)^(|S|-k) C(|S|-1, k-1) max_S: the r-th smallest number is the maximum of
    C(r-1, m-1) subsets of size m, and the sum over m of (-1)^(m-k) C(r-1, m-1) C(m-1, k-1) is 1 for r = k and 0
    otherwise. Sizes whose row is zero need no head: the largest number needs one head, not 2^n - 1.
    """
    sizes = range(1, n + 1)
    if weights is None:
        return [[_coefficient(m, k) for k in sizes] for m in sizes]
    used = [(k, Fraction(a)) for k, a in enumerate(weights, start=1) if a]
    rows = []
    for m in sizes:
        parts = (a * _coefficient(m, k) for k, a in used)
        rows.append([sum(parts, Fraction(0))])
    return rows


def _coefficient(m: int, k: int) -> Fraction:
    """Of the maximum of m positions in x_(k); zero for m < k."""
    sign = (-1) ** abs(m - k)
    return Fraction(sign * math.comb(m - 1, k - 1))


def _used_sizes(n: int, weights: Sequence[float] | None) -> list[int]:
    """Sizes of the subsets that add something."""
    rows = coefficients_by_size(n, weights)
    return [m for m, row in enumerate(rows, start=1) if any(row)]


def used_subsets(n: int, weights: Sequence[float] | None) -> Floats:
    """Membership of every subset of n positions that adds something, (S, n), entries 0 and 1, counted in binary."""
    chosen: list[tuple[int, ...]] = []
    for m in _used_sizes(n, weights):
        chosen += combinations(range(n), m)
    chosen.sort(key=lambda members: sum(2**i for i in members))
    sets = np.zeros((len(chosen), n))
    for row, members in zip(sets, chosen, strict=True):
        row[list(members)] = 1.0
    return sets


def combination(sets: Floats, weights: Sequence[float] | None) -> Floats:
    """Coefficients (S, outputs) of the maxima over ``sets``; an error where one is no float64 number."""
    rows = coefficients_by_size(sets.shape[1], weights)
    sizes = sets.sum(1).astype(int)
    floats = {m: [float(c) for c in rows[m - 1]] for m in set(sizes.tolist())}
    for m, row in floats.items():
        if [Fraction(value) for value in row] != rows[m - 1]:
            raise OnelayerError("the coefficients of this order statistic are no float64 numbers")
    return np.array([floats[m] for m in sizes.tolist()])


def average_gap(members: int) -> float:
    """W((m-1)/e), rounded up: the softmax average of m numbers at sharpness beta is below their maximum by at most
    this over beta."""
    return float(lambertw((members - 1) / math.e).real) * (1 + 2.0**-40)


def sharpness(coefficients: Floats, sets: Floats) -> float:
    """beta times the bound of the error of sum_S c_S (max_S - average_S), the worst output."""
    gaps = np.array([average_gap(int(m)) for m in sets.sum(1)])
    errors = (np.abs(coefficients) * gaps[:, None]).sum(0)
    return float(errors.max()) * UP


def subsets_error(model: OneLayerTransformer, weights: Sequence[float] | None, box: Box) -> float:
    """Upper bound of sup over the box of |T - f| for f = sort (``weights`` None) or f = sum_k weights[k] x_(k).

    Lemma. With p_j proportional to exp(beta x_j), j = 1..m:  0 <= max x - sum p_j x_j <= W((m-1)/e) / beta, where W is
    Lambert's function. Proof. Put d_j = beta (max x - x_j), one of them 0, and c = W((m-1)/e), that is
    (m-1) e^(-1-c) = c. Since (d - c) e^-d <= e^(-1-c), the m-1 others give sum (d_j - c) e^-d_j <= c, which says
    sum d_j e^-d_j <= c (1 + sum e^-d_j): the average of d_j is at most c.

    Errors of executed logits act like a change of x by error / beta. Tokens outside a subset weigh at most
    (n-1) e^-margin. The stored weights must have exactly the form of
    build/ordering/subsets.py, with every subset that adds something once.
    """
    n = model.config.length
    rounding = rounding_of(model.dtype)
    form = _SubsetForm(model, weights, box)
    if overflows(model, box):
        return math.inf
    size = np.abs(form.coefficients).sum(0).max()
    ends = np.array([box.lower.min(), box.upper.max()])
    reach = float(np.abs(ends).max())
    real = sharpness(form.coefficients, form.sets) / form.beta
    # The error of an executed key and of its logit; numbers below the normal range may be lost.
    logit = rounding.gamma(4) * (form.beta * reach + form.mask) * 2
    logit += 4 * rounding.tiny * (1 + form.beta)
    # A head that looks at all numbers leaks nothing, whatever the margin.
    whole = bool(form.sets.all())
    outside = exp_up(-form.margin(box) + 2 * logit)  # weight of a token outside, beside one inside
    leak = 0.0 if whole else 2 * (n - 1) * outside
    # What one head errs: by its logits, and by weights that leak, are rounded and are summed.
    weighed = leak + rounding.softmax(n) + n * rounding.gamma(2) + rounding.gamma(n + 2)
    each = 2 * logit / form.beta + weighed * 2 * reach
    summed = rounding.gamma(len(form.sets) + 2) * 2 * reach
    # A product with a coefficient is lost whatever that coefficient is.
    rest = size * (each + summed + 4 * rounding.tiny) + (len(form.sets) + 8) * rounding.tiny
    if weights is None:
        rest += 2 * rounding.gamma(8) * (2 * reach + form.gates) + form.base_error
        span = float(box.upper.max() - box.lower.min())
        # Unit k must stay open at its own position and shut at others, whatever the sums err by.
        if not (span + real + rest < form.gate / 2 and real + rest < form.gate / 8):
            return math.inf
    return upper_bound((real + SLACK * rest) * UP)


class _SubsetForm:
    """The stored numbers of a layer of subset maxima, every fixed entry compared exactly."""

    def __init__(self, model: OneLayerTransformer, weights: Sequence[float] | None, box: Box) -> None:
        config = model.config
        n = model.config.length
        sorts = weights is None
        w = float64_weights(model)
        outputs = n if sorts else 1
        width = 1 + outputs + int(sorts) + n
        heads = len(config.heads)
        wanted = {
            "norm": "none",
            "attention": "softmax",
            "embedding": "linear",
            "d_model": width,
            "hidden": n if sorts else 0,
            "residual": sorts,
        }
        shapes = [(head.d_k, head.d_v, head.memory) for head in config.heads]
        single = shapes == [(1, 1, "none")] * heads
        if not (n <= LONGEST and has_fields(config, wanted) and single and config.positions != "none"):
            raise OnelayerError("this layer is not a construction of subset maxima")
        # The key of a head is beta x, less the mask at positions that are not in its subset.
        self.beta = float(w["W_K"][0, 0])
        masked = w["W_K"][-n:]  # (n, heads)
        self.mask = float(np.abs(masked).max())
        self.sets = (masked.T == 0).astype(np.float64)
        _require_subsets(self.sets, weights)
        self.coefficients = combination(self.sets, weights)
        # Features of the stream: x, the outputs, when sorting the chosen one, the positions.
        eye = np.eye(width)
        out = 1 + n if sorts else 1
        fixed: list[tuple[Floats, Floats | float]] = [
            (w["W_E"], eye[:1]),
            (w["b_E"], 0.0),
            (w["position"], eye[-n:]),
            (w["W_Q"], 0.0),
            (w["b_Q"], 1.0),
            (w["W_K"][0], self.beta),
            (w["W_K"][1:-n], 0.0),
            (w["W_K"][-n:], -self.mask * (1 - self.sets.T)),
            (w["b_K"], 0.0),
            (w["W_V"], np.repeat(eye[:, :1], heads, axis=1)),
            (w["b_V"], 0.0),
            (w["W_O"][:, 1 : 1 + outputs], self.coefficients),
            (np.delete(w["W_O"], np.s_[1 : 1 + outputs], axis=1), 0.0),
            (w["b_O"], 0.0),
            (w["W_R"], eye[:, out : out + 1]),
        ]
        self.gate = 0.0
        self.gates = 0.0
        self.base_error = 0.0
        if sorts:
            self.gate = float(w["W_1"][-n, 0])
            fixed += [
                (w["W_1"][1 : 1 + n], np.eye(n)),
                (w["W_1"][-n:], self.gate * np.eye(n)),
                (np.delete(w["W_1"], [*range(1, 1 + n), *range(width - n, width)], axis=0), 0.0),
                (w["b_1"], w["b_1"][0]),
                (w["W_2"], np.repeat(eye[out : out + 1], n, axis=0)),
                (w["b_2"], 0.0),
            ]
            self._gates(float(w["b_1"][0]), float(w["b_R"][0]), box)
        elif float(w["b_R"][0]) != 0:
            raise OnelayerError("the read-out of this layer does not have the form of subset maxima")
        if not has_form(fixed) or not self.beta > 0:
            raise OnelayerError("the weights of this layer do not have the form of subset maxima")

    def _gates(self, bias: float, base: float, box: Box) -> None:
        """Unit k returns s_k - base at position k if s_k > base, and 0 elsewhere if s_k < base + gate."""
        self.gates = 2 * self.gate + abs(bias) + abs(base)
        summed = abs(bias) + self.gate + abs(base)
        self.base_error = abs(bias + self.gate + base) + 4 * 2.0**-53 * summed
        # An eighth of a gate is left for errors below the box, three eighths above it.
        low = float(box.lower.min())
        high = float(box.upper.max())
        if not (base + self.gate / 8 < low and high < base + self.gate * 5 / 8):
            raise OnelayerError("the gates of this layer do not fit the box")

    def margin(self, box: Box) -> float:
        """How far the logits of tokens outside a subset stay below those inside."""
        span = float(box.upper.max() - box.lower.min())
        return self.mask - self.beta * span * UP


def _require_subsets(sets: Floats, weights: Sequence[float] | None) -> None:
    """Nonempty subsets, none twice, and of every size that adds something all C(n, m) of them."""
    n = sets.shape[1]
    once = len(np.unique(sets, axis=0)) == len(sets)
    sizes = sets.sum(1).astype(int)
    found = np.bincount(sizes, minlength=n + 1)
    needed = _used_sizes(n, weights)
    whole = all(int(found[m]) == math.comb(n, m) for m in needed)
    if not (once and whole and found[0] == 0):
        raise OnelayerError("the heads of this layer do not look at every subset once")
