"""Execution mode: what torch really computes in float32 and float64 lies inside the executed enclosure."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import random_boxes, random_case
from enclosure import Tally, executed
from reference_arithmetic import ExecutedLib
from test_extremes import CASES
from torch import nn

from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.taylor import variables

TYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("chunk", range(2))
def test_random_cases(dtype: torch.dtype, chunk: int, long_run: bool) -> None:
    wanted = 60_000 if long_run else 6_000
    tally, seed = Tally(), chunk * 1_000_000 + 13
    while tally.checks < wanted:
        rng = np.random.default_rng(seed)
        dim = int(rng.integers(1, 4))
        lower, upper = random_boxes(rng, 8, dim)
        case = random_case(rng, dim)
        found = executed(case, ExecutedLib(dtype), dtype, lower, upper, int(rng.integers(1, 6)), count=24)
        assert not found.violations, f"seed {seed}: {found.violations[:3]}"
        tally += found
        seed += 1
    assert tally.checks >= wanted


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_extreme_cases(name: str, dtype: torch.dtype) -> None:
    tally = Tally()
    for seed in range(3):
        rng = np.random.default_rng([seed, *name.encode()])
        case = CASES[name](rng)
        lower = torch.from_numpy(rng.normal(size=(8, 2)))
        upper = lower + torch.from_numpy(10 ** rng.uniform(-6, 0, size=(8, 2)))
        tally += executed(case, ExecutedLib(dtype), dtype, lower, upper, 4, count=16)
    assert not tally.violations, tally.violations[:3]
    assert tally.checks > 0


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_lookup_layer(dtype: torch.dtype) -> None:
    """The layer of the package with large values, forward pass in its own type."""
    generator = torch.Generator().manual_seed(3)

    def table(*shape: int, scale: float) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * scale).double()

    axes = [AxisKeys(i, table(9, scale=8.0), table(9, scale=4.0)) for i in range(2)]
    heads = [LookupHead(axes, table(9, 9, 2, scale=50.0)), LookupHead(axes[:1], table(9, 2, scale=50.0))]
    layer = lookup_model(2, (2,), heads, dtype=dtype)

    def case(x: object, lib: object) -> object:
        return layer(x)

    lower = torch.rand(16, 2, generator=generator, dtype=torch.float64)
    tally = executed(case, None, dtype, lower, lower + 0.05, 5, count=64)
    assert not tally.violations, tally.violations[:3]
    assert tally.checks == 16 * 64 * 2 or dtype == torch.float32


@pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("norm_first", [False, True])
def test_stock_encoder_layer(dtype: torch.dtype, norm_first: bool, fused: bool) -> None:
    """nn.TransformerEncoderLayer in evaluation mode, with and without its fused kernel."""
    torch.manual_seed(5)
    layer = nn.TransformerEncoderLayer(8, 2, 16, norm_first=norm_first, batch_first=True, dtype=dtype).eval()
    embed, read = torch.randn(8, 1).to(dtype), torch.randn(1, 8).to(dtype)

    def case(x: object, lib: object) -> object:
        tensor = isinstance(x, torch.Tensor)
        inner, outer = (embed, read) if tensor else (embed.double(), read.double())
        rows = torch.nn.functional.linear(x[..., None], inner)  # type: ignore[index]
        with torch.no_grad() if fused else torch.enable_grad():
            return torch.nn.functional.linear(layer(rows), outer)[..., 0]

    lower = torch.rand(6, 3, dtype=torch.float64)
    with torch.no_grad() if fused else torch.enable_grad():
        tally = Tally()
        for width in (1e-3, 0.02):
            tally += executed(lambda x, lib: case(x, lib).detach(), None, dtype, lower, lower + width, 3, count=24)
    assert not tally.violations, tally.violations[:3]
    assert tally.checks > 500


def test_mixed_tags_keep_the_error_of_execution() -> None:
    """f on untagged variables, T on tagged ones: the difference keeps T's rounding and adds none."""
    lower = torch.zeros(1, 1, dtype=torch.float64)
    exact = variables(lower, lower + 1e-3, 3)
    run = variables(lower, lower + 1e-3, 3, execution=torch.float32)
    assert float((run * 3.0).rem) > 1e-12 > float((exact * 3.0).rem)
    assert (run * 3.0).untag().execution is None
