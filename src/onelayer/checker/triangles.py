"""Sums a^2 + b^2 + 2 a b cos t, squared sides of triangles: no less than (|a| - |b|)^2, since |cos t| <= 1."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import lru_cache

from onelayer.language.formula import Formula

Product = tuple[Fraction, tuple[int, ...]]  # a number times nodes, in order
TERMS = 3  # of such a sum
MOST = 64  # factors of a term, and steps on the way to the terms of a sum, that are looked at


@lru_cache(maxsize=16)
def squared_sides(formula: Formula) -> dict[int, tuple[int, int]]:
    """The nodes that are such sums, with + or - before the cosine, and of each the nodes a and b."""
    found = {}
    for at, node in enumerate(formula.nodes):
        legs = _legs(formula, at) if node.op in ("add", "sub") else None
        if legs is not None:
            found[at] = legs
    return found


def _legs(formula: Formula, at: int) -> tuple[int, int] | None:
    """a and b of a sum that is seen to be such a side."""
    products = sorted(_products(formula, at), key=lambda product: len(product[1]))
    if [len(nodes) for _, nodes in products] != [2, 2, 3]:
        return None
    (one, (a, again)), (other, (b, once_more)), (twice, crossed) = products
    rest = [*(Counter(crossed) - Counter((a, b))).elements()]
    numbers = one == other == 1 and abs(twice) == 2
    if numbers and (a, b) == (again, once_more) and [formula.nodes[at].op for at in rest] == ["cos"]:
        return a, b
    return None


def _products(formula: Formula, at: int) -> list[Product]:
    """The terms of a sum, each as a number times nodes that are no products; none where there are more than three.

    Whatever waits is a term at least, so of a long sum only the last few are looked at, however deep the others lie.
    """
    found: list[Product] = []
    pending = [(at, Fraction(1))]
    for _ in range(MOST):
        if not pending:
            return found
        if len(found) + len(pending) > TERMS:
            break
        at, factor = pending.pop()
        node = formula.nodes[at]
        if node.op == "neg":
            pending.append((node.args[0], -factor))
        elif node.op in ("add", "sub"):
            first, second = node.args
            pending += [(second, factor if node.op == "add" else -factor), (first, factor)]
        else:
            found.append(_factors(formula, at, factor))
    return []


def _factors(formula: Formula, at: int, factor: Fraction) -> Product:
    """A product as a number times nodes; some that stay products where it has more factors than are looked at."""
    nodes: list[int] = []
    pending = [at]
    # Powers of powers have more factors than there are atoms.
    for _ in range(MOST):
        if not pending:
            break
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
    return factor, tuple(sorted([*nodes, *pending]))
