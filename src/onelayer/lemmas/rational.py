"""Rational numbers that stay short: powers of powers have more digits than a memory holds, and show nothing."""

from __future__ import annotations

from fractions import Fraction

from onelayer.errors import OnelayerError

LONGEST = 14_000  # bits of numerator and denominator: Python writes integers of up to 4,300 digits


def is_short(value: Fraction) -> bool:
    """Whether a number may be worked with."""
    return _bits(value) <= LONGEST


def short(value: Fraction) -> Fraction:
    """The number; OnelayerError where it is too long."""
    if is_short(value):
        return value
    raise OnelayerError(f"a rational number of more than {LONGEST:,} bits")


def raised(value: Fraction, exponent: int) -> Fraction:
    """A power; OnelayerError where it is too long, which is asked before it is computed."""
    # 0, 1 and -1 have no more digits than a bit, to whatever power.
    if _bits(value) > 1 and (_bits(value) - 1) * abs(exponent) > LONGEST:
        raise OnelayerError(f"a power of more than {LONGEST:,} bits")
    return short(value**exponent)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())
