"""a^2 + b^2 - 2 a b cos t is a sum of two squares: known to be positive, and one function, here and in the checker."""

from __future__ import annotations

import pytest
import torch
from flint import arb

from onelayer import Box
from onelayer.checker.identity import has_values, one_function
from onelayer.checker.intervals import image
from onelayer.checker.triangles import squared_sides
from onelayer.language.formula import parse
from onelayer.language.third_side import as_squares, third_sides
from onelayer.lemmas.algebra import same_function
from onelayer.taylor.hull import surely_defined

SPELLINGS = [
    "x1**2 + x2**2 - 2*x1*x2*cos(x3)",
    "x1*x1 + x2**2 + 2*x2*(cos(x3)*x1)",
    "-2*cos(x3)*x1*x2 + x1**2 + x2**2",
    "x1**2 - (2*x1*x2*cos(x3) - x2*x2)",
]
OTHERS = [
    "x1**2 + x2**2 - 3*x1*x2*cos(x3)",
    "x1**2 - x2**2 - 2*x1*x2*cos(x3)",
    "x1**2 + x2**2 - 2*x1*x2*sin(x3)",
    "x1**2 + x2**2 - 2*x1*x1*cos(x3)",
    "x1**2 + x2**3 - 2*x1*x2*cos(x3)",
    "x1**2 - 1 + x2**2 - 2*x1*x2*cos(x3)",
    "x1**2 + x2**2 - 2*x1*x2",
    "x1**2 + 2*x2**2 - 2*x1*x2*cos(x3)",
]
LOW, HIGH = [-1.0, 0.5, -3.0], [3.0, 2.0, 3.0]
BOX = Box(LOW, HIGH)


def tensors(box: Box) -> tuple[torch.Tensor, torch.Tensor]:
    return box.lower.reshape(1, -1), box.upper.reshape(1, -1)


@pytest.mark.parametrize("text", SPELLINGS)
def test_roots_of_squared_sides_are_defined_and_hold_all_values(text: str) -> None:
    formula, root = parse(text, 3), parse(f"sqrt({text})", 3)
    assert len(third_sides(formula)) == 1
    assert [*squared_sides(formula)] == [*formula.outputs]
    assert bool(surely_defined(root, *tensors(BOX)).all())
    assert has_values(root, LOW, HIGH)
    values = formula(torch.cat([BOX.sample(2000, seed=1), BOX.corners(8)]))
    ends = image(formula, [(arb(a), arb(b)) for a, b in zip(LOW, HIGH, strict=True)])[0]
    assert ends[0] == 0
    assert ends[1] >= float(values.max())


@pytest.mark.parametrize("text", OTHERS)
def test_other_sums_are_left_alone(text: str) -> None:
    formula = parse(text, 3)
    assert third_sides(formula) == {}
    assert squared_sides(formula) == {}
    assert as_squares(formula) is None
    assert not has_values(parse(f"sqrt({text})", 3), LOW, HIGH)


@pytest.mark.parametrize(("ends", "least"), [(((3.0, 4.0), (1.0, 2.0)), 1.0), (((-1.0, 1.0), (-9.0, -4.0)), 9.0)])
def test_the_side_is_at_least_the_difference_of_the_others(
    ends: tuple[tuple[float, float], tuple[float, float]], least: float
) -> None:
    formula = parse(SPELLINGS[0], 3)
    ((at, side),) = third_sides(formula).items()
    found = [(torch.full((1,), -torch.inf), torch.full((1,), torch.inf))] * at
    for node, pair in zip((side.a, side.b), ends, strict=True):
        found[node] = (torch.tensor([pair[0]]).double(), torch.tensor([pair[1]]).double())
    low, high = side.interval(found)
    assert least * (1 - 1e-14) < float(low) < least
    assert float(high) == torch.inf


@pytest.mark.parametrize("text", SPELLINGS)
def test_both_algebras_know_the_sum_of_two_squares(text: str) -> None:
    root = parse(f"sqrt({text})", 3)
    squares = as_squares(root)
    assert squares is not None
    assert same_function(root, squares, BOX)
    assert one_function(root, squares, LOW, HIGH)


@pytest.mark.parametrize(
    "text",
    [
        "sqrt((x1 - x2*cos(x3))**2 + (x2*sin(x1))**2)",
        "sqrt((x1 - x2*cos(x3))**2 + 2*(x2*sin(x3))**2)",
        "sqrt((x1 + x2*cos(x3))**2 + (x2*sin(x3))**2)",
        "sqrt((x1 - x2*cos(x3))**2 + (x1*sin(x3))**2 + 1)",
    ],
)
def test_neither_algebra_takes_another_sum_for_it(text: str) -> None:
    root = parse(f"sqrt({SPELLINGS[0]})", 3)
    other = parse(text, 3)
    assert not same_function(root, other, BOX)
    assert not one_function(root, other, LOW, HIGH)


def test_squares_of_sines_alone_stay_as_they_are() -> None:
    box = Box([0.5, 0.1], [1.0, 3.0])
    assert same_function(parse("sqrt(sin(x2)**2*x1**2)", 2), parse("sin(x2)*x1", 2), box)
    assert one_function(parse("sqrt(sin(x2)**2*x1**2)", 2), parse("sin(x2)*x1", 2), [0.5, 0.1], [1.0, 3.0])


def test_long_sums_and_powers_of_powers_are_looked_at_quickly() -> None:
    """A sum is deeper than Python's calls, and a power of powers has more factors than there is time."""
    long = " + ".join(f"{k}*x1" for k in range(1, 3000))
    tower = "x1"
    for _ in range(50):
        tower = f"({tower})**2"
    for text in (long, f"{tower} + x2**2 - 2*x1*x2*cos(x3)"):
        assert squared_sides(parse(text, 3)) == {}


@pytest.mark.usefixtures("in_time")
def test_of_a_long_sum_the_last_terms_are_looked_at() -> None:
    side = "x1**2 + x2**2 - 2*x1*x2*cos(x3)"
    formula = parse("; ".join(["+".join(["sin(x1)*0.5"] * 30_000), side, f"1 + ({side})"]), 3, limit=10**6)
    assert [*squared_sides(formula)] == [formula.outputs[1]]
