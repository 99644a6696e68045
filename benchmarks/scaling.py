"""What a proof costs beside its arithmetic: plain and compiled, search and raw enclosures, one process and several.

    python benchmarks/scaling.py [--quick]
    python benchmarks/scaling.py --proofs       # whole proofs beside what their boxes cost raw, and no more

Every row holds both sides, measured one after the other in this run; the ratios are what counts, machines differ.
Seconds are processor seconds of this process, except for the rows over processes, which are wall-clock seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import joblib
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


def processes(name: str, model: Any, problem: Problem, eps: float) -> list[dict[str, Any]]:
    """The same proof at order 2, which needs many boxes, by one process and by several."""
    rows: list[dict[str, Any]] = []
    for jobs in sorted({1, 2, joblib.cpu_count()}):
        start = time.perf_counter()
        found = certify(model, problem.formula, problem.box, eps, order=2, jobs=jobs, max_boxes=200_000)
        rows.append({"case": name, "jobs": jobs, "boxes": found.boxes, "seconds": time.perf_counter() - start})
        rows[-1]["speed-up"] = rows[0]["seconds"] / rows[-1]["seconds"]
    return rows


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


def main() -> None:
    quick, alone = "--quick" in sys.argv, "--proofs" in sys.argv
    suffix = "_quick" if quick else ""
    with pinned():
        calls, proofs, shared = [], [], []
        for name, problem, eps, order in cases(quick):
            model = ol.approximate(problem.formula, problem.box, eps, layout="packed").model
            proofs.append(proof(name, model, problem, eps))
            if not alone:
                calls += enclosures(name, model, problem, order)
            if not alone and problem.box.dim > 4:
                shared += processes(name, model, problem, eps)
    report.write(f"scaling{suffix}", proofs)
    if alone:
        return
    report.write(f"scaling_calls{suffix}", calls)
    report.write(f"scaling_processes{suffix}", shared)
    if not quick:
        report.write("scaling_fits", [fit("borehole 0.3 %", BOREHOLE, 0.003), fit("wing weight 0.3 %", WING, 0.003)])


if __name__ == "__main__":
    main()
