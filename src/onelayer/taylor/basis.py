"""Graded multi-index tables: which monomial sits where, and where products of monomials land.

A polynomial of total degree <= k in s variables is a row of P = C(s + k, s) coefficients in graded order: degree 0, the
s monomials of degree 1, then degree 2, ... Inside a degree the exponents descend lexicographically. Two facts make
this order fast: a lower degree is a prefix, and the monomials of a degree that avoid the first variables are a suffix.
Tables are pure functions of small integers and are cached.
"""

from __future__ import annotations

from functools import cache
from math import comb, factorial, prod

import numpy as np

Run = tuple[int, int, int]  # source start, target start, length


@cache
def count(variables: int, degree: int) -> int:
    """Number of monomials of total degree <= ``degree`` in ``variables`` variables: C(s + k, s)."""
    if degree >= 0:
        return comb(variables + degree, variables)
    return 0


@cache
def block(variables: int, degree: int) -> slice:
    """Rows of the monomials of exactly this degree."""
    return slice(count(variables, degree - 1), count(variables, degree))


@cache
def exponents(variables: int, degree: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """All exponents of total degree <= ``degree`` in graded order, (P, s)."""
    rows = [row for d in range(degree + 1) for row in _homogeneous(variables, d)]
    return np.array(rows, dtype=np.int64).reshape(len(rows), variables)


@cache
def _homogeneous(variables: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """Exponents of exactly this degree, descending lexicographically: the first variable takes what it can first."""
    if variables == 0:
        return ((),) if degree == 0 else ()
    found: list[tuple[int, ...]] = []
    for first in range(degree, -1, -1):
        found += [(first, *rest) for rest in _homogeneous(variables - 1, degree - first)]
    return tuple(found)


@cache
def ranks(variables: int, degree: int) -> dict[tuple[int, ...], int]:
    """Exponent tuple -> row."""
    rows = exponents(variables, degree).tolist()
    return {tuple(row): index for index, row in enumerate(rows)}


@cache
def lift_rows(positions: tuple[int, ...], variables: int, degree: int) -> tuple[int, ...]:
    """Rows, among ``variables`` variables, of the monomials that use only those at ``positions``."""
    table = ranks(variables, degree)
    rows = _placed(positions, variables, degree).tolist()
    return tuple(table[tuple(row)] for row in rows)


@cache
def product_runs(
    left: tuple[int, ...], right: tuple[int, ...], variables: int, left_degree: int, right_degree: int, cap: int
) -> tuple[tuple[int, tuple[Run, ...]], ...]:
    """Where t^i * t^j lands: for each left row i the contiguous runs (first j, first target, length), degree <= cap.

    ``left`` and ``right`` are the positions of the operands' variables among the ``variables`` of the product.
    """
    table = ranks(variables, cap)
    first = _placed(left, variables, left_degree)
    second = _placed(right, variables, right_degree)
    result = []
    for i, row in enumerate(first):
        room = cap - int(row.sum())
        # Degrees ascend: no later row has room either, and what fits of the right operand is a prefix.
        if room < 0:
            break
        kept = second[: count(len(right), min(room, right_degree))]
        targets = [table[tuple(exponents)] for exponents in (kept + row).tolist()]
        result.append((i, tuple(_runs(targets))))
    return tuple(result)


def _runs(targets: list[int]) -> list[Run]:
    """Neighbours that land side by side, joined: one vector operation each."""
    runs: list[Run] = []
    for source, target in enumerate(targets):
        start, first, length = runs[-1] if runs else (0, -1, 0)
        if runs and first + length == target:
            runs[-1] = (start, first, length + 1)
        else:
            runs.append((source, target, 1))
    return runs


@cache
def multinomials(variables: int, degree: int) -> tuple[float, ...]:
    """|alpha|! / alpha! per row; exact in float64 for every order this package uses."""
    values = []
    for row in exponents(variables, degree).tolist():
        value = 1
        left = sum(row)
        for exponent in row:
            value *= comb(left, exponent)
            left -= exponent
        values.append(float(value))
    return tuple(values)


@cache
def inverse_factorials(variables: int, degree: int) -> tuple[float, ...]:
    """1 / alpha! per row, rounded once."""
    rows = exponents(variables, degree).tolist()
    return tuple(1 / prod(map(factorial, row)) for row in rows)


@cache
def even_rows(variables: int, degree: int) -> tuple[int, ...]:
    """Rows of the non-constant monomials with even exponents only: their values over the box fill [0, 1]."""
    table = exponents(variables, degree)
    even = np.flatnonzero((table % 2 == 0).all(1))
    return tuple(int(i) for i in even if i)


@cache
def outer_rows(
    left: tuple[int, ...], right: tuple[int, ...], variables: int, left_degree: int, right_degree: int, cap: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """For disjoint variables: flat indices i * P_right + j kept below cap, the rows they land in, and those above."""
    first = _placed(left, variables, left_degree)
    second = _placed(right, variables, right_degree)
    # The number of rows in full: -1 would not be known without any variable.
    table = (first[:, None] + second).reshape(len(first) * len(second), variables)
    size = table.sum(1)
    kept = np.flatnonzero(size <= cap)
    above = np.flatnonzero(size > cap)
    lookup = ranks(variables, cap)
    rows = tuple(lookup[tuple(row)] for row in table[kept].tolist())
    return tuple(kept.tolist()), rows, tuple(above.tolist())


def _placed(positions: tuple[int, ...], variables: int, degree: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Exponents in the variables at ``positions``, written over all ``variables``."""
    own = exponents(len(positions), degree)
    wide = np.zeros((len(own), variables), dtype=np.int64)
    wide[:, list(positions)] = own
    return wide
