"""What holds an average of values whatever its weights, or whatever is known of them: balls, and errors beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from flint import arb

from onelayer.checker.arithmetic import UNIT_BALL, ZERO, Taylor, constant

if TYPE_CHECKING:
    from onelayer.checker.attention import Matrix, Vector


def by_weight(own: Sequence[Vector], table: Matrix | None, upper: Sequence[arb], hulls: list[arb]) -> list[arb]:
    """Balls of the real averages: the r of one token and sum_m w_m (v_m - r), of which 0 <= w_m <= upper_m is known.

    What a token that hardly weighs anything holds does not count then, however large it is. Where nothing is known of
    the weights, or on many boxes at once, the hulls of all values are returned.
    """
    if not all(isinstance(known, arb) for known in (*upper, *hulls)) or not upper:
        return hulls
    found = []
    for at, hull in enumerate(hulls):
        values = [value.items[at].range() for value in own]
        values += table.column(at) if table is not None else []
        ball = _averages(values, upper)
        known = ball.is_finite() and ball.overlaps(hull)
        found.append(hull.intersection(ball) if known else hull)
    return found


def _averages(values: Sequence[arb], upper: Sequence[arb]) -> arb:
    """All averages of numbers whose weights are at most ``upper``; not finite where one has no value."""
    # Any token will do for r; the one that may weigh most leaves the least.
    middle = values[max(range(len(upper)), key=lambda m: float(upper[m]))].mid()
    top = bottom = middle
    for value, weight in zip(values, upper, strict=True):
        gap = value - middle
        top = top + gap.upper().max(ZERO) * weight
        bottom = bottom + gap.lower().min(ZERO) * weight
    return bottom.lower().union(top.upper())


def narrowed(items: Sequence[Taylor], known: Sequence[arb]) -> list[Taylor]:
    """Averages, as constants where less is said of them than that they lie in these balls."""
    return [item.unless_wider(ball) for item, ball in zip(items, known, strict=True)]


def hulls_of(own: Sequence[Vector], table: Matrix | None, width: int) -> list[arb]:
    """Per column a ball that holds the executed values of all tokens."""
    found: list[list[arb]] = [[] for _ in range(width)]
    for value in own:
        for column, item, error in zip(found, value.items, value.errors, strict=True):
            column.append(item.range() + error * UNIT_BALL)
    if table is not None:
        for at, (low, high) in enumerate(zip(*(side.tolist() for side in table.ends), strict=True)):
            # The columns of a grid repeat those of a value.
            found[at % width].append(arb(low).union(arb(high)))
    return [reduce(_around, column) for column in found]


def _around(a: Any, b: Any) -> Any:
    """What holds both; a token that is constant is one ball, whatever the number of boxes is that others vary with."""
    if isinstance(a, arb) and not isinstance(b, arb):
        return b.union(a)
    return a.union(b)


def unless_farther(item: Taylor, error: arb, hull: arb, spread: arb) -> tuple[Taylor, arb]:
    """An average and its error; all values and how far the executed average may lie beside them if that alone is less.

    The error is then one of some number in their ball, and no more that of the real average.
    Of ``spread`` a radius is what the real average strays from the centre and another what the executed one does, so
    the rest of it is how far the executed one lies from the ball of all values, which holds the real one too.
    """
    beside = (spread - 2 * hull.rad()).upper()
    # What still follows the variables of the box is worth more than a smaller sum of both.
    if not item.support and error > hull.rad() + beside:
        return constant(hull, item.order), beside
    return item, error
