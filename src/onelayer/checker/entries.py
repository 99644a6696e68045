"""Entries of a value of a network with bounds of their executed errors, and what is computed of two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, constant
from onelayer.checker.elements import Element, larger, plus, smaller, smooth, times, underlying
from onelayer.checker.functions import Kinks
from onelayer.checker.passes import NetworkPass
from onelayer.checker.rounding import INFINITE

Entry = tuple[Element, arb]


@dataclass
class Entries:
    """The entries of a value in row-major order, and bounds of the executed errors; zeros if no execution is meant."""

    items: list[Element]
    errors: list[arb]

    def sizes(self) -> list[arb]:
        """Bounds of the absolute values."""
        return [size_of(item) for item in self.items]

    def reach(self) -> list[arb]:
        """Bounds of the absolute values as executed."""
        return [s + e for s, e in zip(self.sizes(), self.errors, strict=True)]

    def pairs(self) -> list[Entry]:
        """Every entry with its error."""
        return list(zip(self.items, self.errors, strict=True))


def defined(found: Entries, sources: Entries) -> Entries:
    """What was computed of some entries: without a value where one has none, executed or not."""
    items = found.items
    errors = found.errors
    if not all(underlying(item).is_finite() for item in sources.items):
        items = [item.shifted(arb("nan")) for item in items]
    if not all(error.is_finite() for error in sources.errors):
        errors = [INFINITE] * len(items)
    return Entries(items, errors)


def gathered(pairs: Sequence[Entry]) -> Entries:
    """Single entries as one value."""
    return Entries([item for item, _ in pairs], [error for _, error in pairs])


def joined(parts: Sequence[Entries]) -> Entries:
    """Values one after another."""
    items = [item for part in parts for item in part.items]
    errors = [error for part in parts for error in part.errors]
    return Entries(items, errors)


def added_up(terms: Sequence[Element]) -> Element:
    """The sum of one element or more."""
    total = terms[0]
    for term in terms[1:]:
        total = plus(total, term)
    return total


def size_of(item: Element) -> arb:
    """A bound of the absolute value."""
    return underlying(item).range().abs_upper()


def within(entry: Entry, known: arb, strayed: arb) -> Entry:
    """An entry of which the executed value too is within ``strayed`` of ``known``: by that alone where it says more.

    Lemma: of an entry is used only that its executed value is within the error of some value of the item.
    """
    item, error = entry
    width = underlying(item).range().rad() + error
    if width <= known.rad() + strayed or not isinstance(item, Taylor):
        return entry
    return constant(known, item.order), strayed


def _sum(ex: NetworkPass | None, a: Entry, b: Entry, kinks: Kinks) -> Entry:
    item = plus(a[0], b[0])
    return item, ZERO if ex is None else ex.rounded(size_of(item), a[1] + b[1], 1)


def _difference(ex: NetworkPass | None, a: Entry, b: Entry, kinks: Kinks) -> Entry:
    return _sum(ex, a, (-b[0], b[1]), kinks)


def _product(ex: NetworkPass | None, a: Entry, b: Entry, kinks: Kinks) -> Entry:
    item = times(a[0], b[0])
    if ex is None:
        return item, ZERO
    passed = size_of(a[0]) * b[1] + size_of(b[0]) * a[1] + a[1] * b[1]
    return item, ex.rounded(size_of(item), passed, 1)


def _quotient(ex: NetworkPass | None, a: Entry, b: Entry, kinks: Kinks) -> Entry:
    item = times(a[0], smooth("inv", b[0]))
    if ex is None:
        return item, ZERO
    near = underlying(b[0]).range().abs_lower() - b[1]
    if not near > 0:
        return item, INFINITE
    # a'/b' - a/b = ((a' - a) - (a/b) (b' - b)) / b'.
    passed = (a[1] + size_of(item) * b[1]) / near
    return item, ex.rounded(size_of(item), passed, 1)


def _chosen(
    which: Callable[[Element, Element, Kinks], Element], above: bool
) -> Callable[[NetworkPass | None, Entry, Entry, Kinks], Entry]:
    """The smaller or the larger (``above``) of two, which errs by no more than both; by its own error if it is sure."""

    def chosen(ex: NetworkPass | None, a: Entry, b: Entry, kinks: Kinks) -> Entry:
        low, high = (underlying(a[0]) - underlying(b[0])).ends()
        apart = a[1] + b[1]
        if low > apart:
            return a if above else b
        if high < -apart:
            return b if above else a
        found = which(a[0], b[0], kinks)
        if isinstance(found, Taylor) and not found.support:  # of balls alone, which forget what they share
            pick = arb.max if above else arb.min
            low, high = (pick(*pair) for pair in zip(underlying(a[0]).ends(), underlying(b[0]).ends(), strict=True))
            found = constant(low.union(high), found.order)
        return found, a[1].max(b[1])

    return chosen


PAIRS: dict[str, Callable[[NetworkPass | None, Entry, Entry, Kinks], Entry]] = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "div": _quotient,
    "minimum": _chosen(smaller, above=False),
    "maximum": _chosen(larger, above=True),
}
