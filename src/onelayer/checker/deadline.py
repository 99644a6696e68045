"""The deadline of a check, for loops that are deep inside it and as long as the files make them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from onelayer.observer import Observer

_WATCHING: ContextVar[Observer | None] = ContextVar("watching", default=None)


@contextmanager
def watched(observer: Observer) -> Iterator[None]:
    """Inside, :func:`need_time` asks this observer."""
    before = _WATCHING.set(observer)
    try:
        yield
    finally:
        _WATCHING.reset(before)


def need_time() -> None:
    """Raises Stopped when the check that runs is over; outside a check there is no limit."""
    observer = _WATCHING.get()
    if observer is not None:
        observer.check()
