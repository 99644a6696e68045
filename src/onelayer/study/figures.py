"""Figures of studies: error against size, every seed a point, medians joined; or bars side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from onelayer.pictures.style import NORMAL, SERIES, SMALL, new_figure, outside_legend, tidy

Points = Sequence[tuple[float, float]]  # (size, error), sizes repeated over seeds
MARKS = "os^Dv*"


def curves(axes: Axes, series: Mapping[str, Points], *, x: str, y: str, title: str = "", log_x: bool = True) -> None:
    """Log error against size; the line joins the medians over seeds, the points are all the runs."""
    for k, (name, points) in enumerate(series.items()):
        by_size: dict[float, list[float]] = defaultdict(list)
        for size, error in points:
            by_size[size].append(error)
        sizes = sorted(by_size)
        colour = SERIES[k % len(SERIES)]
        mark = MARKS[k % len(MARKS)]
        axes.plot(*zip(*points, strict=True), mark, color=colour, markersize=4, alpha=0.45)
        medians = [float(np.median(by_size[size])) for size in sizes]
        axes.plot(sizes, medians, "-" + mark, color=colour, markersize=6, linewidth=1.2, label=name)
    axes.set_yscale("log")
    if log_x:
        axes.set_xscale("log", base=2)
        ticks = sorted({size for points in series.values() for size, _ in points})
        if len(ticks) <= 12:
            axes.xaxis.set_major_locator(FixedLocator(ticks))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    tidy(axes, x=x, y=y, title=title, grid=True)


def curves_figure(panels: Mapping[str, Mapping[str, Points]], *, x: str, y: str, title: str) -> Figure:
    """One panel per name of ``panels``, each with its series; one legend below."""
    figure = new_figure(max(7.0, 4.8 * len(panels)), 4.8)
    plots = np.atleast_1d(np.asarray(figure.subplots(1, len(panels), sharey=True)))
    for plot, (name, series) in zip(plots, panels.items(), strict=True):
        # Panels share the vertical axis, and a single one needs no name beside the title.
        label = y if plot is plots[0] else ""
        own_title = name if len(panels) > 1 else ""
        curves(plot, series, x=x, y=label, title=own_title)
    figure.suptitle(title, fontsize=NORMAL)
    # The legend of the panel with most series serves all of them.
    fullest = max(plots, key=lambda plot: len(plot.get_legend_handles_labels()[1]))
    outside_legend(fullest)
    return figure


def bars_figure(groups: Mapping[str, Mapping[str, Sequence[float]]], *, y: str, title: str, log: bool = True) -> Figure:
    """Groups of bars: groups[group][bar] holds one number per seed; the bar is the median, the whisker the range."""
    figure = new_figure(max(6.0, 1.6 * len(groups)), 4.8)
    plot = figure.subplots()
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    width = 0.8 / len(names)
    for k, name in enumerate(names):
        held = {g: bars[name] for g, bars in enumerate(groups.values()) if name in bars}
        # The bars of a group stand around its tick.
        offset = (k - (len(names) - 1) / 2) * width
        places = [g + offset for g in held]
        colour = SERIES[k % len(SERIES)]
        _bars(plot, places, list(held.values()), 0.92 * width, colour, name)
    if log:
        plot.set_yscale("log")
    tidy(plot, y=y, grid=True)
    plot.set_xticks(range(len(groups)), list(groups), fontsize=SMALL)
    figure.suptitle(title, fontsize=NORMAL)
    outside_legend(plot)
    return figure


def _bars(
    plot: Axes, at: Sequence[float], values: Sequence[Sequence[float]], width: float, colour: str, name: str
) -> None:
    """One series of bars: medians, with whiskers over the range of the seeds."""
    middle = np.array([np.median(value) for value in values])
    below = middle - [min(value) for value in values]
    above = [max(value) for value in values] - middle
    ends = np.array([below, above])
    plot.bar(at, middle, width, color=colour, label=name)
    plot.errorbar(at, middle, yerr=ends, fmt="none", ecolor="#222222", elinewidth=1, capsize=2)
