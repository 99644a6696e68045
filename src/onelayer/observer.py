"""Observer: one object that follows a long call, may cancel it, and holds its deadline.

A call announces its stage, how much of it is done and the enclosure so far. Whoever watches may show that (a terminal,
a notebook, a web page are three observers) and may stop the call, which then returns the best it has. A deadline stops
it in the same way, so every loop asks one question: is it over?
"""

from __future__ import annotations

import math
import sys
import threading
import time
from dataclasses import dataclass
from decimal import Context, Decimal
from html import escape
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

from onelayer.errors import OnelayerError

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress


# Seconds between two pictures of the same stage in a notebook.
REWRITE = 0.1
# Seconds that a door takes however few it is given: what can be had at once is worth them.
AT_LEAST = 1.5


class Stopped(OnelayerError):
    """Raised where a call is cancelled or out of time and has nothing to return; doors turn it into their best."""

    def __init__(self, message: str, *, cancelled: bool = False) -> None:
        super().__init__(message)
        self.cancelled = cancelled


@dataclass(frozen=True)
class Report:
    """What a call says of itself: a stage, its share done (None: unknown), the enclosure, and a few words."""

    stage: str
    share: float | None = None
    lower: float | None = None
    upper: float | None = None
    detail: str = ""

    def __str__(self) -> str:
        parts = [] if self.share is None else [f"{self.share:.0%}"]
        if self.upper is not None:
            low = _outward(self.lower or 0.0, up=False)
            high = _outward(self.upper, up=True)
            # Of what, the caller knows: a search bounds errors, slopes, ranges and margins alike.
            parts.append(f"bounds [{low}, {high}]")
        return ", ".join([*parts, self.detail] if self.detail else parts)


def _outward(value: float, *, up: bool) -> str:
    """Three digits of a bound, rounded so that what is written is a bound too."""
    written = f"{value:.3g}"
    shown = float(written)
    holds = shown >= value if up else shown <= value
    if holds:
        return written
    # Nearest digits are at most half a digit away, so the next ones on the other side hold.
    three = Context(prec=3)
    shift = three.next_plus if up else three.next_minus
    return f"{float(shift(Decimal(written))):.3g}"


def seconds_of(given: Any) -> float:
    """A number of seconds, of any kind of number, as a float; OnelayerError for anything else."""
    try:
        seconds = float(given) if isinstance(given, Real) else math.nan
    except OverflowError:
        seconds = math.inf if given > 0 else -math.inf
    # Written so that nan fails it.
    if not seconds >= 0:
        raise OnelayerError(f"max_seconds must be a number of seconds >= 0, got {repr(given)[:60]}")
    return seconds


class Observer:
    """Follows a call in silence. Subclasses override :meth:`show`; any thread may call :meth:`cancel`.

    ``max_seconds`` counts from the making of the observer.
    """

    def __init__(self, max_seconds: float = math.inf) -> None:
        max_seconds = seconds_of(max_seconds)
        # The monotonic clock: that of the day may be set back while a call runs.
        self._deadline = time.monotonic() + max_seconds
        self._cancelled = threading.Event()

    def show(self, report: Report) -> None:
        """Called for every report, in the thread of the call; must return quickly."""

    def proved(self, low: Any, high: Any) -> None:
        """Called with the corners, (B, D) each, of boxes as their bounds are good enough; must return quickly."""

    def report(
        self,
        stage: str,
        share: float | None = None,
        *,
        lower: float | None = None,
        upper: float | None = None,
        detail: str = "",
    ) -> None:
        """Say how far the call is."""
        self.show(Report(stage, share, lower, upper, detail))

    def cancel(self) -> None:
        """Ask the call to return the best it has."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to stop."""
        return self._cancelled.is_set()

    @property
    def over(self) -> bool:
        """Whether the call should return now: cancelled, or past its deadline."""
        return self.cancelled or time.monotonic() >= self._deadline

    @property
    def seconds_left(self) -> float:
        """Seconds to the deadline, never negative; 0 once cancelled."""
        if self.cancelled:
            return 0.0
        return max(0.0, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise Stopped when it is over: for stages that have nothing to return on their way."""
        if self.over:
            cancelled = self.cancelled
            raise Stopped("cancelled" if cancelled else "the time is over; raise max_seconds", cancelled=cancelled)

    def within(self, seconds: float) -> Observer:
        """The same watcher with at most ``seconds`` from now: for a stage that may only use a part of the time."""
        return _Within(self, seconds)

    def share(self, part: float) -> Observer:
        """The same watcher with a part of the time that is left."""
        return self.within(part * self.seconds_left)

    def __reduce__(self) -> tuple[type[Observer], tuple[float]]:
        """In another process: silent, with the time that is left. Whoever sent it there sees a cancellation."""
        return Observer, (self.seconds_left,)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the screen as it was."""


class _Within(Observer):
    """An observer that passes everything on to another one and is over no later than it."""

    def __init__(self, outer: Observer, seconds: float) -> None:
        seconds = seconds_of(seconds)
        super().__init__(min(seconds, outer.seconds_left))
        # One event for both, so that whoever cancels either stops the call.
        self._cancelled = outer._cancelled
        self._outer = outer

    def show(self, report: Report) -> None:
        self._outer.show(report)

    def proved(self, low: Any, high: Any) -> None:
        self._outer.proved(low, high)

    def __enter__(self) -> Self:
        self._outer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outer.__exit__(kind, error, trace)


class _Outermost(Observer):
    """An observer that a call may hand on to the calls that it makes: it closes with the outermost of them."""

    def __init__(self, max_seconds: float = math.inf) -> None:
        super().__init__(max_seconds)
        self._calls = 0

    def close(self) -> None:
        """The outermost call is over."""

    def __enter__(self) -> Self:
        self._calls += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._calls -= 1
        if self._calls <= 0:
            self.close()


class TerminalObserver(_Outermost):
    """A bar on stderr that appears with the first report and goes when the call ends."""

    def __init__(self, max_seconds: float = math.inf) -> None:
        super().__init__(max_seconds)
        self._bar: Progress | None = None

    def show(self, report: Report) -> None:
        """Move the bar."""
        bar = self._bar or self._open()
        bar.update(
            bar.tasks[0].id,
            description=report.stage,
            completed=report.share or 0.0,
            total=None if report.share is None else 1.0,
            detail=str(report),
        )

    def _open(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.add_task("", total=None, detail="")
        self._bar.start()
        return self._bar

    def close(self) -> None:
        """Leave the screen as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class NotebookObserver(_Outermost):
    """A line of a notebook's output that is rewritten while the call works: stage, share, enclosure.

    It uses IPython's display updates alone, so that it needs no widgets; the last report stays, without a bar.
    """

    def __init__(self, max_seconds: float = math.inf) -> None:
        super().__init__(max_seconds)
        self._line: Any = None
        self._began = time.monotonic()
        self._shown = -math.inf
        self._last = Report("")

    def show(self, report: Report) -> None:
        """Rewrite the line, at most ten times a second; a new stage is always shown."""
        now = time.monotonic()
        same_stage = report.stage == self._last.stage
        soon = now - self._shown < REWRITE and same_stage
        self._last = report
        if self._line is not None and soon:
            return
        self._shown = now
        # Without a value the browser shows a bar that only moves.
        share = "" if report.share is None else f' value="{report.share:.3f}" max="1"'
        bar = f'<progress{share} style="width:12em"></progress> '
        self._write(bar, f"{report.stage}  {report}")

    def close(self) -> None:
        """What was said last, and the seconds it took."""
        if self._line is not None:
            last = self._last
            said = f"{last.stage}: {last}" if str(last) else last.stage
            seconds = time.monotonic() - self._began
            self._write("", f"{said} ({seconds:.1f} s)")
            self._line = None

    def _write(self, bar: str, text: str) -> None:
        display = import_module("IPython.display")
        shown = display.HTML(f"{bar}<code>{escape(text)}</code>")
        if self._line is None:
            self._line = display.display(shown, display_id=True)
        else:
            self._line.update(shown)


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this; nothing is imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def observing(observer: Observer | None, max_seconds: float = math.inf) -> Observer:
    """The observer of a call: the given one, with the call's own ``max_seconds``; else a line in a notebook, a bar in a
    terminal, silence elsewhere."""
    max_seconds = seconds_of(max_seconds)
    if observer is not None:
        if not isinstance(observer, Observer):
            raise OnelayerError(f"an observer is an Observer of onelayer.observer, got {repr(observer)[:60]}")
        if math.isinf(max_seconds):
            return observer
        return observer.within(max_seconds)
    if _in_notebook():
        return NotebookObserver(max_seconds)
    # There is no stderr where a program was started without one.
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalObserver(max_seconds)
    return Observer(max_seconds)


def observing_all(options: dict[str, Any]) -> Observer:
    """The observer of a door that makes several calls within one ``max_seconds``; both are taken out of its options."""
    given = options.pop("observer", None)
    asked = seconds_of(options.pop("max_seconds", math.inf))
    return observing(given, max(asked, AT_LEAST))
