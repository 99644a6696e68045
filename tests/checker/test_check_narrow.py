"""Layers of float16 and bfloat16: nothing below the error of an execution is proved of them, by floats or by balls.

Points at which a forward pass contradicts a claim are left out here: they would catch these claims by luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from liar import places
from liar.layers import random_layer
from onelayer.box import Box
from onelayer.checker.boxes import PROVED, Prover
from onelayer.checker.check import check
from onelayer.checker.layer import Layer
from onelayer.checker.precision import precise
from onelayer.checker.rounding import Execution
from onelayer.checker.sweep import Sweep
from onelayer.checker.weights import read_model
from onelayer.language.formula import parse
from onelayer.layer.file import save_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer
from onelayer.proof.certify import certify
from onelayer.result import Approximation

F16, BF16 = torch.float16, torch.bfloat16


def passing(dtype: torch.dtype, weights: dict[str, float], **options: Any) -> OneLayerTransformer:
    """One number that goes past a silent head; weights that are not given are zero."""
    silent = PlainMemory(torch.zeros(1, 1, dtype=dtype), torch.zeros(1, 1, dtype=dtype))
    model = OneLayerTransformer.packed((1,), (), [silent], d_model=1, dtype=dtype, residual=True, **options)
    for name, value in model.requires_grad_(False).state_dict().items():
        value.fill_(weights.get(name, 0.0))
    return model


RAMP = {"ramp_slope": 0.8125, "W_E": 1.0, "W_R": 1.0}
THROUGH_SMALL = {"W_E": 2.0**-130, "W_1": 2.0**65, "W_2": 2.0**65, "W_R": 1.0}
THROUGH_LARGE = {"W_E": 1.0, "W_1": 1.0, "b_1": 512.0, "W_2": 1.0, "b_2": -512.0, "W_R": 0.5}
CASES: dict[str, tuple[OneLayerTransformer, str, Callable[[Tensor], Tensor]]] = {
    "a ramp is rounded": (passing(F16, RAMP, embedding="piecewise", ramps=1), "0.8125*x", lambda x: 0.8125 * x),
    "small numbers lose digits": (passing(BF16, THROUGH_SMALL, hidden=1), "x", lambda x: x),
    "large numbers lose digits": (passing(F16, THROUGH_LARGE, hidden=1), "x", lambda x: x),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_below_the_error_of_an_execution_is_proved(name: str, tmp_path: Path) -> None:
    model, text, f = CASES[name]
    save_model(model, tmp_path)
    stored = read_model(tmp_path)
    numbers = torch.linspace(0.5, 1.0, 1025).to(model.dtype)[:, None]
    exact = f(numbers.double()).flatten()
    limit = 0.99 * float((model(numbers).double().flatten() - exact).abs().max())
    kind = str(model.dtype).removeprefix("torch.")
    low, high = np.array([[0.5]]), np.array([[1.0]])
    with precise():
        layer = Layer(stored, Execution.of(f"{kind} execution", stored, ((0.5,), (1.0,))))
        assert limit > 0
        assert not Sweep(layer, parse(text, 1), limit, 4, Observer())(low, high).any()
        assert Prover(layer, parse(text, 1), limit, 4, 20)((0.5,), (1.0,)).outcome != PROVED


def test_what_is_proved_of_random_layers_is_accepted(tmp_path: Path) -> None:
    """On one box each, where bounds are coarse: queries that err, and normalised numbers that cannot exceed theirs."""
    accepted = 0
    for seed in [*range(20), 78]:
        rng = Random(f"narrow {seed}")
        model = random_layer(rng, 2, rng.choice([F16, BF16]))
        low, high = (torch.tensor(side).reshape(model.config.input_shape) for side in places.ordinary(rng, 2))
        if model.config.attention != "softmax" or not all(p.isfinite().all() for p in model.parameters()):
            continue
        certificate = certify(model, "0*x1", Box(low, high), max_boxes=1, order=3)
        if math.isfinite(certificate.upper):
            report = check(Approximation(model, certificate).save(tmp_path / str(seed)), seed=0)
            assert report.ok, (seed, report.reason)
            accepted += 1
    assert accepted > 4
