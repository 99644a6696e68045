"""The checker's layer encloses the model's real function, and its rounding bound covers executions in both formats."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import arb, ctx

from onelayer.checker.arithmetic import coordinate, monomials, whole_power
from onelayer.checker.boxes import PROVED, REFUTED, Prover
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.outcome import Rejected
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import Stored, read_model
from onelayer.errors import FileError, UnsupportedOperation
from onelayer.language.formula import parse
from onelayer.layer.file import save_model, weights_sha256
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = 128, 40
    yield
    ctx.prec, ctx.cap = before


def axis(direction: int, tokens: int) -> AxisKeys:
    """Gaussian keys on [0, 1]."""
    centres = torch.linspace(0, 1, tokens, dtype=torch.float64)
    beta = (tokens - 1) ** 2 / 1.5
    return AxisKeys(direction, 2 * beta * centres, -beta * centres**2)


def models() -> dict[str, OneLayerTransformer]:
    torch.manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64)

    heads = [LookupHead([axis(0, 9)], normal(9, 1)), LookupHead([axis(1, 7)], normal(7, 1), -2.0)]
    grid = [LookupHead([axis(0, 5), axis(1, 6), axis(2, 4)], normal(5, 6, 4, 2))]
    ridges = Ridges(normal(5, 2), normal(5), normal(5, 1))
    memory = [PlainMemory(normal(3, 4), normal(3, 4)), PlainMemory(normal(3, 4), normal(3, 4))]
    tokens = OneLayerTransformer.tokens
    return {
        "additive": lookup_model(2, (), heads),
        "grid": lookup_model(3, (2,), grid),
        "plain": lookup_model(2, (), heads).materialize(),
        "ridges": lookup_model(2, (), heads, ridges, Affine(normal(1, 2), normal(1))),
        "post-norm": tokens((2,), (), d_model=8, heads=2, hidden=12, residual=True, norm="post", positions="learned"),
        "pre-norm": tokens((2, 2), (2, 2), d_model=4, hidden=6, residual=True, norm="pre", positions="one-hot"),
        "memory": tokens((3,), (3,), d_model=8, heads=2, memory=memory, positions="sinusoidal", readout="each"),
        "last": tokens((3,), (2,), d_model=4, hidden=5, positions="learned", readout="last"),
        "ramps": tokens((2,), (2,), d_model=6, hidden=4, embedding="piecewise", ramps=3, positions="one-hot"),
    }


MODELS = models()


def unit_box(stored: Stored) -> tuple[tuple[float, ...], tuple[float, ...]]:
    dim = int(np.prod(stored.config["input_shape"]))
    return (0.0,) * dim, (1.0,) * dim


def enclosed(layer: Layer, model: OneLayerTransformer, rng: random.Random, order: int, width: float) -> list[tuple]:
    """Per random box and point: (point, ball of the real value, rounding bound) for each output."""
    dim = int(np.prod(model.config.input_shape))
    rows = []
    for _ in range(3):
        low = [rng.uniform(0, 1 - width) for _ in range(dim)]
        low = [float(np.float32(a)) for a in low]
        high = [float(np.float32(a + width)) for a in low]
        out = layer([coordinate(i, a, b, order) for i, (a, b) in enumerate(zip(low, high, strict=True))], Kinks())
        for _ in range(4):
            point = [float(np.float32(rng.uniform(a, b))) for a, b in zip(low, high, strict=True)]
            point = [min(max(x, a), b) for x, a, b in zip(point, low, high, strict=True)]
            t = [(2 * arb(x) - arb(a) - arb(b)) / (arb(b) - arb(a)) for x, a, b in zip(point, low, high, strict=True)]
            balls = []
            for item in out.items:
                total = arb(0)
                for c, exponents in zip(item.c, monomials(len(item.support), item.degree), strict=True):
                    for variable, exponent in zip(item.support, exponents, strict=True):
                        c = c * whole_power(t[variable], exponent)
                    total = total + c
                balls.append(total)
            rows.append((point, balls, out.errors))
    return rows


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_real_layer_is_enclosed(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    save_model(model, tmp_path)
    stored = read_model(tmp_path)
    assert stored.sha256 == weights_sha256(model)
    layer, rng = Layer(stored, None), random.Random(1)
    for order, width in ((2, 0.01), (4, 0.05)):
        for point, balls, errors in enclosed(layer, model, rng, order, width):
            got = model(torch.tensor(point, dtype=torch.float64).reshape(model.config.input_shape)).flatten().tolist()
            for ball, value in zip(balls, got, strict=True):
                assert ball.overlaps(arb(value, 1e-12))
                assert ball.rad() < 0.5
            assert all(error.is_zero() for error in errors)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("arithmetic", ["float64 execution", "float32 execution"])
def test_executions_stay_within_the_rounding_bound(name: str, arithmetic: str, tmp_path: Path) -> None:
    """Points of width zero: |executed - real| is at most the bound, and the bound is not absurd."""
    dtype = torch.float64 if arithmetic.startswith("float64") else torch.float32
    executed = copy.deepcopy(MODELS[name]).to(dtype)
    save_model(executed, tmp_path)
    stored = read_model(tmp_path)
    layer, rng = Layer(stored, Execution.of(arithmetic, stored, unit_box(stored))), random.Random(2)
    dim = int(np.prod(executed.config.input_shape))
    ratios = []
    for _ in range(25):
        point = [float(np.float32(rng.uniform(0, 1))) for _ in range(dim)]
        out = layer([coordinate(i, x, x, 1) for i, x in enumerate(point)], Kinks())
        got = executed(torch.tensor(point, dtype=dtype).reshape(executed.config.input_shape)).flatten().tolist()
        for item, value, error in zip(out.items, got, out.errors, strict=True):
            gap = abs(item.c[0] - arb(value))
            assert gap <= error
            ratios.append(float(error) / (1 + abs(value)))
    unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    assert max(ratios) < 1e5 * unit


def test_an_execution_is_of_weights_in_its_own_format(tmp_path: Path) -> None:
    save_model(MODELS["plain"], tmp_path)
    stored = read_model(tmp_path)
    assert Execution.of("real", stored, unit_box(stored)) is None
    with pytest.raises(Rejected, match="not stored in the format"):
        Execution.of("float32 execution", stored, unit_box(stored))


def test_unprovable_layers_are_refused_by_name(tmp_path: Path) -> None:
    save_model(OneLayerTransformer.tokens((2,), (), d_model=4, attention="hardmax"), tmp_path)
    with pytest.raises(UnsupportedOperation, match="attention hardmax"):
        Layer(read_model(tmp_path), None)


@pytest.mark.parametrize("damage", [b"", b"\x00" * 4, b"\xff" * 64, b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_broken_model_files_are_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(damage)
    with pytest.raises(FileError):
        read_model(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        read_model(tmp_path / "nowhere")


def test_what_all_logits_share_costs_nothing(tmp_path: Path) -> None:
    # Ten tokens of weight 10^-7 each, which no shift of the logits minds; their values would show in the average.
    slopes = torch.full((12,), 2.0**43, dtype=torch.float64)
    offsets = torch.tensor([0.0, 0.5, *[-16.0] * 10], dtype=torch.float64)
    values = torch.tensor([[1.0], [2.0], *[[-100.0]] * 10], dtype=torch.float64)
    model = lookup_model(1, (), [LookupHead([AxisKeys(0, slopes, offsets)], values)])
    save_model(model, tmp_path / "model.safetensors")
    layer = Layer(read_model(tmp_path / "model.safetensors"), None)
    weights = torch.softmax(offsets, 0)
    average = float(weights @ values[:, 0])
    for order in (1, 4):
        found = layer([coordinate(0, 0.25, 0.5, order)], Kinks()).items[0].range()
        assert found.overlaps(arb(average, 1e-12))
        assert found.rad() < 1e-6


def test_a_cut_that_was_right_is_made_again(tmp_path: Path) -> None:
    # One token vanishes along x2 faster than any polynomial tells; what bends is known along x1 alone.
    def numbers(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    mild = AxisKeys(0, numbers([0.0, 2.0]), numbers([0.0, 0.0]))
    steep = AxisKeys(1, numbers([0.0, 0.0, -440.0]), numbers([0.0, 0.05, -7.5]))
    values = numbers([0.0, 0.1, 400.0, 0.0, -0.1, -400.0]).reshape(2, 3, 1)
    save_model(lookup_model(2, (), [LookupHead([mild, steep], values)]), tmp_path / "model.safetensors")
    layer = Layer(read_model(tmp_path / "model.safetensors"), None)
    prover = Prover(layer, parse("0.1*x1**2 + 0*x2", 2), 0.5, 6, 200)
    assert prover((0.0, 0.0), (1.0, 1.0)).outcome == PROVED


def test_a_coordinate_along_which_a_cut_does_nothing_rests(tmp_path: Path) -> None:
    # A layer and a function of x2 alone, and a spike of the function at its end: cuts along x1 only double the boxes.
    def numbers(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    slopes = [73983.29020535964, 73982.2953452604, 73977.68020920904, 73265.43529030165, -73983.29020535964]
    starts = [-143551.65775433, -143525.65296981, -143539.98284037, -142515.91484342, 69536.8720579]
    values = [79921215600.0, -1.64251279, 1258117120.0, -3358156910.0, 2826.45344]
    keys = AxisKeys(1, numbers(slopes), numbers(starts))
    save_model(lookup_model(2, (), [LookupHead([keys], numbers(values)[:, None])]), tmp_path / "model.safetensors")
    stored = read_model(tmp_path / "model.safetensors")
    sides = (1.38, 1.44), (1.68, 2.44)
    spike = parse("x2*x2 - x2 + cos(x2) + 1/(1 + (69444444.44444445*(x2 - 1.44))**2)", 2)
    for arithmetic in ("float64 execution", "real"):
        layer = Layer(stored, Execution.of(arithmetic, stored, sides))
        for limit, outcome in ((1.84, PROVED), (0.6, REFUTED)):
            assert Prover(layer, spike, limit, 8, 60)(*sides).outcome == outcome
