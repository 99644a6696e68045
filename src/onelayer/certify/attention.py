"""Softmax and what is built on it."""

from __future__ import annotations

from typing import Any

import torch

from onelayer.certify.arithmetic import combine, divide
from onelayer.certify.compose import compose
from onelayer.certify.contraction import sum_
from onelayer.certify.core import TaylorModel, implements, prune
from onelayer.certify.elementary import EXP
from onelayer.certify.rounding import executed, inflate


@implements("softmax")
def softmax(x: TaylorModel, dim: int, dtype: Any = None, _stacklevel: int = 3) -> TaylorModel:
    """softmax(l) = e^{l - q} / sum e^{l - q} for any q: here the polynomial of the strongest key of the box."""
    x = prune(x)
    exact = x.untag()
    best = exact.coef[0].argmax(dim, keepdim=True)
    index = best.unsqueeze(0).expand(len(exact.coef), *best.shape)
    shift = torch.gather(exact.coef, dim + 1 if dim >= 0 else dim, index)
    shifted = combine(exact, exact.with_(shift, torch.zeros_like(best, dtype=torch.float64)), -1)
    powers = compose(EXP, shifted)
    weights = divide(powers, sum_(powers, dim, keepdim=True))
    weights = _into_unit_interval(weights)
    if x.execution is not None:
        lower, upper = shifted.range()
        spread = inflate(upper.amax(dim, keepdim=True) - lower)
        size = weights.magnitude()
        rem = executed(weights.rem, size * spread + 1, 2, x.execution)
        weights.rem = executed(rem, size, x.shape[dim] + 64, x.execution)
    return TaylorModel(weights.coef, weights.rem, x.space, weights.support, weights.degree)


def _into_unit_interval(weights: TaylorModel) -> TaylorModel:
    """Where the enclosure is worse than [0, 1] itself, use [0, 1]."""
    poor = ~(weights.rem < 0.5)
    if not bool(poor.any()):
        return weights
    coef = torch.where(poor, 0.0, weights.coef)
    coef[0] = torch.where(poor, 0.5, coef[0])
    return weights.with_(coef, torch.where(poor, inflate(torch.full_like(weights.rem, 0.5)), weights.rem))
