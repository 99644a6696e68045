"""The argument of a packed layer that composes: lookup heads are inner functions, its ReLU units outer ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

from onelayer.language.compose import inside, substituted, total, weighted
from onelayer.language.formula import Formula, parse
from onelayer.language.tree import Tape
from onelayer.lemmas.fields import are_sizes, need, need_gap, numbers, places, records, settle
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
        direction = numbers(self.direction)
        need(any(direction), "an inner function of no direction")
        need(type(self.text) is str, "an inner function without text")
        listed = isinstance(self.more, list | tuple)
        need(listed and len(self.more) < MOST_FACTORS, "too many factors")
        more = records(Inner, self.more)
        for factor in more:
            need(not factor.more and len(factor.direction) == len(direction), "a malformed factor")
        settle(self, direction=direction, more=more)

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
        settle(self, weights=numbers(self.weights))
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
        listed = isinstance(self.sums, list | tuple)
        need(listed and 1 <= len(self.sums) <= MOST_SUMS, "an outer function of no sums")
        need(all(isinstance(one, list | tuple) for one in self.sums), "a sum that is no list")
        sums = tuple(tuple(one) for one in self.sums)
        low = numbers(self.low)
        high = numbers(self.high)
        need(len(low) == len(high) == len(sums), "an interval for every sum is needed")
        need(all(a <= b for a, b in zip(low, high, strict=True)), "an empty interval")
        need(type(self.text) is str, "an outer function without text")
        need_gap(self.gap)
        ridges = records(RidgeTerm, self.ridges)
        for ridge in ridges:
            need(len(ridge.weights) == len(sums), "a ridge needs a weight for every sum")
        settle(self, sums=sums, low=low, high=high, ridges=ridges)

    @property
    def formula(self) -> Formula:
        """g."""
        return parse(self.text, len(self.sums), limit=len(self.text))

    def decomposed(self) -> Formula:
        """The sum of the ridges, as a function of u."""
        tape = Tape()
        parts = []
        for ridge in self.ridges:
            argument = _along(tape, ridge.weights)
            parts.append(inside(tape, ridge.formula, argument))
        whole = total(tape, parts)
        return Formula.build(tape.nodes, [whole], (len(self.sums),))


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
        need(are_sizes([self.inputs, self.outputs]), "sizes must be >= 1")
        inner = records(Inner, self.inner)
        outer = records(Outer, self.outer)
        need(all(len(one.direction) == self.inputs for one in inner), "a direction needs one number per input")
        direct = tuple(tuple(one) for one in self.direct)
        need(len(direct) == self.outputs, "the direct part needs a list per output")
        sums = chain(direct, *(part.sums for part in outer))
        for members in sums:
            # Each once: the proof writes a sum as one weight per inner function.
            named = places(members, len(inner)) and len(set(members)) == len(members)
            need(named, "a sum of inner functions that are not there")
        need(places([one.output for one in outer], self.outputs), "no such output")
        units = tuple(self.units)
        ridges = sum(len(one.ridges) for one in outer)
        need(places(units, ridges), "a unit of no ridge")
        columns = _columns(self.columns, inner)
        settle(self, inner=inner, outer=outer, direct=direct, units=units, columns=columns)

    def along(self, c: int) -> tuple[tuple[float, ...], ...]:
        """The values along each axis of the head of an inner function of several factors."""
        products_before = sum(1 for one in self.inner[:c] if one.more)
        return self.columns[products_before]

    def all_ridges(self) -> list[tuple[Outer, RidgeTerm]]:
        """Every ridge with its outer function, in order."""
        return [(part, ridge) for part in self.outer for ridge in part.ridges]

    def formula(self) -> Formula:
        """f as it was taken apart."""
        tape = Tape()
        values = []
        for one in self.inner:
            factors = []
            for factor in one.factors:
                argument = _along(tape, factor.direction)
                factors.append(inside(tape, factor.formula, argument))
            values.append(reduce(lambda a, b: tape.add("mul", a, b), factors))
        outputs: list[list[int]] = [[values[c] for c in part] for part in self.direct]
        for part in self.outer:
            sums = [total(tape, [values[c] for c in one]) for one in part.sums]
            outputs[part.output].append(substituted(tape, part.formula, sums))
        found = [total(tape, part) for part in outputs]
        shape = () if self.outputs == 1 else (self.outputs,)
        return Formula.build(tape.nodes, found, (self.inputs,), shape)


def _columns(given: Sequence[Sequence[Sequence[float]]], inner: Sequence[Inner]) -> Columns:
    """Lists of numbers, one for every factor of every product."""
    columns = tuple(tuple(map(numbers, one)) for one in given)
    counts = [len(one.factors) for one in inner if one.more]
    need([len(one) for one in columns] == counts, "a product needs the values along each of its axes")
    return columns


def _along(tape: Tape, direction: Sequence[float]) -> int:
    """The node of <direction, x>."""
    used = [(j, w) for j, w in enumerate(direction) if w]
    return total(tape, [weighted(tape, w, tape.variable(j)) for j, w in used])
