"""write_report: run what is not yet there, one experiment after the other, and bind the results into one page."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onelayer.disk import replace_file
from onelayer.observer import Observer, Stopped, observing
from onelayer.paper.finding import UNCONFIRMED, Experiment, Setting
from onelayer.paper.markdown import markdown
from onelayer.paper.page import render
from onelayer.paper.record import PARTS, Record, fingerprint, forget, prepare, read_record, write_record
from onelayer.paper.registry import chosen, experiments

PAGE, TEXT = "index.html", "report.md"


@dataclass(frozen=True)
class PaperReport:
    """Where the page is, and the records of this call: ``computed`` lists the keys that were run, not read back."""

    page: Path
    records: tuple[Record, ...]
    computed: tuple[str, ...]
    seconds: float

    @property
    def confirmed(self) -> bool:
        """Whether every check of every record of this call held."""
        return all(record["verdict"] != UNCONFIRMED for record in self.records)


def write_report(
    folder: str | os.PathLike[str],
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    seed: int = 0,
    jobs: int = 1,
    observer: Observer | None = None,
) -> PaperReport:
    """Run the experiments and write ``folder``/index.html and report.md, with results/*.json and figures/*.png beside.

    A result that is already in the folder, from the same code and settings, is kept, so a run that was stopped goes on.
    Experiments named by ``only`` are run again if they were finished; the page then shows all results of the folder.
    One whose optional module is missing is left out unless it is named. ``jobs`` is the number of processes of the
    experiments that consist of many trainings. A cancelled run keeps what is finished and raises Stopped.
    """
    started = time.monotonic()
    setting = Setting(quick, seed, jobs=jobs)
    out = Path(folder)
    wanted = tuple(item for item in chosen(only) if only or item.possible)
    prepare(out)
    records, computed = [], []
    with observing(observer) as watch:
        for done, experiment in enumerate(wanted):
            if watch.over:
                raise Stopped(f"stopped with {done} of {len(wanted)} experiments in {out}; the same call goes on")
            watch.report("the paper, executed", done / len(wanted), detail=experiment.title)
            record = _kept(out, experiment, setting)
            # Named and finished: run again from nothing. Named and stopped half way: its parts are still good.
            if record is not None and only:
                forget(out, experiment.key)
                record = None
            if record is None:
                record = run_one(out, experiment, setting)
                computed.append(experiment.key)
            records.append(record)
    page = _write_page(out)
    return PaperReport(page, tuple(records), tuple(computed), time.monotonic() - started)


def run_one(folder: Path, experiment: Experiment, setting: Setting) -> Record:
    """Run one experiment and save its result."""
    started = time.monotonic()
    finding = experiment.run(replace(setting, folder=folder / PARTS / experiment.key))
    return write_record(folder, experiment, setting, finding, time.monotonic() - started)


def _write_page(folder: Path) -> Path:
    """The page from the results in the folder, and the same as text; each whole or not at all."""
    found = {item.key: record for item in experiments() if (record := read_record(folder, item)) is not None}
    replace_file(folder / TEXT, markdown(found).encode())
    path = folder / PAGE
    replace_file(path, render(found, folder).encode())
    return path


def _kept(folder: Path, experiment: Experiment, setting: Setting) -> Record | None:
    record = read_record(folder, experiment)
    if record is not None and record["fingerprint"] == fingerprint(experiment, setting):
        return record
    return None
