"""A progress bar on stderr with the current enclosure, and nothing at all when stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from onelayer.proof.search import Report


@contextmanager
def progress_bar(wanted: bool) -> Iterator[Report]:
    """A function report(lower, upper, share of the volume proved, boxes evaluated)."""
    if not wanted or not sys.stderr.isatty():
        yield lambda lower, upper, share, boxes: None
        return
    columns = (TextColumn("proving"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def report(lower: float, upper: float, share: float, boxes: int) -> None:
            bar.update(task, completed=share, description=f"sup|T - f| in [{lower:.3g}, {upper:.3g}], {boxes:,} boxes")

        yield report
