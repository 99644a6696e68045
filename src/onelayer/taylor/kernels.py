"""Compiled kernels for Taylor arithmetic on the CPU, where numba is installed; everything works without them.

``ready`` says whether operands can go there; the functions below take and return tensors. The plain and the compiled
way enclose the same values by the same lemmas; sums are rounded in another order, so their numbers differ within their
remainders and are never compared bit by bit.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.taylor import basis

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Tally = Callable[[int, int], None]

INSTALLED = importlib.util.find_spec("numba") is not None
MOST_ABOVE = 2**20  # nonnegative terms of one sum, as many as ``rounding.GROWTH`` covers

_SWITCH = {"compiled": INSTALLED}
_TALLIES: list[Tally] = []


@contextmanager
def backend(compiled: bool) -> Iterator[None]:
    """Use the compiled kernels, or the plain way, inside the block. For tests and measurements."""
    before = _SWITCH["compiled"]
    _SWITCH["compiled"] = compiled
    try:
        yield
    finally:
        _SWITCH["compiled"] = before


@contextmanager
def tallied(tally: Tally) -> Iterator[None]:
    """Report the multiplications of every kernel, and the size of its result, to ``tally``."""
    _TALLIES.append(tally)
    try:
        yield
    finally:
        _TALLIES.remove(tally)


@contextmanager
def untallied() -> Iterator[None]:
    """Report nothing of what is computed inside the block."""
    held = _TALLIES[:]
    _TALLIES.clear()
    try:
        yield
    finally:
        _TALLIES[:] = held


def active() -> bool:
    """Whether the kernels are on."""
    return _SWITCH["compiled"]


def ready(*tensors: Tensor) -> bool:
    """Whether the kernels are on and every operand is where they can read it."""
    return _SWITCH["compiled"] and all(x.is_cpu and not x.requires_grad for x in tensors)


@cache
def _kernels() -> Any:
    """The compiled module, loaded at first use: importing a compiler takes a while."""
    return importlib.import_module("onelayer.taylor.compiled")


def report(work: int, size: int) -> None:
    for tally in _TALLIES:
        tally(work, size)


def rows_of(x: Tensor, shape: torch.Size) -> Floats:
    """(P, *smaller) as an array (P, N) of the full shape, without a copy where it is one already."""
    rows: Floats = x.numpy()
    if rows.shape[1:] != shape:
        missing = len(shape) + 1 - rows.ndim
        aligned = rows.reshape(rows.shape[0], *[1] * missing, *rows.shape[1:])
        rows = np.broadcast_to(aligned, (rows.shape[0], *shape))
    return np.ascontiguousarray(rows).reshape(rows.shape[0], -1)


def row_of(x: Tensor, shape: torch.Size) -> Floats:
    """(*smaller) as an array (N,) of the full shape, without a copy where it is one already."""
    row: Floats = x.numpy()
    if row.shape == shape:
        return np.ascontiguousarray(row).reshape(-1)
    # Written out: a broadcast view has strides of zero, which the kernels do not know.
    full = np.empty(shape)
    full[...] = row
    return full.reshape(-1)


def tensor_of(x: Floats, *shape: int) -> Tensor:
    return torch.from_numpy(x.reshape(shape))


@cache
def blocks_of(variables: int, degree: int) -> Ints:
    return np.array([basis.count(variables, d - 1) for d in range(degree + 2)], dtype=np.int64)


@cache
def _even(variables: int, degree: int) -> Ints:
    return np.array(basis.even_rows(variables, degree), dtype=np.int64)


@cache
def _runs(
    left: tuple[int, ...], right: tuple[int, ...], variables: int, left_degree: int, right_degree: int, cap: int
) -> tuple[Ints, Ints]:
    """The runs of ``basis.product_runs`` as one table, and where those of each left row start; validated once."""
    found = basis.product_runs(left, right, variables, left_degree, right_degree, cap)
    listed = [(i, *run) for i, runs in found for run in runs]
    table = np.array(listed, dtype=np.int64).reshape(-1, 4)
    first = basis.count(len(left), left_degree)
    second = basis.count(len(right), right_degree)
    result = basis.count(variables, cap)
    row, source, target, length = table.T
    # The kernels do not look at bounds, so what they index with is looked at here.
    held = (
        (table >= 0).all(),
        (row < first).all(),
        (source + length <= second).all(),
        (target + length <= result).all(),
        (np.diff(row) >= 0).all(),
    )
    if not all(held):
        raise IndexError("a table of products points outside its polynomials")
    starts = np.searchsorted(row, np.arange(first + 1))
    return table, starts.astype(np.int64)


@cache
def _lift(positions: tuple[int, ...], variables: int, degree: int) -> Ints:
    return np.array(basis.lift_rows(positions, variables, degree), dtype=np.int64)


def _length(runs: Ints) -> int:
    """Products of coefficients in a table of runs."""
    return int(runs[:, 3].sum())


def expect(x: Floats, rows: int, columns: int) -> None:
    """The kernels do not look at bounds: what they are given has to have the size that their tables speak of."""
    if x.shape != (rows, columns) or x.dtype != np.float64:
        raise IndexError(f"an array of {x.shape} in {x.dtype} where ({rows}, {columns}) in float64 was due")


def sums(coef: Tensor, variables: int, degree: int) -> tuple[Tensor, Tensor]:
    """Absolute sums per degree (degree + 1, *shape), and their sum, rounded upwards."""
    rows = rows_of(coef, coef.shape[1:])
    blocks = blocks_of(variables, degree)
    expect(rows, int(blocks[-1]), rows.shape[1])
    norms = np.empty((degree + 1, rows.shape[1]))
    total = np.empty(rows.shape[1])
    _kernels().sums(blocks, rows, norms, total)
    report(rows.size, rows.size)
    return tensor_of(norms, degree + 1, *coef.shape[1:]), tensor_of(total, *coef.shape[1:])


def interval(
    coef: Tensor, norms: Tensor, total: Tensor, rem: Tensor, variables: int, degree: int, slack: float
) -> tuple[Tensor, Tensor]:
    """Lower and upper end of polynomial and remainder over each box."""
    shape = coef.shape[1:]
    rows = rows_of(coef, shape)
    columns = rem.numel()
    expect(rows, basis.count(variables, degree), columns)
    low = np.empty(columns)
    high = np.empty(columns)
    degrees = rows_of(norms, shape)
    expect(degrees, degree + 1, columns)
    _kernels().interval(
        _even(variables, degree), rows, degrees, row_of(total, shape), row_of(rem, shape), slack, low, high
    )
    report(2 * columns, columns)
    return tensor_of(low, *shape), tensor_of(high, *shape)


class Result(NamedTuple):
    """What an operation knows of its value: coefficients, remainder, absolute sums per degree and in all."""

    coef: Tensor
    rem: Tensor
    norms: Tensor
    total: Tensor


def filled(variables: int, degree: int, shape: torch.Size, run: Callable[..., None]) -> Result:
    """Arrays for a polynomial of this degree, filled by ``run(blocks, coef, norms, total, rem)``."""
    blocks = blocks_of(variables, degree)
    columns = math.prod(shape)
    coef = np.empty((int(blocks[-1]), columns))
    norms = np.empty((degree + 1, columns))
    total = np.empty(columns)
    rem = np.empty(columns)
    run(blocks, coef, norms, total, rem)
    return Result(
        tensor_of(coef, coef.shape[0], *shape),
        tensor_of(rem, *shape),
        tensor_of(norms, degree + 1, *shape),
        tensor_of(total, *shape),
    )


def product(a: Any, b: Any, places: Any, degree: int, rounding: float, shape: torch.Size, step: Floats) -> Result:
    """The product of two Taylor models, truncated at ``degree``; ``step`` as in ``rounding.execution_step``."""
    runs, _ = _runs(*places, a.degree, b.degree, degree)
    columns = math.prod(shape)
    rows = [rows_of(x.coef, shape) for x in (a, b)]
    norms = [rows_of(x.norms(), shape) for x in (a, b)]
    for x, coef, sizes in zip((a, b), rows, norms, strict=True):
        expect(coef, basis.count(len(x.support), x.degree), columns)
        expect(sizes, x.degree + 1, columns)
    singles = [row_of(x, shape) for x in (a.total(), b.total(), a.rem, b.rem)]

    def run(blocks: Ints, out: Floats, *others: Floats) -> None:
        _kernels().product(runs, blocks, *rows, *norms, *singles, degree, rounding, step, out, *others)
        report(_length(runs) * columns, out.size)

    return filled(places[2], degree, shape, run)


def quotient(a: Any, b: Any, places: Any, degree: int, rounding: float, shape: torch.Size) -> Result:
    """The quotient of two Taylor models; the rows of a are already those of the quotient."""
    whole = tuple(range(places[2]))
    runs, starts = _runs(whole, places[1], places[2], degree, b.degree, degree)
    columns = math.prod(shape)
    numerator = rows_of(a.coef, shape)
    divisor = rows_of(b.coef, shape)
    norms = rows_of(b.norms(), shape)
    expect(divisor, basis.count(len(places[1]), b.degree), columns)
    expect(norms, b.degree + 1, columns)
    singles = [row_of(x, shape) for x in (a.total(), b.total(), a.rem, b.rem, *b.range())]

    def run(blocks: Ints, rest: Floats, *others: Floats) -> None:
        rest[: numerator.shape[0]] = numerator
        rest[numerator.shape[0] :] = 0.0
        _kernels().quotient(runs, starts, divisor, norms, *singles, degree, rounding, blocks, rest, *others)
        report(_length(runs) * columns, rest.size)

    return filled(places[2], degree, shape, run)


def within(coef: Tensor, rem: Tensor, low: Tensor, high: Tensor, defined: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients and remainder with the interval [low, high] where that is narrower, undecided where not defined."""
    shape = rem.shape
    given = row_of(rem, shape)
    middle = np.empty(given.size)
    out = np.empty(given.size)
    poor = np.zeros(given.size, dtype=np.bool_)
    sure = defined.expand(shape).contiguous().numpy().reshape(-1)  # an array to write in: numba tells the two apart
    if _kernels().within(row_of(low, shape), row_of(high, shape), sure, given, middle, out, poor):
        rows = rows_of(coef, shape)
        changed = np.empty_like(rows)
        _kernels().replaced(rows, middle, poor, changed)
        coef = tensor_of(changed, rows.shape[0], *shape)
    return coef, tensor_of(out, *shape)


def contracted(
    rem: Tensor, total: Tensor, size: Tensor, unit: Tensor, rounding: float, relative: float, step: Floats, terms: int
) -> Tensor:
    """Remainder (..., m) of a contraction of (..., n) with a constant of absolute values (n, m); ``unit`` (..., 1)."""
    n, m = size.shape
    rows = row_of(rem, rem.shape).reshape(-1, n)
    sizes = np.ascontiguousarray(size.numpy())
    out = np.empty((rows.shape[0], m))
    units = row_of(unit, torch.Size((*rem.shape[:-1], 1)))
    totals = row_of(total, rem.shape).reshape(-1, n)
    _kernels().contracted(rows, totals, sizes, units, rounding, relative, step, float(terms), out)
    report(rows.size * m, out.size)
    return tensor_of(out, *rem.shape[:-1], m)


def add(
    a: Any, b: Any, support: tuple[int, ...], degree: int, sign: int, rounding: float, shape: torch.Size, step: Floats
) -> Result:
    """a + sign b over ``support``, neither of a higher degree than ``degree``."""
    where = {v: i for i, v in enumerate(support)}
    places = [tuple(where[v] for v in x.support) for x in (a, b)]
    rows_a, rows_b = (_lift(own, len(support), x.degree) for own, x in zip(places, (a, b), strict=True))
    left = rows_of(a.coef, shape)
    right = rows_of(b.coef, shape)
    expect(left, rows_a.size, math.prod(shape))
    expect(right, rows_b.size, math.prod(shape))
    rest = row_of(a.rem, shape), row_of(b.rem, shape)

    def run(blocks: Ints, out: Floats, *others: Floats) -> None:
        if max(rows_a[-1], rows_b[-1]) >= out.shape[0]:  # rows ascend
            raise IndexError("a sum has fewer rows than its terms")
        _kernels().add(rows_a, rows_b, blocks, left, right, *rest, float(sign), rounding, step, out, *others)
        report(left.size + right.size, out.size)

    return filled(len(support), degree, shape, run)


def used_rows(coef: Tensor) -> NDArray[np.bool_]:
    """Which rows (P,) hold a number other than zero, in any box."""
    used = np.ones(coef.shape[0], dtype=np.bool_)
    _kernels().used_rows(rows_of(coef, coef.shape[1:]), used)
    return used


class Targets(NamedTuple):
    """For each pair of rows (P, I) the row that it alone is written to, -1 for none; and how many rows there are."""

    table: Ints
    rows: int


@cache
def targets(
    left: tuple[int, ...], right: tuple[int, ...], variables: int, left_degree: int, right_degree: int, cap: int
) -> Targets:
    """``basis.outer_rows`` as a table, validated once."""
    kept, rows, above = basis.outer_rows(left, right, variables, left_degree, right_degree, cap)
    size = basis.count(len(left), left_degree), basis.count(len(right), right_degree)
    whole = len({*kept, *above}) == math.prod(size)
    once = len({*rows}) == len(kept)
    if not whole or not once or len(above) > MOST_ABOVE:
        raise IndexError("a table of pairs names one twice, leaves one out or is too long")
    if not all(0 <= row < basis.count(variables, cap) for row in rows):
        raise IndexError("a table of pairs points outside its polynomial")
    table = np.full(math.prod(size), -1, dtype=np.int64)
    table[list(kept)] = rows
    return Targets(table.reshape(size), basis.count(variables, cap))


def outer(left: Tensor, right: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
    """Rows (P, X, M, N) and (I, Y, M, N), every pair multiplied, summed over M and put where ``targets`` say.

    The rows of the result (R, X, Y, N), and the sum of the others in absolute value, (X, Y, N).
    """
    first, second = (np.ascontiguousarray(x.numpy()) for x in (left, right))
    summed, columns = first.shape[2:]
    for x, rows in zip((first, second), targets.table.shape, strict=True):
        expect(x.reshape(x.shape[0], -1), rows, x.shape[1] * summed * columns)
    shape = first.shape[1], second.shape[1], columns
    out = np.empty((targets.rows, *shape))
    above = np.empty(shape)
    _kernels().outer(targets.table, first, second, out, above)
    report(targets.table.size * summed * above.size, out.size)
    return torch.from_numpy(out), torch.from_numpy(above)
