"""Rows 1 to 3 and 16: regions, hyperplanes, margins, one head per region, infinite scaling."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import linprog
from torch import Tensor

from onelayer.box import Box
from onelayer.layer.lookup import lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.paper.finding import (
    FAILS,
    REPAIRED,
    Check,
    Finding,
    Picture,
    ResultTable,
    Setting,
    at_least,
    at_most,
    largest,
    number,
    smallest,
)
from onelayer.paper.layers import Array, lookup_head, step_head
from onelayer.pictures.style import SERIES, legend, new_figure, tidy
from onelayer.proof.certify import certify

SHRINK = 0.01  # share of a region that is left out at its borders


def separation(setting: Setting) -> Finding:
    """Row 1. A linear program per cell of a grid: is there a hyperplane with the cell on one side, all others beyond?

    Two sets of polytopes are separated exactly when their corners are. Cells are shrunk by 1 %, so that touching is no
    excuse. The repair scores all cells at once: the largest of the affine scores 2 c_m . x - |c_m|^2 names the cell.
    """
    rows = []
    checks = []
    shares = []
    for cells, dim in ((10, 1), (5, 2), (3, 3)):
        count = separable_cells(cells, dim)
        share = _named_cells(cells, dim, setting.seed)
        shares.append(share)
        rows.append((dim, cells**dim, count, share))
        # On a line the first and the last cell are cut off by a point; no cell has a free side otherwise.
        expected = 2 if dim == 1 else 0
        checks.append(Check(f"separable cells of {cells**dim}, dimension {dim}", count, "=", expected))
    checks.append(Check("share of points named by the largest affine score", smallest(shares), "=", 1.0))
    said = (
        "Only the two end intervals of a line can be cut off by a hyperplane; every other cell lies in the convex hull "
        "of the rest, and in the plane and in space none can be cut off. Comparing all regions in one softmax works: "
        "the largest of M affine scores names the right cell."
    )
    header = (
        "dimension",
        "cells",
        "separable by a hyperplane",
        "share of points named by the largest of M affine scores",
    )
    return Finding(FAILS, said, checks, [ResultTable(header, tuple(rows))])


def _cell_corners(cells: int, dim: int) -> Array:
    """Corners (cells^dim, 2^dim, dim) of the shrunk cells of the unit cube."""
    index = np.array(list(itertools.product(range(cells), repeat=dim)), dtype=np.float64)
    offset = np.array(list(itertools.product((SHRINK / 2, 1 - SHRINK / 2), repeat=dim)))
    return np.asarray((index[:, None] + offset[None]) / cells)


def separable_cells(cells: int, dim: int) -> int:
    """How many cells of the grid a hyperplane w . x + b = 0 separates from all the others, by linear programs."""
    corners = _cell_corners(cells, dim)
    # A last coordinate of 1 takes b into w: the program has one vector of unknowns.
    homogeneous = np.concatenate([corners, np.ones((*corners.shape[:2], 1))], axis=2)
    free = [(None, None)] * (dim + 1)
    count = 0
    for own in range(len(corners)):
        # w . x + b >= 1 on the cell and <= -1 on all others: any strict separation can be scaled to that.
        side = np.where(np.arange(len(corners)) == own, -1.0, 1.0)
        rows = homogeneous * side[:, None, None]
        flat = rows.reshape(-1, dim + 1)
        answer = linprog(np.zeros(dim + 1), A_ub=flat, b_ub=-np.ones(len(flat)), bounds=free)
        count += answer.status == 0  # feasible
    return count


def _named_cells(cells: int, dim: int, seed: int) -> float:
    """Share of random points of the shrunk cells whose strongest memory token is that of their cell."""
    centres = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    values = torch.zeros((*[cells] * dim, 1), dtype=torch.float64)
    head = lookup_head([centres] * dim, 1.0, values)
    model = lookup_model(dim, (), [head])
    corners = torch.from_numpy(_cell_corners(cells, dim))
    low = corners[:, 0]
    high = corners[:, -1]
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand((40, *low.shape), generator=generator, dtype=torch.float64)  # (points in a cell, cells, dim)
    inside = (low + unit * (high - low)).reshape(-1, dim)
    strongest = model.attention_weights(inside)[0][:, 0].argmax(-1)
    right = strongest.reshape(40, -1) == torch.arange(len(low))
    return float(right.double().mean())


def margin(setting: Setting) -> Finding:
    """Row 2. Two regions that share the point 0: its weight is one half at every scale, so there is no margin."""
    betas = (10.0, 1e2, 1e4, 1e6)
    edge = torch.zeros(1, 1, dtype=torch.float64)
    rows = []
    x = torch.linspace(-1, 1, 801, dtype=torch.float64)
    curves = []
    centres = torch.tensor([-0.5, 0.5], dtype=torch.float64)
    for beta in betas:
        head = lookup_head([centres], beta, torch.eye(2, dtype=torch.float64))
        model = lookup_model(1, (2,), [head])
        weight = float(_right_weight(model, edge)[0])
        # The odds of the right region are e^{2 beta x}: 99 to 1 from here on.
        blurred = math.log(99) / (2 * beta)
        end = torch.full((1, 1), blurred, dtype=torch.float64)
        near = float(_right_weight(model, end)[0])
        rows.append((beta, weight, 2 * blurred, near))
        curves.append(_right_weight(model, x[:, None]).numpy())
    worst = largest(abs(row[1] - 0.5) for row in rows)
    edges = largest(abs(row[3] - 0.99) for row in rows)
    checks = [
        Check("largest |weight - 1/2| at the shared point over all scales", worst, "=", 0.0),
        Check("weight at the end x = ln(99)/(2 β) of the undecided zone, beside 0.99", edges, "<=", 1e-9),
    ]
    said = (
        "Closed regions that cover a connected set share points. At such a point two scores tie, and the weight is "
        "exactly one half whatever the scale; sharpening only narrows the zone where neither region has 99 % of the "
        "weight. Separation by a margin is impossible; the error there must be paid for by continuity of f."
    )
    header = ("scale β", "weight at the shared point", "width of the undecided zone", "weight at its end")
    figure = _margin_figure(x.numpy(), betas, curves)
    caption = "Weight of the right region: every curve passes through ½ at the shared point."
    picture = Picture("weights", caption, figure)
    return Finding(FAILS, said, checks, [ResultTable(header, tuple(rows))], [picture])


def _right_weight(model: OneLayerTransformer, x: Tensor) -> Tensor:
    """What the query at each of x (B, 1) gives to the second of two tokens, (B,)."""
    weights = model.attention_weights(x)[0]  # (B, 1, 2)
    return weights[:, 0, 1]


def _margin_figure(x: Array, betas: tuple[float, ...], curves: list[Array]) -> Figure:
    figure = new_figure(8, 3.4)
    axes = figure.subplots()
    for beta, curve, colour in zip(betas, curves, SERIES, strict=False):
        axes.plot(x, curve, color=colour, linewidth=1.6, label=f"β = {beta:g}")
    axes.plot([0], [0.5], "o", color="black", markersize=6)
    tidy(axes, x="x", y="weight of region [0, 1]", grid=True)
    legend(axes)
    return figure


def one_head_per_region(setting: Setting) -> Finding:
    """Row 3. f = 1, two regions, heads at the thresholds -delta and delta: the gap between them keeps error 1.

    T = sigmoid(-beta (x + delta)) + sigmoid(beta (x - delta)), each head with a sink of value 0. The supremum is
    enclosed by the certifier, the integral of |T - f| taken on a fine grid.
    """
    rows = []
    bounds = []
    delta = 0.05
    box = Box([-1], [1])
    x = torch.linspace(-1, 1, 20_001, dtype=torch.float64)[:, None]
    curves = []
    for beta in (20.0, 100.0, 400.0):
        model = region_heads(delta, beta)
        certificate = certify(model, "1 + 0*x", box)
        values = model(x)
        integral = float((values - 1).abs().mean() * 2)  # the interval has length 2
        bounds.append(certificate.lower)
        rows.append((beta, at_least(certificate.lower), at_most(certificate.upper), integral))
        curves.append((beta, values.numpy()))
    narrow = (region_heads(delta / 10, 4000.0)(x) - 1).abs()
    shared = certify(_region_softmax(400.0), "1 + 0*x", box)
    sup_blurred, *_, sup_sharp = bounds
    integral_sharp = rows[-1][-1]
    narrow_integral = abs(narrow.mean() * 2 - 0.01)
    checks = [
        Check("proved lower bound of the sup error at the sharpest scale", sup_sharp, ">=", 0.99),
        Check("integral of the error there, beside 2 delta = 0.1", abs(integral_sharp - 2 * delta), "<=", 0.005),
        Check("sup error grows with the scale", sup_sharp - sup_blurred, ">", 0.0),
        Check("a tenth of that delta: integral of the error, beside 0.01", narrow_integral, "<=", 0.0005),
        Check("its largest error seen", float(narrow.max()), ">=", 0.99),
        Check("proved sup error of one softmax over both regions", shared.upper, "<=", 1e-11),
    ]
    said = (
        "Each head recognises its region with a margin δ and stays silent elsewhere; in the gap both are silent. The "
        "sharper the heads, the closer the sup error gets to 1, while the integral of the error stays at 2δ. With "
        "smaller δ and sharper heads the printed construction converges in the mean, not uniformly. One softmax over "
        "both regions is a partition of unity and has no gap."
    )
    header = ("scale β", "sup error, proved at least", "sup error, proved at most", "integral of the error")
    picture = Picture("gap", "f = 1 and the sum of two region heads: the gap never closes.", _gap_figure(x, curves))
    return Finding(FAILS, said, checks, [ResultTable(header, tuple(rows))], [picture])


def region_heads(delta: float, beta: float) -> OneLayerTransformer:
    """One head for x <= -delta, one for x >= delta, summed."""
    return lookup_model(1, (), [step_head(-delta, -beta), step_head(delta, beta)])


def _region_softmax(beta: float) -> OneLayerTransformer:
    """One softmax over the two regions, both of value 1."""
    centres = torch.tensor([-0.5, 0.5], dtype=torch.float64)
    head = lookup_head([centres], beta, torch.ones(2, 1, dtype=torch.float64))
    return lookup_model(1, (), [head])


def _gap_figure(x: Tensor, curves: list[tuple[float, Array]]) -> Figure:
    figure = new_figure(8, 3.4)
    axes = figure.subplots()
    axes.axhline(1, color="black", linewidth=1.2, label="f = 1")
    for (beta, curve), colour in zip(curves, SERIES, strict=False):
        axes.plot(x[:, 0], curve, color=colour, linewidth=1.5, label=f"T, β = {beta:g}")
    tidy(axes, x="x", grid=True)
    legend(axes, loc="lower right")
    return figure


def finite_scale(setting: Setting) -> Finding:
    """Row 16. The theorem with a finite beta: |T - f| <= omega_f(r) + osc(f) M exp(-beta (r^2 - h^2)), r > h.

    f = sin x on [0, 2 pi]: omega_f(r) <= r, osc = 2. With r = eps/2, h = r/2 and beta = 4/(3 r^2) ln(2 M osc/eps) the
    right-hand side is eps; the certifier then proves the error of exactly that head.
    """
    rows = []
    uppers = []
    box = Box([0.0], [2 * math.pi])
    for eps in setting.pick((0.4, 0.2), (0.4, 0.2, 0.1, 0.05)):
        model, tokens, beta = sine_lookup(eps)
        certificate = certify(model, "sin(x)", box, eps)
        uppers.append((eps, certificate.upper))
        rows.append((eps, tokens, beta, at_least(certificate.lower), at_most(certificate.upper)))
    checks = []
    for eps, upper in uppers:
        checks.append(Check(f"proved sup error with finite β, asked {number(eps)}", upper, "<=", eps))
    said = (
        "No parameter is infinite, so the limit has to be replaced by a number. The bound of the repaired proof gives "
        "it: a finite β and a finite number of memory tokens for every ε, and the certifier confirms it for the "
        "executed layer. The bound is pessimistic: the largest errors seen are a quarter of ε."
    )
    header = ("ε asked", "memory tokens", "β", "sup error, at least", "sup error, proved at most")
    return Finding(REPAIRED, said, checks, [ResultTable(header, tuple(rows))])


def sine_lookup(eps: float) -> tuple[OneLayerTransformer, int, float]:
    """The head of the repaired proof for sin on [0, 2 pi], its number of tokens and its beta."""
    r = eps / 2
    # Centres of cells of width at most r: every x is within r/2 of one.
    tokens = math.ceil(2 * math.pi / r)
    width = 2 * math.pi / tokens
    centres = (torch.arange(tokens, dtype=torch.float64) + 0.5) * width
    beta = 4 / (3 * r**2) * math.log(2 * tokens * 2 / eps)
    head = lookup_head([centres], beta, torch.sin(centres)[:, None])
    return lookup_model(1, (), [head]), tokens, beta
