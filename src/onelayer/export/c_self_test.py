"""The self-test of a C file: points of the domain, what f is there, and what the program may differ by."""

from __future__ import annotations

import math
from typing import TypeGuard

import torch
from flint import arb
from torch import Tensor

from onelayer.export.c_text import array, literal
from onelayer.formats import REAL, format_of
from onelayer.ground import ball_precision
from onelayer.guard import inward
from onelayer.language.balls import in_balls
from onelayer.language.formula import Formula
from onelayer.proof.certificate import ABOVE, Certificate
from onelayer.proof.claim import ESTIMATED
from onelayer.proof.covered import table_rows
from onelayer.result import Approximation
from onelayer.source import Exportable, Source

# Points of the self-test: corners of the box, scattered points, and the point of the largest error known.
CORNERS, SCATTERED = 16, 48
# Of the balls in which f is evaluated for the self-test: more where they are wide, for sums that nearly cancel.
BITS = (200, 1000, 5000)
NOTHING = 2.0**-1000  # what is left of zero in so many bits
# For a layer without a proof: the bar of every export.
MEASURED = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 0.1}


def bounded(a: Exportable) -> TypeGuard[Approximation]:
    """Whether something finite is proved about the program of ``a``, which rounds; an estimate proves nothing."""
    if not isinstance(a, Approximation):
        return False
    proof = a.certificate
    return math.isfinite(proof.upper) and proof.arithmetic != REAL and proof.method != ESTIMATED


def counts(source: Source) -> tuple[int, int]:
    """Numbers in and out of the layer."""
    config = source.model.config
    return math.prod(config.input_shape), math.prod(config.output_shape)


def self_test(name: str, a: Exportable, source: Source) -> str:
    """Compiled with -DNAME_SELF_TEST the file is a program that returns 0 when every point is inside the bound."""
    # A bare layer has no domain to take points from.
    if source.box is None:
        return ""
    dtype = source.model.dtype
    inputs, outputs = counts(source)
    points, wanted, allowed, meant = _asked(a, source)
    upper = name.upper()
    held = format_of(dtype).computing.dtype
    numbers = (literal(v, held) for v in points.flatten().tolist())
    xs = array("    static const real x", numbers, points.numel())
    values = (literal(v, torch.float64) for v in wanted.flatten().tolist())
    ys = array("    static const double y", values, wanted.numel())
    return f"""#ifdef {upper}_SELF_TEST
/* {len(points)} points: {meant};
   allowed is what the program may differ by. */
static int self_test(void)
{{
{xs}{ys}    const double allowed = {literal(allowed, torch.float64)};
    int p, k, failed = 0;
    for (p = 0; p < {len(points)}; ++p) {{
        real found[{outputs}];
        {name}(x + p * {inputs}, found);
        for (k = 0; k < {outputs}; ++k)
            failed += !(fabs((double)found[k] - y[p * {outputs} + k]) <= allowed);
    }}
    return failed;
}}

int main(void)
{{
    return self_test() != 0;
}}
#endif
"""


def _points(source: Source, a: Exportable) -> Tensor:
    box = source.domain
    dtype = source.model.dtype
    low = inward(box.lower, dtype, up=True)
    high = inward(box.upper, dtype, up=False)
    parts = [box.corners(CORNERS), box.sample(SCATTERED)]
    if isinstance(a, Approximation) and a.certificate.witness is not None:
        witness = torch.tensor(a.certificate.witness, dtype=torch.float64)
        parts.append(witness.reshape(1, *box.shape))
    points = torch.cat(parts).to(dtype)
    # Rounding to the format may leave the domain, where nothing is proved.
    return torch.minimum(torch.maximum(points, low), high)


def _formula(a: Exportable) -> Formula | None:
    """The formula of f, where the layer is proved to be near it."""
    if not bounded(a) or a.target is None:
        return None
    return a.target.formula


def _asked(a: Exportable, source: Source) -> tuple[Tensor, Tensor, float, str]:
    """Points (P, D), values (P, K), what may lie between those and the program, and what points and values are.

    Values are those of f or of the table, and what may lie between is the bound and what they were rounded by; or those
    of T, and twice the bound. Where nothing is proved of the program it is the bar of exports.
    """
    if bounded(a) and a.certificate.where:
        points, wanted = _rows(a.certificate)
        return points, wanted, a.certificate.upper * ABOVE, "rows of the table, and y is what it holds"
    points = _points(source, a)
    about = "corners of the domain, scattered points, the point of the largest error known"
    flat = points.reshape(len(points), -1)
    if bounded(a):
        known = _values_of_f(a, flat)
        if known is not None:
            wanted, rounding = known
            return flat, wanted, (a.certificate.upper + rounding) * ABOVE, f"{about};\n   y is f(x), rounded"
    with torch.no_grad():
        wanted = source.model(points).double().reshape(len(points), -1)
    about = f"{about};\n   y is T(x) as PyTorch computes it"
    if bounded(a):
        return flat, wanted, 2 * a.certificate.upper * ABOVE, about
    size = max(1.0, float(wanted.abs().max()))
    return flat, wanted, MEASURED[source.model.dtype] * size, about


def _rows(certificate: Certificate) -> tuple[Tensor, Tensor]:
    """Rows (P, D) and what the table holds for them (P, K), evenly spread over it."""
    x, y = table_rows(certificate)
    count = min(len(x), CORNERS + SCATTERED)
    chosen = torch.linspace(0, len(x) - 1, count, dtype=torch.float64).round().long()
    return x[chosen].reshape(count, -1), y[chosen].reshape(count, -1)


def _values_of_f(a: Approximation, points: Tensor) -> tuple[Tensor, float] | None:
    """f at the points as float64, and how far they may be from f; None where balls stay wide."""
    formula = _formula(a)
    if formula is None:
        return None
    for bits in BITS:
        with ball_precision(bits):
            balls = [in_balls(formula, row) for row in points.double().tolist()]
            rows = [[float(value.mid()) for value in row] for row in balls]
            pairs = [pair for both in zip(balls, rows, strict=True) for pair in zip(*both, strict=True)]
            apart = max(float(abs(ball - arb(number)).upper()) for ball, number in pairs)
        wanted = torch.tensor(rows, dtype=torch.float64)
        least = max(float(wanted.abs().max()) * 2.0**-52, NOTHING)
        # Written so that nan is not narrow.
        if apart <= least < math.inf:
            return wanted, apart
    return None
