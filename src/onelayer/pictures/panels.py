"""The attention picture: a row per head with its schematic, its weights at x, and what the keys respond to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from onelayer.box import Bounds
from onelayer.door import door
from onelayer.errors import OnelayerError, told
from onelayer.ground import pinned
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.pictures.attention import AxisView, HeadView, head_views, packed_model, unit_adds
from onelayer.pictures.drawing import Drawable, as_scene
from onelayer.pictures.scene import Array, Scene, spread
from onelayer.pictures.sequence_panels import sequence_figure
from onelayer.pictures.style import (
    BLUE,
    FEW,
    INK,
    NORMAL,
    QUIET,
    SIGNED,
    SMALL,
    VALUES,
    VERMILLION,
    WEIGHTS,
    check_path,
    new_figure,
    save,
    tidy,
)
from onelayer.pictures.table import holds_table, table_scene
from onelayer.recording.target import place
from onelayer.result import Approximation

MAX_HEADS = 3  # drawn side by side
SHOWN_TOKENS = 9  # labels that fit beside each other
LEFT, RIGHT = 0.28, 0.74  # sides of the column of tokens in the schematic


@door
@pinned()
def draw_attention(result: Drawable, path: str | os.PathLike[str], x: Bounds | None = None, *, f: Any = None) -> Path:
    """What the layer does at the input ``x``: heads, units, output; returns the path.

    Without ``x`` it is the worst point known; a memorised table is drawn at a stored row, the one that is recalled
    worst, and a sequence where its numbers differ.
    """
    target = check_path(path)
    if f is None and isinstance(result, Approximation) and holds_table(result):
        scene, base = table_scene(result)
    else:
        scene = as_scene(result, f)
        base = spread(scene.box) if _is_sequence(scene.model) else scene.base
    return save(attention_figure(scene, base if x is None else _input(scene, x)), target)


def _is_sequence(model: Any) -> bool:
    """Whether tokens of the input attend to each other."""
    return isinstance(model, OneLayerTransformer) and model.config.layout == "tokens"


def attention_figure(scene: Scene, x: Tensor) -> Figure:
    """Packed layers: up to three heads, the strongest first, and the units. Sequence layers: see sequence_panels."""
    if isinstance(scene.model, OneLayerTransformer) and scene.model.config.layout != "packed":
        return sequence_figure(scene, scene.model, x)
    model = packed_model(scene)
    views = _with_a_choice(head_views(scene, x), model)
    shown = sorted(views[:MAX_HEADS], key=lambda view: view.index)
    rows = len(shown) + (1 if model.config.hidden else 0)
    figure = new_figure(12, 1.0 + 3.4 * rows)
    note = "" if len(views) == len(shown) else f"  (the {len(shown)} strongest of {len(views)} heads)"
    line = f"attention at x = {_both_values(scene, x)}{note}"
    # A dollar sign in a name is not typesetting.
    figure.suptitle(f"{line}\n{scene.subline}", fontsize=NORMAL, color=INK, parse_math=False, linespacing=1.5)
    grid = figure.add_gridspec(rows, 3, width_ratios=[1.25, 1, 1])
    if model.config.hidden:
        adds = unit_adds(model, x[None], scene.output)[0, 0]
        _draw_units(figure.add_subplot(grid[-1, :]), adds)
    for row, view in enumerate(shown):
        _draw_schematic(figure.add_subplot(grid[row, 0]), view)
        middle = figure.add_subplot(grid[row, 1])
        right = figure.add_subplot(grid[row, 2])
        if view.weights.ndim == 1:
            _draw_bars(middle, view)
            _draw_responses(right, view.axes[0])
        elif view.weights.ndim == 2:
            _draw_grid(middle, view, view.weights, WEIGHTS, f"head {view.index + 1}: weights α over the grid")
            _draw_grid(right, view, view.weights * view.values, SIGNED, "contributions α v to the sum")
        else:
            _draw_factors(middle, view)
            _draw_responses(right, max(view.axes, key=lambda axis: axis.line is not None))
    return figure


def _both_values(scene: Scene, x: Tensor) -> str:
    """The input with T and f there."""
    f, t = scene.values(x[None])
    name = scene.output_name
    return f"{place(x)}:  T{name}(x) = {t[0]:.6g},  f{name}(x) = {f[0]:.6g}"


def _with_a_choice(views: list[HeadView], model: OneLayerTransformer) -> list[HeadView]:
    """Without heads of one token, whose weight is always 1, where there are units to look at instead."""
    return [view for view in views if view.weights.size > 1] if model.config.hidden else views


def _input(scene: Scene, x: Bounds) -> Tensor:
    try:
        point = torch.as_tensor(x, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise OnelayerError(f"the input must be numbers: {told(error)}") from error
    if point.numel() != scene.box.dim:
        raise OnelayerError(f"the input must have {scene.box.dim} numbers, got {point.numel()}")
    if not scene.box.contains(point.reshape(tuple(scene.box.shape))):
        raise OnelayerError(f"the input {place(point)} is outside the domain {scene.box}")
    return point.flatten()


def _draw_schematic(axes: Axes, view: HeadView) -> None:
    """Query on the left, the most attended tokens between, their weighted sum on the right; width is weight."""
    weights = view.weights.flatten()
    values = view.values.flatten()
    # The strongest, in the order of the memory; stable, so that ties are drawn the same way every time.
    strongest_first = np.argsort(-weights, kind="stable")
    chosen = np.sort(strongest_first[:SHOWN_TOKENS])
    rest = len(weights) - len(chosen)
    heights = np.linspace(0.92, 0.12, len(chosen)) if len(chosen) > 1 else np.array([0.5])
    thickness = min(0.075, 0.6 / len(chosen))
    largest = float(weights.max())
    for m, y in zip(chosen, heights, strict=True):
        share = float(weights[m]) / largest
        _flow(axes, (0.12, 0.5), (LEFT, y), share)
        _flow(axes, (RIGHT, y), (0.87, 0.5), share)
        # Three decimals of a smaller weight would be zeros.
        small = f"{weights[m]:.3f}" if weights[m] >= 5e-4 else f"{weights[m]:.0e}"
        text = f"{_token_name(view, int(m))}  α = {small}  v = {values[m]:.3g}"
        _token(axes, y, thickness, share, text)
    _node(axes, 0.06, "query\nq(x)")
    _node(axes, 0.94, f"Σ α v\n{view.sum:.4g}")
    if rest > 0:
        left = 1 - weights[chosen].sum()
        axes.text(0.52, 0.01, f"and {rest:,} more tokens, α = {left:.3f} in all", fontsize=SMALL - 1, ha="center")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    axes.set_title(f"head {view.index + 1}: query, memory tokens, weighted sum", fontsize=NORMAL, loc="left")


def _flow(axes: Axes, start: tuple[float, float], end: tuple[float, float], share: float) -> None:
    """An arrow as strong as its share of the largest weight."""
    style = {"arrowstyle": "-|>", "color": QUIET, "lw": 0.3 + 3.2 * share, "alpha": 0.25 + 0.7 * share}
    touching = {"shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}
    axes.annotate("", end, start, arrowprops=style | touching)


def _token(axes: Axes, y: float, height: float, share: float, text: str) -> None:
    """A memory token as a box in the colour of its weight."""
    corner = (LEFT, y - height / 2)
    box = FancyBboxPatch(corner, RIGHT - LEFT, height, boxstyle="round,pad=0,rounding_size=0.01")
    box.set(facecolor=colormaps[WEIGHTS](share), edgecolor=QUIET, linewidth=0.8)
    axes.add_patch(box)
    # The map is dark at its low end.
    ink = "white" if share < 0.6 else INK
    axes.text((LEFT + RIGHT) / 2, y, text, ha="center", va="center", fontsize=SMALL - 2, color=ink)


def _token_name(view: HeadView, m: int) -> str:
    index = np.unravel_index(m, view.weights.shape)
    return "k" + ",".join(str(int(k) + 1) for k in index)


def _node(axes: Axes, x: float, text: str) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": QUIET, "linewidth": 0.8}
    axes.text(x, 0.5, text, ha="center", va="center", fontsize=SMALL, color=INK, bbox=box)


def _draw_bars(axes: Axes, view: HeadView) -> None:
    """One bar per token in the order of the keys, in the colours of the response curves beside it."""
    count = len(view.weights)
    axes.bar(np.arange(1, count + 1), view.weights, color=_colours(count), width=0.85)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    tidy(axes, title="weights α at x", x="memory token", y="α", grid=True)


def _draw_units(axes: Axes, adds: Array) -> None:
    """What every hidden unit adds to the output; one that is silent adds nothing."""
    firing = int((adds != 0).sum())
    colours = np.where(adds < 0, VERMILLION, BLUE)
    axes.bar(np.arange(1, len(adds) + 1), adds, color=colours, width=0.85)
    # As if there were four at least: a single bar is not as wide as the panel.
    axes.set_xlim(0.4, max(4, len(adds)) + 0.6)
    if len(adds) <= FEW:
        axes.set_xticks(range(1, len(adds) + 1))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    title = f"hidden units: {firing:,} of {len(adds):,} fire, and add"
    tidy(axes, title=title, x="hidden unit", y="adds to the output", grid=True)


def _draw_responses(axes: Axes, axis: AxisView) -> None:
    """How each token's weight depends on the coordinate its key reads; the query stands at the line."""
    if axis.line is None or axis.along is None:
        axes.text(0.5, 0.5, "keys respond to more\nthan one direction", ha="center", va="center", fontsize=SMALL)
        axes.set_axis_off()
        return
    colours = _colours(axis.along.shape[1])
    for m, colour in enumerate(colours):
        axes.plot(axis.line, axis.along[:, m], color=colour, linewidth=1.3)
    axes.axvline(axis.query, color=VERMILLION, linewidth=1.3)
    at_query = np.full(len(axis.weights), axis.query)
    axes.scatter(at_query, axis.weights, c=colours, s=22, zorder=3, edgecolors=INK)
    axes.set_xlim(axis.line[0], axis.line[-1])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    tidy(axes, title="where each key answers (line: the query)", x=axis.name, y="α", grid=True)


def _draw_grid(axes: Axes, view: HeadView, array: Array, colours: str, title: str) -> None:
    rows, columns = array.shape
    extent = (0.5, rows + 0.5, 0.5, columns + 0.5)
    limit = float(np.abs(array).max()) or 1.0
    # Signs in colour need zero in the middle; weights start there.
    low = -limit if colours == SIGNED else 0.0
    image = axes.imshow(array.T, origin="lower", cmap=colours, aspect="auto", extent=extent, vmin=low, vmax=limit)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02)
    bar.ax.tick_params(labelsize=SMALL)
    names = [f"token along {axis.name}" if axis.name else f"token on axis {k + 1}" for k, axis in enumerate(view.axes)]
    for locator in (axes.xaxis, axes.yaxis):
        locator.set_major_locator(MaxNLocator(6, integer=True))
    tidy(axes, title=title, x=names[0], y=names[1])


def _draw_factors(axes: Axes, view: HeadView) -> None:
    """Three axes and more: the weight of a token is the product of one factor per axis; each row is one axis."""
    factors = [axis.weights for axis in view.axes]
    # Axes have different numbers of tokens; what is nan stays empty.
    table = np.full((len(factors), max(map(len, factors))), np.nan)
    for row, factor in enumerate(factors):
        table[row, : len(factor)] = factor
    extent = (0.5, table.shape[1] + 0.5, len(factors) + 0.5, 0.5)
    image = axes.imshow(table, cmap=WEIGHTS, aspect="auto", extent=extent)
    axes.figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02).ax.tick_params(labelsize=SMALL)
    labels = [axis.name or str(k + 1) for k, axis in enumerate(view.axes)]
    axes.set_yticks(range(1, len(factors) + 1), labels)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    tidy(axes, title="factors of α, one row per axis", x="token on the axis")


def _colours(count: int) -> Array:
    colours: Array = colormaps[VALUES](np.linspace(0.0, 0.92, count))
    return colours
