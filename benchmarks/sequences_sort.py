"""Sorting layers on hard sequences, subset maxima, and a trained layer beside them; part of sequences.py."""

from __future__ import annotations

import time
from collections.abc import Callable

import report
import torch
from torch import Tensor

from onelayer.build.ordering.witness import adversarial_sequences
from onelayer.build.sort import sort
from onelayer.layer.transformer import OneLayerTransformer

LENGTHS = (4, 16, 64, 256, 1024)
ENTRIES = 2**19  # numbers per batch
COMPARED = 2**26  # products per layer and sequence up to which a thousand sequences run through the layer on a CPU


def counted(model: OneLayerTransformer) -> Callable[[Tensor], Tensor]:
    """The same layer in time n log G instead of n G^2: the matrices not used here are identities.

    N_g, the sum of the ramps of cell g, is 1 for every number in a lower cell and a fraction for those in cell g. It
    grows with g, so relu(i - N_g) lives on a prefix of the cells and its weighted sum is a difference of prefix sums.
    """
    w = {name: model.own(name).detach() for name in ("ramp_start", "ramp_slope", "b_1", "W_2", "b_R")}
    start, slope, outer = w["ramp_start"][0].contiguous(), w["ramp_slope"][0], w["W_2"][:, 0].reshape(2, -1)
    places = torch.arange(1.0, model.config.length + 1, dtype=start.dtype, device=start.device)

    def evaluate(x: Tensor) -> Tensor:
        cell = torch.bucketize(x, start).clamp(max=len(start) - 1)
        zero = x.new_zeros(len(x), len(start))
        share = zero.scatter_add(1, cell, torch.clamp((x - start[cell]) * slope[cell], 0.0, 1.0))
        inside = zero.scatter_add(1, cell, torch.ones_like(x))
        count = share + inside.cumsum(1) - inside
        total = w["b_R"].expand(len(x), len(places)).clone()
        for weights, level in zip(outer, (0.0, -1.0), strict=True):
            mass = torch.nn.functional.pad(weights.expand_as(count).cumsum(1), (1, 0))
            moment = torch.nn.functional.pad((weights * count).cumsum(1), (1, 0))
            wanted = (places + level).expand(len(x), -1).contiguous()
            active = torch.searchsorted(count, wanted)
            total += wanted * mass.gather(1, active) - moment.gather(1, active)
        return total

    return evaluate


@torch.no_grad()
def sorting_error(run: Callable[[Tensor], Tensor], n: int, count: int, cells: int, device: str) -> float:
    """Largest error over ties, near ties, sorted, reversed, grid-aligned and random sequences."""
    worst, batch = 0.0, max(8, ENTRIES // max(n, min(cells, 1024)))
    for start in range(0, count, batch):
        x = adversarial_sequences(n, 0.0, 1.0, min(batch, count - start), cells=cells, seed=start).to(device)
        worst = max(worst, float((run(x) - x.sort(-1).values).abs().max()))
    return worst


@torch.no_grad()
def difference(model: OneLayerTransformer, other: Callable[[Tensor], Tensor], count: int) -> float:
    x = adversarial_sequences(model.config.length, 0.0, 1.0, count, cells=model.config.ramps, seed=1)
    return float((model(x) - other(x)).abs().max())


def thresholds(n: int, full: bool, device: str) -> report.Row:
    """On an accelerator every sequence runs through the layer; on a CPU most are counted, which is compared with it."""
    begun = time.perf_counter()
    a = sort(n, 0.0, 1.0, 1e-3, kind="thresholds")
    built = time.perf_counter() - begun
    model, cells, size = a.model, a.model.config.ramps, a.size()
    row = {"length": n, "hidden units": size["hidden_units"], "parameters": size["parameters"], "eps": 1e-3}
    row |= {"proved": a.certificate.upper, "witness": a.certificate.lower, "build seconds": built}
    total, through = (100_000 if full else 10_000), total_through(n, size["parameters"], device)
    begun = time.perf_counter()
    if device == "cpu":
        fast = counted(model)
        row["counted differs by"] = difference(model, fast, min(16, through))
        row["error, counted"] = sorting_error(fast, n, total, cells, device)
        row["sequences, counted"] = total
    else:
        through = total
    row["error, layer"] = sorting_error(model.to(device), n, through, cells, device)
    return row | {"sequences, layer": through, "seconds": time.perf_counter() - begun}


def total_through(n: int, parameters: int, device: str) -> int:
    """Sequences for the layer itself: as many as a minute or so allows on one core."""
    return max(8, min(1000, 1000 * COMPARED // (n * parameters)))


def subsets(n: int, full: bool, device: str) -> report.Row:
    a = sort(n, 0.0, 1.0, 1e-6, kind="subsets")
    size, count = a.size(), 100_000 if full else 2_000
    error = sorting_error(a.model.to(device), n, count, 10**7, device)
    row = {"length": n, "heads": size["heads"], "hidden units": size["hidden_units"], "parameters": size["parameters"]}
    return row | {"eps": 1e-6, "proved": a.certificate.upper, "error, layer": error, "sequences, layer": count}


def trained(seconds: float, device: str) -> list[report.Row]:
    """The trained alternative for 16 numbers: as many hidden units, 8 heads, on an accelerator the same width too."""
    begun = time.perf_counter()
    made = sort(16, 0.0, 1.0, 1e-3, kind="thresholds")
    built = time.perf_counter() - begun
    width = made.model.config.d_model // 8 * 8 if device != "cpu" else 64
    options = {"hidden": made.size()["hidden_units"], "residual": True, "norm": "pre", "positions": "learned"}
    layer = OneLayerTransformer.tokens((16,), (16,), d_model=width, heads=8, dtype=torch.float32, **options).to(device)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
    start, steps, loss = time.perf_counter(), 0, torch.zeros(())
    while time.perf_counter() - start < seconds:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * max(0.01, 1 - (time.perf_counter() - start) / seconds)
        x = torch.rand(1024 if device != "cpu" else 256, 16, device=device)
        loss = (layer(x) - x.sort(-1).values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    error = sorting_error(lambda x: layer(x.float()).double(), 16, 20_000, 1000, device)
    return [
        {"layer": "built", "parameters": made.size()["parameters"], "proved": made.certificate.upper, "seconds": built},
        {
            "layer": "trained",
            "parameters": layer.size()["parameters"],
            "sup error seen": error,
            "rmse of the last batch": float(loss.detach()) ** 0.5,
            "steps": steps,
            "seconds": seconds,
        },
    ]


def run(full: bool, device: str) -> None:
    mark = "" if device == "cpu" else f"_{device}"
    report.write(f"sequences_sort{mark}", [thresholds(n, full, device) for n in LENGTHS], device=device)
    report.write(f"sequences_subsets{mark}", [subsets(n, full, device) for n in (2, 4, 6, 8)], device=device)
    report.write(f"sequences_sort_trained{mark}", trained(240.0 if full else 60.0, device), device=device)
