"""Interpolants on a full grid as formulas: tensor products of B-splines, written with relu and powers.

On one axis with nodes t_0 < ... < t_{n-1}, splines of degree k have the basis

    B_i(x) = sum_j w_ij relu(x - s_j)^k,   w_ij = (-1)^(k+1) (s_{i+k+1} - s_i) / prod_{m != j} (s_j - s_m),

with j and m from i to i + k + 1: a divided difference of truncated powers over knots s. Degree one gives the hat
functions of the nodes, so the tensor product is the multilinear interpolant; degree three, with the second and the
last but one node left out of the knots ("not a knot"), the cubic spline that has no condition at its ends. Knots
beyond the axis are spaced evenly: they change the basis and not the splines on the axis. Beyond its support a B_i is
what the rounding of its weights leaves, below 1e-10 for a hundred nodes; the formula that is written is the function
that is proved, and its distance to the rows of the table is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from onelayer.language.operations import POWER
from onelayer.language.tree import Tape

Array = NDArray[np.float64]


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
        skipped = (k - 1) // 2  # nodes beside each end that are no knots: one for cubics, none for lines
        inner = nodes[1 + skipped : len(nodes) - 1 - skipped][: len(nodes) - k - 1]
        first, last = nodes[1] - nodes[0], nodes[-1] - nodes[-2]
        before = nodes[0] - first * np.arange(k, -1, -1)
        after = nodes[-1] + last * np.arange(k + 1)
        return cls(nodes, np.concatenate([before, inner, after]), k)

    def weights(self) -> Array:
        """w_ij as (n, k + 2): the weight of knot i + j in the basis function i."""
        k, rows = self.degree, []
        for i in range(len(self.nodes)):
            support = self.knots[i : i + k + 2]
            gaps = support[:, None] - support[None, :]
            np.fill_diagonal(gaps, 1.0)
            rows.append((-1.0) ** (k + 1) * (support[-1] - support[0]) / gaps.prod(axis=1))
        return np.array(rows)

    def collocation(self) -> Array:
        """B_i(t_j) as (n nodes, n functions)."""
        powers = np.maximum(self.nodes[:, None] - self.knots[None, :], 0.0) ** self.degree
        weights = self.weights()
        columns = [powers[:, i : i + self.degree + 2] @ weights[i] for i in range(len(self.nodes))]
        return np.stack(columns, axis=1)

    def written(self, tape: Tape, variable: int) -> list[int]:
        """The node of every basis function on ``tape``; no relu where its argument has one sign on the axis."""
        powers: list[int | None] = []
        for knot in self.knots.tolist():
            if knot >= self.nodes[-1]:
                powers.append(None)
                continue
            shifted = tape.add("sub", variable, tape.number(knot)) if knot else variable
            base = shifted if knot <= self.nodes[0] else tape.add("relu", shifted)
            powers.append(base if self.degree == 1 else tape.add(POWER, base, value=self.degree))
        return [
            _combination(tape, weights.tolist(), powers[i : i + self.degree + 2])
            for i, weights in enumerate(self.weights())
        ]


def tensor_product(axes: Sequence[Axis], values: Array) -> tuple[Tape, int]:
    """The interpolant of ``values`` on the grid of the axes' nodes as a tape and its output."""
    coefficients: Array = values
    for at, axis in enumerate(axes):
        moved = np.moveaxis(coefficients, at, 0)
        solved = np.asarray(np.linalg.solve(axis.collocation(), moved.reshape(len(axis.nodes), -1)), dtype=np.float64)
        coefficients = np.moveaxis(solved.reshape(moved.shape), 0, at)
    tape = Tape()
    bases = [axis.written(tape, tape.variable(at)) for at, axis in enumerate(axes)]
    level: list[int | float] = coefficients.ravel().tolist()
    for basis in reversed(bases):
        groups = [level[start : start + len(basis)] for start in range(0, len(level), len(basis))]
        level = [_combination(tape, group, basis) for group in groups]
    return tape, int(level[0])


def _combination(tape: Tape, factors: Sequence[int | float], nodes: Sequence[int | None]) -> int:
    """sum_i factors[i] nodes[i] on the tape; a float factor is a constant, an int one the position of a node."""
    terms = [
        tape.add("mul", tape.number(factor) if isinstance(factor, float) else factor, node)
        for factor, node in zip(factors, nodes, strict=True)
        if node is not None and factor != 0.0
    ]
    return reduce(lambda a, b: tape.add("add", a, b), terms) if terms else tape.number(0.0)
