"""Depth against width at equal parameters, on an additive function and on a nested one."""

from __future__ import annotations

from collections.abc import Mapping
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
    depths, seeds = ((1, 2, 4), (0,)) if quick else ((1, 2, 4, 6), (0, 1, 2))
    budget, steps = (6_000, 250) if quick else (40_000, 8_000)
    return [
        {"target": target, "depth": depth, "seed": seed, "budget": budget, "steps": steps, "batch": 128}
        for target in TARGETS
        for depth in depths
        for seed in seeds
    ]


def measure(cell: Cell) -> Mapping[str, Any]:
    """Train standard blocks of the width that comes nearest to the parameter budget."""
    problem = PROBLEMS[cell["target"]]
    model = Stack(
        (problem.box.dim,), (), depth=cell["depth"], heads=HEADS, seed=cell["seed"], **shape_for(problem.box.dim, cell)
    )
    run = train(
        problem.formula, problem.box, model=model, seed=cell["seed"], steps=cell["steps"], batch=cell["batch"], lr=2e-3
    )
    size = model.size()
    return {"sup": run.sup, "rmse": run.rmse, "parameters": size["parameters"], "d_model": model.embed.out_features}


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
    return shape(width + HEADS if over < under else width)


def figure(rows: Rows) -> Figure:
    """The picture of its rows."""
    panels = {
        label: {"trained stacks of equal size": points(select(rows, target=target), "depth")}
        for target, label in TARGETS.items()
    }
    return curves_figure(panels, x="blocks", y="sup |T - f| seen", title="Depth against width at equal parameters")


def findings(rows: Rows) -> list[str]:
    """What the rows say, in sentences."""
    sentences = []
    for target, label in TARGETS.items():
        chosen = select(rows, target=target)
        by_depth = {depth: median(select(chosen, depth=depth)) for depth in sorted({row["depth"] for row in chosen})}
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
