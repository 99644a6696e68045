"""A layer over a sequence at one input: the pattern of its heads, what they count, which units fire, the output.

Everything is drawn from the forward pass of the live model; the titles come from ``explain``.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Composition, OrderStatistics
from onelayer.pictures.attention import unit_adds
from onelayer.pictures.explanation import Explanation, argument_of, explain
from onelayer.pictures.scene import Array, Scene
from onelayer.pictures.style import (
    BLUE,
    FAINT,
    FEW,
    INK,
    NORMAL,
    QUIET,
    SIGNED,
    SMALL,
    VERMILLION,
    WEIGHTS,
    legend,
    new_figure,
    tidy,
)
from onelayer.result import Approximation

SHOWN_HEADS = 3  # side by side
WIDE = 44  # letters of a title that fit above one panel


@dataclass(frozen=True)
class Inside:
    """The forward pass at one input.

    ``patterns`` H x (N, S), ``stream`` (N, d_model), ``adds`` (N, hidden) what each unit
    adds to the drawn output, ``strength`` (H,) how much a head writes.
    """

    patterns: list[Array]
    stream: Array
    adds: Array
    strength: Array


def inside(model: OneLayerTransformer, x: Tensor, output: int) -> Inside:
    """What the layer computes at x (D,) on its way to one output of a position."""
    config = model.config
    with torch.no_grad():
        tokens = x.to(model.dtype).reshape(1, -1, config.token_width)
        stream = model.stream(model.embed(tokens))
        patterns = model.attention_weights(x.to(model.dtype).reshape(1, *config.input_shape))
        writes = torch.split(model.own("W_O"), [head.d_v for head in config.heads])
        strength = torch.stack([part.abs().sum() for part in writes])
    adds = np.zeros((stream.shape[1], 0))
    if config.hidden:
        adds = unit_adds(model, x[None], output)[0]
    return Inside([_plain(row[0]) for row in patterns], _plain(stream[0]), adds, _plain(strength))


def _plain(tensor: Tensor) -> Array:
    array: Array = tensor.detach().double().cpu().numpy()
    return array


def sequence_figure(scene: Scene, model: OneLayerTransformer, x: Tensor) -> Figure:
    """Above: up to three heads, rows are querying positions. Below: what is counted, which units fire, T beside f."""
    seen = inside(model, x, scene.output)
    told, result = _told(scene, model)
    strongest_first = np.argsort(-seen.strength, kind="stable").tolist()
    shown = sorted(strongest_first[:SHOWN_HEADS])
    figure = new_figure(12, 7.6)
    left_out = len(seen.patterns) - len(shown)
    note = f"  ({len(shown)} of {len(seen.patterns)} heads)" if left_out else ""
    numbers = ", ".join(f"{value:.3g}" for value in x.tolist()[:12])
    if len(x) > 12:
        numbers += ", ..."
    line = f"inside the layer at x = ({numbers}){note}\n{scene.subline}"
    figure.suptitle(line, fontsize=NORMAL, color=INK, parse_math=False, linespacing=1.5)
    halves: Any = figure.subfigures(2, 1)
    above, below = halves
    panels = above.subplots(1, len(shown), squeeze=False)[0]
    beside = "query | pieces" if model.config.layout == "pieces" else "attended token | memory token"
    for axes, h in zip(panels, shown, strict=True):
        _draw_pattern(axes, seen.patterns[h], _title(told, h), beside, first=axes is panels[0])
    counts, fires, outputs = below.subplots(1, 3)
    argument = None if result is None else argument_of(result)
    if isinstance(argument, OrderStatistics) and argument.construction == "thresholds":
        _draw_counts(counts, scene, model, seen, x)
        _draw_cells(fires, scene, model, seen)
    else:
        gathered = "the sums that the units read" if isinstance(argument, Composition) else "what the heads add up to"
        _draw_rows(counts, seen.stream, gathered, "feature of the stream")
        _draw_rows(fires, seen.adds, "which units fire, and what they add", "hidden unit")
    _draw_outputs(outputs, scene, x)
    return figure


def _told(scene: Scene, model: OneLayerTransformer) -> tuple[Explanation, Approximation | None]:
    """The words for the heads; without a certificate, those that the weights alone allow."""
    if scene.certificate is None:
        return explain(model, box=scene.box, samples=1), None
    result = Approximation(model, scene.certificate, scene.target)
    return explain(result, samples=1), result


def _title(told: Explanation, h: int) -> str:
    purpose = told.heads[h].purpose.partition(":")[0]
    return "\n".join(textwrap.wrap(f"head {h + 1}: {purpose}", WIDE)[:2])


def _draw_pattern(axes: Axes, weights: Array, title: str, beside: str, *, first: bool) -> None:
    count, sources = weights.shape
    extent = (0.5, sources + 0.5, count + 0.5, 0.5)
    image = axes.imshow(weights, cmap=WEIGHTS, vmin=0, aspect="auto", extent=extent)
    if np.ptp(weights) <= 1e-9 * weights.max():  # an even pattern is one colour: say which weight it is
        axes.text(0.5, 0.5, f"every weight is {weights.max():.3g}", transform=axes.transAxes, ha="center", color=INK)
    # Memory tokens stand behind those of the sequence.
    if sources > count:
        axes.axvline(count + 0.5, color=FAINT, linewidth=1.5)
    axes.figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02).ax.tick_params(labelsize=SMALL)
    for locator in (axes.xaxis, axes.yaxis):
        locator.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    tidy(axes, title=title, x="attended token" if sources == count else beside, y="querying position" if first else "")


def _draw_counts(axes: Axes, scene: Scene, model: OneLayerTransformer, seen: Inside, x: Tensor) -> None:
    """N_g over the thresholds: a staircase that rises by one at every number."""
    ends = model.own("ramp_start")[0].double().tolist()
    counted = seen.stream[0, : len(ends)] * len(x)
    axes.step(ends, counted, where="pre", color=BLUE, linewidth=1.4)
    axes.plot(x.tolist(), np.zeros(len(x)), "|", color=VERMILLION, markersize=12, label="the numbers")
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    legend(axes, loc="upper left")
    tidy(axes, title="what is counted: numbers below t", x="threshold t", y="count", grid=True)


def _draw_cells(axes: Axes, scene: Scene, model: OneLayerTransformer, seen: Inside) -> None:
    """What every cell adds at every position, in widths of the cell: one up to the number of that rank, then zero."""
    cells = model.config.ramps
    ends = model.own("ramp_start")[0].double().tolist()
    width = np.diff([float(scene.box.lower.min()), *ends])
    # Units of one level stand side by side, a unit for every cell: (position, level, cell).
    by_level = seen.adds.reshape(len(seen.adds), -1, cells)
    adds = by_level.sum(1) / width
    low, high = scene.bounds(0)
    rows = len(adds) if model.config.readout == "each" else 1
    extent = (low, high, rows + 0.5, 0.5)
    image = axes.imshow(adds[:rows], cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", extent=extent)
    axes.figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02).ax.tick_params(labelsize=SMALL)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    tidy(axes, title="which cells fire", x="cell of the threshold", y="position")


def _draw_rows(axes: Axes, table: Array, title: str, x: str) -> None:
    """A row per position; signs in colour."""
    rows, columns = table.shape
    if not columns:
        axes.text(0.5, 0.5, "no hidden units", ha="center", va="center", fontsize=SMALL, color=QUIET)
        axes.set_axis_off()
        return
    limit = float(np.abs(table).max()) or 1.0
    extent = (0.5, columns + 0.5, rows + 0.5, 0.5)
    image = axes.imshow(table, cmap=SIGNED, vmin=-limit, vmax=limit, aspect="auto", extent=extent)
    axes.figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02).ax.tick_params(labelsize=SMALL)
    for locator in (axes.xaxis, axes.yaxis):
        locator.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    tidy(axes, title=title, x=x, y="position")


def _draw_outputs(axes: Axes, scene: Scene, x: Tensor) -> None:
    """T and f in every output at this input."""
    f, t = scene.both(x[None])
    places = np.arange(1, f.shape[1] + 1)
    axes.bar(places, t[0], color=BLUE, width=0.7, alpha=0.8, label="T(x)")
    axes.plot(places, f[0], "_", color=VERMILLION, markersize=14, markeredgewidth=2, label="f(x)")
    axes.set_xlim(0.4, max(2, len(places)) + 0.6)  # a single bar is not as wide as the panel
    if len(places) <= FEW:
        axes.set_xticks(places)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    legend(axes, loc="best")
    tidy(axes, title="what comes out", x="output", y="", grid=True)
