"""T - N / D as (T D - N) / D, for functions given as quotients.

On a box over which D varies by a factor the Taylor model of N / D is poor, and that of T D - N is not. What is divided
in the end is small, so that it matters little how well.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from onelayer.language.quotient import Quotient
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.elementary import smallest_size
from onelayer.taylor.hull import hulled_outputs, surely_defined
from onelayer.taylor.registry import call
from onelayer.taylor.rounding import TINY

_DOWN = 1 - 2.0**-40  # covers the rounding of the product of a few lower bounds


def numerator_and_denominator(
    f: Quotient, x: TaylorModel, low: Tensor, high: Tensor
) -> tuple[TaylorModel, TaylorModel, Tensor]:
    """(N, D, gap), each (B, outputs) on boxes (B, dim), with f = N / D and |D| >= gap.

    Lemma: with D = prod_i D_i^n_i this holds wherever every operation of f as written is defined; gap is 0 where that
    is not certain.
    """
    values = hulled_outputs(f.formula, x, low, high)
    one = x[:, 0] * 0.0 + 1.0
    count = len(f.denominators)
    products, gaps = [], []
    for factors in f.denominators:
        product = one
        gap = torch.ones_like(low[:, 0])
        for at, exponent in factors:
            product = product * values[at] ** exponent
            least = _normal(smallest_size(*values[at].range()) ** exponent)
            gap = _normal(gap * least * _DOWN)
        products.append(product)
        gaps.append(gap)
    numerator = cast(TaylorModel, call("stack", values[:count], -1))
    denominator = cast(TaylorModel, call("stack", products, -1))
    # f as it was written: what was cancelled may be undefined where the quotient is not.
    defined = surely_defined(f.source, low, high)
    gap = torch.where(defined[:, None], torch.stack(gaps, dim=-1), 0.0)
    return numerator, denominator, gap


def _normal(size: Tensor) -> Tensor:
    """A lower bound as it is where its rounding is relative, 0 where it may have lost digits or overflowed."""
    return torch.where((size > TINY) & (size < 1 / TINY), size, 0.0)
