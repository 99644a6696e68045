"""Precision: built and trained layers computed in float64, float32 and bfloat16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from onelayer.conductor import approximate
from onelayer.study.figures import bars_figure
from onelayer.study.problems import PROBLEMS, seen_error
from onelayer.study.rows import median, select
from onelayer.study.study import Rows, Study
from onelayer.study.sweep import Cell
from onelayer.training.recipe import DTYPES
from onelayer.training.train import train

WAVES = PROBLEMS["waves"]
BUILT = {"built 1e-03": 1e-3, "built 1e-06": 1e-6}  # the eps of each method that builds
METHODS = {"built 1e-03": "built for 1e-3", "built 1e-06": "built for 1e-6", "trained": "trained"}


def cells(quick: bool) -> list[Cell]:
    """The runs of the study."""
    seeds, steps = ((0,), 400) if quick else ((0, 1, 2), 6000)
    result: list[Cell] = []
    for dtype in DTYPES:
        result += [{"method": method, "dtype": dtype, "eps": eps} for method, eps in BUILT.items()]
        result += [{"method": "trained", "dtype": dtype, "seed": seed, "steps": steps, "batch": 128} for seed in seeds]
    return result


def measure(cell: Cell) -> Mapping[str, Any]:
    """Errors against f in float64. Training in bfloat16 keeps float32 weights; its model is measured in bfloat16."""
    dtype = DTYPES[cell["dtype"]]
    if cell["method"] in BUILT:
        built = approximate(WAVES.formula, WAVES.box, cell["eps"])
        return {**seen_error(built.model, WAVES, dtype), "proved": built.certificate.upper}
    run = train(
        WAVES.formula, WAVES.box, heads=2, d_model=16, hidden=64, steps=cell["steps"], batch=cell["batch"],
        seed=cell["seed"], dtype=dtype,
    )  # fmt: skip
    return seen_error(run.model, WAVES, dtype)


def figure(rows: Rows) -> Figure:
    """The picture of its rows."""
    groups: dict[str, dict[str, list[float]]] = {}
    for method, label in METHODS.items():
        groups[label] = {}
        for dtype in DTYPES:
            groups[label][dtype] = [row["sup"] for row in select(rows, method=method, dtype=dtype)]
    return bars_figure(groups, y="sup |T - f| seen", title="sin x1 + sin x2: the same weights in three formats")


def findings(rows: Rows) -> list[str]:
    """What the rows say, in sentences."""
    sentences = []
    for method, label in METHODS.items():
        errors = {dtype: median(select(rows, method=method, dtype=dtype)) for dtype in DTYPES}
        listed = ", ".join(f"{dtype} {error:.2g}" for dtype, error in errors.items())
        sentences.append(f"{label}: {listed}")
    return sentences


PRECISION = Study("precision", "How many digits does a layer need to keep its error?", cells, measure, figure, findings)
