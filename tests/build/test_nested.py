"""Composition in one packed layer: inner functions by heads, outer functions by units, proved without boxes in x."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch

from onelayer import Box, check, load
from onelayer.build.nested.apart import take_apart
from onelayer.build.nested.compose import compose
from onelayer.build.nested.composer import composer
from onelayer.checker.check import CheckReport
from onelayer.errors import OnelayerError
from onelayer.language.formula import parse
from onelayer.lemmas.algebra import same_function
from onelayer.lemmas.argument import from_text
from onelayer.lemmas.nested import Nested
from onelayer.lemmas.nesting import nested_error
from onelayer.observer import Observer
from onelayer.proof.files import ARGUMENT
from onelayer.proof.recorded import understood
from onelayer.result import Approximation

ONE, FIVE = [1.0] * 4, [5.0] * 4


def built(text: str, box: Box, share: float, dtype: torch.dtype = torch.float64) -> Approximation:
    formula = parse(text, box.dim)
    values = formula(torch.cat([box.sample(4096, seed=1), box.corners(256)]))
    eps = share * float(values.max() - values.min())
    found = composer(understood(formula, box), box, dtype)
    assert found is not None
    return compose(found, eps, Observer())


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("x1*x2/(x3*x4)", 1),
        ("exp(-x1**2 - 2*x2) + 3*exp(x3 + sin(x4))", 1),
        ("sqrt(1 + 2*x1**2*x2/(x3*x4**4))", 1),
        ("x1/(exp(x2*x3/x4) + exp(-x2*x3/x4))", 2),
        ("x1*x2*tanh(x2*x3/x4)", 2),
        ("x1*x2/((x3 - x4)**2 + 1)", 1),
        ("sin(x1) + x2 - 3*x3 + 4", 0),
        ("(x1*x2/cos(x3/10)**2)**0.49*(100*x4/cos(x3/10))**(-0.3)", 1),
    ],
)
def test_taken_apart_is_the_same_function(text: str, rank: int) -> None:
    formula, box = parse(text, 4), Box(ONE, FIVE)
    apart = take_apart(formula, box)
    assert apart.rank == rank


@pytest.mark.parametrize(
    ("first", "second", "low", "same"),
    [
        ("x1*x2/(x3*x4)", "exp(log(x1) + log(x2) - log(x3) - log(x4))", 1.0, True),
        ("x1*x2/(x3*x4)", "exp(log(x1) + log(x2) - log(x3) - log(x4))", -1.0, False),
        ("sqrt(x1**2)", "x1", 1.0, True),
        ("sqrt(x1**2)", "x1", -1.0, False),
        ("log(x1*x2)", "log(x1) + log(x2)", 1.0, True),
        ("x1/x1", "1 + 0*x1", -1.0, False),
        ("(x1 - x2)**2", "x1**2 - 2*x1*x2 + x2**2", -1.0, True),
        ("(x1 - x2)**2", "x1**2 - 2*x1*x2 + x2**2 + 1e-300", -1.0, False),
        ("exp(log(x1)/2)", "sqrt(x1)", 1.0, True),
        ("sqrt(x1*x2)**2/x1", "x2", 1.0, True),
        ("sin(x1 + x2)", "sin(x2 + x1)", -1.0, True),
        ("abs(x1*x2)", "abs(x1)*abs(x2)", -1.0, False),
        ("0.1*x1", "x1/10", 1.0, False),
        ("1/(1 + x1/x2)", "x2/(x2 + x1)", 1.0, True),
        ("1/(1 + x1/x2)", "x2/(x2 - x1)", 1.0, False),
        ("sqrt(1 + x1/x2**2)", "sqrt(x2**2 + x1)/x2", 1.0, True),
        ("sqrt(x1**2*x2 + 8*x1**2)", "x1*sqrt(x2 + 8)", -1.0, False),
        ("(x1 + x2)*x3/((x1 + x2)*x4 + x1 + x2)", "x3/(x4 + 1)", 1.0, True),
        ("(x1 + x2)*x3/((x1 + x2)*x4 + x1 + x2)", "x3/(x4 + 1) + 1e-200", 1.0, False),
        ("1/(1 + x2/(sqrt(x1**2 + x2) - x1)**2)", "t = x1/sqrt(x2); 1/(1 + 1/(sqrt(t**2 + 1) - t)**2)", 1.0, True),
        ("sqrt(((x1 - x1)/exp(x1))**2 + x2**2)", "x2", 1.0, True),
        ("((x1 - x1)/exp(x1))**0 + x2", "x2 + 1", 1.0, True),
        ("((x1 - x1)/exp(x1))**(-2) + x2", "x2", 1.0, False),
    ],
)
def test_algebra_agrees_with_the_checker(first: str, second: str, low: float, same: bool) -> None:
    from onelayer.checker.identity import one_function

    a, b = parse(first, 4), parse(second, 4)
    box = Box([low] * 4, FIVE)
    assert same_function(a, b, box) is same
    assert one_function(a, b, [low] * 4, FIVE) is same


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_product_of_four_is_proved_and_checked(dtype: torch.dtype, tmp_path: Path) -> None:
    result = built("x1*x2/(x3*x4)", Box(ONE, FIVE), 0.02, dtype)
    assert result.certificate.proved
    assert result.certificate.boxes == 0
    assert result.certificate.method == "composition"
    assert result.certificate.function == "x1 * x2 / (x3 * x4)"
    assert result.size()["hidden_units"] < 40
    result.save(tmp_path / "r")
    report = check(tmp_path / "r", all=True)
    assert report.ok, report
    assert load(tmp_path / "r").certificate.upper == result.certificate.upper


def test_outer_function_of_two_sums(tmp_path: Path) -> None:
    result = built("x1*x2*tanh(x2*x3/x4)", Box(ONE, [3.0] * 4), 0.05)
    assert result.certificate.proved
    result.save(tmp_path / "r")
    assert check(tmp_path / "r", all=True).ok


def test_the_bound_holds_at_corners_and_fifty_digits() -> None:
    result = built("x1*exp(-x2*x3/x4)", Box(ONE, [2.0] * 4), 0.02)
    assert result.certificate.proved
    box = result.box
    points = torch.cat([box.corners(16), box.sample(200, seed=5), box.sample(200, seed=6, arcsine=True)])
    values = result.model(points).tolist()
    with mpmath.workdps(50):
        for point, value in zip(points.tolist(), values, strict=True):
            x1, x2, x3, x4 = map(mpmath.mpf, point)
            assert abs(mpmath.mpf(value) - x1 * mpmath.exp(-x2 * x3 / x4)) <= result.certificate.upper


def test_outer_function_that_oscillates() -> None:
    result = built("sin(x1*x2/(x3/(2*pi)))**2", Box([1.0] * 3, [2.0, 2.0, 4.0]), 0.01)
    assert result.certificate.proved


def _argument(result: Approximation) -> Nested:
    argument = from_text(result.certificate.attachments[ARGUMENT])
    assert isinstance(argument, Nested)
    return argument


def test_other_weights_are_refused() -> None:
    result = built("x1*x2/(x3*x4)", Box(ONE, FIVE), 0.05)
    argument = _argument(result)
    exact = nested_error(result.model, argument, result.box)
    assert exact <= result.certificate.upper
    for name in ("W_E", "b_E", "W_Q", "b_Q", "W_O", "b_O", "W_1", "b_2", "W_R"):
        forged = load_state(result, name, 1e-3)
        with pytest.raises(OnelayerError):
            nested_error(forged, argument, result.box)
    for name in ("b_1", "W_2", "b_R"):
        weights = load_state(result, name, 0.0)
        with torch.no_grad():
            weights.own(name)[weights.own(name) != 0] *= 1.05
        assert nested_error(weights, argument, result.box) > exact


def load_state(result: Approximation, name: str, change: float) -> torch.nn.Module:
    import copy

    model = copy.deepcopy(result.model)
    with torch.no_grad():
        model.own(name).reshape(-1)[-1] += change
    return model


@pytest.mark.parametrize(
    "forge",
    [
        lambda data: data["outer"][0].update(gap=0.0),
        lambda data: data["outer"][0].update(high=[data["outer"][0]["high"][0] / 2, *data["outer"][0]["high"][1:]]),
        lambda data: data["inner"][0].update(text="log(x1) + 0.001"),
        lambda data: data["outer"][0].update(text=data["outer"][0]["text"] + " + 0.001"),
        lambda data: data["outer"][0]["ridges"][0].update(constant=data["outer"][0]["ridges"][0]["constant"] + 0.1),
        lambda data: data["outer"][0]["ridges"][0].update(text="x1"),
        lambda data: data["inner"][0].update(direction=[0.0, 0.0, 0.0, 1.0]),
        lambda data: data.update(units=[0] * len(data["units"])),
    ],
)
def test_a_forged_argument_is_rejected(forge: Callable[[Any], None], tmp_path: Path) -> None:
    """The forger writes a consistent folder: every hash fits, only the argument is another one."""
    report = forged(forge, tmp_path)
    assert report.verdict == "rejected", report


def forged(forge: Callable[[Any], None], folder: Path) -> CheckReport:
    result = forged_case()
    data = json.loads(result.certificate.attachments[ARGUMENT])
    forge(data)
    attachments = {ARGUMENT: (json.dumps(data) + "\n").encode()}
    certificate = replace(result.certificate, attachments=attachments)
    replace(result, certificate=certificate).save(folder / "r")
    return check(folder / "r", all=True)


_CASE: list[Approximation] = []


def forged_case() -> Approximation:
    if not _CASE:
        _CASE.append(built("x1*exp(-x2*x3/x4)", Box(ONE, [2.0] * 4), 0.05))
    return _CASE[0]


def test_huge_logits_and_overflow_bound_nothing() -> None:
    result = built("x1*x2/(x3*x4)", Box(ONE, FIVE), 0.05)
    argument = _argument(result)
    model = load_state(result, "b_1", 0.0)
    with torch.no_grad():
        model.memory_of(0).values.mul_(1e200)
        model.memory_of(0).axes[0].mul_(1e200)
    assert nested_error(model, argument, result.box) == math.inf


def test_weights_of_shared_inner_functions_are_exact() -> None:
    result = built("x1*x2*tanh(x2*x3/x4)", Box(ONE, [3.0] * 4), 0.2)
    argument = _argument(result)
    part = argument.outer[0]
    shared = set(part.sums[0]) & set(part.sums[1])
    assert shared
    for ridge in part.ridges:
        total = Fraction(ridge.weights[0]) + Fraction(ridge.weights[1])
        assert Fraction(float(total)) == total


def test_sums_of_oscillations_are_proved_axis_by_axis() -> None:
    """In four coordinates boxes would be too many."""
    formula = parse(" + ".join(f"x{i}**2 - 10*cos(2*pi*x{i})" for i in range(1, 5)), 4)
    box = Box([-3.0] * 4, [3.0] * 4)
    found = composer(understood(formula, box), box, torch.float64)
    assert found is not None
    assert found.rank == 0
    made = compose(found, 2.0, Observer())
    assert made.certificate.proved
    assert made.certificate.boxes == 0
    assert max(float(torch.tensor(head).abs().max()) for head in _values(made)) < 1e9  # large ones cancel


def _values(made: Approximation) -> list[list[float]]:
    return [memory.values.flatten().tolist() for memory in made.model.memory.values()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_inner_functions_of_one_number_are_accepted(dtype: torch.dtype, tmp_path: Path) -> None:
    """sin(x2 - 1000) is 0 at 1000, and 1e-13 at the next number."""
    box, formula = Box([1.0, 1000.0, -1.0], [1.0, 1000.0, 1.0]), parse("exp(x1 - 1)*sin(x2 - 1000)", 3)
    found = composer(understood(formula, box), box, dtype)
    assert found is not None
    result = compose(found, 0.003, Observer())
    assert result.certificate.proved
    report = check(result.save(tmp_path / "r"), all=True)
    assert report.ok, report
