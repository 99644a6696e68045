"""Taylor arithmetic compiled by numba: the loops over coefficients of all boxes, on float64 arrays (P, N).

The rounding analysis of taylor/rounding.py holds as it stands: no fast-math, so nothing is reassociated or left out;
sums may be taken in any order, with or without fused multiply-add; division by zero gives inf or nan, not an error.
Nothing here loses what is not a number to a maximum or a comparison. Every index comes from a table that
taylor/kernels.py has validated, and outputs are filled with NaN first: an entry that a loop forgets is undecided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any, TypeVar

import numba
import numpy as np

from onelayer.taylor import rounding
from onelayer.taylor.rounding import GROWTH, TINY, UNDERFLOW, UNIT, WORTHLESS

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {
    "nopython": True,
    "nogil": True,
    "fastmath": False,
    "error_model": "numpy",
    "boundscheck": False,
}
TILE = 512  # columns at a time: the rows of two operands and of their product stay in the second cache


def _foundations() -> str:
    """A hash of what kernels are made of beside their own lines: the constants of rounding, and the kernels here."""
    constants = {name: value for name, value in vars(rounding).items() if isinstance(value, float)}
    code = files("onelayer.taylor").joinpath("compiled.py").read_bytes()
    return hashlib.sha256(code + repr(sorted(constants.items())).encode()).hexdigest()[:16]


FOUNDATIONS = _foundations()


def jitted(function: _Kernel) -> _Kernel:
    """Compiled at first use, and kept on disk where there is a place for it.

    Numba finds what it kept by the name of a function and the date of its file: a constant of another file, or a kernel
    that is called, stays what it was when the file was compiled. So the name says what they are.
    """
    function.__qualname__ = f"{function.__qualname__}_{FOUNDATIONS}"
    try:
        kernel: _Kernel = numba.jit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        kernel = numba.jit(cache=False, **_OPTIONS)(function)
    return kernel


@jitted
def add_product(out: Any, x: Any, y: Any) -> None:
    """out += x y, entry by entry."""
    for n in range(out.size):
        out[n] += x[n] * y[n]


@jitted
def subtract_product(out: Any, x: Any, y: Any) -> None:
    """out -= x y, entry by entry."""
    for n in range(out.size):
        out[n] -= x[n] * y[n]


@jitted
def sums(blocks: Any, coef: Any, norms: Any, total: Any) -> None:
    """Absolute sums per degree and their sum, upwards. ``blocks``: the first row of each degree, and the end."""
    degrees = blocks.size - 1
    norms[:] = np.nan
    for d in range(degrees):
        out = norms[d]
        out[:] = 0.0
        for p in range(blocks[d], blocks[d + 1]):
            row = coef[p]
            for n in range(out.size):
                out[n] += abs(row[n])
        if blocks[d + 1] - blocks[d] > 1:
            for n in range(out.size):
                out[n] = (out[n] + TINY) * GROWTH
    total[:] = 0.0
    for d in range(degrees):
        row = norms[d]
        for n in range(total.size):
            total[n] += row[n]
    for n in range(total.size):
        total[n] = (total[n] + TINY) * GROWTH


@jitted
def execute(step: Any, total: Any, rem: Any) -> None:
    """The remainder of what a rounded operation returns; ``step``: relative error, absolute error, largest magnitude.

    Where the magnitude is not below the largest, NaN included, the operation may overflow: nothing is known.
    """
    for n in range(rem.size):
        size = (total[n] + rem[n] + TINY) * GROWTH
        rounding = size * step[0] + step[1]
        rem[n] = (rem[n] + rounding + TINY) * GROWTH if size < step[2] else np.inf


@jitted
def interval(even: Any, coef: Any, norms: Any, total: Any, rem: Any, slack: float, low: Any, high: Any) -> None:
    """Range of polynomial and remainder; monomials of even exponents (rows ``even``) count as 1/2 +- 1/2.

    Their share is at most the sum of the norms, so that the reach, a difference, keeps half of it. The difference of
    centre and reach is rounded twice more: by less than 4 units of their sum.
    """
    shift, share = low, high
    shift[:] = 0.0
    share[:] = 0.0
    for e in range(even.size):
        row = coef[even[e]]
        for n in range(row.size):
            shift[n] += row[n]
            share[n] += abs(row[n])
    for n in range(share.size):
        share[n] *= -0.5
    for d in range(1, norms.shape[0]):
        row = norms[d]
        for n in range(share.size):
            share[n] += row[n]
    first = coef[0]
    for n in range(share.size):
        centre = first[n] + shift[n] / 2
        reach = (share[n] + rem[n] + slack * total[n] + TINY) * GROWTH
        widened = (abs(centre) + reach) * 2.0**-51 + TINY
        low[n] = (centre - reach) - widened
        high[n] = (centre + reach) + widened


@jitted
def dropped(left: Any, right: Any, degree: int, out: Any) -> None:
    """out += sum of |p|_d |q|_e over d + e > degree."""
    for d in range(left.shape[0]):
        for e in range(max(0, degree + 1 - d), right.shape[0]):
            add_product(out, left[d], right[e])


@jitted
def product(
    runs: Any,
    blocks: Any,
    a: Any,
    b: Any,
    norms_a: Any,
    norms_b: Any,
    total_a: Any,
    total_b: Any,
    rem_a: Any,
    rem_b: Any,
    degree: int,
    rounding: float,
    step: Any,
    out: Any,
    norms: Any,
    total: Any,
    rem: Any,
) -> None:
    """The truncated product, its sums and its remainder; an executed one if ``step`` is not empty.

    ``runs``: rows (left row, first right row, first target, length).
    """
    out[:] = np.nan
    rem[:] = np.nan
    for first in range(0, rem.size, TILE):
        last = min(rem.size, first + TILE)
        for p in range(out.shape[0]):
            out[p, first:last] = 0.0
        for r in range(runs.shape[0]):
            x = a[runs[r, 0], first:last]
            source = runs[r, 1]
            target = runs[r, 2]
            for q in range(runs[r, 3]):
                add_product(out[target + q, first:last], x, b[source + q, first:last])
        rem[first:last] = 0.0
        dropped(norms_a[:, first:last], norms_b[:, first:last], degree, rem[first:last])
        for n in range(first, last):
            p = total_a[n]
            q = total_b[n]
            r = rem_a[n]
            s = rem_b[n]
            cross = p * s + r * (q + s)
            rem[n] = (cross + rounding * (p * q) + rem[n] + TINY) * GROWTH
    sums(blocks, out, norms, total)
    if step.size:
        execute(step, total, rem)


@jitted
def series_quotient(runs: Any, starts: Any, divisor: Any, rest: Any) -> None:
    """The truncated power series of a quotient in place of its numerator ``rest``; the runs of row j lie together."""
    for first in range(0, rest.shape[1], TILE):
        last = min(rest.shape[1], first + TILE)
        lead = divisor[0, first:last]
        for j in range(rest.shape[0]):
            row = rest[j, first:last]
            for n in range(row.size):
                row[n] /= lead[n]
            for r in range(starts[j], starts[j + 1]):
                source = runs[r, 1]
                target = runs[r, 2]
                # Times the leading coefficient, row j is what was just divided.
                for q in range(1 if source == 0 else 0, runs[r, 3]):
                    subtract_product(rest[target + q, first:last], row, divisor[source + q, first:last])


@jitted
def quotient(
    runs: Any,
    starts: Any,
    divisor: Any,
    norms_b: Any,
    total_a: Any,
    total_b: Any,
    rem_a: Any,
    rem_b: Any,
    low: Any,
    high: Any,
    degree: int,
    rounding: float,
    blocks: Any,
    rest: Any,
    norms: Any,
    total: Any,
    rem: Any,
) -> None:
    """The quotient with its sums and its remainder, by the defect over the least size of the divisor in [low, high]."""
    series_quotient(runs, starts, divisor, rest)
    sums(blocks, rest, norms, total)
    rem[:] = 0.0
    dropped(norms, norms_b, degree, rem)
    for n in range(rem.size):
        norm = total[n]
        size = total_b[n]
        lost = rounding * (total_a[n] + norm * size) + (UNDERFLOW * rest.shape[0]) * size
        defect = (rem_a[n] + norm * rem_b[n] + rem[n] + lost + TINY) * GROWTH
        # The least size of a divisor that keeps its sign; both ends must be numbers.
        rem[n] = np.inf
        if low[n] > 0 and high[n] == high[n]:
            rem[n] = (defect / low[n] + TINY) * GROWTH
        elif high[n] < 0 and low[n] == low[n]:
            rem[n] = (defect / -high[n] + TINY) * GROWTH


@jitted
def within(low: Any, high: Any, defined: Any, rem: Any, middle: Any, out: Any, poor: Any) -> bool:
    """Where a remainder is as wide as the interval [low, high]: its middle and radius; whether it is anywhere."""
    out[:] = np.nan
    found = False
    for n in range(rem.size):
        centre = low[n] / 2 + high[n] / 2
        reach = high[n] - centre
        # The maximum of two distances, written so that nan on either side stays nan.
        if reach == reach and not centre - low[n] <= reach:
            reach = centre - low[n]
        reach = (reach + (2 * UNIT) * abs(centre) + TINY) * GROWTH
        poor[n] = not rem[n] <= WORTHLESS * reach and reach < np.inf and defined[n]
        middle[n] = centre
        out[n] = np.inf
        if defined[n]:
            out[n] = reach if poor[n] else rem[n]
        found = found or poor[n]
    return found


@jitted
def replaced(coef: Any, middle: Any, poor: Any, out: Any) -> None:
    """Polynomials, with the constant ``middle`` in the place of the poor ones."""
    out[:] = np.nan
    for p in range(coef.shape[0]):
        row = coef[p]
        target = out[p]
        for n in range(row.size):
            target[n] = 0.0 if poor[n] else row[n]
    lead = out[0]
    for n in range(lead.size):
        if poor[n]:
            lead[n] = middle[n]


@jitted
def contracted(
    rem: Any, total: Any, size: Any, unit: Any, rounding: float, relative: float, step: Any, terms: float, out: Any
) -> None:
    """Remainder (R, m) of a contraction of (R, n) with a constant of absolute values ``size`` (n, m).

    Executed in a format if ``step`` is not empty; ``relative`` is the error of its sums. The sum of absolute values,
    which bounds all partial sums, is at most the remainder over it.
    """
    out[:] = 0.0
    for r in range(out.shape[0]):
        row = out[r]
        for i in range(size.shape[0]):
            source = rem[r, i] + rounding * total[r, i]
            if step.size:
                source += relative * ((total[r, i] + rem[r, i] + TINY) * GROWTH)
            factor = size[i]
            for j in range(row.size):
                row[j] += source * factor[j]
        for j in range(row.size):
            row[j] = (row[j] + TINY) * GROWTH
            # Where a partial sum may overflow nothing is known.
            if step.size:
                held = row[j] / relative < step[2]
                row[j] = (row[j] + step[1] * unit[r] * terms + TINY) * GROWTH if held else np.inf


@jitted
def add(
    rows_a: Any,
    rows_b: Any,
    blocks: Any,
    a: Any,
    b: Any,
    rem_a: Any,
    rem_b: Any,
    sign: float,
    rounding: float,
    step: Any,
    out: Any,
    norms: Any,
    total: Any,
    rem: Any,
) -> None:
    """a + sign b with its sums and remainder, the rows of both written into the rows of a common basis."""
    out[:] = 0.0  # a row that neither has is zero
    for p in range(rows_a.size):
        out[rows_a[p]] = a[p]
    for p in range(rows_b.size):
        row = out[rows_b[p]]
        more = b[p]
        for n in range(row.size):
            row[n] += sign * more[n]
    sums(blocks, out, norms, total)
    for n in range(rem.size):
        rem[n] = (rem_a[n] + rem_b[n] + rounding * total[n] + TINY) * GROWTH
    if step.size:
        execute(step, total, rem)


@jitted
def used_rows(coef: Any, used: Any) -> None:
    """Which rows have an entry other than zero; what is not a number is other than zero."""
    for p in range(coef.shape[0]):
        row = coef[p]
        used[p] = False
        for n in range(row.size):
            if row[n] != 0.0:
                used[p] = True
                break


@jitted
def contract(row: Any, left: Any, right: Any) -> None:
    """row = the sum over m of left[m] right[m], entry by entry."""
    row[:] = 0.0
    for m in range(left.shape[0]):
        add_product(row, left[m], right[m])


@jitted
def pairs(targets: Any, left: Any, right: Any, out: Any, above: Any) -> None:
    """Rows of (P, M, N) times rows of (I, M, N), summed over M: to rows of (R, N), or in absolute value to above."""
    term = np.empty(above.size)
    above[:] = 0.0
    for r in range(out.shape[0]):
        out[r, :] = 0.0  # a row without a pair is zero
    for i in range(left.shape[0]):
        for j in range(right.shape[0]):
            if targets[i, j] >= 0:
                contract(out[targets[i, j]], left[i], right[j])
            else:
                contract(term, left[i], right[j])
                for n in range(above.size):
                    above[n] += abs(term[n])


@jitted
def outer(targets: Any, left: Any, right: Any, out: Any, above: Any) -> None:
    """Rows of (P, X, M, N) times rows of (I, Y, M, N), summed over M: to rows of (R, X, Y, N), or to above.

    ``targets``: for each pair of rows the one that it alone is written to, -1 for above.
    """
    out[:] = np.nan
    above[:] = np.nan
    for x in range(left.shape[1]):
        for y in range(right.shape[1]):
            for start in range(0, left.shape[3], TILE):
                tile = slice(start, start + TILE)
                a = left[:, x, :, tile]
                b = right[:, y, :, tile]
                pairs(targets, a, b, out[:, x, y, tile], above[x, y, tile])
