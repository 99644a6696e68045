"""The checker's proof that a stored layer sorts, or returns order statistics: exact form first, then ball arithmetic.

Written from docs/constructions/sort.md. A layer of another form than the two constructions is not accepted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from onelayer.checker.rounding import Execution
from onelayer.checker.weights import Array, Stored
from onelayer.errors import OnelayerError
from onelayer.lemmas.argument import OrderStatistics

Domain = tuple[tuple[float, ...], tuple[float, ...]]

Mask = NDArray[np.bool_]
LONGEST = 64  # positions of a layer of subsets; binomials beyond it are no floats


def order_statistics_bound(
    stored: Stored, argument: OrderStatistics, domain: Domain, execution: Execution
) -> tuple[arb, arb]:
    """Bound of the lemma, and of the rounding of weights and execution: |T - f| is at most their sum.

    OnelayerError when the layer does not have the form of its lemma.
    """
    low = min(domain[0])
    high = max(domain[1])
    _require(
        len(domain[0]) == argument.length == stored.length, "the domain, the argument and the layer differ in length"
    )
    _require(stored.config["attention"] == "softmax" and stored.config["norm"] == "none", "not a plain softmax layer")
    _require(stored.config["layout"] == "tokens", "not a layer over tokens")
    sorts = argument.weights is None
    _require(stored.config["readout"] == ("each" if sorts else "first"), "another read-out than the lemma's")
    _require(stored.config["output_shape"] == ([argument.length] if sorts else []), "other outputs than the lemma's")
    bound = _thresholds_bound if argument.construction == "thresholds" else _subsets_bound
    return bound(stored, argument.weights, low, high, execution)


def order_statistics_values(argument: OrderStatistics, point: Sequence[float]) -> list[arb]:
    """f at one point."""
    ordered = [Fraction(x) for x in sorted(point)]
    if argument.weights is not None:
        ordered = [sum((Fraction(a) * x for a, x in zip(argument.weights, ordered, strict=True)), Fraction(0))]
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
    g = int(stored.config["ramps"])
    levels, factors = _units(weights, n)
    _thresholds_form(stored, sorts, levels)
    edges = [arb(low), *(arb(v) for v in t["ramp_start"][0].tolist())]
    cells = [b - a for a, b in pairwise(edges)]
    _require(all(cell > 0 for cell in cells) and edges[-1] >= high, "the thresholds do not cover the domain")
    position = _position_error(stored, execution) if sorts else arb(0)
    lemma, offset = _lemma(weights, n, _largest(cells), edges[0])
    slopes = zip(cells, t["ramp_slope"][0].tolist(), strict=True)
    slope = _largest([abs(arb(value) * cell + 1) for cell, value in slopes])
    u = execution.gamma
    tiny = execution.tiny
    # ramp: two roundings; weights 1/n: two exponentials, a sum, a quotient; average: a sum; k - N: three terms
    flushed = tiny * (8 + arb(float(np.abs(t["ramp_slope"]).max())))
    averaged = u(4) + u(n + 26) + 2 * u(n + 3) + flushed
    count = n * averaged + u(7) * (2 * n + 1)
    each = n * slope + position + count
    size = arb(0)
    mismatch = arb(0)
    for at, value in enumerate(t["W_2"][:, 0].tolist()):
        wanted = arb(float(factors[at // g])) * cells[at % g]
        size = size + abs(arb(value))
        mismatch = mismatch + abs(arb(value) - wanted)
    reach = arb(n + 2) if sorts else arb(2 * n + 1)  # |level - N|, the position included when sorting
    b = arb(float(t["b_R"][0]))
    units = len(t["b_1"])
    summing = u(units + 4) * (size * (reach + each) + abs(b)) + units * reach * tiny
    return lemma, abs(b - offset) + size * each + mismatch * reach + summing


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
    _require(g > 0 and not config["residual"] and config["d_model"] == width, "not a layer of thresholds")
    _require(len(heads) == (2 if sorts else 1) and all(head["memory"] == "none" for head in heads), "other heads")
    _require((config["positions"] != "none") == sorts, "positions are for sorting alone")
    _require(heads[0]["d_v"] == g and config["hidden"] == g * len(levels) > 0, "other widths than thresholds need")
    _uniform_head(t, g, int(heads[0]["d_k"]), width)
    _require(np.array_equal(t["b_1"], np.repeat(levels, g)), "other levels than this statistic needs")
    counts = np.concatenate([-float(n) * np.eye(g)] * len(levels), axis=1)
    _equal(t["W_1"][:g], counts, "the counts of the feed-forward network")
    _equal(t["W_2"][:, 1:], 0.0, "the second matrix of the feed-forward network")
    _equal(t["b_2"], 0.0, "the second bias of the feed-forward network")
    _equal(t["W_R"], np.eye(width)[:, :1], "the read-out")


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
        down = -(1 - arb(1) / (n - k + 1))
        up = 1 - arb(1) / k
        bottom = bottom + a * (down if weight > 0 else up)
        top = top + a * (up if weight > 0 else down)
    return (top - bottom) / 2 * h, start * total - (top + bottom) / 2 * h


def _units(weights: Sequence[float] | None, n: int) -> tuple[Array, Array]:
    """sum_k a_k clip(k - N, 0, 1) as sum of factor * relu(level - N); relative to the position when sorting."""
    if weights is None:
        return np.array([0.0, -1.0]), np.array([1.0, -1.0])
    pairs = list(pairwise([*weights, 0.0]))
    steps = [a - b for a, b in pairs]
    exact = [Fraction(a) - Fraction(b) for a, b in pairs]
    _require(exact == list(map(Fraction, steps)), "weights whose differences are no floats")
    used = [k for k in range(n) if steps[k]]
    return np.array([k + 1.0 for k in used]), np.array([steps[k] for k in used])


def _uniform_head(t: dict[str, Array], g: int, d_k: int, width: int) -> None:
    """Ramps are embedded, averaged with equal weights, and written back unchanged."""
    _equal(t["W_E"], np.eye(g, width), "the embedding")
    _equal(t["b_E"], 0.0, "the bias of the embedding")
    for name in ("Q", "K"):
        _equal(t[f"W_{name}"][:, :d_k], 0.0, f"W_{name} of the uniform head")
        _equal(t[f"b_{name}"][:d_k], 0.0, f"b_{name} of the uniform head")
    _equal(t["W_V"][:, :g], np.eye(width, g), "the values of the uniform head")
    _equal(t["b_V"][:g], 0.0, "the value bias of the uniform head")
    _equal(t["W_O"][:g], np.eye(g, width), "W_O of the uniform head")
    _equal(t["b_O"], 0.0, "b_O")


def _position_error(stored: Stored, execution: Execution) -> arb:
    """How far the second head strays from copying the position i = 1..n, real and executed, for all inputs."""
    t = stored.tensors
    n = stored.length
    g = int(stored.config["ramps"])
    first = int(stored.config["heads"][0]["d_k"])
    width = g + 2
    place = t["position"]
    _equal(place[:, :g], 0.0, "the positions of the ramps")
    for name in ("W_Q", "W_K"):
        _equal(t[name][:g, first:], 0.0, f"{name} of the position head")
    _equal(t["W_V"][:, g:], np.eye(width)[:, g : g + 1], "the values of the position head")
    _equal(t["W_O"][g:], np.eye(width)[g : g + 1], "W_O of the position head")
    _equal(t["W_1"][g], 1.0, "the position in the feed-forward network")
    _equal(t["W_1"][g + 1 :], 0.0, "the unused rows of the feed-forward network")
    for name in ("Q", "K"):  # so that the products below are exact
        _quarters(t[f"W_{name}"][:, first:])
        _quarters(t[f"b_{name}"][first:])
    q = _quarters(place @ t["W_Q"][:, first:] + t["b_Q"][first:])
    k = _quarters(place @ t["W_K"][:, first:] + t["b_K"][first:])
    scale = math.isqrt(q.shape[1])
    _require(scale * scale == q.shape[1], "a key width of the position head that is no square")
    _quarters(place)
    # 16 scale times the logits, in whole numbers; the executed ones are exact if they fit the significand.
    size = np.abs(q).astype(object) @ np.abs(k).T.astype(object)
    _require(
        bool((q % scale == 0).all()) and 4 * execution.unit * int(size.max()) < 1, "positions without exact logits"
    )
    logits = q @ k.T
    gaps = np.diag(logits)[:, None] - logits
    np.fill_diagonal(gaps, np.iinfo(np.int64).max)  # a position is not compared with itself
    gap = arb(int(gaps.min())) / (16 * scale) if n > 1 else arb(1000)
    _equal(place[:, g] + t["b_V"][g], np.arange(1.0, n + 1), "the positions")
    _require(gap > 1, "a position head that does not tell positions apart")
    leak = (n - 1) * (-gap).exp() * 4
    return n * (leak + execution.gamma(3 * n + 32) + 8 * n * execution.tiny)


def _quarters(values: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Four times the values as whole numbers, exactly."""
    scaled = 4 * values
    whole = bool((np.rint(scaled) == scaled).all())
    small = float(np.abs(scaled).max()) < 2**40
    _require(whole and small, "positions that are no quarters")
    return scaled.astype(np.int64)


def _subsets_bound(
    stored: Stored, weights: Sequence[float] | None, low: float, high: float, execution: Execution
) -> tuple[arb, arb]:
    """x_(k) = sum over |S| >= k of (-1)^(|S|-k) C(|S|-1, k-1) max_S.

    A softmax average of m numbers at sharpness beta is below their maximum by at most c / beta if c e^c >= (m-1)/e.
    """
    t = stored.tensors
    n = stored.length
    sorts = weights is None
    heads = len(stored.config["heads"])
    _subsets_widths(stored, sorts)
    inside, beta, mask = _subsets_queries(t, n)
    table = _inclusion_exclusion(inside, weights)
    eye = np.eye(len(t["W_O"].T))
    written = np.zeros((heads, len(eye)))
    written[:, 1 : 1 + table.shape[1]] = table
    _equal(t["W_O"], written, "W_O")
    lemma, amount = _gaps(np.abs(table), inside.sum(1), beta)
    u = execution.gamma
    reach = arb(max(abs(low), abs(high)))
    logit = 2 * u(6) * (beta * reach + mask)
    # At most n - 1 numbers are masked in one head; one that looks at all of them leaks nothing, however sharp it is.
    above = beta * (arb(high) - low) - mask + 2 * logit  # the most by which a masked logit may lie over one that is not
    leak = arb(0) if inside.all() else (n - 1) * above.exp() * 2
    weights_error = leak + u(n + 26) + n * u(4) + u(n + 4)
    average = weights_error * 2 * reach + 2 * logit / beta
    flushed = 16 * n * execution.tiny * (1 + reach)
    rest = amount * (average + 2 * u(heads + 4) * reach + flushed)
    if not sorts:
        _equal(t["b_R"], 0.0, "b_R")
        _equal(t["W_R"], eye[:, 1:2], "the read-out")
        return lemma, rest
    return lemma, rest + _gates(t, n, low, high, lemma + rest, execution)


def _gaps(table: Array, sizes: Array, beta: float) -> tuple[arb, arb]:
    """The lemma's bound for the worst output, and the largest sum of weights of one."""
    gap = {int(m): _gap(int(m)) for m in set(sizes.tolist())}
    lemma = arb(0)
    amount = arb(0)
    below = [gap[int(m)] for m in sizes]  # of each head, times beta
    for column in table.T.tolist():
        together = sum((arb(c) * one for c, one in zip(column, below, strict=True)), arb(0))
        lemma = lemma.max(together / beta)
        amount = amount.max(sum(map(arb, column), arb(0)))
    return lemma, amount


def _subsets_widths(stored: Stored, sorts: bool) -> None:
    """The shape of the layer is that of the lemma."""
    config = stored.config
    n = stored.length
    outputs = n if sorts else 1
    width = 1 + outputs + (1 if sorts else 0) + n
    _require(n <= LONGEST, f"more than {LONGEST} numbers")
    _require(
        config["d_model"] == width and config["residual"] == sorts and config["embedding"] == "linear", "other widths"
    )
    _require(all((h["d_k"], h["d_v"], h["memory"]) == (1, 1, "none") for h in config["heads"]), "other heads")
    _require(config["positions"] != "none" and config["hidden"] == (n if sorts else 0), "other positions or units")


def _subsets_queries(t: dict[str, Array], n: int) -> tuple[Mask, float, float]:
    """Which numbers each head looks at, (heads, n), at which sharpness, and how far the others are masked."""
    eye = np.eye(len(t["W_K"]))
    keys = t["W_K"][-n:].T
    beta = float(t["W_K"][0, 0])
    mask = float(np.abs(keys).max())
    inside = keys == 0
    distinct = {tuple(row) for row in inside.tolist()}
    _require(len(distinct) == len(keys) and bool(inside.any(1).all()), "a subset twice or empty")
    for name, value in (("W_E", eye[:1]), ("position", eye[-n:]), ("W_Q", 0.0), ("b_Q", 1.0), ("b_V", 0.0)):
        _equal(t[name], value, name)
    for name in ("b_E", "b_K", "b_O"):
        _equal(t[name], 0.0, name)
    _equal(t["W_K"][0], beta, "the sharpness")
    _equal(t["W_K"][1:-n], 0.0, "W_K")
    _equal(keys, np.where(inside, 0.0, -mask), "the masks")
    _equal(t["W_V"], np.repeat(eye[:, :1], len(keys), axis=1), "W_V")
    _require(beta > 0, "a sharpness that is not positive")
    return inside, beta, mask


def _gates(t: dict[str, Array], n: int, low: float, high: float, error: arb, execution: Execution) -> arb:
    """Unit k is s_k - base at position k and shut elsewhere, for statistics within ``error`` of [low, high]."""
    width = 2 + 2 * n
    out = 1 + n
    gate = float(t["W_1"][-n, 0])
    bias = float(t["b_1"][0])
    base = float(t["b_R"][0])
    first = np.zeros((width, n))
    first[1 : 1 + n] = np.eye(n)
    first[-n:] = gate * np.eye(n)
    _equal(t["W_1"], first, "W_1")
    _equal(t["b_1"], bias, "b_1")
    _equal(t["W_2"], np.repeat(np.eye(width)[out : out + 1], n, axis=0), "W_2")
    _equal(t["b_2"], 0.0, "b_2")
    _equal(t["W_R"], np.eye(width)[:, out : out + 1], "the read-out")
    statistic = abs(arb(low)) + abs(arb(high)) + error
    added = 2 * abs(arb(gate)) + abs(arb(bias)) + abs(arb(base))
    rounding = execution.gamma(8) * (statistic + added)
    open_ = arb(low) - error - rounding + gate + bias
    shut = arb(high) + error + rounding + bias
    _require(bool(open_ > 0) and bool(shut < 0), "gates that do not fit the domain")
    return abs(arb(gate) + bias + base) + 4 * rounding


def _gap(m: int) -> arb:
    """A number c with c e^c >= (m - 1)/e: Lambert's W, rounded up."""
    if m == 1:
        return arb(0)
    c = (arb(m - 1) / arb.const_e()).lambertw().upper() * (1 + arb(2) ** -40)
    _require(bool(c * c.exp() >= arb(m - 1) / arb.const_e()), "Lambert's function")
    return c


def _inclusion_exclusion(inside: Mask, weights: Sequence[float] | None) -> Array:
    """What each head's maximum adds to the outputs; a subset that has no head must add nothing."""
    n = inside.shape[1]
    sizes = inside.sum(1).tolist()
    rows: dict[int, list[float]] = {}
    for m in range(1, n + 1):
        row = _of_size(m, n, weights)
        if sizes.count(m):
            _require(all(Fraction(float(c)) == c for c in row), "coefficients that are no floats")
            rows[m] = [float(c) for c in row]
        _require(not any(row) or sizes.count(m) == math.comb(n, m), "not one head per subset")
    return np.array([rows[m] for m in sizes])


def _of_size(m: int, n: int, weights: Sequence[float] | None) -> list[Fraction]:
    """Coefficients of the maximum over m of n numbers in every order statistic, or in their weighted sum."""
    row = [Fraction((-1) ** abs(m - k) * math.comb(m - 1, k - 1)) for k in range(1, n + 1)]
    if weights is None:
        return row
    return [sum((Fraction(a) * c for a, c in zip(weights, row, strict=True)), Fraction(0))]


def _equal(found: Array, wanted: Array | float, name: str) -> None:
    """All entries equal one number, or an array of the same shape."""
    same = np.array_equal(found, wanted) if isinstance(wanted, np.ndarray) else bool((found == wanted).all())
    _require(same, f"{name} differs")


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise OnelayerError(f"the layer does not have the form of its lemma: {complaint}")
