"""Taylor models: convergence, support, bounds, modules; what makes them fast and tight rather than merely sound."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.taylor import basis, difference, taylor_constant, variables
from onelayer.taylor.core import TaylorModel

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": torch.exp,
    "log": lambda x: torch.log(x + 2),
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sqrt": lambda x: torch.sqrt(x + 2),
    "rsqrt": lambda x: torch.rsqrt(x + 2),
    "reciprocal": lambda x: torch.reciprocal(x + 2),
    "power": lambda x: (x + 2) ** 1.7,
    "cube": lambda x: x**3,
    "atan": torch.atan,
    "asin": torch.asin,
    "acos": torch.acos,
    "erf": torch.erf,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "silu": F.silu,
    "expm1": torch.expm1,
    "log1p": lambda x: torch.log1p(x + 1),
    "exp2": torch.exp2,
    "log2": lambda x: torch.log2(x + 2),
    "log10": lambda x: torch.log10(x + 2),
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "softmax": lambda x: torch.softmax(torch.cat([x, 2 * x, torch.sin(x)], -1), -1),
    "logsumexp": lambda x: torch.logsumexp(torch.cat([x, 2 * x], -1), -1),
    "log_softmax": lambda x: F.log_softmax(torch.cat([x, x * x], -1), -1),
    "layer_norm": lambda x: F.layer_norm(torch.cat([x, 2 * x + 1, x * x], -1), (3,)),
    "rms_norm": lambda x: F.rms_norm(torch.cat([x, 2 * x + 1], -1), (2,)),
    "elu": lambda x: F.elu(x + 1),
}


def box(center: list[float], width: float) -> tuple[Tensor, Tensor]:
    middle = torch.tensor([center], dtype=torch.float64)
    return middle - width / 2, middle + width / 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_remainders_shrink_with_the_order(name: str) -> None:
    """On a box of side h the remainder falls like h^(k+1): halving the side at order 3 gains at least 2^3.5."""
    sizes = []
    for width in (0.1, 0.05):
        x = variables(*box([0.3, -0.2], width), 3)
        result = FUNCTIONS[name](x[..., :1] + 0.5 * x[..., 1:]).plain()
        sizes.append(float(result.rem.max()))
        assert bool(torch.isfinite(result.rem).all())
    assert sizes[1] < sizes[0] / 2**3.5 or sizes[0] < 1e-14


def test_functions_of_one_coordinate_stay_univariate() -> None:
    x = variables(*box([0.3] * 6, 0.1), 4)
    assert torch.sin(x[..., 2]).support == (2,)
    assert (torch.sin(x[..., 2]) * torch.exp(x[..., 5])).support == (2, 5)
    head = torch.softmax(F.linear(x, torch.eye(7, 6, dtype=torch.float64)[:, [1, 0, 0, 0, 0, 0]] * 0), -1)
    assert head.support == ()
    assert len(torch.sin(x[..., 2]).coef) < 10


def test_difference_of_equal_functions_is_only_remainder() -> None:
    x = variables(*box([0.3, 1.2], 0.05), 6)
    f = torch.sin(x[..., 0]) * torch.exp(x[..., 1])
    assert float(difference(f, f).bound()) < 1e-10


def test_split_bound_is_nearly_tight() -> None:
    """A parabola 1 - t^2 - 0.9 t: the sum of absolute coefficients says 2.9, the maximum is 1.2025."""
    x = variables(*box([0.0], 2.0), 2)
    y = (1 - x * x - 0.9 * x)[..., 0]
    assert float(y.split_bound()) == pytest.approx(1.2025, abs=0.005)
    z = (1 - x * x)[..., 0]
    assert float(z.bound()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5])
def test_split_bound_never_exceeds_the_sum_of_coefficients(dim: int) -> None:
    generator = torch.Generator().manual_seed(dim)
    coef = torch.randn(basis.count(dim, 3), 40, generator=generator, dtype=torch.float64)
    x = variables(torch.zeros(40, dim, dtype=torch.float64), torch.ones(40, dim, dtype=torch.float64), 3)
    model = TaylorModel(coef, torch.zeros(40, dtype=torch.float64), x.space, tuple(range(dim)), 3)
    points = torch.rand(500, dim, generator=generator, dtype=torch.float64) * 2 - 1
    table = torch.as_tensor(basis.exponents(dim, 3)).double()
    values = (points[:, None] ** table).prod(-1) @ coef
    assert bool((values.abs().amax(0) <= model.split_bound()).all())
    assert bool((model.split_bound() <= coef.abs().sum(0) * (1 + 1e-8)).all())


def test_sensitivity_points_at_the_steep_variable() -> None:
    x = variables(*box([0.3, 0.1, 0.2], 0.1), 3)
    share = (torch.sin(10 * x[..., 0]) + x[..., 2]).sensitivity()
    assert share.shape == (1, 3)
    assert float(share[0, 0]) > float(share[0, 2]) > float(share[0, 1]) == 0.0


def test_polynomial_and_remainder_are_over_all_variables() -> None:
    x = variables(*box([0.3, 0.1, 0.2], 0.1), 2)
    coef, rem = torch.sin(x[..., 1]).polynomial_and_remainder()
    assert coef.shape == (10, 1)
    assert rem.shape == (1,)


def test_constants_carry_their_radius() -> None:
    x = variables(*box([0.3], 0.1), 2)
    third = taylor_constant(x, 1 / 3, 2.0**-54)
    low, high = (3 * third + 0 * x[..., 0]).range()
    assert float(low) <= 1.0 <= float(high)
    assert float(x.constant(math.pi, 1e-15).rem) > 0.9e-15


def test_large_values_of_a_lookup_head_do_not_enlarge_the_remainder() -> None:
    """Values of 1e6 with alternating signs: sums over tokens come before absolute values."""
    slopes = torch.arange(12, dtype=torch.float64)
    binomial = torch.tensor([math.comb(11, m) for m in range(12)], dtype=torch.float64)
    head = LookupHead([AxisKeys(0, slopes, binomial.log())], torch.full((12, 1), 1e6, dtype=torch.float64))
    layer = lookup_model(1, (), [head])
    lower = torch.linspace(-1, 0.9, 20, dtype=torch.float64)[:, None]
    result = layer(variables(lower, lower + 0.1, 6)) - 1e6
    assert float(result.bound().max()) < 1e-5 * 1e6


def test_relu_is_exact_where_decided_and_converges_where_not() -> None:
    x = variables(torch.tensor([[1.0], [-2.0], [-0.1]]).double(), torch.tensor([[2.0], [-1.0], [0.3]]).double(), 3)
    y = torch.relu(x[..., 0])
    assert float(y.rem[0]) == 0.0 == float(y.rem[1])
    assert float(y.bound()[1]) < 1e-300
    for width in (0.1, 0.01):
        z = torch.relu(variables(*box([0.0], width), 3)[..., 0])
        assert float(z.rem) <= width / 30


def test_wide_boxes_fall_back_to_images() -> None:
    x = variables(*box([0.0], 1e4), 3)
    for function in (torch.sin, torch.tanh, torch.sigmoid, torch.atan, torch.erf):
        assert float(function(x).bound()) <= 1.6
    weights = torch.softmax(torch.cat([100 * x, -100 * x, x * 0], -1), -1)
    low, high = weights.range()
    assert float(low.min()) >= -1e-6
    assert float(high.max()) <= 1 + 1e-6


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_stock_modules_run_unchanged(norm_first: bool, activation: str) -> None:
    """nn.TransformerEncoderLayer with nn.MultiheadAttention, nn.LayerNorm, nn.Linear and nn.Dropout inside."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, activation=activation, norm_first=norm_first, batch_first=True, dtype=torch.float64
    ).eval()
    lower = torch.rand(4, 3, 8, dtype=torch.float64)
    upper = lower.clone()
    upper[:, 0, :2] += 1e-3
    x = variables(lower[:, 0, :2], upper[:, 0, :2], 2)
    first = torch.cat([x, lower[:, 0, 2:]], -1)
    with torch.no_grad():
        result = layer(torch.cat([first[:, None], lower[:, 1:]], 1))
        low, high = result.range()
        expected = layer((lower + upper) / 2)
    assert bool(((low <= expected) & (expected <= high)).all())
    assert float((high - low).max()) < 0.05


def test_attention_masks() -> None:
    generator = torch.Generator().manual_seed(0)
    lower = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    x = variables(lower, lower + 1e-3, 2)
    additive = torch.zeros(4, 4, dtype=torch.float64).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
    for options in ({"is_causal": True}, {"attn_mask": ~torch.isneginf(additive)}, {"attn_mask": additive}):
        result = F.scaled_dot_product_attention(x, x, x, **options)
        expected = F.scaled_dot_product_attention(lower, lower, lower, **options)
        low, high = result.range()
        assert bool(((low <= expected) & (expected <= high)).all())
        assert float((high - low).max()) < 0.05


def test_a_masked_row_has_no_value() -> None:
    x = variables(*box([0.1, 0.2], 0.1), 2)
    assert not bool(
        torch.isfinite(torch.softmax(x.masked_fill(torch.tensor([True, True]), -torch.inf), -1).bound()).any()
    )


def test_executed_overflow_is_undecided() -> None:
    x = variables(*box([80.0], 1.0), 3, execution=torch.float32)
    assert bool(torch.isinf(torch.exp(x * 1.2).bound()).all())
    assert bool(torch.isfinite(torch.exp(x * 1.2 - 90.0).bound()).all())


def test_float32_weights_are_used_exactly() -> None:
    weight = torch.tensor([[0.1, 0.2]])
    x = variables(*box([1.0, 1.0], 0.0), 1)
    low, high = F.linear(x, weight).range()
    exact = float(weight[0, 0].double() + weight[0, 1].double())
    assert float(low) <= exact <= float(high)
    assert float(high - low) < 1e-15
