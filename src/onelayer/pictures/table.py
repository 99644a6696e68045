"""The picture of a memorised table: what is recalled beside what was stored, and the error of every row."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from onelayer.card import counted, number_of
from onelayer.lemmas.argument import Recall
from onelayer.pictures.explanation import argument_of
from onelayer.pictures.scene import Scene
from onelayer.pictures.style import BLUE, QUIET, VERMILLION, drawable, legend, new_figure, tidy, write_title
from onelayer.proof.certificate import outward
from onelayer.proof.files import TABLE, read_table
from onelayer.recording.target import Target
from onelayer.result import Approximation

MOST_ROWS = 5000  # drawn, evenly spread over the table
MOST_LABELS = 12  # written at an axis
CROWD = 60  # rows, from which dots are small
FLOOR = 2.0**-60  # where exact rows are drawn on a logarithmic axis


def holds_table(result: Approximation) -> bool:
    """Whether a result is about the rows of a table."""
    return TABLE in result.certificate.attachments


def table_scene(result: Approximation) -> tuple[Scene, Tensor]:
    """The table as a function: at any point, the output of the stored row nearest to it.

    Beside it the row (D,) that is recalled worst.
    """
    result.need_certified()
    table = read_table(result.certificate.attachments[TABLE])
    x, y = (torch.from_numpy(np.array(part)) for part in table)
    rows = x.double().flatten(1)

    def nearest(points: Tensor) -> Tensor:
        distances = torch.cdist(points.double().flatten(1), rows)
        found: Tensor = y.double()[distances.argmin(1)]
        return found

    description = f"table of {number_of(len(x), 'rows')}"
    target = Target(nearest, tuple(x.shape[1:]), tuple(y.shape[1:]), "blackbox", description)
    with torch.no_grad():
        recalled = result.model(x.to(result.model.dtype)).double()
    errors = (recalled - y.double()).reshape(len(x), -1).abs().amax(1)
    worst = rows[int(errors.argmax())]
    return Scene(result.model, target, result.box, result.certificate), worst


def table_figure(result: Approximation) -> Figure:
    """Left: recalled against stored outputs, on the diagonal if all is well. Right: errors by rank below the bound."""
    result.need_certified()
    x, y = read_table(result.certificate.attachments[TABLE])
    evenly = np.linspace(0, len(x) - 1, MOST_ROWS)
    chosen = np.unique(evenly.round().astype(int))
    stored = y[chosen].reshape(len(chosen), -1)
    with torch.no_grad():
        found = result.model(torch.from_numpy(x[chosen]).to(result.model.dtype))
    recalled: NDArray[np.float64] = found.double().numpy().reshape(len(chosen), -1)
    drawable("the table", stored)
    drawable("T", recalled)
    figure = new_figure(10, 4.6)
    left, right = figure.subplots(1, 2)
    _recalled(left, stored, recalled, _labels(result))
    _errors(right, np.abs(recalled - stored).max(1), result.certificate.upper)
    rows = f"{len(chosen):,} of {len(x):,} rows drawn" if len(chosen) < len(x) else "every row drawn"
    counts = counted(result.size(), ("tokens", "hidden_units"))
    about = f"table of {number_of(len(x), 'rows')}  |  {rows}  |  {counts}"
    write_title(figure, result.certificate.headline, about)
    return figure


def _labels(result: Approximation) -> tuple[str, ...]:
    """The labels behind the numbers 0, 1, ... of a table of classes, if few enough to be written at an axis."""
    argument = argument_of(result)
    if not isinstance(argument, Recall) or argument.classes is None:
        return ()
    return tuple(map(str, argument.classes)) if len(argument.classes) <= MOST_LABELS else ()


def _recalled(axes: Axes, stored: NDArray[np.float64], recalled: NDArray[np.float64], labels: tuple[str, ...]) -> None:
    low = float(stored.min())
    high = float(stored.max())
    axes.plot([low, high], [low, high], color=QUIET, linewidth=0.8, zorder=1)
    axes.scatter(stored, recalled, s=_dot(len(stored)), color=BLUE, alpha=0.5, linewidths=0, zorder=2)
    tidy(axes, title="recalled against stored", x="y", y="T(x)", grid=True)
    if labels:
        axes.set_xticks(range(len(labels)), labels)
        axes.set_yticks(range(len(labels)), labels)


def _dot(rows: int) -> int:
    """The area of a dot: a few rows are seen, many do not cover each other."""
    return 9 if rows > CROWD else 36


def _errors(axes: Axes, errors: NDArray[np.float64], upper: float) -> None:
    axes.set_yscale("log")
    ranks = np.arange(1, len(errors) + 1)
    largest_first = np.sort(errors)[::-1]
    # A logarithmic axis has no zero: exact rows stand at its floor.
    heights = np.maximum(largest_first, FLOOR)
    axes.scatter(ranks, heights, s=_dot(len(errors)), color=BLUE, linewidths=0)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    if np.isfinite(upper):
        # Written rounded up: what is printed stays a bound.
        axes.axhline(upper, color=VERMILLION, linewidth=1.2, label=f"proved: {outward(upper, up=True)}")
        legend(axes, loc="lower left")
    tidy(axes, title="|T(x) − y| of the rows, largest first", x="row by rank", y="", grid=True)
