"""The checker on one lookup head of an inner function, which may be a product of functions of one direction each.

A head over a grid averages axis by axis. Where its values are products of one number per axis, the average is the
product of the averages along the axes; where they are so up to d, it is within d of that. With averages A_a within e_a
of phi_a, |A_1 ... A_r - phi_1 ... phi_r| is at most the sum over a of |phi_1| ... |phi_(a-1)| e_a |A_(a+1)| ... |A_r|.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from onelayer.checker.arithmetic import ZERO
from onelayer.checker.attention import Matrix
from onelayer.checker.deadline import need_time
from onelayer.checker.rounding import Execution
from onelayer.checker.univariate import Average, distance, range_of
from onelayer.checker.weights import Array
from onelayer.language.formula import parse

AVERAGES = 6  # parts of an interval on which a looked-up function is compared to begin with


@dataclass(frozen=True)
class Seen:
    """A linear form on the box: its ends, a bound of the sizes it adds up, the number of its terms."""

    low: arb
    high: arb
    size: arb
    terms: int


@dataclass(frozen=True)
class LookedUp:
    """A looked-up inner function: ends of phi, sup |A - phi|, sup |A|, and the rounding of an executed A."""

    ends: tuple[arb, arb]
    error: arb
    size: arb
    rounding: arb


def features(axes: int) -> int:
    """Features of a key: one per axis and one for the bias, at least 4 and else 16, whose roots are exact."""
    return 4 if axes < 4 else 16


def looked_up(
    texts: Sequence[str],
    seen: Sequence[Seen],
    keys: Sequence[Array],
    values: Array,
    columns: Sequence[Sequence[float]] | None,
    execution: Execution,
) -> LookedUp | None:
    """The head with these keys and values; None where a function is undefined or the columns are of other lengths."""
    along = [values.tolist()] if columns is None else [list(column) for column in columns]
    if tuple(map(len, along)) != values.shape:
        return None
    ends = (arb(1), arb(1))
    error = ZERO
    size = arb(1)
    growth = arb(1)
    lost = ZERO
    for a, (text, form) in enumerate(zip(texts, seen, strict=True)):
        slopes = keys[a][:, a].tolist()
        biases = keys[a][:, len(texts)].tolist()
        bottom, top = outward(form.low, form.high)
        formula = parse(text, 1, limit=len(text))
        own = range_of(formula, bottom, top)
        if not (own[0].is_finite() and own[1].is_finite()):
            return None
        table = Matrix(np.array(along[a])[:, None])
        pieces = [Average(low, high, slopes, biases, table) for low, high in cut_into(bottom, top, AVERAGES)]
        apart = distance(formula, pieces)
        largest = own[0].abs_upper().max(own[1].abs_upper())
        # Of the factors so far: |A - phi| <= |A' - phi'| (|phi_a| + e_a) + |phi'| e_a, primes for those before.
        error = error * (largest + apart) + size * apart
        size = size * largest
        ends = own if a == 0 else _times(ends, own)
        # Relative errors of the axes multiply, as their weights do.
        average, absolute = _executed(slopes, biases, form, execution)
        growth = growth * (1 + average)
        lost = lost + absolute
    most = arb(float(np.abs(values).max()))
    deviation = ZERO if columns is None else _deviation(values, along)
    rounding = most * (growth - 1 + 2 * lost) + execution.underflow(sum(map(len, along)))
    return LookedUp(ends, error + deviation, most, rounding)


def _deviation(values: Array, along: Sequence[Sequence[float]]) -> arb:
    """The largest distance of a value to the product of its numbers."""
    worst = ZERO
    for place in itertools.product(*(range(len(column)) for column in along)):
        need_time()
        product = arb(1)
        for column, m in zip(along, place, strict=True):
            product = product * arb(column[m])
        worst = worst.max((arb(float(values[place])) - product).abs_upper())
    return worst


def _executed(slopes: Sequence[float], biases: Sequence[float], form: Seen, execution: Execution) -> tuple[arb, arb]:
    """Relative error of one executed axis: its query, its logits, softmax, and the sum; and what underflow adds."""
    e = execution
    count = len(slopes)
    # Of 2 d . x, or of 4 d . x.
    query = e.gamma(form.terms) * 4 * form.size + e.underflow(form.terms)
    errors = []
    spreads = []
    for a, b in zip(slopes, biases, strict=True):
        steep = abs(arb(a))
        logit = steep * form.size + abs(arb(b))
        # The query is divided by 2 or 4 without rounding; then two products and a sum.
        rounding = e.gamma(3) * (logit + steep * query)
        errors.append(steep * query / 2 + rounding + 8 * e.tiny)
        spreads.append((-logit).union(logit))
    relative, absolute = e.softmax(spreads, errors, [arb(1)] * count)
    worst = relative[0]
    for one in relative[1:]:
        worst = worst.max(one)
    # The weights add up to one, so a relative error of all of them is at most that of the average.
    return worst + e.gamma(count + 1) * (1 + worst), count * absolute


def _times(a: tuple[arb, arb], b: tuple[arb, arb]) -> tuple[arb, arb]:
    products = [x * y for x in a for y in b]
    low = products[0]
    high = products[0]
    for one in products[1:]:
        low = low.min(one)
        high = high.max(one)
    return low.lower(), high.upper()


def cut_into(low: float, high: float, count: int) -> list[tuple[float, float]]:
    """The interval in equal parts."""
    if not low < high:
        return [(low, high)]
    edges = [low, *(low + (high - low) * k / count for k in range(1, count)), high]
    return list(itertools.pairwise(edges))


def outward(low: arb, high: arb) -> tuple[float, float]:
    """Floats around two numbers; a float stays as it is."""
    bottom = float(low.lower())
    top = float(high.upper())
    while not arb(bottom) <= low:
        bottom = float(np.nextafter(bottom, -np.inf))
    while not high <= arb(top):
        top = float(np.nextafter(top, np.inf))
    return bottom, top
