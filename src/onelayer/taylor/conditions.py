"""Comparisons, and what is chosen by them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.arithmetic import combine, mul, operand
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.dimensions import joint_shape
from onelayer.taylor.opaque import ARITHMETIC, CONTAINER, IN_PLACE, INTEGERS, Opaque, refusing
from onelayer.taylor.piecewise import entries, expanded, insert
from onelayer.taylor.registry import call, canonical_keywords, canonical_name, implements
from onelayer.taylor.shapes import common


@refusing(IN_PLACE + INTEGERS + ARITHMETIC + CONTAINER)
class Comparison(Opaque):
    """A comparison per entry: surely true, surely false, or depending on the point of the box.

    ``undecided``: where what is compared may have no value, so that the outcome has none either.
    """

    what = "a comparison"
    hint = "use torch.where to choose by it"

    def __init__(self, true: Tensor, false: Tensor, undecided: Tensor) -> None:
        self.true = true
        self.false = false
        self.undecided = undecided

    @property
    def shape(self) -> torch.Size:
        """The shape of what is compared."""
        return self.true.shape

    def __invert__(self) -> Comparison:
        return Comparison(self.false, self.true, self.undecided)

    def __and__(self, other: Any) -> Comparison:
        other = _condition(other)
        false = self.false | other.false
        undecided = self.undecided | other.undecided
        return Comparison(self.true & other.true, false, undecided)

    def __or__(self, other: Any) -> Comparison:
        # De Morgan: what is surely true and false is said once.
        return ~(~self & ~_condition(other))

    __rand__, __ror__ = __and__, __or__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if any(getattr(kind, "carries_tangents", False) for kind in types):
            return NotImplemented  # a value with its derivatives knows better (taylor/dual.py)
        return call(canonical_name(func), *args, **canonical_keywords(kwargs or {}))


def _condition(value: Any) -> Comparison:
    if isinstance(value, Comparison):
        return value
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        raise UnsupportedOperation("a condition that is no comparison", "use >, >=, <, <= or a tensor of bools")
    return Comparison(value, ~value, torch.zeros_like(value))


@implements("gt")
def gt(x: Any, other: Any) -> Comparison:
    """a > b."""
    lower, upper, undecided = _gap(x, other)
    return Comparison(lower > 0, upper <= 0, undecided)


@implements("ge")
def ge(x: Any, other: Any) -> Comparison:
    """a >= b."""
    lower, upper, undecided = _gap(x, other)
    return Comparison(lower >= 0, upper < 0, undecided)


@implements("lt")
def lt(x: Any, other: Any) -> Comparison:
    """a < b."""
    return ~ge(x, other)


@implements("le")
def le(x: Any, other: Any) -> Comparison:
    """a <= b."""
    return ~gt(x, other)


@implements("eq")
def eq(x: Any, other: Any) -> Comparison:
    """a == b."""
    lower, upper, undecided = _gap(x, other)
    same = (lower == 0) & (upper == 0)
    apart = (lower > 0) | (upper < 0)
    return Comparison(same, apart, undecided)


@implements("ne")
def ne(x: Any, other: Any) -> Comparison:
    """a != b."""
    return ~eq(x, other)


def _gap(x: Any, other: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds of x - other over each box, and where it may have no value."""
    like = x if isinstance(x, TaylorModel) else other
    gap = combine(operand(x, like).untag(), operand(other, like).untag(), -1)
    # A hull speaks of x itself, which the difference is when zero is subtracted.
    if isinstance(x, TaylorModel) and x.hull is not None and _is_zero(other):
        gap = gap.with_hull(*x.hull)
    lower, upper = gap.range()
    return lower, upper, ~gap.decided()


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


@implements("logical_not", opaque=True)
def logical_not(x: Any) -> Comparison:
    """Not a."""
    return ~_condition(x)


@implements("logical_and", opaque=True)
def logical_and(x: Any, other: Any) -> Comparison:
    """a and b."""
    return _condition(x) & _condition(other)


@implements("logical_or", opaque=True)
def logical_or(x: Any, other: Any) -> Comparison:
    """a or b."""
    return _condition(x) | _condition(other)


@implements("where", opaque=True)
def where(condition: Any, input: Any, other: Any) -> TaylorModel:
    """The first or the second where the box decides; otherwise both: (a + b) / 2 +- |a - b| / 2."""
    condition = _condition(condition)
    like = next((x for x in (input, other) if isinstance(x, TaylorModel)), None)
    if like is None:
        raise UnsupportedOperation("where of two constants", "one of the two must depend on the variables")
    a = operand(input, like).plain()
    b = operand(other, like).plain()
    shape = joint_shape(joint_shape(a.shape, b.shape), condition.shape)
    left, right = common([expanded(a, shape), expanded(b, shape)])
    true = condition.true.expand(shape)
    false = condition.false.expand(shape)
    coef = torch.where(true, left.coef, right.coef)
    result = left.with_(coef, torch.where(true, left.rem, right.rem))
    # Only the entries that are open are worked on: most boxes decide.
    open_ = ~(true | false)
    if bool(open_.any()):
        first = entries(left, open_)
        second = entries(right, open_)
        middle = mul(combine(first, second, 1), 0.5)
        half_apart = mul(combine(first, second, -1), 0.5)
        result = insert(result, open_, middle.with_radius(half_apart.bound()))
    # A choice by what has no value has none, whatever it chooses among.
    return result.with_(result.coef, torch.where(condition.undecided, torch.inf, result.rem))


@implements("masked_fill", opaque=True)
def masked_fill(x: TaylorModel, mask: Any, value: Any) -> TaylorModel:
    """Constant mask; a masked logit of -inf is recognised by softmax."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise UnsupportedOperation("masked_fill by a comparison", "use torch.where to choose by it")
    x = x.plain()
    filled = operand(value, x)
    if filled.support or filled.ndim:
        raise UnsupportedOperation("masked_fill with more than a number", "use torch.where")
    # Every format holds -inf, so it has no remainder: by that softmax knows a mask from an overflow.
    x = expanded(x, joint_shape(x.shape, mask.shape))
    coef = torch.where(mask, 0.0, x.coef)
    coef[0] = torch.where(mask, filled.coef[0], coef[0])
    return x.with_(coef, torch.where(mask, filled.rem, x.rem))
