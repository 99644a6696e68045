"""The boxes of a proof, proved again: many at a time in floats, what resists one by one in balls, by several processes.

A chunk is some boxes that follow each other in the tree. It is proved or not by itself, so neither the order of the
chunks nor who proves them matters.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.synchronize import Event

import numpy as np

from onelayer.checker.boxes import OPEN, PROVED, BoxOutcome, Evaluated, Prover
from onelayer.checker.layer import Layer
from onelayer.checker.outcome import Crowded, Rejected
from onelayer.checker.precision import precise
from onelayer.checker.record import Record
from onelayer.checker.sweep import Sweep, knows
from onelayer.checker.weights import Array
from onelayer.language.formula import Formula
from onelayer.observer import Observer

BUDGET = 200  # bisections per box, in balls
TRIAL_BUDGET = 12  # bisections in a trial of an order: enough to compare orders, a twentieth of a full proof
LOWEST = 2  # order of the cheapest trial: on wide boxes of a network more coefficients only cost
TRIALS = 3  # boxes on which orders are compared
WORTH_TRIALS = 40  # boxes left to balls from which that pays
CHUNKS = 8  # at least so many of a proof with enough boxes, so that where time ends they are a fair sample
SMALLEST = 128  # boxes of a chunk: fewer cost as much
START = 2.0  # seconds of computing before other processes are asked
LOOK = 0.1  # seconds between two looks at the observer while others compute
FORKS = sys.platform == "linux"


class Reproof:
    """Proves |T - f| <= upper on the leaves of a tree, given by their corners (N, D)."""

    def __init__(
        self,
        record: Record,
        executed: Evaluated,
        formula: Formula,
        boxes: tuple[Array, Array],
        observer: Observer,
    ) -> None:
        """``executed`` is what the claim is about; a layer is one that floats can take."""
        self.record = record
        self.executed = executed
        self.formula = formula
        self.observer = observer
        self.low, self.high = boxes
        self.order = max(2, min(record.order or 4, 8))
        self.sweep: Sweep | None = None
        if isinstance(executed, Layer) and knows(formula):
            self.sweep = Sweep(executed, formula, record.upper, self.order, observer)
        self.prover: Prover | None = None

    def chunks(self) -> list[slice]:
        """All boxes, in the order of the tree."""
        count = len(self.low)
        most = 1 if self.sweep is None else self.sweep.at_once
        size = max(1, min(most, max(SMALLEST, -(-count // CHUNKS))))
        return [slice(at, min(at + size, count)) for at in range(0, count, size)]

    def __call__(self, chunk: slice) -> None:
        """Returns when every box of the chunk is proved; Rejected when one cannot be, Stopped when time is over."""
        low = self.low[chunk]
        high = self.high[chunk]
        proved = np.zeros(len(low), dtype=bool)
        if self.sweep is not None:
            try:
                proved = self.sweep(low, high)
            except Crowded:  # more coefficients than its count of roundings covers
                self.sweep = None
        for at in np.flatnonzero(~proved).tolist():
            self._in_balls(low[at].tolist(), high[at].tolist())

    def _in_balls(self, low: list[float], high: list[float]) -> None:
        record = self.record
        if self.prover is None:
            self.prover = self._chosen(low, high)
        verdict = self.prover(low, high)
        above = max(self.order, self.prover.order + 2)
        for order in (above, above + 2):
            if verdict.outcome == OPEN:
                verdict = self._prover(order, BUDGET // 4)(low, high)
        if verdict.outcome != PROVED:
            raise Rejected(_complaint(record, verdict))

    def _prover(self, order: int, budget: int) -> Prover:
        return Prover(self.executed, self.formula, self.record.upper, order, budget, self.observer)

    def _chosen(self, low: list[float], high: list[float]) -> Prover:
        """With the order of the Taylor arithmetic that is fastest on a few of the boxes."""
        if len(self.low) < WORTH_TRIALS:
            return self._prover(self.order, BUDGET)
        picked = [(low, high), *((self.low[at].tolist(), self.high[at].tolist()) for at in range(TRIALS - 1))]
        fastest = math.inf
        best = self.order
        for order in sorted({LOWEST, max(LOWEST, self.order - 2), self.order, self.order + 2}):
            spent = self._trial(order, picked, fastest)
            if spent < fastest:
                fastest, best = spent, order
            elif fastest < math.inf:  # every higher one costs more
                break
        return self._prover(best, BUDGET)

    def _trial(self, order: int, boxes: Sequence[tuple[list[float], list[float]]], patience: float) -> float:
        """Seconds in which boxes are proved at an order, infinite where one resists; given up when it takes longer."""
        prover = self._prover(order, TRIAL_BUDGET)
        started = time.monotonic()
        for low, high in boxes:
            try:
                resists = prover(low, high).outcome == OPEN
            except Crowded:
                resists = True
            if resists or time.monotonic() - started > patience:
                return math.inf
        return time.monotonic() - started


def _complaint(record: Record, verdict: BoxOutcome) -> str:
    point = ", ".join(f"{value:.6g}" for value in verdict.place)
    if verdict.outcome == OPEN:
        known = f"only |T - f| <= {verdict.bound:.3g} could be proved"
        return f"near ({point}) {known}, the certificate states {record.upper:.6g}"
    return f"at ({point}) |T - f| >= {verdict.bound:.6g}, above the stated upper bound {record.upper:.6g}"


def proved_chunks(reproof: Reproof, chunks: Sequence[slice], jobs: int) -> Iterator[slice]:
    """The chunks as they are proved: here at first, by ``jobs`` processes (-1: one per core) if it takes long."""
    started = time.process_time()
    jobs = _cores() if jobs == -1 else jobs
    for done, chunk in enumerate(chunks):
        if jobs > 1 and FORKS and len(chunks) - done > 1 and time.process_time() - started > START:
            yield from _shared(reproof, chunks[done:], jobs)
            return
        reproof(chunk)
        yield chunk


def _cores() -> int:
    """One process per core, and no more in a process that shares the work of another."""
    if multiprocessing.parent_process() is not None:
        return 1
    if FORKS:
        return len(os.sched_getaffinity(0))
    return 1


def _shared(reproof: Reproof, chunks: Sequence[slice], jobs: int) -> Iterator[slice]:
    """By forked processes; what one of them could not finish is done here."""
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    # As an argument, which no other thread sees: a variable of the module may be that of another check when they fork.
    held = (reproof, stop, os.getpid())
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=held)
    try:
        waiting = {pool.submit(_work, chunk): chunk for chunk in chunks}
        while waiting:
            reproof.observer.check()
            ready, _ = wait_for(waiting, timeout=LOOK, return_when="FIRST_COMPLETED")
            for future in ready:
                yield _settled(future, waiting.pop(future), reproof)
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _settled(future: Future[None], chunk: slice, reproof: Reproof) -> slice:
    try:
        future.result()
    except BrokenExecutor:  # its processes died
        reproof(chunk)
    return chunk


_HELD: list[Reproof] = []  # of a forked process, what it works on


class BoxesApart(Observer):
    """In a forked process: silent, and over when its parent says so or is gone."""

    def __init__(self, stop: Event, parent: int, seconds: float) -> None:
        super().__init__(seconds)
        self.stop = stop
        self.parent = parent

    @property
    def over(self) -> bool:
        """Also when the parent has ended."""
        return self.stop.is_set() or os.getppid() != self.parent or super().over


def _begin(reproof: Reproof, stop: Event, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    _HELD[:] = [reproof]
    apart = BoxesApart(stop, parent, reproof.observer.seconds_left)
    for one in (reproof, reproof.sweep, reproof.prover):
        if one is not None:
            one.observer = apart


def _work(chunk: slice) -> None:
    with precise():
        _HELD[0](chunk)
