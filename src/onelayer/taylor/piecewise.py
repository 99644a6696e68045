"""Piecewise functions: exact in the boxes that decide them, enclosed in the others.

Everything rests on |y|. Where the sign of y is undecided, y in [lo, hi] and w = max(-lo, hi), the best quadratic gives
| |y| - (y^2 / w + w / 8) | <= w / 8; where the interval is lopsided the chord is better:
| |y| - (s y + m) | <= m with s = (hi + lo) / (hi - lo), m = -lo hi / (hi - lo). Both shrink with the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.arithmetic import combine, mul, multiply, operand, scale
from onelayer.taylor.core import TaylorModel, constant, prune, spread
from onelayer.taylor.dimensions import axes, joint_shape
from onelayer.taylor.opaque import Indices
from onelayer.taylor.registry import call, implements
from onelayer.taylor.rounding import UNIT, inflate
from onelayer.taylor.shapes import common

# Entries of one sort, whose comparisons are half the square of their number: a second or two.
MOST_SORTED = 256


@implements("abs")
def abs_(x: TaylorModel) -> TaylorModel:
    """The absolute value: exact off the kink, an affine function and a radius across it."""
    x = prune(x)
    lower, upper = x.range()
    sign = (lower >= 0).double() - ((lower < 0) & (upper <= 0)).double()
    decided = x.with_(x.coef * sign, x.rem)
    # Also where the range is nan: what is not known to have a sign is enclosed, and stays undecided.
    open_ = sign == 0
    if not bool(open_.any()):
        return decided
    across = _kink(entries(x, open_), lower[open_], upper[open_], open_)
    return insert(decided, open_, across)


def entries(x: TaylorModel, mask: Tensor) -> TaylorModel:
    """The entries of a model under a mask, as a flat model of exact operations."""
    return TaylorModel(x.coef[:, mask], x.rem[mask], x.untag().space, x.support, x.degree)


def insert(x: TaylorModel, mask: Tensor, entries: TaylorModel) -> TaylorModel:
    """The model with the entries under the mask replaced."""
    # Copies: models share their tensors, and nothing is ever written into one.
    whole, part = common([x, entries.tagged(x.execution)])
    coef = whole.coef.clone()
    rem = whole.rem.clone()
    coef[:, mask] = part.coef
    rem[mask] = part.rem
    return whole.with_(coef, rem)


def expanded(x: TaylorModel, shape: torch.Size) -> TaylorModel:
    """The model repeated to a shape that it broadcasts to."""
    coef = spread(x.coef, len(shape)).expand(-1, *shape)
    return x.with_(coef, x.rem.expand(shape))


def aligned(args: Sequence[Any]) -> tuple[TaylorModel, list[TaylorModel]]:
    """The first model among the arguments, and all of them as plain models of exact operations in one shape."""
    like = next(arg for arg in args if isinstance(arg, TaylorModel))
    models = [operand(arg, like).untag().plain() for arg in args]
    shape = models[0].shape
    for model in models[1:]:
        shape = joint_shape(shape, model.shape)
    return like, [expanded(model, shape) for model in models]


def _kink(y: TaylorModel, lower: Tensor, upper: Tensor, mask: Tensor) -> TaylorModel:
    """|y| for the entries under ``mask``, where the sign of y is undecided."""
    enclosed = _across(y, lower, upper)
    sides = y.space.sides
    if sides is None or not mask.ndim:  # a number without boxes has no side
        return enclosed
    return cast(TaylorModel, sides.absolute(y, enclosed, mask.nonzero()[:, 0]))


def _across(y: TaylorModel, lower: Tensor, upper: Tensor) -> TaylorModel:
    """|y| by one polynomial on both sides of its kink."""
    width = torch.maximum(-lower, upper).clamp(min=2.0**-960)  # any wider interval is right, and 1 / width exists
    spread_ = upper - lower
    chord = -lower / spread_ * upper
    # y^2 / w + w / 8 is within w / 8 of |y| where |y| <= w. Where the kink lies near an end, a line is closer: the
    # chord over it, lowered by half of its height there.
    use_chord = chord < width / 8
    slope = (upper + lower) / spread_
    flat = scale(y, constant(slope, y))
    curved = scale(multiply(y, y), constant(1 / width, y))
    # Any slope s and offset m are right once the remainder covers both ends and the kink.
    offset = torch.where(use_chord, chord, width / 8)
    gap = torch.maximum((1 - slope) * upper, -(1 + slope) * lower)
    radius = torch.where(use_chord, torch.maximum(gap - chord, chord), width / 8)
    base, bent = common([flat, curved])
    coef = torch.where(use_chord, base.coef, bent.coef)
    coef[0] = coef[0] + offset
    rem = torch.where(use_chord, base.rem, bent.rem)
    rounding = 8 * UNIT * (width + offset)
    return base.with_(coef, inflate(rem + radius + rounding))


@implements("relu")
def relu(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    """max(x, 0), likewise."""
    x = prune(x)
    lower, upper = x.range()
    keep = (lower >= 0).double()
    rem = torch.where(upper <= 0, 0.0, x.rem)
    decided = x.with_(x.coef * keep, rem)
    open_ = ~((lower >= 0) | (upper <= 0))
    if not bool(open_.any()):
        return decided
    part = entries(x, open_)
    absolute = _kink(part, lower[open_], upper[open_], open_)
    half = mul(combine(part, absolute, 1), 0.5)
    return insert(decided, open_, half)


@implements("maximum")
def maximum(x: Any, other: Any) -> TaylorModel:
    """The larger of two, by the ReLU of their difference."""
    return _extreme(x, other, 1)


@implements("minimum")
def minimum(x: Any, other: Any) -> TaylorModel:
    """The smaller of two, likewise."""
    return _extreme(x, other, -1)


def _extreme(a: Any, b: Any, sign: int) -> TaylorModel:
    """max (sign 1) or min (-1): the operand itself where the box decides, else (a + b + sign |a - b|) / 2."""
    like = a if isinstance(a, TaylorModel) else b
    a = operand(a, like).plain()
    b = operand(b, like).plain()
    shape = joint_shape(a.shape, b.shape)
    a = expanded(a, shape)
    b = expanded(b, shape)
    # The difference decides, where the ranges of both would overlap; it is exact, as a comparison is.
    gap = prune(combine(a.untag(), b.untag(), -1))
    lower, upper = gap.range()
    first, second = (lower >= 0, upper <= 0) if sign > 0 else (upper <= 0, lower >= 0)
    left, right = common([a, b])
    coef = torch.where(first, left.coef, right.coef)
    decided = left.with_(coef, torch.where(first, left.rem, right.rem))
    open_ = ~(first | second)
    if not bool(open_.any()):
        return decided
    kink = _kink(entries(gap, open_), lower[open_], upper[open_], open_)
    both = combine(entries(left, open_), entries(right, open_), 1)
    return insert(decided, open_, mul(combine(both, kink, sign), 0.5))


@implements("clamp")
def clamp(x: TaylorModel, min: Any = None, max: Any = None) -> TaylorModel:
    """Where the bounds cross, the upper one, as in torch."""
    if min is None and max is None:
        raise UnsupportedOperation("clamp without bounds")
    if min is not None:
        x = maximum(x, min)
    if max is None:
        return x
    return minimum(x, max)


@implements("hardtanh")
def hardtanh(x: TaylorModel, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> TaylorModel:
    """x between two numbers."""
    return clamp(x, min_val, max_val)


@implements("relu6")
def relu6(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    """x between 0 and 6."""
    return clamp(x, 0.0, 6.0)


@implements("leaky_relu")
def leaky_relu(x: TaylorModel, negative_slope: float = 0.01, inplace: bool = False) -> TaylorModel:
    """x, scaled where it is negative."""
    if negative_slope <= 1:
        return maximum(x, mul(x, negative_slope))
    return minimum(x, mul(x, negative_slope))


@implements("elu")
def elu(x: TaylorModel, alpha: float = 1.0, inplace: bool = False) -> TaylorModel:
    """max(x, 0) + alpha (e^min(x, 0) - 1)."""
    curved = mul(call("expm1", minimum(x, 0.0)), alpha)
    return combine(relu(x), curved, 1)


@implements("sign")
def sign(x: TaylorModel) -> TaylorModel:
    """The sign: 1 or -1 where it is the same on the whole box, else 0 with radius 1."""
    lower, upper = x.range()
    value = (lower > 0).double() - (upper < 0).double()
    unsure = (value == 0).double()
    radius = torch.where(x.decided(), unsure, torch.inf)
    return TaylorModel(value[None], radius, x.space, (), 0)


@implements("floor")
def floor(x: TaylorModel) -> TaylorModel:
    """One integer where the box decides which; otherwise all from the least to the greatest."""
    least, most = (torch.floor(end) for end in x.range())
    decided = x.decided()
    half = inflate((most - least) / 2 + 2 * UNIT * most.abs())
    radius = torch.where(decided, half, torch.inf)
    exact = (least == most) & decided
    middle = torch.where(exact, least, least / 2 + most / 2)
    return TaylorModel(middle[None], torch.where(exact, 0.0, radius), x.space, (), 0)


@implements("ceil")
def ceil(x: TaylorModel) -> TaylorModel:
    """The smallest whole number above."""
    return -floor(-x)


class Extremes(NamedTuple):
    """What torch.max and torch.sort return; which entry it was depends on the point of the box."""

    values: TaylorModel
    indices: Indices


@implements("amax")
def amax(x: TaylorModel, dim: Any = None, keepdim: bool = False) -> TaylorModel:
    """The maximum over dimensions."""
    return _reduce(x, dim, keepdim, maximum)


@implements("amin")
def amin(x: TaylorModel, dim: Any = None, keepdim: bool = False) -> TaylorModel:
    """The minimum over dimensions."""
    return _reduce(x, dim, keepdim, minimum)


@implements("max")
def max_(x: TaylorModel, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """torch.max: of all entries, along a dimension, or of two tensors."""
    return _one_of_three(x, dim, keepdim, other, amax, maximum)


@implements("min")
def min_(x: TaylorModel, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """torch.min, likewise."""
    return _one_of_three(x, dim, keepdim, other, amin, minimum)


def _one_of_three(x: Any, dim: Any, keepdim: bool, other: Any, reduce: Any, choose: Any) -> Any:
    """torch.max: of all entries, along one dimension together with indices, or of two tensors."""
    if dim is None and other is None:
        return reduce(x)
    if isinstance(dim, int) and other is None:
        return Extremes(reduce(x, dim, keepdim), Indices())
    return choose(x, dim if other is None else other)


def _reduce(x: TaylorModel, dim: Any, keepdim: bool, better: Any) -> TaylorModel:
    """A tournament along each dimension."""
    dims = sorted(set(axes(x, dim)))
    for d in dims:
        while x.shape[d] > 1:
            half = x.shape[d] // 2
            first = call("narrow", x, d, 0, half)
            second = call("narrow", x, d, half, half)
            rest = call("narrow", x, d, 2 * half, x.shape[d] - 2 * half)
            x = better(first, second)
            x = call("cat", [x, rest], d) if rest.shape[d] else x
    return x if keepdim else call("squeeze", x, dims)


@implements("sort")
def sort(x: TaylorModel, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Extremes:
    """A transposition network: n rounds of comparisons between neighbours, alternately even and odd.

    Whether equal entries keep their order shows in the indices alone.
    """
    rows = list(call("unbind", x, dim))
    if len(rows) > MOST_SORTED:
        raise UnsupportedOperation(f"sort of {len(rows)} entries", f"at most {MOST_SORTED} are sorted, within a point")
    for turn in range(len(rows)):
        for i in range(turn % 2, len(rows) - 1, 2):
            low = minimum(rows[i], rows[i + 1])
            high = maximum(rows[i], rows[i + 1])
            rows[i], rows[i + 1] = (high, low) if descending else (low, high)
    return Extremes(call("stack", rows, dim), Indices())


@implements("topk")
def topk(x: TaylorModel, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extremes:
    """The k largest or smallest values, in order; which entries they are is not said."""
    if not sorted:
        raise UnsupportedOperation("topk(sorted=False)", "the order of the values is then torch's choice")
    ordered = sort(x, dim, descending=largest).values
    return Extremes(call("narrow", ordered, dim, 0, k), Indices())
