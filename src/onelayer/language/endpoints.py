"""Domain text such as ``0:2*pi, -1:1``: endpoints are constant formulas, rounded outward to cover the real box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flint import ctx

from onelayer.box import Box
from onelayer.language.balls import ball, below
from onelayer.language.parser import MAX_CHARACTERS, Parser, Token
from onelayer.language.tree import Node

_BITS = 256


def parse_domain(text: str) -> Box:
    """Read ``a:b`` per coordinate, separated by commas; a single ``a:b`` is a one-dimensional box.

    An endpoint that is exactly a float64 stays as it is. Any other (pi, 1/3) moves outward to the next float64, so the
    box contains the real interval that the text means.
    """
    parser = Parser(text, dim=None, limit=MAX_CHARACTERS)
    lower: list[float] = []
    upper: list[float] = []
    while True:
        start = parser.next
        lower.append(_constant(parser, start)[0])
        if not parser.accept(":"):
            raise parser.error("a domain is written lower:upper per coordinate, as in 0:1, -1:1", parser.next)
        upper.append(_constant(parser, parser.next)[1])
        if not lower[-1] <= upper[-1]:
            raise parser.error(f"empty interval {lower[-1]:g}:{upper[-1]:g}; write the smaller endpoint first", start)
        if parser.next.kind == "end":
            return Box(lower, upper)
        if not (parser.accept(",") or parser.accept(";")):
            raise parser.error("expected a comma between coordinates, as in 0:1, -1:1", parser.next)


def parse_point(text: str) -> list[float]:
    """Read the coordinates of a point: constant formulas separated by commas, each rounded to a float64."""
    parser = Parser(text, dim=None, limit=MAX_CHARACTERS)
    numbers = [_constant(parser, parser.next)[0]]
    while parser.accept(","):
        numbers.append(_constant(parser, parser.next)[0])
    if parser.next.kind != "end":
        raise parser.error("expected a comma between coordinates, as in 1.0, pi/2", parser.next)
    return numbers


def _constant(parser: Parser, token: Token) -> tuple[float, float]:
    at = parser.expression()
    if parser.tape.constant[at] is None:
        raise parser.error("this must be a constant, for example 2*pi", token)
    low, high = enclose(parser.tape.nodes, at)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise parser.error("this constant has no finite value", token)
    return low, high


def enclose(nodes: Sequence[Node], at: int) -> tuple[float, float]:
    """The tightest pair of float64 around the real value of a constant node; infinite where it is undefined."""
    with ctx.workprec(_BITS):
        values: list[Any] = []
        for node in nodes[: at + 1]:
            args = [values[arg] for arg in node.args]
            known = node.op != "var" and all(arg is not None for arg in args)
            values.append(ball(node, args) if known else None)
        if not values[at].is_finite():
            return -math.inf, math.inf
        return below(values[at]), -below(-values[at]) + 0.0
