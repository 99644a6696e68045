"""Who explores the units of a proof: this process, more processes of this machine, or any executor.

Processes are forked where the system can: they have the problem, the kernels and their tables from the start. Elsewhere
they are joblib's, and the problem travels to them as it does to an executor.
"""

from __future__ import annotations

import copy
import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import joblib
import numpy as np
import torch
from joblib.executor import get_memmapping_executor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.language.formula import Formula
from onelayer.layer.file import weights_sha256
from onelayer.observer import Observer, Stopped
from onelayer.proof.error import MAX_NODES, ErrorFunction, error_function
from onelayer.proof.own import is_own_layer
from onelayer.proof.tree import Floats
from onelayer.recording.target import as_target

FORKS = sys.platform == "linux"
# Seconds of computing before more processes are started: what it takes them to come up.
START = 0.5 if FORKS else 3.0
IDLE = 300.0  # seconds after which processes without work go
# Seconds between two looks at the observer while others compute.
LOOK = 0.1
KEPT = 4  # problems that a worker keeps ready

Task = Callable[[ErrorFunction, Any], Any]


@dataclass(frozen=True)
class Assignment:
    """g as it travels to another process: the layer, the formula of f, the box. ``key`` tells problems apart."""

    key: str
    model: Any
    formula: Formula
    lower: Floats
    upper: Floats
    execution: torch.dtype | None


class Crew:
    """Explores units, alone at first; a long proof is shared with ``jobs`` processes or with the given executor."""

    def __init__(self, error: ErrorFunction, jobs: int = 1, executor: Executor | None = None) -> None:
        self.error = error
        self.given = executor
        self.jobs = _cores() if jobs == -1 else jobs
        self.problem = as_problem(error)
        # Processor time: a busy machine must not make a short proof look long.
        self.started = time.process_time()
        self.pool: Executor | None = None
        if executor is not None and self.problem is None:
            raise OnelayerError(
                "only layers of this package and formulas travel to an executor, with an f that has a formula, on the "
                "CPU; leave executor out"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        """Let forked processes go; joblib keeps its own for the next call."""
        if FORKS and self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

    def explored(self, task: Task, units: Sequence[Any]) -> Iterator[Any]:
        """What the task finds for each unit, in their order; None for those that the observer left no time for.

        The first units of a young proof are done here, the rest is shared as soon as that is worth it.
        """
        # A short proof would wait longer for processes to come up than it takes here.
        done = 0
        while (executor := self._executor(len(units) - done)) is None and done < len(units):
            yield self._alone(task, units[done])
            done += 1
        if executor is None or self.problem is None:
            return
        rest = units[done:]
        futures = [self._submitted(executor, self.problem, task, unit) for unit in rest]
        try:
            for future, unit in zip(futures, rest, strict=True):
                yield self._result(future, task, unit)
        finally:
            # Who stops asking for results, or is stopped, leaves nothing behind to be computed.
            for future in futures:
                future.cancel()

    def _executor(self, units: int) -> Executor | None:
        """Who shares the work, if anybody does: processes only where there is some for them."""
        if units < 2 or self.problem is None:
            return None
        if self.given is not None:
            return self.given
        if self.jobs < 2 or time.process_time() - self.started < START:
            return None
        if self.pool is None:
            self.pool = self._forked() if FORKS else get_memmapping_executor(self.jobs, timeout=IDLE)
        return self.pool

    def _forked(self) -> Executor:
        """Processes that begin as copies of this one, without its observer."""
        # The observer belongs to a terminal or a notebook here: in a child it would report and cancel by itself.
        silent = copy.copy(self.error)
        object.__setattr__(silent, "observer", Observer())
        context = multiprocessing.get_context("fork")
        held = (silent, os.getpid())
        return ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_hold, initargs=held)

    def _submitted(self, executor: Executor, problem: Assignment, task: Task, unit: Any) -> Future[Any]:
        try:
            if executor is self.pool and FORKS:
                with warnings.catch_warnings():
                    # Python warns of forks beside threads; those here hold no lock.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    return executor.submit(_work_here, task, unit)
            return executor.submit(work, problem, task, unit)
        # All its workers died: the future says so, and the unit is done here.
        except (BrokenExecutor, RuntimeError) as error:
            lost: Future[Any] = Future()
            lost.set_exception(error)
            return lost

    def _alone(self, task: Task, unit: Any) -> Any:
        try:
            return task(self.error, unit)
        except Stopped:
            return None

    def _result(self, future: Future[Any], task: Task, unit: Any) -> Any:
        """What a worker found; where it died or failed, the unit is done here, with its error if it has one."""
        # Looks at the clock while others compute: a future has no deadline of its own.
        while not future.done() and not self.error.observer.over:
            wait_for([future], timeout=LOOK)
        if not future.done():
            return None
        try:
            return future.result()
        except Exception:
            return self._alone(task, unit)


def _cores() -> int:
    """One process per core, and no more in a process that shares the work of another."""
    if multiprocessing.parent_process() is not None:
        return 1
    return int(joblib.cpu_count())


def as_problem(error: ErrorFunction) -> Assignment | None:
    """What travels of g, or None where something of it is code of this process."""
    formula = error.target.formula
    model = error.model
    # A black box, or code too long for a formula, exists in this process alone.
    if formula is None or error.target.lipschitz is not None or len(formula.nodes) > MAX_NODES:
        return None
    # Problems are told apart by their weights, which say all of an untouched layer alone.
    if not (type(model) is Formula or is_own_layer(model)) or error.device.type != "cpu":
        return None
    lower = error.box.lower.numpy()
    upper = error.box.upper.numpy()
    weights = weights_sha256(model) if is_own_layer(model) else str(model)
    box = f"{lower.tolist()} {upper.tolist()}"
    text = f"{weights} {formula} {box} {error.execution}"
    key = hashlib.sha256(text.encode()).hexdigest()
    return Assignment(key, model, formula, lower, upper, error.execution)


_HELD: list[ErrorFunction] = []  # what a forked process works on


def _hold(error: ErrorFunction, parent: int) -> None:
    """Keep the problem, leave interrupts to the parent, and end with it."""
    _HELD[:] = [error]
    # Ctrl-C reaches every process of a terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    # An orphan is given another parent: one that was killed cannot end its children itself.
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _work_here(task: Task, unit: Any) -> Any:
    with pinned():
        return task(_HELD[0], unit)


def work(problem: Assignment, task: Task, unit: Any) -> Any:
    """Do one unit, in whatever process this is."""
    with pinned():
        return task(_received(_Keyed(problem)), unit)


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
    # Arrays that arrive may be read-only; torch wants memory that it may write to.
    lower = torch.from_numpy(np.array(problem.lower))
    upper = torch.from_numpy(np.array(problem.upper))
    box = Box(lower, upper)
    target = as_target(problem.formula, box)
    return error_function(problem.model, target, box, problem.execution, torch.device("cpu"))
