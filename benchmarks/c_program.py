"""Size and latency of exported C: nanoseconds per call beside the same formula in C, onnxruntime and torch, in one run.

One thread; float64, and for Franke the formats of fewer bits. Batch 1 is one call per point, as a control loop makes
it; batch 4,096 is one call of the library for all points, and a loop over the C function. Each number is the least of
five repetitions.

python benchmarks/c_program.py
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import report
import torch
from suite import FRANKE

from onelayer import approximate
from onelayer.export.c import to_c
from onelayer.export.compiled import FLAGS
from onelayer.export.onnx import to_onnx
from onelayer.extras import require
from onelayer.language.endpoints import parse_domain
from onelayer.narrow import widened
from onelayer.result import Approximation

CASES = (
    ("sin x1 + sin x2", "sin(x1) + sin(x2)", "0:2*pi, 0:2*pi", 1e-3, "float64"),
    ("sin x1 + sin x2", "sin(x1) + sin(x2)", "0:2*pi, 0:2*pi", 1e-6, "float64"),
    ("Franke", FRANKE, "0:1, 0:1", 1e-3, "float64"),
    ("Franke", FRANKE, "0:1, 0:1", 1e-2, "float32"),
    ("Franke", FRANKE, "0:1, 0:1", 1e-2, "int8"),
    ("Franke", FRANKE, "0:1, 0:1", 1e-2, "bfloat16"),
    ("Franke", FRANKE, "0:1, 0:1", 3e-3, "float16"),
    ("cos of 4 inputs", "cos(0.6*pi + x1 + 1.5*x2 + 2*x3 + 2.5*x4)", "0:1, 0:1, 0:1, 0:1", 1e-4, "float64"),
)
FORMULAS = {
    "sin x1 + sin x2": "sin(x[0]) + sin(x[1])",
    "Franke": "0.75*exp(-((9*x[0]-2)*(9*x[0]-2) + (9*x[1]-2)*(9*x[1]-2))/4)"
    " + 0.75*exp(-(9*x[0]+1)*(9*x[0]+1)/49 - (9*x[1]+1)/10)"
    " + 0.5*exp(-((9*x[0]-7)*(9*x[0]-7) + (9*x[1]-3)*(9*x[1]-3))/4)"
    " - 0.2*exp(-(9*x[0]-4)*(9*x[0]-4) - (9*x[1]-7)*(9*x[1]-7))",
    "cos of 4 inputs": "cos(1.8849555921538759 + x[0] + 1.5*x[1] + 2*x[2] + 2.5*x[3])",
}
BATCH, REPEATS, CALLS = 4096, 5, 200

DRIVER = """
#define _POSIX_C_SOURCE 199309L
#include "layer.h"
#include <math.h>
#include <stdio.h>
#include <time.h>
static double formula(const {kind} *x) {{ return {formula}; }}
static double now(void) {{ struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return 1e9 * t.tv_sec + t.tv_nsec; }}
static {kind} x[{count}][LAYER_INPUTS], y[{count}];
int main(void)
{{
    double best[2] = {{1e300, 1e300}}, sum = 0;
    int r, p, which;
    if (fread(x, sizeof x, 1, stdin) != 1) return 1;
    for (which = 0; which < 2; ++which)
        for (r = 0; r < 20; ++r) {{
            const double start = now();
            for (p = 0; p < {count}; ++p)
                if (which) y[p] = ({kind})formula(x[p]); else layer(x[p], &y[p]);
            const double spent = (now() - start) / {count};
            best[which] = spent < best[which] ? spent : best[which];
            sum += y[0];
        }}
    printf("%.1f %.1f %g\\n", best[0], best[1], sum);
    return 0;
}}
"""


def best(call: Callable[[], Any], calls: int) -> float:
    """Nanoseconds of one call, the least mean of REPEATS rounds."""
    call()
    spent = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        spent.append((time.perf_counter_ns() - start) / calls)
    return min(spent)


def in_c(a: Approximation, formula: str, points: torch.Tensor, folder: Path) -> tuple[float, float, int, int]:
    path = to_c(a, folder / "layer.c")
    kind = "double" if a.model.dtype == torch.float64 else "float"
    (folder / "driver.c").write_text(DRIVER.format(formula=formula, count=len(points), kind=kind))
    subprocess.run(["gcc", *FLAGS, "-c", str(path), "-o", str(folder / "layer.o")], check=True)
    sections = subprocess.run(["size", str(folder / "layer.o")], capture_output=True, text=True, check=True).stdout
    program = folder / "driver"
    subprocess.run(
        ["gcc", "-O2", str(folder / "driver.c"), str(folder / "layer.o"), "-o", str(program), "-lm"], check=True
    )
    done = subprocess.run([str(program)], input=widened(points).numpy().tobytes(), capture_output=True, check=True)
    own, plain, _ = (float(word) for word in done.stdout.split())
    return own, plain, int(sections.splitlines()[1].split()[3]), path.stat().st_size


def row(name: str, text: str, domain: str, eps: float, dtype: str) -> dict[str, Any]:
    a = approximate(text, parse_domain(domain), eps, dtype=dtype)
    points = a.box.sample(BATCH).to(a.model.dtype)
    one = points[:1]
    with tempfile.TemporaryDirectory() as folder:
        own, plain, compiled, source = in_c(a, FORMULAS[name], points, Path(folder))
        runtime = require("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        path = to_onnx(a, Path(folder) / "layer.onnx")
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        arrays = {"one": widened(one).numpy(), "all": widened(points).numpy()}
        with torch.no_grad():
            return {
                "function": name,
                "format": dtype,
                "eps": eps,
                "tokens": a.size()["tokens"] + a.size()["hidden_units"],
                "object_bytes": compiled,
                "source_bytes": source,
                "c_ns": own,
                "formula_ns": plain,
                "onnx_1_ns": best(lambda: session.run(None, {"x": arrays["one"]}), CALLS),
                "onnx_4096_ns": best(lambda: session.run(None, {"x": arrays["all"]}), 5) / BATCH,
                "torch_1_ns": best(lambda: a.model(one), CALLS),
                "torch_4096_ns": best(lambda: a.model(points), 5) / BATCH,
            }


def main() -> None:
    if shutil.which("gcc") is None:
        raise SystemExit("this benchmark needs gcc")
    torch.set_num_threads(1)
    rows = [row(*case) for case in CASES]
    report.write("c_program", rows)


if __name__ == "__main__":
    main()
