"""Error against size on sin x1 + sin x2: heads, width, memory tokens; trained with several seeds, and built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from onelayer.conductor import approximate
from onelayer.study.built import built_heads, built_memory, built_ridges
from onelayer.study.figures import curves_figure
from onelayer.study.problems import PROBLEMS, seen_error
from onelayer.study.rows import points, select, trend
from onelayer.study.study import Rows, Study
from onelayer.study.sweep import Cell
from onelayer.training.train import train

WAVES = PROBLEMS["waves"]
# Quick runs and whole ones: seconds for a page of examples, and as long as errors still fall.
RECIPE = {True: {"steps": 300, "batch": 128}, False: {"steps": 6000, "batch": 256}}
SEEDS = {True: (0, 1, 2), False: (0, 1, 2, 3, 4)}


def _trained_cells(quick: bool, name: str, sizes: Sequence[int], **fixed: Any) -> list[Cell]:
    """One cell per size and seed."""
    return [
        {"method": "trained", name: size, "seed": seed, **fixed, **RECIPE[quick]}
        for size in sizes
        for seed in SEEDS[quick]
    ]


def _heads_cells(quick: bool) -> list[Cell]:
    """The runs that vary the heads."""
    sizes = (1, 2, 4, 8) if quick else (1, 2, 4, 8, 16)
    width = 16 if quick else 32
    built: list[Cell] = [{"method": "built", "heads": size} for size in (*sizes, 16 if quick else 32)]
    return _trained_cells(quick, "heads", sizes, d_model=width, hidden=2 * width) + built


def _width_cells(quick: bool) -> list[Cell]:
    """The runs that vary the width."""
    sizes = (4, 8, 16, 32) if quick else (4, 8, 16, 32, 64)
    built: list[Cell] = [{"method": "built", "d_model": size} for size in sizes]
    return _trained_cells(quick, "d_model", sizes, heads=2) + built


def _memory_cells(quick: bool) -> list[Cell]:
    """The runs that vary the memory tokens."""
    sizes = (2, 4, 8, 16) if quick else (2, 4, 8, 16, 32)
    eps = (1e-2, 1e-6) if quick else (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10)
    built: list[Cell] = [{"method": "built", "memory": size} for size in sizes]
    built += [{"method": "proved", "eps": value} for value in eps]
    finish = 60 if quick else 400
    return _trained_cells(quick, "memory", sizes, heads=2, d_model=8, lbfgs_steps=finish) + built


def _measure_heads(cell: Cell) -> Mapping[str, Any]:
    """d_model and hidden units stay the same while the heads share the width; built heads have two tokens each."""
    if cell["method"] == "built":
        model = built_heads(WAVES, cell["heads"])
        return {**seen_error(model, WAVES), "parameters": model.size()["parameters"]}
    return _trained(cell, heads=cell["heads"], d_model=cell["d_model"], hidden=cell["hidden"])


def _measure_width(cell: Cell) -> Mapping[str, Any]:
    """Four hidden units per feature, trained or built as linear splines."""
    if cell["method"] == "built":
        model = built_ridges(WAVES, 4 * cell["d_model"])
        return {**seen_error(model, WAVES), "parameters": model.size()["parameters"]}
    return _trained(cell, heads=cell["heads"], d_model=cell["d_model"], hidden=4 * cell["d_model"])


def _measure_memory(cell: Cell) -> Mapping[str, Any]:
    """No feed-forward network: memory does the work. Proved layers are given eps and choose their tokens."""
    if cell["method"] == "built":
        model = built_memory(WAVES, cell["memory"])
        size = model.size()
        return {**seen_error(model, WAVES), "tokens": size["tokens"], "parameters": size["parameters"]}
    if cell["method"] == "proved":
        built = approximate(WAVES.formula, WAVES.box, cell["eps"])
        seen = seen_error(built.model, WAVES)
        size = built.size()
        return {**seen, "proved": built.certificate.upper, "tokens": size["tokens"], "parameters": size["parameters"]}
    shape = {"heads": cell["heads"], "d_model": cell["d_model"], "memory": cell["memory"]}
    found = _trained(cell, hidden=0, layer={"layout": "packed"}, lbfgs_steps=cell["lbfgs_steps"], **shape)
    return {**found, "tokens": cell["heads"] * cell["memory"]}


def _trained(cell: Cell, **shape: Any) -> dict[str, Any]:
    run = train(WAVES.formula, WAVES.box, seed=cell["seed"], steps=cell["steps"], batch=cell["batch"], **shape)
    return {"sup": run.sup, "rmse": run.rmse, "parameters": run.parameters}


def _figure(size: str, x: str, trained: str, built: str) -> Callable[[Rows], Figure]:
    def figure(rows: Rows) -> Figure:
        labels = {"trained": trained, "built": built}
        if select(rows, method="proved"):
            labels["proved"] = "approximate, for a given eps"
        series = {label: points(select(rows, method=method), size) for method, label in labels.items()}
        title = f"sin x1 + sin x2: largest error seen against {x}"
        return curves_figure({"": series}, x=x, y="sup |T - f| seen", title=title)

    return figure


def _findings(size: str) -> Callable[[Rows], list[str]]:
    def findings(rows: Rows) -> list[str]:
        return [trend(method, select(rows, method=method), size) for method in ("trained", "built")]

    return findings


HEADS = Study(
    "heads",
    "Does the error of sin x1 + sin x2 decrease with the number of heads?",
    _heads_cells,
    _measure_heads,
    _figure("heads", "heads", "trained, width and hidden units fixed", "built, two tokens a head"),
    _findings("heads"),
)
WIDTH = Study(
    "width",
    "Does the error of sin x1 + sin x2 decrease with the width d_model?",
    _width_cells,
    _measure_width,
    _figure("d_model", "d_model", "trained, 4 d_model hidden units", "built from 4 d_model ReLU units"),
    _findings("d_model"),
)
MEMORY = Study(
    "memory",
    "Does the error of sin x1 + sin x2 decrease with the number of memory tokens?",
    _memory_cells,
    _measure_memory,
    _figure("tokens", "memory tokens", "trained, two heads, no hidden units", "built, keys on a grid"),
    _findings("tokens"),
)
