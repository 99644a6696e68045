"""Linear attention in the checker: it encloses what layers return, accepts what is proved, and nothing less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from flint import ctx

from liar.folders import checker_enclosures
from liar.layers import in_balls, random_layer
from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.errors import UnsupportedOperation
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.certify import certify
from onelayer.result import Approximation

FEATURES = [{"feature": "taylor", "order": 2}, {"feature": "taylor", "order": 4}, {"feature": "elu"}]


def linear_layers(count: int, dtype: torch.dtype) -> list[OneLayerTransformer]:
    """Random layers of the liar that have linear attention over plain memory or tokens."""
    found, seed = [], 0
    while len(found) < count:
        model = random_layer(Random(seed), 1, dtype)
        seed += 1
        if model.config.attention == "linear" and all(head.memory != "grid" for head in model.config.heads):
            found.append(model)
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_enclosures_hold_what_layers_return(dtype: torch.dtype) -> None:
    tried = 0
    for at, model in enumerate(linear_layers(6, dtype)):
        tally = checker_enclosures(Random(at), model, [-0.5], [0.25])
        assert not tally.lies
        tried += tally.count["enclosures"]
    assert tried > 30


@torch.no_grad()
def plain(model: OneLayerTransformer) -> None:
    """The head alone: maps of one number are the identity."""
    for name, parameter in model.named_parameters():
        if "memory" not in name:
            parameter.fill_(1.0 if name.startswith("W_") else 0.0)


def sharp(dtype: torch.dtype, options: dict[str, object]) -> OneLayerTransformer:
    """Keys and values of some size, one head, nothing else."""
    keys, values = torch.tensor([[3.0], [-2.0], [0.5]]), torch.tensor([[1.0], [-1.0], [2.0]])
    memory = [PlainMemory(keys.double(), values.double())]
    model = OneLayerTransformer.packed((1,), (), memory, d_model=1, attention="linear", residual=False, **options)
    plain(model)
    return model.to(dtype).requires_grad_(False)


@pytest.mark.parametrize("options", FEATURES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_proof_is_accepted_and_less_is_not(dtype: torch.dtype, options: dict[str, object], tmp_path: Path) -> None:
    model, box = sharp(dtype, options), Box([-1.0], [1.0])
    certificate = certify(model, "x", box, gap=0.05)
    assert check(Approximation(model, certificate).save(tmp_path / "true")).ok
    less = certificate.lower * 0.999
    forged = replace(certificate, upper=less, eps=less, lower=0.0, witness=None)
    assert not check(Approximation(model, forged).save(tmp_path / "forged")).ok


def test_a_grid_without_softmax_is_not_certified_as_real() -> None:
    """Its keys are sums: 1e17 + 1 - 1e17 is 1 in real arithmetic and 0 when it is written out, and T is 0.5 or 0.28."""
    axes = [torch.tensor(side, dtype=torch.float64)[:, None] for side in ([1e17], [1.0], [-1e17, 16 - 1e17])]
    memory = [GridMemory(axes, torch.tensor([5.0, 0.0], dtype=torch.float64).reshape(1, 1, 2, 1))]
    model = OneLayerTransformer.packed(
        (1,), (), memory, d_model=1, attention="linear", feature="elu", residual=False, dtype=torch.float64
    )
    plain(model)
    with ctx.workprec(400):
        assert float(in_balls(model, [0.5])[0].mid()) == pytest.approx(0.5)
    assert float(model(torch.tensor([0.5], dtype=torch.float64)).detach()) == pytest.approx(5 / 18)
    with pytest.raises(UnsupportedOperation, match="materialize"):
        certify(model, "0*x", Box([0.0], [1.0]), execution="real")
