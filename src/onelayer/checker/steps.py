"""The steps of a network in the checker's arithmetic: real values on elements, the rounding of an execution beside.

Assumed of an execution is what rounding.py assumes; an activation is within a number of roundings of the largest number
on its way. Whatever may overflow has an infinite error. What has no value leaves none to anything computed of it: a
softmax is between 0 and 1 and a weight may be zero, but only of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from flint import arb

from onelayer.checker.activations import ACTIVATIONS, BENT, Activation
from onelayer.checker.arithmetic import UNIT_BALL, ZERO, Taylor, constant
from onelayer.checker.attention import Matrix
from onelayer.checker.elements import UNIT, Element, Jet, plus, smooth, softmax, times, underlying
from onelayer.checker.entries import PAIRS, Entries, added_up, defined, gathered, joined, size_of, within
from onelayer.checker.functions import Kinks
from onelayer.checker.network import StoredNetwork, StoredStep
from onelayer.checker.passes import NetworkPass
from onelayer.checker.rounding import largest


class Evaluation:
    """A network on one box: calls give the outputs. ``execution`` None means real arithmetic."""

    def __init__(self, network: StoredNetwork, execution: NetworkPass | None) -> None:
        self.network, self.execution = network, execution
        self.matrices = {step.args: self._matrix(step) for step in network.steps if step.op == "affine"}

    def _matrix(self, step: StoredStep) -> Matrix:
        named = [self.network.tensors[arg] for arg in step.args if isinstance(arg, str)]
        return Matrix(named[0].T, named[1] if len(named) > 1 else None)

    def __call__(self, x: Sequence[Element], kinks: Kinks) -> Entries:
        values = [Entries(list(x), [ZERO] * len(x))]
        order = x[0].order
        for step in self.network.steps:
            args = [values[arg] if isinstance(arg, int) else self._stored(arg, order) for arg in step.args]
            values.append(self._run(step, args, kinks))
        return values[-1]

    def _stored(self, name: str, order: int) -> Entries:
        numbers = self.network.tensors[name].flatten().tolist()
        return Entries([constant(arb(v), order) for v in numbers], [ZERO] * len(numbers))

    def _run(self, step: StoredStep, args: list[Entries], kinks: Kinks) -> Entries:
        if step.op == "arrange":
            return _arranged(step, args)
        if step.op == "matmul":
            return defined(self._matmul(step, args), joined(args))
        if step.op in WHOLE:
            return self._by_rows(step, args)
        found = self._entrywise(step, args, kinks)
        read = zip(*(part.pairs() for part in args), strict=True)
        each = zip(found.pairs(), read, strict=True)
        return joined([defined(gathered([entry]), gathered(sources)) for entry, sources in each])

    def _entrywise(self, step: StoredStep, args: list[Entries], kinks: Kinks) -> Entries:
        if step.op in ACTIVATIONS:
            return self.activated(args[0], ACTIVATIONS[step.op], kinks)
        if step.op in NUMBERED:
            return NUMBERED[step.op](self, step, args[0], kinks)
        pairs = zip(*(part.pairs() for part in args), strict=True)
        return gathered([PAIRS[step.op](self.execution, a, b, kinks) for a, b in pairs])

    def activated(self, x: Entries, row: Activation, kinks: Kinks) -> Entries:
        """An activation of every entry, with what its execution rounds."""
        items = [row.real(item, kinks) for item in x.items]
        if self.execution is None:
            return Entries(items, x.errors)
        errors = [self._activation_error(a, y, e, row) for a, y, e in zip(x.items, items, x.errors, strict=True)]
        found = Entries(items, errors)
        if row.image is None:
            return found
        strayed = self.execution.rounded(row.image.abs_upper(), ZERO, row.roundings)
        return gathered([within(entry, row.image, strayed) for entry in found.pairs()])

    def _activation_error(self, x: Element, y: Element, error: arb, row: Activation) -> arb:
        ex = self.execution
        low, high = underlying(x).ends()
        if ex is None or not error.is_finite():
            return error
        ends = low - error, high + error
        passed = row.lost * ex.tiny
        if not error.is_zero():
            passed = passed + error * row.steep(*ends).abs_upper() + row.jump(*ends)
        size = size_of(y) if row.rounded is None else row.rounded(*ends).abs_upper()
        return ex.rounded(size, passed, row.roundings)

    def _matmul(self, step: StoredStep, args: list[Entries]) -> Entries:
        """(G, a, b) times (G, b, c)."""
        groups, rows, columns = step.shape
        inner = len(args[0].items) // (groups * rows)
        items = []
        errors = []
        ex = self.execution
        sizes = [part.sizes() if ex is not None else [] for part in args]
        for g in range(groups):
            for i in range(rows):
                for j in range(columns):
                    left = [(g * rows + i) * inner + k for k in range(inner)]
                    right = [(g * inner + k) * columns + j for k in range(inner)]
                    pairs = zip(left, right, strict=True)
                    products = [times(args[0].items[a], args[1].items[b]) for a, b in pairs]
                    items.append(added_up(products))
                    errors.append(ZERO if ex is None else _dot(ex, args, sizes, left, right))
        return Entries(items, errors)

    def _by_rows(self, step: StoredStep, args: list[Entries]) -> Entries:
        """What works along the last axis, row by row."""
        x = args[0]
        rows = math.prod(step.shape[:-1] if step.op in WIDE else step.shape)
        width = len(x.items) // max(1, rows)
        found: list[Entries] = []
        for start in range(0, len(x.items), width):
            own = slice(start, start + width)
            row = Entries(x.items[own], x.errors[own])
            result = WHOLE[step.op](self, step, row, start, args)
            found.append(defined(result, row))
        return joined(found)


def _arranged(step: StoredStep, args: list[Entries]) -> Entries:
    whole = joined(args)
    if step.places is None:
        return whole
    return Entries([whole.items[at] for at in step.places], [whole.errors[at] for at in step.places])


def _dot(ex: NetworkPass, args: list[Entries], sizes: list[list[arb]], left: list[int], right: list[int]) -> arb:
    a = [sizes[0][at] for at in left]
    ea = [args[0].errors[at] for at in left]
    b = [sizes[1][at] for at in right]
    eb = [args[1].errors[at] for at in right]
    reach = sum(((p + ep) * (q + eq) for p, ep, q, eq in zip(a, ea, b, eb, strict=True)), ZERO)
    return ex.safe(ex.dot(a, ea, b, eb), reach)


def _number(step: StoredStep) -> float:
    return 0.0 if step.number is None else step.number


def _scaled(run: Evaluation, step: StoredStep, x: Entries, kinks: Kinks) -> Entries:
    factor = arb(_number(step))
    ex = run.execution
    items = [item.scaled(factor) for item in x.items]
    if ex is None:
        return Entries(items, x.errors)
    errors = ex.scaled(_number(step), x.sizes(), x.errors)
    return Entries(items, [ex.safe(e, size_of(y) + e) for e, y in zip(errors, items, strict=True)])


def _shifted(run: Evaluation, step: StoredStep, x: Entries, kinks: Kinks) -> Entries:
    """The number is rounded to the format before it is added."""
    offset = arb(_number(step))
    ex = run.execution
    items = [item.shifted(offset) for item in x.items]
    if ex is None:
        return Entries(items, x.errors)
    cast = ex.cast(_number(step)) + ex.tiny
    errors = [ex.rounded(size_of(y), e + cast, 1) for e, y in zip(x.errors, items, strict=True)]
    return Entries(items, errors)


def _bent(run: Evaluation, step: StoredStep, x: Entries, kinks: Kinks) -> Entries:
    number, bent, ex = _number(step), BENT[step.op], run.execution
    cast = ZERO if ex is None else ex.cast(number)
    found = run.activated(x, bent.row(number, cast), kinks)
    if cast.is_zero():
        return found
    moved = [cast * bent.size(underlying(item).ends()[0] - e) for item, e in x.pairs()]
    return Entries(found.items, [(e + more).upper() for e, more in zip(found.errors, moved, strict=True)])


NUMBERED: dict[str, Callable[[Evaluation, StoredStep, Entries, Kinks], Entries]] = {
    "scale": _scaled,
    "shift": _shifted,
    **dict.fromkeys(BENT, _bent),
}


def _affine(run: Evaluation, step: StoredStep, row: Entries, start: int, args: list[Entries]) -> Entries:
    matrix = run.matrices[step.args]
    ex = run.execution
    items = _affine_items(matrix, row.items)
    if ex is None:
        return Entries(items, [ZERO] * len(items))
    passed = matrix.bounds(row.errors)
    totals = matrix.bounds(row.reach())
    errors = []
    for column, b, p, t in zip(matrix.columns, matrix.bias, passed, totals, strict=True):
        error = ex.affine(len(column), b, p, t)
        errors.append(ex.safe(error, t + abs(b)))
    return Entries(items, errors)


def _affine_items(matrix: Matrix, items: Sequence[Element]) -> list[Element]:
    """x W + b on elements: derivatives pass through without the bias."""
    jets = lifted(items)
    if not jets:
        return list(matrix.real([underlying(item) for item in items]))
    values = _affine_items(matrix, [item.value for item in jets])
    columns = zip(*(item.tangents for item in jets), strict=True)
    slopes = [_linear(matrix, column, values[0]) for column in columns]
    return [Jet(value, row) for value, row in zip(values, zip(*slopes, strict=True), strict=True)]


def lifted(items: Sequence[Element]) -> list[Jet]:
    """All as jets, where one of them is: a plain one does not change."""
    count = max((len(item.tangents) for item in items if isinstance(item, Jet)), default=0)
    if not count:
        return []
    return [item if isinstance(item, Jet) else Jet(item, [None] * count) for item in items]


def _linear(matrix: Matrix, slopes: Sequence[Element | None], like: Element) -> list[Element | None]:
    """x W for derivatives, None where a column has none."""
    if all(slope is None for slope in slopes):
        return [None] * len(matrix.columns)
    zero = constant(ZERO, like.order)
    filled = _affine_items(matrix, [zero if slope is None else slope for slope in slopes])
    return [item.shifted(-b) for item, b in zip(filled, matrix.bias, strict=True)]


def _softmax(run: Evaluation, step: StoredStep, row: Entries, start: int, args: list[Entries]) -> Entries:
    taking = range(start, start + len(row.items)) if step.places is None else step.places
    own = [at - start for at in taking if start <= at < start + len(row.items)]
    logits = Entries([row.items[at] for at in own], [row.errors[at] for at in own])
    weights = softmax(logits.items)
    found = Entries([constant(ZERO, weights[0].order)] * len(row.items), [ZERO] * len(row.items))
    entries = list(zip(weights, logits.errors, strict=True))
    if (ex := run.execution) is not None:
        errors = _weight_errors(ex, logits, weights)
        # Whatever the logits are: executed weights are >= 0, and a sum of which they are parts is within that of 1.
        strayed = ex.safe(ex.gamma(len(own) + 4) + ex.underflow(len(own)), largest(logits.reach()))
        entries = [within(entry, UNIT, strayed) for entry in zip(weights, errors, strict=True)]
    for at, (item, error) in zip(own, entries, strict=True):
        found.items[at], found.errors[at] = item, error
    return found


def _weight_errors(ex: NetworkPass, logits: Entries, weights: Sequence[Element]) -> list[arb]:
    """Errors of executed softmax weights."""
    plain = [underlying(item) for item in logits.items]
    middle = added_up(plain).scaled(arb(1) / len(plain))
    spreads = [underlying(plus(item, -middle)).range() for item in plain]
    sizes = [size_of(item).min(arb(1)) for item in weights]
    relative, absolute = ex.softmax(spreads, logits.errors, sizes)
    most = largest(logits.reach())
    return [ex.safe(w * r + absolute, most) for w, r in zip(sizes, relative, strict=True)]


def _norm(run: Evaluation, step: StoredStep, row: Entries, start: int, args: list[Entries]) -> Entries:
    """(x - mean) / sqrt(var + eps) * gain + shift"""
    eps = _number(step)
    count = len(row.items)
    ex = run.execution
    gain, shift = ([underlying(item).c[0] for item in part.items] for part in args[1:])
    mean = added_up(row.items).scaled(1 / arb(count))
    centred = [plus(item, -mean) for item in row.items]
    squares = added_up([times(item, item) for item in centred])
    variance = squares.scaled(1 / arb(count)).shifted(arb(eps))
    spread = underlying(variance).range()
    low = spread.lower().max(arb(eps)).lower()
    scale = smooth("rsqrt", variance, (low, spread.upper().max(low)))
    most = arb(count - 1).sqrt().upper() * UNIT_BALL  # |x - mean| <= sqrt(n - 1) sqrt(var)
    whole = [_unless_wider(times(item, scale), most) for item in centred]
    items = [item.scaled(g).shifted(b) for item, g, b in zip(whole, gain, shift, strict=True)]
    if ex is None:
        return Entries(items, row.errors)
    ranges = [*map(Taylor.range, map(underlying, centred))]
    errors = ex.norm(row.sizes(), row.errors, ranges, list(map(float, gain)), list(map(float, shift)), low, eps)
    reach = largest(row.reach())
    # Squares and their sum, a deviation over the root of eps, and that times a gain with a shift.
    way = 4 * count * (1 + reach * reach) / arb(eps).sqrt()
    ways = [way * (1 + abs(g)) + abs(b) for g, b in zip(gain, shift, strict=True)]
    return Entries(items, [ex.safe(e, most) for e, most in zip(errors, ways, strict=True)])


def _unless_wider(item: Element, known: arb) -> Element:
    return item.unless_wider(known) if isinstance(item, Taylor) else item


def _added(run: Evaluation, step: StoredStep, row: Entries, start: int, args: list[Entries]) -> Entries:
    """The sum of a row, or its mean."""
    ex = run.execution
    count = len(row.items)
    item = added_up(row.items)
    error = ZERO if ex is None else ex.safe(ex.summed(row.sizes(), row.errors), sum(row.reach(), ZERO))
    if step.op == "mean":
        item = item.scaled(1 / arb(count))
        error = ZERO if ex is None else ex.rounded(size_of(item), error / count, 2)
    return Entries([item], [error])


WIDE = ("affine", "softmax", "layer_norm")  # their result has a last axis
WHOLE: dict[str, Callable[[Evaluation, StoredStep, Entries, int, list[Entries]], Entries]] = {
    "affine": _affine,
    "softmax": _softmax,
    "layer_norm": _norm,
    "sum": _added,
    "mean": _added,
}
