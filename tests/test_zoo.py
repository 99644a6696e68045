"""The zoo: every layer is proved, computes what its card says, and names its parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

import onelayer as ol
from onelayer.errors import OnelayerError


def _histogram(x: Tensor) -> Tensor:
    bins = {4: 3, 8: 5}[x.shape[-1]]
    centres = torch.linspace(0, 1, bins, dtype=x.dtype)
    return torch.relu(1 - (bins - 1) * (x[..., None] - centres).abs()).sum(-2)


def _franke(x: Tensor) -> Tensor:
    a, b = 9 * x[..., 0], 9 * x[..., 1]
    first = 0.75 * torch.exp(-((a - 2) ** 2 + (b - 2) ** 2) / 4) + 0.75 * torch.exp(-((a + 1) ** 2) / 49 - (b + 1) / 10)
    second = 0.5 * torch.exp(-((a - 7) ** 2 + (b - 3) ** 2) / 4) - 0.2 * torch.exp(-((a - 4) ** 2) - (b - 7) ** 2)
    return first + second


TRUTH: dict[str, Callable[[Tensor], Tensor]] = {
    "sort": lambda x: x.sort(-1).values,
    "reverse": lambda x: x.flip(-1),
    "cumulative sum": lambda x: x.cumsum(-1),
    "histogram": _histogram,
    "median": lambda x: x.median(-1).values,
    "argmax copy": lambda x: x.amax(-1),
    "previous token": lambda x: torch.cat([x[..., :1], x[..., :-1]], -1),
    "sine sum": lambda x: torch.sin(x).sum(-1),
    "Franke": _franke,
}


@pytest.mark.parametrize(("name", "size"), list(product(ol.zoo.names(), ol.zoo.SIZES)))
def test_every_layer_is_what_its_card_says(name: str, size: str) -> None:
    a = ol.zoo.load(name, size)
    assert a.certificate.proved
    if name in TRUTH:
        x = a.box.sample(500, seed=1)
        error = (a.model(x) - TRUTH[name](x)).abs().max()
        assert float(error) <= a.certificate.upper + 1e-12
    card = ol.zoo.card(name)
    assert card.algorithm in str(card)
    assert set(card.sizes) == set(ol.zoo.SIZES)
    assert card.computes in card._repr_html_().replace("&#x27;", "'")
    told = a.explain()
    assert len(told.heads) == len(a.model.config.heads)
    assert not any("add up to" in unit.purpose for unit in told.units)


def test_a_prompt_is_answered_by_the_value_behind_its_key() -> None:
    model = ol.zoo.load("induction", "large").model
    prompts = torch.tensor([[0, 3, 2, 1, 2], [0, 3, 2, 1, 0], [1, 2, 0, 0, 1]], dtype=torch.float64)
    assert torch.allclose(model(prompts), torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64), atol=1e-9)


def test_a_loaded_layer_is_the_same_every_time_and_can_be_checked(tmp_path) -> None:
    a, b = (ol.zoo.load("reverse") for _ in range(2))
    assert a.certificate.weights_sha256 == b.certificate.weights_sha256
    a.save(tmp_path / "reverse")
    assert ol.check(tmp_path / "reverse").ok


def test_unknown_names_are_one_line() -> None:
    with pytest.raises(OnelayerError, match="the zoo has no 'lion'; it has sort, reverse"):
        ol.zoo.load("lion")
    with pytest.raises(OnelayerError, match="size must be one of small, large"):
        ol.zoo.load("sort", "huge")
