"""Who encloses the chunks of a round: this process, more processes of this machine, or any executor.

A chunk is enclosed by a function of the chunk alone, and a round is cut into chunks by the number of its boxes alone:
who computes them, how many there are and in which order they finish cannot change a certificate.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import joblib
import numpy as np
import torch
from joblib.executor import get_memmapping_executor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.language.formula import Formula
from onelayer.layer.file import weights_sha256
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Stopped
from onelayer.proof.boxes import Boxes
from onelayer.proof.error import MAX_NODES, Enclosure, ErrorFunction, error_function
from onelayer.proof.tree import Floats, Ints
from onelayer.recording.target import as_target

START = 3.0  # seconds of computing before more processes are started: they take about as long to come up
IDLE = 300.0  # seconds after which processes without work go
LOOK = 0.1  # seconds between two looks at the observer while others compute
KEPT = 4  # problems that a worker keeps ready


@dataclass(frozen=True)
class Assignment:
    """g as it travels to another process: the layer, the formula of f, the box. ``key`` tells problems apart."""

    key: str
    model: Any
    formula: Formula
    lower: Floats
    upper: Floats
    execution: torch.dtype | None


@dataclass(frozen=True)
class Chunk:
    """Boxes to enclose, as arrays, with what the search wants to know of them."""

    low: Floats
    high: Floats
    stall: Ints
    order: int
    threshold: float


class Crew:
    """Encloses chunks, alone at first; a long proof is shared with ``jobs`` processes or with the given executor."""

    def __init__(self, error: ErrorFunction, jobs: int = 1, executor: Executor | None = None) -> None:
        self.error, self.given = error, executor
        self.jobs = joblib.cpu_count() if jobs == -1 else jobs
        self.problem = as_problem(error)
        self.started = time.process_time()
        self.signs: list[Future[int]] = []
        self.up: set[int] = set()  # processes that have answered
        if executor is not None and self.problem is None:
            raise OnelayerError(
                "only layers of this package and formulas travel to an executor, with an f that has a formula, on the "
                "CPU; leave executor out"
            )

    def enclose(self, parts: list[Boxes], order: int, threshold: float) -> list[Enclosure]:
        """Enclosures of the parts, in their order."""
        alone = [partial(_enclosed, self.error, part, order, threshold) for part in parts]
        executor = self._executor(len(parts))
        if executor is None or self.problem is None:
            return [run() for run in alone]
        chunks = [Chunk(part.low.numpy(), part.high.numpy(), part.stall.numpy(), order, threshold) for part in parts]
        return self._shared(executor, self.problem, chunks, alone)

    def _executor(self, parts: int) -> Any:
        """Who shares the work, if anybody does: processes only where there is some for them."""
        if parts == 1 or self.problem is None:
            return None
        if self.given is not None:
            return self.given
        if self.jobs < 2 or time.process_time() - self.started < START:
            return None
        # The pool that joblib itself reuses: a plain one of the same kind would be handed to joblib and break there.
        pool = get_memmapping_executor(self.jobs - 1, timeout=IDLE)
        if not self.signs:
            self.signs = [pool.submit(prepare, self.problem) for _ in range(self.jobs - 1)]
        return pool if self._room(parts) else None

    def _room(self, parts: int) -> int:
        """Chunks that may be out at once: an executor queues them itself, a process that is not up sits on its own.

        Twice as many as there are processes known to be up: none waits for the next, and one that comes up takes what
        lies ready and is known from then on.
        """
        if self.given is not None:
            return parts
        self.up |= {sign.result() for sign in self.signs if sign.done() and sign.exception() is None}
        return 2 * len(self.up)

    def _shared(
        self, executor: Executor, problem: Assignment, chunks: list[Chunk], alone: Sequence[Callable[[], Enclosure]]
    ) -> list[Enclosure]:
        """Hand out chunks from the front as others can take them; do those at the end here."""
        waiting = deque(range(len(chunks)))
        out: dict[int, Future[Any]] = {}
        found: dict[int, Enclosure] = {}
        try:
            while waiting or out:
                while waiting and len(out) < self._room(len(chunks)):
                    at = waiting.popleft()
                    out[at] = executor.submit(work, problem, chunks[at])
                if waiting:
                    at = waiting.pop()
                    found[at] = alone[at]()
                for at in [at for at, future in out.items() if future.done() or not waiting]:
                    found[at] = self._result(out.pop(at), alone[at])
        finally:
            for future in out.values():
                future.cancel()
        return [found[at] for at in range(len(chunks))]

    def _result(self, future: Future[Any], alone: Callable[[], Enclosure]) -> Enclosure:
        """What a worker found; where it died or failed, the chunk is done here, with its error if it has one."""
        while not future.done():
            self.error.observer.check()
            wait_for([future], timeout=LOOK)
        try:
            process, bound, sensitivity = future.result()
        except Stopped:
            raise
        except Exception:
            return alone()
        self.up.add(process)
        return Enclosure(torch.from_numpy(np.array(bound)), torch.from_numpy(np.array(sensitivity)))


def as_problem(error: ErrorFunction) -> Assignment | None:
    """What travels of g, or None where something of it is code of this process."""
    formula, model = error.target.formula, error.model
    if formula is None or error.target.lipschitz is not None or len(formula.nodes) > MAX_NODES:
        return None
    if not isinstance(model, OneLayerTransformer | Formula) or error.device.type != "cpu":
        return None
    lower, upper = error.box.lower.numpy(), error.box.upper.numpy()
    weights = weights_sha256(model) if isinstance(model, OneLayerTransformer) else str(model)
    text = f"{weights} {formula} {lower.tolist()} {upper.tolist()} {error.execution}"
    return Assignment(hashlib.sha256(text.encode()).hexdigest(), model, formula, lower, upper, error.execution)


def prepare(problem: Assignment) -> int:
    """Make a process ready for chunks of a problem, so that the first one does not wait for it; its number."""
    with pinned():
        error = _received(_Keyed(problem))
        error.enclose(error.box.lower.reshape(1, -1), error.box.upper.reshape(1, -1), 1)
    return os.getpid()


def work(problem: Assignment, chunk: Chunk) -> tuple[int, Floats, Floats]:
    """Enclose one chunk, in whatever process this is: its number, bounds and sensitivities."""
    with pinned():
        found = _received(_Keyed(problem)).enclose(
            torch.from_numpy(np.array(chunk.low)),
            torch.from_numpy(np.array(chunk.high)),
            chunk.order,
            chunk.threshold,
            torch.from_numpy(np.array(chunk.stall)),
        )
    return os.getpid(), found.bound.numpy(), found.sensitivity.numpy()


@dataclass(frozen=True)
class _Keyed:
    """A problem that is equal to another one with its key."""

    problem: Assignment

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.problem.key == other.problem.key

    def __hash__(self) -> int:
        return hash(self.problem.key)


@lru_cache(maxsize=KEPT)
def _received(keyed: _Keyed) -> ErrorFunction:
    problem = keyed.problem
    box = Box(torch.from_numpy(np.array(problem.lower)), torch.from_numpy(np.array(problem.upper)))
    target = as_target(problem.formula, box)
    return error_function(problem.model, target, box, problem.execution, torch.device("cpu"))


def _enclosed(error: ErrorFunction, part: Boxes, order: int, threshold: float) -> Enclosure:
    return error.enclose(part.low, part.high, order, threshold, part.stall)
