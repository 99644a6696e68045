"""A progress bar of training on stderr, and nothing at all when stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Report = Callable[[int, int, dict[str, Any]], None]


@contextmanager
def training_bar(wanted: bool) -> Iterator[Report]:
    """A function report(steps done, steps in all, last measurement)."""
    if not wanted or not sys.stderr.isatty():
        yield lambda done, total, row: None
        return
    columns = (TextColumn("training"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def report(done: int, total: int, row: dict[str, Any]) -> None:
            shown = ", ".join(
                f"{key} {row[key]:.3g}" for key in ("sup", "rmse", "accuracy", "cosine", "loss") if key in row
            )
            bar.update(task, completed=done / max(1, total), description=f"step {done:,} of {total:,}: {shown}")

        yield report
