"""Functions of two coordinates: heat maps of f, of T and of the signed error, a surface, and the proof's boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from onelayer.card import number_of
from onelayer.pictures.scene import FAR, Array, Scene
from onelayer.pictures.style import INK, SIGNED, SMALL, VALUES, new_figure, tidy, write_title
from onelayer.proof.certificate import outward

CELLS = 150  # of a map in each direction
SURFACE = 60  # lines of a surface in each direction


@dataclass(frozen=True)
class Map:
    """f and T on the cell centres of a plane through the worst point; arrays are (first, second coordinate)."""

    first: int
    second: int
    extent: tuple[float, float, float, float]
    f: Array
    t: Array

    @property
    def error(self) -> Array:
        """T - f."""
        return self.t - self.f


def evaluate(scene: Scene, first: int, second: int, cells: int = CELLS) -> Map:
    """Sample the plane of two coordinates, all others held at the worst point."""
    ends = [scene.bounds(first), scene.bounds(second)]
    # A colour fills its cell, so it is sampled in the middle.
    centres = (np.arange(cells) + 0.5) / cells
    grids = [low + centres * (high - low) for low, high in ends]
    f, t = scene.values(scene.through([first, second], grids))
    square = (cells, cells)
    return Map(first, second, (*ends[0], *ends[1]), f.reshape(square), t.reshape(square))


def plane_figure(scene: Scene) -> Figure:
    """f, T, T - f with the boxes of the proof, and the surface of T."""
    first, second = scene.free
    plane = evaluate(scene, first, second)
    figure = new_figure(10, 8.8)
    write_title(figure, scene.headline, scene.subline)
    grid = figure.add_gridspec(2, 2)
    left = figure.add_subplot(grid[(0, 0)])
    right = figure.add_subplot(grid[(0, 1)])
    below = figure.add_subplot(grid[(1, 0)])
    # One scale for both: equal colours are equal values.
    low = min(plane.f.min(), plane.t.min())
    high = max(plane.f.max(), plane.t.max())
    name = scene.output_name
    draw_values(scene, left, plane, plane.f, f"function f{name}", (low, high))
    draw_values(scene, right, plane, plane.t, f"transformer T{name}", (low, high))
    draw_error_map(scene, below, plane)
    _draw_surface(scene, figure.add_subplot(grid[1, 1], projection="3d"), plane)
    return figure


def draw_values(scene: Scene, axes: Axes, plane: Map, values: Array, title: str, span: tuple[float, float]) -> None:
    """A heat map with its colour bar."""
    image = _image(axes, plane, values, VALUES, *span)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02)
    bar.ax.tick_params(labelsize=SMALL)
    _label(scene, axes, plane, title)


def draw_error_map(scene: Scene, axes: Axes, plane: Map, *, boxes: bool = True, title: str = "") -> None:
    """The signed error on the symmetric scale +-upper, with the proof's boxes as thin lines and the witness marked.

    When the upper bound is far above every error seen, or infinite, the scale is the largest error seen instead, and
    the title says so. Errors that are rounding alone keep the scale of the bound.
    """
    seen = float(np.nanmax(np.abs(plane.error))) or 1.0
    limit, word = _error_scale(scene, seen)
    image = _image(axes, plane, plane.error, SIGNED, -limit, limit)
    ticks = [-limit, -limit / 2, 0, limit / 2, limit]
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02, ticks=ticks)
    bar.ax.tick_params(labelsize=SMALL)
    # The printed end of the scale is rounded away from zero: it stays a bound.
    shown = outward(limit, up=True)
    bar.ax.set_yticklabels([f"-{shown}", "", "0", "", f"+{shown}"])
    count = _draw_leaves(scene, axes, plane) if boxes else 0
    parts = [title or "signed error T - f", word]
    if count:
        parts.append(number_of(count, "boxes"))
    _label(scene, axes, plane, ", ".join(parts))
    if scene.certificate is not None and scene.certificate.witness is not None:
        _ring(axes, float(scene.base[plane.first]), float(scene.base[plane.second]))


def _error_scale(scene: Scene, seen: float) -> tuple[float, str]:
    """The end of the scale of errors up to ``seen``, and what it is."""
    if scene.certificate is None:
        return seen, "scale: largest seen"
    upper = scene.certificate.upper
    if 0 < upper < np.inf and scene.only_rounding(seen):
        return upper, f"only rounding, {seen:.1e}"
    if 0 < upper <= FAR * seen:
        return upper, "scale ±upper"
    return seen, f"scale: largest seen; upper = {outward(upper, up=True)}"


def _ring(axes: Axes, x: float, y: float) -> None:
    """A mark that is visible on light and dark ground."""
    for colour, width in (("white", 3.5), (INK, 1.3)):
        ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": colour, "markeredgewidth": width}
        axes.plot([x], [y], "o", markersize=9, clip_on=False, zorder=4, **ring)


def _draw_leaves(scene: Scene, axes: Axes, plane: Map) -> int:
    """The boxes of the proof that this plane meets, as outlines; returns how many."""
    leaves = scene.leaves([plane.first, plane.second])
    if leaves is None or len(leaves[0]) < 2:
        return 0
    (x0, y0), (x1, y1) = leaves[0].T, leaves[1].T
    around = ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    corners = np.stack([np.stack(corner, -1) for corner in around], 1)  # (L, 4, 2)
    # A box is about as wide as one over the root of their number, and its line as thin in proportion.
    width = float(np.clip(14 / np.sqrt(len(corners)), 0.12, 0.7))
    # Thousands of outlines as lines would make a vector file slow to open.
    many = len(corners) > 2000
    ink: dict[str, Any] = {"facecolors": "none", "edgecolors": INK, "linewidths": width, "alpha": 0.6}
    lines = PolyCollection(list(corners), rasterized=many, **ink)
    axes.add_collection(lines, autolim=False)
    return len(corners)


def _image(axes: Axes, plane: Map, values: Array, colours: str, low: float, high: float) -> AxesImage:
    # Whole cells instead of smoothed ones: the file is half as large and shows what was sampled.
    options: dict[str, Any] = {"cmap": colours, "vmin": low, "vmax": high, "interpolation": "nearest"}
    image = axes.imshow(values.T, origin="lower", extent=plane.extent, aspect="auto", **options)
    axes.set_box_aspect(1)  # inputs have units of their own: the shape of the domain means nothing
    return image


def _label(scene: Scene, axes: Axes, plane: Map, title: str) -> None:
    tidy(axes, title=title, x=scene.names[plane.first], y=scene.names[plane.second])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _draw_surface(scene: Scene, axes: Any, plane: Map) -> None:
    step = max(1, len(plane.t) // SURFACE)
    low_x, high_x, low_y, high_y = plane.extent
    x = np.linspace(low_x, high_x, len(plane.t))
    y = np.linspace(low_y, high_y, len(plane.t))
    mesh = np.meshgrid(x[::step], y[::step], indexing="ij")
    heights = plane.t[::step, ::step]
    axes.plot_surface(*mesh, heights, cmap=VALUES, linewidth=0, rcount=SURFACE, ccount=SURFACE)
    axes.set_title(f"surface of T{scene.output_name}", fontsize=10, color=INK, loc="left")
    axes.set_xlabel(scene.names[plane.first], fontsize=SMALL)
    axes.set_ylabel(scene.names[plane.second], fontsize=SMALL)
    axes.tick_params(labelsize=8, pad=0)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(4))
    axes.view_init(elev=32, azim=-125)
