"""Does a Taylor model enclose its function? Checked at points in Arb or mpmath, polynomial and remainder included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
import torch
from flint import arb, arb_mat, ctx
from reference_arithmetic import ArbLib, MpLib, TorchLib
from torch import Tensor

from onelayer.taylor import basis, variables
from onelayer.taylor.core import TaylorModel

Case = Callable[[Any, Any], Any]  # f(x, lib)
PRECISIONS = (200, 800, 6400)
SAME = arb(2) ** -150


@dataclass
class Tally:
    """How many points were checked, how many could not be (no finite enclosure), and where one was outside."""

    checks: int = 0
    undecided: int = 0
    unclear: int = 0
    violations: list[str] = field(default_factory=list)

    def __iadd__(self, other: Tally) -> Tally:
        self.checks += other.checks
        self.undecided += other.undecided
        self.unclear += other.unclear
        self.violations += other.violations
        return self


def points_of(lower: Tensor, upper: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(B, count, D): both extreme corners, the centre, points an ulp inside, random corners and random points."""
    b, d = lower.shape
    corners = torch.rand(b, count, d, generator=generator, dtype=torch.float64) < 0.5
    points = torch.where(corners, lower[:, None], upper[:, None])
    inner = lower[:, None] + (upper - lower)[:, None] * torch.rand(
        b, count, d, generator=generator, dtype=torch.float64
    )
    points[:, count // 3 :] = inner[:, count // 3 :]
    points[:, 0], points[:, 1], points[:, 2] = lower, upper, lower / 2 + upper / 2
    return torch.minimum(torch.maximum(points, lower[:, None]), upper[:, None])


def adversarial(case: Case, model: TaylorModel, x: TaylorModel, lower: Tensor, upper: Tensor, keep: int) -> Tensor:
    """(B, keep, D): of many points those where |f - p| seems largest against the remainder, in floating point."""
    generator = torch.Generator().manual_seed(7)
    points = points_of(lower, upper, 96, generator)  # (B, K, D)
    radius = x.coef[1:].sum(0)
    t = torch.where(radius[:, None] > 0, (points - x.coef[0][:, None]) / radius[:, None], 0.0)
    table = torch.as_tensor(basis.exponents(len(model.support), model.degree)).double()
    powers = (t[..., None, list(model.support)] ** table).prod(-1)  # (B, K, P)
    polynomial = torch.einsum("bkp,pb...->bk...", powers, model.coef)
    try:
        value = case(points.reshape(-1, points.shape[-1]), TorchLib).reshape(polynomial.shape)
    except (RuntimeError, ValueError):
        return points[:, :keep]
    excess = ((value - polynomial).abs() / model.rem[:, None]).nan_to_num(0.0).reshape(*points.shape[:2], -1).amax(-1)
    worst = excess.topk(keep, dim=1).indices
    return torch.gather(points, 1, worst[..., None].expand(-1, -1, points.shape[-1]))


def enclosed(case: Case, lower: Tensor, upper: Tensor, order: int, count: int, seed: int = 0) -> Tally:
    """Check one case (x (..., D) -> (..., E)) on a batch of boxes at ``count`` points each."""
    x = variables(lower, upper, order)
    result = case(x, TorchLib)
    model = result.plain()
    points = points_of(lower, upper, count, torch.Generator().manual_seed(seed))
    if model.support:
        points = torch.cat([points, adversarial(case, model, x, lower, upper, max(2, count // 4))], 1)
    tally = Tally()
    bounds = (*model.range(), model.split_bound())
    for b in range(len(lower)):
        tally += _check_box(case, model, x, points[b], b, bounds)
    return tally


def _check_box(
    case: Case, model: TaylorModel, x: TaylorModel, points: Tensor, b: int, bounds: tuple[Tensor, ...]
) -> Tally:
    tally = Tally()
    entries = model.coef[:, b].reshape(len(model.coef), -1)
    rem = model.rem[b].reshape(-1).tolist()
    low, high, size = (bound[b].reshape(-1).tolist() for bound in bounds)
    finite = [np.isfinite(r) for r in rem]
    tally.undecided += len(points) * finite.count(False)
    todo = [(k, e) for k in range(len(points)) for e in range(len(rem)) if finite[e]]
    for precision in PRECISIONS:
        if not todo:
            break
        ctx.prec = precision
        rows = sorted({k for k, _ in todo})
        polynomial = _polynomial(model, x, points[rows], b, entries)
        left = []
        values = [np.asarray(case(_numbers(points[k]), ArbLib()), dtype=object).reshape(-1) for k in rows]
        at = {k: i for i, k in enumerate(rows)}
        for k, e in todo:
            value = values[at[k]][e]
            gap = abs(value - polynomial[at[k], e])
            # Agreement to 45 digits is agreement: a remainder of zero cannot be met by balls.
            if (
                gap <= arb(rem[e]) + SAME * abs(value)
                and arb(low[e]) <= value <= arb(high[e])
                and abs(value) <= arb(size[e])
            ):
                tally.checks += 1
            elif (
                not value.is_finite()
                or value.rel_accuracy_bits() < 80
                or _unsure(gap, rem[e], value, low[e], high[e], size[e])
            ):
                left.append((k, e))
            else:
                tally.checks += 1
                tally.violations.append(
                    f"box {b} point {points[k].tolist()} entry {e}: off by {gap}, remainder {rem[e]}"
                )
        todo = left
    ctx.prec = PRECISIONS[0]
    for k, e in todo:
        if values[at[k]][e].is_finite():
            tally.unclear += 1
        else:
            tally.checks += 1
            tally.violations.append(f"box {b} entry {e}: finite remainder {rem[e]}, no value at {points[k].tolist()}")
    return tally


def _unsure(gap: Any, rem: float, value: Any, low: float, high: float, size: float) -> bool:
    """Whether the balls are too wide to tell inside from outside."""
    return not (gap > arb(rem) or value < arb(low) or value > arb(high) or abs(value) > arb(size))


def _numbers(point: Tensor) -> np.ndarray[Any, Any]:
    return np.array([arb(v) for v in point.tolist()], dtype=object)


def _polynomial(model: TaylorModel, x: TaylorModel, points: Tensor, b: int, entries: Tensor) -> Any:
    """p(t) for all points and entries, t exactly the normalised coordinate of the point."""
    table = basis.exponents(len(model.support), model.degree).tolist()
    rows = []
    for point in points.tolist():
        t = []
        for v in model.support:
            center, radius = x.coef[0][b, v].item(), x.coef[1 + v][b, v].item()
            t.append((arb(point[v]) - arb(center)) / arb(radius) if radius > 0 else arb(0))
        powers = [[value**n for n in range(model.degree + 1)] for value in t]
        row = []
        for exponent in table:
            term = arb(1)
            for n, column in zip(exponent, powers, strict=True):
                if n:
                    term = term * column[n]
            row.append(term)
        rows.append(row)
    return arb_mat(rows) * arb_mat([[arb(v) for v in line] for line in entries.tolist()])


def executed(case: Case, lib: Any, dtype: torch.dtype, lower: Tensor, upper: Tensor, order: int, count: int) -> Tally:
    """Check what torch computes in ``dtype`` at numbers of that type inside the boxes against the executed model."""
    ctx.prec = PRECISIONS[0]
    x = variables(lower, upper, order, execution=dtype)
    model = case(x, lib).plain()
    points = points_of(lower, upper, count, torch.Generator().manual_seed(count)).to(dtype)
    inside = ((points.double() >= lower[:, None]) & (points.double() <= upper[:, None])).all(-1)
    computed = case(points.reshape(-1, points.shape[-1]), lib).double().reshape(*points.shape[:2], -1)
    low, high = (side.reshape(len(lower), 1, -1) for side in model.range())
    tally = Tally()
    for b in range(len(lower)):
        rows = torch.nonzero(inside[b]).flatten().tolist()
        if not rows:
            continue
        entries, rem = model.coef[:, b].reshape(len(model.coef), -1), model.rem[b].reshape(-1).tolist()
        polynomial = _polynomial(model, x, points[b, rows].double(), b, entries)
        for i, k in enumerate(rows):
            for e, value in enumerate(computed[b, k].tolist()):
                if not np.isfinite(rem[e]):
                    tally.undecided += 1
                    continue
                tally.checks += 1
                # The polynomial is a ball itself: where its terms cancel, its own radius of 1e-60 or so remains.
                allowed = arb(rem[e]) + SAME * abs(value) + 2 * polynomial[i, e].rad()
                good = np.isfinite(value) and abs(arb(value) - polynomial[i, e]) <= allowed
                if not (good and low[b, 0, e] <= value <= high[b, 0, e]):
                    tally.violations.append(
                        f"{dtype}: {value} against {polynomial[i, e]} +- {rem[e]} at {points[b, k]}"
                    )
    return tally


def enclosed_mpmath(case: Case, lower: Tensor, upper: Tensor, order: int, count: int, seed: int = 0) -> Tally:
    """The same against 50-digit mpmath: range and bound of the Taylor model at points."""
    model = case(variables(lower, upper, order), TorchLib).plain()
    points = points_of(lower, upper, count, torch.Generator().manual_seed(seed))
    low, high = model.range()
    tally = Tally()
    slack = mpmath.mpf(10) ** -45
    with mpmath.workdps(50):
        for b, k in np.ndindex(points.shape[0], points.shape[1]):
            numbers = np.array([mpmath.mpf(v) for v in points[b, k].tolist()], dtype=object)
            try:
                values = np.asarray(case(numbers, MpLib()), dtype=object).reshape(-1)
            except (ZeroDivisionError, ValueError):
                continue  # mpmath raises where Arb returns nan: those points belong to the other tests
            for value, a, z in zip(values, low[b].reshape(-1).tolist(), high[b].reshape(-1).tolist(), strict=True):
                if not (np.isfinite(a) and np.isfinite(z)):
                    tally.undecided += 1
                    continue
                tally.checks += 1
                if isinstance(value, mpmath.mpc) or not mpmath.mpf(a) - slack * abs(value) <= value <= mpmath.mpf(
                    z
                ) + slack * abs(value):
                    tally.violations.append(f"mpmath: {value} outside [{a}, {z}] at {points[b, k].tolist()}")
    return tally
