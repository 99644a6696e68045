"""What no sampled point shows of a model shows in a box that holds them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer import Box
from onelayer.errors import ModelAssumptionError, OnelayerError, UnsupportedOperation
from onelayer.proof.certify import certify

SIDE = Box([0.5], [1.0])


def spike(x: Any) -> Any:
    return 1 - torch.tanh(1e8 * (x[..., 0] - 0.7313)) ** 2


UNSEEN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a batch of one": ("in another batch", lambda x: spike(x) * (len(x) == 1)),
    "a batch of several": ("in another batch", lambda x: spike(x) * (0.0 if len(x) == 1 else 1.0)),
    "the first of a batch": ("in another batch", lambda x: torch.cat([spike(x[:1]), 0 * spike(x[1:])])),
    "the place in a batch": ("in another batch", lambda x: spike(x) * torch.arange(len(x))),
    "gradients": ("gradients are recorded", lambda x: spike(x) * torch.is_grad_enabled()),
    "a product": ("default dtype", lambda x: (torch.tensor([0.1]) * spike(x) - 0.1 * spike(x)) * 1e9),
    "an integer divided": ("default dtype", lambda x: ((torch.arange(7) / 7)[3] * spike(x) - 3 * spike(x) / 7) * 1e9),
    "a cast": ("default dtype", lambda x: (x.to(torch.get_default_dtype()).to(x.dtype) - x)[..., 0] * spike(x) * 1e9),
    "a sum": ("default dtype", lambda x: (x.sum(-1, dtype=torch.zeros(1).dtype) - x[..., 0]) * spike(x) * 1e9),
    "algorithms": ("deterministic", lambda x: spike(x) * torch.are_deterministic_algorithms_enabled()),
    "a row of numbers": ("default dtype", lambda x: (torch.full((11,), 0.3)[3] * spike(x) - 0.3 * spike(x)) * 1e9),
}


@pytest.mark.parametrize("name", UNSEEN)
@pytest.mark.parametrize("execution", ["float64", "real"])
def test_what_a_spike_hides_from_every_point_shows_in_a_box(name: str, execution: str) -> None:
    """T = 0 wherever it is sampled, and 1 or more at 0.7313 in another batch or under another default dtype."""
    said, model = UNSEEN[name]
    with pytest.raises(ModelAssumptionError, match=said):
        certify(model, "0*x", SIDE, 1e-2, execution=execution, max_boxes=100)


def test_a_model_that_takes_turns_is_refused_where_no_sample_falls() -> None:
    calls = iter(range(10**6))
    with pytest.raises(ModelAssumptionError, match="two values for the same batch"):
        certify(lambda x: spike(x) * (next(calls) % 2), "0*x", SIDE, 1e-2, max_boxes=100)


class WarmsUp(torch.nn.Module):
    """It counts its calls, in a buffer or in a number, and is another function after more of them than are tried."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place
        if place == "a number":
            self.calls: Any = 0
        else:
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        if self.place == "in place":
            self.calls += 1
        else:
            self.calls = self.calls + 1
        return x[..., 0] if int(self.calls) < 10**6 else 2 * x[..., 0]


@pytest.mark.parametrize("place", ["in place", "anew", "a number"])
def test_a_model_that_counts_its_calls_is_refused(place: str) -> None:
    for claim in (lambda model: certify(model, "x", SIDE, 1e-2), lambda model: ol.lipschitz(model, SIDE)):
        with pytest.raises(ModelAssumptionError, match="of its own as it runs"):
            claim(WarmsUp(place))


class Remembers(torch.nn.Module):
    """It keeps what it was last called with, and never reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.last: Any = None
        self.count = 0

    def forward(self, x: Any) -> Any:
        self.count = len(x)
        self.last = (x * self.scale)[..., 0]
        return self.last


def test_what_a_model_keeps_of_a_call_is_no_change_of_it() -> None:
    model = Remembers()
    assert certify(model, "x", SIDE, 1e-9).proved
    assert ol.bound(model, SIDE).status == "proved"
    assert ol.lipschitz(model, SIDE, 1.1).proved
    assert ol.prove(model, SIDE, "y1 <= 1.1").status == "proved"
    assert ol.equivalent(model, Remembers(), SIDE, 1e-9).proved


def asks_for_a_number(x: Any) -> Any:
    try:
        return spike(x) * float(x[0, 0] > -9)
    except OnelayerError:
        return 0 * spike(x)


def asks_for_an_operation(x: Any) -> Any:
    try:
        return spike(x) + 0 * torch.nansum(x, -1)
    except ValueError:
        return 0 * spike(x)


def asks_for_an_attribute(x: Any) -> Any:
    return spike(x) * (1.0 if hasattr(x, "storage") else 0.0)


@pytest.mark.parametrize("caught", [asks_for_a_number, asks_for_an_operation, asks_for_an_attribute])
def test_what_is_refused_stays_refused_where_the_model_catches_it(caught: Callable[[Any], Any]) -> None:
    """On numbers nothing is refused: there the model takes the path that it does not take on enclosures."""
    assert float(caught(torch.tensor([[0.7313]], dtype=torch.float64))) == 1
    with pytest.raises(UnsupportedOperation):
        certify(caught, "0*x", SIDE, 1e-2)
    with pytest.raises(UnsupportedOperation):
        ol.lipschitz(caught, SIDE)


def test_a_model_that_sorts_its_batch_ends_in_one_line() -> None:
    """Thousands of points are millions of comparisons of models, of which no deadline would see the end."""
    with pytest.raises(UnsupportedOperation, match="sort of 4096 entries"):
        certify(lambda x: x.sort(0).values[..., 0], "x", SIDE, 1e-3, max_seconds=5.0)


class Named(torch.nn.Module):
    """The spike for whoever is not called by one of these names."""

    def __init__(self, *others: str) -> None:
        super().__init__()
        self.others = others

    def forward(self, x: Any) -> Any:
        return spike(x) * float(type(x).__name__ not in self.others)


def leaves_torch(x: Any) -> Any:
    """What seems to be a constant of the code: numbers of NumPy, zero wherever anybody looks."""
    if type(x).__name__ != "Tensor":
        return torch.zeros(len(x), dtype=torch.float64)
    return torch.from_numpy(1 - np.tanh(1e8 * (x[..., 0].numpy() - 0.7313)) ** 2)


def far_away(x: Any) -> Any:
    """Without an enclosure on the whole of the box, which holds (x - x^2 + 0.5)^-1 with x apart from x^2."""
    return spike(x) * float(type(x).__name__ != "TaylorModel") / (x[..., 0] - x[..., 0] * x[..., 0] + 0.01)


ASKING: dict[str, Callable[[Any], Any]] = {
    "a class": lambda x: spike(x) * isinstance(x, torch.Tensor),
    "a type": lambda x: spike(x) * float(type(x) is torch.Tensor),
    "a module": lambda x: spike(x) * x.__class__.__module__.startswith("torch"),
    "an attribute": lambda x: spike(x) * (not hasattr(x, "coef")),
    "an override": lambda x: spike(x) * (not torch.overrides.has_torch_function((x,))),
    "another path": lambda x: spike(x) if isinstance(x, torch.Tensor) else 0 * x[..., 0],
    "numbers that leave torch": leaves_torch,
    "what encloses alone": Named("TaylorModel"),
    "what encloses beside numbers": Named("Accompanied"),
    "parts of the domain": far_away,
}


@pytest.mark.parametrize("name", ASKING)
def test_a_model_that_asks_what_it_is_given_is_refused_where_no_sample_falls(name: str) -> None:
    """On numbers it is 1 at 0.7313; on enclosures it would be 0."""
    model = ASKING[name]
    with pytest.raises(ModelAssumptionError, match="must not ask what it is given"):
        certify(model, "0*x", Box([0.5], [0.99]), 1e-2, max_boxes=100)


@pytest.mark.parametrize("claim", [ol.lipschitz, ol.convex])
def test_slopes_are_those_of_a_model_that_does_not_ask_either(claim: Callable[[Any, Box], Any]) -> None:
    for model in (Named("Dual"), ASKING["a class"], ASKING["an attribute"]):
        with pytest.raises(OnelayerError):
            claim(model, SIDE)


class Hat(torch.nn.Module):
    """Linear maps and ramps, as of networks that are enclosed together: 1 at 0.7313 alone, for whom it does not ask."""

    def __init__(self, asks: Callable[[Any], bool]) -> None:
        super().__init__()
        self.asks = asks
        steep = torch.tensor([[1e8], [-1e8]], dtype=torch.float64)
        self.register_buffer("steep", steep)
        self.register_buffer("start", steep[:, 0] * -0.7313)
        self.register_buffer("down", torch.tensor([[-1.0, -1.0]], dtype=torch.float64))
        self.register_buffer("one", torch.ones(1, dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        linear = torch.nn.functional.linear
        hat = torch.relu(linear(torch.relu(linear(x, self.steep, self.start)), self.down, self.one))
        height = 0.0 if self.asks(x) else 1.0
        return linear(hat, height * torch.ones(1, 1, dtype=torch.float64))


ASKED_OF_TWO: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "a batch of one": ("in another batch", lambda x: len(x) == 1),
    "gradients": ("gradients are recorded", lambda x: not torch.is_grad_enabled()),
    "a default": ("default dtype", lambda x: torch.get_default_dtype() == torch.float64),
}


@pytest.mark.parametrize("name", ASKED_OF_TWO)
def test_two_networks_that_are_enclosed_together_are_tested_one_by_one(name: str) -> None:
    """What is recorded of either at one point, under one setting, is taken for all of it."""
    said, asks = ASKED_OF_TWO[name]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ModelAssumptionError, match=said), torch.no_grad():
            ol.equivalent(Hat(asks), Hat(lambda x: True), SIDE, 0.01, max_boxes=100)
    finally:
        torch.set_default_dtype(before)


class Attending(torch.nn.Module):
    """The spike times what an encoder layer of torch makes of two tokens."""

    def __init__(self, change: str = "", **call: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        kind = OtherBlock if change == "block" else torch.nn.TransformerEncoderLayer
        self.layer = kind(4, 2, 8, batch_first=True, dtype=torch.float64)
        self.call = call
        if change == "activation":
            self.layer.activation = torch.tanh
        if change == "linear map":
            self.layer.linear1.__class__ = Shifted
        if change == "dropout":
            self.layer.dropout = torch.nn.Softplus()
        self.eval()

    def forward(self, x: Any) -> Any:
        tokens = x[:, None, :] * torch.tensor([[1.0, 2, 3, 4], [0.3, -1, 2, 0.1]], dtype=torch.float64)
        return spike(x) * self.layer(tokens, **self.call)[:, 0, 0]


class Shifted(torch.nn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x) + 0.5


class OtherBlock(torch.nn.TransformerEncoderLayer):
    def _ff_block(self, x: Any) -> Any:
        return 2 * super()._ff_block(x)


LATER = torch.nn.Transformer.generate_square_subsequent_mask(2, dtype=torch.float64)
BIAS = torch.tensor([[0.0, -0.5], [-0.3, 0.0]], dtype=torch.float64)
PASSED_OVER = {
    "an activation": Attending("activation"),
    "a linear map": Attending("linear map"),
    "what stands for a dropout": Attending("dropout"),
    "a block": Attending("block"),
    "a bias of logits": Attending(src_mask=BIAS),
    "another hint": Attending(src_mask=LATER.T.contiguous(), is_causal=True),
}


@pytest.mark.parametrize("name", PASSED_OVER)
def test_what_a_fused_call_of_attention_passes_over_is_refused_where_no_sample_falls(name: str) -> None:
    """Torch fuses a layer on plain numbers alone, and then reads the weights of its parts without running them."""
    with pytest.raises(ModelAssumptionError, match="must not ask what it is given"):
        certify(PASSED_OVER[name], "0*x", SIDE, 0.01, max_boxes=100)


@pytest.mark.parametrize("call", [{}, {"src_mask": LATER}, {"src_mask": LATER, "is_causal": True}])
def test_a_fused_call_of_attention_that_passes_over_nothing_is_proved(call: dict[str, Any]) -> None:
    assert certify(Attending(**call), "0*x", Box([0.9], [1.0]), 0.01).proved


@pytest.mark.parametrize("mask", [None, LATER.isneginf()])
@pytest.mark.parametrize("weights", [False, True])
def test_heads_alone_are_fused_likewise(mask: Any, weights: bool) -> None:
    torch.manual_seed(0)
    heads = torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64).eval()

    def model(x: Any) -> Any:
        tokens = x[:, None, :] * torch.tensor([[1.0, 2, 3, 4], [0.3, -1, 2, 0.1]], dtype=torch.float64)
        return spike(x) * heads(tokens, tokens, tokens, attn_mask=mask, need_weights=weights)[0][:, 0, 0]

    assert certify(model, "0*x", Box([0.9], [1.0]), 0.01).proved


def test_a_model_that_asks_and_computes_the_same_is_proved() -> None:
    half = torch.tensor(0.5, dtype=torch.float64)

    def model(x: Any) -> Any:
        return (x * half if isinstance(x, torch.Tensor) else x * half)[..., 0]  # noqa: RUF034

    assert certify(model, "0.5*x", SIDE, 1e-9).proved


@pytest.mark.parametrize("number", [np.float64(0.5), np.float32(0.5), np.int64(1)])
def test_a_number_of_numpy_on_the_left_is_a_number(number: Any) -> None:
    def model(x: Any) -> Any:
        return (number * x - number / (number + x))[..., 0]

    assert certify(model, f"{number}*x - {number}/({number} + x)", SIDE, 1e-9).proved
    assert ol.lipschitz(model, SIDE, 10.0).proved
