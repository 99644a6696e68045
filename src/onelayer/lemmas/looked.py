"""One lookup head against an inner function: a function of one direction, or a product of several.

Lemma: a head over a grid whose values are the products v_1[m_1] ... v_r[m_r] is the product of the r heads of one axis
with values v_a, since softmax over a grid is the product of one softmax per axis. So with |A_a - phi_a| <= delta_a and
|phi_a| <= M_a,
    |A - phi_1 ... phi_r| <= prod (M_a + delta_a) - prod M_a + max |values - products|,
the last term because the weights of a softmax are an average. All suprema are over one variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.float64 import UNIT
from onelayer.language.formula import parse
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.forward import UP, Rounding
from onelayer.lemmas.nested import Inner
from onelayer.lemmas.univariate import lookup_error, range_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reached:
    """What a factor sees: d . x in [low, high], |d . x| <= reach as executed, and the number of its terms."""

    low: float
    high: float
    reach: float
    terms: int


@dataclass(frozen=True)
class Looked:
    """A against phi: the values of phi, sup |A - phi|, |A| at most, rounding of an executed A."""

    low: float
    high: float
    error: float
    size: float
    rounding: float


def key_width(axes: int) -> int:
    """Features of the keys of a head: a coordinate for each axis, a constant, zeros; its root is a power of two."""
    return 4 if axes <= 3 else 16


def looked_up(
    factors: Sequence[Inner],
    spans: Sequence[Reached],
    keys: Sequence[Floats],
    values: Floats,
    columns: Sequence[Sequence[float]] | None,
    r: Rounding,
) -> Looked:
    """The head with these keys per axis and values (M_1, ..., M_r), whose ``columns`` are None for one axis."""
    along = [values] if columns is None else [np.array(column) for column in columns]
    if [len(column) for column in along] != list(values.shape):
        return Looked(-math.inf, math.inf, math.inf, math.inf, math.inf)
    bottom = top = 1.0
    sizes, errors = [], []
    for a, (factor, span) in enumerate(zip(factors, spans, strict=True)):
        formula = parse(factor.text, 1, limit=len(factor.text))
        low, high = range_of(formula, span.low, span.high)
        axis = keys[a][:, [a, len(factors)]]
        errors.append(lookup_error(_alone(axis, along[a][:, None]), formula, span.low, span.high) * UP)
        sizes.append(max(abs(low), abs(high)))
        bottom, top = (low, high) if a == 0 else _product_range((bottom, top), (low, high))
    error = errors[0] if columns is None else _product_error(sizes, errors) + _deviation(values, along)
    size = float(np.abs(values).max())
    return Looked(bottom, top, error * UP, size, _executed(keys, size, spans, r))


def _product_error(sizes: Sequence[float], errors: Sequence[float]) -> float:
    """prod (M + delta) - prod M = sum over a of delta_a prod of M before a and of M + delta after it."""
    total = 0.0
    count = len(sizes)
    for a in range(count):
        # Factor a errs; those before it are still as large as they are, those after it are already off.
        after = (m + d for m, d in zip(sizes[a + 1 :], errors[a + 1 :], strict=True))
        parts = [errors[a], *sizes[:a], *after]
        total += math.prod(parts) * (1 + 4 * count * UNIT)
    return total * (1 + 4 * count * UNIT)


def _deviation(values: Floats, along: Sequence[Floats]) -> float:
    """max |values - products of the columns|."""
    products: Floats = reduce(np.multiply.outer, along)
    slack = 4 * (len(along) + 1) * UNIT * (np.abs(products) + np.abs(values))
    return float((np.abs(values - products) + slack).max())


def _product_range(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    ends = [x * y for x in a for y in b]
    low = min(ends)
    high = max(ends)
    slack = 4 * UNIT
    return low - slack * abs(low), high + slack * abs(high)


def _executed(keys: Sequence[Floats], size: float, spans: Sequence[Reached], r: Rounding) -> float:
    """|executed A - A| for a head with |values| <= size.

    Logits err by gamma of their sizes, once in the query and once in the product with the keys, and what softmax
    subtracts of them once more; weights then by e^(2 error), by exp, sum and division; each axis averages by a sum.
    """
    whole = 1.0
    lost = 0
    for a, (axis, span) in enumerate(zip(keys, spans, strict=True)):
        count = len(axis)
        slopes, biases = np.abs(axis[:, a]), np.abs(axis[:, len(keys)])
        largest = float((slopes * span.reach + biases).max())
        logit = r.gamma(span.terms + 16) * largest
        steepest = float(np.abs(axis).max())
        logit += 4 * (span.terms + 4 + len(keys)) * r.tiny * (1 + steepest)
        own = r.softmax(count)  # what an executed softmax adds to exact logits
        relative = math.expm1(4 * logit) * (1 + own) + own if logit < 1 else math.inf
        average = relative + r.gamma(count + 2) * (1 + relative) + 8 * (count + 2) * r.tiny
        whole *= 1 + average
        lost += count + 2
    weighed = size * (whole - 1 + 8 * len(spans) * UNIT)
    underflow = 4 * lost * r.tiny * (1 + size)
    return (weighed + underflow) * UP * UP


def _alone(keys: Floats, values: Floats) -> OneLayerTransformer:
    """One axis by itself, as a layer of one number."""
    axis = AxisKeys(0, torch.from_numpy(keys[:, 0].copy()), torch.from_numpy(keys[:, 1].copy()))
    return lookup_model(1, (), [LookupHead([axis], torch.from_numpy(values.copy()))])
