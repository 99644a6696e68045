"""One axis: the smallest softmax lookup T(x) = sum_m softmax(a_m x + b_m) v_m with sup|T - g| <= eps on an interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelayer.build.lookup.ladder import Effort
from onelayer.build.lookup.sampling import Sampler
from onelayer.build.lookup.search import AxisProblem, smallest, thriftiest
from onelayer.observer import Observer


@dataclass(frozen=True)
class AxisFit:
    """A fitted axis in the user's coordinate: T(x) = softmax(slopes x + biases) @ values, with values (M, K).

    ``error`` is the sup of |T - g| seen on hold-out points, an estimate and not a proof; ``rounding`` estimates what
    execution in the dtype of the weights adds; ``meets`` says whether both together stay within eps.
    """

    slopes: Tensor
    biases: Tensor
    family: str
    values: Tensor
    error: float
    rounding: float
    vmax: float
    meets: bool

    def basis(self, x: Tensor) -> Tensor:
        """Softmax weights at x, (..., M)."""
        slopes = self.slopes.to(x.dtype)
        biases = self.biases.to(x.dtype)
        logits = x.unsqueeze(-1) * slopes + biases  # (..., M)
        return torch.softmax(logits, dim=-1)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self.slopes.numel()


def fit_axis(
    g: Callable[[Any], Any],
    lower: float,
    upper: float,
    eps: float,
    *,
    dtype: torch.dtype = torch.float64,
    max_tokens: int = 512,
    effort: Effort = "thorough",
    observer: Observer | None = None,
    unit: float = 0.0,
) -> AxisFit:
    """Smallest fit found with error + rounding <= eps, or the best one within ``max_tokens`` with ``meets`` False.

    g maps a float64 tensor (P,) to (P,) or (P, K). The search is deterministic unless the ``observer`` cuts it short;
    with effort "thrifty" it saves numbers, not tokens. A ``unit`` above the roundoff of the dtype makes large values
    dearer.
    """
    # Panels carry g well within eps, so that an error seen is one of the fit.
    sampler = Sampler(g, float(lower), float(upper), eps / 8)
    problem = AxisProblem(sampler, float(eps), dtype, unit)
    watch = observer or Observer()
    found = smallest(problem, max_tokens, effort != "fast", watch)
    if effort == "thrifty":
        found = thriftiest(problem, found, watch)
    slopes = torch.from_numpy(found.slopes).to(dtype)
    biases = torch.from_numpy(found.biases).to(dtype)
    values = torch.from_numpy(found.values).to(dtype)
    family = found.keys.family
    return AxisFit(slopes, biases, family, values, found.error, found.rounding, found.vmax, found.meets)
