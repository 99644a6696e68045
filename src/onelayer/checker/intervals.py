"""Interval arithmetic of the checker by ends: the values of a formula on a box."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb

from onelayer.checker.deadline import need_time
from onelayer.checker.functions import Ends
from onelayer.checker.operations import CONSTANTS, NOWHERE, OPERATIONS, needed, operation
from onelayer.checker.triangles import squared_sides
from onelayer.language.formula import Formula, Node


def image(formula: Formula, x: Sequence[Ends]) -> list[Ends]:
    """Ends of intervals that hold the outputs for x in intervals; not finite where one may be undefined."""
    values, defined = node_intervals(formula, x)
    return [values[at] if defined[at] else NOWHERE for at in formula.outputs]


def node_intervals(formula: Formula, x: Sequence[Ends]) -> tuple[list[Ends], list[bool]]:
    """Of each node the ends of an interval for x in intervals, and whether it surely has a value."""
    values: list[Ends] = []
    defined: list[bool] = []
    sides = squared_sides(formula)
    for at, node in enumerate(formula.nodes):
        need_time()
        args = [values[arg] for arg in node.args]
        known = _narrower(node_interval(node, args, x), _less_its_square(formula, node, values))
        least = _least_side(*(values[leg] for leg in sides[at])) if at in sides else None
        values.append(_narrower(known, least))
        defined.append(bounded(values[-1]) and needed(node, args, [defined[arg] for arg in node.args]))
    return values, defined


def bounded(ends: Ends) -> bool:
    """Whether both ends are numbers."""
    return ends[0].is_finite() and ends[1].is_finite()


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
