"""The checker's proof for order statistics by maxima of subsets, one sharp head each; docs/constructions/sort.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import NDArray

from onelayer.checker.form import LayerForm
from onelayer.checker.rounding import Execution
from onelayer.checker.sharpness import below_maximum
from onelayer.checker.weights import Array, Stored

Mask = NDArray[np.bool_]
LONGEST = 64  # positions of a layer of subsets; binomials beyond it are no floats
FORM = LayerForm("its lemma")


def subsets_bound(
    stored: Stored, weights: Sequence[float] | None, low: float, high: float, execution: Execution
) -> tuple[arb, arb]:
    """x_(k) = sum over |S| >= k of (-1)^(|S|-k) C(|S|-1, k-1) max_S; bounds of the lemma and of the rounding.

    A softmax average of m numbers at sharpness beta is below their maximum by at most c / beta if c e^c >= (m-1)/e.
    """
    t = stored.tensors
    n = stored.length
    sorts = weights is None
    heads = len(stored.config["heads"])
    _widths(stored, sorts)
    inside, beta, mask = _queries(t, n)
    table = _inclusion_exclusion(inside, weights)
    eye = np.eye(len(t["W_O"].T))
    written = np.zeros((heads, len(eye)))
    written[:, 1 : 1 + table.shape[1]] = table
    FORM.equal(t["W_O"], written, "W_O")
    lemma, amount = _gaps(np.abs(table), inside.sum(1), beta)
    reach = arb(max(abs(low), abs(high)))
    average = _average_error(inside, (low, high), beta, mask, execution)
    flushed = 16 * n * execution.tiny * (1 + reach)
    # A product with a weight of W_O is lost whatever that weight is, and so is a sum with a gate.
    lost = 2 * (heads + 4) * execution.tiny
    rest = amount * (average + 2 * execution.gamma(heads + 4) * reach + flushed) + lost
    if not sorts:
        FORM.equal(t["b_R"], 0.0, "b_R")
        FORM.equal(t["W_R"], eye[:, 1:2], "the read-out")
        return lemma, rest
    return lemma, rest + _gates(t, n, low, high, lemma + rest, execution)


def _average_error(inside: Mask, ends: tuple[float, float], beta: float, mask: float, execution: Execution) -> arb:
    """How far an executed head is from a softmax average over its subset alone, whatever the numbers are."""
    low, high = ends
    n = inside.shape[1]
    gamma = execution.gamma
    reach = arb(max(abs(low), abs(high)))
    logit = 2 * gamma(6) * (beta * reach + mask)
    # The most by which a masked logit may lie over one that is not.
    above = beta * (arb(high) - low) - mask + 2 * logit
    # At most n - 1 numbers are masked in one head; one that looks at all of them leaks nothing, however sharp it is.
    leak = arb(0) if inside.all() else (n - 1) * above.exp() * 2
    weights = leak + gamma(n + 26) + n * gamma(4) + gamma(n + 4)
    # Logits that err by d are exact ones of numbers that err by d / beta: so do their maximum and their average.
    error: arb = weights * 2 * reach + 2 * logit / beta
    return error


def _gaps(table: Array, sizes: Array, beta: float) -> tuple[arb, arb]:
    """The lemma's bound for the worst output, and the largest sum of weights of one."""
    gap = {int(m): below_maximum(int(m)) for m in set(sizes.tolist())}
    below = [gap[int(m)] for m in sizes]  # of each head, times beta
    lemma = arb(0)
    amount = arb(0)
    for column in table.T.tolist():
        together = sum((arb(c) * one for c, one in zip(column, below, strict=True)), arb(0))
        lemma = lemma.max(together / beta)
        amount = amount.max(sum(map(arb, column), arb(0)))
    return lemma, amount


def _widths(stored: Stored, sorts: bool) -> None:
    """The shape of the layer is that of the lemma."""
    config = stored.config
    n = stored.length
    outputs = n if sorts else 1
    # The number itself, its statistics, the output when sorting, and one feature for each position.
    width = 1 + outputs + (1 if sorts else 0) + n
    FORM.require(n <= LONGEST, f"more than {LONGEST} numbers")
    FORM.require(config["d_model"] == width and config["residual"] == sorts, "other widths")
    FORM.require(config["embedding"] == "linear", "another embedding")
    shapes = {(head["d_k"], head["d_v"], head["memory"]) for head in config["heads"]}
    FORM.require(shapes == {(1, 1, "none")}, "other heads")
    FORM.require(config["positions"] != "none" and config["hidden"] == (n if sorts else 0), "other positions or units")


def _queries(t: dict[str, Array], n: int) -> tuple[Mask, float, float]:
    """Which numbers each head looks at, (heads, n), at which sharpness, and how far the others are masked."""
    eye = np.eye(len(t["W_K"]))
    keys = t["W_K"][-n:].T
    beta = float(t["W_K"][0, 0])
    mask = float(np.abs(keys).max())
    inside = keys == 0
    distinct = {tuple(row) for row in inside.tolist()}
    FORM.require(len(distinct) == len(keys) and bool(inside.any(1).all()), "a subset twice or empty")
    for name, value in (("W_E", eye[:1]), ("position", eye[-n:]), ("W_Q", 0.0), ("b_Q", 1.0), ("b_V", 0.0)):
        FORM.equal(t[name], value, name)
    for name in ("b_E", "b_K", "b_O"):
        FORM.equal(t[name], 0.0, name)
    FORM.equal(t["W_K"][0], beta, "the sharpness")
    FORM.equal(t["W_K"][1:-n], 0.0, "W_K")
    FORM.equal(keys, np.where(inside, 0.0, -mask), "the masks")
    FORM.equal(t["W_V"], np.repeat(eye[:, :1], len(keys), axis=1), "W_V")
    FORM.require(beta > 0, "a sharpness that is not positive")
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
    FORM.equal(t["W_1"], first, "W_1")
    FORM.equal(t["b_1"], bias, "b_1")
    FORM.equal(t["W_2"], np.repeat(np.eye(width)[out : out + 1], n, axis=0), "W_2")
    FORM.equal(t["b_2"], 0.0, "b_2")
    FORM.equal(t["W_R"], np.eye(width)[:, out : out + 1], "the read-out")
    statistic = abs(arb(low)) + abs(arb(high)) + error
    added = 2 * abs(arb(gate)) + abs(arb(bias)) + abs(arb(base))
    rounding = execution.gamma(8) * (statistic + added)
    # What unit k sees at least at its own position, and at most at another.
    open_ = arb(low) - error - rounding + gate + bias
    shut = arb(high) + error + rounding + bias
    FORM.require(bool(open_ > 0) and bool(shut < 0), "gates that do not fit the domain")
    return abs(arb(gate) + bias + base) + 4 * rounding


def _inclusion_exclusion(inside: Mask, weights: Sequence[float] | None) -> Array:
    """What each head's maximum adds to the outputs; a subset that has no head must add nothing."""
    n = inside.shape[1]
    sizes = inside.sum(1).tolist()
    rows: dict[int, list[float]] = {}
    for m in range(1, n + 1):
        row = _of_size(m, n, weights)
        if sizes.count(m):
            FORM.require(all(Fraction(float(c)) == c for c in row), "coefficients that are no floats")
            rows[m] = [float(c) for c in row]
        # Heads are distinct, so as many as there are subsets of a size are all of them.
        FORM.require(not any(row) or sizes.count(m) == math.comb(n, m), "not one head per subset")
    return np.array([rows[m] for m in sizes])


def _of_size(m: int, n: int, weights: Sequence[float] | None) -> list[Fraction]:
    """Coefficients of the maximum over m of n numbers in every order statistic, or in their weighted sum."""
    row = [Fraction((-1) ** abs(m - k) * math.comb(m - 1, k - 1)) for k in range(1, n + 1)]
    if weights is None:
        return row
    return [sum((Fraction(a) * c for a, c in zip(weights, row, strict=True)), Fraction(0))]
