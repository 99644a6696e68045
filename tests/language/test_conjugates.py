"""sqrt(a^2 + b) - a keeps its sign over wide intervals, in the package and in the checker alike."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from flint import arb

from onelayer import Box
from onelayer.checker.identity import has_values
from onelayer.checker.intervals import image
from onelayer.language.conjugates import conjugates
from onelayer.language.formula import parse
from onelayer.taylor.hull import surely_defined

SPELLINGS = [
    "sqrt(x1**2 + x2) - x1",
    "sqrt(x2 + x1*x1) - x1",
    "-x1 + sqrt((-x1)**2 + x2)",
    "x1 - sqrt(x1**2 + x2)",
    "sqrt(x1**2 - (-x2)) + x1",
    "-(sqrt(x1**2 + x2)) - x1",
]


@pytest.mark.parametrize("text", SPELLINGS)
@pytest.mark.parametrize(
    "box", [Box([-3.0, 0.5], [1000.0, 2.0]), Box([1e8, 1e-8], [2e8, 1.0]), Box([0.0, 0.0], [1, 1])]
)
def test_enclosures_hold_and_keep_the_sign(text: str, box: Box) -> None:
    formula = parse(text, 2)
    assert len(conjugates(formula)) == 1
    (at,) = conjugates(formula)
    low, high = box.lower, box.upper
    found = []
    for node in formula.nodes[: at + 1]:
        found.append((low[int(node.value)][None], high[int(node.value)][None]) if node.op == "var" else None)
    pairs = [item if item is not None else (torch.tensor([-torch.inf]),) * 2 for item in found]
    conjugate = conjugates(formula)[at]
    if formula.nodes[conjugate.b].op == "neg":
        pairs[conjugate.b] = (-high[1][None], -low[1][None])
    bottom, top = (float(end) for end in conjugate.interval(pairs))
    ends = image(formula, [(arb(a), arb(b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)])[0]
    points = torch.cat([box.corners(4), box.sample(100, seed=2)]).tolist()
    with mpmath.workdps(60):
        for a, b in points:
            value = _exact(text, mpmath.mpf(a), mpmath.mpf(b))
            assert bottom <= value <= top
            assert ends[0].lower() <= arb(str(value))
            assert ends[1].upper() >= arb(str(value))
    if box.lower[1] > 0:
        assert bottom > 0 or top < 0
        assert ends[0] > 0 or ends[1] < 0


def _exact(text: str, a: mpmath.mpf, b: mpmath.mpf) -> mpmath.mpf:
    root = mpmath.sqrt(a * a + b)
    return {0: root - a, 1: root - a, 2: root - a, 3: a - root, 4: root + a, 5: -root - a}[SPELLINGS.index(text)]


@pytest.mark.parametrize(
    "text", ["sqrt(x1**2 + x2) - x2", "sqrt(x1 + x2) - x1", "sqrt(x2 - x1**2) - x1", "sqrt(x1**3 + x2) - x1", "x1 + x2"]
)
def test_other_differences_are_left_alone(text: str) -> None:
    assert conjugates(parse(text, 2)) == {}


def test_a_negative_b_is_no_reason_for_a_sign() -> None:
    formula = parse("1/(sqrt(x1**2 + x2) - x1)", 2)
    low, high = [2.0, -1.0], [3.0, 1.0]
    assert not bool(surely_defined(formula, torch.tensor([low]).double(), torch.tensor([high]).double()).all())
    assert not has_values(formula, low, high)


def test_a_quotient_by_such_a_difference_is_defined_on_a_wide_box() -> None:
    formula = parse("1/(sqrt(x1**2 + x2) - x1)**2", 2)
    low, high = [-10.0, 1.0], [1000.0, 2.0]
    assert bool(surely_defined(formula, torch.tensor([low]).double(), torch.tensor([high]).double()).all())
    assert has_values(formula, low, high)
    assert np.isfinite(float(formula(torch.tensor([high]).double())))


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [((1e154, 1.1e154), (0.0, 1.7e308), 6e153), ((-2e-170, -1e-170), (0.0, 0.0), 4e-170)],
)
def test_squares_that_overflow_or_underflow_say_no_more_than_a_sign(
    a: tuple[float, float], b: tuple[float, float], value: float
) -> None:
    formula = parse("sqrt(x1**2 + x2) - x1", 2)
    ((at, conjugate),) = conjugates(formula).items()
    nothing = (torch.tensor([-torch.inf]), torch.tensor([torch.inf]))
    pairs = [nothing] * (at + 1)
    for place, ends in ((conjugate.a, a), (conjugate.b, b)):
        low, high = torch.tensor([ends], dtype=torch.float64).unbind(1)
        pairs[place] = (low, high)
    bottom, top = conjugate.interval(pairs)
    assert float(bottom) <= 0 or float(bottom) == -torch.inf
    assert float(top) >= value
