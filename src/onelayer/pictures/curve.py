"""A function of one coordinate: f and T, the attention weights that make T, and the signed error with its bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from onelayer.card import number_of
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.pictures.attention import unit_adds
from onelayer.pictures.scene import Array, Scene
from onelayer.pictures.style import (
    BLUE,
    GREEN,
    INK,
    QUIET,
    VALUES,
    VERMILLION,
    legend,
    new_figure,
    outside_legend,
    tidy,
    write_title,
)

POINTS = 2001  # of the drawn curves; narrower than a pixel
MAX_CURVES = 80  # beyond, single tokens cannot be told apart
MAX_TOKENS = 20_000  # beyond, their weights on the curve's points fill the memory
MAX_EDGES = 400  # of boxes, beyond which their lines fill the picture
BOUND_STYLES: tuple[tuple[str, Any], ...] = ((VERMILLION, "-"), (GREEN, (0, (6, 3))))  # upper, eps


def curve_figure(scene: Scene) -> Figure:
    """f and T above, what makes T between, T - f with +-upper and +-eps below.

    What makes T are the attention weights, or the hidden units of a layer whose heads have nothing to choose between.
    """
    (coordinate,) = scene.free
    grid = line_grid(scene, coordinate)
    points = scene.through([coordinate], [grid])
    weights = _token_weights(scene, points)
    adds = _unit_adds(scene, points) if weights is None else None
    bare = weights is None and adds is None
    heights = [2.4, 2.0] if bare else [2.4, 1.3, 2.0]
    figure = new_figure(9, 5.6 if bare else 7.4)
    write_title(figure, scene.headline, scene.subline)
    rows = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    f, t = scene.values(points)
    draw_values(scene, rows[0], grid, f, t)
    if weights is not None:
        _draw_weights(rows[1], grid, weights, sharp=scene.layout == "pieces")
    if adds is not None:
        _draw_adds(rows[1], grid, adds)
    draw_error(scene, rows[-1], coordinate, grid, t - f)
    rows[-1].set_xlabel(scene.names[coordinate], fontsize=10)
    rows[-1].set_xlim(grid[0], grid[-1])
    return figure


def line_grid(scene: Scene, coordinate: int, count: int = POINTS) -> Array:
    """Equally spaced positions along one coordinate, with the worst point's own among them."""
    low, high = scene.bounds(coordinate)
    grid = np.append(np.linspace(low, high, count), float(scene.base[coordinate]))
    return np.unique(grid)


def draw_values(scene: Scene, axes: Axes, grid: Array, f: Array, t: Array) -> None:
    """The two curves; T is dashed and on top, so both stay visible where they agree."""
    name = scene.output_name
    axes.plot(grid, f, color=BLUE, linewidth=3.2, alpha=0.55, label=f"f{name}")
    axes.plot(grid, t, color=INK, linewidth=1.2, linestyle=(0, (5, 3)), label=f"T{name}")
    tidy(axes, title="function f and transformer T", y="value", grid=True)
    legend(axes, loc="best", ncols=2)


def _token_weights(scene: Scene, points: Tensor) -> Array | None:
    """Softmax weights of all tokens of all heads with a choice, (S, M); None for a layer of one token per position."""
    if not isinstance(scene.model, OneLayerTransformer) or scene.layout == "tokens":
        return None
    if scene.model.size()["tokens"] > MAX_TOKENS:
        return None
    executed = points.to(scene.dtype).reshape(-1, *scene.box.shape)
    rows = [row for row in scene.model.attention_weights(executed) if row.shape[-1] > 1]
    if not rows:
        return None
    # A packed layer has one query, so a row of weights per point.
    by_heads = [row.detach().double().numpy()[:, 0] for row in rows]
    stacked: Array = np.concatenate(by_heads, axis=1)
    return stacked


def _unit_adds(scene: Scene, points: Tensor) -> Array | None:
    """What every hidden unit adds to the output, (S, U); None where there is no unit or too many to tell apart."""
    model = scene.model
    if not isinstance(model, OneLayerTransformer) or not 0 < model.config.hidden <= MAX_CURVES:
        return None
    return unit_adds(model, points, scene.output)[:, 0]


def _draw_adds(axes: Axes, grid: Array, adds: Array) -> None:
    """A curve per hidden unit: flat until it fires."""
    for unit, colour in enumerate(colormaps[VALUES](np.linspace(0.0, 0.92, adds.shape[1]))):
        axes.plot(grid, adds[:, unit], color=colour, linewidth=1.4)
    tidy(axes, title=f"what {number_of(adds.shape[1], 'hidden units')} add to T", y="adds", grid=True)


def _draw_weights(axes: Axes, grid: Array, weights: Array, *, sharp: bool) -> None:
    """alpha_m(x) of every token, and below them a tick where each token's weight peaks.

    A ``sharp`` head chooses one line after the other: only tokens that are chosen somewhere are counted and drawn.
    """
    weights = weights[:, weights.max(0) > 0.01] if sharp else weights
    count = weights.shape[1]
    colours = colormaps[VALUES](np.linspace(0.0, 0.92, count))
    if count <= MAX_CURVES:
        for m in range(count):
            axes.plot(grid, weights[:, m], color=colours[m], linewidth=1.1)
    top = float(weights.max())
    floor = -0.08 * top
    if not sharp:
        # Room below zero for the ticks.
        floor = -0.18 * top
        height = np.full(count, -0.09 * top)
        peaks = _peaks(grid, weights)
        axes.scatter(peaks, height, marker="|", s=70, c=colours, linewidths=1.6, clip_on=False)
    axes.set_ylim(floor, 1.08 * top)
    axes.set_yticks(np.arange(0.0, 1.08 * top, _tick_step(top)))
    title = f"attention weights of {number_of(count, 'memory tokens')} (ticks: where each weight peaks)"
    if sharp:
        title = f"attention weights of the sharp heads: which of {number_of(count, 'lines')} each of them takes"
    tidy(axes, title=title, y="weight", grid=True)


def _peaks(grid: Array, weights: Array) -> Array:
    """Where each token's weight is largest; a sharp softmax has plateaus, and the middle of one is its peak."""
    on_plateau = weights >= (1 - 1e-9) * weights.max(0)
    places: Array = (grid[:, None] * on_plateau).sum(0) / on_plateau.sum(0)
    return places


def _tick_step(top: float) -> float:
    """Two or three ticks above zero, whatever the largest weight."""
    if top > 0.6:
        return 0.5
    return 0.2 if top > 0.35 else 0.1


def draw_error(
    scene: Scene,
    axes: Axes,
    coordinate: int,
    grid: Array,
    error: Array,
    *,
    small: bool = False,
    box_height: float = 0.035,
) -> None:
    """T - f, the proof's bounds, the witness and the ends of the proof's boxes. ``small`` leaves out the words.

    ``box_height`` is the height of the lines between boxes as a share of the panel.
    """
    observed = float(np.nanmax(np.abs(error)))
    limit = draw_bounds(scene, axes, observed, labelled=not small)
    axes.plot(grid, error, color=BLUE, linewidth=1.2)
    if scene.certificate is not None and scene.certificate.witness is not None:
        at = float(scene.base[coordinate])
        height = error[np.searchsorted(grid, at)]
        text = f"witness {scene.names[coordinate]} = {at:.4g}, |T - f| = {abs(height):.3g}"
        axes.plot([at], [height], "o", color=INK, markersize=5, label=None if small else text)
    axes.set_ylim(-limit, limit)
    noise = f": only rounding, {observed:.1e}" if scene.only_rounding(observed) else ""
    tidy(axes, title="" if small else f"signed error T - f{noise}", y=error_label(axes, limit), grid=True)
    if not small:
        _draw_edges(scene, axes, coordinate, box_height)
        outside_legend(axes)


def draw_bounds(scene: Scene, axes: Axes, observed: float, *, labelled: bool = True) -> float:
    """The line at zero, +-upper and +-eps on an error panel; returns half the height of the panel."""
    limit, bounds = scene.error_limits(observed)
    for (label, value), style in zip(bounds, BOUND_STYLES, strict=False):
        _draw_bound(axes, value, limit, f"±{label}" if labelled else "", style)
    axes.axhline(0, color=QUIET, linewidth=0.6)
    return limit


def _draw_bound(axes: Axes, value: float, limit: float, label: str, style: tuple[str, Any]) -> None:
    """Lines at +-value; a bound beyond the ``limit`` of the panel is only named in the legend."""
    colour, dashes = style
    options: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.3}
    if value > limit:
        axes.axhline(np.nan, label=f"{label} (off the scale)" if label else None, **options)
        return
    axes.axhline(value, label=label or None, **options)
    axes.axhline(-value, **options)


def error_label(axes: Axes, limit: float) -> str:
    """Ticks of an error axis in units of a power of ten, and the label that names the unit."""
    exponent = math.floor(math.log10(limit))
    # Numbers from 0.1 to 1,000 read best as they are.
    exponent = 0 if -2 < exponent < 3 else exponent
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 10.0**exponent:g}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    return f"T - f  [1e{exponent}]" if exponent else "T - f"


def _draw_edges(scene: Scene, axes: Axes, coordinate: int, height: float) -> None:
    leaves = scene.leaves([coordinate])
    if leaves is None or len(leaves[0]) > MAX_EDGES:
        return
    edges = np.unique(np.concatenate(leaves))
    bottom, top = axes.get_ylim()
    upto = bottom + height * (top - bottom)
    text = f"{number_of(len(leaves[0]), 'boxes')} of the proof"
    axes.vlines(edges, bottom, upto, color=QUIET, linewidth=0.9, label=text)
