"""Vectors, stored matrices and softmax averages of the checker: real values as Taylor enclosures, rounding beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_mat

from onelayer.checker.arithmetic import (
    UNIT_BALL,
    ZERO,
    Taylor,
    combination,
    constant,
    degree_of,
    outer_places,
    room,
    union,
)
from onelayer.checker.averages import by_weight, hulls_of, narrowed, unless_farther
from onelayer.checker.functions import apply
from onelayer.checker.rounding import Execution, power_of_two, size
from onelayer.checker.weights import Array

DENSE = 64  # nonzero weights from which a matrix product in C is faster than terms one by one
EXTRA = 4  # further powers for functions of one variable, kept until values are contracted and cancel
GRAINS = 2.0**20  # of the weights in the common shift of the logits: tokens below half a grain do not count


@dataclass
class Vector:
    """Entries of the real layer, and bounds of what rounding adds to each in the execution (zeros if none is meant)."""

    items: list[Taylor]
    errors: list[arb]

    def __getitem__(self, part: slice) -> Vector:
        return Vector(self.items[part], self.errors[part])

    def __len__(self) -> int:
        return len(self.items)

    def entries(self) -> list[tuple[Taylor, arb]]:
        """Every entry with its error."""
        return list(zip(self.items, self.errors, strict=True))

    def sizes(self) -> list[arb]:
        """Upper bounds of the absolute values."""
        return [size(item) for item in self.items]

    def reach(self) -> list[arb]:
        """Upper bounds of the absolute values as executed."""
        return [s + e for s, e in zip(self.sizes(), self.errors, strict=True)]


class Matrix:
    """A stored matrix W (rows, columns) with bias b: x -> x W + b, zeros skipped so that supports stay small."""

    def __init__(self, w: Array, b: Array | None = None) -> None:
        self.bias = [ZERO] * w.shape[1]
        if b is not None:
            self.bias = [arb(v) for v in b.tolist()]
        self.columns = [_nonzero(column) for column in w.T]
        terms = sum(len(column) for column in self.columns)
        self.dense = arb_mat(w.tolist()) if terms >= DENSE else None
        self.absolute = arb_mat(np.abs(w).tolist())
        self.ends = w.min(0), w.max(0)

    def __call__(self, x: Vector, execution: Execution | None) -> Vector:
        y = self.real(x.items)
        if execution is None:
            return Vector(y, [ZERO] * len(y))
        return Vector(y, self._rounding(x, execution))

    def _rounding(self, x: Vector, execution: Execution) -> list[arb]:
        """Products with an exact zero, and sums with them, are exact; so is one product with a power of two alone."""
        reach = x.reach()
        passed = self.bounds(x.errors)
        totals = self.bounds(reach)
        found = []
        for (live, b), p, t in zip(self._live(reach), passed, totals, strict=True):
            if _selects(live, b):
                found.append(execution.selected(p, t))
            else:
                found.append(execution.affine(len(live), b, p, t))
        return found

    def _live(self, reach: Sequence[arb]) -> list[tuple[list[arb], arb]]:
        """Per column the weights of entries that may differ from zero, executed or not, and the bias."""
        busy = [not r.is_zero() for r in reach]
        columns = zip(self.columns, self.bias, strict=True)
        return [([w for i, w in column if busy[i]], b) for column, b in columns]

    def selecting(self, x: Vector) -> list[bool]:
        """Which entries are a stored number, or one entry of x times a power of two: numbers of the format of x."""
        return [not live or _selects(live, b) for live, b in self._live(x.reach())]

    def column(self, at: int) -> list[arb]:
        """A column of W, its zeros included."""
        found = [ZERO] * self.absolute.nrows()
        for i, w in self.columns[at]:
            found[i] = w
        return found

    def real(self, x: Sequence[Taylor]) -> list[Taylor]:
        """x W + b in real arithmetic."""
        order = x[0].order
        if self.dense is not None and _balls(x):
            return self._product(x, self.dense)
        found = []
        for column, b in zip(self.columns, self.bias, strict=True):
            terms = [(w, x[i]) for i, w in column]
            found.append(combination(terms, b, order))
        return found

    def _product(self, x: Sequence[Taylor], dense: arb_mat) -> list[Taylor]:
        support = _union(x)
        rows = _coefficients(x, support).transpose()
        product = (rows * dense).transpose().tolist()  # (columns, coefficients)
        found = []
        for (constant_term, *others), b in zip(product, self.bias, strict=True):
            found.append(Taylor(support, [constant_term + b, *others], x[0].order))
        return found

    def bounds(self, row: Sequence[arb]) -> list[arb]:
        """Row vector of bounds times |W|."""
        product = arb_mat(1, len(row), list(row)) * self.absolute
        return [value.upper() for value in product.entries()]


def _nonzero(column: Array) -> list[tuple[int, arb]]:
    """Where a column of weights is not zero, and what it is there."""
    return [(i, arb(v)) for i, v in enumerate(column.tolist()) if v != 0]


def _selects(live: Sequence[arb], bias: arb) -> bool:
    """Whether a column returns one entry times a power of two, which is exact up to underflow."""
    return len(live) == 1 and bool(bias.is_zero()) and power_of_two(float(live[0]))


class SoftmaxQuotient:
    """Weights over tokens as e_m / Q: e_m = exp(l_m - l) with a common l, Q = sum e_m; ``inverse`` encloses 1/Q.

    l is the average of the logits with the weights of the box's centre: it removes the first-order change of Q, so 1/Q
    converges on larger boxes. Any common l gives the same weights. ``upper`` bounds the weights; ``spoiled`` multiplies
    |v_m| in the rounding error of an average of values v_m.
    """

    def __init__(self, logits: Vector, execution: Execution | None) -> None:
        order = logits.items[0].order
        # Cheap, and large values make high orders of e_m matter.
        if len(_union(logits.items)) == 1:
            order += EXTRA
            logits = Vector([item.at_order(order) for item in logits.items], logits.errors)
        common = centre(logits.items, order)
        shifted = [item - common for item in logits.items]
        spreads = [item.range() for item in shifted]
        self.e = [apply("exp", item) for item in shifted]
        tops = [spread.upper().exp() for spread in spreads]
        low = _sum_of_lowest(spreads)
        high = sum(tops, ZERO).upper()
        # Q is a sum of exponentials: its ends by theirs are sharper than the range of its polynomial, and never zero.
        total = combination([(arb(1), item) for item in self.e], ZERO, order)
        self.inverse = apply("inv", total, (low, high))
        self.upper = _heaviest(tops, low)
        self.spoiled = [ZERO] * len(shifted)
        if execution is not None:
            relative, absolute = execution.softmax(spreads, logits.errors, self.upper)
            self.spoiled = execution.average(self.upper, relative, absolute, len(shifted) + 1)


def attend(
    softmax: SoftmaxQuotient,
    own: Sequence[Vector],
    table: Matrix | None,
    execution: Execution | None,
    order: int,
    *,
    real: bool = False,
) -> Vector:
    """Softmax average over the values of the sequence's tokens, then those of the memory tokens in ``table``.

    An entry and its error hold the executed average. Where they are ``real``, the error is that of the real average.
    """
    parts = [[e * v for v in value.items] for e, value in zip(softmax.e, own, strict=False)]
    if table is not None:
        parts.append(table.real(softmax.e[len(own) :]))
    items = [(sum_of(column) * softmax.inverse).at_order(order) for column in zip(*parts, strict=True)]
    errors: list[arb] | None = None
    if execution is not None:
        errors = [ZERO] * len(items)
        if table is not None:
            errors = table.bounds(softmax.spoiled[len(own) :])
        # Wrong weights times values, then executed weights times what is wrong with the values.
        for value, spoiled, weight in zip(own, softmax.spoiled, softmax.upper, strict=False):
            entries = zip(errors, value.sizes(), value.errors, strict=True)
            errors = [e + spoiled * (s + ev) + (weight + spoiled) * ev for e, s, ev in entries]
    hulls = hulls_of(own, table, len(items))
    items = narrowed(items, by_weight(own, table, softmax.upper, hulls))
    return _average(items, errors, len(softmax.e), hulls, execution, real=real)


def _average(
    items: list[Taylor],
    errors: list[arb] | None,
    count: int,
    hulls: list[arb],
    execution: Execution | None,
    *,
    real: bool,
) -> Vector:
    """Averages of ``count`` values that lie in the hulls, with the smaller of two bounds of their errors each.

    ``errors`` come from the errors of the weights; the spread of the values gives others. Equal values average to
    themselves.
    """
    items = narrowed(items, hulls)
    if execution is None or errors is None:
        return Vector(items, [ZERO] * len(items))
    found = []
    for at, (error, hull) in enumerate(zip(errors, hulls, strict=True)):
        weighed = (error + execution.underflow(count)).upper()
        # Whatever the weights are, they are >= 0 and sum to about one: a bound that no wild logit spoils.
        spread = execution.within(count, hull.mid(), hull.rad())
        least = weighed.min(spread).upper() if weighed.is_finite() else spread
        if not real and _balls(items[at : at + 1]):
            items[at], least = unless_farther(items[at], least, hull, spread)
        found.append(least)
    return Vector(items, found)


def attend_grid(
    axes: Sequence[SoftmaxQuotient], table: Matrix, execution: Execution | None, order: int, *, real: bool = False
) -> Vector:
    """Softmax average over a grid of tokens, the values contracted axis by axis, first axis first."""
    items = table.real(axes[0].e)
    inverse = axes[0].inverse
    for softmax in axes[1:]:
        # Further powers pay while the values of other axes are still to be contracted and cancel.
        last = softmax is axes[-1] or not _balls(items)
        items = contract(softmax.e, items, order if last else order + EXTRA)
        inverse = (inverse * softmax.inverse).at_order(order)
    items = [item.at_order(order) * inverse for item in items]
    errors = None if execution is None else _grid_errors(axes, table, execution)
    count = sum(len(softmax.e) + 4 for softmax in axes)
    return _average(items, errors, count, hulls_of([], table, len(items)), execution, real=real)


def _grid_errors(axes: Sequence[SoftmaxQuotient], table: Matrix, execution: Execution) -> list[arb]:
    """With B a bound of sum w |v| over the contracted axes and E the error so far, contracting one more axis gives
    B' = sum w B and E' = sum spoiled (B + E) + w E."""
    first = execution.underflow(len(axes[0].e))
    sizes = table.bounds(axes[0].upper)
    errors = [e + first for e in table.bounds(axes[0].spoiled)]
    for softmax in axes[1:]:
        step = len(sizes) // len(softmax.e)
        lost = execution.underflow(len(softmax.e))
        contracted: list[arb] = []
        strayed: list[arb] = []
        for j in range(step):
            b = sizes[j::step]
            e = errors[j::step]
            executed = [size + error for size, error in zip(b, e, strict=True)]
            contracted.append(_inner(softmax.upper, b))
            strayed.append((_inner(softmax.spoiled, executed) + _inner(softmax.upper, e) + lost).upper())
        sizes = contracted
        errors = strayed
    return errors


def _inner(a: Sequence[arb], b: Sequence[arb]) -> arb:
    return sum((x * y for x, y in zip(a, b, strict=True)), ZERO).upper()


def contract(weights: Sequence[Taylor], items: Sequence[Taylor], order: int) -> list[Taylor]:
    """sum_m weights_m items_mj for every j, ``items`` being row-major; one matrix product if no variable is shared."""
    left = _union(weights)
    right = _union(items)
    step = len(items) // len(weights)
    apart = left and right and not set(left) & set(right)
    if not apart or not _balls([*weights, *items]):
        return [dot(weights, items[j::step]).at_order(order) for j in range(step)]
    support = union(left, right)
    rows = _coefficients(weights, left)
    columns = _coefficients(items, right)
    width = columns.ncols()
    da = degree_of(len(left), rows.ncols())
    db = degree_of(len(right), width)
    where = [tuple(map(support.index, part)) for part in (left, right)]
    places = outer_places(*where, da, db, order)
    # One row per coefficient of a weight, all items side by side.
    product = (rows.transpose() * arb_mat(len(weights), step * width, columns.entries())).tolist()
    length = room(len(support), min(order, da + db))
    found = []
    for j in range(step):
        values = [value for row in product for value in row[j * width : (j + 1) * width]]
        found.append(Taylor(support, _placed(values, places, length), order))
    return found


def _placed(values: Sequence[arb], places: Sequence[int], length: int) -> list[arb]:
    """Coefficients in their places; those beyond the order (place < 0) become a ball around zero."""
    out = [ZERO] * length
    cut = ZERO
    for value, place in zip(values, places, strict=True):
        if place < 0:
            cut = cut + value.abs_upper()
        else:
            out[place] = value
    out[0] = out[0] + cut * UNIT_BALL
    return out


def _heaviest(tops: Sequence[Any], low: Any) -> list[arb]:
    """What each weight is at most, of exponentials up to these that sum to at least ``low``; nothing of many boxes."""
    if not isinstance(low, arb):
        return []
    return [(top / low).min(arb(1)).upper() for top in tops]


def _sum_of_lowest(spreads: Sequence[arb]) -> arb:
    """A lower bound of the sum of exponentials."""
    return sum((spread.lower().exp() for spread in spreads), ZERO).lower()


def centre(logits: Sequence[Taylor], order: int) -> Taylor:
    """An average of the logits to subtract from each: softmax does not change, and any weights will do.

    The weights are whole grains and sum to exactly one, so that the average moves with the logits: a millionth that is
    missing would leave a millionth of what all logits share, and that may be 10^12 times their differences.
    """
    centre = np.stack(np.broadcast_arrays(*(item.centre() for item in logits)))
    with np.errstate(all="ignore"):
        weights = np.exp(centre - centre.max(0))
        grains = np.round(weights / weights.sum(0) * GRAINS)
    heaviest = np.expand_dims(weights.argmax(0), 0)
    others = grains.sum(0) - np.take_along_axis(grains, heaviest, 0)
    np.put_along_axis(grains, heaviest, GRAINS - others, 0)
    pairs = zip(grains / GRAINS, logits, strict=True)
    used = [(w, item) for w, item in pairs if (np.abs(w) > 0).any()]
    # One weight for each of many boxes, or a number for one.
    factors = [(w if w.ndim else arb(float(w)), item) for w, item in used]
    # Of many boxes wherever a logit is: those that count may be constants alone, which know of one box only.
    kind = next((item for item in logits if type(item) is not Taylor), logits[0])
    return kind.weighted(factors, ZERO, order)


def _balls(items: Sequence[Taylor]) -> bool:
    """Whether all are lists of balls, which Arb multiplies as matrices."""
    return all(type(item) is Taylor for item in items)


def dot(a: Sequence[Taylor], b: Sequence[Taylor]) -> Taylor:
    """The inner product."""
    return sum_of([x * y for x, y in zip(a, b, strict=True)])


def _union(items: Sequence[Taylor]) -> tuple[int, ...]:
    support: tuple[int, ...] = ()
    for item in items:
        support = union(support, item.support)
    return support


def _coefficients(items: Sequence[Taylor], support: tuple[int, ...]) -> arb_mat:
    """One row of coefficients per item."""
    wide = [item.over(support) for item in items]
    length = max(len(c) for c in wide)
    entries: list[arb] = []
    for c in wide:
        entries += c
        entries += [ZERO] * (length - len(c))
    return arb_mat(len(items), length, entries)


def sum_of(terms: Sequence[Taylor]) -> Taylor:
    """The sum of some models."""
    if len(terms) == 1:
        return terms[0]
    total = constant(ZERO, terms[0].order)
    for term in terms:
        total = total + term
    return total
