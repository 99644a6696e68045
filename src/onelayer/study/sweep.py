"""Sweeps: one row per cell of settings, on the disk as soon as it is measured, so that a killed sweep goes on."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed

from onelayer.disk import read_if_there
from onelayer.errors import FileError, OnelayerError
from onelayer.observer import Observer, Stopped, observing

Cell = Mapping[str, Any]
Row = dict[str, Any]
KEY = "cell"
MOST_BYTES = 2**30  # of the rows of one sweep


def sweep(
    cells: Sequence[Cell],
    measure: Callable[[Cell], Mapping[str, Any]],
    path: str | os.PathLike[str],
    *,
    jobs: int = 1,
    observer: Observer | None = None,
) -> list[Row]:
    """Measure every cell that ``path`` has no row of yet; all rows, in the order of ``cells``.

    A row is {"cell": key, **settings, **measured, "seconds": s}, one JSON object per line, written to the disk before
    the next row of this process: a killed sweep loses the cells in progress and nothing else. ``measure`` must be a
    function of the cell alone, defined at the top of a module, so that ``jobs`` processes give the same rows. A
    cancelled sweep keeps its rows and raises Stopped; the same call goes on.
    """
    wanted = {cell_key(cell): dict(cell) for cell in cells}
    if len(wanted) < len(cells):
        raise OnelayerError("two cells of a sweep have the same settings; give each cell its own")
    file = Path(path)
    done = {key: row for key, row in read_rows(file).items() if key in wanted}
    missing = [(key, cell) for key, cell in wanted.items() if key not in done]
    with observing(observer) as watch:
        _tell(watch, len(done), len(wanted), file)
        for key, row in _measured(missing, measure, jobs):
            _append_row(file, row)
            done[key] = row
            _tell(watch, len(done), len(wanted), file)
    return [done[key] for key in wanted]


def _tell(watch: Observer, done: int, wanted: int, file: Path) -> None:
    """Say how far the sweep is, and stop it if asked: what is on the disk stays."""
    watch.report("cells", done / max(1, wanted), detail=f"{done} of {wanted}")
    if watch.over and done < wanted:
        raise Stopped(f"stopped with {done} of {wanted} rows in {file}; the same call goes on")


def cell_key(cell: Cell) -> str:
    """Sixteen hexadecimal digits that name the settings of a cell, whatever their order."""
    return hashlib.sha256(json.dumps(dict(cell), sort_keys=True).encode()).hexdigest()[:16]


def read_rows(path: str | os.PathLike[str]) -> dict[str, Row]:
    """Rows by key. A last line without its end was being written when the process died, and does not count."""
    file = Path(path)
    data = read_if_there(file, MOST_BYTES)
    if data is None:
        return {}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"cannot read {file}: {error}") from error
    rows: dict[str, Row] = {}
    for at, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        try:
            row = json.loads(line)
            rows[row[KEY]] = row
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FileError(f"{file} line {at} is no row of a sweep; move the file away to start anew") from error
    return rows


def _append_row(path: Path, row: Row) -> None:
    """Add one line and see it on the disk; half a line that a killed process left is cut off first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            file.write((json.dumps(row) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


def _measured(
    cells: Sequence[tuple[str, Cell]], measure: Callable[[Cell], Mapping[str, Any]], jobs: int
) -> Iterable[tuple[str, Row]]:
    if jobs == 1 or len(cells) < 2:
        return (_one(key, cell, measure, None) for key, cell in cells)
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
    tasks = (delayed(_one)(key, cell, measure, 1) for key, cell in cells)
    rows: Iterable[tuple[str, Row]] = parallel(tasks)
    return rows


def _one(key: str, cell: Cell, measure: Callable[[Cell], Mapping[str, Any]], threads: int | None) -> tuple[str, Row]:
    if threads is not None:
        torch.set_num_threads(threads)  # of a worker process: more would compete with the other workers
    started = time.monotonic()
    found = dict(measure(cell))
    return key, {KEY: key, **cell, **found, "seconds": time.monotonic() - started}
