"""Domain text such as ``0:2*pi, -1:1`` or ``m0=1:5, h[m]=0:2e4``: constant formulas, rounded outward."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from onelayer.box import Box
from onelayer.ground import ball_precision
from onelayer.language.balls import ball, below
from onelayer.language.lexemes import MAX_CHARACTERS
from onelayer.language.parser import Parser
from onelayer.language.tree import Node
from onelayer.names import LETTERS

_BITS = 256  # of an endpoint's ball: far more than the 53 it is rounded to
_UNIT = re.compile(rf"(?<=[{LETTERS}0-9]) *\[[^\[\]]{{1,40}}\]")
_WRITTEN = "a domain is written lower:upper per coordinate, as in 0:1, -1:1, or v=1:2 with a name"


def parse_domain(text: str) -> Box:
    """Read ``a:b`` or ``name=a:b`` per coordinate, separated by commas; a unit may follow a name in brackets.

    An endpoint that is exactly a float64 stays as it is. Any other (pi, 1/3) moves outward to the next float64, so the
    box contains the real interval that the text means.
    """
    parser, units = _begun(text)
    lower: list[float] = []
    upper: list[float] = []
    names: list[str] = []
    while True:
        start = parser.next
        name = parser.accept_binding()
        if name is not None:
            behind = name.column + len(name.text)
            names.append(name.text + units.get(behind, ""))
        low, _ = _constant(parser)
        if not parser.accept(":"):
            raise parser.error(_WRITTEN, parser.next)
        _, high = _constant(parser)
        if not low <= high:
            raise parser.error(f"empty interval {low:g}:{high:g}; write the smaller endpoint first", start)
        lower.append(low)
        upper.append(high)
        if len(names) not in (0, len(lower)):
            raise parser.error("name every coordinate or none, as in v=1:2, c=3:10", start)
        if parser.next.kind == "end":
            return Box(lower, upper, names=names)
        if not (parser.accept(",") or parser.accept(";")):
            raise parser.error("expected a comma between coordinates, as in 0:1, -1:1", parser.next)


def _begun(text: str) -> tuple[Parser, dict[int, str]]:
    """A parser of a domain, and the units by the columns at which they stood."""
    bare, units = _units(text)
    parser = Parser(bare, dim=None, limit=MAX_CHARACTERS)
    if parser.next.kind == "end" or parser.next.text == "[":
        raise parser.error(_WRITTEN, parser.next)
    return parser, units


def parse_point(text: str, names: Sequence[str] = ()) -> list[float]:
    """Read the coordinates of a point: constant formulas separated by commas, each rounded to a float64.

    They stand in the order of the domain, or each behind its name: ``v=1.5, c=4``, ``v[m/s]=1.5``.
    """
    parser = Parser(_units(text)[0], dim=None, limit=MAX_CHARACTERS)
    numbers: list[float] = []
    places: list[str] = []
    while not numbers or parser.accept(","):
        name = parser.accept_binding()
        if name is not None:
            if name.text not in names:
                known = ", ".join(names) or "no names"
                raise parser.error(f"no coordinate is called {name.text}; there are {known}", name)
            places.append(name.text)
        low, _ = _constant(parser)
        numbers.append(low)
    if parser.next.kind != "end":
        raise parser.error("expected a comma between coordinates, as in 1.0, pi/2", parser.next)
    if places:
        return _in_order(parser, numbers, places, names)
    return numbers


def _in_order(parser: Parser, numbers: list[float], places: list[str], names: Sequence[str]) -> list[float]:
    """Numbers that were given by name, in the order of the names."""
    if sorted(places) != sorted(names) or len(places) != len(numbers):
        example = ", ".join(f"{name}=1" for name in names)
        raise parser.error(f"give every coordinate once, as in {example}")
    return [numbers[places.index(name)] for name in names]


def _units(text: str) -> tuple[str, dict[int, str]]:
    """The text with blanks in the place of units in brackets, and the units by the columns at which they stood."""
    found = {match.start() + 1: match[0].strip() for match in _UNIT.finditer(text)}
    # Blanks, so that errors name the columns of the text as it was written.
    bare = _UNIT.sub(lambda match: " " * len(match[0]), text)
    return bare, found


def _constant(parser: Parser) -> tuple[float, float]:
    """The next expression, which must be a constant: floats below and above it."""
    token = parser.next
    at = parser.number()
    if parser.tape.constant[at] is None:
        raise parser.error("this must be a constant, for example 2*pi", token)
    low, high = enclose(parser.tape.nodes, at)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise parser.error("this constant has no finite value", token)
    return low, high


def enclose(nodes: Sequence[Node], at: int) -> tuple[float, float]:
    """The tightest pair of float64 around the real value of a constant node; infinite where it is undefined."""
    # Nodes that hang on a variable are None: the tape may hold some that the constant does not use.
    with ball_precision(_BITS):
        values: list[Any] = []
        for node in nodes[: at + 1]:
            args = [values[arg] for arg in node.args]
            known = node.op != "var" and all(arg is not None for arg in args)
            values.append(ball(node, args) if known else None)
        if not values[at].is_finite():
            return -math.inf, math.inf
        low = below(values[at])
        high = -below(-values[at])
        return low, high + 0.0  # -0.0 becomes 0.0
