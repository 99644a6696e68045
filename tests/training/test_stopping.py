"""Training, studies and the paper are followed and stopped by one observer."""

from __future__ import annotations

import math
import time

import pytest

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.observer import Observer, Report, Stopped
from onelayer.study.sweep import read_rows, sweep


class Impatient(Observer):
    """Cancels after a number of reports."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after
        self.reports: list[Report] = []

    def show(self, report: Report) -> None:
        self.reports.append(report)
        if len(self.reports) >= self.after:
            self.cancel()


def test_training_reports_and_is_cancelled_with_the_weights_it_has() -> None:
    watch = Impatient(2)
    run = ol.train("sin(x)", ol.Box([0.0], [1.0]), heads=1, d_model=4, hidden=4, steps=100, every=10, observer=watch)
    assert [report.stage for report in watch.reports] == ["training", "training"]
    assert watch.reports[-1].share == pytest.approx(0.2)
    assert len(run.history) == 2
    assert math.isfinite(run.sup)


def test_training_obeys_its_time_within_a_measurement() -> None:
    box = ol.Box([0.0], [1.0])
    ol.train("sin(x)", box, heads=1, d_model=4, hidden=4, steps=1)  # libraries are loaded on first use
    started = time.monotonic()
    run = ol.train("sin(x)", box, heads=1, d_model=4, hidden=4, steps=10**7, max_seconds=0.5)
    assert time.monotonic() - started < 0.5 * 1.1 + 2
    assert run.history[-1]["step"] < 10**6


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(OnelayerError, match=r"train has no setting 'step'; the settings are .*steps"):
        ol.train("sin(x)", ol.Box([0.0], [1.0]), step=3)


def test_a_cancelled_sweep_keeps_its_rows_and_goes_on(tmp_path) -> None:
    cells = [{"n": n} for n in range(5)]
    path = tmp_path / "rows.jsonl"
    with pytest.raises(Stopped, match=r"stopped with 2 of 5 rows .* the same call goes on"):
        sweep(cells, dict, path, observer=Impatient(3))
    assert len(read_rows(path)) == 2
    assert [row["n"] for row in sweep(cells, dict, path)] == [0, 1, 2, 3, 4]
