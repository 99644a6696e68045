"""What a proof costs beside its arithmetic: plain and compiled, search and raw enclosures, one process and several.

    python benchmarks/scaling.py [--quick]
    python benchmarks/scaling.py --proofs       # whole proofs beside what their boxes cost raw, and no more
    python benchmarks/scaling.py --jobs         # a small, a middle and a large proof by one, two and three processes

Every row holds both sides, measured one after the other in this run; the ratios are what counts, machines differ.
Seconds are processor seconds of this process, except for the rows over processes, which are wall-clock seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import report
import torch
from suite import BOREHOLE, F1, F2, F5, OTL, WING, Problem

import onelayer as ol
from onelayer.ground import pinned
from onelayer.language.formula import parse
from onelayer.observer import Observer, Report, Stopped
from onelayer.proof.certify import certify
from onelayer.proof.error import ErrorFunction, error_function
from onelayer.recording.target import as_target
from onelayer.taylor import kernels

SIZES = (16, 256, 2048)
REPEATS = 3


def share_of_range(problem: Problem, share: float) -> float:
    y = parse(problem.formula, problem.box.dim)(problem.box.sample(4096))
    return share * float(y.max() - y.min())


def cases(quick: bool) -> list[tuple[str, Problem, float, int]]:
    """Name, problem, eps, and the order at which raw enclosures are measured."""
    small = [("F1 1e-6", F1, 1e-6, 8)]
    large = [
        ("F2 1e-6", F2, 1e-6, 8),
        ("4-D cosine 1e-5", F5, 1e-5, 8),
        ("OTL 1 %", OTL, share_of_range(OTL, 0.01), 5),
        ("borehole 1 %", BOREHOLE, share_of_range(BOREHOLE, 0.01), 4),
        ("OTL 0.1 %", OTL, share_of_range(OTL, 0.001), 5),
        ("wing weight 1 %", WING, share_of_range(WING, 0.01), 3),
        ("borehole 0.3 %", BOREHOLE, share_of_range(BOREHOLE, 0.003), 4),
    ]
    return small if quick else small + large


def seconds(run: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    """The least of a few runs, after one that is not counted."""
    run()
    taken = []
    for _ in range(REPEATS):
        start = clock()
        run()
        taken.append(clock() - start)
    return min(taken)


def as_error(model: Any, problem: Problem) -> ErrorFunction:
    return error_function(
        model, as_target(problem.formula, problem.box), problem.box, torch.float64, torch.device("cpu")
    )


def some_boxes(problem: Problem, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    side = problem.box.width.flatten() / 8
    place = torch.rand(count, problem.box.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    low = problem.box.lower.flatten() + 7 * side * place
    return low, torch.minimum(low + side, problem.box.upper.flatten())


def enclosures(name: str, model: Any, problem: Problem, order: int) -> list[dict[str, Any]]:
    """One call on so many boxes, plain and compiled."""
    error, rows = as_error(model, problem), []
    for count in SIZES:
        low, high = some_boxes(problem, count)
        taken = []
        for compiled in (False, kernels.INSTALLED):
            with kernels.backend(compiled):
                taken.append(seconds(lambda low=low, high=high: error.bounds(low, high, order)))  # type: ignore[misc]
        rows.append(
            {
                "case": name,
                "order": order,
                "boxes": count,
                "plain ms": 1e3 * taken[0],
                "compiled ms": 1e3 * taken[1],
                "plain/compiled": taken[0] / taken[1],
                "compiled boxes/s": count / taken[1],
            }
        )
    return rows


def proof(name: str, model: Any, problem: Problem, eps: float) -> dict[str, Any]:
    """The whole proof beside what its boxes cost in one call."""
    found = certify(model, problem.formula, problem.box, eps, jobs=1)
    whole = seconds(lambda: certify(model, problem.formula, problem.box, eps, jobs=1))
    error = as_error(model, problem)
    low, high = (torch.from_numpy(side) for side in found.proof.boxes()) if found.proof else some_boxes(problem, 1)
    raw = seconds(lambda: error.bounds(low[:2048], high[:2048], found.order)) * max(1.0, len(low) / 2048)
    return {
        "case": name,
        "status": found.status,
        "boxes": found.boxes,
        "order": found.order,
        "proof s": whole,
        "its boxes raw s": raw,
        "proof/raw": whole / raw,
        "3 raw + 0.2 s": f"{3 * raw + 0.2:.3g} {'ok' if whole <= 3 * raw + 0.2 else 'MISSED'}",
    }


def processes(name: str, model: Any, problem: Problem, eps: float, most: int) -> list[dict[str, Any]]:
    """One proof by one process and by several, in turn: wall-clock seconds, and processor seconds of all of them."""
    runs: dict[int, list[tuple[float, float]]] = {jobs: [] for jobs in range(1, most + 1)}
    proofs = {}
    for _ in range(REPEATS):
        for jobs, times in runs.items():
            wall, cpu = time.perf_counter(), all_processes()
            proofs[jobs] = certify(model, problem.formula, problem.box, eps, jobs=jobs)
            wall = time.perf_counter() - wall
            for worker in multiprocessing.active_children():  # counted once they have gone
                worker.join()
            times.append((wall, all_processes() - cpu))
    alone = proofs[1]
    rows = []
    for jobs, times in runs.items():
        wall, cpu = (min(column) for column in zip(*times, strict=True))
        same = proofs[jobs].proof == alone.proof and proofs[jobs].upper == alone.upper
        rows.append(
            {"case": name, "jobs": jobs, "boxes": alone.boxes, "seconds": wall, "cpu seconds": cpu, "same": same}
        )
    for row in rows:
        row["speed-up"] = rows[0]["seconds"] / row["seconds"]
        row["cpu / cpu of one"] = row["cpu seconds"] / rows[0]["cpu seconds"]
    return rows


def all_processes() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


class Stages(Observer):
    """Processor seconds at which a call said that it began to prove."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.proving = time.process_time(), 0.0

    def show(self, report: Report) -> None:
        if report.stage == "proving" and not self.proving:
            self.proving = time.process_time() - self.started
            self.cancel()


def fit(name: str, problem: Problem, share: float) -> dict[str, Any]:
    """Processor seconds of a fit: what passes before the first proof begins, which is then cancelled."""
    stages = Stages()
    with suppress(Stopped):
        ol.approximate(problem.formula, problem.box, share_of_range(problem, share), layout="packed", observer=stages)
    return {"case": name, "fit s": stages.proving}


def shared_proofs() -> None:
    """A proof of hundredths, one of tenths and one of several seconds."""
    sizes = [("F1 1e-6", F1, 1e-6)]
    sizes += [(f"borehole {share:.1%}", BOREHOLE, share_of_range(BOREHOLE, share)) for share in (0.01, 0.003)]
    rows = []
    with pinned():
        for name, problem, eps in sizes:
            model = ol.approximate(problem.formula, problem.box, eps, layout="packed", jobs=1).model
            rows += processes(name, model, problem, eps, 3)
    report.write("scaling_processes", rows)


def main() -> None:
    quick, alone = "--quick" in sys.argv, "--proofs" in sys.argv
    if "--jobs" in sys.argv:
        shared_proofs()
        return
    suffix = "_quick" if quick else ""
    with pinned():
        calls, proofs = [], []
        for name, problem, eps, order in cases(quick):
            model = ol.approximate(problem.formula, problem.box, eps, layout="packed").model
            proofs.append(proof(name, model, problem, eps))
            if not alone:
                calls += enclosures(name, model, problem, order)
    report.write(f"scaling{suffix}", proofs)
    if alone:
        return
    report.write(f"scaling_calls{suffix}", calls)
    shared_proofs()
    if not quick:
        report.write("scaling_fits", [fit("borehole 0.3 %", BOREHOLE, 0.003), fit("wing weight 0.3 %", WING, 0.003)])


if __name__ == "__main__":
    main()
