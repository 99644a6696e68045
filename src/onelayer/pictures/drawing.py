"""draw: the one main picture of a result, and the others by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.pictures.boxes import boxes_figure
from onelayer.pictures.curve import curve_figure
from onelayer.pictures.plane import plane_figure
from onelayer.pictures.scene import Scene
from onelayer.pictures.sequence import sequence_curves
from onelayer.pictures.slices import slices_figure
from onelayer.pictures.style import check_path, save
from onelayer.pictures.table import holds_table, table_figure
from onelayer.result import Approximation

Drawable = Approximation | Scene


@door
@pinned()
def draw(result: Drawable, path: str | os.PathLike[str], *, f: Any = None) -> Path:
    """The main picture of a result, written as PNG, SVG or PDF by the suffix of ``path``; returns the path.

    One coordinate: curves of f, T, the attention weights and the signed error. Two: heat maps, a surface, and the
    proof's boxes over the error. More: slices through the worst point. Of several outputs the worst one is drawn, and
    the title says which. A sequence: its outputs while one number moves. A memorised table: recalled against stored
    outputs, and the errors. ``f`` is needed only for a loaded proof whose function was not recorded.
    """
    target = check_path(path)
    drawn(result, target, f=f)
    return target


@door
@pinned()
def drawn(result: Drawable, path: str | os.PathLike[str] | None = None, *, f: Any = None) -> Figure:
    """The figure of :func:`draw`, written only where a path is given."""
    target = None if path is None else check_path(path)
    if f is None and isinstance(result, Approximation) and holds_table(result):
        figure = table_figure(result)
    else:
        figure = picture(as_scene(result, f))
    if target is not None:
        save(figure, target)
    return figure


@door
@pinned()
def draw_boxes(result: Drawable, path: str | os.PathLike[str], *, f: Any = None) -> Path:
    """The proof's boxes over the error map, and how often they were cut."""
    target = check_path(path)
    return save(boxes_figure(as_scene(result, f)), target)


def picture(scene: Scene) -> Figure:
    """The figure that :func:`draw` writes."""
    if not scene.free:
        raise OnelayerError("the domain is a single point; a picture needs a coordinate with lower < upper")
    return {1: curve_figure, 2: plane_figure}.get(len(scene.free), _many)(scene)


def _many(scene: Scene) -> Figure:
    """Tokens of a sequence are alike, and slices along each would be too; other inputs differ."""
    return sequence_curves(scene) if scene.layout == "tokens" else slices_figure(scene)


def as_scene(result: Drawable, f: Any = None) -> Scene:
    """The scene of an approximation; a scene stays what it is."""
    if isinstance(result, Scene):
        return result
    return Scene.of(result, f)
