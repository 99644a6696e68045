"""A ReLU network with its forward and backward pass by eqs (1), (9) and (10), and the drawing of both: Figure 2."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
        weights = []
        for before, after in pairs:
            # ReLU halves the mean square of what it is given: weights of variance 2 / before make up for it.
            weights.append(generator.normal(size=(after, before)) / np.sqrt(before / 2))
        # Biases that are small beside the weights: most units are on for some inputs and off for others.
        biases = [0.3 * generator.normal(size=after) for _, after in pairs]
        return cls(weights, biases)

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
            slope_below = relu_slope(z[layer - 1])
            delta.append(backpropagated_error(self.weights[layer], delta[-1], slope_below))
        return delta[::-1]

    def gradients(self, x: Array, slope: Array, *, printed: bool) -> list[tuple[Array, Array]]:
        """(∂L/∂W^l, ∂L/∂b^l) by eqs (9) and (10)."""
        _, h = self.forward(x)
        errors = self.errors(x, slope, printed=printed)
        return [parameter_gradients(delta, h[layer]) for layer, delta in enumerate(errors)]


def backward_figure(network: Network, x: Array, target: Array) -> Figure:
    """Forward arrows solid with activations as colours, backward arrows dashed with the norms of the live gradients."""
    _, h = network.forward(x)
    # The loss is |h - target|² / 2, so its slope in h is the difference.
    slope = h[-1] - target
    loss = float(slope @ slope) / 2
    figure = new_figure(10, 4.4)
    axes = figure.subplots()
    axes.set_axis_off()
    places = np.linspace(0.06, 0.84, len(h))
    # One scale of colours for all layers: a pale layer is one whose activations are small.
    limit = max(float(np.abs(values).max()) for values in h)
    for layer, weight in enumerate(network.weights):
        _connections(axes, places[layer], places[layer + 1], weight)
    for layer, values in enumerate(h):
        name = "x = h⁰" if layer == 0 else f"layer {layer}"
        _units(axes, places[layer], values, limit, name)
    _boxed(axes, (0.95, 0.63), f"L = {loss:.3g}", VERMILLION, SMALL + 1)
    _arrow(axes, (places[-1] + 0.03, 0.63), (0.915, 0.63), BLUE, "-")
    _arrow(axes, (0.95, 0.57), (places[-1] + 0.01, 0.18), VERMILLION, "--")
    _backward_pass(axes, network, x, slope, places)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def _backward_pass(axes: Axes, network: Network, x: Array, slope: Array, places: Array) -> None:
    """Below every layer the norms of its error and gradients, and arrows from the last layer to the first."""
    deltas = network.errors(x, slope, printed=False)
    gradients = network.gradients(x, slope, printed=False)
    for layer in range(len(deltas), 0, -1):
        w, b = gradients[layer - 1]
        error = f"‖δ‖ = {np.linalg.norm(deltas[layer - 1]):.3g}"
        of_weights = f"‖∂L/∂W‖ = {np.linalg.norm(w):.3g}"
        of_biases = f"‖∂L/∂b‖ = {np.linalg.norm(b):.3g}"
        _boxed(axes, (places[layer], 0.13), f"{error}\n{of_weights}\n{of_biases}", QUIET, SMALL - 0.5)
        if layer > 1:
            # 0.062 is half a box: arrows start and end at its edges.
            start = (places[layer] - 0.062, 0.13)
            end = (places[layer - 1] + 0.062, 0.13)
            _arrow(axes, start, end, VERMILLION, "--")


def _heights(count: int) -> Array:
    if count > 1:
        return np.linspace(TOP, BOTTOM, count)
    return np.array([(TOP + BOTTOM) / 2])


def _connections(axes: Axes, left: float, right: float, weight: Array) -> None:
    largest = float(np.abs(weight).max())
    for row, above in enumerate(_heights(weight.shape[0])):
        for column, below in enumerate(_heights(weight.shape[1])):
            share = float(weight[row, column]) / largest
            # Zero is the middle of a map of signed numbers; a small weight keeps a hair line.
            colour = colormaps[SIGNED](0.5 + 0.5 * share)
            thickness = 0.4 + 1.6 * abs(share)
            axes.plot([left, right], [below, above], color=colour, linewidth=thickness, zorder=1)


def _units(axes: Axes, place: float, values: Array, limit: float, name: str) -> None:
    heights = _heights(len(values))
    colours = [colormaps[SIGNED](0.5 + 0.5 * value / limit) for value in values]
    column = np.full(len(values), place)
    axes.scatter(column, heights, s=260, c=colours, edgecolors=INK, linewidths=0.8, zorder=3)
    written: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL - 3, "zorder": 4}
    for value, height in zip(values, heights, strict=True):
        # Both ends of the map are dark.
        ink = "white" if abs(value) > 0.6 * limit else INK
        axes.text(place, height, f"{value:.2g}", color=ink, **written)
    axes.text(place, 1.0, name, ha="center", fontsize=SMALL, color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, line: str) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "linestyle": line, "mutation_scale": 12}
    axes.annotate("", end, start, arrowprops=style)


def _boxed(axes: Axes, place: tuple[float, float], text: str, edge: str, size: float) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": edge, "linewidth": 0.9}
    axes.text(*place, text, ha="center", va="center", fontsize=size, color=INK, bbox=box)
