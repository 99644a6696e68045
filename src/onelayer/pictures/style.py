"""How every picture looks and how it reaches the disk: colour-blind safe colours, one canvas, atomic files."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from onelayer.disk import replace_file
from onelayer.errors import FileError, OnelayerError

# Okabe and Ito's palette; cividis and viridis for values; ColorBrewer's RdBu for signs.
BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, QUIET, FAINT = "#222222", "#666666", "#DDDDDD"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
VALUES, WEIGHTS, SIGNED = "viridis", "cividis", "RdBu_r"

SUFFIXES = (".png", ".svg", ".pdf")
DPI = 100  # of a picture on a screen
SMALL, NORMAL = 9, 10  # sizes of letters in points
FEW = 12  # bars that are numbered one by one
LARGEST = 1e100  # of a value on an axis: sums and squares of such values are numbers


class ShownFigure(Figure):
    """A figure that a notebook shows as it is, without pyplot."""

    def _repr_png_(self) -> bytes:
        written = io.BytesIO()
        self.savefig(written, format="png")
        return written.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that size in inches with its own canvas: no pyplot, no global state."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.04, hspace=0.05)
    figure = ShownFigure(figsize=(width, height), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def write_title(figure: Figure, headline: str, subline: str) -> None:
    """The certificate's sentence, and below it what was approximated and by what."""
    figure.suptitle(f"{headline}\n{subline}", fontsize=NORMAL, color=INK, parse_math=False, linespacing=1.5)


def tidy(axes: Axes, *, title: str = "", x: str = "", y: str = "", grid: bool = False) -> None:
    """Titles and labels in one size, ticks that stay small, no frame where none is needed."""
    axes.set_title(title, fontsize=NORMAL, color=INK, loc="left", parse_math=False)
    axes.set_xlabel(x, fontsize=NORMAL, parse_math=False)
    axes.set_ylabel(y, fontsize=NORMAL, parse_math=False)
    axes.tick_params(labelsize=SMALL)
    for text in (axes.xaxis.get_offset_text(), axes.yaxis.get_offset_text()):
        text.set_fontsize(SMALL)
    if grid:
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)


def legend(axes: Axes, **options: Any) -> None:
    """A legend that reads well over curves."""
    axes.legend(fontsize=SMALL, framealpha=0.9, edgecolor=FAINT, **options)


def outside_legend(axes: Axes) -> None:
    """A legend below the whole figure, where it covers nothing, in as few rows as its words allow."""
    handles, labels = axes.get_legend_handles_labels()
    room = 13 * axes.figure.bbox.width / DPI  # characters of this size on one line, about
    # The line before a label takes about four characters.
    widths = [len(label) + 4 for label in labels]
    fitting = int(room // max(widths))
    columns = max(1, min(len(labels), fitting))
    if sum(widths) <= room:
        columns = len(labels)
    options = {"fontsize": SMALL, "edgecolor": FAINT, "columnspacing": 1.4, "handlelength": 1.8}
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=columns, **options)


def check_path(path: str | os.PathLike[str]) -> Path:
    """The path as given, if its suffix names a format that can be written and its folder exists."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise OnelayerError(f"cannot draw to '{target}': the name must end in {', '.join(SUFFIXES)}")
    if not target.parent.is_dir():
        raise FileError(f"cannot write {target}: there is no folder '{target.parent}'")
    if target.is_dir():
        raise FileError(f"cannot write {target}: it is a folder; choose another name")
    return target


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write the figure as PNG, SVG or PDF, by suffix, all of it or nothing; returns the path."""
    target = check_path(path)
    kind = target.suffix.lower().removeprefix(".")
    # No dates and no program names inside: the same picture is the same file.
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    buffer = io.BytesIO()
    options: dict[str, Any] = {"pil_kwargs": {"optimize": True}} if kind == "png" else {}
    figure.savefig(buffer, format=kind, metadata=metadata, **options)
    replace_file(target, buffer.getvalue())
    return target


def drawable(name: str, *values: NDArray[np.float64]) -> None:
    """OnelayerError unless the values can be put on axes; a few that are not defined (nan) stay out of the picture."""
    for part in values:
        finite = part[np.isfinite(part)]
        if not finite.size or np.isinf(part).any() or np.abs(finite).max() > LARGEST:
            raise OnelayerError(f"{name} has values that are infinite, undefined or above {LARGEST:g}: nothing to draw")
