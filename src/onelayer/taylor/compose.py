"""g(Taylor model) for an elementary g.

With x = c + p(t) + rho, |rho| <= R, and I an interval that holds c and the range of x: g(x) = sum_{n<=k} g_n(c) p^n
+ E, where |E| <= tail of the Taylor series at |p| on I + sup_I |g'| R. Where that remainder is wide, a line beside g
takes its place (taylor/chords.py), and where even that is as wide as the image of the range, the image does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.taylor import basis, kernels, tables
from onelayer.taylor.arithmetic import multiply
from onelayer.taylor.chords import Chord
from onelayer.taylor.core import TaylorModel, prune
from onelayer.taylor.elementary import EXP, Elementary
from onelayer.taylor.fused import any_of
from onelayer.taylor.rounding import (
    ELEMENTARY,
    SMALLEST,
    UNDERFLOW,
    UNIT,
    WORTHLESS,
    executed,
    gamma,
    inflate,
    middle_and_reach,
    upward_power,
)


def compose(g: Elementary, x: TaylorModel, roundings: float = 8, floor: float | None = None) -> TaylorModel:
    """g(x), with the error of an executed g (``roundings`` units) when x is executed.

    ``floor`` is a lower bound of the true values of x that its enclosure may have lost.
    """
    x = prune(x.plain())
    lower, upper = x.range()
    if floor is not None:
        # The polynomial alone may lie below the floor by the remainder.
        lower = torch.where(lower < floor, floor - inflate(x.rem), lower)
    # Where a side of a kink is assumed, x is enclosed on a part of the box, and c may lie beyond all values there: the
    # tail is a derivative somewhere between c and a value.
    low = torch.minimum(lower, x.coef[0])
    high = torch.maximum(upper, x.coef[0])
    if x.degree > 1:
        result = _of_polynomial(g, x, low, high)
    else:
        result = _exp_of_affine(x, high) if g is EXP else _of_affine(g, x, low, high)
    # A remainder that is small beside the polynomial would not gain by a line or an interval.
    if any_of(~(result.rem <= 0.25 * result.norms()[1:].sum(0))):
        if g.chord is not None:
            result = beside_chord(result, x, g.chord(lower, upper))
        result = within_image(result, *g.image((lower, upper)), x.decided())
    if x.execution is not None:
        result.rem = executed(result.rem, result.magnitude(), roundings, x.execution)
    return result


def beside_chord(result: TaylorModel, x: TaylorModel, chord: Chord) -> TaylorModel:
    """slope x + [low, high] in the place of the enclosure of g(x), wherever that has the smaller remainder."""
    rows = len(x.coef)
    if rows > len(result.coef) or x.support != result.support:
        return result
    middle, away = middle_and_reach(chord.low, chord.high)
    radius = away + 2 * UNIT * middle.abs()
    line = chord.slope * x.coef
    line[0] += middle
    rounding = (4 * UNIT) * (chord.slope * x.total() + middle.abs())
    rem = inflate(chord.slope * x.rem + radius + rounding + UNDERFLOW)
    better = rem < result.rem  # false for NaN
    if not any_of(better):
        return result
    coef = torch.where(better, 0.0, result.coef)
    coef[:rows] = torch.where(better, line, coef[:rows])
    return result.with_(coef, torch.where(better, rem, result.rem))


def within_image(x: TaylorModel, low: Tensor, high: Tensor, defined: Tensor) -> TaylorModel:
    """Replace the enclosure by the constant interval [low, high] wherever its remainder is nearly as wide.

    ``defined`` says where the value exists at every point of the box and lies in the interval. Elsewhere the result is
    undecided: however bounded a function is, it has no value where its argument has none.
    """
    if kernels.ready(x.coef, x.rem, low, high):
        return x.with_(*kernels.within(x.coef, x.rem, low, high, defined))
    middle, away = middle_and_reach(low, high)
    radius = inflate(away + 2 * UNIT * middle.abs())
    # Written so that a remainder that is nan counts as poor.
    poor = ~(x.rem <= WORTHLESS * radius) & (radius < torch.inf) & defined
    coef = x.coef
    rem = x.rem
    if any_of(poor):
        coef = torch.where(poor, 0.0, coef)
        coef[0] = torch.where(poor, middle, coef[0])
        rem = torch.where(poor, radius, rem)
    return x.with_(coef, torch.where(defined, rem, torch.inf))


def monomials(slopes: Tensor, first: Tensor, degree: int) -> Tensor:
    """first * a^alpha for all exponents up to ``degree``, graded: (P, *shape) from slopes (s, *shape)."""
    s = len(slopes)
    out = first.new_empty(basis.count(s, degree), *first.shape)
    out[0] = first
    for n in range(1, degree + 1):
        before = basis.block(s, n - 1)
        row = basis.block(s, n).start
        for i in range(s):
            # Those of degree n that avoid the first i variables: t_i times the end of the block before.
            avoiding = basis.block(s - i, n - 1)
            length = avoiding.stop - avoiding.start
            end = out[before.stop - length : before.stop]
            torch.mul(slopes[i], end, out=out[row : row + length])
            row += length
    return out


def _of_affine(g: Elementary, x: TaylorModel, lower: Tensor, upper: Tensor) -> TaylorModel:
    """Closed form: the coefficient of t^alpha is g_n multinomial(alpha) a^alpha, n = |alpha|."""
    s = len(x.support)
    cap = x.space.cap(s)
    k = cap if g.degree is None else min(g.degree, cap)
    k = k if s else 0
    series, error = g.series(x.coef[0], k)
    size = inflate(x.norms()[1:].sum(0))
    coef = monomials(x.coef[1:], torch.ones_like(x.rem), k)
    weights = tables.multinomials(s, k, x.device)
    for n in range(k + 1):
        rows = basis.block(s, n)
        # Of one variable every power is one monomial, and its weight is one.
        factor = weights[rows].view(-1, *[1] * x.ndim) * series[n] if s > 1 else series[n]
        coef[rows] *= factor
    # Horner: the errors of the series, and the 2 n roundings of a power, times size^n.
    rem = torch.zeros_like(x.rem)
    for n in range(k, -1, -1):
        rem = rem * size + error[n] + gamma(2 * n) * series[n].abs()
    # Powers of small slopes may underflow before they meet the series: of degree n there are s^n, with their weights.
    for n in range(k + 1):
        rem = rem + (UNDERFLOW * float(s) ** n) * series[n].abs()
    rem = rem + _beyond(g, x, series, error, size, lower, upper, k)
    return TaylorModel(coef, inflate(rem), x.space, x.support, k)


def _exp_of_affine(x: TaylorModel, upper: Tensor) -> TaylorModel:
    """e^c a^alpha / alpha!, the logits of attention: sums of absolute rows give all bounds.

    The rows of degree k sum to e^c size^k / k!, the tail is below a geometric series of ratio size / (k + 1). Values
    below 2^-900 are replaced by it, with relative error 1: nothing underflows on the way.
    """
    s = len(x.support)
    k = x.space.cap(s)
    base = torch.exp(x.coef[0])
    coef = monomials(x.coef[1:], base.clamp(min=SMALLEST), k)
    weights = tables.inverse_factorials(s, k, x.device)
    coef.mul_(weights.view(-1, *[1] * x.ndim))
    result = TaylorModel(coef, x.rem, x.space, x.support, k)
    total = result.total()
    relative = torch.where(base < SMALLEST, torch.full_like(base, 1.01), ELEMENTARY + gamma(2 * k + 4))
    tail = _exp_tail(x, result.norms()[k], upper, k) if s else torch.zeros_like(total)
    slide = 1.01 * torch.expm1(x.rem)  # e^(x + rho) = e^x e^rho
    result.rem = inflate(tail + total * relative + (total + tail) * slide)
    return result


def _exp_tail(x: TaylorModel, last: Tensor, upper: Tensor, k: int) -> Tensor:
    """The smaller of the geometric tail and Lagrange's, which alone is left where the ratio is near 1 or above."""
    size = inflate(x.norms()[1:].sum(0))
    q = inflate(size / (k + 1))
    geometric = last * (q / (1 - q)) * (1 + 2.0**-20)
    if not any_of(~(q < 0.99)):
        return geometric
    lagrange = EXP.bound(upper, upper, k + 1) * upward_power(size, k + 1)
    return torch.where((q < 0.99) & ~(lagrange < geometric), geometric, lagrange)


def _beyond(
    g: Elementary, x: TaylorModel, series: Tensor, error: Tensor, size: Tensor, lower: Tensor, upper: Tensor, k: int
) -> Tensor:
    """Tail of the series and what the remainder of x does to g."""
    # Where x is exact a slope that is not bounded does no harm: infinity times 0 would.
    slide = torch.where(x.rem > 0, g.bound(lower, upper, 1) * x.rem, x.rem)
    if not x.support:
        return slide
    last = inflate(series[k].abs() + error[k])
    tail = g.tail(last, x.coef[0], size, lower, upper, k)
    return slide + torch.where(size > 0, tail, size)


def _of_polynomial(g: Elementary, x: TaylorModel, lower: Tensor, upper: Tensor) -> TaylorModel:
    """Horner in p, keeping at step n only the degrees that can still reach the cap."""
    k = x.space.cap(len(x.support))
    top = k if g.degree is None else min(k, g.degree)
    series, error = g.series(x.coef[0], top)
    size = inflate(x.norms()[1:].sum(0))
    # p is exact here: what rho does to g is in _beyond.
    increment = x.coef.clone()
    increment[0] = 0
    p = x.with_(increment, torch.zeros_like(x.rem))
    result = TaylorModel(series[top][None], error[top], x.space, (), 0)
    for n in range(top - 1, -1, -1):
        step = multiply(result, p, cap=k - n)
        coef = step.coef
        coef[0] += series[n]
        rem = inflate(step.rem + error[n] + (1.01 * UNIT) * coef[0].abs())
        result = TaylorModel(coef, rem, x.space, step.support, step.degree)  # the sums of the old one no longer hold
    rem = result.rem + _beyond(g, x, series, error, size, lower, upper, top)
    return TaylorModel(result.coef, inflate(rem), x.space, result.support, result.degree)
