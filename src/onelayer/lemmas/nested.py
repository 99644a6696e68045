"""The argument of a packed layer that composes: lookup heads are inner functions, its ReLU units outer ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

from onelayer.language.compose import inside, substituted, total, weighted
from onelayer.language.formula import Formula, parse
from onelayer.language.tree import Tape
from onelayer.lemmas.fields import need, numbers, places, records
from onelayer.lemmas.term import OfOneVariable

MOST_FACTORS = 15  # of an inner function: a head has one feature of its keys for each, and one for their biases
MOST_SUMS = 8  # inputs of an outer function; more cannot be bounded in time
Columns = tuple[tuple[tuple[float, ...], ...], ...]  # numbers by product and axis


@dataclass(frozen=True)
class Inner(OfOneVariable):
    """phi(direction . x), times further such factors: a formula of one variable and the direction it looks in, (D,)."""

    direction: tuple[float, ...]
    text: str
    more: tuple[Inner, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", numbers(self.direction))
        need(any(self.direction), "an inner function of no direction")
        need(type(self.text) is str, "an inner function without text")
        need(isinstance(self.more, list | tuple) and len(self.more) < MOST_FACTORS, "too many factors")
        more = records(Inner, self.more)
        need(all(not one.more and len(one.direction) == len(self.direction) for one in more), "a malformed factor")
        object.__setattr__(self, "more", more)

    @property
    def factors(self) -> tuple[Inner, ...]:
        """The functions of one direction each whose product it is."""
        return (replace(self, more=()), *self.more)

    @property
    def plain(self) -> bool:
        """Whether it is direction . x itself, which needs no head."""
        return not self.more and self.formula == parse("x", 1)


@dataclass(frozen=True)
class RidgeTerm(OfOneVariable):
    """p(a . u): a formula of one variable and the weights a of the sums u of its group.

    Its hidden units make ``constant`` + sum of c relu(a . u - t), which is close to p.
    """

    weights: tuple[float, ...]
    text: str
    constant: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", numbers(self.weights))
        need(type(self.text) is str, "a ridge without text")
        numbers([self.constant])


@dataclass(frozen=True)
class Outer:
    """g(u_1, ..., u_r) of sums u_i of inner functions, added to one output: a formula of r variables.

    |g - sum of the ridges| <= ``gap`` for all u in the box [low, high], which holds every value of the sums.
    """

    output: int
    sums: tuple[tuple[int, ...], ...]  # inner functions of each sum
    text: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    gap: float
    ridges: tuple[RidgeTerm, ...]

    def __post_init__(self) -> None:
        need(isinstance(self.sums, list | tuple) and 1 <= len(self.sums) <= MOST_SUMS, "an outer function of no sums")
        need(all(isinstance(one, list | tuple) for one in self.sums), "a sum that is no list")
        object.__setattr__(self, "sums", tuple(tuple(one) for one in self.sums))
        for name in ("low", "high"):
            object.__setattr__(self, name, numbers(getattr(self, name)))
            need(len(getattr(self, name)) == len(self.sums), "an interval for every sum is needed")
        need(all(a <= b for a, b in zip(self.low, self.high, strict=True)), "an empty interval")
        need(type(self.text) is str, "an outer function without text")
        need(type(self.gap) in (int, float) and 0 <= self.gap < math.inf, "gap must be a number >= 0")
        ridges = records(RidgeTerm, self.ridges)
        need(all(len(ridge.weights) == len(self.sums) for ridge in ridges), "a ridge needs a weight for every sum")
        object.__setattr__(self, "ridges", ridges)

    @property
    def formula(self) -> Formula:
        """g."""
        return parse(self.text, len(self.sums), limit=len(self.text))

    def decomposed(self) -> Formula:
        """The sum of the ridges, as a function of u."""
        tape = Tape()
        parts = []
        for ridge in self.ridges:
            terms = [weighted(tape, w, tape.variable(i)) for i, w in enumerate(ridge.weights) if w]
            parts.append(inside(tape, ridge.formula, total(tape, terms)))
        return Formula.build(tape.nodes, [total(tape, parts)], (len(self.sums),))


@dataclass(frozen=True)
class Nested:
    """f_o(x) = sum of inner functions of ``direct[o]`` + sum of outer functions of sums of inner functions.

    ``units`` names the ridge of every hidden unit, counted through all outer functions. ``columns`` has, for every
    inner function of several factors, the values along each axis of its head, whose values are about their products.
    """

    inputs: int
    outputs: int
    inner: tuple[Inner, ...]
    direct: tuple[tuple[int, ...], ...]
    outer: tuple[Outer, ...]
    units: tuple[int, ...]
    columns: Columns = ()

    KIND = "inner and outer functions"

    def __post_init__(self) -> None:
        sizes = (self.inputs, self.outputs)
        need(places(sizes, 2**20 + 1) and min(sizes) >= 1, "sizes must be >= 1")
        inner = records(Inner, self.inner)
        outer = records(Outer, self.outer)
        need(all(len(one.direction) == self.inputs for one in inner), "a direction needs one number per input")
        direct = tuple(tuple(one) for one in self.direct)
        need(len(direct) == self.outputs, "the direct part needs a list per output")
        lists = [*direct, *chain.from_iterable(part.sums for part in outer)]
        named = all(places(one, len(inner)) and len(set(one)) == len(one) for one in lists)
        need(named, "a sum of inner functions that are not there")
        need(places([one.output for one in outer], self.outputs), "no such output")
        units = tuple(self.units)
        need(places(units, sum(len(one.ridges) for one in outer)), "a unit of no ridge")
        columns = _columns(self.columns, inner)
        fields = {"inner": inner, "outer": outer, "direct": direct, "units": units, "columns": columns}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def along(self, c: int) -> tuple[tuple[float, ...], ...]:
        """The values along each axis of the head of an inner function of several factors."""
        return self.columns[sum(1 for one in self.inner[:c] if one.more)]

    def all_ridges(self) -> list[tuple[Outer, RidgeTerm]]:
        """Every ridge with its outer function, in order."""
        return [(part, ridge) for part in self.outer for ridge in part.ridges]

    def formula(self) -> Formula:
        """f as it was taken apart."""
        tape = Tape()
        values = []
        for one in self.inner:
            factors = [inside(tape, factor.formula, _along(tape, factor.direction)) for factor in one.factors]
            values.append(reduce(lambda a, b: tape.add("mul", a, b), factors))
        outputs: list[list[int]] = [[values[c] for c in part] for part in self.direct]
        for part in self.outer:
            sums = [total(tape, [values[c] for c in one]) for one in part.sums]
            outputs[part.output].append(substituted(tape, part.formula, sums))
        found = [total(tape, part) for part in outputs]
        return Formula.build(tape.nodes, found, (self.inputs,), () if self.outputs == 1 else (self.outputs,))


def _columns(given: Sequence[Sequence[Sequence[float]]], inner: Sequence[Inner]) -> Columns:
    """Lists of numbers, one for every factor of every product."""
    columns = tuple(tuple(map(numbers, one)) for one in given)
    counts = [len(one.factors) for one in inner if one.more]
    need([len(one) for one in columns] == counts, "a product needs the values along each of its axes")
    return columns


def _along(tape: Tape, direction: Sequence[float]) -> int:
    """The node of <direction, x>."""
    return total(tape, [weighted(tape, w, tape.variable(j)) for j, w in enumerate(direction) if w])
