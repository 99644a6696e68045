"""Differences sqrt(a^2 + b) - a with b >= 0, which intervals of their terms do not know to be positive.

Lemma: p(a, b) = sqrt(a^2 + b) - a = b / (sqrt(a^2 + b) + a) decreases in a and increases in b >= 0. So over intervals
[a0, a1] and [b0, b1] it lies between p(a1, b0) and p(a0, b1), and both are computed without cancellation: by the
quotient for a > 0, by the sum of two positive numbers otherwise.

Where a^2 + b overflows, only p >= 0 is known. Where it is below LEAST, a^2 or b may be lost by underflow, and what is
known is 0 <= p <= 2 sqrt(a^2 + b). Elsewhere 2^-1022 lost of a^2 is no rounding, and of b it is 2^-572 of p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.float64 import UNIT
from onelayer.language.formula import Formula
from onelayer.language.intervals import Interval
from onelayer.language.tree import Node, squared

ROUNDINGS = 32 * UNIT  # of six operations, a root of 4 ulp among them
LEAST = 2.0**-900  # of a^2 + b, for its root to be a root
LOST = 2.0**-500  # more than underflow takes of p there
SMALL = 2.0**-440  # more than twice the root of LEAST


@dataclass(frozen=True)
class Conjugate:
    """A node that is ``sign`` (sqrt(a^2 + b) - a), a = ``turn`` times one node, b = ``lift`` times another."""

    sign: int
    a: int
    turn: int
    b: int
    lift: int

    def interval(self, found: Sequence[Interval]) -> Interval:
        """Bounds of the node from those of the nodes before it; everything where b may be negative."""
        a = _times(found[self.a], self.turn)
        b = _times(found[self.b], self.lift)
        # Decreasing in a, increasing in b.
        low = _lowest(a[1], b[0])
        high = _highest(a[0], b[1])
        known = (b[0] >= 0) & torch.isfinite(low) & torch.isfinite(high)
        low = torch.where(known, low, -torch.inf)
        high = torch.where(known, high, torch.inf)
        return _times((low, high), self.sign)


def conjugates(formula: Formula) -> dict[int, Conjugate]:
    """The nodes that are such differences."""
    found = {}
    for at, node in enumerate(formula.nodes):
        if node.op in ("add", "sub"):
            first = (node.args[0], 1)
            second = (node.args[1], 1 if node.op == "add" else -1)
            for root, other in ((first, second), (second, first)):
                match = _matched(formula.nodes, *root, *other)
                if match is not None:
                    found[at] = match
    return found


def cut(ends: Interval, other: Interval) -> Interval:
    """What two enclosures leave of each other; NaN compares as no bound.

    Without a common number there is no value to enclose, and the first stays: no interval has its ends in wrong order.
    """
    low = torch.where(other[0] > ends[0], other[0], ends[0])
    high = torch.where(other[1] < ends[1], other[1], ends[1])
    apart = low > high
    return torch.where(apart, ends[0], low), torch.where(apart, ends[1], high)


def _matched(nodes: Sequence[Node], root: int, sign: int, other: int, turn: int) -> Conjugate | None:
    """sign * sqrt(a^2 + b) + turn * other, where other is a or -a."""
    root, sign = _stripped(nodes, root, sign)
    other, turn = _stripped(nodes, other, turn)
    if nodes[root].op != "sqrt":
        return None
    inside = nodes[nodes[root].args[0]]
    if inside.op not in ("add", "sub"):
        return None
    first, second = inside.args
    # a^2 + b, a^2 - b and b + a^2, but not b - a^2.
    if _is_square(nodes, first, other):
        lift = 1 if inside.op == "add" else -1
        return Conjugate(sign, other, -sign * turn, second, lift)
    if inside.op == "add" and _is_square(nodes, second, other):
        return Conjugate(sign, other, -sign * turn, first, 1)
    return None


def _stripped(nodes: Sequence[Node], at: int, sign: int) -> tuple[int, int]:
    """A node without the negations around it, and the sign."""
    while nodes[at].op == "neg":
        at = nodes[at].args[0]
        sign = -sign
    return at, sign


def _is_square(nodes: Sequence[Node], at: int, of: int) -> bool:
    root = squared(nodes, at)
    return root is not None and _stripped(nodes, root, 1)[0] == of


def _lowest(a: Tensor, b: Tensor) -> Tensor:
    """A number that p(a, b) is not below."""
    value = _difference(a, b)
    square = a * a + b
    low = value - value * ROUNDINGS - LOST
    lost = (square < LEAST) | torch.isinf(square)
    return torch.where(lost, 0.0, low)


def _highest(a: Tensor, b: Tensor) -> Tensor:
    """A number that p(a, b) is not above."""
    value = _difference(a, b)
    square = a * a + b
    high = value + value * ROUNDINGS + LOST
    high = torch.where(square < LEAST, SMALL, high)
    return torch.where(torch.isinf(square), torch.inf, high)


def _difference(a: Tensor, b: Tensor) -> Tensor:
    root = torch.sqrt(a * a + b)
    return torch.where(a > 0, b / (root + a), root - a)


def _times(ends: Interval, sign: int) -> Interval:
    if sign > 0:
        return ends
    return -ends[1], -ends[0]
