"""Rational numbers of algebra stay short: powers of powers, and squares of squares, outgrow any memory."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction

import pytest

import onelayer as ol
from onelayer.language.formula import parse
from onelayer.lemmas.algebra import same_function
from onelayer.lemmas.rational import LONGEST, raised, short

pytestmark = pytest.mark.usefixtures("in_time")
SQUARE = ol.Box([0.5, 0.99], [0.5000001, 1.0])
SQUARES = "; ".join(["t1 = 0.7*x1*x2", *(f"t{k + 1} = t{k}*t{k}" for k in range(1, 40)), "t40"])
LONG = [
    "(((2*x1*x2)**1000)**1000)**1000",
    "max((((2*x1)**1000)**1000)**1000, x2)",
    "sqrt(((3*x1)**999)**999 + 1)",
    SQUARES,
]


def test_long_numbers_are_refused_before_they_are_computed() -> None:
    assert raised(Fraction(3, 2), 100) == Fraction(3, 2) ** 100
    assert raised(Fraction(2), LONGEST - 1) == 2 ** (LONGEST - 1)
    assert [raised(Fraction(c), 10**9) for c in (0, 1, -1)] == [0, 1, 1]
    for exponent in (LONGEST, -LONGEST, 10**12):
        with pytest.raises(ol.OnelayerError, match="more than"):
            raised(Fraction(2), exponent)
    with pytest.raises(ol.OnelayerError, match="more than"):
        short(Fraction(1, 3**LONGEST))


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("layout", ["auto", "tokens", "pieces"])
def test_powers_of_powers_end_in_time(text: str, layout: str) -> None:
    # Some have no such layout.
    with suppress(ol.OnelayerError):
        ol.approximate(text, SQUARE, 0.1, layout=layout, max_seconds=2, jobs=1)


@pytest.mark.parametrize("text", LONG)
def test_algebra_shows_nothing_of_them(text: str) -> None:
    formula = parse(text, 2)
    assert not same_function(formula, formula, SQUARE)
