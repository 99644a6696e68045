"""The boxes of a proof over the error that they bound, and how often each was cut."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from onelayer.errors import OnelayerError
from onelayer.pictures.curve import draw_error, line_grid
from onelayer.pictures.plane import draw_error_map, evaluate
from onelayer.pictures.scene import Scene
from onelayer.pictures.style import BLUE, new_figure, tidy, write_title


def boxes_figure(scene: Scene) -> Figure:
    """The error map with the proof's boxes, in the plane of the two coordinates cut most often if there are more.

    Beside it: how many boxes were cut how often. Every leaf carries its own bound; small boxes are where the error is
    large or f is hard to enclose.
    """
    if scene.certificate is None or scene.certificate.proof is None:
        raise OnelayerError("this result has no boxes to draw: its certificate was not made by branch and bound")
    figure = new_figure(10, 6.4)
    write_title(figure, scene.headline, scene.subline)
    large, small = figure.subplots(1, 2, width_ratios=[2.6, 1])
    if len(scene.free) == 1:
        coordinate = scene.free[0]
        grid = line_grid(scene, coordinate)
        f, t = scene.values(scene.through([coordinate], [grid]))
        draw_error(scene, large, coordinate, grid, t - f, box_height=1.0)
        large.set_xlim(grid[0], grid[-1])
    else:
        first, second = _most_cut(scene)
        draw_error_map(scene, large, evaluate(scene, first, second))
    _draw_depths(scene, small)
    return figure


def _cuts(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """How often each leaf was cut, (L,), and how often each coordinate was in total, (D,)."""
    assert scene.certificate is not None
    assert scene.certificate.proof is not None
    low, high = scene.certificate.proof.boxes()
    width = scene.box.width.flatten().numpy()
    free = width > 0
    cuts = np.zeros_like(low)
    # A cut halves a side; rounding of the ends moves the logarithm by far less than one half.
    sides = (high - low)[:, free]
    cuts[:, free] = np.round(np.log2(width[free] / sides))
    return cuts.sum(1), cuts.sum(0)


def _most_cut(scene: Scene) -> tuple[int, int]:
    cuts = _cuts(scene)[1]
    order = sorted(scene.free, key=lambda i: -cuts[i])
    first, second = sorted(order[:2])
    return first, second


def _draw_depths(scene: Scene, axes: Axes) -> None:
    depths = _cuts(scene)[0].astype(int)
    counts = np.bincount(depths)
    shown = np.flatnonzero(counts)
    axes.barh(shown, counts[shown], color=BLUE, height=0.8)
    # More bars stand closer than a line of text is high.
    if len(shown) <= 24:
        for depth in shown:
            count = counts[depth]
            axes.annotate(f"{count:,}", (count, depth), (3, 0), textcoords="offset points", va="center")
    axes.set_xlim(0, counts.max() * 1.25)
    axes.set_ylim(shown[0] - 1.2, shown[-1] + 1.2)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    tidy(axes, title="boxes by number of cuts", x="boxes", y="cuts", grid=True)
