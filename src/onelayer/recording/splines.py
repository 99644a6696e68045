"""Interpolants on a full grid: tensor products of B-splines through the rows.

On one axis with nodes t_0 < ... < t_{n-1}, splines of degree k have n B-splines over n + k + 1 knots. Degree one with
the nodes as knots gives the hat functions of the nodes, so the tensor product is the multilinear interpolant; degree
three, with the second and the last but one node left out of the knots ("not a knot"), the cubic spline that has no
condition at its ends. Knots beyond the axis are spaced evenly: they change the basis and not the splines on the axis.
The coefficients are solved for in float64; the spline with exactly these coefficients is the function that is proved,
and its distance to the rows of the table is measured. Refused is an axis on which that would be another function: with
A its collocation matrix, whose rows sum to 1, an error r of the solution at the rows is one of at most ||A^-1|| r in
the coefficients, and so everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.errors import OnelayerError
from onelayer.language.knots import Spline

Array = NDArray[np.float64]
# How much larger an error at the rows may become: an error of rounding stays a millionth of the largest coefficient.
LARGEST_INVERSE = 2.0**26


@dataclass(frozen=True)
class Axis:
    """The splines of one degree on the nodes of one axis."""

    nodes: Array  # (n,), increasing
    knots: Array  # (n + k + 1,), increasing
    degree: int

    @classmethod
    def on(cls, nodes: Array, degree: int) -> Axis:
        """The interpolating splines on ``nodes``; with fewer than k + 1 of them the degree is n - 1."""
        k = min(degree, len(nodes) - 1)
        # Nodes beside each end that are no knots: one for cubics, none for lines.
        skipped = (k - 1) // 2
        inside = nodes[1 + skipped : len(nodes) - 1 - skipped]
        # As many as make n B-splines: few nodes of an even degree leave one too many.
        inner = inside[: len(nodes) - k - 1]
        # The outer knots lie as far apart as the last two nodes do.
        first = nodes[1] - nodes[0]
        last = nodes[-1] - nodes[-2]
        before = nodes[0] - first * np.arange(k, -1, -1)
        after = nodes[-1] + last * np.arange(k + 1)
        return cls(nodes, np.concatenate([before, inner, after]), k)

    def collocation(self) -> Array:
        """B_i(t_j) as (n nodes, n functions)."""
        # Slow to load, and few functions are tables.
        from scipy.interpolate import BSpline

        design = BSpline.design_matrix(self.nodes, self.knots, self.degree)
        found = np.asarray(design.toarray(), dtype=np.float64)
        inverse = np.abs(np.linalg.inv(found)).sum(1).max() if np.isfinite(found).all() else np.inf
        # Written as "not <=", so that NaN counts as too large.
        if not inverse <= LARGEST_INVERSE:
            ends = f"{self.nodes[0]:g} to {self.nodes[-1]:g}"
            raise OnelayerError(f"the distances of the rows from {ends} are too uneven for a cubic; take linear")
        return found


def interpolant(axes: Sequence[Axis], values: Array) -> Spline:
    """The interpolant of ``values`` on the grid of the axes' nodes."""
    coefficients: Array = values
    for at, axis in enumerate(axes):
        # The coefficients of broken lines are the values themselves.
        if axis.degree > 1:
            moved = np.moveaxis(coefficients, at, 0)
            flat = moved.reshape(len(axis.nodes), -1)
            solved: Array = np.linalg.solve(axis.collocation(), flat).astype(np.float64)
            coefficients = np.moveaxis(solved.reshape(moved.shape), 0, at)
    degrees = [axis.degree for axis in axes]
    knots = [axis.knots.tolist() for axis in axes]
    return Spline(degrees, knots, coefficients)
