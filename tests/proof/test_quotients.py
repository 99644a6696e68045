"""f = N / D without the division: the rewriting is exact, the bounds hold, and a mistake in either is caught."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from flint import arb
from torch import Tensor

from onelayer import Box, check
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.functions import Kinks
from onelayer.checker.quotient import quotients
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.language.balls import in_balls
from onelayer.language.formula import Formula, parse
from onelayer.language.quotient import as_quotient
from onelayer.proof import cleared as cleared_module
from onelayer.proof.cleared import cleared
from onelayer.proof.error import ErrorFunction, error_function
from onelayer.recording.target import Target, as_target

INNER = ["x1", "x2", "x3", "sin(x1)", "exp(x2)", "log(3 + x3)", "pi", "2.5", "1"]


def random_text(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice(INNER)
    a, b = (random_text(chance, depth - 1) for _ in range(2))
    return chance.choice([f"({a}) {chance.choice('+-*//')} ({b})", f"({a})**{chance.choice([2, -1, -2])}", f"-({a})"])


def random_formulas(count: int) -> list[Formula]:
    found: list[Formula] = []
    chance = random.Random(4)
    while len(found) < count:
        try:
            formula = parse(random_text(chance, chance.randint(2, 4)), 3)
        except OnelayerError:
            continue
        if as_quotient(formula) is not None:
            found.append(formula)
    return found


def test_numerator_over_denominator_is_the_formula() -> None:
    """At random points, in balls of 53 bits: N / D and f overlap wherever both are defined."""
    chance, seen = random.Random(0), 0
    for formula in random_formulas(300):
        quotient = as_quotient(formula)
        assert quotient is not None
        for _ in range(8):
            point = [chance.uniform(-2, 2) for _ in range(3)]
            (f,) = in_balls(formula, point)
            numerator, *factors = in_balls(quotient.formula, point)
            denominator = arb(1)
            for at, exponent in quotient.denominators[0]:
                denominator = denominator * factors[at - 1] ** exponent
            value = numerator / denominator
            if f.is_finite() and value.is_finite():
                assert f.overlaps(value), f"{formula} at {point}"
                seen += 1
    assert seen > 1500


def undoubted(formula: Formula) -> Target:
    """The formula as a target without the search for poles."""
    return Target(formula, formula.input_shape, (), "formula", str(formula), formula)


def constant_model(x: Any) -> Any:
    return 0.0 * x[..., 0] + 0.7


def violations(bounds: int = 8) -> tuple[int, int]:
    """Points at which |0.7 - f| exceeds the bound of its box, and how many points were looked at."""
    chance, wrong, looked = random.Random(1), 0, 0
    for formula in random_formulas(250):
        box = Box([-4.0] * 3, [4.0] * 3)
        target = undoubted(formula)
        g = ErrorFunction(constant_model, target, box, None, torch.device("cpu"))
        middle = torch.tensor([[chance.uniform(-2, 2) for _ in range(3)] for _ in range(bounds)], dtype=torch.float64)
        radius = torch.tensor([[10 ** chance.uniform(-3, 0.3)] for _ in range(bounds)], dtype=torch.float64)
        low, high = middle - radius, middle + radius
        quotient, order = as_quotient(formula), chance.randint(1, 4)
        assert quotient is not None
        found = cleared(quotient, g._model(low, high, order), low, high, order).bound
        share = torch.rand(64, bounds, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(looked))
        share[:2] = torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None, None]
        values = (0.7 - target.function(low + share * (high - low))).abs()
        seen = torch.isfinite(values) & torch.isfinite(found)
        wrong += int((seen & (values > found * (1 + 1e-9) + 1e-12)).sum())
        looked += int(seen.sum())
    return wrong, looked


def test_no_point_exceeds_its_bound() -> None:
    wrong, looked = violations()
    assert wrong == 0
    assert looked > 25_000


@pytest.mark.parametrize("mistake", ["largest instead of smallest denominator", "numerator forgotten"])
def test_a_planted_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = cleared_module.numerator_and_denominator

    def wrong(*args: Any) -> Any:
        numerator, denominator, gap = honest(*args)
        if mistake == "numerator forgotten":
            return numerator * 0.0, denominator, gap
        lower, upper = denominator.range()
        return numerator, denominator, torch.where(gap > 0, torch.maximum(-lower, upper), 0.0)

    monkeypatch.setattr(cleared_module, "numerator_and_denominator", wrong)
    assert violations()[0] > 0


@pytest.mark.parametrize("text", ["x1/x1", "x1*x2/x1", "(x1*x1)/x1", "x1**2*x1**-1 + x2", "1/(1/x1)"])
def test_what_cancels_must_be_defined(text: str) -> None:
    """The formula is undefined at x1 = 0, whatever is left after cancelling."""
    box = Box([-1.0, -1.0], [1.0, 1.0])
    formula = parse(text, 2)
    g = ErrorFunction(lambda x: 0.0 * x[..., 0], undoubted(formula), box, None, torch.device("cpu"))
    low, high = box.lower[None], box.upper[None]
    assert torch.isinf(g.bounded(low, high, 3).bound).all()
    x = [coordinate(i, -1.0, 1.0, 3) for i in range(2)]
    assert quotients(formula, x, Kinks()) is None


def test_checker_agrees_with_the_formula() -> None:
    """N / D in the checker's arithmetic encloses f at random points of random boxes."""
    chance, seen = random.Random(2), 0
    for formula in random_formulas(150):
        middle = [chance.uniform(-2, 2) for _ in range(3)]
        radius = 10 ** chance.uniform(-3, 0.0)
        x = [coordinate(i, m - radius, m + radius, 3) for i, m in enumerate(middle)]
        found = quotients(formula, x, Kinks())
        if found is None:
            continue
        products, _ = found
        above, below = products[0].above(3).range(), products[0].below(3).range()
        point = [m + chance.uniform(-radius, radius) * 0.99 for m in middle]
        (f,) = in_balls(formula, point)
        if f.is_finite() and above.is_finite() and below.is_finite():
            assert (f * below).overlaps(above), f"{formula} at {point}"
            assert below.abs_upper() >= products[0].size_below()
            seen += 1
    assert seen > 60


RATIO = "(x1 + 2*x2)/(x1*x2 + x3*x1**2 + 2/x3)"
WIDE = Box([0.5, 0.5, 0.5], [4.0, 4.0, 4.0])
# The flow through a borehole: over an ordinary part of its domain the denominator varies by a factor of five.
FLOW = "g = log(x2/x1); 2*pi*x3*x4/(g*(1 + 2*x5*x3/(g*x1**2*x6) + x3/80))"
GROUND = Box([0.05, 1e3, 6e4, 170.0, 1120.0, 9855.0], [0.15, 5e3, 1.2e5, 410.0, 1680.0, 12045.0])


def test_a_quotient_over_a_wide_box_is_proved_and_checked(tmp_path: Path) -> None:
    result = approximate(RATIO, WIDE, 3e-2, max_seconds=60)
    assert result.certificate.proved
    result.save(tmp_path)
    assert check(tmp_path).ok


def test_the_form_is_chosen_by_what_it_gains() -> None:
    def chosen(text: str, box: Box) -> ErrorFunction:
        return error_function(constant_model, as_target(text, box), box, torch.float64, torch.device("cpu"))

    flow = chosen(FLOW, GROUND)
    assert flow.quotient is not None
    low = GROUND.lower[None]
    high = low + GROUND.width / 2
    divided = flow._divided(flow._model(low, high, 3), low, high, 3)
    assert flow.bounded(low, high, 3).bound.item() < divided.bound.item()
    assert chosen("sin(x1)/(x2 + 5)", Box([0.0, 0.0], [1.0, 0.1])).quotient is None
    assert chosen("sin(x1)/2", Box([0.0, 0.0], [1.0, 1.0])).quotient is None
    assert chosen("abs(x1)/(x2 + 5)", Box([-1.0, 0.0], [1.0, 1.0])).quotient is None


def test_a_proof_by_numerator_and_denominator_is_checked(tmp_path: Path) -> None:
    result = approximate(FLOW, GROUND, 8.0, max_seconds=90)
    assert result.certificate.proved
    result.save(tmp_path)
    report = check(tmp_path, max_seconds=10)
    assert report.ok
    assert report.boxes_checked > 0


def test_point_boxes_and_corners_are_enclosed() -> None:
    """Boxes of width zero: the bound is the error itself up to rounding."""
    target = as_target(RATIO, WIDE)
    g = error_function(constant_model, target, WIDE, torch.float64, torch.device("cpu"))
    points: Tensor = WIDE.corners()
    quotient = as_quotient(parse(RATIO, 3))
    assert quotient is not None
    bound = cleared(quotient, g._model(points, points, 2), points, points, 2).bound
    exact = (0.7 - target.function(points)).abs()
    assert bool((bound >= exact * (1 - 1e-12)).all())
    torch.testing.assert_close(bound, exact, rtol=1e-8, atol=1e-12)
