"""The checker's proof that a layer recalls the rows of its table, written from docs/constructions/memorize.md."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from flint import arb

from onelayer.checker.formats import BY_TAG
from onelayer.checker.reader import TABLE, SavedProof, read_table
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import Array, Stored
from onelayer.errors import OnelayerError
from onelayer.lemmas.argument import Recall

BLOCK = 2**22  # logits at a time


def read_rows(proof: SavedProof, argument: Recall, stored: Stored) -> tuple[Array, Array]:
    """Inputs (N, D) and outputs (N, K) of the table, checked against the layer and the domain."""
    _require(TABLE in proof.attachments, f"{TABLE} is missing")
    x, y = read_table(proof.attachments[TABLE])
    _require(len(x) == argument.rows, "the table has other rows")
    config = stored.config
    _require(list(x.shape[1:]) == config["input_shape"] and list(y.shape[1:]) == config["output_shape"], "other shapes")
    x = x.reshape(len(x), -1)
    y = y.reshape(len(y), -1)
    low, high = (np.array(side) for side in proof.record.domain)
    _require(bool(((x >= low) & (x <= high)).all()), "a row lies outside the domain")
    return x, y


def recall_bound(stored: Stored, argument: Recall, x: Array, y: Array, execution: Execution) -> arb:
    """An upper bound of |T - y| over all rows, for T as executed."""
    config = stored.config
    plain = config["norm"] == "none" and config["attention"] == "softmax"
    _require(plain and config["layout"] == "packed" and config["positions"] == "none", "not a plain packed layer")
    _require(len(config["heads"]) == 1 and config["heads"][0]["memory"] == "plain", "not one head with plain memory")
    row = BY_TAG[stored.dtype]
    _require(np.array_equal(x, x.astype(row.kind)), f"rows that are no {row.kind} numbers")
    return (_softmax if argument.recipe == "softmax" else _relu)(stored, x, y, execution)


def _softmax(stored: Stored, x: Array, y: Array, execution: Execution) -> arb:
    """If a row's own executed logit exceeds the others by G, T is within 24 u |y| + 8 (N-1) e^-G max|y| of y."""
    t = stored.tensors
    config = stored.config
    keys = t["memory.0.keys"]
    values = t["memory.0.values"]
    count = len(x)
    d_model = config["d_model"]
    eye = np.eye(d_model)
    _require(config["hidden"] == 0 and not config["residual"] and len(keys) == count, "other widths")
    _require(np.array_equal(values, y), "the values are not the outputs of the table")
    z, drift = _query(stored, x, execution)
    width = z.shape[1]
    root = float(t["b_Q"][-1])
    query = np.zeros((d_model, width + 1))
    query[:width, :width] = root * np.eye(width)
    _equal(t["W_Q"], query, "W_Q")
    _equal(t["b_Q"], root * (np.arange(width + 1) == width), "b_Q")
    _equal(t["W_O"], eye[: y.shape[1]], "W_O")
    _equal(t["W_R"], eye[:, : y.shape[1]], "W_R")
    for name in ("b_O", "b_R"):
        _equal(t[name], 0.0, name)
    restored = abs(arb(root) * arb(1 / math.sqrt(width + 1)) - 1) + execution.gamma(4)
    gap = _smallest_gap(z, keys, restored + execution.gamma(width + 4), drift)
    _require(bool(gap > 1), "a row whose own token does not stand out")
    unit = execution.unit
    largest = arb(float(np.abs(y).max()))
    if largest.is_zero():  # an average of zeros is exact
        return largest
    others = (count - 1) * (-gap).exp() * (1 + 2 * unit * gap) * 2
    flushed = 16 * execution.tiny * count * (1 + largest)
    bound: arb = (24 * unit + 8 * others) * largest + flushed
    return bound


def _query(stored: Stored, x: Array, execution: Execution) -> tuple[Array, arb]:
    """The embedded rows (N, width), and a bound of how far executed ones stray from them.

    Linear: z = scale x + shift with scales that are powers of two, one rounding, which is repeated here. Piecewise, one
    column: ramps that rise from 0 to 1 between neighbouring rows, whose sum is the rank of the row.
    """
    t = stored.tensors
    width = x.shape[1]
    if stored.config["embedding"] == "linear":
        scale = np.diag(t["W_E"][:, :width])
        _equal(t["W_E"], scale[:, None] * np.eye(width, stored.config["d_model"]), "W_E")
        _equal(t["b_E"][width:], 0.0, "b_E")
        _require(bool((np.frexp(scale)[0] == 0.5).all()), "scales that are no powers of two")
        kind = BY_TAG[stored.dtype].kind
        z = x.astype(kind) * scale.astype(kind) + t["b_E"][:width].astype(kind)
        return z.astype(np.float64), 2 * execution.tiny
    count = len(x)
    order = np.argsort(x[:, 0])
    _require(width == 1 and count > 1 and stored.config["ramps"] == count - 1, "other ramps than one per gap")
    ordered = x[order, 0]
    _equal(t["ramp_start"][0], ordered[:-1], "the starts of the ramps")
    _equal(t["W_E"], np.eye(1, stored.config["d_model"]).repeat(count - 1, 0), "W_E")
    _equal(t["b_E"], t["b_E"][0] * np.eye(1, stored.config["d_model"])[0], "b_E")
    short = arb(0)
    for slope, (low, high) in zip(t["ramp_slope"][0].tolist(), pairwise(ordered.tolist()), strict=True):
        short = short.max(1 - arb(slope) * (arb(high) - arb(low)))  # what a ramp lacks of 1 at the next row
    z = np.empty((count, 1))
    z[order, 0] = np.arange(count) + float(t["b_E"][0])
    _require(bool((4 * z == np.rint(4 * z)).all()), "ranks that are not exact")
    flushed = execution.tiny * (2 + arb(float(np.abs(t["ramp_slope"]).max())))
    each = short + flushed + execution.gamma(3) + execution.gamma(count + 1) * 2
    return z, count * each


def _smallest_gap(z: Array, keys: Array, relative: arb, drift: arb) -> arb:
    """Lower bound over rows of own logit less the largest other one.

    Each logit errs by ``relative`` times its size and by ``drift`` in each coordinate of z.
    """
    count, width = z.shape
    slopes = keys[:, :-1]
    size = _longest(z) * _longest(slopes) + arb(float(np.abs(keys[:, -1]).max()))
    steepest = sum(map(arb, np.abs(slopes).max(0).tolist()), arb(0))
    here = arb(width + 8) * arb(2) ** -52  # of the logits below, which are formed in float64
    error = size * (relative + here) + steepest * (1 + 2 * relative) * drift
    least = math.inf
    step = max(1, BLOCK // count)
    for start in range(0, count, step):
        rows = np.arange(start, min(start + step, count))
        logits = z[rows] @ keys[:, :-1].T + keys[:, -1]
        own = logits[np.arange(len(rows)), rows]
        logits[np.arange(len(rows)), rows] = -np.inf
        gaps = own - logits.max(1)
        least = float(np.minimum(least, gaps.min())) if count > 1 else 1000.0  # nan stays
    return arb(least) * (1 - arb(2) ** -50) - 2 * error


def _longest(rows: Array) -> arb:
    """A bound of the length of every row; a common factor is taken out, so that no square underflows or overflows."""
    most = float(np.abs(rows).max())
    if not most:
        return arb(0)
    exponent = math.frexp(most)[1]
    part = np.ldexp(rows, -exponent)
    length = float(np.sqrt((part * part).sum(1)).max())
    return arb(length * 1.001) * arb(2) ** exponent


def _relu(stored: Stored, x: Array, y: Array, execution: Execution) -> arb:
    """F(s) = b + sum_u c_u relu(s - t_u) at s_r = p . x_r, summed from the left over sorted rows in ball arithmetic."""
    t = stored.tensors
    config = stored.config
    outputs = y.shape[1]
    units = int(config["hidden"])
    _require(config["embedding"] == "linear", "another embedding")
    eye = np.eye(1 + outputs)
    _require(config["d_model"] == 1 + outputs and config["residual"] and units >= 1, "other widths")
    _equal(t["W_E"][:, 1:], 0.0, "W_E")
    _equal(t["b_E"][1:], 0.0, "b_E")
    for name in ("W_Q", "b_Q", "W_O", "b_O"):  # a head with logits 0, whatever its keys, that is not listened to
        _equal(t[name], 0.0, name)
    _equal(t["W_1"][1:], 0.0, "W_1")
    _require(bool(np.isin(t["W_1"][0], (0.0, 1.0)).all()), "a unit that scales the projection")
    _equal(t["W_2"][:, 0], 0.0, "W_2")
    _equal(t["b_2"], 0.0, "b_2")
    _equal(t["W_R"], eye[:, 1:], "W_R")
    live = np.flatnonzero(t["W_1"][0])
    _equal(t["b_1"][t["W_1"][0] == 0], 0.0, "b_1 of an unused unit")
    knots = sorted((-float(t["b_1"][u]), int(u)) for u in live)
    p = [arb(v) for v in t["W_E"][:, 0].tolist()]
    shift = arb(float(t["b_E"][0]))
    s = [sum((a * b for a, b in zip(p, row, strict=True)), shift) for row in x.tolist()]
    summed = float((np.abs(x) @ np.abs(t["W_E"][:, 0])).max()) * (1 + 1e-9)
    size = summed + abs(float(t["b_E"][0]))
    width = x.shape[1]
    drift = execution.gamma(width + 3) * arb(size) + (2 * width + 2) * execution.tiny
    order = sorted(range(len(s)), key=lambda r: float(s[r].mid()))
    worst = arb(0)
    for k in range(outputs):
        coefficients = t["W_2"][:, 1 + k]
        offset = arb(float(t["b_R"][k]))
        worst = worst.max(_path(s, order, knots, coefficients, offset, y[:, k], drift, execution))
    return worst


def _path(
    s: list[arb],
    order: list[int],
    knots: list[tuple[float, int]],
    coefficients: Array,
    offset: arb,
    y: Array,
    drift: arb,
    execution: Execution,
) -> arb:
    """Largest |T - y_r|: F at s_r, its slope within the drift of the projection, and gamma_N times the sum of sizes.

    Units with t_u <= s_r - drift are certainly on and those with t_u >= s_r + drift off; one between adds c_u times
    something in [0, 2 drift].
    """
    slope = constant = mass = moment = arb(0)
    worst = arb(0)
    at = 0
    units = len(coefficients)
    for r in order:
        while at < len(knots) and arb(knots[at][0]) <= s[r] - drift:
            t = arb(knots[at][0])
            c = arb(float(coefficients[knots[at][1]]))
            slope = slope + c
            constant = constant + c * t
            mass = mass + abs(c)
            moment = moment + abs(c) * t
            at += 1
        near = arb(0)
        ahead = at
        while ahead < len(knots) and not arb(knots[ahead][0]) >= s[r] + drift:
            near = near + abs(arb(float(coefficients[knots[ahead][1]])))
            ahead += 1
        reach = mass * (s[r] + drift) - moment + 2 * near * drift
        wanted = float(y[r])
        missed = abs(offset + slope * s[r] - constant - wanted)
        error = missed + abs(slope) * drift + 2 * near * drift
        rounding = execution.gamma(units + 6) * (reach + abs(offset) + abs(arb(wanted)))
        worst = worst.max(error + rounding)
    steepest = arb(float(np.abs(coefficients).max()))
    if steepest.is_zero():
        return worst
    return worst + units * execution.tiny * (1 + steepest)


def _equal(found: Array, wanted: Array | float, name: str) -> None:
    """All entries equal one number, or an array of the same shape."""
    same = np.array_equal(found, wanted) if isinstance(wanted, np.ndarray) else bool((found == wanted).all())
    _require(same, f"{name} differs")


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise OnelayerError(f"the layer does not have the form of its construction: {complaint}")
