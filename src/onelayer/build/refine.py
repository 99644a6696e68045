"""The one retry loop of constructions that a lemma proves: build for a goal, prove, correct the goal by the bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from onelayer.observer import Observer
from onelayer.result import Approximation

ATTEMPTS = 4  # two suffice as a rule
# Of the goal that the last bound suggests: the next bound is not quite in proportion.
ROOM = 0.97
# A bound far above its goal is mostly rounding, which a much smaller goal would not reduce.
SMALLEST_STEP = 0.3


def refined(
    build: Callable[[float], Approximation],
    eps: float,
    observer: Observer,
    *,
    goal: float | None = None,
    fixed: float = 0.0,
) -> Approximation:
    """The smallest bound that ``build(goal)`` reaches in a few attempts; at least one is made, however little time.

    ``fixed`` is the part of every bound that no goal changes: where it exceeds eps, one attempt is all.
    """

    def attempts() -> Iterator[Approximation]:
        wanted = eps if goal is None else goal
        for _ in range(ATTEMPTS):
            made = build(wanted)
            yield made
            upper = made.certificate.upper
            # Written so that a bound that is nan ends it too.
            hopeless = not upper < math.inf or fixed >= eps
            if made.certificate.proved or hopeless or observer.over:
                return
            suggested = ROOM * (eps - fixed) / (upper - fixed)
            wanted *= max(SMALLEST_STEP, suggested)

    return min(attempts(), key=lambda attempt: attempt.certificate.upper)
