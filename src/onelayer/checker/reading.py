"""What a text means, read twice: by the parser that the certifier has too, and by a reader of the checker's own.

The meaning of f is the one thing that certifier and checker would otherwise take from the same code. The second reader
has its own words and its own grammar, and no tree: it computes while it reads, with every function as Arb has it and
nothing cancelled or rewritten. A text that is not one function to both, at points drawn each time, is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import SystemRandom

from flint import arb

from onelayer.checker.arithmetic import constant
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.checker.outcome import Rejected
from onelayer.checker.sentence import Sentence, Unread
from onelayer.language.formula import Formula
from onelayer.language.requirement import Requirement

POINTS = 16  # of the domain, and as many around 0, where a factor that vanishes on the domain need not
WORK = 2**14  # characters of text times points: long texts are compared at fewer
Domain = tuple[Sequence[float], Sequence[float]]
Points = list[tuple[float, ...]]


def need_one_function(text: str, formula: Formula, names: Sequence[str], domain: Domain) -> None:
    """Reject a text that is another function, to the second reader, than its formula."""
    count = _count(text)
    points = _around_zero(formula.dim, count) + _within(domain, count)
    try:
        rows = Sentence(text, points, names).outputs()
    except Unread as unread:
        raise Rejected(f"the function cannot be read a second time: {unread}") from None
    if len(rows) != len(formula.outputs):
        raise Rejected(f"the function has {len(rows)} outputs to one reader and {len(formula.outputs)} to the other")
    for at, (point, values) in enumerate(_values(formula, points)):
        for value, row in zip(values, rows, strict=True):
            own = row.values[at % len(row.values)]
            if not _agree(value, own):
                shown = "no number" if own is None else own.str(8, radius=False)
                raise Rejected(f"the function is {value.str(8, radius=False)} or {shown} at {point[:8]}")


def need_one_condition(text: str, requirement: Requirement, names: Sequence[str]) -> None:
    """Reject a condition that does not hold, to the second reader, exactly where its margins are good."""
    margins = requirement.margins
    points = _around_zero(margins.dim, _count(text))
    try:
        truths = Sentence(text, points, names).condition()
    except Unread as unread:
        raise Rejected(f"the condition cannot be read a second time: {unread}") from None
    for (point, values), truth in zip(_values(margins, points), truths, strict=True):
        if truth is not None and _good(values) is (not truth):
            raise Rejected(f"the condition is true to one reader and false to the other at {point[:8]}")


def _good(margins: Sequence[arb]) -> bool | None:
    """Whether margins are sure to make a condition hold, or sure to make it fail; None where one may be zero."""
    if all(margin > 0 for margin in margins):
        return True
    known = all(margin.is_finite() for margin in margins)
    return False if known and any(margin < 0 for margin in margins) else None


def _count(text: str) -> int:
    return max(2, min(POINTS, WORK // (1 + len(text))))


def _values(formula: Formula, points: Points) -> Iterator[tuple[tuple[float, ...], list[arb]]]:
    for point in points:
        x = [constant(arb(coordinate), 1) for coordinate in point]
        yield point, [item.c[0] for item in evaluate(formula, x, Kinks())]


def _agree(value: arb, own: arb | None) -> bool:
    """Whether they may be one number. Where the formula has no value nothing can be proved, so nothing is asked."""
    if not value.is_finite():
        return True
    if own is None:
        return False
    return not own.is_finite() or bool(value.overlaps(own))


def _within(domain: Domain, count: int) -> Points:
    """Points of the domain, some of them corners."""
    rng = SystemRandom()
    sides = list(zip(*domain, strict=True))
    corners = [tuple(rng.choice(side) for side in sides) for _ in range(1 + count // 8)]
    inner = [tuple(_between(low, high, rng.random()) for low, high in sides) for _ in range(count)]
    return corners + inner


def _between(low: float, high: float, share: float) -> float:
    # Halves first: the width of a domain may be no float.
    return min(max(2 * (low / 2 + share * (high / 2 - low / 2)), low), high)


def _around_zero(dim: int, count: int) -> Points:
    """Numbers of both signs and some sizes, whole ones among them."""
    rng = SystemRandom()
    points = []
    for _ in range(count):
        sizes = [(1 + rng.random()) * 2.0 ** rng.randint(-4, 3) for _ in range(dim)]
        points.append(tuple(rng.choice((size, -size, float(round(size)))) for size in sizes))
    return points
