"""One object follows a call, stops it, and holds its deadline."""

from __future__ import annotations

import math
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

import pytest

from onelayer.errors import OnelayerError
from onelayer.observer import NotebookObserver, Observer, Report, Stopped, TerminalObserver, observing


class Notes(Observer):
    """Keeps what it was told."""

    def __init__(self, max_seconds: float = math.inf) -> None:
        super().__init__(max_seconds)
        self.reports: list[Report] = []

    def show(self, report: Report) -> None:
        self.reports.append(report)


def test_reports_reach_the_watcher_through_parts_of_the_time() -> None:
    notes = Notes()
    notes.within(10.0).within(5.0).report("fitting", 0.5, detail="3 tokens")
    assert notes.reports == [Report("fitting", 0.5, detail="3 tokens")]


def test_a_part_of_the_time_is_over_before_the_whole() -> None:
    outer = Observer(60.0)
    inner = outer.within(0.0)
    assert inner.over
    assert not outer.over
    assert outer.within(1e9).seconds_left <= 60.0


def test_cancelling_ends_every_part_and_from_any_thread() -> None:
    outer = Observer()
    inner = outer.within(100.0)
    worker = threading.Thread(target=outer.cancel)
    worker.start()
    worker.join()
    assert inner.over
    assert inner.seconds_left == 0
    with pytest.raises(Stopped, match="cancelled"):
        inner.check()


def test_the_deadline_counts_from_the_start() -> None:
    observer = Observer(0.05)
    assert not observer.over
    observer.check()
    time.sleep(0.06)
    with pytest.raises(Stopped, match="raise max_seconds"):
        observer.check()


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_a_time_must_be_a_time(seconds: float) -> None:
    with pytest.raises(OnelayerError, match="max_seconds"):
        Observer(seconds)


def test_without_a_terminal_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with observing(None, 5.0) as observer:
        observer.report("proving", 0.2, lower=0.0, upper=1.0)
    assert type(observer) is Observer
    assert capfd.readouterr() == ("", "")


def test_a_bar_appears_and_goes(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with TerminalObserver() as observer:
        observer.report("proving", 0.25, lower=1e-3, upper=2e-3, detail="7 boxes")
        observer.report("saving")
    assert "saving" in capfd.readouterr().err
    observer.__exit__(None, None, None)


def test_a_report_in_words() -> None:
    assert str(Report("proving", 0.25, 1e-3, 2e-3, "7 boxes")) == "25%, bounds [0.001, 0.002], 7 boxes"
    assert str(Report("fitting")) == ""
    assert str(Report("proving", None, 1.0009, 1.0011)) == "bounds [1, 1.01]"
    assert str(Report("proving", None, 0.0, math.inf)) == "bounds [0, inf]"


def test_a_given_observer_keeps_its_own_deadline_too() -> None:
    outer = Observer(0.0)
    assert observing(outer, 100.0).over
    assert observing(outer) is outer


def test_a_notebook_shows_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel the default observer is a line of HTML; what it is told is escaped."""
    written: list[str] = []
    handle = SimpleNamespace(update=written.append)

    def display(shown: str, display_id: bool) -> SimpleNamespace:
        written.append(shown)
        return handle

    ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    displays.HTML, displays.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    observer = observing(None)
    assert isinstance(observer, NotebookObserver)
    observer.report("fitting", 0.25)
    observer.report("proving", 0.5, lower=1e-4, upper=2e-3, detail="<b>")
    observer.report("proving", 0.6)
    assert len(written) == 2
    assert 'value="0.250"' in written[0]
    assert "[0.0001, 0.002], &lt;b&gt;" in written[1]
    with observer, observer:  # handed on to a call of the call
        observer.report("proving", 1.0, lower=1.0009, upper=1.0011, detail="9 boxes")
    assert len(written) == 3
    assert "progress" not in written[2]
    assert "proving: 100%, bounds [1, 1.01], 9 boxes (" in written[2]
