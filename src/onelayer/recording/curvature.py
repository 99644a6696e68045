"""Curvature: how fast the gradient of a black box may change, as its user declares it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.recording.lipschitz import ESTIMATE, by_name, scattered

Matrix = tuple[tuple[float, ...], ...]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Curvature:
    """The gradient g of f changes by |g_i(x) - g_i(y)| <= sum_j M_ij |x_j - y_j|.

    For one number M it changes by sum_i |g_i(x) - g_i(y)| <= M max_j |x_j - y_j|. Lemma: on a convex domain then

        |f(x) - f(c) - g(c) . (x - c)| <= 1/2 sum_ij M_ij |x_i - c_i| |x_j - c_j|,   or  <= 1/2 M max_i |x_i - c_i|^2,

    by integrating (g(c + t (x - c)) - g(c)) . (x - c) over t in [0, 1]. Bounds of the second derivatives are such an M.
    """

    constants: Matrix
    per_coordinate: bool = False
    # Gradients that it was guessed from; 0 for what was declared.
    estimated_from: int = 0

    def __post_init__(self) -> None:
        if not all(0 <= constant < math.inf for row in self.constants for constant in row):
            raise OnelayerError(f"curvature must be a finite number >= 0, or several, got {self}")

    def over(self, reach: Tensor) -> Tensor:
        """The most that f leaves its tangent over ``reach`` (..., D) >= 0, as float64 computes it: (...)."""
        if not self.per_coordinate:
            farthest = reach.amax(-1)
            return self.constants[0][0] * farthest.square() / 2
        return (self.changes(reach) * reach).sum(-1) / 2

    def changes(self, reach: Tensor) -> Tensor:
        """The most that each g_i changes over ``reach`` (..., D): (..., D); that bounds their sum for one number."""
        if not self.per_coordinate:
            farthest = reach.amax(-1, keepdim=True)
            return (self.constants[0][0] * farthest).expand(reach.shape)
        matrix = torch.tensor(self.constants, dtype=torch.float64, device=reach.device)
        return reach @ matrix.T

    def __str__(self) -> str:
        return "; ".join(", ".join(map(repr, row)) for row in self.constants)

    @property
    def statement(self) -> str:
        """The assumption as a formula."""
        if not self.per_coordinate:
            bound = f"sum_i |g_i(x) - g_i(y)| <= {self.constants[0][0]!r} max_j |x_j - y_j|"
        else:
            bound = f"|g_i(x) - g_i(y)| <= sum_j M_ij |x_j - y_j| with M = ({self})"
        return f"f has the gradient g that was given with it, and {bound}"

    @property
    def source(self) -> str:
        """Where the assumption comes from."""
        if self.estimated_from:
            return f"estimated from {self.estimated_from:,} gradients, not proved"
        return "as declared"


def as_curvature(given: Any, box: Box, gradient: Callable[[Tensor], Tensor]) -> Curvature:
    """One number, one per coordinate (a list or a dict by name), a D x D matrix, or an estimate.

    One per coordinate bounds the second derivatives: |d2f/dx_i^2| <= m_i and |d2f/dx_i dx_j| <= sqrt(m_i m_j).
    """
    if isinstance(given, str) and given == ESTIMATE:
        return _estimate(gradient, box)
    if isinstance(given, Mapping):
        given = by_name(given, box, "curvature")
    numbers = _numbers(given)
    if numbers.ndim == 0:
        return Curvature(((float(numbers),),))
    # A list of the wrong length would be broadcast into another claim.
    if numbers.shape not in ((box.dim,), (box.dim, box.dim)):
        dim = box.dim
        raise OnelayerError(
            f"curvature has shape {numbers.shape} for {dim} coordinates; "
            f"give a number, {dim} numbers or a {dim} x {dim} matrix"
        )
    if numbers.ndim == 1:
        return Curvature(_mixed(numbers), per_coordinate=True)
    return Curvature(tuple(tuple(row) for row in numbers.tolist()), per_coordinate=True)


def _mixed(diagonal: Numbers) -> Matrix:
    """M_ij >= sqrt(m_i m_j), and m_i itself on the diagonal."""
    if not (diagonal >= 0).all():
        raise OnelayerError(f"curvature must be a finite number >= 0, or several, got {diagonal.tolist()}")
    up = 1 + 2.0**-50  # two roundings of a square root and one of a product
    roots = np.sqrt(diagonal)
    mixed = roots[:, None] * roots * up
    # Exactly what was declared, not the square of its root.
    np.fill_diagonal(mixed, diagonal)
    return tuple(tuple(row) for row in mixed.tolist())


def _numbers(given: Any) -> Numbers:
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OnelayerError(
            f"curvature must be a number, a list, a dict by name, a matrix or 'estimate', got {given!r}"
        ) from error


def _estimate(gradient: Callable[[Tensor], Tensor], box: Box) -> Curvature:
    """A guess at the matrix: twice the steepest change of each slope seen over a 64th of each side."""
    change, count = scattered(lambda x: gradient(x).reshape(len(x), -1, box.dim), box)  # (D, D): along j, of slope i
    rows = tuple(tuple(row) for row in change.T.tolist())
    return Curvature(rows, True, count)
