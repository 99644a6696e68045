"""Softmax of affine logits compiled by numba: rows of ``width`` keys side by side, on float64 arrays (P, N).

What taylor/compiled.py says of rounding, NaN, tables and outputs holds here too. Maxima are the one new thing: each is
taken so that what is not a number stays so. Exponentials are torch's own, given from outside: nothing is assumed of
another library's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onelayer.taylor.compiled import jitted, sums
from onelayer.taylor.rounding import GROWTH, SMALLEST, TINY, UNIT


@jitted
def shifted(
    blocks: Any, coef: Any, rem: Any, width: int, out: Any, norms: Any, total: Any, radius: Any, size: Any
) -> bool:
    """l - q with q the polynomial of the strongest key of each row, and the sum of its slopes; False for a masked key.

    Any function will do as q, so it does not matter which key is taken where one is not a number.
    """
    out[:] = np.nan
    radius[:] = np.nan
    size[:] = np.nan
    lead = coef[0]
    for first in range(0, rem.size, width):
        best = first
        for n in range(first, first + width):
            if lead[n] == -np.inf:
                return False
            if lead[n] > lead[best]:
                best = n
        for p in range(coef.shape[0]):
            row = coef[p]
            target = out[p]
            reference = row[best]
            for n in range(first, first + width):
                target[n] = row[n] - reference
    sums(blocks, out, norms, total)
    for n in range(rem.size):
        radius[n] = (rem[n] + (1.01 * UNIT) * total[n] + TINY) * GROWTH
        size[n] = (norms[1, n] + TINY) * GROWTH if norms.shape[0] > 1 else 0.0
    return True


@jitted
def cut_off(size: float, degree: int, last: float, steepest: float) -> float:
    """What the terms above ``degree`` add at most: by the geometric series of the last ones, or by Lagrange's form."""
    q = (size / (degree + 1) + TINY) * GROWTH
    geometric = last * (q / (1 - q)) * (1 + 2.0**-20)
    reach = size
    power = 1.0
    # Raised to where its power is a normal number: below, the bound would lose its digits.
    if reach < 2.0 ** (-1000 / (degree + 1)):
        reach = 2.0 ** (-1000 / (degree + 1))
    for _ in range(degree + 1):
        power *= reach
    lagrange = (steepest + TINY) * GROWTH * power
    return geometric if q < 0.99 and not lagrange < geometric else lagrange


@jitted
def raise_powers(parents: Any, weights: Any, affine: Any, out: Any) -> None:
    """Every row of ``out`` but the first: its parent times the slope of its variable, at the end times its weight."""
    for p in range(1, out.shape[0]):
        row = out[p]
        before = out[parents[p, 0]]
        slope = affine[1 + parents[p, 1]]
        for n in range(row.size):
            row[n] = slope[n] * before[n]
    for p in range(1, out.shape[0]):
        row = out[p]
        weight = weights[p]
        for n in range(row.size):
            row[n] *= weight


@jitted
def exponentials(
    blocks: Any,
    parents: Any,
    weights: Any,
    affine: Any,
    rem: Any,
    size: Any,
    base: Any,
    above: Any,
    relative: float,
    factorial: float,
    out: Any,
    norms: Any,
    total: Any,
    radius: Any,
) -> int:
    """e^(affine) as in ``compose._exp_of_affine``; ``base``: e^centre, ``above``: e^upper, rows (parent, variable).

    Returned is 2 where every remainder is small beside its polynomial, 1 where one is not, 0 where a remainder of the
    logits is above 1: below, e^r - 1 <= r (1 + r).
    """
    out[:] = np.nan
    radius[:] = np.nan
    lead = out[0]
    for n in range(rem.size):
        if rem[n] > 1.0:
            return 0
        lead[n] = SMALLEST if base[n] < SMALLEST else base[n]
    raise_powers(parents, weights, affine, out)
    sums(blocks, out, norms, total)
    degree = norms.shape[0] - 1
    state = 2
    for n in range(rem.size):
        tail = 0.0
        if degree > 0:
            tail = cut_off(size[n], degree, norms[degree, n], above[n] / factorial)
        spread = 0.0
        for d in range(1, degree + 1):
            spread += norms[d, n]
        slide = 1.01 * (rem[n] * (1 + rem[n]))
        share = 1.01 if base[n] < SMALLEST else relative
        radius[n] = (tail + total[n] * share + (total[n] + tail) * slide + TINY) * GROWTH
        if not radius[n] <= 0.25 * spread:
            state = 1
    return state


@jitted
def row_sums(coef: Any, total: Any, rem: Any, width: int, rounding: float, out: Any, radius: Any) -> None:
    """Sums over the keys of each row, with their remainders."""
    out[:] = np.nan
    radius[:] = np.nan
    for p in range(coef.shape[0]):
        row = coef[p]
        target = out[p]
        for r in range(target.size):
            value = 0.0
            for n in range(r * width, (r + 1) * width):
                value += row[n]
            target[r] = value
    for r in range(radius.size):
        absolute, rest = 0.0, 0.0
        for n in range(r * width, (r + 1) * width):
            absolute += total[n]
            rest += rem[n]
        radius[r] = (rest + rounding * absolute + TINY) * GROWTH


@jitted
def extremes(low: Any, high: Any, first: int, width: int) -> tuple[float, float]:
    """The largest ``high`` and the least ``low`` of a row; what is not a number stays so."""
    top = high[first]
    least = low[first]
    for n in range(first, first + width):
        if top == top and not high[n] <= top:
            top = high[n]
        if least == least and not low[n] >= least:
            least = low[n]
    return top, least


@jitted
def executed_weights(
    low: Any, high: Any, total: Any, rem: Any, unit: Any, width: int, relative: float, once: Any, often: Any, out: Any
) -> bool:
    """The remainder of weights as they are executed (``attention._executed_weights``); False where e^(u d) is large.

    ``once`` and ``often`` are steps of ``rounding.execution_step``; with y = u d <= 1, e^y - 1 <= y (1 + y).
    """
    out[:] = np.nan
    for r in range(unit.size):
        first = r * width
        top, least = extremes(low, high, first, width)
        shared = (top - least + TINY) * GROWTH
        if shared > 0.37 * width:
            shared = 0.37 * width
        for n in range(first, first + width):
            y = relative * ((top - low[n] + TINY) * GROWTH)
            if y > 1.0:
                return False
            size = (total[n] + rem[n] + TINY) * GROWTH
            own = (rem[n] + size * (1.01 * y * (1 + y)) + TINY) * GROWTH
            reach = (size * shared + TINY) * GROWTH
            if not reach < once[2]:
                out[n] = np.inf
                continue
            own = (own + (reach * once[0] + once[1] * unit[r]) + TINY) * GROWTH
            reach = (total[n] + own + TINY) * GROWTH
            rounding = reach * often[0] + often[1] * unit[r]
            out[n] = (own + rounding + TINY) * GROWTH if reach < often[2] else np.inf
    return True
