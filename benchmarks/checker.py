"""What it takes to prove again: boxes one by one in balls, as before, and many at once in floats, beside the proof.

    python benchmarks/checker.py [--quick]

Processor seconds of one process, all three in one run; the ratios are what counts. In balls at most BALLS boxes are
taken, drawn at random, and the time is scaled to all of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import report
from scaling import share_of_range
from suite import BOREHOLE, F1, F2, F3, F5, K3, OTL, WING, Problem

import onelayer as ol
from onelayer.checker.check import check
from onelayer.checker.cover import leaves
from onelayer.checker.layer import Layer
from onelayer.checker.precision import precise
from onelayer.checker.reader import read_proof
from onelayer.checker.reproof import Reproof
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.language.formula import parse
from onelayer.observer import Observer

BALLS = 12


def cases(quick: bool) -> list[tuple[str, Problem, float]]:
    small = [("F1 1e-6", F1, 1e-6), ("F2 1e-6", F2, 1e-6), ("F5 1e-4", F5, 1e-4)]
    large = [
        ("F1 1e-9", F1, 1e-9),
        ("Franke 1e-6", F3, 1e-6),
        ("sin(2(log x + log y)) 1e-4", K3, 1e-4),
        ("OTL 1 %", OTL, share_of_range(OTL, 0.01)),
        ("borehole 1 %", BOREHOLE, share_of_range(BOREHOLE, 0.01)),
        ("wing weight 1 %", WING, share_of_range(WING, 0.01)),
    ]
    return small if quick else small + large


def seconds(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def in_balls(folder: Path) -> float:
    """Seconds for all boxes, from some of them."""
    proof, stored = read_proof(folder), read_model(folder)
    record = proof.record
    with precise():
        low, high = leaves(proof)
        executed = Layer(stored, Execution.of(record.arithmetic, stored, record.domain))
        formula = parse(proof.function or "", len(record.domain[0]))
        picked = np.random.default_rng(0).permutation(len(low))[:BALLS]
        reproof = Reproof(record, executed, None, formula, (low[picked], high[picked]), Observer())
        taken = seconds(lambda: [reproof(slice(at, at + 1)) for at in range(len(picked))])
    return taken * len(low) / len(picked)


def row(name: str, problem: Problem, eps: float) -> dict[str, Any]:
    a = ol.approximate(problem.formula, problem.box, eps, layout="packed", jobs=1, max_seconds=600)
    proof = seconds(lambda: ol.certify(a.model, problem.formula, problem.box, eps, jobs=1))
    with tempfile.TemporaryDirectory() as folder:
        a.save(folder)
        found: list[Any] = []
        floats = seconds(lambda: found.append(check(folder, all=True, jobs=1)))
        balls = in_balls(Path(folder))
    return {
        "proof": name,
        "boxes": found[0].boxes_total,
        "verdict": found[0].verdict,
        "proof s": round(proof, 2),
        "check s": round(floats, 2),
        "check / proof": round(floats / proof, 2),
        "balls s": round(balls, 1),
        "balls / check": round(balls / floats, 1),
    }


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    rows = [row(*case) for case in cases(quick)]
    report.write("checker", rows)
