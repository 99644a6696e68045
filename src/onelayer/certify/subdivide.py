"""Sharper bounds of a polynomial over [-1, 1]^s by re-expanding it on a uniform subgrid of cells.

On the cell t = m + h u the coefficients are A c with A = kron of binomial(n, j) m^(n-j) h^j. A monomial with even
exponents only fills [0, 1] = 1/2 + 1/2 [-1, 1], so half of each such row is moved to the constant row; then
sum_p |A c|_p bounds |polynomial| on the cell. Every column of |A| sums to at most (|m| + h)^n <= 1, so rounding adds
at most gamma(P + 4) sum|c|.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import comb

import torch
from torch import Tensor

from onelayer.certify import basis
from onelayer.certify.rounding import gamma, inflate


def default_cells(variables: int) -> int:
    """Cells per axis: enough to be tight, few enough to be cheaper than a bisection."""
    return {1: 16, 2: 4, 3: 3, 4: 2}.get(variables, 1)


@lru_cache(maxsize=64)
def cell_matrices(variables: int, degree: int, cells: int) -> tuple[Tensor, ...]:
    """One (P, P) matrix per cell, entries rounded from exact rationals."""
    half = Fraction(1, cells)
    middles = [Fraction(2 * i + 1, cells) - 1 for i in range(cells)]
    axis = {m: _axis_matrix(degree, m, half) for m in middles}
    cells_ = product(middles, repeat=variables)
    return tuple(_cell_matrix(variables, degree, [axis[m] for m in cell]) for cell in cells_)


def _axis_matrix(degree: int, middle: Fraction, half: Fraction) -> list[list[Fraction]]:
    """Entry [j][n]: coefficient of u^j in (m + h u)^n."""
    return [
        [comb(n, j) * middle ** (n - j) * half**j if j <= n else Fraction(0) for n in range(degree + 1)]
        for j in range(degree + 1)
    ]


def _cell_matrix(variables: int, degree: int, axes: list[list[list[Fraction]]]) -> Tensor:
    rows = basis.exponents(variables, degree).tolist()
    matrix = [[Fraction(0)] * len(rows) for _ in rows]
    for p, low in enumerate(rows):
        for q, high in enumerate(rows):
            if all(j <= n for j, n in zip(low, high, strict=True)):
                entry = Fraction(1)
                for j, n, axis in zip(low, high, axes, strict=True):
                    entry *= axis[j][n]
                matrix[p][q] = entry
    for p in range(1, len(rows)):
        if all(j % 2 == 0 for j in rows[p]):
            matrix[p] = [entry / 2 for entry in matrix[p]]
            matrix[0] = [a + b for a, b in zip(matrix[0], matrix[p], strict=True)]
    return torch.tensor([[float(entry) for entry in row] for row in matrix], dtype=torch.float64)


def cell_bounds(coef: Tensor, variables: int, degree: int, cells: int) -> Tensor:
    """Bound of |polynomial| over the box, (*shape): the largest of its bounds on the cells."""
    flat = coef.reshape(len(coef), -1)
    slack = gamma(len(coef) + 4) * flat.abs().sum(0)
    worst = torch.zeros_like(slack)
    for matrix in cell_matrices(variables, degree, cells):
        worst = torch.maximum(worst, (matrix.to(coef.device) @ flat).abs_().sum(0))
    return inflate(worst + slack).reshape(coef.shape[1:])
