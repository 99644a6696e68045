"""The standing of a race: the best layer so far, and the history of what was tried."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from onelayer.errors import OnelayerError
from onelayer.observer import Observer
from onelayer.portfolio.task import FIT_TIME
from onelayer.result import Approximation, Attempt

Build = Callable[[Observer], Iterator[Approximation]]


class Standing:
    """What has been found so far."""

    def __init__(self) -> None:
        self.best: Approximation | None = None
        self.history: list[Attempt] = []
        self.error: OnelayerError | None = None
        # The last one, where its time was over before its proof was.
        self.cut: Approximation | None = None
        # Whether the last way had used up the time of a fit.
        self.hurried = False
        self.started = time.monotonic()

    def run(self, way: str, build: Build, watch: Observer) -> None:
        """One way, in its slice of the time: the best is kept, a failure noted."""
        begun = started = time.monotonic()
        enough = FIT_TIME * watch.seconds_left
        try:
            for made in build(watch):
                seconds = time.monotonic() - begun
                self.history.append(_attempt(way, made, seconds))
                self.best = made if self.best is None else min(self.best, made, key=preference)
                self.cut = made if made.certificate.status == "undecided" else None
                begun = time.monotonic()
        except OnelayerError as error:
            self.error = self.error or error
            seconds = time.monotonic() - begun
            self.history.append(Attempt(way, "failed", 0.0, math.inf, 0, seconds, str(error)))
        # With time left, the proof gave up for another reason, and would do so again.
        if not watch.over:
            self.cut = None
        self.hurried = time.monotonic() - started >= enough

    @property
    def proved(self) -> bool:
        return self.best is not None and self.best.certificate.proved

    @property
    def upper(self) -> float:
        if self.best is not None:
            return self.best.certificate.upper
        return math.inf

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def stalled(self) -> bool:
        """Whether a lookup ended undecided although its tokens were allowed: the proof, not the fit, gave up."""
        last = [attempt for attempt in self.history if attempt.way == "lookup"]
        if self.proved or not last:
            return False
        return last[-1].status == "undecided"

    def result(self) -> Approximation:
        """The best, with the history; the first error where there is nothing else."""
        if self.best is None:
            raise self.error or OnelayerError("nothing was built; raise max_seconds")
        return replace(self.best, history=tuple(self.history))


def preference(made: Approximation) -> tuple[bool, float]:
    """Proofs by size, the others by their bound."""
    if made.certificate.proved:
        return False, float(made.size()["parameters"])
    return True, made.certificate.upper


def _attempt(way: str, made: Approximation, seconds: float) -> Attempt:
    certificate = made.certificate
    parameters = made.size()["parameters"]
    return Attempt(
        way, certificate.status, certificate.lower, certificate.upper, parameters, seconds, certificate.condition
    )
