"""Rows 17 and 18: memorising a finite table, and sorting, by one layer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure

from onelayer.box import Box
from onelayer.build.memorize import memorize
from onelayer.build.sort import sort
from onelayer.build.tables.capacity import attention_rank
from onelayer.conductor import approximate
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.paper.finding import (
    HOLDS,
    REPAIRED,
    Check,
    Finding,
    Picture,
    ResultTable,
    Setting,
    at_least,
    at_most,
    number,
)
from onelayer.pictures.style import BLUE, SERIES, VERMILLION, legend, new_figure, tidy
from onelayer.result import Approximation


def memorisation(setting: Setting) -> Finding:
    """Row 17. Density gives |T - f| < eps on a data set, never equality; an exact fit has its own construction.

    With a key at each of N distinct points the matrix of softmax weights tends to the identity, so the values can be
    solved; or a projection keeps the points apart and N - 1 ReLU units interpolate.
    """
    generator = np.random.default_rng(setting.seed)
    rows = setting.pick(300, 1000)
    found = []
    x = generator.random((rows, 3))
    y = generator.normal(size=rows)
    recalled = []
    # Slopes between close rows magnify the rounding of the ReLU recipe, so its bound is wider.
    for recipe, bound in (("softmax", 1e-9), ("relu", 1e-5)):
        report = memorize(x, y, recipe=recipe, seed=setting.seed).recall_report
        assert report is not None
        found.append((recipe, rows, report.stored_numbers, at_most(report.error), report.measured))
        recalled.append(Check(f"proved error at all {rows:,} rows, {recipe}", report.error, "<=", bound))
    close = approximate("sin(3*x)", Box([-1.0], [1.0]), 1e-3)
    at = torch.linspace(-1, 1, 50, dtype=torch.float64)
    misses = close.model(at[:, None]) - torch.sin(3 * at)
    met = float((misses == 0).sum())
    heads, length = 5, 4
    rank = _shared_context_rank(heads, length, samples=40, seed=setting.seed)
    # The weights of a head sum to one, so of its n columns n - 1 are free, and all heads share the constant.
    most = heads * (length - 1) + 1
    held = f"labels that {heads} random heads over {length} shared tokens can hold, by rank; H(n−1)+1 = {most}"
    checks = [
        Check("points of 50 that an approximation within 1e-3 meets exactly", met, "<", 50),
        Check(held, rank, "=", most),
        *recalled,
    ]
    said = (
        "An approximation theorem puts T within ε of the data for every ε; it does not give T(xᵢ) = yᵢ. A direct "
        "argument does: solve for the values of one memory token per row, or use one ReLU unit per row. Equality is "
        "then met up to rounding, proved row by row; rows that lie close together on the line of the ReLU recipe make "
        "steep slopes, which magnify it."
    )
    header = ("recipe", "rows", "numbers stored", "proved error at the rows", "measured error")
    return Finding(REPAIRED, said, checks, [ResultTable(header, tuple(found))])


def _shared_context_rank(heads: int, length: int, samples: int, seed: int) -> int:
    """Rank of the weights of a random query over ``length`` shared context tokens, kept in the memory of every head."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    memory = []
    for _ in range(heads):
        keys = normal(length, 3)
        memory.append(PlainMemory(keys, normal(length, 1)))
    weights = {"W_Q": normal(3, 3 * heads)}
    model = OneLayerTransformer.packed((3,), (1,), memory, weights=weights, seed=seed)
    return attention_rank(model, normal(samples, 3))


def sorting(setting: Setting) -> Finding:
    """Row 18. One layer sorts: ramps, one uniform head and counting ReLU units for any length; sharp heads for few.

    One sharp head alone is not enough: to give the median of {0, 1, 2} and of {1, 2, 3} its score would have to prefer
    1 to 2 and 2 to 1.
    """
    asked = [("thresholds", 8, 1e-2), ("subsets", 4, 1e-3)]
    if not setting.quick:
        asked += [("thresholds", 32, 1e-2), ("thresholds", 8, 1e-3), ("subsets", 7, 1e-3)]
    built = []
    rows = []
    checks = []
    for kind, n, eps in asked:
        result = sort(n, 0.0, 1.0, eps, kind=kind)
        built.append(result)
        size = result.size()
        proof = result.certificate
        rows.append((kind, n, eps, size["heads"], size["hidden_units"], at_least(proof.lower), at_most(proof.upper)))
        what = f"proved error of sorting {n} numbers by {kind}, asked {number(eps)}"
        checks.append(Check(what, proof.upper, "<=", eps))
    # A sharp head only ranks the numbers 0 to 3, so trying the 24 orders of their scores tries every head.
    orderings = sum(_medians(scores) for scores in itertools.permutations(range(4)))
    preferring = "of 24 orders of preference, those by which one sharp head finds both medians"
    checks.append(Check(preferring, orderings, "=", 0))
    said = (
        "One layer can sort, as the paper expects, and here it is built and proved rather than trained. Attention "
        "alone “finding the order” is not the way for many numbers: the head averages, and the ReLU units count how "
        "many numbers lie below each threshold."
    )
    header = ("construction", "numbers", "ε asked", "heads", "hidden units", "error at least", "error proved at most")
    caption = (
        "The first layer at work on a random sequence: what goes in, what comes out, and the sorted truth. "
        "Live: the layer of sharp heads for four numbers."
    )
    thresholds, subsets, *_ = built
    picture = Picture("sorted", caption, _figure(thresholds, setting.seed), subsets)
    return Finding(HOLDS, said, checks, [ResultTable(header, tuple(rows))], [picture])


def _medians(scores: Sequence[int]) -> bool:
    """Whether always attending to the number of highest score gives the medians of {0, 1, 2} and {1, 2, 3}."""
    taken = [max(numbers, key=lambda t: scores[t]) for numbers in ((0, 1, 2), (1, 2, 3))]
    return taken == [1, 2]


def _figure(result: Approximation, seed: int) -> Figure:
    n = result.box.dim
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(1, n, generator=generator, dtype=torch.float64)
    truth = x[0].sort().values
    output = result.model(x)[0]
    figure = new_figure(8, 3.2)
    axes = figure.subplots()
    places = np.arange(1, n + 1)
    axes.plot(places, x[0], "x", color=SERIES[3], markersize=8, label="input")
    # An empty ring, so that the dot of the layer is seen inside it.
    axes.plot(places, truth, "o", color=BLUE, markersize=10, fillstyle="none", label="sorted")
    axes.plot(places, output, ".", color=VERMILLION, markersize=8, label="output of the layer")
    tidy(axes, x="position", grid=True)
    legend(axes)
    return figure
