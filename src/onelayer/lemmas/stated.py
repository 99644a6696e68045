"""Whether a formula is the sums of maxima, and curves of them, that an argument of pieces states."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.lemmas.algebra import Normal
from onelayer.lemmas.kinks import ONE, Sum, added, variable
from onelayer.lemmas.pieces import Pieces, PieceSum
from onelayer.observer import Observer
from onelayer.taylor.hull import defined_on


def states(pieces: Pieces, formula: Formula, box: Box, observer: Observer | None = None) -> bool:
    """Whether algebra shows the formula to be what ``pieces`` says, on the whole box; False shows nothing."""
    if formula.dim != pieces.inputs or len(formula.outputs) != pieces.outputs:
        return False
    if not defined_on(formula, box):
        return False
    normal = Normal(box, observer)
    try:
        return normal.outputs(formula) == _stated(pieces, normal)
    except (OnelayerError, OverflowError, ZeroDivisionError):
        return False


def _stated(pieces: Pieces, normal: Normal) -> list[Sum]:
    """The normal form of every output, as the argument states it."""
    heads = [normal.largest([_line(line) for line in head.lines]) for head in pieces.heads]
    found = [_sum(one, heads) for one in pieces.direct]
    for curve in pieces.curves:
        argument = _sum(curve.argument, heads)
        (value,) = normal.outputs(curve.formula, [argument])
        found[curve.output] = added(found[curve.output], value, 1)
    return found


def _sum(one: PieceSum, heads: Sequence[Sum]) -> Sum:
    total = _line(one.line)
    for weight, head in zip(one.weights, heads, strict=True):
        total = added(total, head, Fraction(weight))
    return total


def _line(line: Sequence[str]) -> Sum:
    *slopes, offset = map(Fraction, line)
    total: Sum = {}
    for j, a in enumerate(slopes):
        total = added(total, variable(j), a)
    return added(total, {ONE: offset}, 1)
