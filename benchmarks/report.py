"""Tables on the screen and JSON files with hardware and versions, for every benchmark."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import onelayer

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "numpy", "scipy")

Row = Mapping[str, Any]


def hardware() -> dict[str, Any]:
    """The machine and the versions that produced a result."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": {"onelayer": onelayer.__version__, **{package: version(package) for package in PACKAGES}},
    }


def write(name: str, rows: Sequence[Row], **summary: Any) -> Path:
    """Print ``rows`` as a table and store them with ``summary`` and the hardware in results/<name>.json."""
    show(name, rows, **summary)
    return store(name, rows, **summary)


def show(name: str, rows: Sequence[Row], **summary: Any) -> None:
    """A table on the screen; columns that hold lists are left to the file."""
    table = Table(title=name)
    columns = list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, list)))
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*[shown(row.get(column, "")) for column in columns])
    console = Console(width=200)
    console.print(table)
    for key, value in summary.items():
        console.print(f"{key}: {shown(value)}")


def store(name: str, rows: Sequence[Row], **summary: Any) -> Path:
    """results/<name>.json, whole at any moment."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    written = path.with_suffix(".part")
    written.write_text(json.dumps({"hardware": hardware(), **summary, "rows": list(rows)}, indent=1) + "\n")
    written.replace(path)
    return path


def shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
