"""Products, norms, variances and running sums along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import torch

from onelayer.certify.taylor.arithmetic import combine, mul, square
from onelayer.certify.taylor.compose import compose, within_image
from onelayer.certify.taylor.contraction import matmul, mean, sum_
from onelayer.certify.taylor.core import TaylorModel
from onelayer.certify.taylor.elementary import SQRT
from onelayer.certify.taylor.piecewise import abs_, amax
from onelayer.certify.taylor.registry import call, implements
from onelayer.certify.taylor.rounding import check_cast, executed, inflate
from onelayer.errors import UnsupportedOperation


@implements("prod")
def prod_(x: TaylorModel, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> TaylorModel:
    """A product by pairs; executed in any order, it must not overflow in any."""
    check_cast(x.execution, dtype)
    if dim is None:
        return prod_(call("flatten", x), 0)
    axis = dim % x.ndim
    reach = x.magnitude().clamp(min=1).prod(axis, keepdim=keepdim)
    while x.shape[axis] > 1:
        half = x.shape[axis] // 2
        rest = call("narrow", x, axis, 2 * half, x.shape[axis] - 2 * half)
        x = mul(call("narrow", x, axis, 0, half), call("narrow", x, axis, half, half))
        x = call("cat", [x, rest], axis) if rest.shape[axis] else x
    result: TaylorModel = x if keepdim else call("squeeze", x, axis)
    if x.execution is not None:
        result.rem = executed(result.rem, inflate(reach), 0, x.execution)
    return result


@implements("cumsum")
def cumsum(x: TaylorModel, dim: int, dtype: Any = None) -> TaylorModel:
    check_cast(x.execution, dtype)
    lower = torch.ones(x.shape[dim], x.shape[dim], dtype=torch.float64, device=x.device).tril()
    result: TaylorModel = call("movedim", matmul(call("movedim", x, dim, -1), lower.T), -1, dim)
    return result


def root(x: TaylorModel) -> TaylorModel:
    """sqrt(x) for a model of a quantity that is never negative, even where its enclosure is."""
    result = compose(SQRT, x)
    upper = x.range()[1]
    high = inflate(torch.sqrt(upper.clamp(min=0)))
    exact = within_image(result.untag(), torch.zeros_like(high), torch.where(torch.isnan(upper), upper, high))
    exact.rem = executed(exact.rem, exact.magnitude(), 8, x.execution)
    return exact.tagged(x.execution)


@implements("norm", "linalg_norm", "linalg_vector_norm", "frobenius_norm")
def norm(
    x: TaylorModel, ord: Any = 2, dim: Any = None, keepdim: bool = False, p: Any = None, dtype: Any = None
) -> TaylorModel:
    """Vector norms of order 1, 2 and infinity over the given dimensions (all by default)."""
    check_cast(x.execution, dtype)
    order = 2 if (p if p is not None else ord) in (None, "fro", 2) else (p if p is not None else ord)
    dims = list(range(x.ndim)) if dim is None else list(dim) if isinstance(dim, Sequence) else [dim]
    if order == 2:
        return root(sum_(square(x), dims, keepdim))
    if order == 1:
        return sum_(abs_(x), dims, keepdim)
    if order == inf:
        return amax(abs_(x), dims, keepdim)
    raise UnsupportedOperation(f"norm of order {order}", "use 1, 2 or inf")


@implements("var")
def var(
    x: TaylorModel, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: int | None = None
) -> TaylorModel:
    """Mean square deviation, with Bessel's correction by default."""
    dims = list(range(x.ndim)) if dim is None else list(dim) if isinstance(dim, Sequence) else [dim]
    count = prod(x.shape[d] for d in dims)
    freedom = count - (int(unbiased) if correction is None else correction)
    total = sum_(square(combine(x, mean(x, dims, keepdim=True), -1)), dims, keepdim)
    result: TaylorModel = total / float(freedom)
    return result


@implements("std")
def std(
    x: TaylorModel, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: int | None = None
) -> TaylorModel:
    return root(var(x, dim, unbiased, keepdim, correction))


@implements("hypot")
def hypot(a: Any, b: Any) -> TaylorModel:
    squares = [
        square(part) if isinstance(part, TaylorModel) else torch.as_tensor(part).double() ** 2 for part in (a, b)
    ]
    return root(combine(squares[0], squares[1], 1))
