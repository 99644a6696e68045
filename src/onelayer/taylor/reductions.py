"""Products, norms, variances and running sums along dimensions."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.taylor.arithmetic import combine, mul, operand, square
from onelayer.taylor.compose import compose, within_image
from onelayer.taylor.contraction import matmul, mean, sum_
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.dimensions import axes, axis
from onelayer.taylor.elementary import SQRT
from onelayer.taylor.piecewise import abs_, amax
from onelayer.taylor.registry import call, implements
from onelayer.taylor.rounding import check_cast, executed, inflate, relative_error, underflow_error


@implements("prod")
def prod_(x: TaylorModel, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> TaylorModel:
    """A product by pairs. Executed in any order, it must not overflow in any, and what underflows may be multiplied."""
    check_cast(x.execution, dtype)
    if dim is None:
        return prod_(call("flatten", x), 0)
    at = axis(x, dim)
    count = x.shape[at]
    # Every partial product, in whatever order, is at most the product of the sizes above 1.
    reach = inflate(x.magnitude().clamp(min=1).prod(at, keepdim=keepdim))
    while x.shape[at] > 1:
        half = x.shape[at] // 2
        rest = call("narrow", x, at, 2 * half, x.shape[at] - 2 * half)
        first = call("narrow", x, at, 0, half)
        second = call("narrow", x, at, half, half)
        x = mul(first, second)
        x = call("cat", [x, rest], at) if rest.shape[at] else x
    result: TaylorModel = x if keepdim else call("squeeze", x, at)
    if x.execution is not None:
        result.rem = executed(result.rem, reach, 0, x.execution, count * reach)
    return result


@implements("cumsum")
def cumsum(x: TaylorModel, dim: int, *, dtype: Any = None) -> TaylorModel:
    """Partial sums along a dimension, as a product with ones."""
    check_cast(x.execution, dtype)
    at = axis(x, dim)
    count = x.shape[at]
    lower = torch.ones(count, count, dtype=torch.float64, device=x.device).tril()
    summed = matmul(call("movedim", x, at, -1), lower.T)
    result: TaylorModel = call("movedim", summed, -1, at)
    return result


def root(x: TaylorModel) -> TaylorModel:
    """sqrt(x) for a model of a quantity that is never negative, even where its enclosure is."""
    result = compose(SQRT, x)
    _, upper = x.range()
    high = inflate(torch.sqrt(upper.clamp(min=0)))
    exact = within_image(result.untag(), torch.zeros_like(high), high, x.decided())
    exact.rem = executed(exact.rem, exact.magnitude(), 8, x.execution)
    return exact.tagged(x.execution)


@implements("linalg_vector_norm")
def vector_norm(
    x: TaylorModel, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TaylorModel:
    """Vector norms of order 1, 2 and infinity over the given dimensions (all by default)."""
    check_cast(x.execution, dtype)
    dims = axes(x, dim)
    if ord == 2:
        return root(sum_(square(x), dims, keepdim))
    if ord == 1:
        return sum_(abs_(x), dims, keepdim)
    if ord == inf:
        return amax(abs_(x), dims, keepdim)
    raise UnsupportedOperation(f"vector norm of order {ord!r}", "use 1, 2 or inf")


@implements("norm")
def norm(x: TaylorModel, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> TaylorModel:
    """torch.norm: the vector norm of order p over any dimensions; "fro" and None are order 2."""
    if p == "nuc":
        raise UnsupportedOperation("nuclear norm", "use a vector norm of order 1, 2 or inf")
    return vector_norm(x, 2 if p in (None, "fro") else p, dim, keepdim, dtype=dtype)


@implements("linalg_norm")
def linalg_norm(
    x: TaylorModel, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> TaylorModel:
    """torch.linalg.norm: with an order, two dimensions make a matrix norm, of which "fro" alone is a vector norm."""
    dims = axes(x, dim)
    matrix = ord is not None and len(dims) > 1
    if matrix and not (ord == "fro" and len(dims) == 2):
        raise UnsupportedOperation(f"matrix norm of order {ord!r}", "use 'fro', or torch.linalg.vector_norm")
    return vector_norm(x, 2 if ord is None or matrix else ord, dims, keepdim, dtype=dtype)


@implements("var")
def var(
    x: TaylorModel,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> TaylorModel:
    """Sum of square deviations over n - correction, Bessel's 1 by default; executed by any usual algorithm."""
    if isinstance(dim, bool):  # torch.var(x, unbiased)
        dim, unbiased = None, dim
    dims = axes(x, dim)
    count = prod(x.shape[d] for d in dims)
    freedom = max(0.0, count - float(unbiased if correction is None else correction))
    exact = x.untag()
    deviation = combine(exact, mean(exact, dims, keepdim=True), -1)
    total = sum_(square(deviation), dims, keepdim)
    result: TaylorModel = (total / freedom).tagged(x.execution)
    if x.execution is not None:
        # Known of a mean square, over n: here the sum is over n - correction.
        _, square_error = moment_errors(x, dims, keepdim)
        scale = count / freedom if freedom else inf
        result = result.with_radius(square_error * scale)
        result.rem = executed(result.rem, inflate(squares(x, dims, keepdim)), 4, x.execution)
    return result


def squares(x: TaylorModel, dims: list[int], keepdim: bool = True) -> Tensor:
    """Bound of every sum of squares, of entries or of deviations, that a variance may pass through on the way."""
    count = prod(x.shape[d] for d in dims)
    return 4 * count * x.magnitude().amax(dims, keepdim=keepdim).square()


def moment_errors(x: TaylorModel, dims: list[int], keepdim: bool = True) -> tuple[Tensor, Tensor]:
    """Executed errors of a mean and of a mean square deviation, by sums in any order or by running updates.

    With M the largest entry, a running mean errs by at most u M per step, n u M in all, and so does a deviation; a
    mean square, of entries up to M or of deviations up to 2 M, then errs by at most 8 (n + 8) u M^2. What underflows
    adds its own, once per step.
    """
    dtype = x.execution or torch.float64
    count = prod(x.shape[d] for d in dims)
    size = x.magnitude().amax(dims, keepdim=keepdim)
    step = relative_error(dtype, count + 8)
    tiny = underflow_error(dtype, 4 * count + 8)
    mean_error = inflate(step * size + tiny)
    lost = tiny * (1 + 8 * size)
    square_error = inflate(8 * step * size * size + lost)
    return mean_error, square_error


@implements("std")
def std(
    x: TaylorModel,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> TaylorModel:
    """The square root of the variance."""
    return root(var(x, dim, unbiased, keepdim, correction=correction))


@implements("hypot")
def hypot(x: Any, other: Any) -> TaylorModel:
    """sqrt(x^2 + y^2)."""
    like = x if isinstance(x, TaylorModel) else other
    first = square(operand(x, like))
    second = square(operand(other, like))
    return root(combine(first, second, 1))
