"""A sweep for a subprocess to be killed in: python killable.py FILE."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onelayer.study.sweep import sweep

CELLS = [{"x": x, "seed": seed} for x in range(10) for seed in (0, 1)]


def measure(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    time.sleep(0.05)
    return {"y": (1.0 + cell["seed"]) / (1 + cell["x"])}


def run(file: Path, jobs: int = 1) -> list[dict[str, Any]]:
    return sweep(CELLS, measure, file, jobs=jobs)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
