"""Layers with weights of every size: what they return, in either format, lies in the checker's enclosure, and is finite
wherever the checker says that nothing overflows."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb, ctx

import onelayer as ol
from onelayer.checker.arithmetic import coordinate
from onelayer.checker.functions import Kinks
from onelayer.checker.layer import Layer
from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.layer.file import save_model
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

KINDS: dict[torch.dtype, tuple[Any, int]] = {torch.float32: (np.float32, 38), torch.float64: (np.float64, 307)}


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = 128, 40
    yield
    ctx.prec, ctx.cap = before


def number(rng: random.Random, top: int, hard: bool) -> float:
    """Zero, a power of two, an ordinary number, or one near the ends of the format or of its square root."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice([0.0, 0.0, 1.0, -1.0, 2.0, 0.5, -0.25])
    places = [rng.uniform(-top, top), rng.uniform(-top - 6, 2 - top), rng.uniform(top / 2 - 2, top / 2 + 1)]
    exponent = rng.choice([0, 0, 0, 1, -1, *(places if hard else [])])
    return rng.choice([-1, 1]) * rng.uniform(1, 10) * 10.0**exponent


def layer_of(rng: random.Random, dtype: torch.dtype) -> OneLayerTransformer:
    options: dict[str, Any] = {"hidden": rng.choice([0, 2]), "residual": rng.random() < 0.5, "dtype": dtype}
    options |= {"norm": rng.choice(["none", "pre", "post"]), "d_model": rng.choice([1, 2, 3])}

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype)

    if rng.random() < 0.6:
        kinds = [PlainMemory(zeros(3, 2), zeros(3, 2)), GridMemory([zeros(2, 2), zeros(3, 2)], zeros(2, 3, 2))]
        model = OneLayerTransformer.packed((2,), (), rng.sample(kinds, rng.randint(1, 2)), **options)
    else:
        options |= {"embedding": "piecewise", "ramps": 2} if rng.random() < 0.3 else {}
        options |= {"positions": rng.choice(["none", "learned"]), "readout": rng.choice(["mean", "first", "last"])}
        model = OneLayerTransformer.tokens((3,), (), d_k=2, d_v=2, **options)
    with torch.no_grad():
        for weight in model.state_dict().values():
            hard = rng.random() < 0.3
            values = [number(rng, KINDS[dtype][1], hard) for _ in range(weight.numel())]
            limit = float(torch.finfo(dtype).max)
            weight.copy_(torch.tensor(values, dtype=torch.float64).clamp(-limit, limit).to(dtype).reshape(weight.shape))
    return model.requires_grad_(False)


def tried(seed: int, folder: Path) -> str:
    """What the checker knows of one random layer on one random box; a value that disagrees is an AssertionError."""
    rng = random.Random(seed)
    dtype = rng.choice(list(KINDS))
    model, kind = layer_of(rng, dtype), KINDS[dtype][0]
    save_model(model, folder)
    stored = read_model(folder)
    size, width = 10.0 ** rng.choice([0, 0, 0, rng.uniform(-30, 30)]), rng.choice([0, 1e-6, 1e-2, 1])
    low = [float(kind(rng.uniform(-2, 2) * size)) for _ in range(stored.length * stored.token_width)]
    high = [float(kind(a + width * abs(a))) for a in low]
    execution = Execution.of(f"{kind.__name__} execution", stored, (tuple(low), tuple(high)))
    out = Layer(stored, execution)(
        [coordinate(i, a, b, 3) for i, (a, b) in enumerate(zip(low, high, strict=True))], Kinks()
    )
    inside = [[float(kind(rng.uniform(a, b))) for a, b in zip(low, high, strict=True)] for _ in range(6)]
    points = np.clip(np.array([low, high, *inside]), low, high).astype(kind)
    spread, error = out.items[0].range(), out.errors[0]
    assert execution is not None
    bounded = bool(spread.is_finite() and error.is_finite())
    for value in model(torch.from_numpy(points).reshape(-1, *model.config.input_shape)).double().flatten().tolist():
        assert math.isfinite(value) or not (bounded or execution.sure), seed
        assert not bounded or (arb(value) - spread).abs_lower() <= error, (seed, value, spread, error)
    return f"{'bounded' if bounded else 'unbounded'}, {'by sizes' if execution.sure else 'box by box'}"


def test_extreme_layers_return_what_is_enclosed(tmp_path: Path, long_run: bool) -> None:
    outcomes = Counter(tried(seed, tmp_path) for seed in range(4000 if long_run else 250))
    assert outcomes["bounded, by sizes"] > 100
    assert outcomes["bounded, box by box"] > 10
    assert outcomes["unbounded, box by box"] > 10


def test_the_smaller_of_two_is_taken_as_it_is(tmp_path: Path) -> None:
    """f is 0: a smaller value of 1e8 - (1e8 - 0) would be off by roundings of 1e8, far above what float32 proves."""
    box = ol.Box([0.999999], [1.000001])
    f = "min(1e8/x1, x1 - x1) * sqrt(x1) * (hypot(x1 + x1, log(1 + x1)) - sinh(x1))"
    made = ol.approximate(f, box, 1e-4, dtype=torch.float32)
    assert made.certificate.upper < 1e-30  # underflows, with room for another count of them
    assert ol.check(made.save(tmp_path / "zero")).ok
