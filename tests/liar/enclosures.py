"""Enclosures by the million: random programs and layers on many boxes at once, as they run in each format."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from random import Random
from typing import Any

import torch
from torch import Tensor

import onelayer as ol
from liar import programs
from liar.boxes import polynomials
from liar.calls import MIXING, Code
from liar.judge import Tally
from liar.layers import Flat, random_layer
from onelayer.ground import pinned
from onelayer.observer import Observer
from onelayer.proof.contract import examine
from onelayer.proof.error import error_function
from onelayer.proof.forward import enclose
from onelayer.proof.recorded import understood
from onelayer.taylor import kernels, variables
from onelayer.taylor.core import TaylorModel

BOXES, POINTS, REPEATS = 96, 128, 3
LAYERS, STOCK = 0.25, 0.25  # shares of the draws: layers of this package, in each of its formats; modules of torch
DEVICE = {"name": "cpu"}  # set by the runner


def enclosures(rng: Random, case: Any) -> Tally:
    """What a Taylor model executed in a format claims to enclose, at points of the format, without tolerance."""
    tally = Tally()
    device = torch.device(DEVICE["name"])
    for _ in range(REPEATS):
        dim, order = rng.randint(1, 3), rng.randint(1, 5)
        centre = (rng.randrange(dim), round(rng.uniform(-1, 1), 3)) if rng.random() < 0.4 else None
        code, words, execution = _subject(rng, dim, centre)
        if MIXING & set(words):
            continue  # Taylor models take batches of boxes; that T keeps its points apart is tried at the door
        compiled = rng.random() < 0.5
        case.words |= {"T": words, "centre": centre, "order": order, "execution": str(execution), "compiled": compiled}
        low, high = _boxes(rng, dim, centre)
        points = _points(low, high, execution, centre, rng)  # (B, K, D)
        with pinned(), nullcontext() if compiled else kernels.backend(False):
            foreign = device.type != "cpu" and not isinstance(code, ol.OneLayerTransformer | Flat)
            if foreign and not _passes_the_door(code, low, high, execution, device):
                tally.count["refused"] += 1
                continue
            tally += _enclosed(code, low.to(device), high.to(device), points.to(device), order, execution)
        if tally.lies:
            break
    return tally


def _passes_the_door(code: Code, low: Tensor, high: Tensor, execution: torch.dtype, device: torch.device) -> bool:
    """Whether code is certified at all on this device, where kernels of torch may approximate what they are named for.

    On a GPU torch multiplies by a sixth of float32 in hardswish of float64, and takes another GELU in a fused layer:
    what does that is refused, because its values are not in the enclosures of its operations.
    """
    box = ol.Box(low.amin(0).tolist(), high.amax(0).tolist())
    try:
        examine(error_function(code, understood("0", box), box, execution, device, Observer()))
    except ol.OnelayerError:
        return False
    return True


def _subject(rng: Random, dim: int, centre: tuple[int, float] | None) -> tuple[Code, Sequence[str], torch.dtype]:
    """A layer, a module or a program as a function of flat points, in words, and the format in which it runs."""
    kind, wide = rng.random(), rng.choice([torch.float64, torch.float32])
    if kind < LAYERS:
        layer = random_layer(rng, dim, rng.choice([wide, torch.float16, torch.bfloat16])).requires_grad_(False)
        layer = layer.eval().to(DEVICE["name"])
        return (layer if layer.config.layout != "tokens" else Flat(layer)), [str(layer)], layer.dtype
    if kind < LAYERS + STOCK:
        module = programs.stock_module(rng, dim, wide).requires_grad_(False).to(DEVICE["name"])
        return module, [str(module).replace("\n", " ")], wide
    program = programs.random_program(rng, dim, centre)
    return program, program.steps, wide


@torch.no_grad()
def _enclosed(code: Code, low: Tensor, high: Tensor, points: Tensor, order: int, execution: torch.dtype) -> Tally:
    tally = Tally()
    flat = points.reshape(-1, points.shape[-1])
    try:
        values = code(flat.to(execution)).double().reshape(points.shape[:2])
    except Exception:
        return tally  # torch itself refuses
    x = variables(low, high, order, execution=execution)
    try:
        model = enclose(code, x, ())
    except ol.OnelayerError:
        tally.count["refused"] += 1
        return tally
    if not isinstance(model, TaylorModel):
        return tally
    model = model.plain()
    lower, upper = model.range()
    bound = model.split_bound()
    committed = torch.isfinite(model.rem)[:, None].expand_as(values)
    tally.count["enclosures"] += 3 * int(committed.sum())
    polynomial, rounding = polynomials(model, x, points)
    inside = (values >= lower[:, None]) & (values <= upper[:, None]) & (values.abs() <= bound[:, None])
    inside &= (values - polynomial).abs() <= model.rem[:, None] + rounding
    bad = (committed & ~inside).nonzero()
    if len(bad):
        b, k = bad[0].tolist()
        ends = f"[{float(lower[b])!r}, {float(upper[b])!r}], remainder {float(model.rem[b])!r}"
        where = f"box {low[b].tolist()}..{high[b].tolist()} at {points[b, k].tolist()}"
        tally.lies.append(f"enclosure {ends} of {float(values[b, k])!r}, {where}")
    return tally


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
