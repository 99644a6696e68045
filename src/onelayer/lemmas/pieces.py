"""The argument of a layer of pieces: sharp heads are maxima of affine functions, ReLU units functions of their sums.

    f_o(x) = u_o(x) + sum over curves g of output o of g(u_g(x)),   u = sum_h c_h max_m l_hm(x) + l(x)
with affine l. Every continuous piecewise linear function is one u_o, with two heads: a difference of two maxima.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from onelayer.lemmas.fields import are_sizes, need, numbers, places, records, settle
from onelayer.lemmas.term import OfOneVariable

RATIONAL = re.compile(r"-?\d{1,1200}(/[1-9]\d{0,1199})?")  # products and quotients of float64 numbers are this short


@dataclass(frozen=True)
class SharpHead:
    """max over m of a_m . x + b_m: rows (a_m1, ..., a_mD, b_m), rational numbers as text."""

    lines: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        listed = isinstance(self.lines, list | tuple)
        need(listed and len(self.lines) >= 1, "a head of no lines")
        settle(self, lines=tuple(_rationals(line) for line in self.lines))


@dataclass(frozen=True)
class PieceSum:
    """sum_h weights[h] head_h + line, rational numbers as text."""

    weights: tuple[str, ...]
    line: tuple[str, ...]

    def __post_init__(self) -> None:
        settle(self, weights=_rationals(self.weights), line=_rationals(self.line))


@dataclass(frozen=True)
class CurveTerm(OfOneVariable):
    """g(u) with u a sum of sharp heads, added to one output.

    Its hidden units make ``constant`` + sum of c relu(u - t), which is close to g.
    """

    output: int
    text: str
    constant: float
    argument: PieceSum

    def __post_init__(self) -> None:
        need(type(self.text) is str, "a curve without text")
        numbers([self.constant])
        (argument,) = records(PieceSum, [self.argument])
        settle(self, argument=argument)


@dataclass(frozen=True)
class Pieces:
    """The sums of the outputs, the curves, and the curve of every hidden unit."""

    inputs: int
    outputs: int
    heads: tuple[SharpHead, ...]
    direct: tuple[PieceSum, ...]
    curves: tuple[CurveTerm, ...]
    units: tuple[int, ...]

    KIND = "pieces"

    def __post_init__(self) -> None:
        need(are_sizes([self.inputs, self.outputs]), "sizes must be >= 1")
        heads = records(SharpHead, self.heads)
        direct = records(PieceSum, self.direct)
        curves = records(CurveTerm, self.curves)
        units = tuple(self.units)
        need(len(heads) >= 1 and len(direct) == self.outputs, "a head, and a sum for every output, are needed")
        need(places([one.output for one in curves], self.outputs), "no such output")
        need(places(units, len(curves)), "a unit of no curve")
        affine = self.inputs + 1  # numbers of a line: its slopes and its constant
        for one in (*direct, *(curve.argument for curve in curves)):
            need(len(one.weights) == len(heads) and len(one.line) == affine, "a sum of another size")
        for head in heads:
            need(all(len(line) == affine for line in head.lines), "a line of another size")
        settle(self, heads=heads, direct=direct, curves=curves, units=units)

    @property
    def sums(self) -> list[PieceSum]:
        """The sums in the order in which the stream holds them: of the curves, then of the outputs."""
        arguments = [curve.argument for curve in self.curves]
        return [*arguments, *self.direct]


def _rationals(values: Any) -> tuple[str, ...]:
    need(isinstance(values, list | tuple), "a list of rational numbers is needed")
    for one in values:
        need(type(one) is str and RATIONAL.fullmatch(one) is not None, "rational numbers are text")
    return tuple(values)
