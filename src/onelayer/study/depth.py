"""Depth against width at equal parameters, on an additive function and on a nested one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from matplotlib.figure import Figure

from onelayer.card import number_of
from onelayer.study.figures import curves_figure
from onelayer.study.problems import PROBLEMS
from onelayer.study.rows import median, points, select
from onelayer.study.study import Rows, Study
from onelayer.study.sweep import Cell
from onelayer.training.stack import Stack
from onelayer.training.train import train

# Inputs and outputs of unit size, because a stack that is given as a start is trained as it is.
TARGETS = {"unit waves": "sin pi x1 + sin pi x2 (additive)", "nested": "exp of sines of squares, 4-D (nested)"}
HEADS = 2  # of every block


def cells(quick: bool) -> list[Cell]:
    """The runs of the study."""
    depths = (1, 2, 4) if quick else (1, 2, 4, 6)
    seeds = (0,) if quick else (0, 1, 2)
    size = {"budget": 6_000, "steps": 250} if quick else {"budget": 40_000, "steps": 8_000}
    found: list[Cell] = []
    for target, depth, seed in product(TARGETS, depths, seeds):
        found.append({"target": target, "depth": depth, "seed": seed, **size, "batch": 128})
    return found


def measure(cell: Cell) -> Mapping[str, Any]:
    """Train standard blocks of the width that comes nearest to the parameter budget."""
    problem = PROBLEMS[cell["target"]]
    dim = problem.box.dim
    model = Stack((dim,), (), depth=cell["depth"], heads=HEADS, seed=cell["seed"], **shape_for(dim, cell))
    how = {name: cell[name] for name in ("seed", "steps", "batch")}
    run = train(problem.formula, problem.box, model=model, lr=2e-3, **how)
    parameters = model.size()["parameters"]
    return {"sup": run.sup, "rmse": run.rmse, "parameters": parameters, "d_model": model.embed.out_features}


def shape_for(dim: int, cell: Cell) -> dict[str, Any]:
    """d_model and hidden = 4 d_model of a stack with about ``budget`` parameters."""

    def shape(d_model: int) -> dict[str, Any]:
        return {"d_model": d_model, "hidden": 4 * d_model}

    def parameters(d_model: int) -> int:
        return Stack((dim,), (), depth=cell["depth"], heads=HEADS, **shape(d_model)).size()["parameters"]

    width = HEADS
    while parameters(width + HEADS) <= cell["budget"]:
        width += HEADS
    over = parameters(width + HEADS) - cell["budget"]
    under = cell["budget"] - parameters(width)
    if over < under:
        width += HEADS
    return shape(width)


def figure(rows: Rows) -> Figure:
    """The picture of its rows."""
    panels = {}
    for target, label in TARGETS.items():
        chosen = select(rows, target=target)
        panels[label] = {"trained stacks of equal size": points(chosen, "depth")}
    return curves_figure(panels, x="blocks", y="sup |T - f| seen", title="Depth against width at equal parameters")


def findings(rows: Rows) -> list[str]:
    """What the rows say, in sentences."""
    sentences = []
    for target, label in TARGETS.items():
        chosen = select(rows, target=target)
        depths = sorted({row["depth"] for row in chosen})
        by_depth = {depth: median(select(chosen, depth=depth)) for depth in depths}
        best = min(by_depth, key=lambda depth: by_depth[depth])
        counts = [row["parameters"] for row in chosen]
        listed = ", ".join(f"{_blocks(depth)} {error:.2g}" for depth, error in by_depth.items())
        sentences.append(
            f"{label}: best with {_blocks(best)} among stacks of {min(counts):,} to {max(counts):,} "
            f"parameters (median sup: {listed})"
        )
    return sentences


def _blocks(depth: int) -> str:
    return number_of(depth, "blocks")


DEPTH = Study("depth", "At equal parameters, is it better to be deep or wide?", cells, measure, figure, findings)
