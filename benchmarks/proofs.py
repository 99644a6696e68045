"""How tight and how fast proofs are: lookup heads, a trained layer, four dimensions, and a bound propagation peer.

    python benchmarks/proofs.py [--quick]

Every row is a two-sided enclosure lower <= sup|T - f| <= upper by ``certify`` with two workers; seconds are wall-clock
seconds, with the processor seconds of all threads beside them, because machines are shared.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import report
import torch
from suite import F1, F2, F5, Problem
from torch import Tensor
from trained import peer_module, trained_layer

from onelayer.box import Box
from onelayer.build.lookup.families import bernstein
from onelayer.language.formula import parse
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.taylor import variables

ROUNDINGS = 100_000  # values of 1e4 would cost a few per cent of a tight enclosure by rounding alone
KAPPAS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
# problem, tokens per axis, gap asked for, upper / lower that must be reached, most seconds
BUILT: list[tuple[Problem, int, float, float]] = [
    (F1, 8, 0.05, 30),
    (F1, 12, 0.05, 30),
    (F1, 16, 0.05, 30),
    (F2, 24, 0.05, 30),
    (F5, 8, 0.2, 120),
]
SIDES = (0.4, 0.1, 0.025)
QUOTED = (
    "auto_LiRPA 0.7.1 (not on the registry, float32, no outward rounding), quoted for another trained layer of this "
    "size: CROWN on T - f, 64^2 boxes 1.47e-2 in 14 s, 128^2 boxes 1.05e-2 in 48 s, sampled sup 6.1e-3; 80-290 boxes/s"
)


def lookup(problem: Problem, tokens: int) -> OneLayerTransformer:
    """One tensor head of Bernstein keys, values by least squares axis by axis.

    The width kappa is the one with the least error, large values v counted against it: rounding costs about |v| u per
    operation, and a proof has to assume that every rounding goes the wrong way.
    """
    f, box = parse(problem.formula, problem.box.dim), problem.box
    test = torch.cat([box.sample(4096), box.corners()])
    heads = [head(f, box, tokens, kappa) for kappa in KAPPAS]
    models = [lookup_model(box.dim, (), [each]) for each in heads]
    sizes = [float(each.values.abs().max()) for each in heads]
    errors = [float((model(test) - f(test)).abs().max()) for model in models]
    return models[int(np.argmin(np.array(errors) + ROUNDINGS * 2.0**-53 * np.array(sizes)))]


def head(f: Callable[[Tensor], Tensor], box: Box, tokens: int, kappa: float) -> LookupHead:
    keys = bernstein(tokens, kappa)
    nodes = np.cos(np.pi * (np.arange(3 * tokens) + 0.5) / (3 * tokens))
    weights = torch.from_numpy(keys.weights(nodes))
    axes, grids = [], []
    for a, (center, half) in enumerate(zip(box.center.tolist(), (box.width / 2).tolist(), strict=True)):
        slopes = torch.from_numpy(keys.slopes / half)
        axes.append(AxisKeys(a, slopes, torch.from_numpy(keys.biases) - slopes * center))
        grids.append(center + half * torch.from_numpy(nodes))
    values = f(torch.stack(torch.meshgrid(*grids, indexing="ij"), -1))
    for _ in range(box.dim):  # solve along the first axis, then turn it to the back
        shape = values.shape
        solved = torch.linalg.lstsq(weights, values.reshape(shape[0], -1)).solution
        values = solved.reshape(tokens, *shape[1:]).movedim(0, -1)
    return LookupHead(axes, values[..., None])


def row(name: str, model: Any, problem: Problem, gap: float, limit: float) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = certify(model, problem.formula, problem.box, gap=gap, jobs=2)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    ratio = found.upper / found.lower
    return {
        "case": name,
        "status": found.status,
        "lower": found.lower,
        "upper": found.upper,
        "upper/lower": ratio,
        "asked": f"<= {1 + gap:g} {'ok' if ratio <= 1 + gap else 'MISSED'}",
        "order": found.order,
        "boxes": found.boxes,
        "seconds": wall,
        "cpu seconds": cpu,
        "boxes/s": found.boxes / wall,
        "limit s": f"{limit:g} {'ok' if wall <= limit else 'MISSED'}",
    }


def enclosures(model: OneLayerTransformer, boxes: int) -> list[dict[str, Any]]:
    """Width of the enclosure of T on the same random boxes by each method, and boxes per second on one thread."""
    methods: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
        f"Taylor models, order {order}": lambda low, high, order=order: model(variables(low, high, order)).range()
        for order in (2, 4, 6)
    }
    methods |= peer_methods(model)
    rows = []
    for side in SIDES:
        low = torch.rand(boxes, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        low = low * (2 * math.pi - side)
        seen = [model(low + side * unit) for unit in torch.rand(256, 2, dtype=torch.float64)]
        spread = torch.stack(seen).amax(0) - torch.stack(seen).amin(0)
        for name, method in methods.items():
            start = time.process_time()
            with torch.no_grad():
                below, above = method(low, low + side)
            seconds = time.process_time() - start
            inside = all(bool(((below <= values) & (values <= above)).all()) for values in seen)
            rows.append(
                {
                    "method": name,
                    "side": side,
                    "sampled width": float(spread.median()),
                    "median width": float((above - below).median()),
                    "boxes/s": boxes / seconds,
                    "contains samples": inside,
                }
            )
    return rows


def peer_methods(model: OneLayerTransformer) -> dict[str, Any]:
    """IBP and CROWN by the registry's bound_propagation on the layer rewritten in its operations, if installed."""
    try:
        library = importlib.import_module("bound_propagation")
    except ImportError:
        return {}
    module = peer_module(model, library)
    points = torch.rand(64, 2, dtype=torch.float64) * 2 * math.pi
    assert float((module(points)[..., 0] - model(points)).abs().max()) < 1e-9, "the rewritten layer is another function"
    bounded = library.BoundModelFactory().build(module)

    def interval(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        found = bounded.ibp(library.HyperRectangle(low, high))
        return found.lower[..., 0], found.upper[..., 0]

    def crown(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        found = bounded.crown(library.HyperRectangle(low, high)).concretize()
        return found.lower[..., 0], found.upper[..., 0]

    return {"bound_propagation 0.4.7 IBP, no outward rounding": interval, "bound_propagation 0.4.7 CROWN, same": crown}


def main() -> None:
    quick = "--quick" in sys.argv
    torch.set_num_threads(1)
    certify(lambda x: 0.0 * x[..., 0], "x", Box([0.0], [1.0]), 2.0)  # first-use costs are not part of a measurement
    rows = []
    for problem, tokens, gap, limit in BUILT[:1] if quick else BUILT:
        model = lookup(problem, tokens)
        rows.append(row(f"{problem.name}, {tokens**problem.box.dim} tokens", model, problem, gap, limit))
    start = time.perf_counter()
    layer = trained_layer(200 if quick else 10_000)
    trained = time.perf_counter() - start
    rows.append(row("F1, trained layer (d 32, 2 heads, post-LN, ReLU)", layer, F1, 0.5, 300))
    peers = enclosures(layer, 64 if quick else 256)
    missing = (
        "" if len(peers) > 9 else "bound_propagation is not installed; auto_LiRPA 0.3 does not import with this torch"
    )
    suffix = "_quick" if quick else ""
    report.write(f"proofs_enclosures{suffix}", peers, quoted=QUOTED, missing=missing)
    report.write(f"proofs{suffix}", rows, training_seconds=trained)


if __name__ == "__main__":
    main()
