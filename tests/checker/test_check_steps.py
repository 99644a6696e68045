"""Every step that a network may have, at numbers of every size: executions lie within what the checker says."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
import safetensors.torch
import torch
from flint import arb

from onelayer.checker.arithmetic import ZERO, constant
from onelayer.checker.elements import underlying
from onelayer.checker.functions import Kinks
from onelayer.checker.network import read_network
from onelayer.checker.passes import NetworkPass
from onelayer.checker.precision import precise
from onelayer.checker.steps import Evaluation
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import BINARY, OPERATIONS, UNARY, NetworkProgram, Step

WIDTH = 4
F32, F64 = torch.float32, torch.float64
# Exponents of ten: below the smallest number, around its square root, one, the root of the largest, the largest.
SIZES = {F32: (-45, -38, -20, -3, 0, 1, 2, 18.9, 37.5, 38.4), F64: (-323, -308, -150, -3, 0, 1, 3, 153.9, 307.5, 308.2)}
NUMBERS = (0.3, -2.0, 1e-46, 1e-39, 1e30, 1e38, 1e-310, 1e300)
Tensors = dict[str, torch.Tensor]
Made = Callable[[Random, Tensors], list[Step]]


def own(op: str) -> Made:
    return lambda rng, given: [Step(op, (0,), (WIDTH,))]


def two(op: str) -> Made:
    """Two of its numbers, or one and a stored one, in either order."""

    def made(rng: Random, given: Tensors) -> list[Step]:
        other = rng.choice(["first", 1])
        args = rng.choice([(0, other), (other, 0)])
        return [Step("arrange", (0,), (WIDTH,), None, (3, 1, 0, 2)), Step(op, args, (WIDTH,))]

    return made


def numbered(op: str) -> Made:
    # Torch itself refuses a slope that the format cannot hold.
    numbers = NUMBERS if op in ("scale", "shift") else NUMBERS[:-2]
    return lambda rng, given: [Step(op, (0,), (WIDTH,), rng.choice(numbers))]


def normalised(rng: Random, given: Tensors) -> list[Step]:
    return [Step("layer_norm", (0, "first", "second"), (WIDTH,), rng.choice([1e-5, 1.0, 1e-30]))]


def weighed(rng: Random, given: Tensors) -> list[Step]:
    return [Step("softmax", (0,), (WIDTH,), None, rng.choice([None, (0, 2, 3)]))]


ROWS: dict[str, Made] = {
    **{op: own(op) for op in UNARY},
    **{op: two(op) for op in BINARY},
    **{op: numbered(op) for op in ("scale", "shift", "leaky_relu", "elu")},
    "layer_norm": normalised,
    "softmax": weighed,
    "sum": lambda rng, given: [Step("sum", (0,), ())],
    "mean": lambda rng, given: [Step("mean", (0,), ())],
    "arrange": lambda rng, given: [Step("arrange", (0, "first"), (3,), None, (5, 0, 0))],
    "affine": lambda rng, given: [Step("affine", rng.choice([(0, "square"), (0, "square", "first")]), (WIDTH,))],
    "matmul": lambda rng, given: [
        Step("arrange", (0,), (1, 2, 2), None, (0, 1, 2, 3)),
        Step("arrange", (0, "first"), (1, 2, 2), None, (3, 6, 1, 4)),
        Step("matmul", (1, 2), (1, 2, 2)),
    ],
}


def test_every_step_has_a_row() -> None:
    assert set(ROWS) == OPERATIONS


def drawn(rng: Random, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers of one size, or of any; some of them zero."""
    size = rng.choice(SIZES[dtype])
    sizes = [rng.choice([size, size, rng.choice(SIZES[dtype])]) for _ in range(count)]
    numbers = [rng.choice([0.0, 1.0, -1.0, rng.uniform(-1, 1)]) * 10.0**exponent for exponent in sizes]
    return torch.tensor(numbers, dtype=F64).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("op", ROWS)
def test_executed_values_lie_within_what_is_said(op: str, dtype: torch.dtype) -> None:
    """By itself, and behind a small factor that would hide what overflows."""
    rng, known = Random(op), 0
    arithmetic = f"{dtype} execution".removeprefix("torch.")
    for _ in range(150):
        given = {"first": drawn(rng, WIDTH, dtype), "second": drawn(rng, WIDTH, dtype)}
        given["square"] = drawn(rng, WIDTH * WIDTH, dtype).reshape(WIDTH, WIDTH)
        steps = ROWS[op](rng, given)
        if rng.random() < 0.5:
            steps.append(Step("scale", (len(steps),), steps[-1].shape, rng.choice([1e-38, 1e-300, 0.0])))
        program = NetworkProgram((WIDTH,), tuple(steps), {name: tuple(value.shape) for name, value in given.items()})
        point = drawn(rng, WIDTH, dtype)
        returned = RecordedNetwork(program, given)(point[None])[0].double().flatten().tolist()
        stored = read_network(safetensors.torch.save(given, {"network": program.text()}), "net")
        assert stored is not None
        with precise():
            found = Evaluation(stored, NetworkPass(arithmetic))([constant(arb(v), 1) for v in point.tolist()], Kinks())
            for value, item, error in zip(returned, found.items, found.errors, strict=True):
                centre = underlying(item).c[0]
                if not (error.is_finite() and centre.is_finite()):
                    continue
                known += 1
                assert math.isfinite(value), (steps, point)
                assert abs(arb(value) - centre).abs_lower() <= error, (steps, point, value, centre, error)
    assert known > 50


def overflow_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NetworkPass, "safe", lambda self, error, reach: error.upper())


def roundings_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NetworkPass, "gamma", lambda self, n: ZERO)


def underflow_forgotten(patch: pytest.MonkeyPatch) -> None:
    made = NetworkPass.__init__

    def planted(self: NetworkPass, arithmetic: str) -> None:
        made(self, arithmetic)
        self.tiny = ZERO

    patch.setattr(NetworkPass, "__init__", planted)


@pytest.mark.parametrize("op", ["sum", "affine", "matmul", "layer_norm"])
@pytest.mark.parametrize("plant", [overflow_unseen, roundings_forgotten, underflow_forgotten])
def test_a_planted_fault_is_seen(plant: Callable[[pytest.MonkeyPatch], None], op: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(AssertionError):
            test_executed_values_lie_within_what_is_said(op, F32)
