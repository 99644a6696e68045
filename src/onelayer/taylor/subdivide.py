"""Sharper bounds of a polynomial over [-1, 1]^s by re-expanding it on a uniform subgrid of cells.

On the cell t = m + h u the coefficients are A c with A = kron of binomial(n, j) m^(n-j) h^j. A monomial with even
exponents only fills [0, 1] = 1/2 + 1/2 [-1, 1], so half of each such row is moved to the constant row; then
sum_p |A c|_p bounds |polynomial| on the cell. Every column of |A| sums to at most (|m| + h)^n <= 1, and an entry of A
is rounded 2 s times, its constant row P times more, so rounding adds at most gamma(2 P + 2 s + 4) sum|c|.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from math import comb

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.taylor import basis
from onelayer.taylor.rounding import gamma, inflate


def default_cells(variables: int) -> int:
    """Cells per axis: enough to be tight, few enough to be cheaper than a bisection."""
    return {1: 16, 2: 4, 3: 3, 4: 2}.get(variables, 1)


@cache
def cell_matrices(variables: int, degree: int, cells: int, device: torch.device) -> tuple[Tensor, ...]:
    """One (P, P) matrix per cell; products of s entries that are each rounded from an exact rational."""
    half = Fraction(1, cells)
    middles = [Fraction(2 * i + 1, cells) - 1 for i in range(cells)]
    axes = [_axis_matrix(degree, middle, half) for middle in middles]
    cells_of_grid = product(axes, repeat=variables)
    return tuple(_cell_matrix(variables, degree, list(cell)).to(device) for cell in cells_of_grid)


def _axis_matrix(degree: int, middle: Fraction, half: Fraction) -> NDArray[np.float64]:
    """Entry [j, n]: coefficient of u^j in (m + h u)^n."""
    matrix = np.zeros((degree + 1, degree + 1))
    for n in range(degree + 1):
        for j in range(n + 1):
            exact = comb(n, j) * middle ** (n - j) * half**j
            matrix[j, n] = float(exact)
    return matrix


def _cell_matrix(variables: int, degree: int, axes: list[NDArray[np.float64]]) -> Tensor:
    rows = basis.exponents(variables, degree)  # (P, s)
    matrix = np.ones((len(rows), len(rows)))
    for place, axis in enumerate(axes):
        matrix *= axis[rows[:, None, place], rows[None, :, place]]
    # A monomial with even exponents only is 1/2 + 1/2 [-1, 1]: half of its row moves to the constant.
    even = (rows % 2 == 0).all(1)
    even[0] = False
    matrix[even] /= 2
    matrix[0] += matrix[even].sum(0)
    return torch.from_numpy(matrix)


def cell_bounds(coef: Tensor, variables: int, degree: int, cells: int) -> Tensor:
    """Bound of |polynomial| over the box, (*shape): the largest of its bounds on the cells."""
    # torch.maximum keeps nan: a cell without a bound leaves none to the box.
    flat = coef.reshape(len(coef), -1)
    slack = gamma(2 * len(coef) + 2 * variables + 4) * flat.abs().sum(0)
    worst = torch.zeros_like(slack)
    for matrix in cell_matrices(variables, degree, cells, coef.device):
        here = (matrix @ flat).abs_().sum(0)
        worst = torch.maximum(worst, here)
    return inflate(worst + slack).reshape(coef.shape[1:])
