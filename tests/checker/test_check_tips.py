"""Roots and arcs at the ends of their domains: the checker knows them there as the package does, and nothing false."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.result import Approximation

THIRD_SIDE = "sqrt(x1**2 + x2**2 - 2*x1*x2*cos({}*x3))"
CASES: dict[str, tuple[str, Box]] = {
    "a side that vanishes": (THIRD_SIDE.format(1), Box([2.0, 1.0, -4.0], [2.0, 5.0, 4.0])),
    "a side that vanishes often": (THIRD_SIDE.format(1e8), Box([1.0, 1.0, 0.0], [2.0, 2.0, 1.0])),
    "a chord of the circle": ("sqrt(1 - cos(3*x1))", Box([0.0], [0.25])),
    "an arc of a cosine": ("acos(cos(3*x1))", Box([0.5], [2.5])),
    "an arc of a sine": ("asin(sin(3*x1))", Box([0.0], [4.0])),
    "a root with a factor": ("sqrt(x1**2*(1 - cos(x2)))", Box([-1.0, 0.0], [-0.75, 4.0])),
    "a root of a cosine's size": ("sqrt(1 - abs(cos(3*x1)))", Box([0.0], [1.0])),
    "a root of an error function": ("sqrt(1 - erf(x1))", Box([5.0], [40.0])),
}


def silent(dim: int, dtype: torch.dtype) -> OneLayerTransformer:
    """A layer that returns 0."""
    memory = [PlainMemory(torch.zeros(1, 1, dtype=dtype), torch.zeros(1, 1, dtype=dtype))]
    model = OneLayerTransformer.packed((dim,), (), memory, d_model=1, dtype=dtype).requires_grad_(False)
    for value in model.state_dict().values():
        value.zero_()
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_a_proof_across_a_tip_is_accepted_and_nothing_below(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    text, box = CASES[name]
    model = silent(len(box.lower), dtype)
    certificate = certify(model, text, box, gap=0.3, max_boxes=60)
    report = check(Approximation(model, certificate).save(tmp_path / "honest"), seed=0)
    assert report.ok, report.reason
    below = 0.999 * certificate.lower
    false = replace(certificate, status="proved", eps=below, upper=below, lower=0.0, witness=None, resisted=None)
    real = replace(false, arithmetic="real")  # of which no forward pass is tried: the boxes have to resist
    assert not check(Approximation(model, real).save(tmp_path / "forged"), seed=0, max_seconds=2).ok
