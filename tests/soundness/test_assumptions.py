"""What the arithmetic assumes of torch: elementary functions within 4 ulp, in the types that execute."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[mpmath.mpf], mpmath.mpf], float, float]] = {
    "exp": (torch.exp, mpmath.exp, -700.0, 700.0),
    "expm1": (torch.expm1, mpmath.expm1, -30.0, 80.0),
    "log": (torch.log, mpmath.log, 1e-300, 1e9),
    "log1p": (torch.log1p, mpmath.log1p, -0.99, 1e6),
    "sin": (torch.sin, mpmath.sin, -1e5, 1e5),
    "cos": (torch.cos, mpmath.cos, -1e5, 1e5),
    "tan": (torch.tan, mpmath.tan, -1e4, 1e4),
    "tanh": (torch.tanh, mpmath.tanh, -25.0, 25.0),
    "cosh": (torch.cosh, mpmath.cosh, -300.0, 300.0),
    "sigmoid": (torch.sigmoid, lambda v: 1 / (1 + mpmath.exp(-v)), -80.0, 40.0),
    "asin": (torch.asin, mpmath.asin, -1.0, 1.0),
    "acos": (torch.acos, mpmath.acos, -1.0, 1.0),
    "atan": (torch.atan, mpmath.atan, -1e6, 1e6),
    "erf": (torch.erf, mpmath.erf, -6.0, 6.0),
    "sqrt": (torch.sqrt, mpmath.sqrt, 0.0, 1e12),
    "rsqrt": (torch.rsqrt, lambda v: 1 / mpmath.sqrt(v), 1e-12, 1e12),
}


def _arguments(low: float, high: float, count: int, dtype: torch.dtype) -> Tensor:
    """Uniform and logarithmic arguments of both signs."""
    rng = np.random.default_rng(11)
    wide = rng.uniform(low, high, count)
    tiny = rng.choice([-1.0, 1.0], count) * 10 ** rng.uniform(-12, 0, count) * max(abs(low), abs(high))
    both = torch.from_numpy(np.concatenate([wide, tiny[(tiny > low) & (tiny < high)]])).to(dtype)
    return both[(both.double() >= low) & (both.double() <= high)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementary_functions_are_within_four_ulp(name: str, dtype: torch.dtype, long_run: bool) -> None:
    function, reference, low, high = FUNCTIONS[name]
    if dtype == torch.float32:
        low, high = max(low, -80.0) if name != "log" else 1e-30, min(high, 80.0)
    x = _arguments(low, high, 6000 if long_run else 600, dtype)
    y = function(x)
    ulp = torch.maximum(
        torch.nextafter(y.abs(), torch.full_like(y, torch.inf)) - y.abs(), torch.tensor(torch.finfo(dtype).tiny)
    )
    with mpmath.workdps(50):
        for argument, value, unit in zip(x.tolist(), y.tolist(), ulp.tolist(), strict=True):
            assert abs(mpmath.mpf(value) - reference(mpmath.mpf(argument))) <= 4 * mpmath.mpf(unit), argument


@pytest.mark.parametrize("exponent", [-2.5, -0.7, 0.3, 1.5, 7.25, -12.0])
def test_powers_are_within_four_ulp(exponent: float) -> None:
    x = torch.from_numpy(10 ** np.random.default_rng(3).uniform(-20, 20, 400))
    with mpmath.workdps(50):
        for argument, value in zip(x.tolist(), torch.pow(x, exponent).tolist(), strict=True):
            exact = mpmath.mpf(argument) ** mpmath.mpf(exponent)
            assert abs(mpmath.mpf(value) - exact) <= 4 * mpmath.mpf(np.spacing(value))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_fused_softmax_is_within_its_allowance(dtype: torch.dtype) -> None:
    """Softmax kernels may use a coarser exp: the allowance is 64 roundings beside those of the sum."""
    generator = torch.Generator().manual_seed(1)
    for count in (2, 7, 64, 300):
        x = (torch.randn(50, count, generator=generator, dtype=torch.float64) * 5).to(dtype)
        exact = torch.softmax(x.double(), -1)
        gap = (torch.softmax(x, -1).double() - exact).abs() / exact
        distance = float((x.amax(-1, keepdim=True) - x).amax())
        assert float(gap.max()) <= (64 + 2 * count + 2 * distance) * torch.finfo(dtype).eps / 2
