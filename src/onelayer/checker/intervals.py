"""Interval arithmetic of the checker by ends: the values of a formula on a box."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.checker.deadline import need_time
from onelayer.checker.functions import Ends, bounded
from onelayer.checker.operations import CONSTANTS, NOWHERE, OPERATIONS, needed, operation
from onelayer.checker.triangles import squared_sides
from onelayer.language.formula import Formula, Node


class Images:
    """Of the nodes of a formula, one after another, ends of an interval that holds all values for x in intervals.

    ``defined`` says which surely have a value. What is known of a node from elsewhere narrows it for those that follow.
    """

    def __init__(self, formula: Formula, x: Sequence[Ends]) -> None:
        self.formula = formula
        self.x = x
        self.values: list[Ends] = []
        self.defined: list[bool] = []
        self.sides = squared_sides(formula)

    def add(self) -> None:
        """The next node."""
        need_time()
        at = len(self.values)
        node = self.formula.nodes[at]
        args = [self.values[arg] for arg in node.args]
        known = _narrower(node_interval(node, args, self.x), _less_its_square(self.formula, node, self.values))
        legs = self.sides.get(at)
        least = None if legs is None else _least_side(*(self.values[leg] for leg in legs))
        ends = _narrower(known, least)
        self.values.append(ends)
        self.defined.append(bounded(ends) and needed(node, args, [self.defined[arg] for arg in node.args]))

    def narrow(self, ends: Ends) -> None:
        """The last node has a value everywhere, between these ends too."""
        self.defined[-1] = True
        known = _narrower(self.values[-1], ends) if bounded(self.values[-1]) else ends
        # Ends that cross belong to a case without a point.
        if not known[0] > known[1]:
            self.values[-1] = known


def image(formula: Formula, x: Sequence[Ends]) -> list[Ends]:
    """Ends of intervals that hold the outputs for x in intervals; not finite where one may be undefined."""
    images = Images(formula, x)
    for _ in formula.nodes:
        images.add()
    return [images.values[at] if images.defined[at] else NOWHERE for at in formula.outputs]


def node_interval(node: Node, args: Sequence[Ends], x: Sequence[Ends]) -> Ends:
    """One operation on intervals of its arguments."""
    if node.op == "var":
        return x[int(node.value)]
    if node.op == "num":
        return arb(node.value), arb(node.value)
    if node.op in CONSTANTS:
        return CONSTANTS[node.op](), CONSTANTS[node.op]()
    return operation(node).interval(*args)


def _narrower(ends: Ends, other: Ends | None) -> Ends:
    """What two enclosures have in common."""
    if other is None or not bounded(ends):
        return ends
    return ends[0].max(other[0]), ends[1].min(other[1])


def _least_side(a: Ends, b: Ends) -> Ends:
    """Ends of a^2 + b^2 + 2 a b cos t >= (|a| - |b|)^2."""
    (least_a, most_a), (least_b, most_b) = (OPERATIONS["abs"].interval(leg) for leg in (a, b))
    apart = (least_a - most_b).max(least_b - most_a).max(arb(0))
    return (apart * apart).lower(), arb("inf")


def _less_its_square(formula: Formula, node: Node, values: Sequence[Ends]) -> Ends | None:
    """Ends of r - a and a - r for r = sqrt(a^2 + b), of r + a and the like; None of any other node.

    d/da (r - a) = a/r - 1 <= 0 and d/db (r - a) = 1/(2r) > 0 where b > 0: the least value is that of the largest a and
    the least b. Without cancellation it is b / (r + a) for a > 0.
    """
    if node.op not in ("add", "sub"):
        return None
    left, right = (_signed(formula, at) for at in node.args)
    right = right if node.op == "add" else (-right[0], right[1])
    for (s, root), (t, other) in ((left, right), (right, left)):
        rest = _beside_square(formula, root, other)
        if rest is None:
            continue
        b = _turned(rest[0], values[rest[1]])
        a = _turned(-s * t, values[other])
        if b[0] > 0:
            return _turned(s, (_gap(a[1], b[0]).lower(), _gap(a[0], b[1]).upper()))
    return None


def _beside_square(formula: Formula, root: int, other: int) -> tuple[int, int] | None:
    """The sign and the node b of a node that is sqrt(other^2 + b)."""
    if formula.nodes[root].op != "sqrt":
        return None
    under = formula.nodes[formula.nodes[root].args[0]]
    if under.op not in ("add", "sub"):
        return None
    first, second = under.args
    if _squares(formula, first, other):
        return (1 if under.op == "add" else -1), second
    if under.op == "add" and _squares(formula, second, other):
        return 1, first
    return None


def _squares(formula: Formula, at: int, other: int) -> bool:
    node = formula.nodes[at]
    twice = (node.op == "pow" and node.value == 2) or (node.op == "mul" and node.args[0] == node.args[1])
    return twice and _signed(formula, node.args[0])[1] == other


def _signed(formula: Formula, at: int) -> tuple[int, int]:
    """A node as a sign times a node that is no negation."""
    sign = 1
    while formula.nodes[at].op == "neg":
        sign = -sign
        at = formula.nodes[at].args[0]
    return sign, at


def _gap(a: arb, b: arb) -> arb:
    """sqrt(a^2 + b) - a at a number a."""
    root = (a * a + b).sqrt()
    if a > 0:
        return b / (root + a)
    return root - a


def _turned(sign: int, ends: Ends) -> Ends:
    if sign > 0:
        return ends
    return -ends[1], -ends[0]
