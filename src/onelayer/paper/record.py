"""Results on disk: one JSON file and its figures per experiment, so that a run that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from onelayer import __version__
from onelayer.disk import read_bounded, replace_file, spelled_out, strict_json
from onelayer.errors import FileError
from onelayer.paper.finding import UNCONFIRMED, VERDICTS, Check, Experiment, Finding, Picture, Setting
from onelayer.pictures.live_page import live_data

FORMAT = 4  # of the results on disk; a new number runs all experiments again
RESULTS, FIGURES, PARTS = "results", "figures", "parts"
FIGURE_DPI = 150  # sharp on a page of 16 cm
MOST_LIVE = 300_000  # bytes of one layer: the page with all of them stays below a few megabytes
MOST_BYTES = 2**26  # of one record
AND = "; "
FIELDS = {
    "format",
    "key",
    "fingerprint",
    "verdict",
    "said",
    "notes",
    "checks",
    "tables",
    "figures",
    "quick",
    "seed",
    "seconds",
    "machine",
}

Record = dict[str, Any]


def fingerprint(experiment: Experiment, setting: Setting) -> str:
    """Changes with the code of the experiment, the setting and the version: an old result is then not taken for new."""
    # The module, not the function alone: its helpers decide about the numbers too.
    source = inspect.getsource(sys.modules[experiment.run.__module__])
    sizes = f"{setting.quick} {setting.seed}"
    text = "\n".join([__version__, str(FORMAT), experiment.key, sizes, source])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_record(folder: Path, experiment: Experiment, setting: Setting, finding: Finding, seconds: float) -> Record:
    """Figures first, then the JSON file that names them: whoever sees the file has all of the result."""
    figures = [_write_figure(folder, experiment.key, picture) for picture in finding.pictures]
    checks = [{**asdict(check), "holds": check.holds} for check in finding.checks]
    # An experiment made of parts may have taken some of them from an earlier run, on another machine.
    earlier = read_record(folder, experiment) if finding.spent else None
    record: Record = {
        "format": FORMAT,
        "key": experiment.key,
        "fingerprint": fingerprint(experiment, setting),
        "verdict": finding.judged,
        "said": finding.said,
        "notes": list(finding.notes),
        "checks": checks,
        "tables": [asdict(table) for table in finding.tables],
        "figures": figures,
        "quick": setting.quick,
        "seed": setting.seed,
        "seconds": max(seconds, finding.spent),
        "machine": AND.join(machines([machine()], earlier)),
    }
    text = json.dumps(spelled_out(record), indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(_path(folder, experiment.key), text.encode())
    found = read_record(folder, experiment)
    assert found is not None
    return found


def _write_figure(folder: Path, key: str, picture: Picture) -> dict[str, str | None]:
    """Write a picture and its layer, if it has one; what the record says about it."""
    name = f"{key}-{picture.name}.png"
    if picture.name == key:
        name = f"{key}.png"
    replace_file(folder / FIGURES / name, _png(picture.figure))
    return {"file": name, "caption": picture.caption, "live": _live(folder, name, picture)}


def _live(folder: Path, name: str, picture: Picture) -> str | None:
    """The file with what the live view of a picture's layer computes from; None where it shows no layer."""
    if picture.live is None:
        return None
    data = json.dumps(live_data(picture.live), separators=(",", ":")).encode()
    if len(data) > MOST_LIVE:
        return None
    target = Path(name).with_suffix(".json").name
    replace_file(folder / FIGURES / target, data)
    return target


def machines(named: Iterable[str], *records: Record | None) -> list[str]:
    """The machines of these records and the named ones, each once."""
    earlier = [part for record in records if record is not None for part in record["machine"].split(AND)]
    return list(dict.fromkeys([*earlier, *named]))


def machine() -> str:
    """This machine. The record of an experiment made of parts also names those of its earlier record."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{versions}, {platform.machine()}, {os.cpu_count()} cores"


def _png(figure: Figure) -> bytes:
    """No dates and no program names inside: the same picture is the same file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=FIGURE_DPI, metadata={"Software": None}, pil_kwargs={"optimize": True})
    return buffer.getvalue()


def read_record(folder: Path, experiment: Experiment) -> Record | None:
    """The saved result with all its figures, or None if there is none or it is not whole."""
    try:
        path = _path(folder, experiment.key)
        record = strict_json(read_bounded(path, MOST_BYTES), path.name)
    except FileError:
        return None
    if not isinstance(record, dict) or not set(record) >= FIELDS or record["format"] != FORMAT:
        return None
    if record["key"] != experiment.key or record["verdict"] not in VERDICTS:
        return None
    return record if _judged_rightly(record) and _figures_are_there(folder, record) else None


def _judged_rightly(record: Record) -> bool:
    """Whether the verdict is one that the checks of the record grant: a file may say anything."""
    try:
        for check in record["checks"]:
            again = Check(check["what"], check["value"], check["relation"], check["bound"])
            if check["holds"] is not again.holds:
                return False
        granted = all(check["holds"] for check in record["checks"]) and bool(record["checks"])
    except (KeyError, TypeError, ValueError):
        return False
    return granted or record["verdict"] == UNCONFIRMED


def _figures_are_there(folder: Path, record: Record) -> bool:
    files = []
    for figure in record["figures"]:
        files += [file for file in (figure["file"], figure["live"]) if file is not None]
    # The last part of the name alone: a record on disk cannot point out of the folder of figures.
    return all((folder / FIGURES / Path(file).name).is_file() for file in files)


def forget(folder: Path, key: str) -> None:
    """Remove a result and the parts it was made from."""
    _path(folder, key).unlink(missing_ok=True)
    shutil.rmtree(folder / PARTS / key, ignore_errors=True)


def prepare(folder: Path) -> None:
    """The folders of a report."""
    try:
        for name in (RESULTS, FIGURES):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot write into {folder}: {error.strerror}") from error


def _path(folder: Path, key: str) -> Path:
    return folder / RESULTS / f"{key}.json"
