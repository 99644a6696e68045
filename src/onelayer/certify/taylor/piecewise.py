"""Piecewise functions: exact in the boxes that decide them, enclosed in the others.

Everything rests on |y|. Where the sign of y is undecided, y in [lo, hi] and w = max(-lo, hi), the best quadratic gives
| |y| - (y^2 / w + w / 8) | <= w / 8; where the interval is lopsided the chord is better:
| |y| - (s y + m) | <= m with s = (hi + lo) / (hi - lo), m = -lo hi / (hi - lo). Both shrink with the box.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onelayer.certify.taylor.arithmetic import combine, mul, multiply, operand, scale
from onelayer.certify.taylor.core import TaylorModel, constant, joint_shape, prune, spread
from onelayer.certify.taylor.registry import call, canonical_name, implements
from onelayer.certify.taylor.rounding import UNIT, inflate
from onelayer.certify.taylor.shapes import common
from onelayer.errors import UnsupportedOperation


@implements("abs")
def abs_(x: TaylorModel) -> TaylorModel:
    x = prune(x)
    lower, upper = x.range()
    sign = (lower >= 0).double() - ((lower < 0) & (upper <= 0)).double()
    decided = x.with_(x.coef * sign, x.rem)
    open_ = sign == 0
    if not bool(open_.any()):
        return decided
    return _insert(decided, open_, _kink(_entries(x, open_), lower[open_], upper[open_], open_))


def _entries(x: TaylorModel, mask: Tensor) -> TaylorModel:
    """The entries of a model under a mask, as a flat model of exact operations."""
    return TaylorModel(x.coef[:, mask], x.rem[mask], x.untag().space, x.support, x.degree)


def _insert(x: TaylorModel, mask: Tensor, entries: TaylorModel) -> TaylorModel:
    """The model with the entries under the mask replaced."""
    whole, part = common([x, entries.tagged(x.execution)])
    coef, rem = whole.coef.clone(), whole.rem.clone()
    coef[:, mask], rem[mask] = part.coef, part.rem
    return whole.with_(coef, rem)


def _kink(y: TaylorModel, lower: Tensor, upper: Tensor, mask: Tensor) -> TaylorModel:
    """|y| for the entries under ``mask``, where the sign of y is undecided."""
    enclosed = _across(y, lower, upper)
    sides = y.space.sides
    return enclosed if sides is None else sides.absolute(y, enclosed, mask.nonzero()[:, 0])


def _across(y: TaylorModel, lower: Tensor, upper: Tensor) -> TaylorModel:
    """|y| by one polynomial on both sides of its kink."""
    width = torch.maximum(-lower, upper).clamp(min=2.0**-960)  # any wider interval is right, and 1 / width exists
    spread_ = upper - lower
    chord = -lower / spread_ * upper
    use_chord = chord < width / 8
    flat = scale(y, constant((upper + lower) / spread_, y))
    curved = scale(multiply(y, y), constant(1 / width, y))
    # Any slope s and offset m are right once the remainder covers both ends and the kink.
    slope = (upper + lower) / spread_
    offset = torch.where(use_chord, chord, width / 8)
    gap = torch.maximum((1 - slope) * upper, -(1 + slope) * lower)
    radius = torch.where(use_chord, torch.maximum(gap - chord, chord), width / 8)
    base, bent = common([flat, curved])
    coef = torch.where(use_chord, base.coef, bent.coef)
    coef[0] = coef[0] + offset
    rem = torch.where(use_chord, base.rem, bent.rem)
    return base.with_(coef, inflate(rem + radius + 8 * UNIT * (width + offset)))


@implements("relu")
def relu(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    x = prune(x)
    lower, upper = x.range()
    keep = (lower >= 0).double()
    decided = x.with_(x.coef * keep, torch.where(upper <= 0, 0.0, x.rem))
    open_ = ~((lower >= 0) | (upper <= 0))
    if not bool(open_.any()):
        return decided
    part = _entries(x, open_)
    half = mul(combine(part, _kink(part, lower[open_], upper[open_], open_), 1), 0.5)
    return _insert(decided, open_, half)


@implements("maximum", "fmax")
def maximum(a: Any, b: Any) -> TaylorModel:
    return _extreme(a, b, 1)


@implements("minimum", "fmin")
def minimum(a: Any, b: Any) -> TaylorModel:
    return _extreme(a, b, -1)


def _extreme(a: Any, b: Any, sign: int) -> TaylorModel:
    """max (sign 1) or min (-1): the operand itself where the box decides, else (a + b + sign |a - b|) / 2."""
    like = a if isinstance(a, TaylorModel) else b
    a, b = operand(a, like).plain(), operand(b, like).plain()
    shape = joint_shape(a.shape, b.shape)
    a, b = (m.with_(spread(m.coef, len(shape)).expand(-1, *shape), m.rem.expand(shape)) for m in (a, b))
    gap = prune(combine(a.untag(), b.untag(), -1))
    lower, upper = gap.range()
    first, second = (lower >= 0, upper <= 0) if sign > 0 else (upper <= 0, lower >= 0)
    left, right = common([a, b])
    decided = left.with_(torch.where(first, left.coef, right.coef), torch.where(first, left.rem, right.rem))
    open_ = ~(first | second)
    if not bool(open_.any()):
        return decided
    kink = _kink(_entries(gap, open_), lower[open_], upper[open_], open_)
    both = combine(_entries(left, open_), _entries(right, open_), 1)
    return _insert(decided, open_, mul(combine(both, kink, sign), 0.5))


@implements("clamp", "hardtanh")
def clamp(x: TaylorModel, min: Any = None, max: Any = None, **names: Any) -> TaylorModel:
    low, high = names.get("min_val", min), names.get("max_val", max)
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


@implements("relu6")
def relu6(x: TaylorModel, inplace: bool = False) -> TaylorModel:
    return clamp(x, 0.0, 6.0)


@implements("leaky_relu")
def leaky_relu(x: TaylorModel, negative_slope: float = 0.01, inplace: bool = False) -> TaylorModel:
    return maximum(x, mul(x, negative_slope)) if negative_slope <= 1 else minimum(x, mul(x, negative_slope))


@implements("elu")
def elu(x: TaylorModel, alpha: float = 1.0, inplace: bool = False) -> TaylorModel:
    """max(x, 0) + alpha (e^min(x, 0) - 1)."""
    return combine(relu(x), mul(call("expm1", minimum(x, 0.0)), alpha), 1)


@implements("sign", "sgn")
def sign(x: TaylorModel) -> TaylorModel:
    lower, upper = x.range()
    value = (lower > 0).double() - (upper < 0).double()
    unsure = torch.where(torch.isfinite(upper - lower), torch.ones_like(value), torch.inf)
    return TaylorModel(value[None], torch.where(value == 0, unsure, 0.0), x.space, (), 0)


class Extremes(NamedTuple):
    """What torch.max and torch.sort return; which entry it was depends on the point of the box."""

    values: TaylorModel
    indices: None = None


@implements("amax")
def amax(x: TaylorModel, dim: Any = None, keepdim: bool = False) -> TaylorModel:
    return _reduce(x, dim, keepdim, maximum)


@implements("amin")
def amin(x: TaylorModel, dim: Any = None, keepdim: bool = False) -> TaylorModel:
    return _reduce(x, dim, keepdim, minimum)


@implements("max")
def max_(x: TaylorModel, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        return amax(x)
    return Extremes(amax(x, dim, keepdim)) if isinstance(dim, int) else maximum(x, dim)


@implements("min")
def min_(x: TaylorModel, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        return amin(x)
    return Extremes(amin(x, dim, keepdim)) if isinstance(dim, int) else minimum(x, dim)


def _reduce(x: TaylorModel, dim: Any, keepdim: bool, better: Any) -> TaylorModel:
    """A tournament along each dimension."""
    dims = list(range(x.ndim)) if dim is None or dim == () else [dim] if isinstance(dim, int) else list(dim)
    dims = sorted({d % x.ndim for d in dims})
    for d in dims:
        while x.shape[d] > 1:
            half = x.shape[d] // 2
            first, second = call("narrow", x, d, 0, half), call("narrow", x, d, half, half)
            rest = call("narrow", x, d, 2 * half, x.shape[d] - 2 * half)
            x = better(first, second)
            x = call("cat", [x, rest], d) if rest.shape[d] else x
    return x if keepdim else call("squeeze", x, dims)


@implements("sort")
def sort(x: TaylorModel, dim: int = -1, descending: bool = False, stable: bool = False) -> Extremes:
    """A transposition network: n rounds of comparisons between neighbours, alternately even and odd."""
    rows = list(call("unbind", x, dim))
    for turn in range(len(rows)):
        for i in range(turn % 2, len(rows) - 1, 2):
            low, high = minimum(rows[i], rows[i + 1]), maximum(rows[i], rows[i + 1])
            rows[i], rows[i + 1] = (high, low) if descending else (low, high)
    return Extremes(call("stack", rows, dim))


@implements("msort")
def msort(x: TaylorModel) -> TaylorModel:
    return sort(x, 0).values


@implements("topk")
def topk(x: TaylorModel, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extremes:
    return Extremes(call("narrow", sort(x, dim, descending=largest).values, dim, 0, k))


class Condition:
    """A comparison per entry: surely true, surely false, or depending on the point of the box."""

    def __init__(self, true: Tensor, false: Tensor) -> None:
        self.true = true
        self.false = false

    def __invert__(self) -> Condition:
        return Condition(self.false, self.true)

    def __and__(self, other: Any) -> Condition:
        other = _condition(other)
        return Condition(self.true & other.true, self.false | other.false)

    def __or__(self, other: Any) -> Condition:
        return ~(~self & ~_condition(other))

    __rand__, __ror__ = __and__, __or__

    def __bool__(self) -> bool:
        raise UnsupportedOperation("bool", "a branch on the value of a Taylor model; use torch.where")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return call(canonical_name(func), *args, **(kwargs or {}))


def _condition(value: Any) -> Condition:
    if isinstance(value, Condition):
        return value
    mask = torch.as_tensor(value)
    return Condition(mask, ~mask)


@implements("gt", "ge")
def gt(a: Any, b: Any) -> Condition:
    """Equality may go either way at single points, so > and >= share their sure cases only where they are strict."""
    first, second = _both(a, b)
    lower, upper = combine(first, second, -1).range()
    return Condition(lower > 0, upper < 0)


@implements("lt", "le")
def lt(a: Any, b: Any) -> Condition:
    return ~gt(a, b)


def _both(a: Any, b: Any) -> tuple[TaylorModel, TaylorModel]:
    like = a if isinstance(a, TaylorModel) else b
    return operand(a, like).untag(), operand(b, like).untag()


@implements("logical_not")
def logical_not(a: Any) -> Condition:
    return ~_condition(a)


@implements("logical_and")
def logical_and(a: Any, b: Any) -> Condition:
    return _condition(a) & _condition(b)


@implements("logical_or")
def logical_or(a: Any, b: Any) -> Condition:
    return _condition(a) | _condition(b)


@implements("where")
def where(condition: Any, a: Any, b: Any) -> TaylorModel:
    """a or b where the box decides; otherwise both: (a + b) / 2 +- |a - b| / 2."""
    condition = _condition(condition)
    like = next(x for x in (a, b, None) if x is None or isinstance(x, TaylorModel))
    if like is None:
        raise UnsupportedOperation("where", "one of the two values must depend on the variables")
    a, b = operand(a, like).plain(), operand(b, like).plain()
    shape = joint_shape(joint_shape(a.shape, b.shape), condition.true.shape)
    a, b = (m.with_(spread(m.coef, len(shape)).expand(-1, *shape), m.rem.expand(shape)) for m in (a, b))
    left, right = common([a, b])
    result = left.with_(
        torch.where(condition.true, left.coef, right.coef), torch.where(condition.true, left.rem, right.rem)
    )
    open_ = (~(condition.true | condition.false)).expand(shape)
    if not bool(open_.any()):
        return result
    first, second = _entries(left, open_), _entries(right, open_)
    middle = mul(combine(first, second, 1), 0.5)
    return _insert(result, open_, middle.with_radius(mul(combine(first, second, -1), 0.5).bound()))


@implements("masked_fill")
def masked_fill(x: TaylorModel, mask: Tensor, value: float) -> TaylorModel:
    """Constant mask; a masked logit of -inf is recognised by softmax."""
    shape = joint_shape(x.shape, mask.shape)
    x = x.with_(spread(x.coef, len(shape)).expand(-1, *shape), x.rem.expand(shape))
    coef = torch.where(mask, 0.0, x.coef)
    coef[0] = torch.where(mask, float(value), coef[0])
    return x.with_(coef, torch.where(mask, 0.0, x.rem))
