"""A claim in real arithmetic is saved with what real arithmetic makes of constants, whatever the format of weights."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor, nn

import onelayer as ol
from liar.drawn_proofs import near
from liar.layers import random_layer

BOX = ol.Box([0.25], [0.75])


class Left(nn.Module):
    """x times what float32 leaves of exp(w), enlarged: 0 as executed in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.3, dtype=torch.float32))
        self.near = nn.Parameter(self.w.detach().exp())

    def forward(self, x: Tensor) -> Tensor:
        return x[..., 0] * (torch.exp(self.w) - self.near) * 2.0**22


def slope() -> float:
    left = Left()
    return abs(float(left.w.detach().double().exp()) - float(left.near.detach())) * 2.0**22


@pytest.mark.parametrize(
    "claim",
    [
        lambda: ol.lipschitz(Left(), BOX),
        lambda: ol.gradient_error(Left(), "0*x1", BOX),
        lambda: ol.certify(Left(), "0*x1", BOX, execution="real"),
    ],
)
def test_what_is_saved_is_the_real_function(claim: object, tmp_path: Path) -> None:
    assert callable(claim)
    place = claim().save(tmp_path / "claim")
    report = ol.check(place)
    assert report.ok, report
    model = ol.load_claim(place).model
    x = torch.tensor([[0.5]], dtype=model.dtype)
    assert float(model(x)) == pytest.approx(slope() / 2 * (1 if float(model(x)) > 0 else -1), rel=1e-6)


def test_constants_that_the_format_holds_stay_in_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0)).float()
    place = ol.lipschitz(network, BOX).save(tmp_path / "claim")
    assert ol.load_claim(place).model.dtype == torch.float32


def test_slopes_of_linear_attention_over_memory_are_accepted(tmp_path: Path) -> None:
    """Its moments are sums over stored tokens: constants of the pass, and no float32 numbers."""
    compared = 0
    for seed in range(400):
        rng = Random(f"moments {seed}")
        model, box = random_layer(rng, 1, torch.float32), near(rng, 1)
        if model.config.attention != "linear" or model.config.layout != "packed":
            continue
        try:
            place = ol.lipschitz(model, box, gap=0.3, max_boxes=20).save(tmp_path / str(seed))
        except ol.OnelayerError:
            continue
        report = ol.check(place)
        assert report.verdict != "rejected", (seed, report)
        compared += 1
        if compared == 12:
            break
    assert compared == 12
