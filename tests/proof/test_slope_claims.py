"""Claims about slopes: derivatives are those of torch, and true at hard points; what has no slope is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from claimed_models import SQUARE, hard, jacobian, network
from torch import nn
from torch.nn import functional

import onelayer as ol
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.language import analytic
from onelayer.proof.objectives import Slopes
from onelayer.taylor import derivatives, variables
from onelayer.taylor.derivatives import SLOPES
from onelayer.taylor.dual import RULES, chained, seeded


def attended(tokens: Any) -> Any:
    return nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)[..., 0, 1]


SMOOTH = {
    "tanh": lambda x: torch.tanh(x[..., 0] * x[..., 1]),
    "quotient": lambda x: x[..., 0] / (2.5 + torch.sin(x[..., 1])),
    "powers": lambda x: (x[..., 0] + 3) ** 3 * torch.sqrt(x[..., 1] + 2) - (x[..., 1] + 2) ** -2,
    "roots": lambda x: (x[..., 0] + 2) ** 2.5 + (x[..., 1] + 2) ** 0.1,
    "attention": lambda x: nn.functional.scaled_dot_product_attention(x[:, None, :], x[:, None, :], x[:, None, :])[
        ..., 0, 0
    ],
    "exp": lambda x: torch.exp(x[..., 0]) * torch.log(x[..., 1] + 3) + torch.cosh(x[..., 1]),
    "gelu": lambda x: nn.functional.gelu(x[..., 0]) + torch.erf(x[..., 1]) * torch.sigmoid(x[..., 0]),
    "silu": lambda x: nn.functional.silu(x[..., 0]) + nn.functional.softplus(x[..., 1]) + torch.atan(x[..., 0]),
    "tan": lambda x: torch.tan(x[..., 0]) + torch.asin(x[..., 1] / 2) * torch.sinh(x[..., 0]),
    "softmax": lambda x: torch.softmax(torch.stack([x[..., 0], 3 * x[..., 1], x[..., 0] * x[..., 1]], -1), -1)[..., 1],
    "logsumexp": lambda x: torch.logsumexp(torch.stack([x[..., 0], 2 * x[..., 1]], -1), -1),
    "norm": lambda x: nn.functional.layer_norm(torch.cat([x, x[..., :1] * x[..., 1:]], -1), (3,))[..., 0],
    "bends": lambda x: torch.relu(x[..., 0]) * x[..., 1] + torch.abs(x[..., 1]) + torch.clamp(3 * x[..., 0], -1.0, 1.0),
    "choice": lambda x: torch.maximum(x[..., 0], x[..., 1]) - torch.minimum(2 * x[..., 0], x[..., 1]),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_slopes_are_those_of_torch_and_inside_their_enclosures(name: str) -> None:
    model = SMOOTH[name]
    points = hard(SQUARE, 40)[5:]  # off the corners, where some bend
    got = Slopes(model)(points)
    wanted = jacobian(model, points)[:, 0]
    assert torch.allclose(got, wanted, rtol=1e-12, atol=1e-12)
    low = points * 0.9 - 0.05
    tangents = model(seeded(variables(low, low + 0.1, 3))).tangents
    inside = low[:, None] + 0.1 * torch.rand(len(low), 20, 2, dtype=torch.float64)
    seen = jacobian(model, inside.reshape(-1, 2))[:, 0].reshape(len(low), 20, 2)
    for at, tangent in enumerate(tangents):
        a, b = tangent.range()
        assert bool((seen[:, :, at] >= a[:, None] - 1e-13).all())
        assert bool((seen[:, :, at] <= b[:, None] + 1e-13).all())


OF_TORCH = [name for name in sorted(SLOPES) if hasattr(torch, name) or hasattr(nn.functional, name)]


@pytest.mark.parametrize("name", OF_TORCH)
def test_a_wrong_derivative_would_be_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above has teeth: every slope, planted a thousandth too large, differs from torch's."""
    function = next(getattr(home, name) for home in (analytic, torch, nn.functional) if hasattr(home, name))
    points = torch.linspace(0.2, 0.8, 7, dtype=torch.float64)[:, None]

    def model(x: Any) -> Any:
        return function(x[..., 0])

    right, rule = Slopes(model)(points)[:, 0], RULES[name]
    assert torch.allclose(right, jacobian(model, points)[:, 0, 0], rtol=1e-12)
    wrong = {**SLOPES, name: lambda x, f=SLOPES[name]: 1.001 * f(x)}
    monkeypatch.setitem(RULES, name, lambda f, x, *a, **k: derivatives.chained(f, x, wrong[name]))
    assert not torch.allclose(Slopes(model)(points)[:, 0], right, rtol=1e-5)
    monkeypatch.setitem(RULES, name, rule)


def exact_slopes(model: nn.Sequential, point: list[float]) -> list[Any]:
    """d T / d x_i of a network of two linear maps around a tanh in 50 digits."""
    with mpmath.workdps(50):
        first, last = model[0], model[2]
        w, b = first.weight.tolist(), first.bias.tolist()
        z = [
            mpmath.fsum(mpmath.mpf(a) * x for a, x in zip(row, point, strict=True)) + c
            for row, c in zip(w, b, strict=True)
        ]
        bent = [1 - mpmath.tanh(v) ** 2 for v in z]
        (out,) = last.weight.tolist()
        return [mpmath.fsum(o * d * row[i] for o, d, row in zip(out, bent, w, strict=True)) for i in range(2)]


def test_a_lipschitz_constant_holds_in_fifty_digits() -> None:
    model = network(nn.Tanh())
    found = ol.lipschitz(model, SQUARE, gap=0.02)
    assert found.status == "proved"
    assert found.arithmetic == "real"
    assert found.claim == "sup sum_i |dT/dx_i|"
    steepest = max(sum(abs(s) for s in exact_slopes(model, x.tolist())) for x in hard(SQUARE))
    assert steepest <= found.upper <= 1.02 * found.lower
    assert found.witness is not None
    assert sum(abs(s) for s in exact_slopes(model, list(found.witness))) >= found.lower
    assert ol.lipschitz(model, SQUARE, 0.5 * found.lower).status == "refuted"
    assert ol.lipschitz(model, SQUARE, 1.1 * found.upper).status == "proved"


@pytest.mark.parametrize("bend", [nn.Tanh(), nn.Sigmoid()])
def test_a_saturated_network_is_not_accused(bend: nn.Module) -> None:
    """Far out a slope is tiny, and so is its enclosure: what is executed there must not cancel."""
    model = nn.Sequential(nn.Linear(1, 1), bend).double()
    with torch.no_grad():
        model[0].weight.fill_(30.0)
        model[0].bias.fill_(1.0)
    found = ol.lipschitz(model, ol.Box([-3.0], [3.0]))
    assert found.status == "proved"
    assert found.lower <= 30.0 * (0.25 if isinstance(bend, nn.Sigmoid) else 1.0) <= found.upper


def test_lipschitz_of_bends_covers_both_sides() -> None:
    found = ol.lipschitz(lambda x: torch.abs(x[..., 0]) + 2 * torch.relu(x[..., 1]), SQUARE)
    assert found.lower <= 3.0 <= found.upper


def test_the_gradient_error_of_a_built_layer() -> None:
    box = ol.Box([0.0, 0.0], [1.0, 1.0])
    layer = ol.approximate("sin(x1)*x2", box, 1e-2).model
    found = ol.gradient_error(layer, "sin(x1)*x2", box)
    points = hard(box)
    x1, x2 = points[:, 0], points[:, 1]
    truth = torch.stack([torch.cos(x1) * x2, torch.sin(x1)], -1)
    seen = float((jacobian(layer, points)[:, 0] - truth).abs().max())
    assert found.status == "proved"
    assert seen <= found.upper <= 1.06 * found.lower
    assert ol.gradient_error(layer, "sin(x1)*x2", box, found.lower / 2).status == "refuted"


def _in_place(x: Any) -> Any:
    y = x[..., 0] * -1.0
    functional.relu(y, inplace=True)
    return y


LYING: dict[str, Callable[[Any], Any]] = {
    "equality": lambda x: (x[..., 0] == x[..., 0]) * 3.0 * x[..., 0],
    "an effect in place": _in_place,
    "another batch": lambda x: x.mean(0).expand(x.shape)[..., 0],
    "a question about itself": lambda x: x[..., 0] * (3.0 if x.requires_grad else 2.0),
    "a cast": lambda x: torch.softmax(x, -1, dtype=torch.float32)[..., 0].double(),
    "a rest": lambda x: x[..., 0] % 0.3,
    "assignment": lambda x: x.__setitem__(0, x[0] * 2) or x[..., 0],
}


@pytest.mark.parametrize("name", LYING)
def test_what_is_not_followed_is_refused_in_one_line(name: str) -> None:
    """T whose slopes would be those of something else."""
    with pytest.raises(OnelayerError) as error:
        ol.lipschitz(LYING[name], ol.Box([0.5, 0.5], [1.0, 1.0]))
    assert "\n" not in str(error.value)


def test_a_scale_of_zero_and_a_threshold_are_followed() -> None:
    def uniform(x: Any) -> Any:
        q = torch.stack([x, 2 * x], -2)
        return functional.scaled_dot_product_attention(q, q, q, scale=0.0).sum((-1, -2))

    found = ol.lipschitz(uniform, ol.Box([0.5, 1.0], [1.0, 2.0]), gap=0.05)
    assert found.lower <= 6 <= found.upper <= 6.4
    beyond = ol.gradient_error(
        lambda x: functional.softplus(x[..., 0]), "log(1 + exp(x))", ol.Box([20.5], [21.0]), 1e-11, max_boxes=64
    )
    assert beyond.status != "proved"  # torch returns x there, whose slope is 1
    root = ol.lipschitz(lambda x: x[..., 0] ** 0.1, ol.Box([0.5], [0.75]), gap=0.01)
    assert root.lower <= 0.1 * 0.5**-0.9 <= root.upper
    flat = ol.lipschitz(lambda x: functional.hardtanh(2 * x[..., 0]), ol.Box([1.0], [3.0]), 1e-9)
    assert flat.status == "proved"


def test_a_wrong_rule_is_caught_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "sin", lambda function, x: chained(function, x, lambda v: 2.0 * torch.cos(v)))
    with pytest.raises(OnelayerError, match="another slope"):
        ol.lipschitz(lambda x: torch.sin(x[..., 0]), ol.Box([0.0], [1.0]))


class Masked(nn.Module):
    """nn.MultiheadAttention over two tokens, the first hidden from nobody, the second from the first."""

    def __init__(self, hidden: Any, causal: bool = False) -> None:
        super().__init__()
        self.embed, self.heads = nn.Linear(1, 4), nn.MultiheadAttention(4, 2)
        self.hidden, self.causal = hidden, causal

    def forward(self, x: Any) -> Any:
        tokens = self.embed(x[..., None]).transpose(0, 1)
        y, _ = self.heads(tokens, tokens, tokens, need_weights=False, attn_mask=self.hidden, is_causal=self.causal)
        return y.transpose(0, 1).flatten(1)


UPPER = torch.ones(2, 2).triu(1)


@pytest.mark.parametrize(
    "model",
    [
        Masked(None),
        Masked(UPPER.bool()),
        Masked(UPPER.masked_fill(UPPER > 0, -math.inf), causal=True),
        Masked(UPPER * 0.5),
    ],
    ids=["plain", "bool", "causal", "added"],
)
def test_slopes_through_attention_heads_and_masks(model: nn.Module) -> None:
    torch.manual_seed(4)
    for weight in model.parameters():
        nn.init.normal_(weight)
    model = model.double().eval()
    model.hidden = model.hidden if model.hidden is None or model.hidden.dtype == torch.bool else model.hidden.double()
    box = ol.Box([-0.05, -0.05], [0.05, 0.05])
    found = ol.lipschitz(model, box, gap=0.2)
    seen = jacobian(model, hard(box, 40)).abs().sum(-1).max().item()
    assert found.lower * (1 - 1e-9) <= seen <= found.upper


def test_slopes_of_extremes_along_an_axis() -> None:
    def extremes(x: Any) -> Any:
        return torch.amax(x * x, 1, keepdim=True) + torch.amin(torch.sin(x), 1, keepdim=True)

    found = ol.lipschitz(extremes, SQUARE, max_boxes=200)
    assert jacobian(extremes, hard(SQUARE)).abs().sum(-1).max().item() <= found.upper <= 6


def test_what_bends_has_no_second_derivative() -> None:
    for bent in (lambda x: torch.relu(x).sum(-1), lambda x: -x.abs().sum(-1), lambda x: torch.clamp(x, -1, 1).sum(-1)):
        with pytest.raises(UnsupportedOperation):
            ol.convex(bent, SQUARE)


def test_norms_of_the_jacobian_at_hard_points() -> None:
    model = network(nn.Tanh(), outputs=3)
    slopes = jacobian(model, hard(SQUARE))
    wanted = {
        "inf": slopes.abs().sum(-1).max().item(),
        1: slopes.abs().sum(-2).max().item(),
        2: slopes.square().sum((-1, -2)).sqrt().max().item(),
    }
    for norm, seen in wanted.items():
        found = ol.lipschitz(model, SQUARE, norm=norm)
        assert seen <= found.upper <= 1.2 * seen
    with pytest.raises(OnelayerError, match="norm"):
        ol.lipschitz(model, SQUARE, norm=3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.log(x[..., 0]),  # 1 / x is a number at -1, and no slope
        lambda x: x[..., 0] + torch.log(x[..., 0]) ** 0,
        lambda x: x[..., 0] + ((x[..., 0] + 1.5) ** -2) ** 0,  # at one point alone
    ],
)
def test_where_there_is_no_value_there_is_no_slope(function: Any) -> None:
    box = ol.Box([-2.0], [-1.0])
    found = (ol.lipschitz(function, box, max_boxes=8), ol.gradient_error(function, "x", box, max_boxes=8))
    assert [(one.status, one.upper) for one in found] == [("undecided", math.inf)] * 2
    verdicts = (ol.monotone(function, box, {"x1": "-"}, max_boxes=8), ol.convex(function, box, max_boxes=8))
    assert [one.status for one in verdicts] == ["undecided"] * 2


@pytest.mark.parametrize("bent", [lambda x: torch.clamp(x, 0.2, 0.8), torch.relu, functional.hardtanh])
def test_convexity_of_what_bends_is_refused_by_name(bent: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedOperation, match="second derivative of a function that bends"):
        ol.convex(lambda x: bent(x).sum(-1), SQUARE)
