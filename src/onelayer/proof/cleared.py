"""T - N / D enclosed through h = T D - N: cleared of its division f stays polynomial where 1 / D is not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.language.quotient import Quotient
from onelayer.proof.bounded import Bounded, constant, shares, smaller, steepness
from onelayer.taylor import variables
from onelayer.taylor.cleared import numerator_and_denominator
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.rounding import inflate

# Covers the rounding of the one division by the gap.
UP = 1 + 2.0**-40


def cleared(f: Quotient, t: Any, low: Tensor, high: Tensor, order: int) -> Bounded:
    """Enclosure of T - N / D from h = T D - N: by |h| / min|D|, or by h / D where that is less."""
    x = variables(low, high, order)
    t_model = t if isinstance(t, TaylorModel) else constant(x[:, 0] * 0.0, t)
    # The products below belong to the proof, not to a forward pass: they round nothing.
    model = t_model.untag().reshape(len(low), -1)
    numerator, denominator, gap = numerator_and_denominator(f, x, low, high)
    h = model * denominator - numerator
    # 1 / min|D| over the outputs; where a denominator may vanish, or its gap is NaN, there is no bound.
    scale = torch.where(gap > 0, UP / gap, torch.inf).amax(1)
    column = scale[:, None]
    size = model.magnitude().amax(1)[:, None]
    parts = steepness(numerator) + steepness(denominator) * size
    steep = steepness(t) + parts * column
    outer = _or_infinite(inflate(h.split_bound().amax(1) * scale))
    by_gap = Bounded(outer, shares(h, outer / scale, steep / column) * column, h.rem.amax(1) * scale)
    g = h / denominator
    inner = torch.where(scale < torch.inf, g.split_bound().amax(1), torch.inf)
    inner = _or_infinite(inner)
    by_quotient = Bounded(inner, shares(g, inner, steep), g.rem.amax(1))
    return smaller(by_gap, by_quotient)


def _or_infinite(bound: Tensor) -> Tensor:
    """What is no number bounds nothing."""
    return torch.where(torch.isnan(bound), torch.inf, bound)
