"""Exact rational numbers: linear combinations of things by key, and how formulas hold such numbers.

What is no float is written as a quotient of floats, or of sums of floats. What is written on a tape becomes a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from heapq import heappop, heappush
from typing import TypeVar

from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.tree import Tape

Key = TypeVar("Key")


def affine_of(tape: Tape, scale: Fraction, node: int, shift: Fraction) -> int:
    """scale * node + shift, with rational numbers written as quotients of floats."""
    if scale == -1:
        node = tape.add("neg", node)
    elif scale != 1:
        exact = as_float(scale)
        if exact is None:
            node = _quotient(tape, scale, node)
        else:
            node = tape.add("mul", tape.number(exact), node)
    if not shift:
        return node
    return tape.add("add", node, _number(tape, shift))


def function_of(tape: Tape, value: int, count: int = 1) -> Formula:
    """The function of ``count`` numbers, one at least, whose value is this node."""
    return Formula.build(tape.nodes, [value], (max(1, count),))


def _quotient(tape: Tape, scale: Fraction, node: int) -> int:
    above, below = _balanced(scale)
    if above != 1:
        node = tape.add("mul", _dyadic(tape, above), node)
    return tape.add("div", node, _dyadic(tape, below))


def _number(tape: Tape, value: Fraction) -> int:
    exact = as_float(value)
    if exact is not None:
        return tape.number(exact)
    above, below = _balanced(value)
    return tape.add("div", _dyadic(tape, above), _dyadic(tape, below))


def _balanced(value: Fraction) -> tuple[Fraction, Fraction]:
    """Numerator and denominator, both over a power of two that brings them into the range of floats, if one does."""
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    shift = Fraction(2) ** max(0, bits - 1000)
    return value.numerator / shift, value.denominator / shift


def _dyadic(tape: Tape, value: Fraction) -> int:
    """A whole number over a power of two as a sum of floats, without rounding."""
    exact = as_float(value)
    if exact is not None:
        return tape.number(exact)
    # The first 53 bits are a float; what is left has fewer bits, so this ends.
    beyond = abs(value.numerator).bit_length() - 53
    unit = Fraction(2) ** beyond / value.denominator
    head = as_float(value // unit * unit)
    if head is None:
        raise OnelayerError("a factor of this sum has more digits than floats reach; round it")
    rest = _dyadic(tape, value - Fraction(head))
    return tape.add("add", tape.number(head), rest)


def as_float(value: Fraction) -> float | None:
    """The float that is exactly this number, if there is one."""
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if Fraction(found) == value else None


def rounded(value: Fraction) -> float:
    """The nearest float."""
    try:
        return float(value)
    except OverflowError as error:
        raise OnelayerError("a factor of this sum is beyond 1.8e308; scale the function") from error


def add_to(total: dict[Key, Fraction], parts: Mapping[Key, Fraction], factor: Fraction) -> None:
    """total += factor * parts, term by term."""
    for key, weight in parts.items():
        total[key] = total.get(key, Fraction(0)) + factor * weight


def times(parts: Mapping[Key, Fraction], factor: Fraction) -> dict[Key, Fraction]:
    """factor * parts."""
    return {key: factor * weight for key, weight in parts.items()}


def opened_once(at: int, opened: Callable[[int, Fraction], Iterable[tuple[int, Fraction]]]) -> None:
    """Open a node, and what it opens into, by ``opened(node, factor)``; the factors of all ways to a node are added up.

    Arguments stand before what they are arguments of, so from the last node down all ways to a node are known by its
    turn. A walk along each of them would not end: where parts share their own parts there are far more ways than nodes.
    """
    factors = {at: Fraction(1)}
    waiting = [-at]
    while waiting:
        here = -heappop(waiting)
        for arg, factor in opened(here, factors[here]):
            if arg not in factors:
                factors[arg] = Fraction(0)
                heappush(waiting, -arg)
            factors[arg] += factor


def nonzero(parts: Mapping[Key, Fraction]) -> dict[Key, Fraction]:
    """The parts that count."""
    return {key: weight for key, weight in parts.items() if weight}
