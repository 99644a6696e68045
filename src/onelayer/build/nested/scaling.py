"""Dimensional analysis of an outer function: scalings that leave it alone take arguments away.

Let G(t^w1 y1, ..., t^wn yn) = G(y1, ..., yn) for all t > 0, and let y_p be positive with w_p = 1. With t = 1 / y_p the
argument y_p is gone: G(y) = G(..., y_i y_p^-w_i, ..., 1, ...). The weights w of all such scalings are read off the
formula of G: a sum has terms of one degree, a product the sum of the degrees of its factors, a root half of it, and
what other functions are taken of has degree zero. (Buckingham's pi theorem, with formulas for units.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

from flint import fmpq, fmpq_mat

from onelayer.language.formula import Formula
from onelayer.language.tree import LEAVES, Node

Weights = list[Fraction]
MOST_CHOICES = 200  # of arguments to take away

# Degrees of a node from those of its arguments; of every other operation the degree is zero, and that of its arguments.
DEGREES: dict[str, Callable[[Node, Sequence[Weights]], Weights]] = {
    "mul": lambda node, args: _sum(args[0], args[1], 1),
    "div": lambda node, args: _sum(args[0], args[1], -1),
    "pow": lambda node, args: [w * int(node.value) for w in args[0]],
    "sqrt": lambda node, args: [w / 2 for w in args[0]],
    **dict.fromkeys(("neg", "abs", "relu", "add", "sub", "min", "max"), lambda node, args: args[0]),
}
# Have arguments of one degree.
ALIKE = ("add", "sub", "min", "max")


def scalings(formula: Formula) -> list[Weights]:
    """A basis of the weights for which the formula does not change."""
    degrees: list[Weights] = []
    rows: list[Weights] = []
    for node in formula.nodes:
        args = [degrees[at] for at in node.args]
        if node.op in ALIKE:
            rows.append(_sum(args[0], args[1], -1))
        if node.op in DEGREES:
            degrees.append(DEGREES[node.op](node, args))
            continue
        if node.op not in LEAVES:
            rows += args
        variable = int(node.value) if node.op == "var" else None
        degrees.append([Fraction(int(i == variable)) for i in range(formula.dim)])
    # The outputs have degree zero too: the function itself is not to change.
    rows += [degrees[at] for at in formula.outputs]
    return _kernel(rows, formula.dim)


def eliminations(basis: Sequence[Weights], allowed: Sequence[int]) -> list[dict[int, Weights]]:
    """Ways to take away as many of the allowed arguments as the scalings can: the weights by argument taken away.

    Each of these weights is 1 at its own argument and 0 at the others that are taken away.
    """
    if not basis or not allowed:
        return []
    table = _matrix(basis)
    count = _matrix(_columns(basis, allowed)).rank()
    found: list[dict[int, Weights]] = []
    for chosen in list(combinations(allowed, count))[:MOST_CHOICES]:
        others = [p for p in range(table.ncols()) if p not in chosen]
        order = (*chosen, *others)
        reduced, rank = _matrix(_columns(basis, order)).rref()
        rows = reduced.tolist()[:count]
        solvable = rank >= count and all(rows[i][i] == 1 for i in range(count))
        if solvable:
            found.append({p: _restored(row, order) for p, row in zip(chosen, rows, strict=True)})
    return found


def _columns(rows: Sequence[Weights], order: Sequence[int]) -> list[Weights]:
    """The rows with these columns alone, in this order."""
    return [[row[p] for p in order] for row in rows]


def _restored(row: Sequence[fmpq], order: Sequence[int]) -> Weights:
    """A row whose columns were in another order."""
    found = [Fraction(0)] * len(order)
    for value, place in zip(row, order, strict=True):
        found[place] = Fraction(int(value.p), int(value.q))
    return found


def _kernel(rows: Sequence[Weights], count: int) -> list[Weights]:
    """A basis of all w with <row, w> = 0 for every row."""
    reduced, rank = _matrix(rows).rref()
    table = [_restored(row, range(count)) for row in reduced.tolist()[:rank]]
    pivots = [next(i for i, w in enumerate(row) if w) for row in table]
    found = []
    for free in range(count):
        if free not in pivots:
            own = [Fraction(int(i == free)) for i in range(count)]
            for p, row in zip(pivots, table, strict=True):
                own[p] = -row[free]
            found.append(own)
    return found


def _matrix(rows: Sequence[Weights]) -> fmpq_mat:
    entries = [fmpq(w.numerator, w.denominator) for row in rows for w in row]
    return fmpq_mat(len(rows), len(rows[0]), entries)


def _sum(a: Weights, b: Weights, sign: int) -> Weights:
    return [x + sign * y for x, y in zip(a, b, strict=True)]
