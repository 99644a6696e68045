"""The 100 equations of the public AI Feynman database: how many are proved through the default door.

python benchmarks/feynman.py [--eps 0.01] [--seconds 60] [--jobs 1] [--only I.40.1 II.35.21] [--out feynman]

``eps`` is a share of the range of f seen at random points. Every equation gets ``--seconds`` on one core; ``--jobs``
runs that many equations at a time. feynman.csv has the name of the equation, its formula with the variables numbered in
the order of the database, and their intervals (Udrescu & Tegmark 2020, Feynman Symbolic Regression Database).
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import report
import torch

from onelayer import Box, approximate
from onelayer.language.formula import parse

TABLE = Path(__file__).parent / "feynman.csv"
RANGE_POINTS = 20_000


def equations() -> list[tuple[str, str, Box]]:
    """Name, formula and box of every equation."""
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(row["name"], row["formula"], _box(row["domain"])) for row in rows]


def _box(text: str) -> Box:
    sides = [tuple(float(end) for end in side.split(":")) for side in text.split()]
    return Box([low for low, _ in sides], [high for _, high in sides])


def row(task: tuple[str, str, Box, float, float]) -> dict[str, Any]:
    """One equation through the door."""
    name, text, box, share, seconds = task
    torch.set_num_threads(1)
    start = time.perf_counter()
    try:
        formula = parse(text, box.dim)
        values = formula(torch.cat([box.sample(RANGE_POINTS, seed=1), box.corners(1024)]))
        eps = share * float(values.max() - values.min())
        result = approximate(formula, box, eps, max_seconds=seconds)
    except Exception as error:  # a row that fails must not take the others with it
        return {"name": name, "status": "error", "seconds": time.perf_counter() - start, "error": str(error)[:120]}
    certificate, size = result.certificate, result.size()
    return {
        "name": name,
        "status": certificate.status,
        "upper/eps": certificate.upper / eps,
        "lower/eps": certificate.lower / eps,
        "method": certificate.method,
        "tokens": size["tokens"],
        "hidden": size["hidden_units"],
        "parameters": size["parameters"],
        "boxes": certificate.boxes,
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--eps", type=float, default=0.01)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", default="feynman")
    options = parser.parse_args()
    chosen = [item for item in equations() if not options.only or item[0] in options.only]
    tasks = [(*item, options.eps, options.seconds) for item in chosen]
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(row, tasks))
    proved = [item for item in rows if item["status"] == "proved"]
    report.write(
        options.out,
        rows,
        eps=options.eps,
        seconds_each=options.seconds,
        proved=len(proved),
        of=len(rows),
        median_seconds=statistics.median(item["seconds"] for item in proved) if proved else None,
        median_parameters=statistics.median(item["parameters"] for item in proved) if proved else None,
        not_proved=[item["name"] for item in rows if item["status"] != "proved"],
    )


if __name__ == "__main__":
    main()
