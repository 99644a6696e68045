"""One axis: the smallest softmax lookup T(x) = sum_m softmax(a_m x + b_m) v_m with sup|T - g| <= eps on an interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.construct.lookup.families import Array
from onelayer.construct.lookup.ladder import Effort, KeyLadder
from onelayer.construct.lookup.sampling import Sampler
from onelayer.construct.lookup.search import AxisProblem, smallest, to_interval
from onelayer.construct.lookup.solve import axis_nodes, solve_axis

__all__ = ["AxisBasis", "AxisFit", "Effort", "axis_nodes", "choose_basis", "fit_axis", "solve_axis"]


@dataclass(frozen=True)
class AxisBasis:
    """Keys of M tokens on one axis, in the user's coordinate: logit m at x is ``slopes[m] * x + biases[m]``."""

    slopes: Tensor
    biases: Tensor
    family: str

    def basis(self, x: Tensor) -> Tensor:
        """Softmax weights at x, (..., M)."""
        return torch.softmax(x.unsqueeze(-1) * self.slopes.to(x.dtype) + self.biases.to(x.dtype), dim=-1)

    @property
    def size(self) -> int:
        return self.slopes.numel()


@dataclass(frozen=True)
class AxisFit(AxisBasis):
    """A fitted axis: T(x) = basis(x) @ values, with values (M, K).

    ``error`` is the sup of |T - g| seen on hold-out points, an estimate and not a proof; ``rounding`` estimates what
    execution in the dtype of the weights adds; ``meets`` says whether both together stay within eps.
    """

    values: Tensor
    error: float
    rounding: float
    vmax: float
    meets: bool


def fit_axis(
    g: Callable[[Any], Any],
    lower: float,
    upper: float,
    eps: float,
    *,
    dtype: torch.dtype = torch.float64,
    max_tokens: int = 512,
    effort: Effort = "thorough",
    deadline: float = math.inf,
) -> AxisFit:
    """Smallest fit found with error + rounding <= eps, or the best one within ``max_tokens`` with ``meets`` False.

    g maps a float64 tensor (P,) to (P,) or (P, K). The search is deterministic unless ``deadline``, a time of
    time.monotonic(), cuts it short.
    """
    sampler = Sampler(g, float(lower), float(upper), eps / 8)
    found = smallest(AxisProblem(sampler, float(eps), dtype), max_tokens, effort == "thorough", deadline)
    slopes, biases, values = (torch.from_numpy(a).to(dtype) for a in (found.slopes, found.biases, found.values))
    family = found.keys.family
    return AxisFit(slopes, biases, family, values, found.error, found.rounding, found.vmax, found.meets)


def choose_basis(
    samples: Callable[[Array], Array] | Array,
    lower: float,
    upper: float,
    tol: float,
    *,
    dtype: torch.dtype = torch.float64,
    max_tokens: int = 48,
    vmax: float = 1e6,
    effort: Effort = "fast",
) -> AxisBasis:
    """Smallest basis found that fits all columns (slices of f along this axis) to ``tol``, with |v| about vmax at most.

    samples: a function of nodes (P,) giving (P, C), or the matrix (P, C) at axis_nodes(lower, upper, P). The best basis
    of the largest size tried is returned when tol is out of reach. Values are solved later by the caller.
    """
    matrix = samples if isinstance(samples, np.ndarray) else samples(axis_nodes(lower, upper, 6 * max_tokens))
    ladder = KeyLadder(axis_nodes(-1.0, 1.0, len(matrix)), matrix, tol / vmax, tol, effort)
    keys = ladder.rung(ladder.smallest(tol, min(max_tokens, max(len(matrix) // 3, 1))))[0]
    slopes, biases = to_interval(keys, lower, upper)
    return AxisBasis(torch.from_numpy(slopes).to(dtype), torch.from_numpy(biases).to(dtype), keys.family)
