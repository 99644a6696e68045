"""Sums a^2 + b^2 + 2 a b cos t, squared sides of triangles: no less than (|a| - |b|)^2, since |cos t| <= 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import islice

from onelayer.language.formula import Formula

Product = tuple[Fraction, tuple[int, ...]]  # a number times nodes, in order
MOST = 64  # factors of a term that are looked at


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
    terms = islice(_products(formula, at, Fraction(1)), 4)  # a fourth term is one too many
    products = sorted(terms, key=lambda product: len(product[1]))
    if [len(nodes) for _, nodes in products] != [2, 2, 3]:
        return None
    (one, (a, again)), (other, (b, once_more)), (twice, crossed) = products
    rest = [*(Counter(crossed) - Counter((a, b))).elements()]
    numbers = one == other == 1 and abs(twice) == 2
    if numbers and (a, b) == (again, once_more) and [formula.nodes[at].op for at in rest] == ["cos"]:
        return a, b
    return None


def _products(formula: Formula, at: int, factor: Fraction) -> Iterator[Product]:
    """The terms of a sum, each as a number times nodes that are no products; a stack, as sums are deeper than calls."""
    pending = [(at, factor)]
    while pending:
        at, factor = pending.pop()
        node = formula.nodes[at]
        if node.op == "neg":
            pending.append((node.args[0], -factor))
        elif node.op in ("add", "sub"):
            first, second = node.args
            pending += [(second, factor if node.op == "add" else -factor), (first, factor)]
        else:
            yield _factors(formula, at, factor)


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
