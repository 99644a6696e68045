"""Squared sides of triangles a^2 + b^2 - 2 a b cos t, which intervals of their terms do not know to be squares.

Lemma (law of cosines): a^2 + b^2 - 2 a b cos t = (a - b cos t)^2 + (b sin t)^2 >= (|a| - |b|)^2 >= 0, since
cos t <= 1 in absolute value. The same holds with + for -.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch

from onelayer.float64 import TINY, UNIT
from onelayer.language.formula import Formula
from onelayer.language.intervals import Interval, absolute
from onelayer.language.term import Term, applied
from onelayer.language.tree import Node, Tape, squared

TWO = Node("num", (), 2.0)
SUM, PRODUCT = ("add", "sub"), ("mul",)
ROUNDINGS = 8 * UNIT  # of a difference and its square


@dataclass(frozen=True)
class ThirdSide:
    """A node that is a^2 + b^2 + 2 ``sign`` a b cos t, with the nodes a, b and t."""

    a: int
    b: int
    t: int
    sign: int

    def interval(self, found: Sequence[Interval]) -> Interval:
        """The node is at least the square of the distance between |a| and |b|."""
        least_a, most_a = absolute(*found[self.a])
        least_b, most_b = absolute(*found[self.b])
        apart = torch.maximum(least_a - most_b, least_b - most_a).clamp(min=0.0)
        square = apart * apart * (1 - ROUNDINGS) - TINY
        low = square.clamp(min=0.0)
        # Where intervals overflow, a square is still not negative.
        low = torch.where(torch.isfinite(low), low, torch.zeros_like(low))
        return low, torch.full_like(low, torch.inf)


def third_sides(formula: Formula) -> dict[int, ThirdSide]:
    """The nodes that are squared sides."""
    found = {}
    for at, node in enumerate(formula.nodes):
        if node.op in ("add", "sub"):
            match = _matched(formula.nodes, at)
            if match is not None:
                found[at] = match
    return found


def as_squares(formula: Formula) -> Formula | None:
    """The formula with every squared side as a sum of two squares; None where there is none."""
    sides = third_sides(formula)
    if not sides:
        return None
    tape = Tape()
    places: list[int] = []
    for at, node in enumerate(formula.nodes):
        if at in sides:
            places.append(_as_square_sum(tape, sides[at], places))
        else:
            args = (places[arg] for arg in node.args)
            places.append(tape.add(node.op, *args, value=node.value))
    outputs = [places[at] for at in formula.outputs]
    return Formula.build(tape.nodes, outputs, formula.input_shape, formula.output_shape)


def _as_square_sum(tape: Tape, side: ThirdSide, places: Sequence[int]) -> int:
    """The node of (a +- b cos t)^2 + (b sin t)^2."""
    a = Term(tape, places[side.a])
    b = Term(tape, places[side.b])
    t = Term(tape, places[side.t])
    shifted = b * applied("cos")(t)
    along = a + shifted if side.sign > 0 else a - shifted
    across = b * applied("sin")(t)
    return (along**2 + across**2).at


def _matched(nodes: Sequence[Node], at: int) -> ThirdSide | None:
    legs, crossed = _sorted_out(nodes, at)
    if (len(legs), len(crossed)) != (2, 1):
        return None
    return _crossed(nodes, *crossed[0], legs)


def _crossed(nodes: Sequence[Node], sign: int, term: int, legs: list[int]) -> ThirdSide | None:
    """The side whose third term is this one: 2 cos t times both legs."""
    # A leg may be a cosine or a 2 itself, so each of them is tried as the one that the law asks for.
    turn, factors = _factors(nodes, term)
    cosines = [one for one in factors if nodes[one].op == "cos"]
    twos = [one for one in factors if nodes[one] == TWO]
    for cosine, two in product(cosines, twos):
        if sorted([*legs, cosine, two]) == sorted(factors):
            return ThirdSide(legs[0], legs[1], nodes[cosine].args[0], sign * turn)
    return None


def _sorted_out(nodes: Sequence[Node], at: int) -> tuple[list[int], list[tuple[int, int]]]:
    """What is squared and added in a sum of three terms, and all its other terms with their signs."""
    legs = []
    others = []
    for sign, term in _parts(nodes, at, SUM, 3):
        root = squared(nodes, term)
        if root is not None and sign > 0:
            legs.append(root)
        else:
            others.append((sign, term))
    return legs, others


def _factors(nodes: Sequence[Node], at: int) -> tuple[int, list[int]]:
    """The sign and the factors of a product of four."""
    parts = _parts(nodes, at, PRODUCT, 4)
    sign = math.prod(turn for turn, _ in parts)
    return sign, [factor for _, factor in parts]


def _parts(nodes: Sequence[Node], at: int, joins: Sequence[str], most: int) -> list[tuple[int, int]]:
    """The terms of a sum, or the factors of a product, with their signs; none where there are more than ``most``.

    What is pending is one part at least. So a sum of sums, which may have more terms than there are atoms, is left
    after a few steps, and no depth of it is a call.
    """
    found = list[tuple[int, int]]()
    pending = [(1, at)]
    while pending:
        if len(found) + len(pending) > most:
            return []
        sign, at = pending.pop()
        node = nodes[at]
        if node.op == "neg":
            pending.append((-sign, node.args[0]))
        elif node.op in joins:
            first, second = node.args
            pending += [(-sign if node.op == "sub" else sign, second), (sign if joins is SUM else 1, first)]
        else:
            found.append((sign, at))
    return found
