"""One lookup head against an inner function: a function of one direction, or a product of several.

Lemma: a head over a grid whose values are the products v_1[m_1] ... v_r[m_r] is the product of the r heads of one axis
with values v_a, since softmax over a grid is the product of one softmax per axis. So with |A_a - phi_a| <= delta_a and
|phi_a| <= M_a,
    |A - phi_1 ... phi_r| <= prod (M_a + delta_a) - prod M_a + max |values - products|,
the last term because the weights of a softmax are an average. All suprema are over one variable.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.float64 import TINY, UNIT, at_least
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.forward import UP, Rounding
from onelayer.lemmas.nested import Inner
from onelayer.lemmas.univariate import lookup_error, range_of
from onelayer.observer import Observer

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
    observer: Observer | None = None,
) -> Looked:
    """The head with these keys per axis and values (M_1, ..., M_r), whose ``columns`` are None for one axis."""
    along = [values] if columns is None else [np.array(column) for column in columns]
    if [len(column) for column in along] != list(values.shape):
        return Looked(-math.inf, math.inf, math.inf, math.inf, math.inf)
    ranges = []
    errors = []
    for a, (factor, span) in enumerate(zip(factors, spans, strict=True)):
        formula = factor.formula
        ranges.append(range_of(formula, span.low, span.high))
        # Key features of a head: one slope per axis, of which this axis uses its own, then the bias.
        axis = keys[a][:, [a, len(factors)]]
        alone = _alone(axis, along[a][:, None])
        errors.append(lookup_error(alone, formula, span.low, span.high, observer) * UP)
    bottom, top = reduce(_product_range, ranges)
    error = errors[0]
    if columns is not None:
        # NumPy's maximum keeps a nan, which Python's may lose.
        sizes = [float(np.maximum(abs(low), abs(high))) for low, high in ranges]
        error = _product_error(sizes, errors) + _deviation(values, along)
    size = float(np.abs(values).max())
    rounding = _executed(keys, size, spans, r)
    return Looked(bottom, top, error * UP, size, rounding)


def _product_error(sizes: Sequence[float], errors: Sequence[float]) -> float:
    """prod (M + delta) - prod M, rounded up: in floats two small factors may vanish before they meet a large one."""
    if not np.isfinite([*sizes, *errors]).all():
        return math.inf
    exact = [Fraction(m) for m in sizes]
    strayed = [m + Fraction(d) for m, d in zip(exact, errors, strict=True)]
    return at_least(math.prod(strayed) - math.prod(exact))


def _deviation(values: Floats, along: Sequence[Floats]) -> float:
    """max |values - products of the columns|, rounded up.

    Each column is divided by a power of two above it: then no product exceeds 1, and one that falls below the normal
    range is lost beside the largest of all, whatever it would have met.
    """
    exponents = [math.frexp(float(np.abs(column).max()))[1] for column in along]
    scaled = [np.ldexp(column, -e) for column, e in zip(along, exponents, strict=True)]
    products: Floats = reduce(np.multiply.outer, scaled)
    given = np.ldexp(values, -sum(exponents))
    sizes = np.abs(products) + np.abs(given)
    # The rounding of products and difference.
    slack = 4 * (len(along) + 1) * (UNIT * sizes + sys.float_info.min)
    apart = np.abs(given - products) + slack
    # Scaled back, a number below the normal range is rounded to a multiple of the smallest one.
    return float(np.ldexp(apart.max(), sum(exponents))) + math.ulp(0.0)


def _product_range(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    low = math.inf
    high = -math.inf
    for x, y in itertools.product(a, b):
        end = x * y
        # Exact where a factor is zero; any other product may underflow.
        slack = 0.0 if x == 0 or y == 0 else 4 * UNIT * abs(end) + TINY
        # No comparison tells a nan from a number: it bounds nothing.
        if math.isnan(end - slack) or math.isnan(end + slack):
            return -math.inf, math.inf
        low = min(low, end - slack)
        high = max(high, end + slack)
    return low, high


def _executed(keys: Sequence[Floats], size: float, spans: Sequence[Reached], r: Rounding) -> float:
    """|executed A - A| for a head with |values| <= size.

    Logits err by gamma of their sizes, once in the query and once in the product with the keys, and what softmax
    subtracts of them once more; weights then by e^(2 error), by exp, sum and division; each axis averages by a sum.
    """
    whole = 1.0
    lost = 0
    for a, (axis, span) in enumerate(zip(keys, spans, strict=True)):
        count = len(axis)
        slopes = np.abs(axis[:, a])
        biases = np.abs(axis[:, len(keys)])
        sizes = slopes * span.reach + biases
        logit = r.gamma(span.terms + 16) * float(sizes.max())
        # Products that are flushed to zero, each times a key.
        steepest = float(np.abs(axis).max())
        products = span.terms + 4 + len(keys)
        logit += 4 * products * r.tiny * (1 + steepest)
        own = r.softmax(count)  # what an executed softmax adds to exact logits
        # Beyond an error of 1 the exponential says nothing worth stating, and may overflow.
        shifted = math.expm1(4 * logit) if logit < 1 else math.inf
        relative = shifted * (1 + own) + own
        summing = r.gamma(count + 2) * (1 + relative)
        average = relative + summing + 8 * (count + 2) * r.tiny
        whole *= 1 + average
        lost += count + 2
    # Axes are averaged one after the other, so their relative errors multiply.
    weighed = size * (whole - 1 + 8 * len(spans) * UNIT)
    underflow = 4 * lost * r.tiny * (1 + size)
    return (weighed + underflow) * UP * UP


def _alone(keys: Floats, values: Floats) -> OneLayerTransformer:
    """One axis by itself, as a layer of one number."""
    slopes, biases = (torch.from_numpy(column.copy()) for column in keys.T)
    head = LookupHead([AxisKeys(0, slopes, biases)], torch.from_numpy(values.copy()))
    return lookup_model(1, (), [head])
