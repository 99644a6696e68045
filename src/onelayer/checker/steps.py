"""The steps of a network in the checker's arithmetic: real values on elements, the rounding of an execution beside.

Assumed of an execution is what rounding.py assumes; an activation is within a number of roundings of the largest number
on its way. Whatever may overflow has an infinite error. What has no value leaves none to anything computed of it: a
softmax is between 0 and 1 and a weight may be zero, but only of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flint import arb

from onelayer.checker.activations import ACTIVATIONS, Activation, elu, leaky_relu
from onelayer.checker.arithmetic import UNIT_BALL, ZERO, Taylor, constant
from onelayer.checker.attention import Matrix
from onelayer.checker.elements import Element, Jet, larger, plus, smaller, smooth, softmax, times, underlying
from onelayer.checker.functions import Kinks
from onelayer.checker.network import StoredNetwork, StoredStep
from onelayer.checker.passes import NetworkPass
from onelayer.checker.rounding import INFINITE, largest

Entry = tuple[Element, arb]


@dataclass
class Entries:
    """The entries of a value in row-major order; ``errors`` None where no execution is meant."""

    items: list[Element]
    errors: list[arb]

    def sizes(self) -> list[arb]:
        """Bounds of the absolute values."""
        return [underlying(item).range().abs_upper() for item in self.items]


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
            return _defined(self._matmul(step, args), _joined(args))
        if step.op in WHOLE:
            return self._by_rows(step, args)
        found = self._entrywise(step, args, kinks)
        read = [list(zip(part.items, part.errors, strict=True)) for part in args]
        each = zip(found.items, found.errors, zip(*read, strict=True), strict=True)
        return _joined([_defined(Entries([item], [error]), _entries(sources)) for item, error, sources in each])

    def _entrywise(self, step: StoredStep, args: list[Entries], kinks: Kinks) -> Entries:
        if step.op in ACTIVATIONS:
            return self.activated(args[0], ACTIVATIONS[step.op], kinks)
        if step.op in NUMBERED:
            return NUMBERED[step.op](self, step, args[0], kinks)
        pairs = zip(*(zip(part.items, part.errors, strict=True) for part in args), strict=True)
        return _entries([PAIRS[step.op](self, a, b, kinks) for a, b in pairs])

    def activated(self, x: Entries, row: Activation, kinks: Kinks) -> Entries:
        """An activation of every entry, with what its execution rounds."""
        items = [row.real(item, kinks) for item in x.items]
        if self.execution is None:
            return Entries(items, x.errors)
        errors = [self._activation_error(a, y, e, row) for a, y, e in zip(x.items, items, x.errors, strict=True)]
        return Entries(items, errors)

    def _activation_error(self, x: Element, y: Element, error: arb, row: Activation) -> arb:
        ex = self.execution
        low, high = underlying(x).ends()
        if ex is None or not error.is_finite():
            return error
        if row is ACTIVATIONS["relu"] and high + error <= 0:  # shut, executed or not
            return ZERO
        passed = ZERO
        if not error.is_zero():
            passed = error * row.steep(low - error, high + error).abs_upper() + row.jump(high + error)
        size = _size(x) + error if row.gated else _size(y)
        return ex.rounded(size, passed, row.roundings, arb(row.level))

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
                    items.append(_total([times(args[0].items[a], args[1].items[b]) for a, b in pairs]))
                    errors.append(ZERO if ex is None else _dot(ex, args, sizes, left, right))
        return Entries(items, errors)

    def _by_rows(self, step: StoredStep, args: list[Entries]) -> Entries:
        """What works along the last axis, row by row."""
        x = args[0]
        width = len(x.items) // max(1, math.prod(step.shape[:-1] if step.op in WIDE else step.shape))
        found: list[Entries] = []
        for start in range(0, len(x.items), width):
            row = Entries(x.items[start : start + width], x.errors[start : start + width])
            found.append(_defined(WHOLE[step.op](self, step, row, start, args), row))
        return _joined(found)


def _defined(found: Entries, sources: Entries) -> Entries:
    """What was computed of some entries: without a value where one has none, executed or not."""
    items, errors = found.items, found.errors
    if not all(underlying(item).is_finite() for item in sources.items):
        items = [item.shifted(arb("nan")) for item in items]
    if not all(error.is_finite() for error in sources.errors):
        errors = [INFINITE] * len(items)
    return Entries(items, errors)


def _entries(pairs: Sequence[Entry]) -> Entries:
    return Entries([item for item, _ in pairs], [error for _, error in pairs])


def _joined(parts: Sequence[Entries]) -> Entries:
    return Entries([item for part in parts for item in part.items], [e for part in parts for e in part.errors])


def _total(terms: Sequence[Element]) -> Element:
    total = terms[0]
    for term in terms[1:]:
        total = plus(total, term)
    return total


def _arranged(step: StoredStep, args: list[Entries]) -> Entries:
    items = [item for part in args for item in part.items]
    errors = [error for part in args for error in part.errors]
    if step.places is None:
        return Entries(items, errors)
    return Entries([items[at] for at in step.places], [errors[at] for at in step.places])


def _dot(ex: NetworkPass, args: list[Entries], sizes: list[list[arb]], left: list[int], right: list[int]) -> arb:
    a = [sizes[0][at] for at in left]
    ea = [args[0].errors[at] for at in left]
    b = [sizes[1][at] for at in right]
    eb = [args[1].errors[at] for at in right]
    reach = sum(((p + ep) * (q + eq) for p, ep, q, eq in zip(a, ea, b, eb, strict=True)), ZERO)
    return ex.safe(ex.dot(a, ea, b, eb), reach)


def _size(item: Element) -> arb:
    return underlying(item).range().abs_upper()


def _sum(run: Evaluation, a: Entry, b: Entry, kinks: Kinks) -> Entry:
    item = plus(a[0], b[0])
    ex = run.execution
    return item, ZERO if ex is None else ex.rounded(_size(item), a[1] + b[1], 1)


def _difference(run: Evaluation, a: Entry, b: Entry, kinks: Kinks) -> Entry:
    return _sum(run, a, (-b[0], b[1]), kinks)


def _product(run: Evaluation, a: Entry, b: Entry, kinks: Kinks) -> Entry:
    item = times(a[0], b[0])
    ex = run.execution
    if ex is None:
        return item, ZERO
    passed = _size(a[0]) * b[1] + _size(b[0]) * a[1] + a[1] * b[1]
    return item, ex.rounded(_size(item), passed, 1)


def _quotient(run: Evaluation, a: Entry, b: Entry, kinks: Kinks) -> Entry:
    item = times(a[0], smooth("inv", b[0]))
    ex = run.execution
    if ex is None:
        return item, ZERO
    near = underlying(b[0]).range().abs_lower() - b[1]
    if not near > 0:
        return item, INFINITE
    return item, ex.rounded(_size(item), (a[1] + _size(item) * b[1]) / near, 1)


def _chosen(
    which: Callable[[Element, Element, Kinks], Element], above: bool
) -> Callable[[Evaluation, Entry, Entry, Kinks], Entry]:
    """The smaller or the larger (``above``) of two, which errs by no more than both; by its own error if it is sure."""

    def chosen(run: Evaluation, a: Entry, b: Entry, kinks: Kinks) -> Entry:
        low, high = (underlying(a[0]) - underlying(b[0])).ends()
        apart = a[1] + b[1]
        if low > apart:
            return a if above else b
        if high < -apart:
            return b if above else a
        return which(a[0], b[0], kinks), a[1].max(b[1])

    return chosen


PAIRS: dict[str, Callable[[Evaluation, Entry, Entry, Kinks], Entry]] = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "div": _quotient,
    "minimum": _chosen(smaller, above=False),
    "maximum": _chosen(larger, above=True),
}


def _number(step: StoredStep) -> float:
    return 0.0 if step.number is None else step.number


def _scaled(run: Evaluation, step: StoredStep, x: Entries, kinks: Kinks) -> Entries:
    factor = arb(_number(step))
    ex = run.execution
    items = [item.scaled(factor) for item in x.items]
    if ex is None:
        return Entries(items, x.errors)
    errors = ex.scaled(_number(step), x.sizes(), x.errors)
    return Entries(items, [ex.safe(e, _size(y) + e) for e, y in zip(errors, items, strict=True)])


def _shifted(run: Evaluation, step: StoredStep, x: Entries, kinks: Kinks) -> Entries:
    """The number is rounded to the format before it is added."""
    offset = arb(_number(step))
    ex = run.execution
    items = [item.shifted(offset) for item in x.items]
    if ex is None:
        return Entries(items, x.errors)
    cast = ex.cast(_number(step)) + ex.tiny
    errors = [ex.rounded(_size(y), e + cast, 1, abs(offset)) for e, y in zip(x.errors, items, strict=True)]
    return Entries(items, errors)


def _numbered(
    real: Callable[[Element, float, Kinks], Element], roundings: int
) -> Callable[[Evaluation, StoredStep, Entries, Kinks], Entries]:
    def run_one(run: Evaluation, step: StoredStep, x: Entries, kinks: Kinks) -> Entries:
        number = _number(step)
        most = max(1.0, abs(number))
        row = Activation(lambda u, k: real(u, number, k), lambda low, high: arb(most), roundings, most)
        found, ex = run.activated(x, row, kinks), run.execution
        if ex is None or ex.cast(number).is_zero():
            return found
        moved = [ex.cast(number) * (size + e) for size, e in zip(x.sizes(), x.errors, strict=True)]
        return Entries(found.items, [(e + more).upper() for e, more in zip(found.errors, moved, strict=True)])

    return run_one


NUMBERED: dict[str, Callable[[Evaluation, StoredStep, Entries, Kinks], Entries]] = {
    "scale": _scaled,
    "shift": _shifted,
    "leaky_relu": _numbered(leaky_relu, 4),
    "elu": _numbered(elu, 64),
}


def _affine(run: Evaluation, step: StoredStep, row: Entries, start: int, args: list[Entries]) -> Entries:
    matrix = run.matrices[step.args]
    ex = run.execution
    items = _affine_items(matrix, row.items)
    if ex is None:
        return Entries(items, [ZERO] * len(items))
    reach = [s + e for s, e in zip(row.sizes(), row.errors, strict=True)]
    passed = matrix.bounds(row.errors)
    totals = matrix.bounds(reach)
    errors = []
    for column, b, p, t in zip(matrix.columns, matrix.bias, passed, totals, strict=True):
        errors.append(ex.safe(ex.affine(len(column), b, p, t), t + abs(b)))
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
    errors = logits.errors if run.execution is None else _weight_errors(run.execution, logits, weights)
    for at, item, error in zip(own, weights, errors, strict=True):
        found.items[at], found.errors[at] = item, error
    return found


def _weight_errors(ex: NetworkPass, logits: Entries, weights: Sequence[Element]) -> list[arb]:
    """Errors of executed softmax weights."""
    plain = [underlying(item) for item in logits.items]
    middle = _total(plain).scaled(arb(1) / len(plain))
    spreads = [underlying(plus(item, -middle)).range() for item in plain]
    sizes = [_size(item).min(arb(1)) for item in weights]
    relative, absolute = ex.softmax(spreads, logits.errors, sizes)
    most = largest([size + e for size, e in zip(logits.sizes(), logits.errors, strict=True)])
    return [ex.safe(w * r + absolute, most) for w, r in zip(sizes, relative, strict=True)]


def _norm(run: Evaluation, step: StoredStep, row: Entries, start: int, args: list[Entries]) -> Entries:
    """(x - mean) / sqrt(var + eps) * gain + shift"""
    eps = _number(step)
    count = len(row.items)
    ex = run.execution
    gain, shift = ([underlying(item).c[0] for item in part.items] for part in args[1:])
    mean = _total(row.items).scaled(1 / arb(count))
    centred = [plus(item, -mean) for item in row.items]
    variance = _total([times(item, item) for item in centred]).scaled(1 / arb(count)).shifted(arb(eps))
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
    reach = largest([s + e for s, e in zip(row.sizes(), row.errors, strict=True)])
    return Entries(items, [ex.safe(e, 4 * count * (1 + reach * reach) / arb(eps).sqrt()) for e in errors])


def _unless_wider(item: Element, known: arb) -> Element:
    return item.unless_wider(known) if isinstance(item, Taylor) else item


def _added(run: Evaluation, step: StoredStep, row: Entries, start: int, args: list[Entries]) -> Entries:
    """The sum of a row, or its mean."""
    ex = run.execution
    count = len(row.items)
    item = _total(row.items)
    error = ZERO if ex is None else ex.safe(ex.summed(row.sizes(), row.errors), sum(row.sizes(), ZERO))
    if step.op == "mean":
        item = item.scaled(1 / arb(count))
        error = ZERO if ex is None else ex.rounded(_size(item), error / count, 2)
    return Entries([item], [error])


WIDE = ("affine", "softmax", "layer_norm")  # their result has a last axis
WHOLE: dict[str, Callable[[Evaluation, StoredStep, Entries, int, list[Entries]], Entries]] = {
    "affine": _affine,
    "softmax": _softmax,
    "layer_norm": _norm,
    "sum": _added,
    "mean": _added,
}
