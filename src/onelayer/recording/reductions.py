"""How sums, products, extremes, norms, moments and sorting along dimensions are written in the formula language."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.recording.algebra import (
    Fold,
    add,
    add_entries,
    div,
    elementwise,
    max_entries,
    maximum,
    min_entries,
    minimum,
    mul_entries,
    power,
    sub,
    unary,
)
from onelayer.recording.dispatch import operation, same_type
from onelayer.recording.symbolic import INFINITE, MINUS_INFINITY, ONE, ZERO, Recording, Symbolic, lift, positions


def gathered(
    tape: Recording, x: Any, dim: Any, keepdim: bool, fold: Callable[[Sequence[int]], int], *, masked: bool = False
) -> Symbolic:
    """Reduce the dimensions ``dim`` by a function of the list of entries; None means all, and so does () in torch.

    Only a ``masked`` fold knows what to do with an infinite mask.
    """
    x = lift(tape, x)
    # A product or a maximum with minus infinity has no formula.
    if not masked and bool((x.ids == MINUS_INFINITY).any()):
        raise UnsupportedOperation("-inf", INFINITE)
    dims = _dims(dim, x.ndim)
    kept = [at for at in range(x.ndim) if at not in dims]
    count = math.prod(x.shape[at] for at in dims)  # 1 for a single number
    rows = x.ids.permute(*kept, *dims).reshape(-1, count)
    ids = [fold(row) for row in rows.tolist()]
    folded = positions(ids, [x.shape[at] for at in kept])
    if keepdim:
        # In ascending order, so that each finds its place among those that are back.
        for at in sorted(dims):
            folded = folded.unsqueeze(at)
    return Symbolic(tape, folded)


def _dims(dim: Any, ndim: int) -> list[int]:
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(ndim))
    # In Python True is the integer 1.
    if isinstance(dim, bool):
        raise UnsupportedOperation("dim", "a dimension is a number")
    if ndim == 0:
        return []
    asked = (dim,) if isinstance(dim, int) else dim
    found = sorted(at % ndim for at in asked)
    if len(set(found)) < len(found):
        raise UnsupportedOperation("dim", f"a dimension is repeated in {dim}")
    return found


@operation("sum")
def total(tape: Recording, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Symbolic:
    """The sum over dimensions."""
    same_type(dtype)
    fold = _folded(tape, add_entries)
    return gathered(tape, input, dim, keepdim, lambda row: fold([ZERO, *row]), masked=True)


def _folded(tape: Recording, function: Fold) -> Callable[[Sequence[int]], int]:
    """A function of two entries as one of a row of them, from the left."""
    return partial(reduce, partial(function, tape))


@operation("mean")
def mean(tape: Recording, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Symbolic:
    """The mean over dimensions."""
    summed = total(tape, input, dim, keepdim, dtype=dtype)
    count = lift(tape, input).numel() / max(1, summed.numel())
    return div(tape, summed, float(count))


@operation("prod")
def prod(tape: Recording, input: Any, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Symbolic:
    """The product over a dimension."""
    same_type(dtype)
    fold = _folded(tape, mul_entries)
    return gathered(tape, input, dim, keepdim, lambda row: fold([ONE, *row]))


@operation("var")
def var(
    tape: Recording,
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Symbolic:
    """sum (x - mean)**2 / (n - correction)"""
    if isinstance(dim, bool):  # var(unbiased) of all entries
        dim, unbiased = None, dim
    average = mean(tape, input, dim, True)
    squares = power(tape, sub(tape, input, average), 2)
    count = lift(tape, input).numel() / max(1, average.numel())
    # Like torch: one less than the count, unless the caller says otherwise, in one of two ways.
    less = 1.0 if unbiased is None else float(unbiased)
    less = less if correction is None else float(correction)
    # Written so that NaN is refused too.
    if not count > less:
        raise UnsupportedOperation("var", f"{count:g} numbers with correction {less:g} have no variance")
    return div(tape, total(tape, squares, dim, keepdim), count - less)


@operation("std")
def std(
    tape: Recording,
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Symbolic:
    """The standard deviation over dimensions."""
    return unary(tape, "sqrt", var(tape, input, dim, unbiased, keepdim, correction=correction))


class _ExtremePlaces:
    """Where an extreme is, which jumps: any use of it is refused."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedOperation("indices", "where the largest entry is jumps with x; use the values")

    def __getitem__(self, index: Any) -> Any:
        return self.__getattr__("")

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls().__getattr__("")


def _refused(self: _ExtremePlaces, *args: Any) -> Any:
    return self.__getattr__("")


# Comparisons above all: what Python answers of its own, by identity, would be a constant.
for _name in (
    *("eq", "ne", "lt", "le", "gt", "ge", "bool", "len", "iter", "contains", "index", "int", "float", "array"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "neg", "invert"),
    *("and", "rand", "or", "ror", "xor", "rxor"),
):
    setattr(_ExtremePlaces, f"__{_name}__", _refused)


class Ordered(NamedTuple):
    """What torch.max, torch.min and torch.sort return along a dimension."""

    values: Symbolic
    indices: Any = _ExtremePlaces()


def _fold_along(tape: Recording, function: Fold, x: Any, dim: Any, keepdim: bool) -> Symbolic:
    return gathered(tape, x, dim, keepdim, _folded(tape, function))


@operation("amax")
def amax(tape: Recording, input: Any, dim: Any = None, keepdim: bool = False) -> Symbolic:
    """The maximum over dimensions."""
    return _fold_along(tape, max_entries, input, dim, keepdim)


@operation("amin")
def amin(tape: Recording, input: Any, dim: Any = None, keepdim: bool = False) -> Symbolic:
    """The minimum over dimensions."""
    return _fold_along(tape, min_entries, input, dim, keepdim)


@operation("max")
def largest(
    tape: Recording, input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None
) -> Symbolic | Ordered:
    """torch.max: of all entries, along a dimension, or of two tensors."""
    return _extreme(tape, max_entries, input, dim if other is None else other, keepdim)


@operation("min")
def smallest(
    tape: Recording, input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None
) -> Symbolic | Ordered:
    """torch.min, likewise."""
    return _extreme(tape, min_entries, input, dim if other is None else other, keepdim)


def _extreme(tape: Recording, function: Fold, x: Any, dim: Any, keepdim: bool) -> Symbolic | Ordered:
    """torch.max in its three forms: of all entries, along a dimension (values and indices), of two tensors."""
    # torch.max(a, b): the second argument is a tensor, not a dimension.
    if isinstance(dim, (Symbolic, Tensor)):
        return elementwise(tape, function, x, dim)
    folded = _fold_along(tape, function, x, dim, keepdim)
    return folded if dim is None else Ordered(folded)


@operation("norm")
def norm(
    tape: Recording, input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Symbolic:
    """torch.norm: numbers p are vector norms over all of ``dim`` together."""
    order = 2 if p in (None, "fro") else p
    return vector_norm(tape, input, order, dim, keepdim, dtype=dtype)


@operation("linalg_vector_norm")
def vector_norm(
    tape: Recording, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Symbolic:
    """The 1-, 2- or maximum norm of the entries."""
    same_type(dtype)
    if ord == 2:
        return unary(tape, "sqrt", total(tape, power(tape, x, 2), dim, keepdim))
    if ord == 1:
        return total(tape, unary(tape, "abs", x), dim, keepdim)
    if ord == math.inf:
        return _fold_along(tape, max_entries, unary(tape, "abs", x), dim, keepdim)
    raise UnsupportedOperation(f"norm of order {ord}", "use 1, 2 or inf")


@operation("linalg_norm")
def linalg_norm(
    tape: Recording, input: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Symbolic:
    """torch.linalg.norm: of the entries without ``ord``; with it a matrix norm where there are two dimensions."""
    if ord is None:
        return vector_norm(tape, input, 2, dim, keepdim, dtype=dtype)
    every = range(lift(tape, input).ndim) if dim is None else dim
    axes = (every,) if isinstance(every, int) else tuple(every)
    if len(axes) == 1 and ord != "fro":
        return vector_norm(tape, input, ord, dim, keepdim, dtype=dtype)
    return matrix_norm(tape, input, ord, axes, keepdim, dtype=dtype)


@operation("linalg_matrix_norm")
def matrix_norm(
    tape: Recording, input: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Symbolic:
    """Frobenius norm, largest column sum (1) or largest row sum (inf) of |x|; singular values are not recorded."""
    same_type(dtype)
    if len(dim) != 2:
        raise UnsupportedOperation("matrix norm", "a matrix has two dimensions")
    if ord == "fro":
        return vector_norm(tape, input, 2, dim, keepdim)
    if ord not in (1, math.inf):
        raise UnsupportedOperation(f"matrix norm of order {ord}", "use 'fro', 1 or inf")
    ndim = lift(tape, input).ndim
    rows, columns = (at % ndim for at in dim)
    # Sums along one dimension, the largest of them along the other.
    summed, other = (rows, columns) if ord == 1 else (columns, rows)
    sums = total(tape, unary(tape, "abs", input), summed, True)
    worst = _fold_along(tape, max_entries, sums, other, True)
    if keepdim:
        return worst
    return Symbolic(tape, worst.ids.squeeze((rows, columns)))


@operation("cumsum")
def cumsum(tape: Recording, input: Any, dim: int, *, dtype: Any = None) -> Symbolic:
    """Partial sums along a dimension."""
    same_type(dtype)
    parts = lift(tape, input).ids.unbind(dim)
    rows = [Symbolic(tape, parts[0])]
    for part in parts[1:]:
        so_far = rows[-1]
        rows.append(add(tape, so_far, Symbolic(tape, part)))
    return Symbolic(tape, torch.stack([row.ids for row in rows], dim))


@operation("median")
def median(tape: Recording, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The middle value, the lower one of two, along a dimension or of all entries."""
    x = lift(tape, input)
    whole = Symbolic(tape, x.ids.reshape(-1)) if dim is None else x
    along = -1 if dim is None else dim
    ordered = sort(tape, whole, along).values.ids
    at = (ordered.shape[along] - 1) // 2
    middle = ordered.select(along, at)
    if dim is None:
        return Symbolic(tape, middle)
    kept = middle.unsqueeze(along) if keepdim else middle
    return Ordered(Symbolic(tape, kept))


@operation("sort")
def sort(
    tape: Recording, input: Any, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Ordered:
    """Sorted values by exchanges (min, max) of neighbours; equal values are equal in any order."""
    parts = lift(tape, input).ids.unbind(dim)
    rows = [Symbolic(tape, part) for part in parts]
    # After each pass the largest, or the smallest, of those that are left has reached its place.
    for end in range(len(rows) - 1, 0, -1):
        for at in range(end):
            low = minimum(tape, rows[at], rows[at + 1])
            high = maximum(tape, rows[at], rows[at + 1])
            rows[at], rows[at + 1] = (high, low) if descending else (low, high)
    ids = torch.stack([row.ids for row in rows], dim)
    return Ordered(Symbolic(tape, ids))
