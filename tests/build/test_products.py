"""Products of inner functions in one head, fewer sums by dimensional analysis: proved, checked, attacked, forged."""

from __future__ import annotations

import copy
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
from onelayer.build.nested.compose import compose
from onelayer.build.nested.composer import composer
from onelayer.build.nested.gates import take_apart_widely
from onelayer.build.nested.scaling import eliminations, scalings
from onelayer.errors import FileError
from onelayer.language.formula import parse
from onelayer.lemmas.argument import from_text
from onelayer.lemmas.nested import Inner, Nested
from onelayer.lemmas.nesting import nested_error
from onelayer.observer import Observer
from onelayer.proof.files import ARGUMENT
from onelayer.proof.recorded import understood
from onelayer.result import Approximation

PISTON = (
    "a = x5*x2 + 19.62*x1 - x4*x3/x2; v = x2/(2*x4)*(sqrt(a**2 + 4*x4*x5*x3/x7*x6) - a);"
    " 2*pi*sqrt(x1/(x4 + x2**2*x5*x3/x7*x6/v**2))"
)
PISTON_BOX = Box([30, 0.005, 0.002, 1000, 90000, 290, 340], [60, 0.02, 0.01, 5000, 110000, 296, 360])
BOREHOLE = "g = log(x2/x1); 2*pi*x3*(x4-x6)/(g*(1 + 2*x7*x3/(g*x1**2*x8) + x3/x5))"
BOREHOLE_BOX = Box([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855], [0.15, 50000, 115600, 1110, 116, 820, 1680, 12045])
ARM = (
    "u = x1*cos(x4) + x2*cos(x4 + x5) + x3*cos(x4 + x5 + x6); v = x1*sin(x4) + x2*sin(x4 + x5) + x3*sin(x4 + x5 + x6);"
    " sqrt(u**2 + v**2)"
)
QUOTIENT, SIDES = "x1*x2/(x1*x3 + x2*x4 + 1)", Box([1.0] * 4, [2.0] * 4)


def built(text: str, box: Box, share: float, dtype: torch.dtype = torch.float64) -> Approximation:
    formula = parse(text, box.dim)
    values = formula(torch.cat([box.sample(4096, seed=1), box.corners(256)]))
    found = composer(understood(formula, box), box, dtype)
    assert found is not None
    assert found.multiplies
    return compose(found, share * float(values.max() - values.min()), Observer())


@pytest.fixture(scope="module")
def quotient() -> Approximation:
    return built(QUOTIENT, SIDES, 0.02)


@pytest.mark.parametrize(
    ("text", "box", "rank"),
    [
        (PISTON, PISTON_BOX, 2),
        (BOREHOLE, BOREHOLE_BOX, 1),
        ("sqrt(x1**2 + (x2*x3 - 1/(x2*x4))**2)", Box([1.0] * 4, [2.0] * 4), 1),
        ("atan((x2*x3 - 1/(x2*x4))/x1)", Box([1.0] * 4, [2.0] * 4), 1),
        (ARM, Box([0.0] * 6, [1.0] * 6), 2),
        ("10*sin(pi*x1*x2) + x3*x4", Box([0.0] * 4, [1.0] * 4), 1),
    ],
)
def test_scalings_leave_few_sums(text: str, box: Box, rank: int) -> None:
    assert take_apart_widely(parse(text, box.dim), box)[0].rank == rank


def test_a_reading_without_values_gives_way_to_the_next() -> None:
    box = Box([-1.0] * 4, [1.0] * 4)
    formula = parse("sqrt((x1*x2 - x3)**2 + (x2 + x4)**2)", 4)  # multiplied out, its sum reaches below zero
    found = composer(understood(formula, box), box, torch.float64)
    assert found is not None
    assert found.rank == 2


def test_scalings_of_a_formula() -> None:
    found = scalings(parse("sqrt(x1**2 + x2) / x3 + x4", 4))
    assert len(found) == 1  # x1, x2 and x3 together: the sum with x4 has degree zero
    assert found[0][3] == 0
    ((taken),) = eliminations(found, [1])
    assert taken[1] == [Fraction(1, 2), 1, Fraction(1, 2), 0]
    assert scalings(parse("exp(x1) + x2", 2)) == []
    assert scalings(parse("sin(x1/x2)", 2)) == [[1, 1]]


def test_a_quotient_is_proved_and_checked(quotient: Approximation, tmp_path: Path) -> None:
    assert quotient.certificate.proved
    assert quotient.certificate.boxes == 0
    quotient.save(tmp_path / "r")
    report = check(tmp_path / "r", all=True)
    assert report.ok, report
    assert load(tmp_path / "r").certificate.upper == quotient.certificate.upper


def test_the_factors_of_a_head_are_named(quotient: Approximation) -> None:
    assert "inner function (x1) * (x3)" in str(quotient.explain())


def test_a_product_in_float32(tmp_path: Path) -> None:
    result = built("sqrt(1 + x1*x2 + x3*x4)", SIDES, 0.05, torch.float32)
    assert result.certificate.proved
    result.save(tmp_path / "r")
    assert check(tmp_path / "r", all=True).ok


def test_the_bound_holds_at_corners_and_fifty_digits(quotient: Approximation) -> None:
    points = torch.cat([SIDES.corners(16), SIDES.sample(200, seed=5), SIDES.sample(200, seed=6, arcsine=True)])
    values = quotient.model(points).tolist()
    with mpmath.workdps(50):
        for point, value in zip(points.tolist(), values, strict=True):
            a, b, c, d = map(mpmath.mpf, point)
            assert abs(mpmath.mpf(value) - a * b / (a * c + b * d + 1)) <= quotient.certificate.upper


def _argument(result: Approximation) -> Nested:
    argument = from_text(result.certificate.attachments[ARGUMENT])
    assert isinstance(argument, Nested)
    return argument


def test_other_weights_are_refused_or_cost(quotient: Approximation) -> None:
    argument = _argument(quotient)
    exact = nested_error(quotient.model, argument, quotient.box)
    assert exact <= quotient.certificate.upper
    h = next(h for h in range(len(argument.inner)) if len(argument.inner[h].factors) > 1)
    for change in (1.01, 0.0):  # one value that is no longer the product of its columns
        model = copy.deepcopy(quotient.model)
        with torch.no_grad():
            model.memory_of(h).values.reshape(-1)[0] *= change
        assert nested_error(model, argument, quotient.box) > exact
    model = copy.deepcopy(quotient.model)
    with torch.no_grad():
        model.memory_of(h).axes[1][0, 0] += 1.0  # a key of the second axis that looks at the first coordinate
    with pytest.raises(Exception, match="form"):
        nested_error(model, argument, quotient.box)


@pytest.mark.parametrize(
    "forge",
    [
        lambda data: data["columns"][0][0].__setitem__(0, data["columns"][0][0][0] * 1.1),
        lambda data: data["columns"][0][0].append(0.0),
        lambda data: data["inner"][_product(data)]["more"][0].update(text="x1**2"),
        lambda data: data["inner"][_product(data)]["more"][0].update(direction=[0.0, 0.0, 0.0, 3.0]),
        lambda data: data["inner"][_product(data)].update(text="2*" + data["inner"][_product(data)]["text"]),
    ],
)
def test_a_forged_argument_is_rejected(forge: Callable[[Any], None], quotient: Approximation, tmp_path: Path) -> None:
    data = json.loads(quotient.certificate.attachments[ARGUMENT])
    forge(data)
    attachments = {ARGUMENT: (json.dumps(data) + "\n").encode()}
    certificate = replace(quotient.certificate, attachments=attachments)
    replace(quotient, certificate=certificate).save(tmp_path / "r")
    report = check(tmp_path / "r", all=True)
    assert report.verdict == "rejected", report


def _product(data: Any) -> int:
    return next(c for c, one in enumerate(data["inner"]) if one["more"])


def test_an_argument_without_the_newer_fields_is_read() -> None:
    plain = Nested(1, 1, (Inner((1.0,), "exp(x1)"),), ((0,),), (), ())
    old = {"inputs": 1, "outputs": 1, "inner": [{"direction": [1.0], "text": "exp(x1)"}], "direct": [[0]]}
    assert Nested(**(old | {"outer": [], "units": []})) == plain  # type: ignore[arg-type]


def test_malformed_products_are_refused_in_one_line() -> None:
    with pytest.raises(FileError, match="factors"):
        Inner((1.0,), "x1", (Inner((1.0,), "x1"),) * 40)
    with pytest.raises(FileError, match="malformed"):
        Inner((1.0,), "x1", (Inner((1.0, 2.0), "x1"),))
    with pytest.raises(FileError, match="axes"):
        Nested(1, 1, (Inner((1.0,), "x1", (Inner((1.0,), "x1"),)),), ((0,),), (), ())


def test_values_that_are_no_numbers_bound_nothing(quotient: Approximation) -> None:
    argument = _argument(quotient)
    model = copy.deepcopy(quotient.model)
    with torch.no_grad():
        model.memory_of(0).values.reshape(-1)[0] = math.nan
    assert not nested_error(model, argument, quotient.box) < math.inf


@pytest.mark.slow
def test_borehole_to_a_tenth_of_a_percent(tmp_path: Path) -> None:
    result = built(BOREHOLE, BOREHOLE_BOX, 0.001)
    assert result.certificate.proved
    result.save(tmp_path / "r")
    assert check(tmp_path / "r", all=True).ok


def test_a_factor_beyond_floats_ends_one_way_of_writing_alone() -> None:
    steep = "exp(0.1*((x1/1e-150)**2 + exp(x2/1e-200) + x3)) + (x1/1e-150)*(x2/1e-200)"
    box = Box([0.0, -1e-200, 0.0], [1e-150, 1e-200, 1.0])
    assert composer(understood(steep, box), box, torch.float64) is not None
