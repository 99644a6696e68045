"""The lower bound of a sorting layer: sequences that are hard for it, and the verified error at the hardest one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from flint import arb
from torch import Tensor

from onelayer.box import Box
from onelayer.float64 import indices, numbers
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.argued import distance_at, representable, worst
from onelayer.recording.target import Target

# Multiplications spent on the search for a lower bound.
WITNESS_WORK = 2**28


def adversarial_sequences(n: int, lo: float, hi: float, count: int, *, cells: int = 1000, seed: int = 0) -> Tensor:
    """Hard inputs for a sorting layer, (count, n): all equal, near ties, sorted, reversed, on the cells' edges, random.

    The first ones tie all numbers at height 1 - 1/n and 1/n of a cell, where the lemma is sharp.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    unit = torch.rand(count, n, generator=generator, dtype=torch.float64, device="cpu")
    step = 1 / cells
    kind = indices(count) % 8
    sharp = numbers([1 - 1 / n, 1 / n])
    height = sharp[indices(count) // 8 % 2, None]
    tied = torch.floor(unit[:, :1] * cells) * step
    forms = [
        (tied + height * step).expand(-1, n),
        (tied + step * unit).clamp(0, 1),
        torch.round(unit * cells) * step,
        unit.sort(-1).values,
        unit.sort(-1, descending=True).values,
        (torch.floor(unit * 4) + 1e-9 * unit) / 4,
        torch.where(unit < 0.5, tied, tied + (1 - 1e-12) * step),
        unit,
    ]
    chosen = torch.stack(forms)[kind, indices(count)]
    return (lo + (hi - lo) * chosen).clamp(lo, hi)


def hardest(
    model: OneLayerTransformer, target: Target, weights: Sequence[float] | None, box: Box
) -> tuple[tuple[float, ...], float] | None:
    """The hardest sequence found and its verified error."""
    config = model.config
    per_token = sum(tensor.numel() for tensor in model.state_dict().values())
    # Keys and values for every pair of tokens; 64 stands for the exponential.
    per_pair = sum(2 * head.d_k + 2 * head.d_v + 64 for head in config.heads)
    work = config.length * (per_token + config.length * per_pair)
    count = max(2, min(4096, WITNESS_WORK // work))
    low = float(box.lower.min())
    high = float(box.upper.max())
    points = adversarial_sequences(config.length, low, high, count, cells=max(1, config.ramps))
    points = representable(points, box, model.dtype)
    if not len(points):
        return None
    point = worst(model, target, points)
    found = point.tolist()
    return tuple(found), distance_at(model, point, lambda: _truth(found, weights))


def _truth(point: list[float], weights: Sequence[float] | None) -> list[arb]:
    """f at one point."""
    ordered = [arb(x) for x in sorted(point)]
    if weights is None:
        return ordered
    terms = [arb(a) * x for a, x in zip(weights, ordered, strict=True)]
    return [sum(terms, arb(0))]
