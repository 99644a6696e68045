"""A command that is watched: something moves from its first moment, and Ctrl-C asks it for the best it has."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from onelayer.cli.console import Interrupted
from onelayer.observer import Observer, observing

BEST = "this is the best so far"


@contextmanager
def moving() -> Iterator[Observer]:
    """An observer for one long call: a bar in a terminal at once, before any library is loaded."""
    with observing(None) as observer:
        observer.report("starting")
        yield observer


@contextmanager
def attended() -> Iterator[Observer]:
    """The same, and the first Ctrl-C cancels the call, which then returns its best; the second one ends it at once."""
    with moving() as observer, _cancelled_by_interrupt(observer):
        yield observer


@contextmanager
def _cancelled_by_interrupt(observer: Observer) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread alone
        yield
        return

    def cancel(number: int, frame: FrameType | None) -> None:
        if observer.cancelled:
            signal.default_int_handler(number, frame)
        observer.cancel()

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def kept_when_interrupted(out: Path) -> Iterator[None]:
    """For a command that writes every part as it is finished: Ctrl-C ends it at once, and says where they are."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"what is finished is kept in {out}, and the same command goes on") from None


def concluded(status: int, observer: Observer, kept: str) -> int:
    """The exit status of an attended command; one that was interrupted says in one line what was kept."""
    if observer.cancelled:
        raise Interrupted(kept)
    return status
