"""Functions of three and more coordinates: slices through the worst point along each of them, and one plane."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from onelayer.pictures.curve import BOUND_STYLES, draw_error, error_label, line_grid
from onelayer.pictures.plane import draw_error_map, evaluate
from onelayer.pictures.plane import draw_values as draw_value_map
from onelayer.pictures.scene import Array, Scene
from onelayer.pictures.style import BLUE, FAINT, INK, NORMAL, SMALL, new_figure, tidy, write_title

MAX_SLICES = 8  # rows that fit on a page
LINE_POINTS = 401  # of a drawn line
PLANE_CELLS = 140  # of a map in each direction

Slice = tuple[int, Array, Array, Array]  # coordinate, positions, f, T


def slices_figure(scene: Scene) -> Figure:
    """Left: f and T - f over the two most active coordinates. Right: f, T and T - f along each coordinate.

    A coordinate is active in proportion to how much f moves along its slice. At most eight slices are drawn, the most
    active ones, in the order of the coordinates.
    """
    lines = [_slice(scene, coordinate) for coordinate in scene.free]
    lines.sort(key=lambda line: float(np.ptp(line[2])), reverse=True)
    first, second = sorted(line[0] for line in lines[:2])
    shown = sorted(lines[:MAX_SLICES], key=lambda line: line[0])
    columns = 2 if len(shown) <= 4 else 4
    rows = math.ceil(len(shown) / columns)
    figure = new_figure(4.8 + 2.5 * columns, max(7.4, 3.0 * rows + 1.2))
    write_title(figure, scene.headline, scene.subline)
    left, right = figure.subfigures(1, 2, width_ratios=[4.6, 2.5 * columns], squeeze=False)[0]
    _draw_planes(scene, left, first, second)
    _draw_lines(scene, right, shown, rows, columns, len(lines))
    return figure


def _slice(scene: Scene, coordinate: int) -> Slice:
    grid = line_grid(scene, coordinate, LINE_POINTS)
    return coordinate, grid, *scene.values(scene.through([coordinate], [grid]))


def _draw_planes(scene: Scene, figure: SubFigure, first: int, second: int) -> None:
    above, below = figure.subplots(2, 1)
    plane = evaluate(scene, first, second, PLANE_CELLS)
    span = (float(plane.f.min()), float(plane.f.max()))
    draw_value_map(scene, above, plane, plane.f, f"f{scene.output_name}, the two most active inputs", span)
    draw_error_map(scene, below, plane, title="T - f")


def _draw_lines(scene: Scene, figure: SubFigure, shown: list[Slice], rows: int, columns: int, total: int) -> None:
    note = "" if total == len(shown) else f" ({len(shown)} of {total}, the most active)"
    figure.suptitle(f"slices through the worst point{note}", fontsize=NORMAL, color=INK)
    cells = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[1.1, 1.0] * rows)
    # One scale for all slices: a flat curve is a coordinate that matters little.
    values = np.concatenate([np.concatenate([f, t]) for _, _, f, t in shown])
    low = values.min()
    high = values.max()
    pad = 0.06 * (high - low) or 1.0
    error_panels = []
    for place in range(rows * columns):
        # A slice takes two panels, one below the other.
        row, column = divmod(place, columns)
        above, below = cells[2 * row][column], cells[2 * row + 1][column]
        if place >= len(shown):
            above.set_axis_off()
            below.set_axis_off()
            continue
        above.set_ylim(low - pad, high + pad)
        _draw_slice(scene, above, below, shown[place], edge=column == 0)
        error_panels.append(below)
    _share_error_scale(error_panels, columns)
    _draw_key(scene, figure, cells[1][0])


def _draw_slice(scene: Scene, above: Axes, below: Axes, shown: Slice, *, edge: bool) -> None:
    """f and T along one coordinate, their difference below; only a panel at the left ``edge`` is labelled there."""
    coordinate, grid, f, t = shown
    above.plot(grid, f, color=BLUE, linewidth=3.0, alpha=0.55)
    above.plot(grid, t, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
    tidy(above, y="value" if edge else "", grid=True)
    above.tick_params(labelbottom=False, labelleft=edge)
    draw_error(scene, below, coordinate, grid, t - f, small=True)
    below.set_xlabel(scene.names[coordinate], fontsize=NORMAL)
    below.tick_params(labelleft=edge)
    for axes in (above, below):
        axes.set_xlim(grid[0], grid[-1])
        axes.tick_params(labelsize=SMALL - 1)


def _share_error_scale(panels: list[Axes], columns: int) -> None:
    limit = max(axes.get_ylim()[1] for axes in panels)
    for place, axes in enumerate(panels):
        label = error_label(axes, limit)
        axes.set_ylim(-limit, limit)
        axes.set_ylabel("" if place % columns else label, fontsize=NORMAL)


def _draw_key(scene: Scene, figure: SubFigure, panel: Axes) -> None:
    """One legend for all slices; bounds that are off the scale are named in it."""
    limit = panel.get_ylim()[1]
    of_f = Line2D([], [], color=BLUE, linewidth=3.0, alpha=0.55)
    of_t = Line2D([], [], color=INK, linestyle=(0, (5, 3)))
    entries = [of_f, of_t]
    labels = ["f", "T"]
    _, bounds = scene.error_limits(limit)
    for (label, value), (colour, dashes) in zip(bounds, BOUND_STYLES, strict=False):
        entries.append(Line2D([], [], color=colour, linestyle=dashes))
        labels.append(f"±{label}" + (" (off the scale)" if value > limit else ""))
    entries.append(Line2D([], [], color=INK, marker="o", linestyle="none", markersize=5))
    labels.append("worst point")
    options = {"fontsize": SMALL, "edgecolor": FAINT, "columnspacing": 1.4, "handlelength": 1.8}
    figure.legend(entries, labels, loc="outside lower center", ncols=3, **options)
