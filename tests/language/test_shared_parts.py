"""Formulas whose parts share their own parts: far more ways down than nodes, and deeper than calls may be."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from onelayer.language.formula import parse
from onelayer.language.third_side import as_squares, third_sides
from onelayer.lemmas.kinks import LONGEST, in_words

LEVELS = 60


def doubled(step: str, last: str = "t{}") -> str:
    """Each part made of the one before it, which it names twice."""
    steps = [step.replace("#", f"t{level - 1}") for level in range(1, LEVELS)]
    parts = [f"t{level} = {text}" for level, text in enumerate(["x", *steps])]
    return "; ".join([*parts, last.format(LEVELS - 1)])


@pytest.mark.parametrize("step", ["# + #", "-(# + #)", "# - 0.5*#", "#*#", "1/(1 + #*#)", "#/(1 + #) + #"])
def test_parts_that_are_named_twice_are_looked_at_once(step: str) -> None:
    formula = parse(doubled(step), 1)
    assert len(formula.nodes) < 40 * LEVELS
    assert third_sides(formula) == {}


def test_the_sides_of_a_triangle_are_found_among_shared_parts() -> None:
    formula = parse(doubled("# + #", "sqrt(x**2 + y**2 - 2*x*y*cos(t{}))"), 2)
    assert as_squares(formula) is not None


@pytest.mark.parametrize("terms", ["x*y", "sin(x)", "x**2"])
def test_a_sum_may_have_more_terms_than_calls_may_be_deep(terms: str) -> None:
    long = " + ".join([terms] * 1300)
    assert third_sides(parse(long, 2)) == {}
    assert len(parse(f"({long})/x", 2).nodes) > 1300


def test_normal_forms_that_share_parts_have_short_words() -> None:
    part = ("max", frozenset({(("x", 0), Fraction(1))}))
    for level in range(LEVELS):
        part = ("max", frozenset({(part, Fraction(1)), (part, Fraction(level, 7))}))
    assert len(in_words(part)) <= LONGEST
    other = ("max", frozenset({(part, Fraction(1))}))
    assert in_words(part) != in_words(other)


def test_a_choice_copies_nothing_that_earlier_choices_have_replaced() -> None:
    """A function in pieces, of which some ask the same: with each of these the copies of copies doubled."""
    begins = {k: k * 17 % 40 / 40 for k in range(1, 601)}
    pieces = [f"t{k} = where(x > {begin}, log(x + {k}), t{k - 1})" for k, begin in begins.items()]
    formula = parse("; ".join(["t0 = x", *pieces, "t600"]), 1)
    assert len(formula.nodes) < 40_000
    for x in (-0.5, 0.01, 0.2, 0.512, 0.9, 3.0):
        met = [k for k, begin in begins.items() if x > begin]
        wanted = math.log(x + met[-1]) if met else x
        point = torch.tensor([x], dtype=torch.float64, device="cpu")
        assert float(formula(point)) == pytest.approx(wanted, rel=1e-14)
