"""What a result that missed eps says would do: followed, how often is eps reached?

python benchmarks/advice.py [--eps 0.001] [--seconds 2] [--jobs 1] [--only I.40.1]

The equations of feynman.csv get too little time. Those that are not proved are run again with the arguments that
``advice()`` of their result names; the bar is 80 %. door.py explains the options.
"""

from __future__ import annotations

import time
from typing import Any

import door
import feynman

from onelayer import approximate


def followed(task: door.Task) -> door.Row:
    """One equation in too little time, and once more as advised."""
    formula, box, eps = task.problem()
    first = approximate(formula, box, eps, max_seconds=task.seconds, jobs=1)
    advice: dict[str, Any] = first.advice()
    found = {"first": first.certificate.status, **advice}
    if first.certificate.proved:
        return found | {"status": "proved at once"}
    start = time.perf_counter()
    second = approximate(formula, box, eps, **advice, jobs=1)
    return found | {"status": second.certificate.status, "seconds": time.perf_counter() - start}


def summary(rows: list[door.Row]) -> dict[str, Any]:
    """How many of those that missed eps at first reach it."""
    missed = [row for row in rows if row["status"] != "proved at once"]
    reached = sum(map(door.proved, missed))
    share = reached / len(missed) if missed else None
    return {"missed_at_first": len(missed), "reached_as_advised": reached, "share": share}


def main() -> None:
    options = door.arguments(__doc__, out="advice", eps=0.001, seconds=2.0).parse_args()
    door.run(door.chosen(feynman.EQUATIONS, options, (options.eps,)), followed, options, summary)


if __name__ == "__main__":
    main()
