"""Margins that are computed in a format: within the checker's bounds of the real ones, and these are narrow."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from flint import arb

import onelayer as ol
from checker.stated_folders import restated
from onelayer.checker.arithmetic import constant, coordinate
from onelayer.checker.check import check
from onelayer.checker.functions import Kinks
from onelayer.checker.margins import margin_errors
from onelayer.checker.network import StoredNetwork
from onelayer.checker.passes import NetworkPass
from onelayer.checker.precision import precise
from onelayer.checker.steps import Evaluation
from onelayer.language.requirement import parse_requirement

CONDITIONS = [
    "y1 <= 0.001",
    "y1*x1 - 0.3*y2 >= -5 and y2 < 7.1",
    "exp(3*y1) < 3 + x1 and abs(y2) <= 0.7 or y1 > 0",
    "sqrt(2.5 + y1) >= 0.1*tanh(y2)",
    "(y1 - y2)/(3.3 + x1) <= 1 - y1**2",
]


@pytest.mark.parametrize("text", CONDITIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_executed_margins_lie_within_the_bound(text: str, dtype: torch.dtype) -> None:
    rng = Random(text)
    margins = parse_requirement(text, ["y1", "y2", "x1"]).margins
    execution = NetworkPass(f"{str(dtype).removeprefix('torch.')} execution")
    run = Evaluation(StoredNetwork((1,), (), {}, "F32", ""), execution)
    for _ in range(20):
        centre = [rng.uniform(-1, 1) for _ in range(3)]
        low, high = ([v + side for v in centre] for side in (-1e-3, 1e-3))
        x = torch.tensor([[rng.uniform(a, b) for a, b in zip(low, high, strict=True)] for _ in range(50)], dtype=dtype)
        with precise():
            items = [coordinate(at, a - 1e-6, b + 1e-6, 2) for at, (a, b) in enumerate(zip(low, high, strict=True))]
            bounds = margin_errors(margins, items, run, execution, Kinks())
            exact = margins(x.double()) if dtype == torch.float32 else None
        assert all(bound < 64 * execution.unit for bound in bounds)
        if exact is not None:
            strayed = (margins(x).double() - exact).abs().amax(0).tolist()
            assert all(found <= float(bound) for found, bound in zip(strayed, bounds, strict=True))


def test_an_operation_that_no_network_has_is_not_bounded() -> None:
    margins = parse_requirement("lgamma(2 + y1) <= 3", ["y1"]).margins
    execution = NetworkPass("float32 execution")
    run = Evaluation(StoredNetwork((1,), (), {}, "F32", ""), execution)
    assert margin_errors(margins, [constant(arb(1), 2)], run, execution, Kinks()) == [arb.pos_inf()]


def test_a_small_margin_in_float32_is_accepted_and_a_smaller_bound_is_not(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(1e-4)
        model.bias.zero_()
    found = ol.prove(model, ol.Box([0.0], [1.0]), "y1 <= 0.001")
    assert found.status == "proved"
    folder = found.certificate.save(tmp_path / "claim")
    assert check(folder, all=True).verdict == "accepted"
    # Margins go down to 0.0009, which is 0.0001 below the level.
    assert check(restated(folder, lower=0.0, upper=0.99e-4, witness=None), all=True).verdict == "rejected"
