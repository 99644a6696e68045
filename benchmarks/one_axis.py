"""One axis: tokens of a proved fit against Chebyshev coefficients for the same sup error.

Chebyshev coefficients are the least n whose interpolant at n Chebyshev points has sup error <= eps. Tokens are those of
`approximate`, ReLU units included, each row with its proof.

python benchmarks/one_axis.py [--extra]
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
import report
import torch
from scipy.fft import dct
from suite import ONE_AXIS

from onelayer import Box, approximate
from onelayer.language.formula import parse

EPSILONS = (1e-3, 1e-6, 1e-9)
EXTRA = {
    "1/(1+100(x-.2)^2)": "1/(1+100*(x-0.2)**2)",
    "exp(-x) sin 5x": "exp(-x)*sin(5*x)",
    "log(x+2)": "log(x+2)",
    "cosh x": "(exp(x)+exp(-x))/2",
    "x^3-x": "x**3-x",
    "erf 5x": "erf(5*x)",
    "1/(x+1.5)": "1/(x+1.5)",
    "sqrt(x^2+.01)": "sqrt(x**2+0.01)",
    "x^20": "x**20",
    "sin 40x": "sin(40*x)",
    "sin 8(x+1)^2": "sin(8*(x+1)**2)",
    "atan 20x": "atan(20*x)",
    "1/(x+1.001)": "1/(x+1.001)",
    "x sigmoid 50x": "x*sigmoid(50*x)",
    "tanh 1000(x-.3)": "tanh(1000*(x-0.3))",
    "x^2": "x**2",
}
SKIPPED = {("|x-.1|", 1e-9)}
MOST = 4096


def chebyshev_coefficients(formula: str, eps: float) -> int:
    """Least n found; past MOST it is extrapolated by the rate 1/n of a kink (a lower estimate for anything rougher)."""
    f = parse(formula, 1)

    def error(n: int) -> float:
        angles = np.pi * (np.arange(n) + 0.5) / n
        coefficients = dct(f(torch.from_numpy(np.cos(angles))[:, None]).numpy()) / n
        coefficients[0] /= 2
        x = np.cos(np.linspace(0, np.pi, 8 * n + 1001))
        exact = f(torch.from_numpy(x)[:, None]).numpy()
        return float(np.abs(np.polynomial.chebyshev.chebval(x, coefficients) - exact).max())

    n = 1
    while error(n) > eps and n < MOST:
        n *= 2
    if n == MOST:
        return math.ceil(n * error(n) / eps)
    low = n // 2
    while n - low > 1:
        middle = (low + n) // 2
        low, n = (low, middle) if error(middle) <= eps else (middle, n)
    return n


def row(name: str, formula: str, eps: float) -> dict[str, Any]:
    start, busy = time.perf_counter(), time.process_time()
    result = approximate(formula, Box([-1.0], [1.0]), eps)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    size, certificate = result.size(), result.certificate
    tokens = size["tokens"] + size["hidden_units"]
    coefficients = chebyshev_coefficients(formula, eps)
    memories = [result.model.memory_of(head) for head in range(size["heads"])]
    return {
        "function": name,
        "eps": f"{eps:g}",
        "tokens": tokens,
        "Chebyshev": coefficients,
        "ratio": tokens / coefficients,
        "status": certificate.status,
        "lower": certificate.lower,
        "upper": certificate.upper,
        "boxes": certificate.boxes,
        "|v|max": max(float(memory.values.abs().max()) for memory in memories),
        "seconds": seconds,
        "processor s": busy,
    }


def main() -> None:
    functions = EXTRA if "--extra" in sys.argv else ONE_AXIS
    approximate("x", Box([0.0], [1.0]), 0.5)  # first-use costs of torch are not part of a measurement
    rows = [row(name, text, eps) for name, text in functions.items() for eps in EPSILONS if (name, eps) not in SKIPPED]
    ratios = [float(entry["ratio"]) for entry in rows]
    smooth = [float(entry["ratio"]) for entry in rows if entry["function"] != "|x-.1|"]
    report.write(
        "one_axis_extra" if "--extra" in sys.argv else "one_axis",
        rows,
        geometric_mean=math.exp(sum(map(math.log, ratios)) / len(ratios)),
        geometric_mean_without_kink=math.exp(sum(map(math.log, smooth)) / len(smooth)),
        worst=max(ratios),
        proved=f"{sum(entry['status'] == 'proved' for entry in rows)} of {len(rows)}",
    )


if __name__ == "__main__":
    main()
