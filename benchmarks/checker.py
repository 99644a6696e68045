"""What it takes to prove again: every row of the README's table checked, beside its proof.

    python benchmarks/checker.py [--quick]

Processor seconds of one process, the least of a few runs; both sides in one run, and the ratio is what counts. A proof
of boxes is ``certify`` on the finished layer, a proof by composition the bound of its error and the algebra. The last
row is no row of the README: borehole at a smaller eps by lookup heads alone, the most boxes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import report
from approximate import BARS, RANGES, value_range
from scaling import share_of_range
from suite import BOREHOLE, Problem

import onelayer as ol
from onelayer.checker.check import CheckReport, check
from onelayer.language.formula import parse
from onelayer.lemmas.algebra import same_function
from onelayer.lemmas.argument import from_text
from onelayer.lemmas.nested import Nested
from onelayer.lemmas.nesting import nested_error
from onelayer.proof.argued import ARGUMENT

REPEATS = 3
MOST = 10  # times the proof


def cases(quick: bool) -> Iterator[tuple[str, Problem, float, dict[str, str]]]:
    """Name, problem, eps, and what is asked beside the default."""
    for problem, eps, _, _ in BARS[:4] if quick else BARS:
        yield f"{problem.name} {eps:g}", problem, eps, {}
    for problem, share in () if quick else RANGES:
        yield f"{problem.name} {share:.1%}", problem, share * value_range(problem), {}
    if not quick:
        yield "borehole as in scaling.py", BOREHOLE, share_of_range(BOREHOLE, 0.01), {"layout": "packed"}


def seconds(run: Callable[[], Any]) -> float:
    """The least of a few runs."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def proving(found: ol.Approximation, problem: Problem, eps: float) -> Callable[[], Any]:
    """The proof of the upper bound, to be run again."""
    model, box = found.model, problem.box
    text = found.certificate.attachments.get(ARGUMENT)
    if text is None:
        return lambda: ol.certify(model, problem.formula, box, eps, jobs=1)
    stated = from_text(text)
    if not isinstance(stated, Nested):
        raise SystemExit(f"{problem.name}: no way to run this proof alone")
    formula = parse(problem.formula, box.dim)
    return lambda: (same_function(formula, stated.formula(), box), nested_error(model, stated, box))


def row(name: str, problem: Problem, eps: float, asked: dict[str, Any]) -> dict[str, Any]:
    """One row of the table."""
    a = ol.approximate(problem.formula, problem.box, eps, jobs=1, max_seconds=600, **asked)
    proof = seconds(proving(a, problem, eps))
    with tempfile.TemporaryDirectory() as folder:
        a.save(folder)
        found: list[CheckReport] = []
        checked = seconds(lambda: found.append(check(folder, all=True, jobs=1)))
    return {
        "proof": name,
        "boxes": a.certificate.boxes,
        "status": a.certificate.status,
        "verdict": found[0].verdict,
        "proof s": round(proof, 3),
        "check s": round(checked, 3),
        "check / proof": round(checked / proof, 2),
        f"within {MOST} x": "ok" if found[0].ok and checked <= MOST * proof else "MISSED",
    }


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    rows = [row(*case) for case in cases(quick)]
    report.write("checker_quick" if quick else "checker", rows)
