"""Existence against trainability: one architecture, its weights built, trained, and trained from the built start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from onelayer.conductor import approximate
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.study.figures import bars_figure
from onelayer.study.problems import PROBLEMS, seen_error
from onelayer.study.rows import median, select
from onelayer.study.study import Rows, Study
from onelayer.study.sweep import Cell
from onelayer.training.train import train

TARGETS = {"waves": "sin x1 + sin x2", "bend": "exp(sin pi x)"}
STARTS = ("built", "trained", "trained from built")
EPS = 1e-3  # asked of every method


def cells(quick: bool) -> list[Cell]:
    """The runs of the study."""
    seeds = (0, 1, 2) if quick else (0, 1, 2, 3, 4)
    recipe = {"steps": 400, "lbfgs_steps": 60} if quick else {"steps": 10_000, "lbfgs_steps": 1000}
    result: list[Cell] = []
    for target in TARGETS:
        result.append({"target": target, "start": "built", "eps": EPS})
        result += [{"target": target, "start": "trained", "eps": EPS, "seed": seed, **recipe} for seed in seeds]
        result.append({"target": target, "start": "trained from built", "eps": EPS, "seed": 0, **recipe})
    return result


def measure(cell: Cell) -> Mapping[str, Any]:
    """The configuration is the built layer's in every cell; only the start and the training differ."""
    problem = PROBLEMS[cell["target"]]
    built = approximate(problem.formula, problem.box, cell["eps"])
    parameters = built.size()["parameters"]
    if cell["start"] == "built":
        return {**seen_error(built.model, problem), "parameters": parameters, "proved": built.certificate.upper}
    random = cell["start"] == "trained"
    start = OneLayerTransformer(built.model.config, seed=cell["seed"]) if random else built
    # Adam moves a weight by about the rate in a step: the usual one would spoil built weights at once.
    rate = 5e-3 if random else 1e-5
    run = train(
        problem.formula, problem.box, model=start, seed=cell["seed"], steps=cell["steps"], batch=128,
        lbfgs_steps=cell["lbfgs_steps"], lr=rate,
    )  # fmt: skip
    return {"sup": run.sup, "rmse": run.rmse, "parameters": parameters}


def figure(rows: Rows) -> Figure:
    """The picture of its rows."""
    groups: dict[str, dict[str, list[float]]] = {}
    for target, label in TARGETS.items():
        groups[label] = {}
        for start in STARTS:
            groups[label][start] = [row["sup"] for row in select(rows, target=target, start=start)]
    title = "The same layer: built, trained, trained from the built start"
    return bars_figure(groups, y="sup |T - f| seen", title=title)


AS_GOOD = 2.0  # times the built error: near enough to say that training found what exists


def findings(rows: Rows) -> list[str]:
    """What the rows say, in sentences."""
    sentences = []
    for target, label in TARGETS.items():
        seen = {start: median(select(rows, target=target, start=start)) for start in STARTS}
        best = min(row["sup"] for row in select(rows, target=target, start="trained"))
        found = "finds" if best <= AS_GOOD * seen["built"] else "does not find"
        listed = ", ".join(f"{start} {error:.2g}" for start, error in seen.items())
        sentences.append(
            f"{label}: training from random weights {found} what exists (median sup: {listed}; best seed {best:.2g}, "
            f"{best / seen['built']:.3g} times the built error)"
        )
    return sentences


TRAINABILITY = Study(
    "trainability", "Does training find the weights that are known to exist?", cells, measure, figure, findings
)
