"""Addition, multiplication and division of Taylor models, with constants and with each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor import basis, kernels
from onelayer.taylor.core import Space, TaylorModel, constant, joint_space, lift, prune, spread, truncate
from onelayer.taylor.dimensions import joint_shape
from onelayer.taylor.elementary import smallest_size
from onelayer.taylor.registry import implements
from onelayer.taylor.rounding import UNDERFLOW, UNIT, conversion_error, executed, execution_step, gamma, inflate

Places = tuple[tuple[int, ...], tuple[int, ...], int]


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
    if error is None:
        return model
    return model.with_radius(error)


def size_of(value: Tensor | TaylorModel) -> Tensor:
    """Upper bound of |value|, pending denominators included, infinite where one of them may vanish."""
    if not isinstance(value, TaylorModel):
        return value.detach().double().abs()
    size = value.magnitude()
    # Denominators are sums of exponentials: positive, or not known to be anything.
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
    """-a, exactly."""
    return a.with_(-a.coef, a.rem, a.den)


@implements("pos", "positive", lazy=True)
def pos(a: TaylorModel) -> TaylorModel:
    """a itself."""
    return a


@implements("add", lazy=True)
def add(a: Any, other: Any, *, alpha: float = 1) -> TaylorModel:
    """a + alpha b, as torch has it."""
    return combine(a, _times(other, alpha, a), 1)


@implements("sub", lazy=True)
def sub(a: Any, other: Any, *, alpha: float = 1) -> TaylorModel:
    """a - alpha b, as torch has it."""
    return combine(a, _times(other, alpha, a), -1)


def _times(value: Any, alpha: float, like: Any) -> Any:
    if alpha == 1:
        return value
    factor = value if isinstance(value, TaylorModel) else operand(value, like)
    return mul(factor, alpha)


def combine(a: Any, b: Any, sign: int) -> TaylorModel:
    """a + sign b: coefficients add, remainders add, each rounded sum errs by u times its own size."""
    a, b = pair(a, b)
    # Numerators over one denominator add up; otherwise both are divided first.
    pending = zip(a.den, b.den, strict=False)
    same = len(a.den) == len(b.den) and all(p is q for p, q in pending)
    den = a.den if same else ()
    if not den:
        a = a.plain()
        b = b.plain()
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    a, b = (truncate(x, space.cap(len(support))) for x in (a, b))
    shape = joint_shape(a.shape, b.shape)
    degree = max(a.degree, b.degree)
    if kernels.ready(a.coef, b.coef, a.rem, b.rem):
        # Roundings of a pending quotient count in units of its denominator, which the kernel does not know.
        step = execution_step(None if den else space.execution, 1)
        found = kernels.add(a, b, support, degree, sign, 1.01 * UNIT, shape, step)
        result = known(found, space, support, degree, den)
        if not den:
            return result
    else:
        a = lift(a, support, degree)
        b = lift(b, support, degree)
        left = spread(a.coef, len(shape))
        right = spread(b.coef, len(shape))
        coef = _add_rows(left, right, shape, sign)
        result = TaylorModel(coef, a.rem, space, support, degree, den)
        result.rem = inflate(a.rem + b.rem + (1.01 * UNIT) * result.total())
    if space.execution is not None:
        result.rem = executed(result.rem, result.magnitude(), 1, space.execution, unit_of(result))
    return result


def known(
    found: kernels.Result, space: Space, support: tuple[int, ...], degree: int, den: tuple[TaylorModel, ...] = ()
) -> TaylorModel:
    """A model whose sums are known with it."""
    model = TaylorModel(found.coef, found.rem, space, support, degree, den)
    model._norms = found.norms
    model._total = found.total
    return model


def _add_rows(a: Tensor, b: Tensor, shape: torch.Size, sign: int) -> Tensor:
    """a + sign b where one may have more degrees: graded order makes the lower ones a prefix."""
    common = min(len(a), len(b))
    low = torch.add(a[:common], b[:common], alpha=sign)
    if len(a) == len(b):
        return low
    if len(a) > common:
        tail = a[common:]
    else:
        tail = b[common:] if sign > 0 else -b[common:]
    return torch.cat([low, tail.expand(len(tail), *shape)])


@implements("mul", lazy=True)
def mul(a: Any, other: Any) -> TaylorModel:
    """a b."""
    a, b = pair(a, other)
    # A constant factor leaves a pending quotient pending, and every degree where it is.
    if _is_constant(a):
        result = scale(b, a)
    elif _is_constant(b):
        result = scale(a, b)
    else:
        return multiply(prune(a.plain()), prune(b.plain()), roundings=1)
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
    # One rounding per coefficient; what the constant itself is not known by multiplies all of a.
    own = factor.abs() * (a.rem + (1.01 * UNIT) * a.total())
    rem = inflate(own + c.rem * a.magnitude())
    return TaylorModel(coef, rem.expand(shape), joint_space(a, c), a.support, a.degree, a.den)


def multiply(a: TaylorModel, b: TaylorModel, cap: int | None = None, roundings: int | None = None) -> TaylorModel:
    """The product, truncated at degree ``cap``: (p + R)(q + S) = [pq] + ([pq above cap] + |p| S + |q| R + R S).

    With ``roundings`` it is the product as executed in the format of the operands, if they have one.
    """
    _nothing_pending(a, b)
    space = joint_space(a, b)
    support = tuple(sorted({*a.support, *b.support}))
    degree = min(a.degree + b.degree, space.cap(len(support)) if cap is None else cap)
    shape = joint_shape(a.shape, b.shape)
    # One pass over the longer operand per row of the shorter.
    if len(a.coef) > len(b.coef):
        a, b = b, a
    where = places(a, b, support)
    terms = basis.count(len(support), degree)
    dtype = None if roundings is None else space.execution
    if kernels.ready(a.coef, b.coef, a.rem, b.rem):
        step = execution_step(dtype, roundings or 0)
        found = kernels.product(a, b, where, degree, gamma(terms), shape, step)
        return known(found, space, support, degree)
    left = spread(a.coef, len(shape))
    right = spread(b.coef, len(shape))
    coef = left.new_zeros(terms, *shape)
    for i, runs in basis.product_runs(*where, a.degree, b.degree, degree):
        for source, target, length in runs:
            coef[target : target + length].addcmul_(left[i], right[source : source + length])
    rem = inflate(product_remainder(a, b, degree, terms))
    result = TaylorModel(coef, rem.expand(shape), space, support, degree)
    if dtype is not None:
        result.rem = executed(result.rem, result.magnitude(), roundings or 0, dtype)
    return result


def _nothing_pending(*models: TaylorModel) -> None:
    if any(model.den for model in models):
        raise TypeError("pending denominators must be carried out before a product or a quotient")


def places(a: TaylorModel, b: TaylorModel, support: tuple[int, ...]) -> Places:
    """Positions of the operands' variables within ``support``, and its size."""
    where = {v: i for i, v in enumerate(support)}
    first, second = (tuple(where[v] for v in x.support) for x in (a, b))
    return first, second, len(support)


def product_remainder(a: TaylorModel, b: TaylorModel, degree: int, terms: int) -> Tensor:
    """Remainder of a truncated product: dropped degrees, cross terms, rounding of at most ``terms`` fused sums."""
    left = a.total()
    right = b.total()
    cross = left * b.rem + a.rem * (right + b.rem)
    rem = cross + gamma(terms) * (left * right)
    return rem + dropped(a.norms(), b.norms(), degree)


def dropped(left: Tensor, right: Tensor, degree: int) -> Tensor | float:
    """Bound of the part of a product above ``degree``: sum of |p|_d |q|_e over d + e > degree."""
    total: Tensor | float = 0.0
    # Degrees of p that can reach beyond: below, even the highest degree of q stays within.
    first = max(0, degree + 2 - len(right))
    for d in range(first, len(left)):
        beyond = right[max(degree + 1 - d, 0) :]
        total = total + left[d] * beyond.sum(0)
    return total


@implements("square")
def square(a: TaylorModel) -> TaylorModel:
    """a^2, which is never negative."""
    return mul(a, a)


@implements("div")
def div(a: Any, other: Any, *, rounding_mode: str | None = None) -> TaylorModel:
    """Division by or of a number may be executed as a product with a reciprocal, which over- or underflows by itself.

    Torch writes k / x for a number k as x.reciprocal() * k on every machine.
    """
    if rounding_mode is not None:
        raise UnsupportedOperation(f"div(rounding_mode={rounding_mode!r})")
    of_a_number = not isinstance(a, Tensor | TaylorModel)
    a, b = pair(a, other)
    result = divide(a, prune(b))
    if result.execution is None:
        return result
    unit: Tensor | float = 1.0
    # As a product with 1 / b: the inverse must not overflow, and what it lost below the normal numbers meets a.
    if of_a_number or _is_constant(b):
        inverse = 1 / smallest_size(*b.range())
        result.rem = executed(result.rem, inverse, 0, result.execution)
        unit = 1 + a.magnitude()
    result.rem = executed(result.rem, result.magnitude(), 3, result.execution, unit)
    return result


@implements("reciprocal")
def reciprocal(a: TaylorModel) -> TaylorModel:
    """1 / a."""
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
    a = lift(a, support, cap)
    b = truncate(b, cap)
    where = places(a, b, support)
    if kernels.ready(a.coef, b.coef, a.rem, b.rem):
        rounding = gamma(basis.count(len(support), degree) + 3)
        found = kernels.quotient(a, b, where, degree, rounding, shape)
        return known(found, space, support, degree)
    rest = _series_quotient(a.coef, b, where, degree, shape)
    result = TaylorModel(rest, b.rem.expand(shape), space, support, degree)
    result.rem = _quotient_remainder(a, b, result)
    return result


def _series_quotient(a: Tensor, b: TaylorModel, where: Places, degree: int, shape: torch.Size) -> Tensor:
    """Coefficients up to ``degree`` of the power series a / b, row after row."""
    _, positions, variables = where
    right = spread(b.coef, len(shape))
    rest = right.new_zeros(basis.count(variables, degree), *shape)
    rest[: len(a)] = spread(a, len(shape))
    # Long division: once row j of the quotient is known, its products with b leave all later rows.
    for j, runs in basis.product_runs(tuple(range(variables)), positions, variables, degree, b.degree, degree):
        rest[j] /= right[0]
        for source, target, length in runs:
            skip = int(source == 0)  # times the leading coefficient, row j is what was just divided
            if length > skip:
                piece = right[source + skip : source + length]
                rest[target + skip : target + length].addcmul_(rest[j], piece, value=-1)
    return rest


def _quotient_remainder(a: TaylorModel, b: TaylorModel, result: TaylorModel) -> Tensor:
    """|a - q b| / min|b|: remainders of both, degrees above the cap, and the rounding of the division."""
    norm = result.total()
    size = b.total()
    rows = len(result.coef)
    rounding = gamma(rows + 3) * (a.total() + norm * size) + (UNDERFLOW * rows) * size
    beyond = dropped(result.norms(), b.norms(), result.degree)
    defect = inflate(a.rem + norm * b.rem + beyond + rounding)
    # min|b| where b keeps its sign, and not positive where it may vanish.
    lower, upper = b.range()
    gap = torch.maximum(lower, -upper)
    return torch.where(gap > 0, inflate(defect / gap), torch.inf)
