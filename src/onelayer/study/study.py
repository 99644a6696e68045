"""Study: a question, the cells that answer it, and how their rows become a figure and sentences."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from onelayer.observer import Observer
from onelayer.pictures.style import save
from onelayer.study.sweep import Cell, Row, sweep

Rows = Sequence[Row]


@dataclass(frozen=True)
class Study:
    """``cells(quick)`` lists the settings, ``measure`` turns one into numbers, ``figure`` and ``findings`` read rows.

    Every cell holds all that its row depends on, so rows of quick and full runs may share a file.
    """

    name: str
    question: str
    cells: Callable[[bool], Sequence[Cell]]
    measure: Callable[[Cell], Mapping[str, Any]]
    figure: Callable[[Rows], Figure]
    findings: Callable[[Rows], Sequence[str]]

    @property
    def command(self) -> str:
        """The command that re-runs it."""
        return f"onelayer study {self.name}"


@dataclass(frozen=True)
class Findings:
    """What a study found: rows as measured, sentences computed from them, and where rows and figure are kept."""

    study: Study
    rows: Rows
    sentences: Sequence[str]
    results: Path
    picture: Path

    def figure(self) -> Figure:
        """The figure, drawn anew from the rows."""
        return self.study.figure(self.rows)

    @property
    def seconds(self) -> float:
        """Time the cells took, whenever they ran."""
        return float(sum(row["seconds"] for row in self.rows))


def run_study(
    study: Study, folder: str | os.PathLike[str], *, quick: bool = True, jobs: int = 1, observer: Observer | None = None
) -> Findings:
    """Run the cells that folder/<name>.jsonl lacks, then draw folder/<name>.png; an interrupted run goes on."""
    path = Path(folder)
    results = path / f"{study.name}.jsonl"
    rows = sweep(list(study.cells(quick)), study.measure, results, jobs=jobs, observer=observer)
    picture = save(study.figure(rows), path / f"{study.name}.png")
    return Findings(study, rows, list(study.findings(rows)), results, picture)
