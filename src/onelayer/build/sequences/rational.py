"""Exact rational numbers: linear combinations of things by key, and how formulas hold such numbers.

What is no float is written as a quotient of floats, or of sums of floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

from onelayer.errors import OnelayerError
from onelayer.language.tree import Tape

Key = TypeVar("Key")


def affine_of(tape: Tape, scale: Fraction, node: int, shift: Fraction) -> int:
    """scale * node + shift, with rational numbers written as quotients of floats."""
    if scale == -1:
        node = tape.add("neg", node)
    elif scale != 1:
        exact = as_float(scale)
        node = _quotient(tape, scale, node) if exact is None else tape.add("mul", tape.number(exact), node)
    if not shift:
        return node
    return tape.add("add", node, _number(tape, shift))


def _quotient(tape: Tape, scale: Fraction, node: int) -> int:
    above, below = _balanced(scale)
    if above != 1:
        node = tape.add("mul", _dyadic(tape, above), node)
    return tape.add("div", node, _dyadic(tape, below))


def _number(tape: Tape, value: Fraction) -> int:
    exact = as_float(value)
    if exact is not None:
        return tape.number(exact)
    return tape.add("div", *(_dyadic(tape, part) for part in _balanced(value)))


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
    unit = Fraction(2) ** (abs(value.numerator).bit_length() - 53) / value.denominator
    head = as_float(value // unit * unit)
    if head is None:
        raise OnelayerError("a factor of this sum has more digits than floats reach; round it")
    return tape.add("add", tape.number(head), _dyadic(tape, value - Fraction(head)))


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


def nonzero(parts: Mapping[Key, Fraction]) -> dict[Key, Fraction]:
    """The parts that count."""
    return {key: weight for key, weight in parts.items() if weight}
