"""Layers of torch.nn in evaluation mode, as the model and as the function: both sides know what they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import onelayer as ol
from onelayer import Box
from onelayer.errors import OnelayerError

BOX = Box([0.0, 0.0], [1.0, 1.0])
INNER: dict[str, Any] = {
    "BatchNorm": lambda: nn.BatchNorm1d(4),
    "Mish": nn.Mish,
    "SELU": nn.SELU,
    "PReLU": lambda: nn.PReLU(4),
    "Hardswish": nn.Hardswish,
    "ELU": lambda: nn.ELU(0.7),
    "GroupNorm": lambda: nn.GroupNorm(2, 4),
    "RMSNorm": lambda: nn.RMSNorm(4),
    "CELU": nn.CELU,
    "Softsign": nn.Softsign,
    "GLU": lambda: nn.Sequential(nn.Linear(4, 8), nn.GLU(-1)),
}


class Cell(nn.Module):
    """The first number of the state of a cell that starts at zero."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell = kind(2, 3)

    def forward(self, x: Any) -> Any:
        state = self.cell(x)
        return (state[0] if isinstance(state, tuple) else state)[..., :1]


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name in ("LSTMCell", "GRUCell"):
        return Cell(getattr(nn, name)).double().eval()
    net = nn.Sequential(nn.Linear(2, 4), INNER[name](), nn.Linear(4, 1)).double()
    net(torch.rand(50, 2, dtype=torch.float64))  # running statistics of their own
    return net.eval()


@pytest.mark.parametrize("name", [*INNER, "LSTMCell", "GRUCell"])
def test_a_module_equals_itself(name: str) -> None:
    """T - f for T = f is rounding alone: enclosed as a model, recorded as a function, both must be the same."""
    net = network(name)
    found = ol.certify(net, net, BOX, 1e-2, max_boxes=4000)
    assert found.proved
    assert found.lower < 1e-12
    wrong = ol.certify(lambda x: net(x) + 0.05, net, BOX, 1e-2, max_boxes=4000)
    assert wrong.status == "refuted"


def test_a_normalisation_that_mixes_the_batch_is_refused() -> None:
    class Mixing(nn.Module):
        def forward(self, x: Any) -> Any:
            return nn.functional.batch_norm(x, None, None, training=True)[..., 0]

    for sides in ((Mixing(), "x1"), (lambda x: x[..., 0], Mixing())):
        with pytest.raises(OnelayerError, match=r"batch"):
            ol.certify(*sides, BOX, 1.0)
