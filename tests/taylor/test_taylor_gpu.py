"""Taylor models on an accelerator: the same enclosures, and the values it computes lie inside them."""

from __future__ import annotations

from typing import Any

import mpmath
import pytest
import torch
import torch.nn.functional as F

from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.taylor import difference, variables

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def functions(x: Any) -> Any:
    u, v = x[..., 0], x[..., 1]
    head = torch.softmax(F.linear(x, torch.arange(10.0, dtype=x.dtype, device=x.device).reshape(5, 2)), -1)
    parts = [
        torch.sin(u) * torch.exp(v),
        torch.log(u + 2) / (v + 3),
        torch.relu(u - v),
        torch.tanh(u * v),
        torch.erf(u),
    ]
    return torch.cat([head, torch.stack(parts, -1), torch.sort(x, -1).values, F.layer_norm(head, (5,))], -1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_executed_values_lie_inside(dtype: torch.dtype) -> None:
    lower = torch.rand(256, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cuda()
    upper = lower + 0.05
    low, high = functions(variables(lower, upper, 4, execution=dtype)).range()
    for t in torch.linspace(0, 1, 17, dtype=torch.float64).tolist():
        x = (lower + t * (upper - lower)).to(dtype)
        inside = ((x.double() >= lower) & (x.double() <= upper)).all(-1)
        value = functions(x).double()
        assert bool(((low <= value) & (value <= high))[inside].all())


def test_same_enclosures_as_on_the_cpu() -> None:
    lower = torch.rand(64, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    here = functions(variables(lower, lower + 0.1, 4)).plain()
    there = functions(variables(lower.cuda(), lower.cuda() + 0.1, 4)).plain()
    gap = difference(here, here.with_(there.coef.cpu(), there.rem.cpu()))
    assert bool((gap.bound() <= 2.001 * here.rem + 2.001 * there.rem.cpu() + 1e-12).all())
    assert torch.allclose(here.split_bound(), there.split_bound().cpu(), rtol=1e-9)


@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos", "tan", "tanh", "sigmoid", "atan", "erf", "sqrt", "rsqrt"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_elementary_functions_are_within_four_ulp(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(0.01, 9, 400, dtype=torch.float64).to(dtype).cuda()
    y = getattr(torch, name)(x)
    ulp = torch.nextafter(y.abs(), torch.full_like(y, torch.inf)) - y.abs()
    exact = {"sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)), "rsqrt": lambda v: 1 / mpmath.sqrt(v)}
    reference = exact.get(name) or getattr(mpmath, name)
    with mpmath.workdps(50):
        for argument, value, unit in zip(x.tolist(), y.tolist(), ulp.tolist(), strict=True):
            assert abs(mpmath.mpf(value) - reference(mpmath.mpf(argument))) <= 4 * mpmath.mpf(unit)


def test_a_layer_of_the_package() -> None:
    generator = torch.Generator().manual_seed(3)
    axes = [AxisKeys(i, torch.randn(9, generator=generator).double(), torch.zeros(9).double()) for i in range(2)]
    layer = lookup_model(2, (), [LookupHead(axes, torch.randn(9, 9, 1, generator=generator).double())]).cuda()
    lower = torch.rand(32, 2, generator=generator, dtype=torch.float64).cuda()
    low, high = layer(variables(lower, lower + 0.1, 6, execution=torch.float64)).range()
    value = layer(lower + 0.03)
    assert bool(((low <= value) & (value <= high)).all())
