"""python -m liar: attack until the time is over; exit 1 when anything false was claimed or anything crashed."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from liar.attacks import ATTACKS
from liar.run import many_cases, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="liar", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--proofs", type=int, default=100_000, help="stop after this many proofs")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where enclosures are computed")
    parser.add_argument("--only", choices=list(ATTACKS), help="one kind of attack")
    parser.add_argument("--case", type=int, help="one case of this seed, to see a finding again")
    parser.add_argument("--out", type=Path, help="append findings to this file, one JSON object per line")
    parser.add_argument("--keep", type=Path, help="keep every honest folder that the checker rejects, in this folder")
    options = parser.parse_args()
    started = time.monotonic()
    if options.case is not None:
        report = many_cases(options.seed, [options.case], options.only, options.device, options.keep)
        for finding in report.findings:
            print(json.dumps(finding, default=str))
    else:
        names = ("seed", "seconds", "proofs", "jobs", "only", "device", "out", "keep")
        report = run(**{name: getattr(options, name) for name in names})
    spent = {"seed": options.seed, "jobs": options.jobs, "seconds": round(time.monotonic() - started, 1)}
    print(json.dumps(report.summary() | spent))
    return 0 if report.clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
