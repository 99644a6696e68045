"""The same layer on an accelerator: same numbers, gradients, compiled and batched; grids in bounded memory."""

from __future__ import annotations

import pytest
import torch

from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def models(dtype: torch.dtype) -> list[OneLayerTransformer]:
    generator = torch.Generator().manual_seed(0)
    axes = [torch.randn(count, 4, generator=generator, dtype=dtype) for count in (6, 5, 4)]
    grid = GridMemory(axes, torch.randn(6, 5, 4, 2, generator=generator, dtype=dtype))
    packed = OneLayerTransformer.packed((3,), (2,), [grid, grid], hidden=8, residual=True, dtype=dtype)
    tokens = {"d_model": 6, "hidden": 8, "residual": True, "norm": "pre", "positions": "sinusoidal", "dtype": dtype}
    beside = OneLayerTransformer.tokens((5, 3), (5, 2), heads=2, d_k=4, d_v=2, memory=[grid, None], **tokens)  # type: ignore[arg-type]
    kinds = [{"attention": "topk", "top_k": 2}, {"attention": "hardmax"}, {"attention": "linear"}]
    others = [OneLayerTransformer.tokens((5, 3), (), heads=3, **tokens, **kind) for kind in kinds]  # type: ignore[arg-type]
    return [packed, packed.materialize(), beside, *others]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_equals_cpu(dtype: torch.dtype, tolerance: float) -> None:
    for model in models(dtype):
        x = torch.rand(9, *model.config.input_shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
        right = model(x.requires_grad_())
        gradient = torch.autograd.grad(right.sum(), x)[0]
        moved, there = model.cuda(), x.detach().cuda().requires_grad_()
        found = moved(there)
        assert found.is_cuda
        assert (found.cpu() - right).abs().max() < tolerance * (1 + right.abs().max())
        found_gradient = torch.autograd.grad(found.sum(), there)[0].cpu()
        assert (found_gradient - gradient).abs().max() < tolerance * (1 + gradient.abs().max())
        assert torch.allclose(torch.vmap(moved)(there), found, rtol=0, atol=tolerance)
        assert moved.materialize().device == found.device


@pytest.mark.filterwarnings("ignore")
def test_compiles_with_the_default_backend() -> None:
    for model in models(torch.float64)[:3]:
        moved = model.cuda()
        x = torch.rand(9, *model.config.input_shape, dtype=torch.float64, device="cuda")
        assert torch.allclose(torch.compile(moved, fullgraph=True)(x), moved(x), rtol=0, atol=1e-12)


def test_memory_stays_bounded() -> None:
    """10^5 queries x 10^6 tokens: 800 GB of weights, were they formed."""
    axes = [torch.randn(100, 4, dtype=torch.float64) for _ in range(3)]
    grid = GridMemory(axes, torch.randn(100, 100, 100, 1, dtype=torch.float64))
    model = OneLayerTransformer.packed((3,), (), [grid]).requires_grad_(False).cuda()
    x = torch.rand(10**5, 3, dtype=torch.float64, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    assert model(x).shape == (10**5,)
    assert torch.cuda.max_memory_allocated() < 6 * 2**30
