"""Sums a^2 + b^2 + 2 a b cos t, squared sides of triangles: (a + b cos t)^2 + (b sin t)^2, so they are not negative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from onelayer.language.formula import Formula

Product = tuple[Fraction, tuple[int, ...]]  # a number times nodes, in order


def is_squared_side(formula: Formula, at: int) -> bool:
    """Whether a node is such a sum, with + or - before the cosine; False where that is not seen."""
    if formula.nodes[at].op not in ("add", "sub"):
        return False
    products = sorted(_products(formula, at, Fraction(1)), key=lambda product: len(product[1]))
    if [len(nodes) for _, nodes in products] != [2, 2, 3]:
        return False
    (one, (a, again)), (other, (b, once_more)), (twice, crossed) = products
    rest = [*(Counter(crossed) - Counter((a, b))).elements()]
    numbers = one == other == 1 and abs(twice) == 2
    return numbers and (a, b) == (again, once_more) and [formula.nodes[at].op for at in rest] == ["cos"]


def _products(formula: Formula, at: int, factor: Fraction) -> Iterator[Product]:
    """The terms of a sum, each as a number times nodes that are no products."""
    node = formula.nodes[at]
    if node.op == "neg":
        yield from _products(formula, node.args[0], -factor)
    elif node.op in ("add", "sub"):
        yield from _products(formula, node.args[0], factor)
        yield from _products(formula, node.args[1], factor if node.op == "add" else -factor)
    else:
        nodes: list[int] = []
        pending = [at]
        while pending:
            at = pending.pop()
            inside = formula.nodes[at]
            if inside.op == "num":
                factor *= Fraction(inside.value)
            elif inside.op in ("mul", "neg"):
                pending += inside.args
                factor = -factor if inside.op == "neg" else factor
            elif inside.op == "pow" and inside.value == 2:
                pending += [inside.args[0], inside.args[0]]
            else:
                nodes.append(at)
        yield factor, tuple(sorted(nodes))
