"""Enclosures by the million: random programs on many boxes at once, executed values against range and polynomial."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor

import onelayer as ol
from liar import programs
from liar.calls import MIXING
from liar.judge import Tally
from onelayer.taylor import basis, variables
from onelayer.taylor.core import TaylorModel

BOXES, POINTS, REPEATS = 48, 64, 3
DEVICE = {"name": "cpu"}  # set by the runner


def enclosures(rng: Random, case: Any) -> Tally:
    """What a Taylor model executed in a format claims to enclose, at points of the format, without tolerance."""
    tally = Tally()
    device = torch.device(DEVICE["name"])
    for _ in range(REPEATS):
        dim, order = rng.randint(1, 3), rng.randint(1, 5)
        execution = rng.choice([torch.float64, torch.float32])
        centre = (rng.randrange(dim), round(rng.uniform(-1, 1), 3)) if rng.random() < 0.4 else None
        program = programs.random_program(rng, dim, centre)
        if MIXING & set(program.steps):
            continue  # Taylor models take batches of boxes; that T keeps its points apart is tried at the door
        case.words |= {"T": program.steps, "centre": centre, "order": order, "execution": str(execution)}
        low, high = _boxes(rng, dim, centre)
        points = _points(low, high, execution, centre, rng)  # (B, K, D)
        tally += _enclosed(program, low.to(device), high.to(device), points.to(device), order, execution)
        if tally.lies:
            break
    return tally


@torch.no_grad()
def _enclosed(
    program: programs.Program, low: Tensor, high: Tensor, points: Tensor, order: int, execution: torch.dtype
) -> Tally:
    tally = Tally()
    flat = points.reshape(-1, points.shape[-1])
    try:
        values = program(flat.to(execution)).double().reshape(points.shape[:2])
    except Exception:
        return tally  # torch itself refuses
    x = variables(low, high, order, execution=execution)
    try:
        model = program(x)
    except (ol.OnelayerError, TypeError, AttributeError, IndexError):
        tally.count["refused"] += 1
        return tally
    if not isinstance(model, TaylorModel) or tuple(model.shape) != (len(low),):
        return tally
    model = model.plain()
    lower, upper = model.range()
    bound = model.split_bound()
    committed = torch.isfinite(model.rem)[:, None].expand_as(values)
    tally.count["enclosures"] += 3 * int(committed.sum())
    apart = (values - _polynomial(model, x, points)).abs()
    slack = 1e-14 * (2 + model.degree) * model.total()
    inside = (values >= lower[:, None]) & (values <= upper[:, None]) & (values.abs() <= bound[:, None])
    inside &= apart <= (model.rem + slack)[:, None]
    bad = (committed & ~inside).nonzero()
    if len(bad):
        b, k = bad[0].tolist()
        ends = f"[{float(lower[b])!r}, {float(upper[b])!r}], remainder {float(model.rem[b])!r}"
        where = f"box {low[b].tolist()}..{high[b].tolist()} at {points[b, k].tolist()}"
        tally.lies.append(f"enclosure {ends} of {float(values[b, k])!r}, {where}")
    return tally


def _polynomial(model: TaylorModel, x: TaylorModel, points: Tensor) -> Tensor:
    """The polynomial at the points (B, K), in float64."""
    radius = torch.stack([x.coef[1 + i, :, i] for i in range(points.shape[-1])], -1)  # (B, D)
    t = torch.where(radius[:, None] > 0, (points - x.coef[0][:, None]) / radius[:, None], 0.0)
    table = torch.as_tensor(basis.exponents(len(model.support), model.degree), device=points.device).double()
    powers = (t[..., None, list(model.support)] ** table).prod(-1)  # (B, K, P)
    return torch.einsum("bkp,pb->bk", powers, model.coef)


def _boxes(rng: Random, dim: int, centre: tuple[int, float] | None) -> tuple[Tensor, Tensor]:
    """Boxes of widths from zero to two; a third around the spike."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    middle = torch.randn(BOXES, dim, generator=generator, dtype=torch.float64)
    width = 10 ** (torch.rand(BOXES, 1, generator=generator, dtype=torch.float64) * 13 - 12.7)
    width = width * torch.rand(BOXES, dim, generator=generator, dtype=torch.float64)
    width[torch.rand(BOXES, dim, generator=generator) < 0.1] = 0.0
    if centre is not None:
        middle[: BOXES // 3, centre[0]] = centre[1]
    return middle - width / 2, middle + width / 2


def _points(low: Tensor, high: Tensor, dtype: torch.dtype, centre: tuple[int, float] | None, rng: Random) -> Tensor:
    """Corners, the spike and random points of every box, as numbers of the format; the box grows to hold them."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    share = torch.rand(len(low), POINTS, low.shape[-1], generator=generator, dtype=torch.float64)
    share[:, : POINTS // 4] = share[:, : POINTS // 4].round()
    points = low[:, None] + share * (high - low)[:, None]
    if centre is not None:
        at = torch.full_like(low[:, 0], centre[1]).clamp(low[:, centre[0]], high[:, centre[0]])
        points[:, :4, centre[0]] = at[:, None]
    points = points.to(dtype).double()
    low.copy_(torch.minimum(low, points.amin(1)))
    high.copy_(torch.maximum(high, points.amax(1)))
    return points
