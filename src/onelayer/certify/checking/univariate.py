"""Functions of one variable in the checker's arithmetic: broken lines against formulas, images of intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flint import arb

from onelayer.certify.checking.arithmetic import Taylor, constant, coordinate
from onelayer.certify.checking.formula import evaluate
from onelayer.certify.checking.functions import Kinks
from onelayer.target.formula import Formula, Node

ORDER = 3
DEPTH = 70  # halvings of a piece
TIGHT = 1.003  # a box is bounded well enough within this factor of the largest value seen
CELLS = 256  # cells of an interval whose image is wanted

Ends = tuple[arb, arb]


@dataclass(frozen=True)
class Line:
    """On [low, high] the function value + slope (s - low), and anything within ``blur`` of it."""

    low: float
    high: float
    value: arb
    slope: arb
    blur: arb


def lines(knots: Sequence[float], changes: Sequence[arb], offset: arb, low: float, high: float) -> list[Line]:
    """offset + sum_u changes[u] relu(s - knots[u]) on [low, high], piece by piece; knots ascend."""
    value, slope = offset, arb(0)
    inner = []
    for knot, change in zip(knots, changes, strict=True):
        if knot <= low:
            value, slope = value + change * (arb(low) - arb(knot)), slope + change
        elif knot < high:
            inner.append((knot, change))
    found = []
    ends = [(low, arb(0)), *inner, (high, arb(0))]
    for (start, change), (stop, _) in pairwise(ends):
        slope = slope + change
        if stop > start:
            found.append(Line(start, stop, value, slope, arb(0)))
            value = value + slope * (arb(stop) - arb(start))
    return found


def steepest(pieces: Sequence[Line]) -> arb:
    largest = arb(0)
    for piece in pieces:
        largest = largest.max(piece.slope.abs_upper())
    return largest


def distance(formula: Formula, pieces: Sequence[Line]) -> arb:
    """Upper bound of |pieces - formula| over their intervals; not finite where the formula is undefined."""
    worst = arb(0)
    largest = max((max(_values(formula, piece)) for piece in pieces), default=0.0)
    goal = TIGHT * largest + 1e-13 * (1 + float(pieces[0].value.abs_upper()))
    for piece in pieces:
        pending = [(piece.low, piece.high, 0)]
        while pending:
            low, high, depth = pending.pop()
            bound, centre = _bound(formula, piece, low, high)
            middle = low / 2 + high / 2
            tight = bool(bound <= goal) or bool(bound <= TIGHT * centre)
            if not tight and depth < DEPTH and low < middle < high:
                pending += [(low, middle, depth + 1), (middle, high, depth + 1)]
                continue
            if not bound.is_finite():
                return arb.pos_inf()
            worst = worst.max(bound + piece.blur)
    return worst.upper()


def _values(formula: Formula, piece: Line) -> list[float]:
    """|line - formula| at some points, to know what can be proved; points without a value count as zero."""
    found = [0.0]
    for part in range(9):
        s = piece.low + (piece.high - piece.low) * part / 8
        value = evaluate(formula, [constant(arb(s), 1)], Kinks())[0].c[0]
        gap = value - piece.value - piece.slope * (arb(s) - arb(piece.low))
        if gap.is_finite():
            found.append(float(abs(gap).upper()))
    return found


def _bound(formula: Formula, piece: Line, low: float, high: float) -> tuple[arb, arb]:
    """Upper bound of |line - formula| on a box, and a lower bound of it at the centre."""
    s = coordinate(0, low, high, ORDER)
    line = s.shifted(-arb(piece.low)).scaled(piece.slope).shifted(piece.value)
    taylor: Taylor = evaluate(formula, [s], Kinks())[0] - line
    bound = taylor.range().abs_upper()
    if bound.is_finite():
        return bound, taylor.c[0].abs_lower()
    bottom, top = image(formula, [(arb(low), arb(high))])[0]
    ends = line.range()
    return (top - ends).abs_upper().max((bottom - ends).abs_upper()), arb(0)


def range_of(formula: Formula, low: float, high: float) -> Ends:
    """Ends of an interval that holds all values over [low, high]."""
    edges = [low + (high - low) * k / CELLS for k in range(CELLS)] + [high]
    cells = [image(formula, [(arb(a), arb(b))])[0] for a, b in pairwise(edges)]
    bottom, top = cells[0]
    for a, b in cells[1:]:
        bottom, top = bottom.min(a), top.max(b)
    return bottom.lower() if not bottom.is_zero() else bottom, top.upper()


def image(formula: Formula, x: Sequence[Ends]) -> list[Ends]:
    """Interval arithmetic by ends, so that a square or a root that touches zero stays at zero."""
    values: list[Ends] = []
    for node in formula.nodes:
        args = [values[at] for at in node.args]
        if node.op == "var":
            values.append(x[int(node.value)])
        elif node.op == "pow":
            values.append(_power(args[0], int(node.value)))
        elif node.op in _RULES:
            values.append(_RULES[node.op](*args))
        else:  # through one ball: constants and the functions that need no care at zero
            balls = [constant(a.union(b), 1) for a, b in args]
            values.append(_spread(_apply(node.op, node.value, balls)))
    return [values[at] for at in formula.outputs]


def _apply(op: str, value: float, args: list[Taylor]) -> arb:
    nodes = [*(Node("var", (), k) for k in range(len(args))), Node(op, tuple(range(len(args))), value)]
    single = Formula(tuple(nodes), (len(args),), (max(1, len(args)),))
    return evaluate(single, args or [constant(arb(0), 1)], Kinks())[0].range()


def _spread(ball: arb) -> Ends:
    return ball.lower(), ball.upper()


def _power(x: Ends, n: int) -> Ends:
    low, high = x
    if n < 0 or (n % 2 and n > 0):
        ball = low.union(high) ** n
        return (low**n, high**n) if n > 0 else _spread(ball)
    most = (abs(low).max(abs(high))) ** n
    least = low**n if low >= 0 else high**n if high <= 0 else arb(0)
    return least, most


def _product(a: Ends, b: Ends) -> Ends:
    ends = [p * q for p in a for q in b]
    low, high = ends[0], ends[0]
    for end in ends[1:]:
        low, high = low.min(end), high.max(end)
    return low, high


def _root(x: Ends) -> Ends:
    low, high = x
    start = arb(0) if low.is_zero() else low.sqrt()
    return start, high.sqrt()


def _absolute(x: Ends) -> Ends:
    low, high = x
    least = low if low >= 0 else -high if high <= 0 else arb(0)
    return least, abs(low).max(abs(high))


_RULES: dict[str, Callable[..., Ends]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "neg": lambda a: (-a[1], -a[0]),
    "mul": _product,
    "sqrt": _root,
    "abs": _absolute,
    "exp": lambda a: (a[0].exp(), a[1].exp()),
    "log": lambda a: (a[0].log(), a[1].log()),
}
