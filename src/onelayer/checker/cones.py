"""Functions of two sums that rise in proportion to them, in the checker: what holds on the rim of a box holds inside.

If h(t u) = t h(u) for t >= 0 and the box has zero inside, then u = t b for a point b of its rim and some t in [0, 1],
and |h(u)| = t |h(b)|.
"""

from __future__ import annotations

from collections.abc import Iterator

from onelayer.language.formula import Formula, Node
from onelayer.lemmas.nested import Outer

ANY = ("add", "sub", "neg", "abs", "relu", "max", "min")  # of terms of one degree, which they keep
Edge = tuple[Formula, Formula, float, float]


def rises_in_proportion(part: Outer) -> bool:
    """Whether that can be read off an outer function of two sums and off all its ridges."""
    if len(part.sums) != 2 or not all(low < 0 < high for low, high in zip(part.low, part.high, strict=True)):
        return False
    return _degree(part.formula) == 2 and _degree(part.decomposed()) == 2


def edges(part: Outer, g: Formula, ridges: Formula) -> Iterator[Edge]:
    """Both functions on each edge of the box, as functions of the sum that varies there, and its ends."""
    for fixed in (0, 1):
        for end in (part.low[fixed], part.high[fixed]):
            yield _held(g, fixed, end), _held(ridges, fixed, end), part.low[1 - fixed], part.high[1 - fixed]


def _degree(formula: Formula) -> int | None:
    """Twice the degree in which the formula is homogeneous; None where its operations do not show one.

    Only operations that have a value at zero count. A root of an odd number of halves is not followed.
    """
    found: list[int | None] = []
    for node in formula.nodes:
        args = [found[at] for at in node.args]
        known = [arg for arg in args if arg is not None]
        found.append(_of(node, known) if len(known) == len(args) else None)
    return found[formula.outputs[0]]


def _of(node: Node, args: list[int]) -> int | None:
    if node.op == "var":
        return 2
    if not args:
        return 0
    if node.op == "mul":
        return args[0] + args[1]
    if node.op == "pow":
        if node.value > 0:
            return args[0] * int(node.value)
        return None
    if node.op == "sqrt":
        if args[0] % 2 == 0:
            return args[0] // 2
        return None
    if node.op in ANY and len(set(args)) == 1:
        return args[0]
    return None


def _held(formula: Formula, fixed: int, end: float) -> Formula:
    """The formula with one of its two variables held at a number."""
    nodes: list[Node] = []
    place: list[int] = []
    for node in formula.nodes:
        if node.op != "var":
            nodes.append(Node(node.op, tuple(place[at] for at in node.args), node.value))
        elif int(node.value) != fixed:
            nodes.append(Node("var", (), 0))
        else:
            nodes.append(Node("num", (), abs(end)))
            if end < 0:
                nodes.append(Node("neg", (len(nodes) - 1,)))
        place.append(len(nodes) - 1)
    return Formula.build(nodes, [place[at] for at in formula.outputs], (1,))
