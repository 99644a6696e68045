"""Ranges, errors and Lipschitz constants of ten small trained networks, beside bound propagation.

    python benchmarks/verification.py [--seconds 10]

Each network is trained here on the same function. Of each claim the enclosure of ``bound``, ``certify`` and
``lipschitz`` is shown with its processor seconds, rounding of the float32 execution included. Beside the range stands
what CROWN of bound_propagation (pip install bound-propagation) finds in as many processor seconds, on uniform cells, as
many as it can bound in that time; it includes no rounding. It knows dense maps, ReLU, tanh and products, not softmax or
LayerNorm, bounds no T - f and no slopes: where it says nothing the column is empty. The classical bound of a Lipschitz
constant is the product of the norms of the layers.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import report
import torch
from torch import Tensor, nn

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.network.architecture import EncoderNetwork

STEPS, POINTS, RATE = 300, 1024, 5e-3
MAX_CELLS = 20_000
GAP = 0.002  # of a range, at each end: close enough that nobody stops early
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}
DENSE = [
    *(("tanh", 2), ("tanh", 3), ("tanh", 6), ("relu", 2), ("relu", 4), ("gelu", 2), ("gelu", 4), ("silu", 3)),
]
ENCODERS = [("encoder, norm first", 2, True), ("encoder, norm last", 3, False)]


def formula(dim: int) -> str:
    """sin x1 + x2 x3 / 2 + ... over the inputs there are."""
    return " + ".join(["sin(2*x1)", *(f"0.5*x{at}*x{at - 1}" for at in range(2, dim + 1))])


def truth(x: Tensor) -> Tensor:
    """The same function in torch, (B, 1)."""
    return (torch.sin(2 * x[:, :1]) + 0.5 * (x[:, 1:] * x[:, :-1]).sum(1, keepdim=True)).float()


def trained(model: nn.Module, dim: int) -> nn.Module:
    """The network after a few hundred steps on [-1, 1]^D."""
    x = torch.rand(POINTS, dim, generator=torch.Generator().manual_seed(0)) * 2 - 1
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    for _ in range(STEPS):
        loss = (model(x) - truth(x)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval().requires_grad_(False)


def networks() -> Iterator[tuple[str, int, nn.Module]]:
    """Name, inputs and trained network."""
    for name, dim in DENSE:
        torch.manual_seed(dim)
        act = ACTIVATIONS[name]
        dense = nn.Sequential(nn.Linear(dim, 16), act(), nn.Linear(16, 16), act(), nn.Linear(16, 1))
        yield f"{name} {dim}-16-16-1", dim, trained(dense, dim)
    for name, dim, pre in ENCODERS:
        torch.manual_seed(dim)
        yield f"{name}, {dim} tokens", dim, trained(EncoderNetwork([dim, 8, 2, 16, 1], "gelu", pre), dim)


def timed(prove: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its processor seconds."""
    started = time.process_time()
    return prove(), time.process_time() - started


def cells(dim: int, side: int) -> tuple[Tensor, Tensor]:
    """Corners of a uniform grid of cells on [-1, 1]^D."""
    edges = torch.linspace(-1, 1, side + 1)
    index = torch.tensor(list(itertools.product(range(side), repeat=dim)))
    return edges[index], edges[index + 1]


def crown_range(model: nn.Module, dim: int, seconds: float) -> tuple[float, float] | None:
    """The narrowest range that CROWN finds on uniform cells within the time; None where it cannot read the network."""
    try:
        library = importlib.import_module("bound_propagation")
        bounded = library.BoundModelFactory().build(model)
    except (ImportError, NotImplementedError, KeyError, TypeError):
        return None
    best, spent, side = None, 0.0, 1
    while spent < seconds and side**dim <= MAX_CELLS:
        low, high = cells(dim, side)
        try:
            found, took = timed(partial(_crown, bounded, library.HyperRectangle(low, high)))
        except (RuntimeError, NotImplementedError, AttributeError, KeyError, TypeError):
            return best
        best, spent, side = (float(found.lower.min()), float(found.upper.max())), spent + took, side * 2
    return best


def _crown(bounded: Any, where: Any) -> Any:
    return bounded.crown(where).concretize()


def norms(model: nn.Module) -> float:
    """Product of the maximum norms of dense layers whose activations rise by at most their argument; inf otherwise."""
    if not isinstance(model, nn.Sequential) or any(isinstance(part, nn.GELU | nn.SiLU) for part in model):
        return math.inf
    return math.prod(float(part.weight.abs().sum(1).max()) for part in model if isinstance(part, nn.Linear))


def row(name: str, dim: int, model: nn.Module, seconds: float) -> dict[str, Any]:
    """The three claims of one network."""
    box = ol.Box([-1.0] * dim, [1.0] * dim)
    sampled = model(torch.cat([box.sample(20_000), box.corners(64)]).float())
    seen = float(sampled.max() - sampled.min())
    found: dict[str, Any] = {"network": name, "sampled width": seen}
    width, took = timed(lambda: ol.bound(model, box, gap=GAP, max_seconds=seconds, jobs=1))
    found |= {"range": float((width.high - width.low).max()) / seen, "range s": took}
    peer = crown_range(model, dim, took)
    found["CROWN range"] = None if peer is None else (peer[1] - peer[0]) / seen
    try:
        error, took = timed(lambda: ol.certify(model, truth_of(dim), box, max_seconds=seconds, gap=0.05, jobs=1))
        found |= {"error lower": error.lower, "error upper": error.upper, "error s": took}
        slope, took = timed(lambda: ol.lipschitz(model, box, max_seconds=seconds, jobs=1))
        found |= {"Lipschitz lower": slope.lower, "Lipschitz upper": slope.upper, "Lipschitz s": took}
    except OnelayerError as refused:
        found["refused"] = str(refused)
    found["product of norms"] = None if math.isinf(norms(model)) else norms(model)
    return {key: _rounded(value) for key, value in found.items()}


def _rounded(value: Any) -> Any:
    """Four digits; None for what has no bound."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


def truth_of(dim: int) -> Any:
    """f with its one number in the shape (1,) of the networks."""
    from onelayer.recording.target import as_target

    return as_target(formula(dim), ol.Box([-1.0] * dim, [1.0] * dim)).one_number((1,))


def main() -> None:
    """All rows, on the screen and in results/."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    ol.lipschitz(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), ol.Box([0.0, 0.0], [1.0, 1.0]))  # kernels are compiled once
    rows = []
    for name, dim, model in networks():
        rows.append(row(name, dim, model, seconds))
        print(" ".join(f"{key} {report.shown(value)};" for key, value in rows[-1].items()), flush=True)
    report.write("verification", rows, seconds=seconds)


if __name__ == "__main__":
    main()
