"""Forward error of an executed layer in plain numbers: the constants that proofs by lemma and composition share.

Assumed, as everywhere in this folder: rounding to nearest, sums in any order, elementary functions within 4 units in
the last place, results below the normal range may be flushed to zero. Adding an exact zero, and a product with one, is
exact, so a sum counts its nonzero terms only.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from onelayer.float64 import UNIT
from onelayer.formats import format_of
from onelayer.layer.transformer import OneLayerTransformer

Floats = NDArray[np.float64]

# Covers the rounding of the bounds' own arithmetic: 2^23 units, for a few thousand float64 operations on sums >= 0.
UP = 1 + 2.0**-30
# Rounding is stated twice as large as it was found, so that an independent analysis may count a little differently.
SLACK = 2.0


@dataclass(frozen=True)
class Rounding:
    """Unit roundoff and smallest normal number of the executing format."""

    unit: float
    tiny: float

    def gamma(self, terms: int) -> float:
        """Relative error of a sum of that many products: |fl(sum) - sum| <= gamma sum of |products|."""
        product = (terms + 1) * self.unit
        # Higham's gamma_n = n u / (1 - n u); from n u = 1/2 on the format is too narrow for the sum.
        if product < 0.5:
            return product / (1 - product)
        return float("inf")

    def softmax(self, count: int) -> float:
        """Relative error of a weight of an executed softmax over ``count`` exact logits that does not underflow.

        Two exponentials of 4 ulp, that is 8 units, each; the sum; the division; logits above -1 below the largest.
        """
        return self.gamma(count + 24)


def sum_slack(count: int, size: float) -> float:
    """What a float64 sum of ``count`` products, of sizes that add up to ``size``, may differ from the true one by.

    Each product, and each size, may also lose what lies below the normal range.
    """
    return 4 * (count + 2) * (UNIT * size + sys.float_info.min)


def range_of_sum(low: Floats, high: Floats) -> tuple[float, float]:
    """Bounds of a sum of products between these rounded ends, whatever its order."""
    slack = sum_slack(len(low), float((np.abs(low) + np.abs(high)).sum()))
    bottom = float(low.sum()) - slack
    top = float(high.sum()) + slack
    # Signs survive rounding: a sum of numbers >= 0 is >= 0.
    bottom = max(bottom, 0.0) if bool((low >= 0).all()) else bottom
    top = min(top, 0.0) if bool((high <= 0).all()) else top
    return bottom, top


def upper_bound(value: float) -> float:
    """A bound as it may be stated: what is no number bounds nothing."""
    if value != value:
        return float("inf")
    return float(value)


def exp_up(value: float) -> float:
    """exp(value) rounded up, inf beyond the largest float."""
    # exp(709.78) is the largest float64; math.exp raises beyond it.
    if value < 709:
        return math.exp(value) * (1 + 2.0**-50)
    return float("inf")


def widened(low: float, high: float) -> tuple[float, float]:
    """An interval of some width: a sum of constants takes one value, and boxes need two different ends."""
    if high > low:
        return low, high
    return low, low + 1e-9 * (1 + abs(low))


def has_form(fixed: Sequence[tuple[Floats, Floats | float]]) -> bool:
    """Whether every array has the shape and the entries of the one beside it, or equals the number beside it."""

    def same(found: Floats, wanted: Floats | float) -> bool:
        if isinstance(wanted, np.ndarray):
            return np.array_equal(found, wanted)
        return bool((found == wanted).all())

    return all(same(found, wanted) for found, wanted in fixed)


def rounding_of(dtype: torch.dtype) -> Rounding:
    """Relative and absolute error of one executed operation; a result below the normal numbers may be flushed to 0."""
    row = format_of(dtype)
    # Eight times: what is flushed on the way to one result, in a few steps, adds up.
    return Rounding(row.unit, 8 * row.normal)


def in_float64(model: OneLayerTransformer) -> OneLayerTransformer:
    """The layer with its weights as float64 numbers, which hold those of narrower formats exactly."""
    if model.dtype == torch.float64:
        return model
    return copy.deepcopy(model).double()


def float64_weights(model: nn.Module) -> dict[str, Floats]:
    """Every weight as float64 numbers, which hold those of narrower formats exactly."""
    return {name: tensor.detach().double().cpu().numpy() for name, tensor in model.state_dict().items()}


def has_fields(config: object, wanted: Mapping[str, object]) -> bool:
    """Whether the fields of a configuration have these values."""
    return all(getattr(config, name) == value for name, value in wanted.items())
