"""Claims beyond |T - f|: true at adversarial points, planted faults caught, other answers in one line."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from claimed_models import SQUARE, hard, network
from torch import nn

import onelayer as ol
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.proof.about import words
from onelayer.proof.certificate import interval
from onelayer.proof.files import read_proof, write_proof
from onelayer.proof.together import together
from onelayer.recording.target import as_target
from onelayer.report.claimed import claim
from onelayer.taylor import variables


def test_a_range_holds_and_is_tight() -> None:
    model = network(nn.Tanh(), outputs=2)
    found = ol.bound(model, SQUARE, gap=0.02)
    with torch.no_grad():
        values = model(hard(SQUARE, 2000))
    assert found.status == "proved"
    assert bool((values >= found.low).all())
    assert bool((values <= found.high).all())
    width = values.amax(0) - values.amin(0)
    assert bool((found.high - found.low <= 1.1 * width).all())
    assert found.lower <= found.upper
    assert all(c.claim.startswith("sup|y") for c in found.certificates)
    assert "y2 in [" in str(found)


class Step(nn.Module):
    """1, and 100 from the float32 number next to 0.1 on, which is above it."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = nn.Parameter(torch.tensor(0.1), requires_grad=False)

    def forward(self, x: Any) -> Any:
        """One number for each point."""
        return torch.where(x[..., 0] >= self.edge, 0 * x[..., 0] + 100, 0 * x[..., 0] + 1)


def test_values_beside_the_box_are_not_seen() -> None:
    """The corner 0.1 is no number of float32, and the nearest one lies outside."""
    found = ol.bound(Step(), ol.Box([0.0], [0.1]))
    assert found.lower <= found.upper < 2


def test_a_model_without_numbers_has_no_range() -> None:
    with pytest.raises(OnelayerError, match="not finite"):
        ol.bound(lambda x: torch.log(x[..., 0]), ol.Box([-1.0], [1.0]))


def test_a_planted_range_is_refuted() -> None:
    """What bound proves is sup|T - c|; asked for less than that, the same search finds the point."""
    model = network(nn.Tanh())
    found = ol.bound(model, SQUARE)
    middle = float((found.low + found.high) / 2)
    half = float((found.high - found.low) / 2)

    def centred(x: Any) -> Any:
        return model(x)[..., 0]

    assert ol.certify(centred, repr(middle), SQUARE, 1.001 * half).status == "proved"
    assert ol.certify(centred, repr(middle), SQUARE, 0.9 * half).status == "refuted"


def test_two_models_against_each_other() -> None:
    a, b = network(nn.Tanh()), network(nn.Tanh())
    assert ol.equivalent(a, b, SQUARE, 1e-12).status == "proved"
    with torch.no_grad():
        b[2].bias += 0.25
    found = ol.equivalent(a, b, SQUARE)
    assert found.claim == "sup|A - B|"
    assert found.lower <= 0.25 * (1 + 1e-12)
    assert found.upper * (1 + 1e-12) >= 0.25
    assert ol.equivalent(a, b, SQUARE, 0.2).status == "refuted"
    mixed = ol.equivalent(a, network(nn.Tanh()).float(), SQUARE)
    assert mixed.arithmetic == "real"
    assert 0 < mixed.upper < 1e-6
    with pytest.raises(OnelayerError, match="must be equal"):
        ol.equivalent(a, network(nn.Tanh(), outputs=2), SQUARE)


def test_monotone_is_proved_refuted_and_named() -> None:
    def model(x: Any) -> Any:
        return torch.exp(x[..., 0]) - 2 * x[..., 1] + 0.1 * torch.sin(x[..., 1])

    box = ol.Box([0.0, 0.0], [1.0, 1.0], names=["rpm", "load"])
    up = ol.monotone(model, box, {"rpm": "+", "load": "-"})
    assert up.status == "proved"
    assert 0 <= up.lower <= 1.0 <= up.upper * (1 + 1e-9)
    down = ol.monotone(model, box, {"load": "+"})
    assert down.status == "refuted"
    assert down.witness is not None
    assert down.upper <= -1.9 + 1e-6
    assert "load +" in str(down)
    # A slope is one of the exact function, a condition one of what is executed: nobody may take one for the other.
    assert "exact real arithmetic" in str(down)
    assert "float64 execution" in str(ol.prove(lambda x: x[..., 0], box, "y1 >= -1"))
    turning = ol.monotone(lambda x: (x[..., 0] - 0.5) ** 2, box, {"rpm": "+"})
    assert turning.status == "refuted"
    for bad in ({}, {"x1": "+"}, {"rpm": "up"}):
        with pytest.raises(OnelayerError):
            ol.monotone(model, box, bad)


def test_what_has_no_slope_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperation, match="comparison"):
        ol.lipschitz(lambda x: torch.where(x[..., 0] > 0, x[..., 0], 2.0 + x[..., 0]), SQUARE)
    with pytest.raises(UnsupportedOperation, match="sign"):
        ol.lipschitz(lambda x: torch.sign(x[..., 0]), SQUARE)
    with pytest.raises(OnelayerError, match="real arithmetic"):
        ol.lipschitz(network(nn.Tanh()), SQUARE, execution="float64")
    with pytest.raises(OnelayerError, match="black box"):
        ol.gradient_error(network(nn.Tanh()), as_target(lambda x: math.sin(x[0]), SQUARE, lipschitz=1.0), SQUARE)


def test_a_claim_about_slopes_is_not_taken_for_one_about_values() -> None:
    found = ol.lipschitz(network(nn.Tanh()), SQUARE)
    assert '"claim": "sup sum_i |dT/dx_i|"' in found.to_json()
    assert "sup sum_i |dT/dx_i|" in str(found)
    assert found.weights_sha256


def test_conditions_are_proved_refuted_and_read_with_care() -> None:
    model = network(nn.Tanh(), outputs=2)
    found = ol.bound(model, SQUARE)
    low, high = found.low.tolist(), found.high.tolist()
    good = f"y1 <= {high[0]!r} and y2 >= {low[1] - 0.01!r} and (y1 > {low[0] - 0.01!r} or x1 > 5)"
    assert ol.prove(model, SQUARE, good).status == "proved"
    bad = ol.prove(model, SQUARE, f"y1 <= {high[0] - 0.2!r}")
    assert bad.status == "refuted"
    assert bad.witness is not None
    with torch.no_grad():
        value = float(model(torch.tensor([bad.witness], dtype=torch.float64))[0, 0])
    assert value > high[0] - 0.2
    assert bad.upper < 0
    assert ol.prove(model, SQUARE, "not (y1 > 100 or y2 > 100)").status == "proved"
    assert ol.prove(model, SQUARE, "y1 - x1 <= y1 - x1 + 1").status == "proved"
    for text in ("y1", "y3 > 0", "y1 > 0; y2 > 0", "x5 > 0", "y1 >"):
        with pytest.raises(OnelayerError) as caught:
            ol.prove(model, SQUARE, text)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["x3 >= 0", "x >= 0", "y >= 0", "z >= 0"])
def test_a_name_that_would_mean_another_variable_is_refused(text: str) -> None:
    """With one output and two inputs there are three variables: x3 and the letters would be read by their number."""
    with pytest.raises(OnelayerError):
        ol.prove(network(nn.Tanh()), SQUARE, text)


def test_a_strict_condition_needs_more_than_zero() -> None:
    def square(x: Any) -> Any:
        return (x[..., 0] * 0.0)[..., None]

    assert ol.prove(square, SQUARE, "y1 >= 0").status != "refuted"
    assert ol.prove(square, SQUARE, "y1 > 0").status != "proved"


def test_the_range_of_a_layer_is_saved_and_checked(tmp_path: Path) -> None:
    box = ol.Box([0.0], [2.0])
    layer = ol.approximate("sin(x)", box, 1e-2).model
    found = ol.bound(layer, box)
    folder = found.save(tmp_path / "range")
    assert ol.check(folder).ok
    proof = read_proof(folder)
    narrow = {**proof.about, "high": [0.99 * proof.about["high"][0]]}
    write_proof(folder, replace(proof, about=narrow))
    assert not ol.check(folder).ok


def test_a_claim_of_another_kind_is_rejected_by_the_checker(tmp_path: Path) -> None:
    a = ol.approximate("sin(x)", ol.Box([0.0], [2.0]), 1e-2)
    a.save(tmp_path)
    write_proof(tmp_path, replace(a.certificate, claim="sup|dT/dx|"))
    report = ol.check(tmp_path)
    assert not report.ok
    assert "sup|dT/dx|" in report.reason


def test_convexity_of_known_functions() -> None:
    def saddle(x: Any) -> Any:
        return x[..., 0] ** 2 - 0.1 * x[..., 1] ** 2

    def bowl(x: Any) -> Any:
        return torch.logsumexp(x, -1) + 0.1 * (x**2).sum(-1)

    assert ol.convex(bowl, SQUARE).status == "proved"
    assert ol.convex(saddle, SQUARE).status == "refuted"
    assert ol.convex(lambda x: -bowl(x), SQUARE).status == "refuted"


def test_two_relu_networks_are_followed_together() -> None:
    """Sharper than apart, and true at hard points; a planted difference is seen."""
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    near = copy.deepcopy(model)
    with torch.no_grad():
        for weight in near.parameters():
            weight.copy_((weight * 64).round() / 64)
    box = ol.Box([-1.0, -1.0], [1.0, 1.0])
    both = together(model, near, (2,))
    assert both is not None
    x = variables(box.lower[None], box.upper[None], 2, execution=torch.float32)
    apart = (model(x) - near(x)).range()
    joined = both(x).range()
    assert float(joined[1] - joined[0]) < 0.5 * float(apart[1] - apart[0])
    found = ol.equivalent(model, near, box, gap=0.3)
    points = hard(box, 2000).float()
    with torch.no_grad():
        seen = float((model(points) - near(points)).abs().max())
        near[4].bias.add_(0.5)  # type: ignore[operator, union-attr]
    assert seen <= found.upper <= 1.5 * seen + 1e-6
    assert ol.equivalent(model, near, box, found.upper).status == "refuted"


DOORS: dict[str, Any] = {
    "bound": ol.bound,
    "lipschitz": ol.lipschitz,
    "convex": ol.convex,
    "gradient_error": lambda model, box: ol.gradient_error(model, "x1", box),
    "monotone": lambda model, box: ol.monotone(model, box, {"x1": "+"}),
    "equivalent": lambda model, box: ol.equivalent(model, model, box),
    "prove": lambda model, box: ol.prove(model, box, "y1 <= 9"),
}


@pytest.mark.parametrize("door", DOORS)
def test_boxes_of_every_form_are_taken_and_what_is_none_is_refused_in_one_line(door: str) -> None:
    model = network(nn.Tanh())
    same = ol.Box([0.0, 0.0], [0.5, 0.5])
    assert DOORS[door](model, "0:0.5, 0:0.5").status == DOORS[door](model, same).status
    for wrong in ("y1 <= 1", None, 3, [[0, 1, 2]]):
        with pytest.raises(OnelayerError) as caught:
            DOORS[door](model, wrong)
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("low", "high"), [(0.1234567, 0.1234567), (-0.1234567, -1e-300), (1234567.5, math.inf), (0.0, 0.5)]
)
def test_what_is_printed_of_an_enclosure_is_true(low: float, high: float) -> None:
    bottom, top = interval(low, high)[1:-1].split(", ")
    assert Fraction(bottom) <= Fraction(low)
    assert math.isinf(high) or Fraction(top) >= Fraction(high)


FLAT = ol.Box([0.3, 0.0], [0.3, 1.0])


def test_what_has_one_value_of_an_input_neither_falls_nor_bends_along_it() -> None:
    """sin 3 + (y + 1)^2 is convex in the y that is left, and does not fall along an x that has one value."""

    def model(x: Any) -> Any:
        return torch.sin(10 * x[..., 0]) + (x[..., 1] + 1) ** 2

    assert ol.monotone(model, FLAT, {"x2": "+"}).status == "proved"
    with pytest.raises(OnelayerError, match="x1 has one value"):
        ol.monotone(model, FLAT, {"x2": "+", "x1": "+"})
    with pytest.raises(OnelayerError, match="x1 has one value"):
        ol.convex(model, FLAT)
    # Two neighbouring numbers have others between them: T falls there.
    narrow = ol.Box([0.3, 0.0], [math.nextafter(0.3, 1.0), 1.0])
    assert ol.monotone(model, narrow, {"x1": "+"}).status == "refuted"
    for kind in ({"kind": "convex"}, {"kind": "monotone", "inputs": [0], "signs": [1]}):
        sound = ol.convex(lambda x: model(x) + 100 * x[..., 0] ** 2, ol.Box([0.3, 0.0], [0.4, 1.0])).certificate
        changed = replace(sound, about=kind, claim=words(kind))
        with pytest.raises(OnelayerError, match="one value"):
            replace(changed, domain=FLAT, proof=None, boxes=0, witness=None, lower=0.0, resisted=None)


def test_a_report_refutes_a_number_of_slopes_and_no_distances() -> None:
    """(x, y) has the Euclidean constant 1: that the root of the squares of all slopes is larger refutes no distance."""
    found = ol.lipschitz(lambda x: 1.0 * x, SQUARE, 1.2, norm=2)
    assert found.status == "refuted"
    said = claim(found)
    assert "NOT so: the root of the sum of the squares of all slopes is at most 1.2" in said
    assert "a change of the inputs" not in said
    assert "a change of the inputs" in claim(ol.lipschitz(lambda x: 1.0 * x, SQUARE, 1.5, norm=2))
