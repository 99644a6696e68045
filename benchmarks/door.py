"""Functions of a table, one after another, through the default door: what feynman.py and its like share.

A table has rows name, formula, domain: the formula with its variables numbered, and their intervals low:high separated
by spaces. What the options of every such benchmark are:

--eps       share of the range of f, seen at random points, that is to be proved
--seconds   for every function, on one core
--jobs      functions at a time
--only      names of those that are wanted
--resume    rows are written as they come: keep those that an earlier run of the same command has left
--cpu       every clock counts processor time, deadlines too: for a machine that is busy with other things
--inversion eps = 10, 3, 1, 0.3 and 0.1 %, and a list of the pairs in which more room did worse
--out       name of the file among the results
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import report
import torch

from onelayer import Box, approximate
from onelayer.language.formula import Formula, parse

RANGE_POINTS = 20_000
SHARES = (0.1, 0.03, 0.01, 0.003, 0.001)  # of the range, the largest first
NOISE = 2.0  # seconds below which times are not compared

Function = tuple[str, str, str]  # name, formula, domain
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A function, the share of its range that eps is, and its time."""

    name: str
    formula: str
    domain: str
    share: float
    seconds: float

    @property
    def key(self) -> Row:
        """What a row must agree in to be the answer to this task."""
        return {"name": self.name, "share": self.share, "seconds_each": self.seconds}

    def problem(self) -> tuple[Formula, Box, float]:
        """f, its box and eps."""
        box = box_of(self.domain)
        formula = parse(self.formula, box.dim)
        values = formula(torch.cat([box.sample(RANGE_POINTS, seed=1), box.corners(1024)]))
        return formula, box, self.share * float(values.max() - values.min())


def table(path: Path) -> list[Function]:
    """Name, formula and domain of every row."""
    with path.open(newline="") as file:
        return [(row["name"], row["formula"], row["domain"]) for row in csv.DictReader(file)]


def box_of(text: str) -> Box:
    """Sides low:high, separated by spaces."""
    sides = [tuple(float(end) for end in side.split(":")) for side in text.split()]
    return Box([low for low, _ in sides], [high for _, high in sides])


def warm(cpu: bool = False) -> None:
    """Kernels and modules are loaded before anything is timed; with ``cpu`` every clock is that of the processor."""
    torch.set_num_threads(1)
    approximate("sin(x1*x2)", Box([0.0, 0.0], [1.0, 1.0]), 0.1, jobs=1)
    if cpu:
        time.monotonic = time.perf_counter = time.process_time


def through(task: Task) -> Row:
    """One function through the door."""
    start, begun = time.perf_counter(), time.process_time()
    formula, box, eps = task.problem()
    result = approximate(formula, box, eps, max_seconds=task.seconds, jobs=1)
    certificate, size = result.certificate, result.size()
    return {
        "status": certificate.status,
        "upper/eps": certificate.upper / eps,
        "lower/eps": certificate.lower / eps,
        "method": certificate.method,
        "tokens": size["tokens"],
        "hidden": size["hidden_units"],
        "parameters": size["parameters"],
        "boxes": certificate.boxes,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - begun,
        "history": [str(attempt) for attempt in result.history],
    }


def _row(work: Callable[[Task], Row], task: Task) -> Row:
    """What the work finds: a row that fails must not take the others with it."""
    start = time.perf_counter()
    try:
        found = work(task)
    except Exception as error:
        found = {"status": "error", "seconds": time.perf_counter() - start, "error": f"{error}"[:200]}
    return {**task.key, **found}


def run(
    tasks: Sequence[Task],
    work: Callable[[Task], Row],
    options: argparse.Namespace,
    summary: Callable[[list[Row]], dict[str, Any]],
) -> None:
    """The rows of all tasks, in their order: in the file as they come, on the screen at the end."""
    earlier = _earlier(options) if options.resume else []
    found = {at: row for at, task in enumerate(tasks) for row in earlier if _answers(row, task)}
    with ProcessPoolExecutor(options.jobs, initializer=warm, initargs=(options.cpu,)) as pool:
        futures = {pool.submit(_row, work, task): at for at, task in enumerate(tasks) if at not in found}
        for future in as_completed(futures):
            row = found[futures[future]] = future.result()
            rows = [found[at] for at in sorted(found)]
            report.store(options.out, rows, **summary(rows))
            print(f"{len(found)}/{len(tasks)} {row['name']} {row['share']:g}: {row['status']}", flush=True)
    rows = [found[at] for at in sorted(found)]
    report.write(options.out, rows, **summary(rows))


def _earlier(options: argparse.Namespace) -> list[Row]:
    path = report.RESULTS / f"{options.out}.json"
    return list(json.loads(path.read_text())["rows"]) if path.exists() else []


def _answers(row: Row, task: Task) -> bool:
    return all(row.get(key) == value for key, value in task.key.items())


def proved(row: Row) -> bool:
    return bool(row["status"] == "proved")


def _summary(rows: list[Row]) -> dict[str, Any]:
    """Of rows at one eps."""
    won = [row for row in rows if proved(row)]
    median = statistics.median if won else lambda _: None
    return {
        "proved": len(won),
        "of": len(rows),
        "median_seconds": median([row["seconds"] for row in won]),
        "median_parameters": median([row["parameters"] for row in won]),
        "not_proved": [row["name"] for row in rows if not proved(row)],
    }


def inversions(rows: list[Row]) -> dict[str, list[str]]:
    """Pairs in which a larger eps is lost where a smaller one is proved, or takes more than twice its time."""
    lost, slow = [], []
    for loose, tight in combinations(sorted(rows, key=lambda row: (row["name"], -row["share"])), 2):
        if loose["name"] != tight["name"] or not proved(tight):
            continue
        pair = f"{loose['name']} at {loose['share']:g} against {tight['share']:g}"
        if not proved(loose):
            lost.append(pair)
        elif loose["seconds"] > 2 * max(tight["seconds"], NOISE):
            slow.append(f"{pair}: {loose['seconds']:.1f} s against {tight['seconds']:.1f} s")
    return {"lost": lost, "slow": slow}


def arguments(
    description: str | None, *, out: str, eps: float = 0.01, seconds: float = 60.0
) -> argparse.ArgumentParser:
    """Those that all benchmarks of the door have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0] if description else None)
    parser.add_argument("--eps", type=float, default=eps)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", default=out)
    return parser


def chosen(functions: Sequence[Function], options: argparse.Namespace, shares: Sequence[float]) -> list[Task]:
    """The functions that were asked for, by name without what follows a comma, at every share."""
    wanted = [one for one in functions if not options.only or {one[0], one[0].split(",")[0]} & set(options.only)]
    return [Task(*one, share, options.seconds) for one in wanted for share in shares]


def main(functions: Sequence[Function], out: str, description: str | None, **defaults: float) -> None:
    """Every function at one eps, or at five and the pairs in which more room did worse."""
    parser = arguments(description, out=out, **defaults)
    parser.add_argument("--inversion", action="store_true")
    options = parser.parse_args()
    options.out += "-inversion" if options.inversion else ""
    shares = SHARES if options.inversion else (options.eps,)

    def summary(rows: list[Row]) -> dict[str, Any]:
        counts = {f"{share:g}": _summary([row for row in rows if row["share"] == share]) for share in shares}
        found = inversions(rows) if options.inversion else {}
        return {"clock": "processor" if options.cpu else "wall", "at_eps": counts, **found}

    run(chosen(functions, options, shares), through, options, summary)
