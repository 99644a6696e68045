"""Whether an accepted folder is true, as far as points can tell: T by torch, f by mpmath."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mpmath
import torch

from onelayer.language.formula import Formula
from onelayer.proof.files import TABLE, read_table
from onelayer.result import Approximation

FUNCTIONS = {name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "atan", "erf")}
FUNCTIONS |= {"abs": abs, "neg": lambda x: -x, "relu": lambda x: max(x, mpmath.mpf(0))}
FUNCTIONS |= {"sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "min": min, "max": max}
FUNCTIONS |= {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


def value(formula: Formula, point: Sequence[float]) -> list[Any]:
    """f at a point with 60 digits."""
    found: list[Any] = []
    for node in formula.nodes:
        args = [found[at] for at in node.args]
        match node.op:
            case "var":
                found.append(mpmath.mpf(point[int(node.value)]))
            case "num":
                found.append(mpmath.mpf(node.value))
            case "pi" | "e":
                found.append(+getattr(mpmath, node.op))
            case "pow":
                found.append(args[0] ** int(node.value))
            case name:
                found.append(FUNCTIONS[name](*args))
    return [found[at] for at in formula.outputs]


def points_of(result: Approximation) -> torch.Tensor:
    """Rows of a table; otherwise corners and quasi-random points, as numbers of the executed format in the domain."""
    if TABLE in result.certificate.attachments:
        return torch.from_numpy(read_table(result.certificate.attachments[TABLE])[0])
    shape = result.box.shape
    points = torch.cat([result.box.sample(200).reshape(-1, *shape), result.box.corners(32).reshape(-1, *shape)])
    points = points.to(result.model.dtype).double()
    return points[result.box.contains(points)]


def falsehood(result: Approximation) -> str | None:
    """What contradicts the claim, if anything does."""
    claim, points = result.certificate, points_of(result)
    if not len(points):
        return None
    with torch.no_grad():
        t = result.model(points.to(result.model.dtype)).double().reshape(len(points), -1)
    if claim.arithmetic != "real" and math.isfinite(claim.upper) and not torch.isfinite(t).all():
        return "a forward pass returns no number"
    exact = exact_values(result, points)
    if exact is None:
        return None
    slack = 1e-9 if claim.arithmetic == "real" else 0
    with mpmath.workdps(60):
        for row, point, outputs in zip(t.tolist(), points.reshape(len(points), -1).tolist(), exact, strict=True):
            error = max(abs(mpmath.mpf(a) - b) for a, b in zip(row, outputs, strict=True))
            if error > mpmath.mpf(claim.upper) * (1 + slack) + slack:
                return f"{mpmath.nstr(error, 8)} above {claim.upper!r} at {point}"
    return refuted_falsely(result)


def refuted_falsely(result: Approximation) -> str | None:
    """A refutation names a point at which the error is above eps, up to the rounding of one pass."""
    claim = result.certificate
    if claim.status != "refuted":
        return None
    point = torch.tensor(claim.witness, dtype=torch.float64).reshape(1, *result.box.shape)
    with torch.no_grad():
        t = result.model(point.to(result.model.dtype)).double().reshape(-1).tolist()
    exact = exact_values(result, point)
    if exact is None:
        return None
    error = max(abs(mpmath.mpf(a) - b) for a, b in zip(t, exact[0], strict=True))
    unit = torch.finfo(result.model.dtype).eps
    return None if error > claim.eps * (1 - 1e-6) - 1e3 * unit else f"refuted, but the error is {mpmath.nstr(error, 8)}"


def exact_values(result: Approximation, points: torch.Tensor) -> list[list[Any]] | None:
    """f at each point; None when the folder does not say what f is."""
    flat = points.reshape(len(points), -1)
    if TABLE in result.certificate.attachments:
        x, y = (
            torch.from_numpy(side).reshape(len(side), -1) for side in read_table(result.certificate.attachments[TABLE])
        )
        rows = {tuple(a): b for a, b in zip(x.tolist(), y.tolist(), strict=True)}
        return [[mpmath.mpf(v) for v in rows[tuple(point)]] for point in flat.tolist()]
    if result.target is None:
        return None
    if result.target.formula is None:  # order statistics: exact up to one sum
        return [
            [mpmath.mpf(v) for v in row] for row in result.target.function(points).reshape(len(points), -1).tolist()
        ]
    with mpmath.workdps(60):
        return [value(result.target.formula, point) for point in flat.tolist()]
