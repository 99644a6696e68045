"""Kinks taken side by side: enclosures hold on their side, and the same kink in T and f cancels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.language.balls import in_balls
from onelayer.language.formula import parse
from onelayer.layer.lookup import Affine, Ridges, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.taylor import sides, variables
from onelayer.taylor.core import TaylorModel
from onelayer.taylor.hull import evaluate_hulled
from onelayer.taylor.sides import Sides

CPU = torch.device("cpu")


def evaluated(model: TaylorModel, t: Tensor) -> tuple[Tensor, Tensor]:
    """Polynomial at points t (S, 2) per box, (S, B), and the remainder (B,): degree at most 2 in two variables."""
    x, y = t[:, :1], t[:, 1:]
    powers = {1: [x], 2: [x, y]}[len(model.support)]
    if model.support == (1,):
        powers = [y]
    terms = [torch.ones_like(x), *powers]
    terms += [powers[i] * powers[j] for i in range(len(powers)) for j in range(i, len(powers))]
    return sum(c * term for c, term in zip(model.coef, terms, strict=False)), model.rem  # type: ignore[return-value]


def violations(seed: int) -> int:
    """How often |y| leaves its enclosure at points of the assumed side, over random planes and almost equal ones."""
    chance = torch.Generator().manual_seed(seed)
    boxes = 64

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=chance, dtype=torch.float64)

    x = variables(-torch.ones(boxes, 2), torch.ones(boxes, 2), 2)
    plane = random(3, boxes)
    noise = 10.0 ** (-12 * torch.rand(boxes, generator=chance, dtype=torch.float64))
    ratio = random(boxes)
    weights = ratio * plane + noise * random(3, boxes)
    assumed = Sides([plane], boxes, 2, CPU, take_notes=False)
    held = variables(-torch.ones(boxes, 2), torch.ones(boxes, 2), 2, sides=assumed)
    argument = held[:, 0] * weights[1] + held[:, 1] * weights[2] + weights[0] + 0.01 * noise * x[:, 0] * x[:, 1]
    enclosed = torch.abs(argument)
    t = 2 * torch.rand(400, 2, generator=chance, dtype=torch.float64) - 1
    truth = (weights[0] + t[:, :1] * weights[1] + t[:, 1:] * weights[2] + 0.01 * noise * t[:, :1] * t[:, 1:]).abs()
    on_side = plane[0] + t[:, :1] * plane[1] + t[:, 1:] * plane[2] >= 0
    polynomial, remainder = evaluated(enclosed, t)
    rounding = 1e-14 * weights.abs().sum(0)  # of this float64 check itself
    return int((((truth - polynomial).abs() > remainder + rounding) & on_side).sum())


@pytest.mark.parametrize("seed", range(8))
def test_enclosures_hold_on_the_assumed_side(seed: int) -> None:
    assert violations(seed) == 0


def test_dropping_the_slack_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the distance d between the two planes the enclosures are wrong, and the check above sees it."""
    honest = sides.inflate
    monkeypatch.setattr(sides, "inflate", lambda value: honest(value) * 1e-3)
    assert sum(violations(seed) for seed in range(8)) > 0


def ridge_layer(normal: list[float], offset: float, slope: list[float]) -> OneLayerTransformer:
    def row(values: list[float]) -> Tensor:
        return torch.tensor([values], dtype=torch.float64)

    ridges = Ridges(row(normal), torch.tensor([offset], dtype=torch.float64), row([2.0]))
    return lookup_model(2, (), [], ridges, Affine(row(slope), torch.zeros(1, dtype=torch.float64)))


def test_the_same_kink_cancels_in_one_box() -> None:
    layer = ridge_layer([1.0, -1.0], 0.0, [-1.0, 1.0])
    certificate = certify(layer, "abs(x1 - x2)", Box([0, 0], [1, 1]), 1e-12)
    assert certificate.proved
    assert certificate.boxes == 1


def test_a_displaced_kink_is_not_hidden() -> None:
    """relu(x1 - x2 + d) instead of relu(x1 - x2): the error is exactly 2 d, and no bound below it is given."""
    layer = ridge_layer([1.0, -1.0], 5e-2, [-1.0, 1.0])
    certificate = certify(layer, "abs(x1 - x2)", Box([0, 0], [1, 1]), 9.5e-2)
    assert certificate.status == "refuted"
    assert certificate.lower - 1e-12 <= 1e-1 <= certificate.upper + 1e-12
    assert certify(layer, "abs(x1 - x2)", Box([0, 0], [1, 1]), 1.05e-1).proved


def test_a_kink_with_the_wrong_sign_is_not_hidden() -> None:
    layer = ridge_layer([-1.0, 1.0], 0.0, [-1.0, 1.0])  # gives 3 |x1 - x2| on one side, |x1 - x2| - ... on the other
    certificate = certify(layer, "abs(x1 - x2)", Box([0, 0], [1, 1]), 1e-3)
    assert certificate.status == "refuted"
    assert certificate.upper >= 2.0 - 1e-9


@pytest.mark.parametrize(
    "text",
    [
        "log(abs(x - 0.3) + 0.1)",
        "exp(-60*abs(x - 0.3))",
        "exp(-60*max(x - 0.3, 0)**2 - 60*abs(x - 0.3))",
        "tanh(30*abs(x - 0.3))",
        "atan(30*abs(x - 0.3))",
        "sqrt(abs(x - 0.3) + 0.1)",
        "1/(abs(x - 0.3) + 0.1)",
        "lgamma(abs(x - 0.3) + 0.1)",
        "(abs(x - 0.3) + 0.1)**1.7",
    ],
)
@pytest.mark.parametrize("order", [1, 2, 4, 8])
def test_a_series_about_a_centre_beyond_the_assumed_side_holds(text: str, order: int) -> None:
    """In the middle of [0.2, 0.35] the sign is the other one: |x - 0.3| is 0.025 there, and its enclosure -0.025."""
    formula = parse(text, 1)
    low, high = torch.tensor([[0.2]], dtype=torch.float64), torch.tensor([[0.35]], dtype=torch.float64)
    plane = torch.tensor([[-0.025], [0.075]], dtype=torch.float64)
    for side in (1.0, -1.0):
        watch = Sides([side * plane], 1, 1, CPU, take_notes=False)
        x = variables(low, high, order, sides=watch)
        found = evaluate_hulled(formula, x, low, high)
        center, radius = x.coef[:, 0, 0].tolist()
        for step in range(-200, 201):
            point = center + radius * step / 200
            if side * (point - 0.3) >= 0 and 0.2 <= point <= 0.35:
                (value,) = in_balls(formula, [point])
                t = (point - center) / radius
                polynomial = sum(c * t**n for n, c in enumerate(found.coef[:, 0].tolist()))
                assert abs(float(value) - polynomial) <= float(found.rem) + 1e-12 * (1 + abs(polynomial)), point


def test_a_spike_beside_a_kink_is_not_proved_away() -> None:
    """e^-w less its own series of degree 12 at w = -3, under a spike at w = 0.8: 0.087 there."""
    kink, steep = (333333333 + 7 / 8) / 2**30, 2.0**33  # seven eighths into a box of 2^-30
    w = f"({steep}*max(x - {kink}, 0))"
    series = "1"
    for n in range(12, 0, -1):
        series = f"(1 + (-3 - {w})/{n}*{series})"
    text = f"(exp(-{w}) - exp(3)*{series})*exp(-(1e4*({steep}*(x - {kink}) - 0.8))**2)"
    zero = lookup_model(
        1, (), [], None, Affine(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    )
    assert abs(in_balls(parse(text, 1), [kink + 0.8 / steep])[0]) > 0.08
    assert not certify(zero, text, Box([0], [1]), 0.06, order=8, max_boxes=2000).proved
