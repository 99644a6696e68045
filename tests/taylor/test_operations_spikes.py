"""Functions that are wrong at one point only, where no sample falls: T = S (g - k) with S(c) = 1 and S = 0 elsewhere.

An enclosure of g that misses its value at c makes T vanish on paper.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from onelayer import Box
from onelayer.errors import OnelayerError
from onelayer.language.formula import parse
from onelayer.proof.certify import certify
from onelayer.taylor import variables
from onelayer.taylor.arithmetic import scale
from onelayer.taylor.compose import within_image
from onelayer.taylor.hull import evaluate_hulled

C = float(torch.tensor(0.7313))
BOX = Box([0.5], [1.0])
PLACE = torch.tensor([True, False])
SWAPPED = torch.tensor([[False, True], [False, True]])


def spike(x: Any) -> Any:
    return 1 - torch.tanh(1e8 * (x[..., 0] - C)) ** 2


def one(x: Any) -> Any:
    return 1 + 0 * x[..., 0]


def pair(x: Any, factor: float) -> Any:
    return torch.stack([factor * x[..., 0], -factor * x[..., 0]], -1)


def attention(x: Any, **options: Any) -> Any:
    """Tokens 1 and 0 that attend to each other alike: the first returns the mean of what it may see."""
    tokens = torch.stack([one(x), 0 * x[..., 0]], 0)[..., None]
    weight = torch.tensor([[0.0], [0.0], [1.0]], dtype=x.dtype)
    out = F.multi_head_attention_forward(
        tokens, tokens, tokens, 1, 1, weight, torch.zeros(3, dtype=x.dtype), None, None, False, 0.0,
        torch.ones(1, 1, dtype=x.dtype), torch.zeros(1, dtype=x.dtype), training=False, need_weights=False, **options,
    )  # fmt: skip
    return out[0][0, :, 0]


def undefined_at_c(x: Any) -> Any:
    """log d(x) with d < 0 within 1e-9 of c alone."""
    d = (x[..., 0] - C) ** 2 - 1e-18
    return torch.log(torch.stack([d, d + 1], -1))


def constant_softmax(x: Any) -> Any:
    return (torch.softmax(0 * pair(x, 1.0), -1) * pair(spike(x)[..., None], 1.0)).abs().sum(-1)


def hinted(x: Any) -> Any:
    return attention(x, attn_mask=torch.zeros(2, 2, dtype=x.dtype), is_causal=True) - 0.5


def bias_first(x: Any) -> Any:
    """1 and 4096 times 2^-26: added to 1 one by one in float32, none of them is seen."""
    small = one(x)[..., None].expand(*x.shape[:-1], 4096) * 2.0**-26
    ones = torch.ones(4096, dtype=x.dtype)
    return (F.linear(small, ones[None], ones[:1])[..., 0] - 1 - 2.0**-14) * 1e6


def another_order(x: Any) -> Any:
    """1e-22 times 1e-22 is no float32, whatever it is multiplied by."""
    return (torch.stack([one(x) * v for v in (1e-22, 1e-22, 1e22, 1e12)], -1).prod(-1) - 1e-10) * 1e11


CASES: dict[str, tuple[torch.dtype, Callable[[Any], Any]]] = {
    "layer norm overflows": (torch.float32, lambda x: F.layer_norm(pair(x, 1e20), (2,))[..., 0] - 1),
    "layer norm overflows in float64": (torch.float64, lambda x: F.layer_norm(pair(x, 1e160), (2,))[..., 0] - 1),
    "rms norm overflows": (torch.float32, lambda x: F.rms_norm(pair(x, 1e20), (2,))[..., 0] - 1),
    "layer norm underflows": (torch.float32, lambda x: F.layer_norm(pair(x, 1e-30), (2,), eps=0.0)[..., 0] - 1),
    "rms norm underflows": (torch.float32, lambda x: F.rms_norm(pair(x, 1e-30), (2,), eps=0.0)[..., 0] - 1),
    "layer norm of nothing": (torch.float64, lambda x: 1 + F.layer_norm(undefined_at_c(x), (2,))[..., 0]),
    "rms norm of nothing": (torch.float64, lambda x: 1 + F.rms_norm(undefined_at_c(x), (2,))[..., 0]),
    "norm of nothing": (torch.float64, lambda x: 1 + torch.tanh(undefined_at_c(x).norm(dim=-1))),
    "softmax of nothing": (torch.float64, lambda x: 1 + torch.softmax(undefined_at_c(x), -1)[..., 0]),
    "power zero of nothing": (torch.float64, lambda x: undefined_at_c(x)[..., 0] ** 0),
    "sign of nothing": (torch.float64, lambda x: 1 + torch.sign(undefined_at_c(x)[..., 0])),
    "where by nothing": (torch.float64, lambda x: torch.where(undefined_at_c(x)[..., 0] > 0, one(x), one(x))),
    "a softmax of constant logits": (torch.float64, constant_softmax),
    "a filled value": (torch.float32, lambda x: pair(x, 1.0).masked_fill(PLACE, 16777217.0)[..., 0] - 16777216.0 - 1),
    "a full tensor": (torch.float32, lambda x: torch.full_like(x[..., 0], 16777217.0) * 3 - 50331651.0),
    "a subnormal constant": (torch.float32, lambda x: one(x) * 1e30 * 1e-44 * 1e14 - 1),
    "a base": (torch.float32, lambda x: (1.1 ** (800 + 0 * x[..., 0]) * 1e-33 - 1.1**800 * 1e-33) * 1e4),
    "an exponent": (torch.float32, lambda x: ((1e9 + 0 * x[..., 0]) ** 1.7 * 1e-15 - 1.9952623149688795) * 1e5),
    "softplus beyond its threshold": (torch.float32, lambda x: F.softplus(100 + 0 * x[..., 0], threshold=1000.0) - 100),
    "softplus above its threshold": (torch.float64, lambda x: F.softplus(one(x), threshold=0.5) - 1.3132616875182228),
    "attention forbidden": (torch.float64, lambda x: attention(x, attn_mask=SWAPPED)),
    "attention hinted": (torch.float64, hinted),
    "a bias first": (torch.float32, bias_first),
    "a product in another order": (torch.float32, another_order),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_nothing_hides_under_a_spike(name: str) -> None:
    """Neither the sampled bound nor the proved one may say less than what is executed at c."""
    execution, g = CASES[name]

    def model(x: Any) -> Any:
        return spike(x) * g(x)

    value = abs(float(model(torch.tensor([[C]], dtype=execution))))
    for width in (0.0, 2.0**-30, 2.0**-20, 0.2):
        lower = torch.tensor([[C - width]], dtype=torch.float64)
        bound = float(model(variables(lower, lower + 2 * width, 3, execution)).bound())
        assert not bound < value, width
        if value != value:
            assert not bound < float("inf"), width


@pytest.mark.parametrize("name", ["layer norm overflows", "attention forbidden", "a filled value", "a base"])
def test_no_certificate_says_that_it_vanishes(name: str) -> None:
    execution, g = CASES[name]
    found = certify(lambda x: spike(x) * g(x), "0*x", BOX, 1e-2, execution=execution, max_boxes=400)
    assert not found.proved


@pytest.mark.parametrize(
    ("cell", "gates", "together"),
    [(torch.rnn_relu_cell, 1, 1), (torch.rnn_tanh_cell, 1, 1), (torch.lstm_cell, 4, 4), (torch.gru_cell, 3, 2)],
)
def test_a_cell_may_sum_the_maps_of_input_and_state_at_once(cell: Any, gates: int, together: int) -> None:
    """1 of the state, and 4096 times 2^-26 of the input: added to 1 one by one in float32, none of them is seen."""
    seen = torch.ones(gates, 4096)
    unseen = seen.clone()
    unseen[:together] = 0.0

    def run(x: Any, of_input: torch.Tensor) -> Any:
        state = one(x)[..., None]
        given = (state, state) if cell is torch.lstm_cell else state
        found = cell(state.expand(-1, 4096) * 2.0**-26, given, of_input, torch.ones(gates, 1))
        return found[0] if cell is torch.lstm_cell else found

    point = torch.tensor([[C]], dtype=torch.float64)
    low, high = run(variables(point, point, 1, torch.float32), seen).range()
    for of_input in (seen, unseen):
        assert float(low) <= float(run(point.float(), of_input)) <= float(high)


def test_a_number_over_what_has_no_inverse_is_no_quotient() -> None:
    """torch writes k / x as k (1 / x), which is inf where 1 / x is: at 1e-39 in float32, whatever k is."""

    def model(x: Any) -> Any:
        return spike(x) * ((1e-40 / x[..., 1]).clamp(1000, 1001) - 1000)

    box = Box([0.5, 1e-39], [1.0, 2e-39])
    assert float(model(torch.tensor([[C, 1.5e-39]]))) == 1
    assert not certify(model, "0*x1", box, 0.5, execution="float32", max_boxes=100).proved
    # A tensor is divided as it stands.
    small = torch.tensor(1e-36)
    assert certify(lambda x: small / x[..., 1], "1e-36/x2", Box([0, 1e-38], [1, 2e-38]), 1, execution="float32").proved


def test_a_product_with_a_constant_softmax_keeps_every_coefficient() -> None:
    lower = -torch.ones(1, 2, dtype=torch.float64)
    x = variables(lower, -lower, 3)
    low, high = (torch.softmax(0 * x, -1) * x).sum(-1).range()
    assert float(low) <= -1 < 1 <= float(high)
    with pytest.raises(TypeError, match="varies"):
        scale(x, x)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("(exp(-500*x)*exp(-500*x))*exp(700*x)*exp(300*x)*exp(-(1e8*(x-0.95371))**2)", 0.9, 1.0),
        ("sqrt(-(x*x))", 1e-200, 2e-200),
        ("(x*x)*1e200*1e200", 1e-200, 2e-200),
    ],
)
def test_products_that_underflow_are_not_zero(text: str, low: float, high: float) -> None:
    ends = [torch.tensor([[end]], dtype=torch.float64) for end in (low, high)]
    found = evaluate_hulled(parse(text, 1), variables(*ends, 2), *ends)
    assert not float(found.bound()) < 1
    with suppress(OnelayerError):  # it may be refused before it comes to a proof
        assert not certify(lambda x: 0 * x[..., 0], text, Box([low], [high]), 1e-3, max_boxes=300).proved


def test_an_image_defines_nothing() -> None:
    x = variables(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64), 2)
    lost = x.with_(x.coef, torch.tensor([torch.inf, torch.nan], dtype=torch.float64))
    zero = torch.zeros(2, dtype=torch.float64)
    assert not bool(within_image(lost, zero, zero + 1, lost.decided()).decided().any())
    assert bool(within_image(lost, zero, zero + 1, x.decided()).decided().all())


@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: x[..., 0] - x.mean(0)[..., 0],
        lambda x: torch.softmax(x, 0)[..., 0],
        lambda x: x[..., 0] + 0 * x[0, 0],
        lambda x: x.sort(0).values[..., 0],
        lambda x: x[..., 0] * 0 + x.roll(1)[..., 0],
    ],
)
def test_what_one_box_lacks_reaches_whoever_reads_it(mixing: Callable[[Any], Any]) -> None:
    """A box without a value beside others shows which of them depend on it."""
    lower = torch.tensor([[torch.nan], [0.1], [0.2]], dtype=torch.float64)
    assert not bool(mixing(variables(lower, lower + 0.1, 2)).decided().all())
    alone = nn.Sequential(nn.Linear(1, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 1)).double().requires_grad_(False)
    assert alone(variables(lower, lower + 0.1, 2)).decided().flatten().tolist() == [False, True, True]
