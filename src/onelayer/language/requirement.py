"""Requirements: a condition on the outputs and inputs of a model, as numbers that must not be negative.

Lemma: u > 0 holds where u > 0, its opposite where -u >= 0; a and b where the margins of both are good; a or b where the
larger of their margins is. So a condition holds at a point exactly if none of its margins is negative there, nor zero
where it is strict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from onelayer.errors import FormulaError, MisleadingText
from onelayer.language.conditions import Both, Condition, Known, Not, Positive
from onelayer.language.formula import Formula
from onelayer.language.parser import Parser
from onelayer.language.tree import Tape
from onelayer.names import as_seen

MOST = 64  # margins of one requirement: ``or`` of long ``and`` multiplies them


@dataclass(frozen=True)
class Requirement:
    """Margins as a formula of the outputs y1 ... yK and then the inputs; ``strict``: whether zero is not enough."""

    margins: Formula
    strict: bool


def parse_requirement(text: str, names: Sequence[str]) -> Requirement:
    """Read a condition such as ``y1 <= y2 + 0.1 and y1 >= 0`` about numbers of these names, and no others.

    Text that reads otherwise than it looks is refused, as that of a formula is.
    """
    found = _read(text, names)
    looks = as_seen(text), [as_seen(name) for name in names]
    if looks != (text, list(names)):
        other = _read(*looks)
        if (other.margins.nodes, other.strict) != (found.margins.nodes, found.strict):
            raise MisleadingText("letters of one alphabet stand for those of another; write each name in one alphabet")
    return found


def _read(text: str, names: Sequence[str]) -> Requirement:
    for at, name in enumerate(names):
        if name in names[:at]:
            raise FormulaError(f"'{name}' is the name of an output and of an input; give the input another name")
    parser = Parser(text, len(names), names=names)
    start = parser.next
    condition = parser.expression()
    if isinstance(condition, int):
        raise parser.error("a condition was expected, for example y1 >= 0", start)
    if parser.next.kind != "end":
        raise parser.error("the condition should end here; join conditions with and, or, not")
    # x1 would be read as the number of a variable, and the first one here is an output.
    foreign = parser.letters or parser.numbered
    if foreign is not None:
        raise parser.error(f"'{foreign.text}' is none of {', '.join(names[:8])}", foreign)
    found = _margins(condition, parser.tape)
    nodes = [node for node, _ in found]
    shape = (len(nodes),)
    margins = Formula.build(parser.tape.nodes, nodes, (len(names),), shape)
    return Requirement(margins, any(strict for _, strict in found))


def _margins(condition: Condition, tape: Tape) -> list[tuple[int, bool]]:
    """(node, strict) of every margin that must be good."""
    if isinstance(condition, Positive):
        return [(condition.node, True)]
    # As a number that is good or bad everywhere.
    if isinstance(condition, Known):
        return [(tape.number(1.0 if condition.holds else -1.0), False)]
    if isinstance(condition, Both):
        return [*_margins(condition.first, tape), *_margins(condition.second, tape)]
    if isinstance(condition, Not):
        return _margins_of_not(condition.inner, tape)
    raise FormulaError(f"{type(condition).__name__} is no condition on numbers")


def _margins_of_not(inner: Condition, tape: Tape) -> list[tuple[int, bool]]:
    """Margins of the opposite; not (a and b) asks of each pair of margins of not a and not b for the larger one."""
    if isinstance(inner, Positive):
        return [(tape.add("neg", inner.node), False)]
    if isinstance(inner, Not):
        return _margins(inner.inner, tape)
    if isinstance(inner, Known):
        return _margins(Known(not inner.holds), tape)
    if not isinstance(inner, Both):
        raise FormulaError(f"{type(inner).__name__} is no condition on numbers")
    left = _margins(Not(inner.first), tape)
    right = _margins(Not(inner.second), tape)
    if len(left) * len(right) > MOST:
        raise FormulaError(f"the condition has more than {MOST} parts; ask for them one by one")
    found = []
    for (a, a_strict), (b, b_strict) in product(left, right):
        found.append((tape.add("max", a, b), a_strict or b_strict))
    return found
