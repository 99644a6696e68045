"""Tokens against error: the points of a sweep over eps, and the law that fits them best."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from onelayer.door import door
from onelayer.errors import OnelayerError, told
from onelayer.ground import pinned
from onelayer.pictures.style import NORMAL, SERIES, check_path, new_figure, outside_legend, save, tidy

Rows = Sequence[tuple[float, float]]  # (tokens, error)
MARKS = "os^Dv*"


@dataclass(frozen=True)
class Rate:
    """error = scale * base^(-tokens^(1/root)), or scale * tokens^(-power) when ``root`` is 0.

    ``spread`` is the largest factor between a point and the law, so 1 is a perfect fit.
    """

    scale: float
    speed: float  # log(base), or the power
    root: int
    spread: float

    def __call__(self, tokens: float) -> float:
        return self.scale * math.exp(-self.speed * _abscissa(tokens, self.root))

    def __str__(self) -> str:
        if self.root == 0:
            return f"{self.scale:.2g} tokens^-{self.speed:.2f}"
        exponent = "tokens" if self.root == 1 else f"tokens^(1/{self.root})"
        return f"{self.scale:.2g} * {math.exp(self.speed):.3g}^-{exponent}"


@door
@pinned()
def fit_rate(rows: Rows, *, axes: int = 1) -> Rate:
    """The best of the laws by least squares on log error: geometric, geometric in tokens^(1/axes), algebraic.

    A smooth function of r interacting coordinates has a geometric law in the tokens per axis, the r-th root of all.
    Short sweeps fit several laws: another one is preferred to this one only if it halves the largest deviation.
    """
    usable = [(tokens, error) for tokens, error in _pairs(rows) if 0 < tokens < math.inf and 0 < error < math.inf]
    if len({tokens for tokens, _ in usable}) < 2:
        raise OnelayerError("a rate needs at least two rows with different tokens and a positive finite error")
    laws = [_fitted(usable, root) for root in sorted({0, 1, axes})]
    expected = max(1, axes)

    def deviation(law: Rate) -> float:
        handicap = 1 if law.root == expected else 2
        return math.log(law.spread) * handicap

    return min(laws, key=deviation)


def _pairs(rows: Rows) -> list[tuple[float, float]]:
    """Rows as they are, once each is known to be two numbers."""
    try:
        return [(float(tokens), float(error)) for tokens, error in rows]
    except (TypeError, ValueError, OverflowError) as error:
        raise OnelayerError(f"rows are pairs of numbers, (tokens, error): {told(error)}") from error


@door
@pinned()
def draw_rate(
    series: Mapping[str, Rows],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    axes: int = 1,
    x: str = "memory tokens",
) -> Path:
    """Write :func:`rate_figure` as PNG, SVG or PDF; returns the path."""
    target = check_path(path)
    return save(rate_figure(series, title=title, axes=axes, x=x), target)


def rate_figure(series: Mapping[str, Rows], *, title: str = "", axes: int = 1, x: str = "memory tokens") -> Figure:
    """log error against tokens, one colour and mark per name, each with its fitted law in the legend."""
    if not series:
        raise OnelayerError("nothing to draw: give at least one series of (tokens, error) rows")
    figure = new_figure(9, 6)
    plot = figure.subplots()
    rates = {name: fit_rate(rows, axes=axes) for name, rows in series.items()}
    algebraic = all(rate.root == 0 for rate in rates.values())
    for k, (name, rows) in enumerate(series.items()):
        colour = SERIES[k % len(SERIES)]
        rate = rates[name]
        counts, errors = np.array(sorted(rows), dtype=float).T
        line = np.geomspace(counts[0], counts[-1], 100)
        fitted = [rate(value) for value in line]
        mark = MARKS[k % len(MARKS)]
        plot.plot(line, fitted, color=colour, linewidth=1.0, linestyle=(0, (5, 3)))
        plot.plot(counts, errors, mark, color=colour, markersize=6, label=f"{name}:  ≈ {rate}")
    plot.set_yscale("log")
    # An algebraic law is a line on two logarithmic axes, a geometric one on one.
    if algebraic:
        plot.set_xscale("log", base=2)
        plot.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        plot.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    tidy(plot, x=x, y="sup |T - f|", grid=True)
    figure.suptitle(title or "tokens against error, with the fitted law (dashed)", fontsize=NORMAL)
    outside_legend(plot)
    return figure


def _fitted(rows: Rows, root: int) -> Rate:
    across = np.array([_abscissa(tokens, root) for tokens, _ in rows])
    log_error = np.log([error for _, error in rows])
    slope, constant = np.polyfit(across, log_error, 1)
    residuals = constant + slope * across - log_error
    spread = float(np.exp(np.abs(residuals).max()))
    return Rate(math.exp(constant), -float(slope), root, spread)


def _abscissa(tokens: float, root: int) -> float:
    if root == 0:
        return math.log(tokens)
    return float(tokens ** (1 / root))
