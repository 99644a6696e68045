"""Certificates as Coq theorems: what the verifier in formal/Checker.v proves, in which time.

Every row is built, exported and compiled by ``coqc``: "machine" over the processor's floating point, "plain" over
integers written in Coq, with the four axioms of the real numbers. Seconds are processor time of one ``coqc`` each, with
the statement of what the theorem rests on left out; the library is compiled before. "refused" says that a bound of 0.99
times an error that was seen is not accepted. Usage: python benchmarks/formal.py [--plain]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import torch
from report import Row, write

from onelayer import Box, approximate
from onelayer.export.coq import certificate_text
from onelayer.export.exact import exact_layer
from onelayer.export.kernel import compile_library
from onelayer.result import Approximation

LIMIT = 600  # seconds for one certificate
PLAIN_LIMIT = 1e-4  # smallest eps that is also proved over plain integers
CASES = [
    ("sin(x1)", [0], [1], (1e-3, 1e-6, 1e-12)),
    ("1/(1 + 25*x1**2)", [-1], [1], (1e-3, 1e-9)),
    ("sin(x1) + x2**2 + exp(x3) + cos(x4)", [0] * 4, [1] * 4, (1e-3,)),
    ("x1*x2", [0, 0], [1, 1], (1e-3, 1e-6)),
    ("sin(x1*x2)", [0, 0], [2, 2], (1e-3, 1e-6)),
    ("1/(1 + x1**2 + x2**2)", [-1, -1], [1, 1], (1e-3, 1e-6)),
    ("exp(sin(pi*x1) + x2**2)", [-1, -1], [1, 1], (1e-3,)),
    ("x1*x2 + abs(x1 - 0.3)", [0, 0], [1, 1], (1e-2,)),
    ("x3*exp(x1*x2)", [0] * 3, [1] * 3, (1e-3,)),
    ("sin(x1*x2 + x3)", [0] * 3, [1] * 3, (1e-3,)),
    ("x1*x2*x3*x4", [0] * 4, [1] * 4, (1e-3,)),
]


def seen_error(a: Approximation) -> float:
    """An error of the layer in real arithmetic that random points see."""
    x = a.box.sample(4096).double().flatten(1)
    assert a.target is not None
    assert a.target.formula is not None
    return float((exact_layer(a.model)(x) - a.target.formula(x).reshape(len(x), -1)).abs().max())


def coqc(text: str, library: Path) -> tuple[bool, float]:
    """Whether Coq accepts the text, and the seconds it computed."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "claim.v").write_text(text.replace("Print Assumptions certificate.", ""))
        command = ["coqc", "-q", "-w", "none", "-Q", str(library), "Onelayer", "claim.v"]
        before = os.times().children_user
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return False, float(LIMIT)
        return done.returncode == 0, os.times().children_user - before


def row(f: str, low: list[int], high: list[int], eps: float, library: Path, plain: bool) -> Row:
    """One certificate, in both arithmetics, and one that must be refused."""
    a = approximate(f, Box(low, high), eps)
    grids = exact_layer(a.model).grids
    found = {"f": f, "eps": eps, "tokens": " + ".join("x".join(str(len(axis)) for axis in grid.axes) for grid in grids)}
    ok, seconds = coqc(certificate_text(a, integers="machine"), library)
    found |= {"machine": "accepted" if ok else "refused", "machine s": round(seconds, 1)}
    if plain and eps >= PLAIN_LIMIT:
        ok, seconds = coqc(certificate_text(a, integers="plain"), library)
        found |= {"plain": "accepted" if ok else "refused", "plain s": round(seconds, 1)}
    below = Fraction(0.99 * seen_error(a))
    ok, _ = coqc(certificate_text(a, below, "machine"), library)
    return found | {"0.99 error": "accepted" if ok else "refused"}


def main() -> int:
    torch.set_num_threads(1)
    plain = "--plain" in sys.argv[1:]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library(Path(folder) / "library", time.monotonic() + LIMIT)
        for f, low, high, bounds in CASES:
            for eps in bounds:
                rows.append(row(f, low, high, eps, library, plain))
                print(rows[-1], flush=True)
    write("formal", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
