"""Addition, multiplication and division of Taylor models, with constants and with each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor import basis
from onelayer.taylor.core import TaylorModel, constant, joint_shape, joint_space, lift, prune, spread, truncate
from onelayer.taylor.elementary import smallest_size
from onelayer.taylor.registry import implements
from onelayer.taylor.rounding import UNDERFLOW, UNIT, conversion_error, executed, gamma, inflate


def pair(a: Any, b: Any) -> tuple[TaylorModel, TaylorModel]:
    """Both operands as models; a constant that the executing type cannot hold gets its conversion error as radius."""
    like = a if isinstance(a, TaylorModel) else b
    return operand(a, like), operand(b, like)


def operand(value: Any, like: TaylorModel) -> TaylorModel:
    """A model as it is, a number or tensor as a constant model."""
    if isinstance(value, TaylorModel):
        return value
    model = constant(value, like)
    error = conversion_error(model.coef[0], like.execution)
    return model if error is None else model.with_radius(error)


def size_of(value: Tensor | TaylorModel) -> Tensor:
    """Upper bound of |value|, pending denominators included, infinite where one of them may vanish."""
    if not isinstance(value, TaylorModel):
        return value.detach().double().abs()
    size = value.magnitude()
    for factor in value.den:
        lower = factor.range()[0]
        size = torch.where(lower > 0, inflate(size / lower), torch.inf)
    return size


def unit_of(x: TaylorModel) -> Tensor | float:
    """Upper bound of the product of the pending denominators."""
    unit: Tensor | float = 1.0
    for factor in x.den:
        unit = inflate(factor.magnitude() * unit)
    return unit


@implements("neg", lazy=True)
def neg(a: TaylorModel) -> TaylorModel:
    return a.with_(-a.coef, a.rem, a.den)


@implements("pos", "positive", lazy=True)
def pos(a: TaylorModel) -> TaylorModel:
    return a


@implements("add", lazy=True)
def add(a: Any, other: Any, *, alpha: float = 1) -> TaylorModel:
    return combine(a, _times(other, alpha, a), 1)


@implements("sub", lazy=True)
def sub(a: Any, other: Any, *, alpha: float = 1) -> TaylorModel:
    return combine(a, _times(other, alpha, a), -1)


def _times(value: Any, alpha: float, like: Any) -> Any:
    if alpha == 1:
        return value
    return mul(value if isinstance(value, TaylorModel) else operand(value, like), alpha)


def combine(a: Any, b: Any, sign: int) -> TaylorModel:
    """a + sign b: coefficients add, remainders add, each rounded sum errs by u times its own size."""
    a, b = pair(a, b)
    same = len(a.den) == len(b.den) and all(p is q for p, q in zip(a.den, b.den, strict=True))
    den = a.den if same else ()
    if not den:
        a, b = a.plain(), b.plain()
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    cap = space.cap(len(support))
    a, b = lift(a, support, cap), lift(b, support, cap)
    shape = joint_shape(a.shape, b.shape)
    coef = _add_rows(spread(a.coef, len(shape)), spread(b.coef, len(shape)), shape, sign)
    result = TaylorModel(coef, a.rem, space, support, max(a.degree, b.degree), den)
    result.rem = inflate(a.rem + b.rem + (1.01 * UNIT) * result.total())
    if space.execution is not None:
        result.rem = executed(result.rem, result.magnitude(), 1, space.execution, unit_of(result))
    return result


def _add_rows(a: Tensor, b: Tensor, shape: torch.Size, sign: int) -> Tensor:
    common = min(len(a), len(b))
    low = torch.add(a[:common], b[:common], alpha=sign)
    if len(a) == len(b):
        return low
    tail = a[common:] if len(a) > common else (b[common:] if sign > 0 else -b[common:])
    return torch.cat([low, tail.expand(len(tail), *shape)])


@implements("mul", lazy=True)
def mul(a: Any, other: Any) -> TaylorModel:
    a, b = pair(a, other)
    if _is_constant(a):
        result = scale(b, a)
    elif _is_constant(b):
        result = scale(a, b)
    else:
        result = multiply(prune(a.plain()), prune(b.plain()))
    if result.execution is not None:
        result.rem = executed(result.rem, result.magnitude(), 1, result.execution, unit_of(result))
    return result


def _is_constant(x: TaylorModel) -> bool:
    """Whether the model is one number per entry, up to its remainder: no variables, and no denominator with some."""
    return not x.support and not x.den


def scale(a: TaylorModel, c: TaylorModel) -> TaylorModel:
    """A model times a constant one."""
    if not _is_constant(c):
        raise TypeError("a factor that varies over the box is no constant")
    if a.den and c.ndim > a.ndim:
        a = a.plain()
    shape = joint_shape(a.shape, c.shape)
    factor = c.coef[0]
    coef = spread(a.coef, len(shape)) * factor
    rem = inflate(factor.abs() * (a.rem + (1.01 * UNIT) * a.total()) + c.rem * a.magnitude())
    return TaylorModel(coef, rem.expand(shape), joint_space(a, c), a.support, a.degree, a.den)


def multiply(a: TaylorModel, b: TaylorModel, cap: int | None = None) -> TaylorModel:
    """The product, truncated at degree ``cap``: (p + R)(q + S) = [pq] + ([pq above cap] + |p| S + |q| R + R S)."""
    _nothing_pending(a, b)
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    degree = min(a.degree + b.degree, space.cap(len(support)) if cap is None else cap)
    shape = joint_shape(a.shape, b.shape)
    if len(a.coef) > len(b.coef):
        a, b = b, a
    left, right = spread(a.coef, len(shape)), spread(b.coef, len(shape))
    coef = left.new_zeros(basis.count(len(support), degree), *shape)
    for i, runs in basis.product_runs(*places(a, b, support), a.degree, b.degree, degree):
        for source, target, length in runs:
            coef[target : target + length].addcmul_(left[i], right[source : source + length])
    rem = inflate(product_remainder(a, b, degree, len(coef)))
    return TaylorModel(coef, rem.expand(shape), space, support, degree)


def _nothing_pending(*models: TaylorModel) -> None:
    if any(model.den for model in models):
        raise TypeError("pending denominators must be carried out before a product or a quotient")


def places(a: TaylorModel, b: TaylorModel, support: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Positions of the operands' variables within ``support``, and its size."""
    where = {v: i for i, v in enumerate(support)}
    return tuple(where[v] for v in a.support), tuple(where[v] for v in b.support), len(support)


def product_remainder(a: TaylorModel, b: TaylorModel, degree: int, terms: int) -> Tensor:
    """Remainder of a truncated product: dropped degrees, cross terms, rounding of at most ``terms`` fused sums."""
    left, right = a.total(), b.total()
    rem = left * b.rem + a.rem * (right + b.rem) + gamma(terms) * (left * right)
    return rem + dropped(a.norms(), b.norms(), degree)


def dropped(left: Tensor, right: Tensor, degree: int) -> Tensor | float:
    """Bound of the part of a product above ``degree``: sum of |p|_d |q|_e over d + e > degree."""
    total: Tensor | float = 0.0
    for d in range(max(0, degree + 2 - len(right)), len(left)):
        total = total + left[d] * right[max(degree + 1 - d, 0) :].sum(0)
    return total


@implements("square")
def square(a: TaylorModel) -> TaylorModel:
    return mul(a, a)


@implements("div")
def div(a: Any, other: Any, *, rounding_mode: str | None = None) -> TaylorModel:
    """Division by a number may be executed as a product with its reciprocal, which may over- or underflow by itself."""
    if rounding_mode is not None:
        raise UnsupportedOperation(f"div(rounding_mode={rounding_mode!r})")
    a, b = pair(a, other)
    result = divide(a, prune(b))
    if result.execution is None:
        return result
    unit: Tensor | float = 1.0
    if _is_constant(b):
        inverse = 1 / smallest_size(*b.range())
        result.rem = executed(result.rem, inverse, 0, result.execution)
        unit = 1 + a.magnitude()
    result.rem = executed(result.rem, result.magnitude(), 3, result.execution, unit)
    return result


@implements("reciprocal")
def reciprocal(a: TaylorModel) -> TaylorModel:
    return div(1.0, a)


@implements("quotient", lazy=True)
def quotient(x: TaylorModel) -> TaylorModel:
    """Carry out the pending divisions; their executed roundings are already in the numerator."""
    result = TaylorModel(x.coef, x.rem, x.space, x.support, x.degree)
    for factor in x.den:
        result = divide(result, factor)
    return result


def divide(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The quotient by its defect: with q the truncated power series of a / b, |a/b - q| <= |a - q b| / min|b|."""
    _nothing_pending(a, b)
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    cap = space.cap(len(support))
    shape = joint_shape(a.shape, b.shape)
    degree = cap if b.support else min(a.degree, cap)
    a, b = lift(a, support, cap), truncate(b, cap)
    right = spread(b.coef, len(shape))
    rest = right.new_zeros(basis.count(len(support), degree), *shape)
    rest[: len(a.coef)] = spread(a.coef, len(shape))
    whole, where = tuple(range(len(support))), places(a, b, support)[1]
    for j, runs in basis.product_runs(whole, where, len(support), degree, b.degree, degree):
        rest[j] /= right[0]
        for source, target, length in runs:
            skip = int(source == 0)
            if length > skip:
                piece = right[source + skip : source + length]
                rest[target + skip : target + length].addcmul_(rest[j], piece, value=-1)
    result = TaylorModel(rest, b.rem.expand(shape), space, support, degree)
    result.rem = _quotient_remainder(a, b, result)
    return result


def _quotient_remainder(a: TaylorModel, b: TaylorModel, result: TaylorModel) -> Tensor:
    norm, size = result.total(), b.total()
    rounding = gamma(len(result.coef) + 3) * (a.total() + norm * size) + UNDERFLOW * size
    defect = inflate(a.rem + norm * b.rem + dropped(result.norms(), b.norms(), result.degree) + rounding)
    lower, upper = b.range()
    gap = torch.maximum(lower, -upper)
    return torch.where(gap > 0, inflate(defect / gap), torch.inf)
