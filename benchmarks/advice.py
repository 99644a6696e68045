"""What a result that missed eps says would do: followed, how often is eps reached?

python benchmarks/advice.py [--eps 0.001] [--seconds 2] [--jobs 1] [--only I.40.1] [--out advice]

The equations of feynman.csv get too little time. Those that are not proved are run again with the arguments that
``advice()`` of their result names; the bar is 80 %.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import feynman
import report
import torch

from onelayer import Box, approximate
from onelayer.language.formula import parse

Task = tuple[str, str, Box, float, float]


def row(task: Task) -> dict[str, Any]:
    """One equation in too little time, and once more as advised."""
    name, text, box, share, seconds = task
    formula = parse(text, box.dim)
    values = formula(torch.cat([box.sample(feynman.RANGE_POINTS, seed=1), box.corners(1024)]))
    eps = share * float(values.max() - values.min())
    first = approximate(formula, box, eps, max_seconds=seconds)
    advice: dict[str, Any] = first.advice()
    found = {"name": name, "first": first.certificate.status, **advice}
    if first.certificate.proved:
        return found
    start = time.perf_counter()
    second = approximate(formula, box, eps, **advice)
    return found | {"then": second.certificate.status, "seconds": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--eps", type=float, default=0.001)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", default="advice")
    options = parser.parse_args()
    chosen = [item for item in feynman.equations() if not options.only or item[0] in options.only]
    tasks = [(*item, options.eps, options.seconds) for item in chosen]
    with ProcessPoolExecutor(options.jobs, initializer=feynman.warm) as pool:
        rows = list(pool.map(row, tasks))
    followed = [item for item in rows if "then" in item]
    reached = sum(item["then"] == "proved" for item in followed)
    share = reached / len(followed) if followed else None
    report.write(options.out, followed, missed_at_first=len(followed), reached_as_advised=reached, share=share)


if __name__ == "__main__":
    main()
