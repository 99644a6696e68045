"""The built layer beside what people use today, on the same machine and thread count, in one run.

    python benchmarks/peers.py [--seconds 120]

Peers run with their own recommended settings; each gets at least as many parameters as the built layer. Errors are sup
errors on one dense test set (Sobol, arcsine, corners); only ours comes with a proof, and that bound is in the table.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import report
import torch
from suite import F1, F2, F3, F4, F5, Problem
from torch import Tensor, nn

from onelayer import approximate
from onelayer.language.formula import parse

EPS = {F1.name: 1e-6, F2.name: 1e-6, F3.name: 1e-6, F4.name: 1e-6, F5.name: 1e-6}
Predictor = Callable[[Tensor], Tensor]


class Trained(nn.Module):
    """One stock encoder layer over the D coordinates as tokens: value and position embedded, mean, linear read-out."""

    def __init__(self, dim: int, width: int = 64, heads: int = 4, hidden: int = 256) -> None:
        super().__init__()
        self.value, self.position = nn.Linear(1, width), nn.Parameter(torch.randn(dim, width))
        self.layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, batch_first=True, norm_first=True)
        self.readout = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.layer(self.value(x[..., None]) + self.position).mean(-2)).squeeze(-1)


def train(f: Predictor, problem: Problem, seconds: float) -> tuple[Predictor, int]:
    """Adam with a cosine schedule over the time given, minibatches with arcsine sampling."""
    torch.manual_seed(0)
    box = problem.box
    centre, radius = box.center.float(), (box.width / 2).float()
    model = Trained(box.dim)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    start = time.monotonic()
    while (share := (time.monotonic() - start) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * 0.5 * (1 + np.cos(np.pi * share))
        unit = -torch.cos(torch.pi * torch.rand(1024, box.dim))
        loss = (model(unit) - f((centre + radius * unit).double()).float()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    def predict(x: Tensor) -> Tensor:
        with torch.no_grad():
            return model(((x - box.center) / (box.width / 2)).float()).double()

    return predict, sum(parameter.numel() for parameter in model.parameters())


def scikit(f: Predictor, problem: Problem, kind: str) -> tuple[Predictor, int]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.neural_network import MLPRegressor

    box = problem.box
    points = box.sample(1024 if kind == "GP" else 4096, seed=5, arcsine=True)
    scaled = ((points - box.center) / (box.width / 2)).numpy()
    if kind == "GP":
        # With the default bounds its optimiser runs into a length scale of 1e-5 on some of the functions.
        kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(0.3 * np.ones(box.dim), (0.05, 10.0))
        model: Any = GaussianProcessRegressor(kernel=kernel, alpha=1e-10, normalize_y=True, random_state=0)
    else:
        model = MLPRegressor(
            hidden_layer_sizes=(64, 64), activation="tanh", solver="lbfgs", max_iter=2000, random_state=0
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaled, f(points).numpy())
    count = 1024 * (box.dim + 1) if kind == "GP" else sum(w.size for w in model.coefs_ + model.intercepts_)

    def predict(x: Tensor) -> Tensor:
        return torch.from_numpy(model.predict(((x - box.center) / (box.width / 2)).numpy()))

    return predict, count


def kan(f: Predictor, problem: Problem, seconds: float) -> tuple[Predictor, int]:
    """pykan's own recipe: a small net, L-BFGS, the grid refined while time is left."""
    from kan import KAN

    box = problem.box
    torch.manual_seed(0)
    unit = -torch.cos(torch.pi * torch.rand(2000, box.dim))
    label = f(box.center + (box.width / 2) * unit.double()).float()[:, None]
    data = {"train_input": unit, "train_label": label, "test_input": unit, "test_label": label}
    start, best = time.monotonic(), None
    with tempfile.TemporaryDirectory() as folder:  # pykan keeps a history of its own on disk
        model = KAN(width=[box.dim, 5, 1], grid=3, k=3, seed=0, auto_save=True, ckpt_path=folder)
        for grid in (3, 5, 10, 20, 50):
            model = model if grid == 3 else model.refine(grid)
            model.fit(data, opt="LBFGS", steps=30, log=100)
            error = (model(unit) - label).abs().max().item()
            best = (error, model) if best is None or error < best[0] else best
            if time.monotonic() - start > seconds:
                break
    chosen = best[1]

    def predict(x: Tensor) -> Tensor:
        with torch.no_grad():
            return chosen(((x - box.center) / (box.width / 2)).float())[:, 0].double()

    return predict, sum(parameter.numel() for parameter in chosen.parameters())


def compare(problem: Problem, seconds: float) -> list[dict[str, Any]]:
    formula, box = parse(problem.formula, problem.box.dim), problem.box
    test = torch.cat([box.sample(1 << 15, seed=11), box.sample(1 << 15, seed=12, arcsine=True), box.corners()])
    truth = formula(test)

    def measured(name: str, make: Callable[[], tuple[Predictor, int]], proved: float | None = None) -> dict[str, Any]:
        start = time.perf_counter()
        try:
            predict, parameters = make()
        except ImportError as error:
            return {"function": problem.name, "method": name, "note": f"not installed: {error.name}"}
        elapsed = time.perf_counter() - start
        error = float((predict(test) - truth).abs().max())
        return {
            "function": problem.name,
            "method": name,
            "sup error seen": error,
            "parameters": parameters,
            "seconds": elapsed,
            "proved": "" if proved is None else proved,
        }

    start = time.perf_counter()
    built = approximate(problem.formula, box, EPS[problem.name])
    elapsed = time.perf_counter() - start
    ours = measured("onelayer", lambda: (built.model, built.size()["parameters"]), built.certificate.upper)
    ours["seconds"] = elapsed
    return [
        ours,
        measured("nn.TransformerEncoderLayer, Adam", lambda: train(formula, problem, seconds)),
        measured("pykan", lambda: kan(formula, problem, seconds)),
        measured("scikit-learn MLP 64x64", lambda: scikit(formula, problem, "MLP")),
        measured("scikit-learn GP 1,024 points", lambda: scikit(formula, problem, "GP")),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120, help="training time of each trained peer")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    os.environ.setdefault("TQDM_DISABLE", "1")
    rows = [row for problem in (F1, F2, F3, F4, F5) for row in compare(problem, seconds)]
    report.write("peers", rows, training_seconds=seconds)


if __name__ == "__main__":
    main()
