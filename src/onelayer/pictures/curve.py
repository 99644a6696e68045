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

from onelayer.layer.transformer import OneLayerTransformer
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
MAX_EDGES = 400  # of boxes, beyond which their lines fill the picture
BOUND_STYLES: tuple[tuple[str, Any], ...] = ((VERMILLION, "-"), (GREEN, (0, (6, 3))))  # upper, eps


def curve_figure(scene: Scene) -> Figure:
    """f and T above, attention weights between, T - f with +-upper and +-eps below."""
    (coordinate,) = scene.free
    grid = line_grid(scene, coordinate)
    points = scene.through([coordinate], [grid])
    weights = _token_weights(scene, points)
    heights = [2.4, 2.0] if weights is None else [2.4, 1.3, 2.0]
    figure = new_figure(9, 5.6 if weights is None else 7.4)
    write_title(figure, scene.headline, scene.subline)
    rows = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    f, t = scene.values(points)
    draw_values(scene, rows[0], grid, f, t)
    if weights is not None:
        _draw_weights(rows[1], grid, weights)
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
    """Softmax weights of all memory tokens of all heads, (S, M); None for a model without memory tokens."""
    if not isinstance(scene.model, OneLayerTransformer) or scene.model.config.layout != "packed":
        return None
    if scene.model.size()["tokens"] > 20_000:
        return None
    rows = scene.model.attention_weights(points.reshape(-1, *scene.box.shape))
    stacked: Array = np.concatenate([row.detach().double().numpy()[:, 0] for row in rows], axis=1)
    return stacked


def _draw_weights(axes: Axes, grid: Array, weights: Array) -> None:
    """alpha_m(x) of every token, and below them a tick where each token's weight peaks."""
    count = weights.shape[1]
    colours = colormaps[VALUES](np.linspace(0.0, 0.92, count))
    for m in range(count) if count <= MAX_CURVES else ():
        axes.plot(grid, weights[:, m], color=colours[m], linewidth=1.1)
    top = float(weights.max())
    flat = weights >= (1 - 1e-9) * weights.max(0)  # a sharp softmax has plateaus; the tick marks their middle
    peaks = (grid[:, None] * flat).sum(0) / flat.sum(0)
    axes.scatter(peaks, np.full(count, -0.09 * top), marker="|", s=70, c=colours, linewidths=1.6, clip_on=False)
    axes.set_ylim(-0.18 * top, 1.08 * top)
    axes.set_yticks(np.arange(0.0, 1.08 * top, 0.5 if top > 0.6 else 0.2 if top > 0.35 else 0.1))
    title = f"attention weights of the {count} memory tokens (ticks: where each weight peaks)"
    tidy(axes, title=title, y="weight", grid=True)


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
    limit, bounds = scene.error_limits(float(np.nanmax(np.abs(error))))
    for (label, value), style in zip(bounds, BOUND_STYLES, strict=False):
        _draw_bound(axes, value, limit, "" if small else f"±{label}", style)
    axes.axhline(0, color=QUIET, linewidth=0.6)
    axes.plot(grid, error, color=BLUE, linewidth=1.2)
    if scene.certificate is not None and scene.certificate.witness is not None:
        at = float(scene.base[coordinate])
        height = error[np.searchsorted(grid, at)]
        text = None if small else f"witness {scene.names[coordinate]} = {at:.4g}, |T - f| = {abs(height):.3g}"
        axes.plot([at], [height], "o", color=INK, markersize=5, label=text)
    axes.set_ylim(-limit, limit)
    tidy(axes, title="" if small else "signed error T - f", y=error_label(axes, limit), grid=True)
    if not small:
        _draw_edges(scene, axes, coordinate, box_height)
        outside_legend(axes)


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
    text = f"{len(leaves[0])} boxes of the proof"
    axes.vlines(edges, bottom, bottom + height * (top - bottom), color=QUIET, linewidth=0.9, label=text)
