"""The fused kernel for grid memory: the same averages, inside what a certificate allows, with gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onelayer.layer import grid_kernel
from onelayer.layer.attention import _grid_average, grid_average
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.taylor import variables

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
SHAPES = [((64, 64), 1), ((70, 33), 3), ((200, 130), 2), ((1, 5), 1), ((300,), 2), ((64,), 1)]


def grid(counts: tuple[int, ...], width_v: int, queries: int, device: str) -> tuple[Tensor, list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(sum(counts))
    axes = [2 * torch.randn(count, 3, generator=generator) for count in counts]
    values, query = torch.randn(*counts, width_v, generator=generator), torch.randn(queries, 3, generator=generator)
    return query.float().to(device), [axis.float().to(device) for axis in axes], values.float().to(device)


@pytest.mark.parametrize(("counts", "width_v"), SHAPES, ids=str)
def test_the_average_of_float64(counts: tuple[int, ...], width_v: int) -> None:
    query, axes, values = grid(counts, width_v, 777, "cuda")
    found = grid_kernel.fused(query, axes, values, _grid_average)
    assert found is not None, "the kernel was not used"
    exact = _grid_average(query.double(), [axis.double() for axis in axes], values.double())
    assert float((found.double() - exact).abs().max()) <= 1e-5
    for rows in (1, 127, 128, 129):  # whatever stands beside it in a batch, a query has its own bits
        assert torch.equal(grid_average(query[:rows], axes, values), found[:rows])


def test_each_weight_is_as_exact_as_a_certificate_assumes() -> None:
    """Two keys whose logits differ by d: the second one weighs e^-d / (1 + e^-d)."""
    distance = torch.linspace(0, 86, 100_001, device="cuda")
    axis = torch.tensor([[0.0], [-1.0]], device="cuda")
    value = torch.tensor([[0.0], [1.0]], device="cuda")
    weight = grid_average(distance[:, None], [axis], value)[:, 0].double()
    d = distance.double()
    exact = torch.exp(-d) / (1 + torch.exp(-d))
    allowed = exact * (torch.expm1(1.01 * 2.0**-24 * d) + 1.01 * (2 * 2 + 64) * 2.0**-24) + 4 * 2.0**-126
    assert bool(((weight - exact).abs() <= allowed).all())


def test_what_is_not_a_number_stays_so() -> None:
    query, axes, values = grid((9, 8), 1, 40, "cuda")
    query[3, 1] = torch.nan
    found = grid_average(query, axes, values)
    assert found.isnan().nonzero()[:, 0].tolist() == [3]


def test_gradients_are_those_of_the_eager_form() -> None:
    slopes = []
    for function in (grid_average, _grid_average):
        query, axes, values = grid((20, 30), 2, 500, "cuda")
        inputs = [x.requires_grad_() for x in (query, values, *axes)]
        function(query, axes, values).sin().sum().backward()
        slopes.append([x.grad for x in inputs])
    for one, other in zip(*slopes, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4)


def test_second_derivatives() -> None:
    query, axes, values = grid((6, 5), 1, 4, "cuda")
    query.requires_grad_()
    found = []
    for function in (grid_average, _grid_average):
        (first,) = torch.autograd.grad(function(query, axes, values).sum(), query, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), query)[0])
    assert torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-5)


def test_executed_values_lie_inside_the_certified_ones() -> None:
    generator = torch.Generator().manual_seed(3)
    centres = torch.linspace(-1, 1, 12, dtype=torch.float64)
    axes = [AxisKeys(a, 72 * centres, -36 * centres**2) for a in range(2)]
    head = LookupHead(axes, torch.randn(12, 12, 1, generator=generator, dtype=torch.float64))
    model = lookup_model(2, (), [head], dtype=torch.float32).cuda()
    x = (2 * torch.rand(4096, 2, generator=generator) - 1).float().cuda()
    low, high = model(variables(x.double(), x.double(), 1, execution=torch.float32)).range()
    value = model(x).double()
    assert bool(((low <= value) & (value <= high)).all())
    assert float((high - low).max()) < 1e-2  # the certificate says something
