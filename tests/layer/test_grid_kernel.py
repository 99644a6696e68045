"""Where there is no GPU, or what is averaged is no tensor, grid memory is evaluated by eager code."""

from __future__ import annotations

import torch

from onelayer.layer import grid_kernel
from onelayer.layer.attention import _grid_average, grid_average
from onelayer.taylor import variables


def test_on_the_cpu_the_eager_form_is_taken() -> None:
    generator = torch.Generator().manual_seed(0)
    query, values = torch.randn(7, 3, generator=generator), torch.randn(5, 4, 2, generator=generator)
    axes = [torch.randn(count, 3, generator=generator) for count in (5, 4)]
    assert grid_kernel.fused(query, axes, values, _grid_average) is None
    assert torch.equal(grid_average(query, axes, values), _grid_average(query, axes, values))


def test_enclosures_are_never_given_to_the_kernel() -> None:
    low = torch.zeros(2, 3, dtype=torch.float64)
    x = variables(low, low + 1, 2)
    assert not grid_kernel._applies(x, [low], low)  # type: ignore[arg-type]
