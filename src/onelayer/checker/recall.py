"""The checker's proof that a layer recalls the rows of its table, written from docs/constructions/memorize.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from flint import arb

from onelayer.checker.form import LayerForm
from onelayer.checker.formats import BY_TAG
from onelayer.checker.reader import TABLE, SavedProof, read_table
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import Array, Stored
from onelayer.lemmas.argument import Recall

BLOCK = 2**22  # logits at a time
FORM = LayerForm("its construction")


def read_rows(proof: SavedProof, argument: Recall, stored: Stored) -> tuple[Array, Array]:
    """Inputs (N, D) and outputs (N, K) of the table, checked against the layer and the domain."""
    FORM.require(TABLE in proof.attachments, f"{TABLE} is missing")
    x, y = read_table(proof.attachments[TABLE])
    FORM.require(len(x) == argument.rows, "the table has other rows")
    config = stored.config
    FORM.require(list(x.shape[1:]) == config["input_shape"], "other shapes")
    FORM.require(list(y.shape[1:]) == config["output_shape"], "other shapes")
    x = x.reshape(len(x), -1)
    y = y.reshape(len(y), -1)
    low, high = (np.array(side) for side in proof.record.domain)
    FORM.require(bool(((x >= low) & (x <= high)).all()), "a row lies outside the domain")
    return x, y


def recall_bound(stored: Stored, argument: Recall, x: Array, y: Array, execution: Execution) -> arb:
    """An upper bound of |T - y| over all rows, for T as executed."""
    config = stored.config
    plain = config["norm"] == "none" and config["attention"] == "softmax"
    FORM.require(plain and config["layout"] == "packed" and config["positions"] == "none", "not a plain packed layer")
    FORM.require(
        len(config["heads"]) == 1 and config["heads"][0]["memory"] == "plain", "not one head with plain memory"
    )
    row = BY_TAG[stored.dtype]
    FORM.require(np.array_equal(x, x.astype(row.kind)), f"rows that are no {row.kind} numbers")
    bound = _softmax if argument.recipe == "softmax" else _relu
    return bound(stored, x, y, execution)


def _softmax(stored: Stored, x: Array, y: Array, execution: Execution) -> arb:
    """If a row's own executed logit exceeds the others by G, T is within 24 u |y| + 8 (N-1) e^-G max|y| of y."""
    t = stored.tensors
    config = stored.config
    keys = t["memory.0.keys"]
    count = len(x)
    FORM.require(config["hidden"] == 0 and not config["residual"] and len(keys) == count, "other widths")
    FORM.require(np.array_equal(t["memory.0.values"], y), "the values are not the outputs of the table")
    z, drift = _query(stored, x, execution)
    width = z.shape[1]
    root = float(t["b_Q"][-1])
    _softmax_form(stored, root, width, y.shape[1])
    # The layer divides by the root of the key width, which the query has been multiplied by before: almost exactly.
    restored = abs(arb(root) * arb(1 / math.sqrt(width + 1)) - 1) + execution.gamma(4)
    gap = _smallest_gap(z, keys, restored + execution.gamma(width + 4), drift)
    FORM.require(bool(gap > 1), "a row whose own token does not stand out")
    unit = execution.unit
    largest = arb(float(np.abs(y).max()))
    if largest.is_zero():  # an average of zeros is exact
        return largest
    others = (count - 1) * (-gap).exp() * (1 + 2 * unit * gap) * 2
    flushed = 16 * execution.tiny * count * (1 + largest)
    # A sum of one large term and many small ones is rounded by no more than the small ones are: adding one to a float
    # errs by at most that one, as the float itself is a candidate. So no count of rows stands beside the 24 units.
    bound: arb = (24 * unit + 8 * others) * largest + flushed
    return bound


def _softmax_form(stored: Stored, root: float, width: int, outputs: int) -> None:
    """The query is the embedded row times ``root`` and a constant, and what the head returns is read unchanged."""
    t = stored.tensors
    d_model = stored.config["d_model"]
    eye = np.eye(d_model)
    query = np.zeros((d_model, width + 1))
    query[:width, :width] = root * np.eye(width)
    constant = root * (np.arange(width + 1) == width)
    FORM.equal(t["W_Q"], query, "W_Q")
    FORM.equal(t["b_Q"], constant, "b_Q")
    FORM.equal(t["W_O"], eye[:outputs], "W_O")
    FORM.equal(t["W_R"], eye[:, :outputs], "W_R")
    for name in ("b_O", "b_R"):
        FORM.equal(t[name], 0.0, name)


def _query(stored: Stored, x: Array, execution: Execution) -> tuple[Array, arb]:
    """The embedded rows (N, width), and a bound of how far executed ones stray from them.

    Linear: z = scale x + shift with scales that are powers of two, one rounding, which is repeated here. Piecewise, one
    column: ramps that rise from 0 to 1 between neighbouring rows, whose sum is the rank of the row.
    """
    if stored.config["embedding"] == "linear":
        return _scaled_rows(stored, x, execution)
    return _ranks(stored, x, execution)


def _scaled_rows(stored: Stored, x: Array, execution: Execution) -> tuple[Array, arb]:
    """z = scale x + shift: the product is exact, so the sum alone rounds, in one way whatever the order."""
    t = stored.tensors
    width = x.shape[1]
    scale = np.diag(t["W_E"][:, :width])
    FORM.equal(t["W_E"], scale[:, None] * np.eye(width, stored.config["d_model"]), "W_E")
    FORM.equal(t["b_E"][width:], 0.0, "b_E")
    FORM.require(bool((np.frexp(scale)[0] == 0.5).all()), "scales that are no powers of two")
    kind = BY_TAG[stored.dtype].kind
    shift = t["b_E"][:width].astype(kind)
    z = x.astype(kind) * scale.astype(kind) + shift
    return z.astype(np.float64), 2 * execution.tiny


def _ranks(stored: Stored, x: Array, execution: Execution) -> tuple[Array, arb]:
    """z is the rank of the row plus a constant: a sum of ramps that are 1 up to the row and 0 from it on."""
    t = stored.tensors
    count, width = x.shape
    FORM.require(width == 1 and count > 1 and stored.config["ramps"] == count - 1, "other ramps than one per gap")
    order = np.argsort(x[:, 0])
    ordered = x[order, 0]
    feature = np.eye(1, stored.config["d_model"])
    FORM.equal(t["ramp_start"][0], ordered[:-1], "the starts of the ramps")
    FORM.equal(t["W_E"], feature.repeat(count - 1, 0), "W_E")
    FORM.equal(t["b_E"], t["b_E"][0] * feature[0], "b_E")
    short = arb(0)
    for slope, (low, high) in zip(t["ramp_slope"][0].tolist(), pairwise(ordered.tolist()), strict=True):
        # What a ramp lacks of 1 at the next row. One that falls lacks more than 1, which covers every value it has.
        short = short.max(1 - arb(slope) * (arb(high) - arb(low)))
    z = np.empty((count, 1))
    z[order, 0] = np.arange(count) + float(t["b_E"][0])
    FORM.require(bool((4 * z == np.rint(4 * z)).all()), "ranks that are not exact")
    # A difference x - start that is flushed to zero is lost times the slope.
    flushed = execution.tiny * (2 + arb(float(np.abs(t["ramp_slope"]).max())))
    each = short + flushed + execution.gamma(3) + execution.gamma(count + 1) * 2
    # The constant is a term of the same sum: what is added to it may be rounded as it is.
    return z, count * each + execution.gamma(count + 1) * abs(arb(float(t["b_E"][0])))


def _smallest_gap(z: Array, keys: Array, relative: arb, drift: arb) -> arb:
    """Lower bound over rows of own logit less the largest other one.

    Each logit errs by ``relative`` times its size and by ``drift`` in each coordinate of z.
    """
    count, width = z.shape
    slopes = keys[:, :-1]
    # Cauchy and Schwarz: sum |z_i| |k_i| is at most the product of the lengths.
    size = _longest(z) * _longest(slopes) + arb(float(np.abs(keys[:, -1]).max()))
    steepest = sum(map(arb, np.abs(slopes).max(0).tolist()), arb(0))
    # Of the logits below, which are formed in float64.
    here = arb(width + 8) * arb(2) ** -52
    error = size * (relative + here) + steepest * (1 + 2 * relative) * drift
    least = math.inf
    step = max(1, BLOCK // count)
    for start in range(0, count, step):
        rows = np.arange(start, min(start + step, count))
        logits = z[rows] @ keys[:, :-1].T + keys[:, -1]
        own = logits[np.arange(len(rows)), rows]
        logits[np.arange(len(rows)), rows] = -np.inf
        gaps = own - logits.max(1)
        # np.minimum and not min: a nan must stay.
        least = float(np.minimum(least, gaps.min())) if count > 1 else 1000.0
    # The subtraction above rounds once more.
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
    FORM.require(config["embedding"] == "linear", "another embedding")
    FORM.require(config["d_model"] == 1 + outputs and config["residual"] and config["hidden"] >= 1, "other widths")
    _relu_form(t, outputs)
    live = np.flatnonzero(t["W_1"][0])
    FORM.equal(t["b_1"][t["W_1"][0] == 0], 0.0, "b_1 of an unused unit")
    knots = sorted((-float(t["b_1"][u]), int(u)) for u in live)
    projected, drift = _projected(stored, x, execution)
    rows = _Rows(projected, drift, sorted(range(len(x)), key=lambda r: float(projected[r].mid())))
    worst = arb(0)
    for k in range(outputs):
        coefficients = t["W_2"][:, 1 + k]
        offset = arb(float(t["b_R"][k]))
        worst = worst.max(_path(rows, knots, coefficients, offset, y[:, k], execution))
    return worst


def _projected(stored: Stored, x: Array, execution: Execution) -> tuple[list[arb], arb]:
    """s_r = p . x_r + shift of every row, and how far an executed one may be from it."""
    column = stored.tensors["W_E"][:, 0]
    shift = float(stored.tensors["b_E"][0])
    width = x.shape[1]
    p = [arb(v) for v in column.tolist()]
    s = [sum((a * b for a, b in zip(p, row, strict=True)), arb(shift)) for row in x.tolist()]
    # A sum in float64, and 1e-9 of it for its rounding: more than that of a million terms.
    summed = float((np.abs(x) @ np.abs(column)).max()) * (1 + 1e-9)
    size = arb(summed) + abs(arb(shift))
    return s, execution.gamma(width + 3) * size + (2 * width + 2) * execution.tiny


def _relu_form(t: dict[str, Array], outputs: int) -> None:
    """Units see one projection of the row and write the outputs; the head is not listened to."""
    FORM.equal(t["W_E"][:, 1:], 0.0, "W_E")
    FORM.equal(t["b_E"][1:], 0.0, "b_E")
    # A head with logits 0, whatever its keys, that writes nothing.
    for name in ("W_Q", "b_Q", "W_O", "b_O"):
        FORM.equal(t[name], 0.0, name)
    FORM.equal(t["W_1"][1:], 0.0, "W_1")
    FORM.require(bool(np.isin(t["W_1"][0], (0.0, 1.0)).all()), "a unit that scales the projection")
    FORM.equal(t["W_2"][:, 0], 0.0, "W_2")
    FORM.equal(t["b_2"], 0.0, "b_2")
    FORM.equal(t["W_R"], np.eye(1 + outputs)[:, 1:], "W_R")


@dataclass(frozen=True)
class _Rows:
    """Projections of the rows, a bound of their executed error, and the rows from left to right, about."""

    s: list[arb]
    drift: arb
    order: list[int]


class _Open:
    """The units that are surely on, from the left: sums of c, c t, |c| and |c| t over them."""

    def __init__(self, knots: list[tuple[float, int]], coefficients: Array) -> None:
        self.knots = [(arb(t), arb(float(coefficients[u]))) for t, u in knots]
        self.count = 0
        self.slope = self.constant = self.mass = self.moment = arb(0)

    def reach(self, place: arb) -> None:
        """Take units up to a place; rows are ordered by floats, so the last ones may have to be given back."""
        while self.count < len(self.knots) and self.knots[self.count][0] <= place:
            self._take(*self.knots[self.count])
            self.count += 1
        while self.count and not self.knots[self.count - 1][0] <= place:
            self.count -= 1
            t, c = self.knots[self.count]
            self._take(t, -c, sign=-1)

    def _take(self, t: arb, c: arb, sign: int = 1) -> None:
        self.slope = self.slope + c
        self.constant = self.constant + c * t
        self.mass = self.mass + sign * abs(c)
        self.moment = self.moment + sign * abs(c) * t

    def near(self, place: arb) -> arb:
        """The sum of |c| over the units that may be on below a place, beyond those taken."""
        total = arb(0)
        for t, c in self.knots[self.count :]:
            if t >= place:
                break
            total = total + abs(c)
        return total


def _path(
    rows: _Rows,
    knots: list[tuple[float, int]],
    coefficients: Array,
    offset: arb,
    y: Array,
    execution: Execution,
) -> arb:
    """Largest |T - y_r|: F at s_r, its slope within the drift of the projection, and gamma_N times the sum of sizes.

    Units with t_u <= s_r - drift are certainly on and those with t_u >= s_r + drift off; one between adds c_u times
    something in [0, 2 drift].
    """
    drift = rows.drift
    units = len(coefficients)
    on = _Open(knots, coefficients)
    worst = arb(0)
    for r in rows.order:
        s = rows.s[r]
        on.reach(s - drift)
        near = on.near(s + drift)
        wanted = arb(float(y[r]))
        missed = abs(offset + on.slope * s - on.constant - wanted)
        error = missed + abs(on.slope) * drift + 2 * near * drift
        size = on.mass * (s + drift) - on.moment + 2 * near * drift
        rounding = execution.gamma(units + 6) * (size + abs(offset) + abs(wanted))
        worst = worst.max(error + rounding)
    steepest = arb(float(np.abs(coefficients).max()))
    if steepest.is_zero():
        return worst
    return worst + units * execution.tiny * (1 + steepest)
