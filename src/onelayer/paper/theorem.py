"""Theorem 1 repaired and run: the paper's own example with a proof, sequences to sequences, and size against eps."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from onelayer.box import Box
from onelayer.build.sequences.gather import gather
from onelayer.checker.check import check
from onelayer.conductor import approximate
from onelayer.paper.finding import REPAIRED, Check, Finding, Picture, ResultTable, Setting, at_least, at_most, number
from onelayer.pictures.drawing import picture
from onelayer.pictures.rate import fit_rate, rate_figure
from onelayer.pictures.scene import Scene

SINES = "sin(x1) + sin(x2)"
PLANE = Box([0.0, 0.0], [2 * math.pi] * 2)
LINE = Box([-1.0], [1.0])
# Formula, domain and oscillation max f - min f there.
SIZED = {
    "sin x₁ + sin x₂": (SINES, PLANE, 4.0),
    "exp(sin πx)": ("exp(sin(pi*x))", LINE, math.e - 1 / math.e),
    "1/(1 + 25x²)": ("1/(1 + 25*x**2)", LINE, 25 / 26),
}
MEAN_PRODUCT = "; ".join(f"x{i}*(x1+x2+x3+x4)/4" for i in range(1, 5))


def repaired(setting: Setting) -> Finding:
    """Build T for sin x1 + sin x2, prove sup|T - f| <= eps, and prove it again from the files in ball arithmetic."""
    rows = []
    checks = []
    results = []
    for eps in setting.pick((1e-3, 1e-6), (1e-3, 1e-6, 1e-9)):
        result = approximate(SINES, PLANE, eps, seed=setting.seed)
        with tempfile.TemporaryDirectory() as folder:
            again = check(result.save(Path(folder) / "sines"))
        size = result.size()
        proof = result.certificate
        sizes = (size["heads"], size["tokens"], size["parameters"])
        rows.append((eps, *sizes, at_least(proof.lower), at_most(proof.upper), again.ok))
        checks.append(Check(f"proved sup error, asked {number(eps)}", proof.upper, "<=", eps))
        checks.append(Check("accepted by the independent checker", float(again.ok), "=", 1))
        results.append(result)
    said = (
        "Theorem 1 is true in the reading that the paper mentions in passing, an “output token” that attends to stored "
        "ones: one query carries the whole input, one softmax runs over all regions, and the weights are a partition "
        "of unity. The layer is built, not trained, and its error is proved on every point of the square."
    )
    header = (
        "ε asked",
        "heads",
        "memory tokens",
        "parameters",
        "error at least",
        "error proved at most",
        "re-proved from files",
    )
    caption = "f, T, and the error with the boxes of its proof, for the smallest ε of the table."
    last = results[-1]
    built = Picture("built", caption, picture(Scene.of(last)), last)
    return Finding(REPAIRED, said, checks, [ResultTable(header, tuple(rows))], [built])


def sequence_to_sequence(setting: Setting) -> Finding:
    """Theorem 1 as stated, f : R^{n x d} -> R^{n x d}: y_i = x_i mean(x) for four tokens on [-1, 1], two readings."""
    box = Box([[-1.0]] * 4, [[1.0]] * 4)
    eps = setting.pick(0.1, 0.05)
    tokens = gather(MEAN_PRODUCT, box, eps, seed=setting.seed)
    # The same numbers as one flat vector: the query carries all of it.
    flat = Box([-1.0] * 4, [1.0] * 4)
    packed = approximate(MEAN_PRODUCT, flat, eps, seed=setting.seed)
    readings = {
        "tokens stay tokens, the FFN approximates": tokens,
        "one query token, memory approximates": packed,
    }
    rows = []
    checks = []
    for name, result in readings.items():
        size = result.size()
        proof = result.certificate
        bounds = at_least(proof.lower), at_most(proof.upper)
        rows.append((name, size["heads"], size["tokens"], size["hidden_units"], *bounds))
        checks.append(Check(f"proved sup error over all positions, {name}", proof.upper, "<=", eps))
    said = (
        "Two sound proofs of the statement, both executed. Gather: heads attend by position and hand every position "
        "the whole sequence, exactly and at finite temperature; the ReLU network then approximates. Lookup: one token "
        "carries vec(X), and memory does the work."
    )
    header = ("reading", "heads", "memory tokens", "hidden units", "error at least", "error proved at most")
    return Finding(REPAIRED, said, checks, [ResultTable(header, tuple(rows))])


def size_for_accuracy(setting: Setting) -> Finding:
    """How large must the layer be for eps? Tokens of built layers against the error proved for them, with fitted laws.

    The printed construction needs at least osc(f)/eps regions: they cover the interval f(X), each by less than eps.
    """
    asked = setting.pick((1e-1, 1e-2, 1e-3, 1e-5), (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8))
    series = {}
    rows = []
    checks = []
    for name, (formula, box, oscillation) in SIZED.items():
        tokens = []
        uppers = []
        for eps in asked:
            result = approximate(formula, box, eps, seed=setting.seed)
            tokens.append(result.size()["tokens"])
            uppers.append(result.certificate.upper)
            checks.append(Check(f"{name}: proved error, asked {number(eps)}", uppers[-1], "<=", eps))
        series[name] = list(zip(tokens, uppers, strict=True))
        rate = fit_rate(series[name])
        rows.append((name, *tokens, str(rate)))
        regions = oscillation / asked[-1]
        per_region = f"{name}: tokens per region of the printed construction at {number(asked[-1])}"
        checks.append(Check(per_region, tokens[-1] / regions, "<", 0.01))
    said = (
        "The paper leaves the size open. For analytic functions the built layers need a number of tokens that grows "
        "like the logarithm of 1/ε, where the printed construction takes at least osc(f)/ε regions, one head each, and "
        "like (1/ε)^D of them if they are the cells of a grid in D dimensions."
    )
    header = ("function", *(f"tokens, ε = {number(eps)}" for eps in asked), "fitted law of the error")
    figure = rate_figure(series, title="memory tokens against the proved error, with the fitted law (dashed)")
    pictured = Picture("size", "Proved error against memory tokens of the built layers.", figure)
    return Finding(REPAIRED, said, checks, [ResultTable(header, tuple(rows))], [pictured])
