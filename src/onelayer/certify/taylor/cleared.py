"""T - N / D as (T D - N) / D, for functions given as quotients.

On a box over which D varies by a factor the Taylor model of N / D is poor, and that of T D - N is not. What is divided
in the end is small, so that it matters little how well.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from onelayer.certify.taylor.core import TaylorModel
from onelayer.certify.taylor.elementary import smallest_size
from onelayer.certify.taylor.hull import hulled_outputs, natural_intervals
from onelayer.certify.taylor.registry import call
from onelayer.target.quotient import Quotient

_DOWN = 1 - 2.0**-40  # covers the rounding of the product of a few lower bounds


def numerator_and_denominator(
    f: Quotient, x: TaylorModel, low: Tensor, high: Tensor
) -> tuple[TaylorModel, TaylorModel, Tensor]:
    """(N, D, gap), each (B, outputs) on boxes (B, dim), with f = N / D and |D| >= gap.

    Lemma: with D = prod_i D_i^n_i this holds wherever no divisor of f vanishes; gap is 0 where one may.
    """
    values = hulled_outputs(f.formula, x, low, high)
    one, count = x[:, 0] * 0.0 + 1.0, len(f.denominators)
    products, gaps = [], []
    for factors in f.denominators:
        product, gap = one, torch.ones_like(low[:, 0])
        for at, exponent in factors:
            product = product * values[at] ** exponent
            gap = gap * smallest_size(*values[at].range()) ** exponent * _DOWN
        products.append(product)
        gaps.append(gap)
    numerator, denominator = (cast(TaylorModel, call("stack", side, -1)) for side in (values[:count], products))
    gap = torch.stack(gaps, dim=-1)
    for ends in natural_intervals(f.divisors, low, high):
        away = (smallest_size(*ends) > 0).expand(len(low))
        gap = torch.where(away[:, None], gap, 0.0)
    return numerator, denominator, gap
