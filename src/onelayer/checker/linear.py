"""Linear attention in the checker's arithmetic: features, their moments over the tokens, and one quotient.

    phi(u) = (1, u, u (x) u / sqrt(2!), ...) up to an even order, or elu(u) + 1 entry by entry
    head   = phi(q) sum_m phi(k_m) v_m / phi(q) sum_m phi(k_m)

Lemma: phi(q) . phi(k) > 0, so the head is an average of the values with weights >= 0 and lies in their hull. With
features of order n the product is sum_p l^p / p! of the logit l, whose least value over all l is stated in FLOORS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flint import arb

from onelayer.checker.arithmetic import UNIT_BALL, ZERO, Taylor, constant
from onelayer.checker.attention import Vector, dot, sum_of
from onelayer.checker.functions import Kinks, apply
from onelayer.checker.magnitudes import factor, feature_count
from onelayer.checker.rounding import INFINITE, Execution, largest, size
from onelayer.errors import UnsupportedOperation

MOST_FEATURES = 2**10  # more would take minutes in balls
# sum_{p <= n} l^p / p! is least where its derivative, the sum up to n - 1, is 0: at -1 for n = 2 and -1.5961 for n = 4,
# with values 0.5 and 0.2700. Less than these, since the stored factors 1 / sqrt(p!) are rounded.
FLOORS = {2: 0.49, 4: 0.26}


class LinearHead:
    """One head of linear attention over tokens with keys and values."""

    def __init__(self, feature: str, order: int, execution: Execution | None) -> None:
        self.feature = feature
        self.order = order
        self.execution = execution

    def __call__(self, query: Vector, keys: Sequence[Vector], values: Sequence[Vector], kinks: Kinks) -> Vector:
        """What the head returns for one query that is scaled already."""
        if feature_count(len(query), self.feature, self.order) > MOST_FEATURES:
            raise UnsupportedOperation("linear attention of so many features", f"up to {MOST_FEATURES:,} are re-proved")
        noted = self.execution is not None and self.execution.open
        found = self._bounded(query, keys, values, kinks)
        if self.execution is not None:
            # What may overflow in here has left an error that is not finite; one of two bounds may do so.
            self.execution.open = noted
        return found

    def _bounded(self, query: Vector, keys: Sequence[Vector], values: Sequence[Vector], kinks: Kinks) -> Vector:
        """The head with the smaller of two bounds of each error."""
        found = self._average(query, keys, values, kinks)
        rows = [query, *keys, *values]
        exact = all(error.is_zero() for row in rows for error in row.errors)
        if self.execution is None or exact or not self._gentle():
            return found
        other = self._passed_on(query, keys, values, kinks)
        return Vector(found.items, [_smaller(a, b) for a, b in zip(found.errors, other, strict=True)])

    def _passed_on(self, query: Vector, keys: Sequence[Vector], values: Sequence[Vector], kinks: Kinks) -> list[arb]:
        """A second bound of the errors: the rounding of a head whose numbers are all that the executed ones may be, and
        how far the real average moves to theirs."""
        wide_keys = [_widened(key) for key in keys]
        wide_values = [_widened(value) for value in values]
        wide = self._average(_widened(query), wide_keys, wide_values, kinks)
        moved = _moved(self._strayed(query, keys, values), values)
        return [(rounding + m).upper() for rounding, m in zip(wide.errors, moved, strict=True)]

    def _gentle(self) -> bool:
        """Whether the logarithm of the kernel is known to rise by no more than its logit, or entry, does."""
        return self.feature == "elu" or self.order == 2

    def _strayed(self, query: Vector, keys: Sequence[Vector], values: Sequence[Vector]) -> arb:
        """By how much logarithms of the kernel move when query and keys err, summed over entries.

        Lemma: d average = sum_m w_m (v_m - average) d log kernel_m, and sum_m w_m |v_m - average| is at most half the
        width of the hull of the values. With elu, phi' <= phi, so an entry moves the logarithm by no more than itself;
        with order 2, |1 + l| <= 1 + l + l^2 / 2, so a logit does.
        """
        total = ZERO
        for at in range(len(query)):
            moved = largest([key.errors[at] for key in keys])
            if self.feature == "elu":
                total = total + query.errors[at] + moved
            else:
                own = size(query.items[at]) + query.errors[at]
                longest = largest([size(key.items[at]) + key.errors[at] for key in keys])
                total = total + query.errors[at] * longest + moved * own
        # The factor 1 / sqrt(2) is a rounded one.
        return total * (1 + arb(2) ** -30)

    def _average(self, query: Vector, keys: Sequence[Vector], values: Sequence[Vector], kinks: Kinks) -> Vector:
        features = self.features(query, kinks)
        seen = [self.features(key, kinks) for key in keys]
        # Of the tokens, per feature.
        columns = [self._column(seen, at) for at in range(len(features))]
        sums = self._stacked([self._total(column) for column in columns])
        mass = self._dot(features, sums)
        below = self._floor(query, keys, mass.items[0])
        inverse = apply("inv", mass.items[0], (below, mass.items[0].range().upper().max(below)))
        found: list[tuple[Taylor, arb]] = []
        for at in range(len(values[0])):
            value = self._column(values, at)
            moments = self._stacked([self._dot(column, value) for column in columns])
            found.append(self._quotient(self._dot(features, moments), mass, inverse, below, value))
        return Vector([item for item, _ in found], [error for _, error in found])

    def features(self, u: Vector, kinks: Kinks) -> Vector:
        """phi(u)"""
        if self.feature == "elu":
            return self._bent(u, kinks)
        return self._powers(u)

    def _bent(self, u: Vector, kinks: Kinks) -> Vector:
        """relu(u) + exp(-relu(-u)), the exponential of a negative number or one more than a positive one."""
        items = [kinks.relu(item) + apply("exp", -kinks.relu(-item)) for item in u.items]
        if self.execution is None:
            return Vector(items, [ZERO] * len(items))
        errors = []
        for item, entry in zip(items, u.entries(), strict=True):
            feature = size(item)
            error = self._bent_error(self.execution, feature, *entry)
            errors.append(self.execution.safe(error, feature + error))
        return Vector(items, errors)

    def _bent_error(self, ex: Execution, feature: arb, u: Taylor, error: arb) -> arb:
        """Error of a feature up to ``feature`` that is executed of u' with |u' - u| <= error.

        Neither slope nor exponential exceed exp(min(u + error, 0)); the exponential errs by 8 units of itself. Its
        sum with relu(u') is rounded once, and is exact where u' cannot be positive.
        """
        highest = (u.range().upper() + error).upper()
        most = highest.min(ZERO).exp().upper()
        passed = most * (error + 8 * ex.unit) + ex.tiny
        if highest <= 0:
            return passed.upper()
        return (passed + ex.unit * (feature + passed) + ex.tiny).upper()

    def _powers(self, u: Vector) -> Vector:
        """All products of up to ``order`` entries, times their factors."""
        one = Vector([constant(arb(1), u.items[0].order)], [ZERO])
        found = [one]
        power = u
        for p in range(1, self.order + 1):
            if p > 1:
                pairs = [(i, j) for i in range(len(power)) for j in range(len(u))]
                power = self._stacked([self._dot(power[i : i + 1], u[j : j + 1]) for i, j in pairs])
            found.append(self._scaled(power, factor(p)))
        return self._stacked(found)

    def _scaled(self, u: Vector, by: float) -> Vector:
        items = [item.scaled(arb(by)) for item in u.items]
        ex = self.execution
        return Vector(items, [ZERO] * len(items) if ex is None else ex.scaled(by, u.sizes(), u.errors))

    def _dot(self, a: Vector, b: Vector) -> Vector:
        error = ZERO
        if self.execution is not None:
            error = self.execution.dot(a.sizes(), a.errors, b.sizes(), b.errors)
        return Vector([dot(a.items, b.items)], [error])

    def _total(self, column: Vector) -> Vector:
        error = ZERO if self.execution is None else self.execution.summed(column.sizes(), column.errors)
        return Vector([sum_of(column.items)], [error])

    def _column(self, rows: Sequence[Vector], at: int) -> Vector:
        return self._stacked([row[at : at + 1] for row in rows])

    def _stacked(self, parts: Sequence[Vector]) -> Vector:
        return Vector([item for part in parts for item in part.items], [e for part in parts for e in part.errors])

    def _floor(self, query: Vector, keys: Sequence[Vector], mass: Taylor) -> Any:
        """A lower bound of the real denominator: what its range says, or what features always have."""
        known = mass.range().lower()
        if self.feature != "elu":
            return known.max(arb(len(keys) * FLOORS.get(self.order, 0.0)))
        least = ZERO * known
        for at, item in enumerate(query.items):
            tokens = ZERO * known
            for key in keys:
                tokens = tokens + _least_feature(key.items[at])
            least = least + _least_feature(item) * tokens
        return known.max(least.lower())

    def _quotient(self, top: Vector, mass: Vector, inverse: Taylor, below: Any, value: Vector) -> tuple[Taylor, arb]:
        """N / Z and the error of its execution.

        With errors n, z of N, Z >= b and |N / Z| <= a the quotient errs by (n + a z) / (b - z), then by one rounding.
        """
        order = top.items[0].order
        hull = value.items[0].range()
        for item in value.items[1:]:
            hull = hull.union(item.range())
        average = (top.items[0] * inverse).at_order(order).unless_wider(hull)
        ex = self.execution
        if ex is None:
            return average, ZERO
        most = hull.abs_upper().min(average.range().abs_upper())
        left = (below - mass.errors[0]).lower()
        if not left > 0:
            return average, INFINITE
        error = (top.errors[0] + most * mass.errors[0]) / left
        error = (error + ex.unit * (most + error) + 2 * ex.tiny).upper()
        return average, ex.safe(error, most + error)


def _least_feature(u: Taylor) -> Any:
    """At most elu(u) + 1: exp(u), and no more than 1."""
    return ((u.range().lower() * arb(-1)).max(ZERO) * arb(-1)).exp().lower()


def _widened(row: Vector) -> Vector:
    """Everything that the executed numbers of a row may be, as if it were exact."""
    return Vector([item.shifted(e * UNIT_BALL) for item, e in row.entries()], [ZERO] * len(row))


def _moved(strayed: arb, values: Sequence[Vector]) -> list[arb]:
    """Per entry of a value what the average moves by: half the width of its hull for each unit, and its own errors."""
    found = []
    for at in range(len(values[0])):
        hull = values[0].items[at].range() + values[0].errors[at] * UNIT_BALL
        for value in values[1:]:
            hull = hull.union(value.items[at].range() + value.errors[at] * UNIT_BALL)
        found.append(arb(hull.rad()) * strayed + largest([value.errors[at] for value in values]))
    return found


def _smaller(a: arb, b: arb) -> arb:
    """The smaller of two bounds; one that is no number is none."""
    if not a.is_finite():
        return b
    if b.is_finite():
        return a.min(b)
    return a
