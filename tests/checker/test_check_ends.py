"""Ends of values run beside the checker's Taylor enclosures, and bound what those alone cannot."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from torch import nn

from liar import formulas, places
from liar.expressions import Unclear, read_values, text
from onelayer.box import Box
from onelayer.checker.arithmetic import ZERO, coordinate
from onelayer.checker.check import check
from onelayer.checker.formula import enclosed
from onelayer.checker.functions import Kinks
from onelayer.checker.precision import precise
from onelayer.checker.univariate import Line, distance
from onelayer.errors import OnelayerError
from onelayer.language.formula import parse
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.proof.claims import lipschitz, monotone
from onelayer.result import Approximation


@pytest.mark.parametrize("execution", ["model dtype", "real"])
def test_a_product_with_a_spike_is_not_negative(execution: str, tmp_path: Path) -> None:
    """Of the spike only [0, 1] is known, and the slope of the other factor times that has both signs."""
    memory = [PlainMemory(torch.zeros(1, 1).double(), torch.ones(1, 1).double())]
    model = OneLayerTransformer.packed((2,), (), memory, d_model=1, residual=False, seed=1)
    with torch.no_grad():
        model.own("W_R").zero_()
        model.own("b_R").fill_(1.0402391329610297)
    f = "log(exp(sin(-0.195 * x1 + x1) + 1)) * exp(-(222222222.2222222 * (x2 + 0.45))**2)"
    certificate = certify(model, f, Box([0.0, -0.5], [0.1, -0.4]), execution=execution, max_boxes=4)
    assert certificate.upper < 1.04024
    report = check(Approximation(model, certificate).save(tmp_path / "proof"))
    assert report.ok, report.reason


class Wave(nn.Module):
    """sin(exp(3 r)) for r = sqrt(u^2 + 1/2), u being a line: thousands of radians."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1).double()
        with torch.no_grad():
            self.line.weight.copy_(torch.tensor([[-1.2, -0.9]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.line(x)
        e = torch.exp(torch.sqrt(u * u + 0.5))
        return torch.sin(e * e * e)[..., 0]


def test_slopes_of_a_wave_are_between_those_of_its_argument(tmp_path: Path) -> None:
    """A cosine that is expanded over thousands of radians is mostly remainder; it is between -1 and 1 all the same."""
    found = monotone(Wave(), Box([1.0, 1.0], [2.0, 2.0]), {"x2": "+"}, order=3, max_boxes=8)
    assert found.status == "refuted"
    report = check(found.certificate.save(tmp_path / "claim"), max_seconds=60)
    assert report.ok, report.reason


def test_the_norm_of_slopes_that_are_zero_or_not(tmp_path: Path) -> None:
    """Where a unit may be off, the sum of squared slopes may be 0, and a ball around it holds numbers below."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1), nn.Flatten(0)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-0.55, 0.45], [-0.33, -0.64]]))
        model[0].bias.copy_(torch.tensor([-0.41, 0.78]))
        model[2].weight.copy_(torch.tensor([[0.21, 0.1]]))
    found = lipschitz(model, Box([1.25, 0.25], [1.55, 0.55]), norm=2, max_boxes=20)
    assert found.upper < 1
    report = check(found.save(tmp_path / "claim"), max_seconds=60)
    assert report.ok, report.reason


def test_the_distance_of_a_spike_to_a_line() -> None:
    """A spike times x is no larger than x: its expansions at the tip are mostly remainder."""
    spike = "1.672*x1*(1/(1 + (103647105.74249019*x1 - 100000000)**2))"
    with precise():
        found = distance(parse(spike, 1), [Line(0.9, 1.0, ZERO, ZERO, ZERO)])
    assert float(found) < 1.6131662  # 1.672 * 1e8 / 103647105.74 and a little


@pytest.mark.parametrize("part", range(4))
def test_ends_hold_all_values(part: int) -> None:
    """Of random formulas at random points, wherever both are known."""
    compared = 0
    for seed in range(60 * part, 60 * part + 60):
        rng = Random(f"ends {seed}")
        dim = rng.choice([1, 2])
        low, high = (places.ordinary if rng.random() < 0.7 else places.sides)(rng, dim)
        expression = formulas.tree(rng, dim, 3) if rng.random() < 0.7 else formulas.attack(rng, low, high).expression
        try:
            formula = parse(text(expression), dim)
        except OnelayerError:
            continue
        with precise():
            order = rng.randint(1, 4)
            x = [coordinate(i, a, b, order) for i, (a, b) in enumerate(zip(low, high, strict=True))]
            ((item, (bottom, top)),) = enclosed(formula, x, Kinks())
            if not (bottom.is_finite() and top.is_finite()):
                continue
            for _ in range(12):
                point = [min(max(rng.choice([a, b, rng.uniform(a, b)]), a), b) for a, b in zip(low, high, strict=True)]
                try:
                    value = read_values(expression, point)
                except Unclear:
                    continue
                compared += 1
                assert not value < bottom, (seed, point)
                assert not value > top, (seed, point)
                assert value.overlaps(item.range()) or not item.is_finite()
    assert compared > 100
