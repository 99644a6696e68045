"""The studies of training and size, in their quick or full form, with the time each takes.

    python benchmarks/study.py [names] [--full] [--jobs 2]

Rows and figures go to out/study (or out/study-full); an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import report
import torch

from onelayer.study import STUDIES
from onelayer.study.study import run_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(STUDIES), help=f"of {', '.join(STUDIES)}")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path("out") / ("study-full" if options.full else "study")
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in options.names:
        found = run_study(STUDIES[name], folder, quick=not options.full, jobs=options.jobs)
        for sentence in found.sentences:
            rows.append({"study": name, "seconds": found.seconds, "cells": len(found.rows), "finding": sentence})
    report.write("study-full" if options.full else "study", rows)


if __name__ == "__main__":
    main()
