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
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.check import check
from onelayer.checker.formats import BY_TAG
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
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


@pytest.mark.parametrize("options", FEATURES)
@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e200), (torch.float32, 1e30), (torch.bfloat16, 1e30)])
def test_moments_that_sizes_alone_let_overflow(
    dtype: torch.dtype, size: float, options: dict[str, object], tmp_path: Path
) -> None:
    """A ramp that begins behind the box leaves the query 0, one that begins within it makes products that overflow."""
    for start, small in ((2.0, True), (0.5, False)):
        memory = [PlainMemory(*(torch.tensor(v, dtype=dtype) for v in ([[1.0], [-2.0]], [[size], [-size]])))]
        shape = {"d_model": 1, "residual": False, "embedding": "piecewise", "ramps": 1, "dtype": dtype, **options}
        model = OneLayerTransformer.packed((1,), (), memory, attention="linear", **shape)
        plain(model)
        ramp = {"ramp_start": [[start]], "ramp_slope": [[1.0]], "W_E": [[size]], "W_O": [[1 / size]]}
        model.set_weights({name: torch.tensor(value, dtype=dtype) for name, value in ramp.items()})
        model = model.requires_grad_(False)
        certificate = certify(model, "0*x", Box([0.0], [1.0]), max_boxes=8)
        assert bool(model(torch.tensor([[1.0]], dtype=dtype)).isfinite().all()) == small
        stated = certificate if small else replace(certificate, status="proved", eps=4.0, upper=4.0)
        assert stated.upper < 5
        folder = Approximation(model, replace(stated, lower=0.0, witness=None)).save(tmp_path / f"{start}")
        assert check(folder).ok == small
        assert bounded_on(folder, 0.75, 1.0) == small


def bounded_on(folder: Path, low: float, high: float) -> bool:
    """Whether the checker bounds the error of an execution on an interval, by enclosures alone."""
    stored = read_model(folder)
    execution = Execution.of(BY_TAG[stored.dtype].arithmetic, stored, ((low,), (high,)))
    return all(e.is_finite() for e in Layer(stored, execution)([coordinate(0, low, high, 2)], Kinks()).errors)
