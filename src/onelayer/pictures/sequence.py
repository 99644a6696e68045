"""A function of a sequence: every output as one number of the sequence moves, among others that are spread or worst."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from onelayer.pictures.curve import draw_bounds, error_label, line_grid
from onelayer.pictures.scene import Array, Scene, spread
from onelayer.pictures.style import INK, VALUES, new_figure, outside_legend, tidy, write_title

POINTS = 401  # of a drawn line
MOST_OUTPUTS = 12  # curves that the eye can follow


def sequence_curves(scene: Scene) -> Figure:
    """Above: f (broad) and T (dashed) in up to twelve outputs while one number moves. Below: T - f in all outputs.

    Left: the others are spread over the domain, so that all parts of the function are seen. Right: they stand where the
    largest error is known.
    """
    moving = scene.free[0]
    figure = new_figure(11, 7.4)
    write_title(figure, scene.headline, scene.about)
    panels = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=[1.3, 1.0])
    left, right = (tuple(column) for column in panels.T)
    spread_out = _draw_column(scene, left, moving, spread(scene.box), "the others spread")
    at_worst = _draw_column(scene, right, moving, scene.base, "through the worst point known")
    # Both panels of errors share a scale, so its end is that of the larger ones.
    observed = max(spread_out, at_worst)
    _draw_limits(scene, panels[1], observed)
    return figure


def _draw_column(scene: Scene, panels: tuple[Axes, Axes], moving: int, others: Tensor, where: str) -> float:
    """One number moves and the ``others`` stand; returns the largest error seen."""
    above, below = panels
    grid = line_grid(scene, moving, POINTS)
    points = others.repeat(len(grid), 1)
    points[:, moving] = torch.from_numpy(grid)
    f, t = scene.both(points)  # (S, outputs)
    outputs = f.shape[1]
    evenly = np.linspace(0, outputs - 1, min(MOST_OUTPUTS, outputs))
    shown = np.unique(evenly.round().astype(int))
    colours = colormaps[VALUES](np.linspace(0.0, 0.92, len(shown)))
    for output, colour in zip(shown, colours, strict=True):
        above.plot(grid, f[:, output], color=colour, linewidth=3.2, alpha=0.55)
        above.plot(grid, t[:, output], color=INK, linewidth=1.0, linestyle=(0, (5, 3)))
        below.plot(grid, (t - f)[:, output], color=colour, linewidth=1.2)
    name = scene.names[moving]
    counted = _outputs(len(shown), outputs)
    tidy(above, title=f"{counted} while {name} moves, {where}", y="f (broad), T (dashed)", grid=True)
    above.label_outer()
    tidy(below, title="signed error T - f", x=name, grid=True)
    above.set_xlim(grid[0], grid[-1])
    return _largest(t - f)


def _outputs(shown: int, total: int) -> str:
    if total == 1:
        return "the output"
    return f"all {total} outputs" if shown == total else f"{shown} of {total:,} outputs"


def _largest(error: Array) -> float:
    return float(np.nanmax(np.abs(error)))


def _draw_limits(scene: Scene, panels: Array, observed: float) -> None:
    """The bounds on both panels of errors, on one scale, and what they are below the figure."""
    left, right = panels
    limit = draw_bounds(scene, left, observed)
    draw_bounds(scene, right, observed, labelled=False)
    left.set_ylim(-limit, limit)
    left.set_ylabel(error_label(left, limit))
    if scene.certificate is not None:
        outside_legend(left)
