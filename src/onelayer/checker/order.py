"""The checker's proof that a stored layer sorts, or returns order statistics: exact form first, then ball arithmetic.

Written from docs/constructions/sort.md. A layer of another form than the two constructions is not accepted: thresholds
are looked at here, subsets in subsets.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from onelayer.checker.form import LayerForm
from onelayer.checker.rounding import Execution
from onelayer.checker.subsets import subsets_bound
from onelayer.checker.weights import Array, Stored
from onelayer.lemmas.argument import OrderStatistics

Domain = tuple[tuple[float, ...], tuple[float, ...]]
Whole = NDArray[Any]  # of Python's integers, which do not overflow

FORM = LayerForm("its lemma")


def order_statistics_bound(
    stored: Stored, argument: OrderStatistics, domain: Domain, execution: Execution
) -> tuple[arb, arb]:
    """Bound of the lemma, and of the rounding of weights and execution: |T - f| is at most their sum.

    Rejected when the layer does not have the form of its lemma.
    """
    config = stored.config
    length = argument.length
    sorts = argument.weights is None
    FORM.require(len(domain[0]) == length == stored.length, "the domain, the argument and the layer differ in length")
    FORM.require(config["attention"] == "softmax" and config["norm"] == "none", "not a plain softmax layer")
    FORM.require(config["layout"] == "tokens", "not a layer over tokens")
    FORM.require(config["readout"] == ("each" if sorts else "first"), "another read-out than the lemma's")
    FORM.require(config["output_shape"] == ([length] if sorts else []), "other outputs than the lemma's")
    # Both lemmas speak of numbers in one interval: the one around all sides of the box.
    low = min(domain[0])
    high = max(domain[1])
    bound = _thresholds_bound if argument.construction == "thresholds" else subsets_bound
    return bound(stored, argument.weights, low, high, execution)


def order_statistics_values(argument: OrderStatistics, point: Sequence[float]) -> list[arb]:
    """f at one point, from exact sums."""
    ordered = [Fraction(x) for x in sorted(point)]
    if argument.weights is not None:
        products = (Fraction(a) * x for a, x in zip(argument.weights, ordered, strict=True))
        ordered = [sum(products, Fraction(0))]
    return [arb(fmpq(f.numerator, f.denominator)) for f in ordered]


def _thresholds_bound(
    stored: Stored, weights: Sequence[float] | None, low: float, high: float, execution: Execution
) -> tuple[arb, arb]:
    """Cells [t_{g-1}, t_g] of width at most h, counts N_g = sum_j clip((t_g - x_j)/(t_g - t_{g-1}), 0, 1).

    t_0 + sum_g (t_g - t_{g-1}) clip(k - N_g, 0, 1) and x_(k) lie in the same cell; their difference lies between
    -h (1 - 1/(n-k+1)) and h (1 - 1/k).
    """
    t = stored.tensors
    n = stored.length
    sorts = weights is None
    levels, factors = _units(weights, n)
    _thresholds_form(stored, sorts, levels)
    edges = [arb(low), *(arb(v) for v in t["ramp_start"][0].tolist())]
    cells = [b - a for a, b in pairwise(edges)]
    FORM.require(all(cell > 0 for cell in cells), "the thresholds do not ascend from the domain's lower end")
    FORM.require(bool(edges[-1] >= high), "the thresholds do not cover the domain")
    lemma, offset = _lemma(weights, n, _largest(cells), edges[0])
    each = _count_error(stored, cells, execution)
    if sorts:
        each = each + _position_error(stored, execution)
    size, mismatch = _written(t["W_2"][:, 0], factors, cells)
    # |level - N|, the position included when sorting.
    reach = arb(n + 2) if sorts else arb(2 * n + 1)
    b = arb(float(t["b_R"][0]))
    units = len(t["b_1"])
    flushed = units * reach * execution.tiny
    summing = execution.gamma(units + 4) * (size * (reach + each) + abs(b)) + flushed
    return lemma, abs(b - offset) + size * each + mismatch * reach + summing


def _count_error(stored: Stored, cells: Sequence[arb], execution: Execution) -> arb:
    """How far an executed k - N_g is from the true one: slopes that are no -1 / width exactly, then rounding."""
    n = stored.length
    slopes = stored.tensors["ramp_slope"]
    gamma = execution.gamma
    # A ramp of slope s over a cell of width w is clipped to [0, 1], so it is off by |s w + 1| at most, all along.
    stored_slopes = zip(cells, slopes[0].tolist(), strict=True)
    askew = _largest([abs(arb(slope) * cell + 1) for cell, slope in stored_slopes])
    # A difference x - t that is flushed to zero is lost times the slope.
    flushed = execution.tiny * (8 + arb(float(np.abs(slopes).max())))
    # Ramp: two roundings. Weights 1/n: two exponentials, a sum, a quotient. Average: a sum. k - N: three terms.
    averaged = gamma(4) + gamma(n + 26) + 2 * gamma(n + 3) + flushed
    return n * askew + n * averaged + gamma(7) * (2 * n + 1)


def _written(column: Array, factors: Array, cells: Sequence[arb]) -> tuple[arb, arb]:
    """The sum of the sizes of W_2, and of its distances to factor times width of a cell, unit by unit."""
    size = arb(0)
    mismatch = arb(0)
    for at, value in enumerate(column.tolist()):
        level, cell = divmod(at, len(cells))
        wanted = arb(float(factors[level])) * cells[cell]
        size = size + abs(arb(value))
        mismatch = mismatch + abs(arb(value) - wanted)
    return size, mismatch


def _largest(numbers: Sequence[arb]) -> arb:
    found = arb(0)
    for number in numbers:
        found = found.max(number)
    return found


def _thresholds_form(stored: Stored, sorts: bool, levels: Array) -> None:
    """Every weight that the lemma does not leave free is what it says."""
    t = stored.tensors
    config = stored.config
    n = stored.length
    g = int(config["ramps"])
    heads = config["heads"]
    width = g + 2 if sorts else g
    FORM.require(g > 0 and not config["residual"] and config["d_model"] == width, "not a layer of thresholds")
    FORM.require(len(heads) == (2 if sorts else 1), "other heads")
    FORM.require(all(head["memory"] == "none" for head in heads), "other heads")
    FORM.require((config["positions"] != "none") == sorts, "positions are for sorting alone")
    FORM.require(heads[0]["d_v"] == g and config["hidden"] == g * len(levels) > 0, "other widths than thresholds need")
    _uniform_head(t, g, int(heads[0]["d_k"]), width)
    FORM.require(np.array_equal(t["b_1"], np.repeat(levels, g)), "other levels than this statistic needs")
    counts = np.concatenate([-float(n) * np.eye(g)] * len(levels), axis=1)
    FORM.equal(t["W_1"][:g], counts, "the counts of the feed-forward network")
    FORM.equal(t["W_2"][:, 1:], 0.0, "the second matrix of the feed-forward network")
    FORM.equal(t["b_2"], 0.0, "the second bias of the feed-forward network")
    FORM.equal(t["W_R"], np.eye(width)[:, :1], "the read-out")


def _lemma(weights: Sequence[float] | None, n: int, h: arb, start: arb) -> tuple[arb, arb]:
    """The bound of the error, and the offset b_R for which it is meant.

    A statistic's error lies between two numbers; any offset is sound, the exact one is the middle of them.
    """
    if weights is None:
        return h * (n - 1) / n, start
    bottom = top = total = arb(0)
    for k, weight in enumerate(weights, start=1):
        a = arb(weight)
        total = total + a
        # Of T_k - x_(k), in cells: a negative weight turns its ends around.
        down = -(1 - arb(1) / (n - k + 1))
        up = 1 - arb(1) / k
        least, most = (down, up) if weight > 0 else (up, down)
        bottom = bottom + a * least
        top = top + a * most
    middle = (top + bottom) / 2 * h
    return (top - bottom) / 2 * h, start * total - middle


def _units(weights: Sequence[float] | None, n: int) -> tuple[Array, Array]:
    """sum_k a_k clip(k - N, 0, 1) as sum of factor * relu(level - N); relative to the position when sorting."""
    if weights is None:
        return np.array([0.0, -1.0]), np.array([1.0, -1.0])
    pairs = list(pairwise([*weights, 0.0]))
    steps = [a - b for a, b in pairs]
    # The layer stores the rounded differences: they must be the differences.
    exact = [Fraction(a) - Fraction(b) for a, b in pairs]
    FORM.require(exact == list(map(Fraction, steps)), "weights whose differences are no floats")
    used = [k for k in range(n) if steps[k]]
    levels = np.array([k + 1.0 for k in used])
    return levels, np.array([steps[k] for k in used])


def _uniform_head(t: dict[str, Array], g: int, d_k: int, width: int) -> None:
    """Ramps are embedded, averaged with equal weights, and written back unchanged."""
    FORM.equal(t["W_E"], np.eye(g, width), "the embedding")
    FORM.equal(t["b_E"], 0.0, "the bias of the embedding")
    for name in ("Q", "K"):
        FORM.equal(t[f"W_{name}"][:, :d_k], 0.0, f"W_{name} of the uniform head")
        FORM.equal(t[f"b_{name}"][:d_k], 0.0, f"b_{name} of the uniform head")
    FORM.equal(t["W_V"][:, :g], np.eye(width, g), "the values of the uniform head")
    FORM.equal(t["b_V"][:g], 0.0, "the value bias of the uniform head")
    FORM.equal(t["W_O"][:g], np.eye(g, width), "W_O of the uniform head")
    FORM.equal(t["b_O"], 0.0, "b_O")


def _position_error(stored: Stored, execution: Execution) -> arb:
    """How far the second head strays from copying the position i = 1..n, real and executed, for all inputs."""
    t = stored.tensors
    n = stored.length
    g = int(stored.config["ramps"])
    first = int(stored.config["heads"][0]["d_k"])
    _position_form(t, g, first)
    place = t["position"]
    FORM.equal(place[:, g] + t["b_V"][g], np.arange(1.0, n + 1), "the positions")
    code = place[:, g:]  # the rest is zero, and so are the weights that would read ramps
    q = _exact_map(code, t["W_Q"][g:, first:], t["b_Q"][first:], execution)
    k = _exact_map(code, t["W_K"][g:, first:], t["b_K"][first:], execution)
    gap = _least_gap(q, k, execution)
    FORM.require(gap > 1, "a position head that does not tell positions apart")
    # Each other position has at most e^-gap of the weight, and moves the average by less than n for it; four times
    # that covers what rounding does to the exponentials.
    leak = (n - 1) * (-gap).exp() * 4
    return n * (leak + execution.gamma(3 * n + 32) + 8 * n * execution.tiny)


def _position_form(t: dict[str, Array], g: int, first: int) -> None:
    """The second head sees the code of the position alone, and the units see what it returns."""
    eye = np.eye(g + 2)
    FORM.equal(t["position"][:, :g], 0.0, "the positions of the ramps")
    for name in ("W_Q", "W_K"):
        FORM.equal(t[name][:g, first:], 0.0, f"{name} of the position head")
    FORM.equal(t["W_V"][:, g:], eye[:, g : g + 1], "the values of the position head")
    FORM.equal(t["W_O"][g:], eye[g : g + 1], "W_O of the position head")
    FORM.equal(t["W_1"][g], 1.0, "the position in the feed-forward network")
    FORM.equal(t["W_1"][g + 1 :], 0.0, "the unused rows of the feed-forward network")


def _least_gap(q: Whole, k: Whole, execution: Execution) -> arb:
    """The least difference of a position's own logit and another's, from four times queries and keys; exact."""
    n, width = q.shape
    scale = math.isqrt(width)
    # One over any other root is no float, and what it makes of a query would be rounded.
    exact = scale * scale == width and scale.bit_count() == 1
    FORM.require(exact, "a key width of the position head whose root is no power of two")
    FORM.require(bool((q % scale == 0).all()), "positions whose scaled queries are not exact")
    # 16 scale times the logits, in whole numbers; the executed ones are exact if they fit the significand.
    _require_exact(np.abs(q) @ np.abs(k).T, execution)
    if n == 1:
        return arb(1000)  # there is no other position
    logits = q.astype(np.int64) @ k.T.astype(np.int64)
    gaps = np.diag(logits)[:, None] - logits
    # A position is not compared with itself.
    np.fill_diagonal(gaps, np.iinfo(np.int64).max)
    return arb(int(gaps.min())) / (16 * scale)


def _exact_map(place: Array, weight: Array, bias: Array, execution: Execution) -> Whole:
    """Four times place W + b in whole numbers, which every execution computes without rounding.

    Float64 would not do here: large products that cancel are rounded first, in each order of sums to something else.
    """
    p = _quarters(place)
    w = _quarters(weight)
    b = _quarters(bias)
    _require_exact(np.abs(p) @ np.abs(w) + 4 * np.abs(b), execution)
    sixteenths = p @ w + 4 * b
    FORM.require(bool((sixteenths % 4 == 0).all()), "queries or keys that are no quarters")
    quarters: Whole = sixteenths // 4
    return quarters


def _require_exact(sizes: Whole, execution: Execution) -> None:
    """Sums of whole numbers whose sizes add up to less than 1 / (4 u) are exact in any order, parts included."""
    FORM.require(4 * execution.unit * int(sizes.max()) < 1, "positions without exact logits")


def _quarters(values: Array) -> Whole:
    """Four times the values as whole numbers of any length, exactly."""
    scaled = 4 * values
    whole = bool((np.rint(scaled) == scaled).all())
    FORM.require(whole, "positions that are no quarters")
    found: Whole = np.vectorize(int, otypes=[object])(scaled)
    return found
