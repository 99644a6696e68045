"""The 100 equations of the public AI Feynman database: how many are proved through the default door.

python benchmarks/feynman.py [--eps 0.01] [--seconds 60] [--jobs 1] [--only I.40.1 II.35.21] [--out feynman]
python benchmarks/feynman.py --inversion [--seconds 60] [--jobs 1]

``eps`` is a share of the range of f seen at random points. Every equation gets ``--seconds`` on one core; ``--jobs``
runs that many equations at a time. ``--inversion`` runs eps = 10, 3, 1, 0.3 and 0.1 % and lists where a larger eps is
lost and a smaller one proved, or takes more than twice its time. feynman.csv has the name of the equation, its formula
with the variables numbered in the order of the database, and their intervals (Udrescu & Tegmark 2020, Feynman Symbolic
Regression Database).
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

import report
import torch

from onelayer import Box, approximate
from onelayer.language.formula import parse

TABLE = Path(__file__).parent / "feynman.csv"
RANGE_POINTS = 20_000
SHARES = (0.1, 0.03, 0.01, 0.003, 0.001)  # of the range, the largest first
NOISE = 2.0  # seconds below which times are not compared


def equations() -> list[tuple[str, str, Box]]:
    """Name, formula and box of every equation."""
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(row["name"], row["formula"], box_of(row["domain"])) for row in rows]


def box_of(text: str) -> Box:
    """Sides low:high, separated by spaces."""
    sides = [tuple(float(end) for end in side.split(":")) for side in text.split()]
    return Box([low for low, _ in sides], [high for _, high in sides])


def warm() -> None:
    """Kernels and modules are loaded before anything is timed."""
    torch.set_num_threads(1)
    approximate("sin(x1*x2)", Box([0.0, 0.0], [1.0, 1.0]), 0.1)


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


def inversion(chosen: list[tuple[str, str, Box]], seconds: float, jobs: int, out: str) -> None:
    """Every equation at every eps, largest first, and the pairs in which more room did worse."""
    tasks = [(*item, share, seconds) for item in chosen for share in SHARES]
    with ProcessPoolExecutor(jobs, initializer=warm) as pool:
        found = list(pool.map(row, tasks))
    rows, lost, slow = [], [], []
    for at, (name, _, _) in enumerate(chosen):
        mine = found[at * len(SHARES) : (at + 1) * len(SHARES)]
        proved = [item["status"] == "proved" for item in mine]
        times = [item["seconds"] for item in mine]
        for loose, tight in combinations(range(len(SHARES)), 2):
            pair = f"{name} at {SHARES[loose]:g} against {SHARES[tight]:g}"
            if proved[tight] and not proved[loose]:
                lost.append(pair)
            elif proved[tight] and times[loose] > 2 * max(times[tight], NOISE):
                slow.append(pair)
        shown = (
            f"{time:.1f}" if done else item["status"] for done, time, item in zip(proved, times, mine, strict=True)
        )
        rows.append({"name": name, **dict(zip(map(str, SHARES), shown, strict=True))})
    counts = {f"proved at {share:g}": sum(r[str(share)][0].isdigit() for r in rows) for share in SHARES}
    report.write(f"{out}-inversion", rows, seconds_each=seconds, of=len(rows), lost=lost, slow=slow, **counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--eps", type=float, default=0.01)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--inversion", action="store_true")
    parser.add_argument("--out", default="feynman")
    options = parser.parse_args()
    chosen = [item for item in equations() if not options.only or item[0] in options.only]
    if options.inversion:
        inversion(chosen, options.seconds, options.jobs, options.out)
        return
    tasks = [(*item, options.eps, options.seconds) for item in chosen]
    with ProcessPoolExecutor(options.jobs, initializer=warm) as pool:
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
