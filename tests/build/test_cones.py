"""Cones of two sums: absolute values close to a norm, proved on the rim, checked, attacked, forged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onelayer import Box, check
from onelayer.build.nested.compose import compose
from onelayer.build.nested.composer import composer
from onelayer.build.nested.cones import cone_ridges, is_cone
from onelayer.checker.cones import rises_in_proportion
from onelayer.errors import OnelayerError
from onelayer.language.formula import parse
from onelayer.lemmas.cone import cone_error, homogeneous
from onelayer.lemmas.nested import Outer
from onelayer.observer import Observer
from onelayer.proof.files import ARGUMENT
from onelayer.proof.recorded import understood
from onelayer.result import Approximation

ARM = "u = x1*cos(x3) + x2*cos(x3 + x4) + 0.5*x5; v = x1*sin(x3) + x2*sin(x3 + x4) - x6**3; sqrt(u**2 + v**2)"
ARM_BOX = Box([0, 0, -3, -3, -1, -1], [1, 1, 3, 3, 1, 1])


def hypot(low: tuple[float, float] = (-3.0, -2.0), text: str = "sqrt(x1**2 + x2**2)") -> Outer:
    return Outer(0, ((0,), (1,)), text, low, (1.0, 4.0), 0.0, ())


@pytest.mark.parametrize(
    ("text", "cone"),
    [
        ("sqrt(x1**2 + x2**2)", True),
        ("sqrt(x1**2 + x1*x2 + 3*x2**2)", True),
        ("max(abs(x1), abs(x2))", True),
        ("abs(x1) + pi*x2", True),
        ("sqrt(x1**2 + x2**2 + 1)", False),
        ("x1**2 + x2**2", False),
        ("x1**2/x2", False),
        ("sqrt(x1**2 + x2)", False),
        ("x1*exp(x2 - x2)", False),
        ("max(abs(x1) + abs(x2), x1**0)", False),
        ("(abs(x1) + abs(x2))**-1", False),
        ("sqrt(abs(x1))*sqrt(abs(x1) + abs(x2))**-1", False),
    ],
)
def test_homogeneous_functions_are_known(text: str, cone: bool) -> None:
    assert homogeneous(parse(text, 2)) is cone
    assert is_cone(hypot(text=text)) is cone
    assert not is_cone(hypot(low=(0.5, -2.0), text=text))


@pytest.mark.parametrize("text", ["sqrt(x1**2 + x2**2)", "sqrt(x1**2 + x1*x2 + 3*x2**2)"])
@pytest.mark.parametrize("tolerance", [0.1, 0.01])
def test_the_bound_on_the_rim_holds_inside(text: str, tolerance: float) -> None:
    outer = hypot(text=text)
    ridges = cone_ridges(outer, 0.9 * tolerance)
    assert ridges is not None
    made = replace(outer, ridges=ridges)
    assert rises_in_proportion(made)
    bound = cone_error(made, tolerance)
    assert bound <= tolerance
    box = Box(outer.low, outer.high)
    kinks = torch.tensor([[-r.weights[1], r.weights[0]] for r in ridges], dtype=torch.float64)
    kinks = kinks / kinks.abs().amax(1, keepdim=True)  # on the lines where units bend, inside the box
    points = torch.cat([box.sample(4000, seed=1), box.corners(4), kinks, 1e-9 * kinks, torch.zeros(1, 2).double()])
    gap = (outer.formula(points) - made.decomposed()(points)).abs().max()
    assert float(gap) <= bound * (1 + 1e-12)


def test_ridges_that_are_no_cone_prove_nothing() -> None:
    ridges = cone_ridges(hypot(), 0.05)
    assert ridges is not None
    bent = (replace(ridges[0], text=ridges[0].text + " + 1e-3"), *ridges[1:])
    assert cone_error(replace(hypot(), ridges=bent), 1.0) == math.inf
    assert not rises_in_proportion(replace(hypot(), ridges=bent))
    assert cone_error(replace(hypot(low=(0.1, -2.0)), ridges=ridges), 1.0) == math.inf


def test_a_power_that_is_one_everywhere_makes_no_cone() -> None:
    """u**0 is no multiple of u: f has a spike at the tip, where a rim and its cone know of none."""
    stretched = ARM.replace("sqrt(u**2 + v**2)", "max(sqrt(u**2 + v**2), u**0 - 1e6*sqrt(u**2 + v**2))")
    formula = parse(stretched, 6)
    box = Box([0.11, 0.07, -3, -3, -1, -0.97], [1.3, 1.17, 3, 3, 0.93, 1])
    found = composer(understood(formula, box), box, torch.float64)
    assert found is not None
    with pytest.raises(OnelayerError):
        compose(found, 0.2, Observer())


@pytest.fixture(scope="module")
def arm() -> Approximation:
    formula = parse(ARM, 6)
    found = composer(understood(formula, ARM_BOX), ARM_BOX, torch.float64)
    assert found is not None
    assert found.rank == 2
    return compose(found, 0.2, Observer())


def test_an_arm_is_proved_and_checked(arm: Approximation, tmp_path: Path) -> None:
    assert arm.certificate.proved
    assert arm.certificate.boxes == 0
    points = torch.cat([ARM_BOX.sample(4000, seed=3), ARM_BOX.corners(64), torch.zeros(1, 6).double()])
    error = (arm.model(points) - parse(ARM, 6)(points)).abs().max()
    assert float(error) <= arm.certificate.upper
    arm.save(tmp_path / "r")
    report = check(tmp_path / "r", all=True)
    assert report.ok, report


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_a_smaller_gap_is_rejected(arm: Approximation, share: float, tmp_path: Path) -> None:
    data = json.loads(arm.certificate.attachments[ARGUMENT])
    data["outer"][0]["gap"] *= share
    certificate = replace(arm.certificate, attachments={ARGUMENT: (json.dumps(data) + "\n").encode()})
    replace(arm, certificate=certificate).save(tmp_path / "r")
    report = check(tmp_path / "r", all=True)
    assert report.verdict == "rejected", report


def test_the_third_side_of_a_triangle_is_proved_at_its_tip_too(tmp_path: Path) -> None:
    formula = parse("sqrt(x1**2 + x2**2 - 2*x1*x2*cos(x3 - x4))", 4)
    box = Box([1.0] * 4, [5.0] * 4)
    found = composer(understood(formula, box), box, torch.float64)
    assert found is not None
    assert found.rank == 2
    made = compose(found, 0.2, Observer())
    assert made.certificate.proved
    tips = box.sample(2000, seed=4)
    tips[:, 1], tips[:, 3] = tips[:, 0], tips[:, 2]  # where both squares vanish
    points = torch.cat([box.sample(2000, seed=3), box.corners(16), tips])
    sides = torch.sqrt((points[:, 0] - points[:, 1]) ** 2 + 4 * points[:, 0] * points[:, 1] * _half(points) ** 2)
    assert float((made.model(points) - sides).abs().max()) <= made.certificate.upper
    made.save(tmp_path / "r")
    assert check(tmp_path / "r", all=True).ok


def _half(points: torch.Tensor) -> torch.Tensor:
    """sin of half the angle: the third side without cancellation."""
    return torch.sin((points[:, 2] - points[:, 3]) / 2)
