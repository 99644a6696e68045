"""Attention kinds side by side on sin x1 + sin x2: softmax, sparse (top-k) and linear, built and trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from onelayer.study.built import KINDS, built_memory
from onelayer.study.figures import bars_figure
from onelayer.study.problems import PROBLEMS, seen_error
from onelayer.study.rows import median, select
from onelayer.study.study import Rows, Study
from onelayer.study.sweep import Cell
from onelayer.training.train import train

WAVES = PROBLEMS["waves"]
METHODS = ("built", "trained")
TITLE = "sin x1 + sin x2 by memory tokens alone, for each attention kind"
# A linear head of width d has 1 + d + ... + d^order features: order 8 is only for the built heads of width two.
TRAINED = tuple(kind for kind in KINDS if kind != "linear, order 8")


def cells(quick: bool) -> list[Cell]:
    """The runs of the study."""
    tokens, seeds = (16, (0,)) if quick else (32, (0, 1, 2))
    recipe = (
        {"steps": 300, "batch": 128, "lbfgs_steps": 60} if quick else {"steps": 6000, "batch": 256, "lbfgs_steps": 400}
    )
    built: list[Cell] = [{"method": "built", "kind": kind, "memory": tokens} for kind in KINDS]
    return built + [
        {"method": "trained", "kind": kind, "memory": tokens, "seed": seed, **recipe}
        for kind in TRAINED
        for seed in seeds
    ]


def measure(cell: Cell) -> Mapping[str, Any]:
    """Memory tokens alone do the work: one head per coordinate when built, two heads of width four when trained."""
    if cell["method"] == "built":
        model = built_memory(WAVES, cell["memory"], cell["kind"])
        return {**seen_error(model, WAVES), "parameters": model.size()["parameters"]}
    run = train(
        WAVES.formula, WAVES.box, heads=2, d_model=8, hidden=0, memory=cell["memory"], seed=cell["seed"],
        layer={"layout": "packed", **KINDS[cell["kind"]]}, steps=cell["steps"], batch=cell["batch"],
        lbfgs_steps=cell["lbfgs_steps"],
    )  # fmt: skip
    return {"sup": run.sup, "rmse": run.rmse, "parameters": run.parameters}


def figure(rows: Rows) -> Figure:
    """The picture of its rows."""
    groups = {}
    for kind in KINDS:
        chosen = {method: [row["sup"] for row in select(rows, kind=kind, method=method)] for method in METHODS}
        groups[kind] = {method: found for method, found in chosen.items() if found}
    return bars_figure(groups, y="sup |T - f| seen", title=TITLE)


def findings(rows: Rows) -> list[str]:
    """What the rows say, in sentences."""
    sentences = []
    for method in METHODS:
        by_kind = {}
        for kind in KINDS:
            # Some kinds are built only.
            if found := select(rows, method=method, kind=kind):
                by_kind[kind] = median(found)
        best_first = sorted(by_kind.items(), key=lambda item: item[1])
        listed = ", ".join(f"{kind} {error:.2g}" for kind, error in best_first)
        sentences.append(f"{method}, best first: {listed}")
    return sentences


KINDS_STUDY = Study(
    "kinds", "Do sparse and linear attention approximate as well as softmax?", cells, measure, figure, findings
)
