"""Every picture and every number of docs/theory.md and docs/pictures.md, from the live package.

    python examples/figures.py [--out docs/figures] [--only curve,rate]

Prints one line per figure: what was approximated and what was proved. figures.output.txt holds the output of one run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.special import comb

from onelayer.box import Box
from onelayer.build.lookup.families import bernstein
from onelayer.build.lookup.solve import axis_nodes, minimax, rounding_cost
from onelayer.card import counted
from onelayer.conductor import approximate
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.pictures.drawing import draw, draw_boxes
from onelayer.pictures.panels import draw_attention
from onelayer.pictures.rate import draw_rate, fit_rate
from onelayer.proof.certify import certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation

WAVE = "exp(sin(pi*x))"
LINE = Box([-1], [1])
FRANKE = (
    "0.75*exp(-((9*x-2)**2 + (9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49 - (9*y+1)/10) "
    "+ 0.5*exp(-((9*x-7)**2 + (9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2 - (9*y-7)**2)"
)
ONE_AXIS = ("sin(pi*x)", "exp(sin(pi*x))", "1/(1 + 25*x**2)", "exp(-20*(x - 0.3)**2)", "cos(20*x)")
EPS_LIST = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)


def sweep(f: str, box: Box, eps_list: Sequence[float]) -> list[tuple[float, float]]:
    """(memory tokens, proved bound) of approximate() for each eps.

    A proof for eps stops as soon as eps is reached; certifying without eps brings the bound within 5 % of the error.
    """
    results = [approximate(f, box, eps) for eps in eps_list]
    return [(float(r.size()["tokens"]), certify(r.model, r.target, box).upper) for r in results]


def sharp_lookup(count: int, beta: float) -> OneLayerTransformer:
    """The head of the lookup theorem for WAVE on [-1, 1]: keys at cell centres, values = samples of f."""
    centres = torch.tensor([-1 + (2 * m + 1) / count for m in range(count)], dtype=torch.float64)
    values = as_target(WAVE, LINE).function(centres[:, None])
    return lookup_model(1, (), [LookupHead([AxisKeys(0, 2 * beta * centres, -beta * centres**2)], values[:, None])])


def lookup_bound(count: int) -> tuple[float, float]:
    """(beta, bound) of the theorem for WAVE with r = 1.25 h: omega(r) <= L r, and a far part of 1 % of that.

    L = pi max|cos(t) exp(sin t)| < 1.46 pi, at sin t = (sqrt(5) - 1) / 2.
    """
    h, lipschitz, swing = 1 / count, 1.46 * math.pi, math.e - 1 / math.e
    r = 1.25 * h
    beta = math.log(swing * count / (0.01 * lipschitz * r)) / (r**2 - h**2)
    return beta, math.ceil(1e4 * 1.01 * lipschitz * r) / 1e4


def seen(model: OneLayerTransformer) -> float:
    """Largest |T - WAVE| on 4,001 points."""
    x = torch.linspace(-1, 1, 4001, dtype=torch.float64)[:, None]
    return float((model(x) - as_target(WAVE, LINE).function(x)).abs().max())


def bernstein_solved(count: int) -> float:
    """Smallest error seen of Bernstein keys with minimax values, over a scan of kappa."""
    nodes = axis_nodes(-1.0, 1.0, 20 * count)
    samples = as_target(WAVE, LINE).function(torch.from_numpy(nodes)[:, None]).numpy()[:, None]
    errors = []
    for kappa in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0):
        weights = bernstein(count, kappa).weights(nodes)
        errors.append(minimax(weights, samples, rounding_cost(weights, 2.0**-53))[1])
    return min(errors)


def report(name: str, result: Approximation) -> None:
    size = result.size()
    counts = counted(size, ("heads", "tokens", "hidden_units"))
    print(f"{name}: {counts}: {result.certificate}, error {result.certificate.lower:.3g} attained", flush=True)


def staircase(out: Path) -> None:
    beta, bound = lookup_bound(12)
    model = sharp_lookup(12, beta)
    result = Approximation(model, certify(model, WAVE, LINE, bound), as_target(WAVE, LINE))
    report(f"staircase (beta = {beta:.1f}, theorem: {bound:g})", result)
    draw(result, out / "staircase.png")


def curve(out: Path) -> None:
    result = approximate(WAVE, LINE, 1e-6)
    report("curve", result)
    draw(result, out / "curve.png")


def kink(out: Path) -> None:
    result = approximate("abs(x - 0.1) + sin(5*x)/3", LINE, 1e-6)
    report("kink", result)
    draw(result, out / "kink.png")


def plane(out: Path) -> None:
    result = approximate(FRANKE, Box([0, 0], [1, 1]), 1e-3)
    report("plane", result)
    draw(result, out / "plane.png")
    draw_boxes(result, out / "boxes.png")


def slices(out: Path) -> None:
    result = approximate("cos(0.6*pi + x1 + 1.5*x2 + 2*x3 + 2.5*x4)", Box([0] * 4, [1] * 4), 1e-4)
    report("slices", result)
    draw(result, out / "slices.png")


def attention(out: Path) -> None:
    result = approximate("sin(x1) + sin(x2)", Box([0, 0], [2 * math.pi] * 2), 1e-3)
    report("attention", result)
    draw_attention(result, out / "attention.png", [1.0, 4.0])


def attention_grid(out: Path) -> None:
    result = approximate("exp(sin(pi*x) + y**2)", Box([-1, -1], [1, 1]), 1e-3)
    report("attention-grid", result)
    draw_attention(result, out / "attention-grid.png", [0.3, -0.5])


def rate(out: Path) -> None:
    series = {f: sweep(f, LINE, EPS_LIST) for f in ONE_AXIS}
    for f, rows in series.items():
        print(f"rate: {f}: {[(int(tokens), float(f'{error:.2e}')) for tokens, error in rows]}, {fit_rate(rows)}")
    title = "memory tokens against the proved bound on sup |T - f|, one axis [-1, 1]"
    draw_rate(series, out / "rate.png", title=title)


def solved(out: Path) -> None:
    counts = (6, 12, 24, 48)
    bounds = [lookup_bound(count) for count in counts]
    moderate = [
        min(seen(sharp_lookup(m, m**2 / (4 * overlap))) for overlap in np.geomspace(0.02, 2, 25)) for m in counts
    ]
    series = {
        "the theorem's bound": [(m, bound) for m, (_, bound) in zip(counts, bounds, strict=True)],
        "its head, error seen": [(m, seen(sharp_lookup(m, beta))) for m, (beta, _) in zip(counts, bounds, strict=True)],
        "values = samples, best beta": list(zip(counts, moderate, strict=True)),
        "Bernstein keys, values solved": [(m, bernstein_solved(m)) for m in (6, 12, 18, 24)],
        "keys and values fitted, proved": sweep(WAVE, LINE, (1e-3, 1e-5, 1e-7, 1e-9)),
    }
    for name, rows in series.items():
        print(f"solved: {name}: {[(int(m), float(f'{error:.2e}')) for m, error in rows]}, {fit_rate(rows)}")
    draw_rate(series, out / "solved.png", title=f"five ways to use M tokens for f = {WAVE} on [-1, 1]")


def identities(_: Path) -> None:
    """Largest deviation, in float64, of the two identities of docs/theory.md."""
    kappa, size = 1.3, 12
    x = torch.linspace(-1, 1, 1001, dtype=torch.float64)
    m = torch.arange(size, dtype=torch.float64)
    counts = torch.from_numpy(comb(size - 1, np.arange(size)))
    softmax = torch.softmax(kappa * x[:, None] * m + counts.log(), -1)
    s = torch.sigmoid(kappa * x)[:, None]
    bernstein = counts * s**m * (1 - s) ** (size - 1 - m)
    print(f"identities: Bernstein head against Bernstein polynomials: {(softmax - bernstein).abs().max():.1e}")
    result = approximate("exp(sin(pi*x) + y**2)", Box([-1, -1], [1, 1]), 1e-3)
    points = result.box.sample(4096)
    gap = (result.model(points) - result.model.materialize()(points)).abs().max()
    memory = result.model.memory_of(0)
    assert memory is not None
    scale = f"{result.size()['tokens']} tokens with |v| up to {memory.values.abs().max():.1e}"
    print(f"identities: factorised grid against plain softmax over {scale}: {gap:.1e}")


FIGURES: dict[str, Callable[[Path], None]] = {
    "staircase": staircase,
    "curve": curve,
    "solved": solved,
    "identities": identities,
    "kink": kink,
    "plane": plane,
    "slices": slices,
    "attention": attention,
    "attention-grid": attention_grid,
    "rate": rate,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("docs") / "figures")
    parser.add_argument("--only", default=",".join(FIGURES), help="names separated by commas")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.only.split(","):
        FIGURES[name](arguments.out)


if __name__ == "__main__":
    main()
