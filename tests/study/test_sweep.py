"""Sweeps: rows on the disk, resumption after kill -9, and independence of the number of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onelayer.errors import FileError, OnelayerError
from onelayer.study.sweep import cell_key, read_rows, sweep

SCRIPT = Path(__file__).with_name("killable.py")
sys.path.insert(0, str(SCRIPT.parent))

from killable import CELLS, measure, run  # noqa: E402


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_killed_sweep_goes_on_and_loses_no_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(file)], env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and process.poll() is None and len(read_rows(file)) < 4:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = file.read_bytes()
    kept = read_rows(file)
    assert 4 <= len(kept) < len(CELLS)
    rows = run(file)
    assert file.read_bytes().startswith(before[: before.rfind(b"\n") + 1]), "rows of the killed sweep stay as they are"
    assert without_seconds(rows) == without_seconds(run(tmp_path / "whole.jsonl"))
    assert [row for row in rows if row["cell"] in kept] == list(kept.values())


def test_half_a_line_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = run(file)
    text = file.read_bytes()
    file.write_bytes(text[:-20])
    assert len(read_rows(file)) == len(CELLS) - 1
    assert without_seconds(run(file)) == without_seconds(rows)
    assert all(json.loads(line) for line in file.read_text().splitlines())


def counted(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    with Path(cell["log"]).open("a") as file:
        file.write("x")
    return {"y": cell["x"]}


def test_a_finished_cell_is_not_measured_again_and_a_new_one_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cells = [{"x": x, "log": str(log)} for x in range(3)]
    sweep(cells[:2], counted, tmp_path / "rows.jsonl")
    rows = sweep(cells, counted, tmp_path / "rows.jsonl")
    assert log.read_text() == "xxx"
    assert [row["y"] for row in rows] == [0, 1, 2]


@pytest.mark.slow
def test_two_workers_give_the_rows_of_one(tmp_path: Path) -> None:
    assert without_seconds(run(tmp_path / "two.jsonl", jobs=2)) == without_seconds(run(tmp_path / "one.jsonl"))


def test_key_does_not_depend_on_order_and_cells_must_differ(tmp_path: Path) -> None:
    assert cell_key({"a": 1, "b": 2.5}) == cell_key({"b": 2.5, "a": 1})
    with pytest.raises(OnelayerError, match="same settings"):
        sweep([{"x": 1}, {"x": 1}], measure, tmp_path / "rows.jsonl")


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("hello\n")
    with pytest.raises(FileError, match="line 1"):
        run(file)


def test_rows_are_read_from_files_alone(tmp_path: Path) -> None:
    """A pipe was waited for without end."""
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(FileError, match="not a regular file"):
        run(tmp_path / "rows.jsonl")
    (tmp_path / "deep.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(FileError, match="line 1"):
        run(tmp_path / "deep.jsonl")
