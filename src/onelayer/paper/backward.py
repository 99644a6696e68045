"""A ReLU network with its forward and backward pass by eqs (1), (9) and (10), and the drawing of both: Figure 2."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onelayer.equations.functions import (
    Array,
    backpropagated_error,
    dense_layer,
    parameter_gradients,
    relu,
    relu_slope,
)
from onelayer.pictures.style import BLUE, INK, QUIET, SIGNED, SMALL, VERMILLION, new_figure

TOP, BOTTOM = 0.92, 0.34  # where the units of a layer are drawn


@dataclass(frozen=True)
class Network:
    """h^l = relu(W^l h^{l-1} + b^l) for every layer."""

    weights: Sequence[Array]
    biases: Sequence[Array]

    @classmethod
    def random(cls, widths: Sequence[int], *, seed: int) -> Network:
        """A network of these widths with normal weights of the size that keeps ReLU layers stable."""
        generator = np.random.default_rng(seed)
        pairs = list(itertools.pairwise(widths))
        weights = [generator.normal(size=(after, before)) / np.sqrt(before / 2) for before, after in pairs]
        return cls(weights, [0.3 * generator.normal(size=after) for _, after in pairs])

    def forward(self, x: Array) -> tuple[list[Array], list[Array]]:
        """z^1 ... z^L and h^0 ... h^L."""
        z: list[Array] = []
        h = [x]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            z.append(dense_layer(h[-1], weight, bias, np.asarray))
            h.append(relu(z[-1]))
        return z, h

    def errors(self, x: Array, slope: Array, *, printed: bool) -> list[Array]:
        """δ^1 ... δ^L by eq (9), from slope = ∂L/∂h^L, which is δ^L as printed; repaired, δ^L = ∂L/∂z^L."""
        z, _ = self.forward(x)
        delta = [slope if printed else slope * relu_slope(z[-1])]
        for layer in range(len(self.weights) - 1, 0, -1):
            delta.append(backpropagated_error(self.weights[layer], delta[-1], relu_slope(z[layer - 1])))
        return delta[::-1]

    def gradients(self, x: Array, slope: Array, *, printed: bool) -> list[tuple[Array, Array]]:
        """(∂L/∂W^l, ∂L/∂b^l) by eqs (9) and (10)."""
        h = self.forward(x)[1]
        return [parameter_gradients(d, h[layer]) for layer, d in enumerate(self.errors(x, slope, printed=printed))]


def backward_figure(network: Network, x: Array, target: Array) -> Figure:
    """Forward arrows solid with activations as colours, backward arrows dashed with the norms of the live gradients."""
    h = network.forward(x)[1]
    slope = h[-1] - target
    deltas = network.errors(x, slope, printed=False)
    gradients = network.gradients(x, slope, printed=False)
    figure = new_figure(10, 4.4)
    axes = figure.subplots()
    axes.set_axis_off()
    places = np.linspace(0.06, 0.84, len(h))
    limit = max(float(np.abs(item).max()) for item in h)
    for layer, weight in enumerate(network.weights):
        _connections(axes, places[layer], places[layer + 1], weight)
    for layer, values in enumerate(h):
        _units(axes, places[layer], values, limit, "x = h⁰" if layer == 0 else f"layer {layer}")
    loss = float(slope @ slope) / 2
    axes.text(
        0.95, 0.63, f"L = {loss:.3g}", ha="center", va="center", fontsize=SMALL + 1, color=INK, bbox=_box(VERMILLION)
    )
    _arrow(axes, (places[-1] + 0.03, 0.63), (0.915, 0.63), BLUE, "-")
    _arrow(axes, (0.95, 0.57), (places[-1] + 0.01, 0.18), VERMILLION, "--")
    for layer in range(len(deltas), 0, -1):
        delta = deltas[layer - 1]
        w, b = gradients[layer - 1]
        note = (
            f"‖δ‖ = {np.linalg.norm(delta):.3g}\n‖∂L/∂W‖ = {np.linalg.norm(w):.3g}\n‖∂L/∂b‖ = {np.linalg.norm(b):.3g}"
        )
        axes.text(
            places[layer], 0.13, note, ha="center", va="center", fontsize=SMALL - 0.5, color=INK, bbox=_box(QUIET)
        )
        if layer > 1:
            _arrow(axes, (places[layer] - 0.062, 0.13), (places[layer - 1] + 0.062, 0.13), VERMILLION, "--")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def _heights(count: int) -> Array:
    if count > 1:
        return np.linspace(TOP, BOTTOM, count)
    return np.array([(TOP + BOTTOM) / 2])


def _connections(axes: Axes, left: float, right: float, weight: Array) -> None:
    largest = float(np.abs(weight).max())
    for row, above in enumerate(_heights(weight.shape[0])):
        for column, below in enumerate(_heights(weight.shape[1])):
            share = float(weight[row, column]) / largest
            colour = colormaps[SIGNED](0.5 + 0.5 * share)
            axes.plot([left, right], [below, above], color=colour, linewidth=0.4 + 1.6 * abs(share), zorder=1)


def _units(axes: Axes, place: float, values: Array, limit: float, name: str) -> None:
    heights = _heights(len(values))
    colours = [colormaps[SIGNED](0.5 + 0.5 * value / limit) for value in values]
    axes.scatter(np.full(len(values), place), heights, s=260, c=colours, edgecolors=INK, linewidths=0.8, zorder=3)
    for value, height in zip(values, heights, strict=True):
        ink = "white" if abs(value) > 0.6 * limit else INK
        axes.text(place, height, f"{value:.2g}", ha="center", va="center", fontsize=SMALL - 3, color=ink, zorder=4)
    axes.text(place, 1.0, name, ha="center", fontsize=SMALL, color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, line: str) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "linestyle": line, "mutation_scale": 12}
    axes.annotate("", end, start, arrowprops=style)


def _box(edge: str) -> dict[str, object]:
    return {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": edge, "linewidth": 0.9}
