"""Boxes of every kind, and the points of a box at which a claim is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from liar.expressions import Expr, float_values

INF = torch.tensor(torch.inf, dtype=torch.float64)


def interval(rng: Random) -> tuple[float, float]:
    """One side: ordinary mostly, else of width zero, one ulp, subnormal, huge, or around an integer."""
    kind = rng.random()
    if kind < 0.5:
        low = round(rng.uniform(-3, 3), 2)
        return low, low + rng.choice([0.01, 0.3, 1.0, 2.0])
    if kind < 0.6:
        return 0.0, rng.choice([1e-3, 1.0, 2.0])
    if kind < 0.68:
        return rng.choice([(-1.0, 1.0), (-2.0, 2.0), (-1.0, 0.0)])
    low = rng.uniform(0.5, 2)
    return rng.choice(
        [
            (low, low),
            (low, float(np.nextafter(low, 9.0))),
            (low, low + 1e-12),
            (1e3, 1e3 + 1.0),
            (1e8, 1e8 + 1e-3),
            (1e-300, 2e-300),
            (0.0, 5e-324),
            (1e-150, 2e-150),
            (1e-200, 2e-200),
            (1e150, 2e150),
            (0.999999, 1.000001),
            (2.0 - 2.0**-40, 2.0 + 2.0**-40),
            (0.9, 1.0),
        ]
    )


def sides(rng: Random, dim: int) -> tuple[list[float], list[float]]:
    drawn = [interval(rng) for _ in range(dim)]
    return [low for low, _ in drawn], [high for _, high in drawn]


def ordinary(rng: Random, dim: int) -> tuple[list[float], list[float]]:
    """A box on which most functions are defined and of ordinary size."""
    low = [round(rng.uniform(-1.5, 1.5), 2) for _ in range(dim)]
    return low, [a + rng.choice([0.01, 0.3, 1.0]) for a in low]


def representable(points: Tensor, low: Tensor, high: Tensor, dtype: torch.dtype) -> Tensor:
    """The points (C, D) as numbers of the format, clamped into the box; those that have none there are dropped."""
    rounded = points.nan_to_num(0.0).clamp(low, high).to(dtype)
    up = torch.nextafter(rounded, INF.to(dtype))
    down = torch.nextafter(rounded, -INF.to(dtype))
    rounded = torch.where(rounded.double() < low, up, torch.where(rounded.double() > high, down, rounded)).double()
    return rounded[((rounded >= low) & (rounded <= high)).all(1)]


def neighbours(points: Tensor) -> Tensor:
    """Each point, and those one and two ulps beside it in every coordinate at once."""
    found = [points]
    for direction in (INF, -INF):
        step = points
        for _ in range(2):
            step = torch.nextafter(step, direction)
            found.append(step)
    return torch.cat(found)


def standard(low: Tensor, high: Tensor, rng: Random, count: int) -> Tensor:
    """Corners, centre, dyadic fractions of the sides, integers inside and random points."""
    dim = len(low)
    bits = torch.tensor([[(k >> i) & 1 for i in range(dim)] for k in range(min(2**dim, 16))], dtype=torch.float64)
    dyadic = torch.tensor(
        [[rng.randrange(17) / 16 for _ in range(dim)] for _ in range(count // 3)], dtype=torch.float64
    )
    free = torch.tensor([[rng.random() for _ in range(dim)] for _ in range(count)], dtype=torch.float64)
    inside = low + (high - low) * torch.cat([bits, dyadic, free])
    return torch.cat([inside, (low / 2 + high / 2)[None], inside[-count // 4 :].round()])


def marked(centres: Mapping[int, Sequence[float]], low: Tensor, high: Tensor, rng: Random) -> Tensor:
    """Points whose marked coordinates are exactly the centres, and their neighbours by ulps."""
    centres = {axis: values for axis, values in centres.items() if values}
    if not centres:
        return torch.zeros(0, len(low), dtype=torch.float64)
    rows = []
    for _ in range(3):
        row = [rng.uniform(a, b) if b - a < 1e300 else a for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        for axis, values in centres.items():
            row[axis] = rng.choice(list(values))
        rows.append(row)
    return neighbours(torch.tensor(rows, dtype=torch.float64))


def zeros_of(item: Expr, low: Tensor, high: Tensor, points: Tensor) -> Tensor:
    """Points where the expression is nearly zero: the least samples, and sign changes bisected to the last bit."""
    values = float_values(item, points)
    finite = torch.isfinite(values)
    if not bool(finite.any()):
        return points[:0]
    points, values = points[finite], values[finite]
    least = points[values.abs().argsort()[:2]]
    above, below = points[values > 0][:4], points[values < 0][:4]
    count = min(len(above), len(below))
    if not count:
        return least
    a, b = above[:count], below[:count]
    for _ in range(70):
        middle = a / 2 + b / 2
        positive = (float_values(item, middle) > 0)[:, None]
        a, b = torch.where(positive, middle, a), torch.where(positive, b, middle)
    return torch.cat([least, neighbours(torch.cat([a, b]))])


def of_proof(certificate: Any, rng: Random, count: int = 12) -> Tensor:
    """Corners and centres of leaves of the proof, the witness and its neighbours."""
    dim = certificate.domain.dim
    found = [torch.zeros(0, dim, dtype=torch.float64)]
    if certificate.proof is not None:
        low, high = (torch.tensor(np.array(side)) for side in certificate.proof.boxes())
        chosen = rng.sample(range(len(low)), min(count, len(low)))
        found += [low[chosen], high[chosen], low[chosen] / 2 + high[chosen] / 2]
    if certificate.witness is not None:
        witness = torch.tensor([certificate.witness], dtype=torch.float64)
        found += [neighbours(witness), witness * (1 + 1e-9), witness * (1 - 1e-7)]
    return torch.cat(found)


def ascent(error: Callable[[Tensor], Tensor], points: Tensor, low: Tensor, high: Tensor, rng: Random) -> Tensor:
    """A short climb of |T - f| from the best points, by random steps that shrink."""
    value = error(points).nan_to_num(torch.inf)
    best = points[value.argsort(descending=True)[:6]]
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    reach = (high - low) / 4
    value = error(best).nan_to_num(torch.inf)
    for _ in range(8):
        steps = torch.randn(len(best), 6, len(low), generator=generator, dtype=torch.float64) * reach
        tried = (best[:, None] + steps).clamp(low, high)
        found, at = error(tried.reshape(-1, len(low))).reshape(len(best), -1).nan_to_num(torch.inf).max(1)
        better = found > value
        best = torch.where(better[:, None], tried[torch.arange(len(best)), at], best)
        value, reach = torch.where(better, found, value), reach / 2.5
    return best
