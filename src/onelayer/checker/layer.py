"""The layer in the checker's arithmetic, from the stored tensors and docs/file-format.md alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import HALF_BALL, UNIT_BALL, ZERO, Taylor, combination, constant, count
from onelayer.checker.attention import Matrix, SoftmaxQuotient, Vector, attend, attend_grid, dot, sum_of
from onelayer.checker.functions import Kinks, apply
from onelayer.checker.heads import Head, stored_head
from onelayer.checker.linear import LinearHead
from onelayer.checker.magnitudes import NORM_EPS, need_known
from onelayer.checker.rounding import INFINITE, Execution, size
from onelayer.checker.weights import Array, Stored

Entry = tuple[Taylor, arb]  # an enclosure, and how far an executed number may be from it
MOST_COEFFICIENTS = 256  # of an element with variables for the errors of a query: more take longer than they tell


class Layer:
    """A stored model made ready for evaluation; refuses what cannot be re-proved. ``execution`` None means real."""

    def __init__(self, stored: Stored, execution: Execution | None) -> None:
        config = stored.config
        t = stored.tensors
        need_known(config)
        self.stored = stored
        self.config = config
        self.execution = execution
        self.absorbing = False  # whether errors of what is held go on as parts of the numbers
        self.real = False  # whether errors have to be those of the real numbers, of which others may be enclosed better
        self.fits = True  # whether every number that was held since a pass began is one
        self.maps = {name[2:]: Matrix(t[name], t[f"b_{name[2:]}"]) for name in t if name.startswith("W_")}
        self.heads = [stored_head(stored, h) for h in range(len(config["heads"]))]

    def __call__(self, x: Sequence[Taylor], kinks: Kinks) -> Vector:
        """The outputs for D coordinates x (floating numbers, so without error), flattened in row-major order.

        In a narrow format errors are large: a second pass takes them into the numbers, so that functions pass them on
        as they pass numbers on. Of each output the better known one counts, or what the ranges of both have in common;
        its error is then one of the enclosed numbers alone, and :meth:`strayed` says how far they are from the real
        layer.
        """
        found = self._passed(x, kinks, absorbing=False)
        if self.execution is None or self.execution.held is None or type(x[0]) is not Taylor:
            return found
        again = self._passed(x, Kinks(kinks.cases), absorbing=True)
        pairs = [_best_known(*pair) for pair in zip(found.entries(), again.entries(), strict=True)]
        return Vector([item for item, _ in pairs], [error for _, error in pairs])

    def strayed(self, x: Sequence[Taylor]) -> list[arb]:
        """Bounds of |executed - real| for each output: of no other number than the real one, enclosed or not."""
        return self._passed(x, Kinks(), absorbing=False, real=True).errors

    def _passed(self, x: Sequence[Taylor], kinks: Kinks, *, absorbing: bool, real: bool = False) -> Vector:
        """One pass. Where it leaves open whether some number overflows, it bounds no error.

        Later steps could not tell: a weight of zero hides that number from them, and executed it makes no number.
        """
        self._begin(absorbing, real)
        config = self.config
        width = self.stored.token_width
        rows = [list(x[i * width : (i + 1) * width]) for i in range(self.stored.rows)]
        seen = [self._seen(Vector(row, [ZERO] * width), kinks) for row in rows]
        maps = [self.mapped("E", row) for row in seen]
        e = [self._placed(token, i) for i, token in enumerate(self._tokens(maps))]
        a = self._attend(self._normed(e, "pre"), kinks)
        r = a
        if config["residual"]:
            r = [self.added(s, t) for s, t in zip(self._asked(e), a, strict=True)]
        r = self._normed(r, "post")
        y = [self._feed_forward(row, kinks) for row in r] if config["hidden"] else r
        # What the layer returns keeps its last error beside it.
        self.absorbing = False
        found = self._read(y)
        return found if self._fits_all() else Vector(found.items, [INFINITE] * len(found))

    def _begin(self, absorbing: bool, real: bool) -> None:
        self.absorbing = absorbing
        self.real = real
        self.fits = True
        if self.execution is not None:
            self.execution.open = False

    def _fits_all(self) -> bool:
        """Whether no number of the pass overflows, neither what was held nor what was computed on the way."""
        return self.fits and (self.execution is None or not self.execution.open)

    def mapped(self, name: str, row: Vector) -> Vector:
        """x W + b of that name, as the layer holds it."""
        found = self.maps[name]
        return self.held(found(row, self.execution), found.selecting(row))

    def held(self, row: Vector, exact: list[bool] | None = None) -> Vector:
        """What an operation returns: rounded once more where a format is narrower than its arithmetic."""
        if self.execution is None or self.execution.held is None:
            return row
        sizes = row.sizes()
        self.fits = self.fits and self.execution.fits(sizes, row.errors)
        errors = self.execution.stored(sizes, row.errors, exact or [False] * len(row))
        if not self.absorbing:
            return Vector(row.items, errors)
        items = [item.within(math.prod(self.config["input_shape"])) for item in row.items]
        if not all(error.is_finite() for error in errors):
            return Vector(items, errors)
        return Vector([item.shifted(e * UNIT_BALL) for item, e in zip(items, errors, strict=True)], [ZERO] * len(row))

    def _normed(self, rows: list[Vector], where: str) -> list[Vector]:
        """The first norm of every row, if this layer has it there."""
        if self.config["norm"] == where:
            return [self.normalised(row, "1") for row in rows]
        return rows

    def _seen(self, row: Vector, kinks: Kinks) -> Vector:
        """What the embedding matrix multiplies."""
        if self.config["embedding"] == "piecewise":
            return self._ramps(row, kinks)
        return row

    def _tokens(self, maps: list[Vector]) -> list[Vector]:
        """One token per row; in the pieces layout all of them from the one row."""
        if self.config["layout"] != "pieces":
            return maps
        width = self.config["d_model"]
        return [maps[0][i * width : (i + 1) * width] for i in range(self.stored.length)]

    def _placed(self, e: Vector, position: int) -> Vector:
        if self.config["positions"] == "none":
            return e
        code = self.stored.tensors["position"][position].tolist()
        return self.held(self.moved(e, code), [v == 0 for v in code])

    def _ramps(self, row: Vector, kinks: Kinks) -> Vector:
        """clip((x - start) slope, 0, 1), and clip(u) = relu(u) - relu(u - 1)."""
        t = self.stored.tensors
        items = []
        errors = []
        zero, one = (constant(arb(v), row.items[0].order) for v in (0, 1))
        for j, (item, error) in enumerate(row.entries()):
            starts = t["ramp_start"][j]
            slopes = t["ramp_slope"][j]
            plain = error.is_zero() and type(item) is Taylor
            full = _filled(item, starts, slopes, self.execution) if plain else [math.nan] * len(starts)
            self._need_differences(item, starts)
            for start, slope, known in zip(starts.tolist(), slopes.tolist(), full, strict=True):
                if known == known:
                    items.append(one if known else zero)
                    errors.append(ZERO)
                    continue
                u = self.moved(Vector([item], [error]), [-start])
                v = u.items[0].scaled(arb(slope))
                scaled = u.errors
                if self.execution is not None:
                    scaled = self.execution.scaled(slope, u.sizes(), u.errors)
                clip = kinks.relu(v) - kinks.relu(v.shifted(arb(-1)))
                clipped = self.held(Vector([clip.unless_wider(HALF_BALL)], scaled))
                # As held: in an absorbing pass the numbers carry what the errors no longer say.
                items += clipped.items
                errors += clipped.errors
        return Vector(items, errors)

    def _need_differences(self, item: Taylor, starts: Array) -> None:
        """x - start is to be a number: its product with a slope is one then, or an infinity, which is clipped."""
        ex = self.execution
        if ex is not None and not ex.sure:
            ex.safe(ZERO, (size(item) + float(np.abs(starts).max(initial=0.0))) * (1 + ex.unit))

    def _attend(self, u: list[Vector], kinks: Kinks) -> list[Vector]:
        tokens = self.config["layout"] != "packed"
        queries = [self._asking(row) for row in self._asked(u)]
        keys = [self.mapped("K", row) for row in u] if tokens else []
        values = [self.mapped("V", row) for row in u] if tokens else []
        result = []
        for query in queries:
            averages = self.averages(query, keys, values, kinks)
            result.append(self.mapped("O", averages))
        return result

    def _asked(self, rows: list[Vector]) -> list[Vector]:
        """The positions that are read, which alone ask: others are met as keys and values, whatever they return."""
        readout = self.config["readout"]
        if readout == "last":
            return rows[-1:]
        return rows[:1] if readout == "first" or self.config["layout"] == "pieces" else rows

    def _asking(self, row: Vector) -> Vector:
        """A query; in an absorbing pass it keeps its errors, which each head takes as variables."""
        absorbing = self.absorbing
        self.absorbing = False
        found = self.mapped("Q", row)
        self.absorbing = absorbing
        return found

    def averages(self, query: Vector, keys: list[Vector], values: list[Vector], kinks: Kinks) -> Vector:
        """What the heads return for one query, side by side."""
        linear = self.config["attention"] == "linear"
        average = partial(self._linear_average, kinks) if linear else self._head_average
        z = Vector([], [])
        for head in self.heads:
            own_keys = [row[head.keys] for row in keys]
            own_values = [row[head.values] for row in values]
            part = average(head, self._varied(query[head.keys]), own_keys, own_values)
            z = Vector(z.items + part.items, z.errors + part.errors)
        return z

    def _varied(self, query: Vector) -> Vector:
        """In an absorbing pass: what is not known of each number as a variable of its own; where they are many, a ball.

        All logits move with one query, so most of what they err by cancels in their softmax.
        """
        if not self.absorbing or not all(error.is_finite() for error in query.errors):
            return query
        first = math.prod(self.config["input_shape"])
        items = []
        few = count(first + len(query), query.items[0].order) <= MOST_COEFFICIENTS
        for at, (item, error) in enumerate(query.entries()):
            known = Taylor(item.support, [c.mid() for c in item.c], item.order)
            strayed = sum((c.rad() for c in item.c), error)
            items.append(
                known + Taylor((first + at,), [ZERO, strayed], item.order) if few else item.shifted(error * UNIT_BALL)
            )
        return Vector(items, [ZERO] * len(query))

    def _scaled(self, head: Head, query: Vector) -> Vector:
        """q / sqrt(d_k)"""
        q = Vector([item.scaled(arb(head.scale)) for item in query.items], query.errors)
        if self.execution is not None:
            q.errors = self.execution.scaled(head.scale, query.sizes(), query.errors)
        return q

    def _linear_average(
        self, kinks: Kinks, head: Head, query: Vector, keys: list[Vector], values: list[Vector]
    ) -> Vector:
        """What one head of linear attention returns, over its memory and the tokens of the sequence."""
        order = query.items[0].order
        known: list[Vector] = []
        held: list[Vector] = []
        if head.tokens is not None:
            known, held = ([_numbers(row, order) for row in part] for part in head.tokens)
        attend_to = LinearHead(self.config["feature"], self.config["order"], self.execution)
        found = attend_to(self._scaled(head, query), [*keys, *known], [*values, *held], kinks)
        # An executed denominator may be zero where no error is bounded: a quotient without a value passes every weight.
        self.fits = self.fits and all(error.is_finite() for error in found.errors)
        return self.held(found)

    def _head_average(self, head: Head, query: Vector, keys: list[Vector], values: list[Vector]) -> Vector:
        """What one head returns for one query, over its memory and the tokens of the sequence."""
        ex = self.execution
        order = query.items[0].order
        q = self._scaled(head, query)
        memory = [axis(q, ex) for axis in head.axes]
        if len(memory) > 1 and head.table is not None:
            axes = [SoftmaxQuotient(logits, ex) for logits in memory]
            return self.held(attend_grid(axes, head.table, ex, order, real=self.real))
        own = self._token_logits(q, keys)
        stored = memory[0] if memory else Vector([], [])
        logits = Vector(own.items + stored.items, own.errors + stored.errors)
        return self.held(attend(SoftmaxQuotient(logits, ex), values, head.table, ex, order, real=self.real))

    def normalised(self, row: Vector, which: str) -> Vector:
        """(x - mean) / sqrt(var + 1e-5) * gain + shift"""
        t = self.stored.tensors
        order = row.items[0].order
        share = 1 / arb(len(row))
        gain = t[f"gain_{which}"].tolist()
        shift = t[f"shift_{which}"].tolist()
        mean = combination([(share, item) for item in row.items], ZERO, order)
        centred = [item - mean for item in row.items]
        variance = combination([(share, item * item) for item in centred], arb(NORM_EPS), order)
        spread = variance.range()
        # A variance is not negative, whatever its enclosure says.
        low = spread.lower().max(arb(NORM_EPS)).lower()
        scale = apply("rsqrt", variance, (low, spread.upper().max(low)))
        # |x - mean| <= sqrt(n - 1) sqrt(var)
        most = arb(len(row) - 1).sqrt().upper() * UNIT_BALL
        items = []
        for item, g, b in zip(centred, gain, shift, strict=True):
            whole = (item * scale).unless_wider(most)
            items.append(whole.scaled(arb(g)).shifted(arb(b)))
        if self.execution is None:
            return Vector(items, row.errors)
        ranges = [item.range() for item in centred]
        return self.held(Vector(items, self.execution.norm(row.sizes(), row.errors, ranges, gain, shift, low)))

    def _feed_forward(self, r: Vector, kinks: Kinks) -> Vector:
        inner = self.normalised(r, "2") if self.config["norm"] == "pre" else r
        h = self.mapped("1", inner)
        # Shut, executed or not: such a unit returns 0 without error.
        shut = [bool(item.ends()[1] + error <= 0) for item, error in h.entries()]
        errors = [ZERO if off else error for off, error in zip(shut, h.errors, strict=True)]
        hidden = [kinks.relu(item) for item in h.items]
        y = self.mapped("2", Vector(hidden, errors))
        if self.config["residual"]:
            y = self.added(r, y)
        if self.config["norm"] == "post":
            return self.normalised(y, "2")
        return y

    def _read(self, y: list[Vector]) -> Vector:
        kind = self.config["readout"]
        if kind == "each":
            rows = [self.mapped("R", row) for row in y]
            return Vector([item for row in rows for item in row.items], [e for row in rows for e in row.errors])
        if kind == "mean":
            return self.mapped("R", self._mean(y))
        return self.mapped("R", y[0 if kind == "first" else -1])

    def _token_logits(self, q: Vector, keys: list[Vector]) -> Vector:
        """Logits of a query over the tokens of the sequence."""
        found = Vector([dot(q.items, key.items) for key in keys], [ZERO] * len(keys))
        ex = self.execution
        if ex is not None and keys:
            sizes = q.sizes()
            found.errors = [ex.dot(sizes, q.errors, key.sizes(), key.errors) for key in keys]
        return found

    def _mean(self, y: list[Vector]) -> Vector:
        """The mean of the rows, executed as a sum that is then scaled."""
        columns = zip(*(row.items for row in y), strict=True)
        total = Vector([sum_of(column) for column in columns], y[0].errors)
        share = 1 / len(y)
        ex = self.execution
        if ex is not None:
            sizes = zip(*(row.sizes() for row in y), strict=True)
            errors = zip(*(row.errors for row in y), strict=True)
            sums = [ex.summed(s, e) for s, e in zip(sizes, errors, strict=True)]
            total.errors = ex.scaled(share, total.sizes(), sums)
        return self.held(Vector([item.scaled(arb(share)) for item in total.items], total.errors))

    def added(self, a: Vector, b: Vector) -> Vector:
        """The sum of two vectors, with the rounding of it where neither term is exactly zero."""
        items = [p + q for p, q in zip(a.items, b.items, strict=True)]
        errors = [p + q for p, q in zip(a.errors, b.errors, strict=True)]
        plain = [_vanishes(*p) or _vanishes(*q) for p, q in zip(a.entries(), b.entries(), strict=True)]
        return self.held(self._rounded(items, errors, plain), plain)

    def moved(self, x: Vector, offsets: list[float]) -> Vector:
        """Stored numbers added to the entries."""
        items = [item.shifted(arb(v)) for item, v in zip(x.items, offsets, strict=True)]
        return self._rounded(items, x.errors, [v == 0 for v in offsets])

    def _rounded(self, items: list[Taylor], errors: list[arb], exact: list[bool]) -> Vector:
        """Results of one addition each, with the errors of their summands; adding an exact zero costs nothing."""
        result = Vector(items, errors)
        if self.execution is not None:
            rounded = self.execution.added(result.sizes(), errors)
            result.errors = [e if same else r for e, r, same in zip(errors, rounded, exact, strict=True)]
        return result


def _best_known(one: Entry, other: Entry) -> Entry:
    """Of two enclosures of an executed number the better one, or the constant that holds what they have in common."""
    values, others = (item.range() + error * UNIT_BALL for item, error in (one, other))
    if not (values.is_finite() and others.is_finite() and values.overlaps(others)):
        return min(one, other, key=_unknown)
    common = constant(values.intersection(others), one[0].order)
    return min(one, other, (common, ZERO), key=_unknown)


def _unknown(entry: Entry) -> float:
    """How much of an output is not known: the radii of its coefficients, and its error."""
    item, error = entry
    total = float(sum((value.rad() for value in item.c), error).upper())
    return total if total == total else math.inf


def _vanishes(item: Taylor, error: arb) -> bool:
    return not item.support and bool(item.c[0].is_zero()) and bool(error.is_zero())


def _filled(x: Taylor, starts: Array, slopes: Array, execution: Execution | None) -> list[float]:
    """For numbers x of the execution: 0 or 1 where a ramp has that value on the whole box, executed or not; else nan.

    x <= start and slope >= 0 give a product <= 0, rounded or not; (x - start) slope > 1.001 in float64 is above 1 in
    any of the formats, unless x - start is so small that it may be flushed to zero. A difference beyond all floats says
    nothing: infinity times the smallest slope is no number that the real ramp knows.
    """
    flushed = 0.0 if execution is None else float(execution.tiny)
    low, high = (float(end) for end in x.ends())
    low = math.nextafter(low, -math.inf)
    high = math.nextafter(high, math.inf)
    if not x.support and x.c[0].is_exact() and float(x.c[0]) == x.c[0]:
        low = high = float(x.c[0])
    with np.errstate(all="ignore"):
        empty = (high <= starts) & (slopes >= 0)
        above = low - starts
        full = np.isfinite(above) & (above * slopes > 1.001) & (slopes >= 0) & (above > flushed)
        found: list[float] = np.where(empty, 0.0, np.where(full, 1.0, np.nan)).tolist()
    return found


def _numbers(row: Array, order: int) -> Vector:
    """Stored numbers, which are exact."""
    return Vector([constant(arb(v), order) for v in row.tolist()], [ZERO] * len(row))
