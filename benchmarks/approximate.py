"""approximate() on the suite: tokens, proved bound, boxes and seconds, each row with its certificate.

python benchmarks/approximate.py [--quick]        quick leaves out eight and ten dimensions, minutes each
"""

from __future__ import annotations

import sys
import time
from typing import Any

import report
import torch
from suite import BOREHOLE, CHEBYSHEV, F1, F2, F3, F4, F5, K3, OTL, WING, Problem

from onelayer import approximate
from onelayer.language.formula import parse

# problem, eps (a share of the range where marked), most seconds, most tokens + hidden units asked for
BARS: list[tuple[Problem, float, float, int | None]] = [
    (F1, 1e-3, 5, 20),
    (F1, 1e-6, 5, 26),
    (F1, 1e-9, 60, 36),
    (F2, 1e-3, 60, 288),
    (F2, 1e-6, 60, 624),
    (F3, 1e-3, 60, 399),
    (F3, 1e-6, 60, 1088),
    (F4, 1e-6, 60, 10),
    (F5, 1e-4, 180, None),
    (K3, 1e-4, 180, None),
]
RANGES: list[tuple[Problem, float]] = [
    (OTL, 1e-2),
    (OTL, 3e-3),
    (OTL, 1e-3),
    (BOREHOLE, 1e-2),
    (BOREHOLE, 3e-3),
    (WING, 1e-2),
    (WING, 3e-3),
]


def row(problem: Problem, eps: float, seconds: float, bar: int | None, label: str = "") -> dict[str, Any]:
    start = time.perf_counter()
    result = approximate(problem.formula, problem.box, eps, max_seconds=seconds, jobs=2)
    elapsed = time.perf_counter() - start
    certificate, size = result.certificate, result.size()
    used = size["tokens"] + size["hidden_units"]
    return {
        "function": problem.name,
        "eps": label or f"{eps:g}",
        "status": certificate.status,
        "lower": certificate.lower,
        "upper": certificate.upper,
        "heads": size["heads"],
        "tokens": size["tokens"],
        "hidden": size["hidden_units"],
        "bar": "" if bar is None else f"<= {bar} {'ok' if used <= bar else 'MISSED'}",
        "Chebyshev": CHEBYSHEV.get((problem.name, eps), ""),
        "boxes": certificate.boxes,
        "order": certificate.order,
        "seconds": elapsed,
        "limit s": seconds,
    }


def value_range(problem: Problem) -> float:
    """Spread of f over sample points and corners: the scale of the percentages, an estimate from below."""
    points = torch.cat([problem.box.sample(1 << 16, arcsine=True), problem.box.corners()])
    values = parse(problem.formula, problem.box.dim)(points)
    return float(values.max() - values.min())


def main() -> None:
    quick = "--quick" in sys.argv
    approximate("x", F4.box, 0.5)  # first-use costs of torch are not part of a measurement
    rows = [row(*bar) for bar in BARS]
    for problem, share in RANGES[:3] if quick else RANGES:
        spread = value_range(problem)
        rows.append(row(problem, share * spread, 900, None, f"{share:.1%} of range"))
    report.write("approximate", rows)


if __name__ == "__main__":
    main()
