"""What overflows inside a step of a network has no executed value, whatever makes it small again behind it."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch
from flint import arb

from onelayer.checker.arithmetic import ZERO, constant
from onelayer.checker.functions import Kinks
from onelayer.checker.network import read_network
from onelayer.checker.passes import NetworkPass
from onelayer.checker.steps import Evaluation
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import NetworkProgram, Step

WIDTH = 9
NORM = Step("layer_norm", (1, "gain", "shift"), (WIDTH,), 1e-5)
SMALL = Step("scale", (2,), (WIDTH,), 1e-38)
# By name: the step in the middle, its gain and its shift; sqrt(8) times the gain is no number of float32.
CASES = {
    "a gain": (NORM, 3e38, 0.0),
    "a gain below zero": (NORM, -3e38, 0.0),
    "a shift": (NORM, 1e38, 3e38),
    "a factor": (Step("scale", (1,), (WIDTH,), 1e39), 1.0, 0.0),
    "a number added": (Step("shift", (1,), (WIDTH,), 1e39), 1.0, 0.0),
    "a sum": (Step("add", (1, "gain"), (WIDTH,)), 3e38, 0.0),
    "a product": (Step("mul", (1, "gain"), (WIDTH,)), 3e38, 0.0),
    "a quotient": (Step("div", (1, "gain"), (WIDTH,)), 1e-38, 0.0),
    "a square": (Step("square", (1,), (WIDTH,)), 1.0, 0.0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tame", [False, True])
def test_what_a_small_factor_hides(name: str, tame: bool) -> None:
    step, gain, shift = CASES[name]
    wide = 1e38 if name in ("a sum", "a square") else 10.0
    first = torch.zeros(WIDTH, 1)
    first[0] = wide
    tensors = {"first": first, "gain": torch.full((WIDTH,), gain), "shift": torch.full((WIDTH,), shift)}
    point = 0.0 if tame else 1.0
    steps = (Step("affine", (0, "first"), (WIDTH,)), step, SMALL)
    program = NetworkProgram((1,), steps, {key: tuple(value.shape) for key, value in tensors.items()})
    executed = RecordedNetwork(program, tensors)(torch.tensor([[point]]))[0]
    stored = read_network(safetensors.torch.save(tensors, {"network": program.text()}), "net")
    assert stored is not None
    found = Evaluation(stored, NetworkPass("float32 execution"))([constant(arb(point), 1)], Kinks())
    finite = [bool(error.is_finite()) for error in found.errors]
    if not tame:
        assert not torch.isfinite(executed).all()
    for value, sure, item, error in zip(executed.tolist(), finite, found.items, found.errors, strict=True):
        assert not sure or abs(arb(value) - item.c[0]) <= error + ZERO
