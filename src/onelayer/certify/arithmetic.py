"""Addition, multiplication and division of Taylor models, with constants and with each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.certify import basis
from onelayer.certify.core import Space, TaylorModel, constant, implements, joint_space, lift, spread, truncate
from onelayer.certify.rounding import UNIT, executed, execution_unit, gamma, inflate
from onelayer.errors import UnsupportedOperation


def pair(a: Any, b: Any) -> tuple[TaylorModel, TaylorModel]:
    """Both operands as models; a constant that the executing type cannot hold gets its conversion error as radius."""
    like = a if isinstance(a, TaylorModel) else b
    return _operand(a, like), _operand(b, like)


def _operand(value: Any, like: TaylorModel) -> TaylorModel:
    if isinstance(value, TaylorModel):
        return value
    model = constant(value, like)
    return model.with_(model.coef, conversion_error(model.coef[0], like.execution))


def conversion_error(value: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Radius of a float64 constant after it is cast to the executing type: zero where the cast is exact."""
    if dtype is None or dtype == torch.float64:
        return torch.zeros_like(value)
    exact = value.to(dtype).double() == value
    return torch.where(exact, 0.0, inflate(value.abs() * (1.01 * execution_unit(dtype))))


@implements("neg")
def neg(a: TaylorModel) -> TaylorModel:
    return a.with_(-a.coef, a.rem)


@implements("pos", "positive")
def pos(a: TaylorModel) -> TaylorModel:
    return a


@implements("add")
def add(a: Any, b: Any, *, alpha: float = 1) -> TaylorModel:
    return combine(a, b if alpha == 1 else mul(b, alpha), 1)


@implements("sub")
def sub(a: Any, b: Any, *, alpha: float = 1) -> TaylorModel:
    return combine(a, b if alpha == 1 else mul(b, alpha), -1)


@implements("rsub")
def rsub(a: Any, b: Any, *, alpha: float = 1) -> TaylorModel:
    return sub(b, a, alpha=alpha)


def combine(a: Any, b: Any, sign: int) -> TaylorModel:
    """a + sign b: coefficients add, remainders add, each rounded sum errs by u times its own size."""
    a, b = pair(a, b)
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    cap = space.cap(len(support))
    a, b = lift(a, support, cap), lift(b, support, cap)
    shape = torch.broadcast_shapes(a.shape, b.shape)
    degree = max(a.degree, b.degree)
    coef = _add_rows(spread(a.coef, len(shape)), spread(b.coef, len(shape)), shape, sign)
    result = TaylorModel(coef, a.rem, space, support, degree)
    result.rem = inflate(a.rem + b.rem + (1.01 * UNIT) * result.norm())
    result.rem = executed(result.rem, result.magnitude(), 1, space.execution)
    return result


def _add_rows(a: Tensor, b: Tensor, shape: torch.Size, sign: int) -> Tensor:
    common = min(len(a), len(b))
    low = torch.add(a[:common], b[:common], alpha=sign)
    if len(a) == len(b):
        return low.expand(common, *shape) if low.shape[1:] != shape else low
    tail = a[common:] if len(a) > common else (b[common:] if sign > 0 else -b[common:])
    return torch.cat([low, tail.expand(len(tail), *shape)])


@implements("mul")
def mul(a: Any, b: Any) -> TaylorModel:
    a, b = pair(a, b)
    result = scale(a, b) if not b.support else scale(b, a) if not a.support else multiply(a, b)
    result.rem = executed(result.rem, result.magnitude(), 1, result.space.execution)
    return result


def scale(a: TaylorModel, c: TaylorModel) -> TaylorModel:
    """A model times a model of degree 0."""
    shape = torch.broadcast_shapes(a.shape, c.shape)
    factor = c.coef[0]
    coef = spread(a.coef, len(shape)) * factor
    size = factor.abs()
    rem = inflate(size * (a.rem + (1.01 * UNIT) * a.norm()) + c.rem * a.magnitude())
    return TaylorModel(coef, rem.expand(shape), joint_space(a, c), a.support, a.degree)


def multiply(a: TaylorModel, b: TaylorModel, cap: int | None = None) -> TaylorModel:
    """The product, truncated at degree ``cap``: (p + R)(q + S) = [pq] + ([pq above cap] + |p| S + |q| R + R S)."""
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    degree = min(a.degree + b.degree, space.cap(len(support)) if cap is None else cap)
    shape = torch.broadcast_shapes(a.shape, b.shape)
    if len(a.coef) > len(b.coef):
        a, b = b, a
    coef = product_rows(spread(a.coef, len(shape)), spread(b.coef, len(shape)), a, b, support, degree, shape)
    rem = inflate(product_remainder(a, b, degree, len(coef)))
    return TaylorModel(coef, rem.expand(shape), space, support, degree)


def product_rows(
    left: Tensor,
    right: Tensor,
    a: TaylorModel,
    b: TaylorModel,
    support: tuple[int, ...],
    degree: int,
    shape: torch.Size,
) -> Tensor:
    """Rows of the product polynomial up to ``degree``, one fused multiply-add per run of monomials."""
    out = left.new_zeros(basis.count(len(support), degree), *shape)
    for i, runs in basis.product_runs(*_places(a, b, support), a.degree, b.degree, degree):
        for source, target, length in runs:
            out[target : target + length].addcmul_(left[i], right[source : source + length])
    return out


def _places(a: TaylorModel, b: TaylorModel, support: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    where = {v: i for i, v in enumerate(support)}
    return tuple(where[v] for v in a.support), tuple(where[v] for v in b.support), len(support)


def product_remainder(a: TaylorModel, b: TaylorModel, degree: int, terms: int) -> Tensor:
    """Remainder of a truncated product: dropped degrees, cross terms, rounding of at most ``terms`` fused sums."""
    left, right = a.norms(), b.norms()
    left_norm, right_norm = left.sum(0), right.sum(0)
    rem = left_norm * b.rem + a.rem * (right_norm + b.rem) + gamma(terms) * (left_norm * right_norm)
    for d in range(max(0, degree + 1 - b.degree), a.degree + 1):
        rem = rem + left[d] * right[max(degree + 1 - d, 0) :].sum(0)
    return rem


@implements("square")
def square(a: TaylorModel) -> TaylorModel:
    return mul(a, a)


@implements("div")
def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> TaylorModel:
    if rounding_mode is not None:
        raise UnsupportedOperation(f"div(rounding_mode={rounding_mode!r})")
    a, b = pair(a, b)
    result = divide(a, b)
    result.rem = executed(result.rem, result.magnitude(), 3, result.space.execution)
    return result


def divide(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The quotient by its defect: with q the truncated power series of a / b, |a/b - q| <= |a - q b| / min|b|."""
    space: Space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    cap = space.cap(len(support))
    shape = torch.broadcast_shapes(a.shape, b.shape)
    degree = cap if b.support else a.degree
    a, b = lift(a, support, cap), truncate(b, cap)
    right = spread(b.coef, len(shape))
    rest = right.new_zeros(basis.count(len(support), degree), *shape)
    rest[: len(a.coef)] = spread(a.coef, len(shape))
    whole = tuple(range(len(support)))
    places = _places(a, b, support)[1]
    for j, runs in basis.product_runs(whole, places, len(support), degree, b.degree, degree):
        rest[j] /= right[0]
        for source, target, length in runs:
            skip = int(source == 0)
            if length > skip:
                piece = right[source + skip : source + length]
                rest[target + skip : target + length].addcmul_(rest[j], piece, value=-1)
    quotient = TaylorModel(rest, b.rem.expand(shape), space, support, degree)
    quotient.rem = _quotient_remainder(a, b, quotient)
    return quotient


def _quotient_remainder(a: TaylorModel, b: TaylorModel, quotient: TaylorModel) -> Tensor:
    zero = torch.zeros_like(b.rem)
    defect = product_remainder(quotient.with_(quotient.coef, zero.expand(quotient.shape)), b, quotient.degree, 0)
    rounding = gamma(len(quotient.coef) + 3) * (a.norm() + quotient.norm() * b.norm())
    lower, upper = b.range()
    gap = torch.maximum(lower, -upper)
    rem = inflate(inflate(a.rem + defect + rounding) / gap)
    return torch.where(gap > 0, rem, torch.inf)


@implements("reciprocal")
def reciprocal(a: TaylorModel) -> TaylorModel:
    return div(1.0, a)
