"""What no sampled point shows of a model shows in a box that holds them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
