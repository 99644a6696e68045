"""How torch functions are written in the formula language: elementwise functions, reductions, linear algebra."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.target.functions import FUNCTIONS
from onelayer.target.symbolic import MINUS_INFINITY, Symbolic, lift, operation
from onelayer.target.tree import Tape

Fold = Callable[[Tape, int, int], int]
ZERO, ONE = 0, 1  # positions of the numbers 0 and 1 on every recording tape


def elementwise(tape: Tape, function: Callable[..., int], *args: Any) -> Symbolic:
    """Broadcast the arguments and apply a function of tape positions entry by entry."""
    raw = [lift(tape, arg).ids for arg in args]
    shape = torch.Size(np.broadcast_shapes(*(tuple(part.shape) for part in raw)))
    ids = [part.expand(shape) for part in raw]
    flat = [part.flatten().tolist() for part in ids]
    if function is not _add and any(MINUS_INFINITY in part for part in flat):
        raise UnsupportedOperation("-inf", "an infinite mask may only be added to logits before softmax")
    done = [function(tape, *entries) for entries in zip(*flat, strict=True)]
    return Symbolic(tape, torch.tensor(done, dtype=torch.int64).reshape(shape))


def _add(tape: Tape, a: int, b: int) -> int:
    if MINUS_INFINITY in (a, b):
        return MINUS_INFINITY
    return b if a == ZERO else a if b == ZERO else tape.add("add", a, b)


def _sub(tape: Tape, a: int, b: int) -> int:
    return a if b == ZERO else _neg(tape, b) if a == ZERO else tape.add("sub", a, b)


def _neg(tape: Tape, a: int) -> int:
    return ZERO if a == ZERO else tape.add("neg", a)


def _mul(tape: Tape, a: int, b: int) -> int:
    if ZERO in (a, b):
        return ZERO
    return b if a == ONE else a if b == ONE else tape.add("mul", a, b)


def _div(tape: Tape, a: int, b: int) -> int:
    return a if b == ONE else ZERO if a == ZERO and b != ZERO else tape.add("div", a, b)


def _min(tape: Tape, a: int, b: int) -> int:
    return a if a == b else tape.add("min", a, b)


def _max(tape: Tape, a: int, b: int) -> int:
    return a if a == b else tape.add("max", a, b)


def _register_functions() -> None:
    """Every one-argument function of the language is recorded under its own name."""
    also = {"atan": ["arctan"], "abs": ["absolute"]}
    for name, function in FUNCTIONS.items():
        if function.most == 1 and name not in ("gelu", "softplus", "ln"):

            def record(
                tape: Tape, x: Any, *, build: Any = function.build, out: Any = None, inplace: bool = False
            ) -> Any:
                return elementwise(tape, lambda tape, a: build(tape, [a]), x)

            operation(name, *also.get(name, []))(record)


_register_functions()


@operation("add")
def add(tape: Tape, a: Any, b: Any, *, alpha: float = 1) -> Symbolic:
    return elementwise(tape, _add, a, b if alpha == 1 else mul(tape, b, alpha))


@operation("sub", "subtract")
def sub(tape: Tape, a: Any, b: Any, *, alpha: float = 1) -> Symbolic:
    return elementwise(tape, _sub, a, b if alpha == 1 else mul(tape, b, alpha))


@operation("rsub")
def rsub(tape: Tape, a: Any, b: Any) -> Symbolic:
    return sub(tape, b, a)


@operation("mul", "multiply", "rmul")
def mul(tape: Tape, a: Any, b: Any) -> Symbolic:
    return elementwise(tape, _mul, a, b)


operation("radd")(add)


@operation("div", "divide", "truediv", "true_divide")
def div(tape: Tape, a: Any, b: Any, *, rounding_mode: str | None = None) -> Symbolic:
    if rounding_mode is not None:
        raise UnsupportedOperation("div(rounding_mode)", "rounding is discontinuous")
    return elementwise(tape, _div, a, b)


@operation("rdiv", "rtruediv")
def rdiv(tape: Tape, a: Any, b: Any) -> Symbolic:
    return div(tape, b, a)


@operation("reciprocal")
def reciprocal(tape: Tape, x: Any) -> Symbolic:
    return div(tape, 1.0, x)


@operation("rsqrt")
def rsqrt(tape: Tape, x: Any) -> Symbolic:
    return div(tape, 1.0, elementwise(tape, lambda tape, a: tape.add("sqrt", a), x))


@operation("neg", "negative")
def neg(tape: Tape, x: Any) -> Symbolic:
    return elementwise(tape, _neg, x)


@operation("pos")
def pos(tape: Tape, x: Any) -> Symbolic:
    return lift(tape, x)


@operation("pow", "float_power")
def power(tape: Tape, base: Any, exponent: Any) -> Symbolic:
    return elementwise(tape, lambda tape, a, b: tape.power(a, b), base, exponent)


@operation("rpow")
def rpow(tape: Tape, exponent: Any, base: Any) -> Symbolic:
    return power(tape, base, exponent)


@operation("maximum", "fmax")
def maximum(tape: Tape, a: Any, b: Any) -> Symbolic:
    return elementwise(tape, _max, a, b)


@operation("minimum", "fmin")
def minimum(tape: Tape, a: Any, b: Any) -> Symbolic:
    return elementwise(tape, _min, a, b)


@operation("clamp", "clip")
def clamp(tape: Tape, x: Any, min: Any = None, max: Any = None) -> Symbolic:
    """min(max(x, low), high)"""
    x = lift(tape, x) if min is None else maximum(tape, x, min)
    return x if max is None else minimum(tape, x, max)


@operation("hardtanh")
def hardtanh(tape: Tape, x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Symbolic:
    return clamp(tape, x, min_val, max_val)


@operation("lerp")
def lerp(tape: Tape, start: Any, end: Any, weight: Any) -> Symbolic:
    return add(tape, start, mul(tape, weight, sub(tape, end, start)))


@operation("hypot")
def hypot(tape: Tape, a: Any, b: Any) -> Symbolic:
    return elementwise(tape, lambda tape, a, b: FUNCTIONS["hypot"].build(tape, [a, b]), a, b)


def _gathered(tape: Tape, x: Any, dim: Any, keepdim: bool, fold: Callable[[Sequence[int]], int]) -> Symbolic:
    """Reduce the dimensions ``dim`` (None: all) by a function of the list of entries."""
    x = lift(tape, x)
    dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = sorted(at % x.ndim for at in dims) if x.ndim else []
    kept = [at for at in range(x.ndim) if at not in axes]
    rows = x.ids.permute(*kept, *axes).reshape(*(x.shape[at] for at in kept), -1) if x.ndim else x.ids.reshape(1)
    shape = [1 if at in axes else x.shape[at] for at in range(x.ndim)] if keepdim else [x.shape[at] for at in kept]
    done = [fold(row) for row in rows.reshape(-1, rows.shape[-1]).tolist()]
    return Symbolic(tape, torch.tensor(done, dtype=torch.int64).reshape(shape))


def _sum(tape: Tape, row: Sequence[int]) -> int:
    return reduce(lambda a, b: _add(tape, a, b), row, ZERO)


@operation("sum")
def total(tape: Tape, x: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, **_: Any) -> Symbolic:
    return _gathered(tape, x, dim if dim is not None else axis, keepdim, lambda row: _sum(tape, row))


@operation("mean")
def mean(tape: Tape, x: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, **_: Any) -> Symbolic:
    summed = total(tape, x, dim, keepdim, axis=axis)
    return div(tape, summed, float(lift(tape, x).numel() / max(1, summed.numel())))


@operation("prod")
def prod(tape: Tape, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Symbolic:
    return _gathered(tape, x, dim, keepdim, lambda row: reduce(lambda a, b: _mul(tape, a, b), row, ONE))


@operation("var")
def var(
    tape: Tape, x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = 1
) -> Symbolic:
    """sum (x - mean)**2 / (n - correction)"""
    average = mean(tape, x, dim, True)
    squares = power(tape, sub(tape, x, average), 2)
    count = lift(tape, x).numel() / max(1, average.numel())
    less = correction if unbiased is None else int(unbiased)
    return div(tape, total(tape, squares, dim, keepdim), float(count - less))


@operation("std")
def std(tape: Tape, x: Any, *args: Any, **kwargs: Any) -> Symbolic:
    return elementwise(tape, lambda tape, a: tape.add("sqrt", a), var(tape, x, *args, **kwargs))


class Ordered(NamedTuple):
    """What torch.max, torch.min and torch.sort return along a dimension; indices would be discontinuous."""

    values: Symbolic
    indices: None = None


def _fold_along(tape: Tape, function: Fold, x: Any, dim: Any, keepdim: bool) -> Symbolic:
    return _gathered(tape, x, dim, keepdim, lambda row: reduce(lambda a, b: function(tape, a, b), row))


@operation("amax")
def amax(tape: Tape, x: Any, dim: Any = None, keepdim: bool = False) -> Symbolic:
    return _fold_along(tape, _max, x, dim, keepdim)


@operation("amin")
def amin(tape: Tape, x: Any, dim: Any = None, keepdim: bool = False) -> Symbolic:
    return _fold_along(tape, _min, x, dim, keepdim)


@operation("max")
def largest(tape: Tape, x: Any, dim: Any = None, keepdim: bool = False) -> Symbolic | Ordered:
    return _extreme(tape, _max, x, dim, keepdim)


@operation("min")
def smallest(tape: Tape, x: Any, dim: Any = None, keepdim: bool = False) -> Symbolic | Ordered:
    return _extreme(tape, _min, x, dim, keepdim)


def _extreme(tape: Tape, function: Fold, x: Any, dim: Any, keepdim: bool) -> Symbolic | Ordered:
    """torch.max in its three forms: of all entries, along a dimension (values and indices), of two tensors."""
    if isinstance(dim, (Symbolic, Tensor)):
        return elementwise(tape, function, x, dim)
    folded = _fold_along(tape, function, x, dim, keepdim)
    return folded if dim is None else Ordered(folded)


@operation("norm", "vector_norm", "linalg_vector_norm", "linalg_norm")
def norm(
    tape: Tape, x: Any, p: Any = None, dim: Any = None, keepdim: bool = False, *, ord: Any = None, **_: Any
) -> Symbolic:
    """The 1-, 2- or maximum norm."""
    order = p if p is not None else ord
    if order in (None, 2, 2.0, "fro"):
        return elementwise(tape, lambda tape, a: tape.add("sqrt", a), total(tape, power(tape, x, 2), dim, keepdim))
    size = elementwise(tape, lambda tape, a: tape.add("abs", a), x)
    if order in (1, 1.0):
        return total(tape, size, dim, keepdim)
    if order == math.inf:
        return _fold_along(tape, _max, size, dim, keepdim)
    raise UnsupportedOperation(f"norm(p={order})", "use p = 1, 2 or inf")


@operation("cumsum")
def cumsum(tape: Tape, x: Any, dim: int, **_: Any) -> Symbolic:
    parts = lift(tape, x).ids.unbind(dim)
    rows = [Symbolic(tape, parts[0])]
    for part in parts[1:]:
        rows.append(add(tape, rows[-1], Symbolic(tape, part)))
    return Symbolic(tape, torch.stack([row.ids for row in rows], dim))


@operation("sort", "msort")
def sort(tape: Tape, x: Any, dim: int = -1, descending: bool = False, **_: Any) -> Ordered:
    """Sorted values by exchanges (min, max) of neighbours; there are no indices, which would be discontinuous."""
    rows = [Symbolic(tape, part) for part in lift(tape, x).ids.unbind(dim)]
    for end in range(len(rows) - 1, 0, -1):
        for at in range(end):
            low, high = minimum(tape, rows[at], rows[at + 1]), maximum(tape, rows[at], rows[at + 1])
            rows[at], rows[at + 1] = (high, low) if descending else (low, high)
    return Ordered(Symbolic(tape, torch.stack([row.ids for row in rows], dim)))


@operation("zeros_like", "empty_like")
def zeros_like(tape: Tape, x: Symbolic, **_: Any) -> Symbolic:
    return Symbolic(tape, torch.full_like(x.ids, ZERO))


@operation("ones_like")
def ones_like(tape: Tape, x: Symbolic, **_: Any) -> Symbolic:
    return Symbolic(tape, torch.full_like(x.ids, ONE))


@operation("full_like")
def full_like(tape: Tape, x: Symbolic, value: float, **_: Any) -> Symbolic:
    return Symbolic(tape, torch.full_like(x.ids, tape.number(float(value))))


@operation("new_zeros", "new_empty")
def new_zeros(tape: Tape, x: Symbolic, *size: Any, **_: Any) -> Symbolic:
    return Symbolic(tape, torch.zeros(*size, dtype=torch.int64))


@operation("new_tensor")
def new_tensor(tape: Tape, x: Symbolic, value: Any, **_: Any) -> Symbolic:
    return lift(tape, value)
