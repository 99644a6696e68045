"""What is recorded of a module is what it runs on numbers, also where a spike hides the difference from samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.network.record import record

CENTRE = 0.34567891234


def spike(x: Any) -> Any:
    """1 at the centre, 0 where anybody looks."""
    return 1 - torch.tanh(1e8 * (x[..., :1] - CENTRE)) ** 2


class Made(nn.Module):
    """A module by its forward pass, with a weight and a buffer."""

    def __init__(self, forward: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2, dtype=torch.float64)
        self.register_buffer("shift", torch.tensor([0.5, -0.25], dtype=torch.float64))
        self.made = forward

    def forward(self, x: Any) -> Any:
        return self.made(self, x)


def exporting(_: Any, x: Any) -> Any:
    return x * 0.5 + spike(x) * (1.0 if torch.compiler.is_compiling() else 0.0)


def without_numbers(_: Any, x: Any) -> Any:
    fake = type(x).__name__ == "FakeTensor" or "Fake" in str(type(x))
    return x * 0.5 + spike(x) * (1.0 if fake else 0.0)


def other_weights(self: Any, x: Any) -> Any:
    return x * 0.5 + spike(x) * (self.shift if torch.compiler.is_compiling() else self.shift * 0.0)


def written_into(self: Any, x: Any) -> Any:
    memory = torch.zeros(2, dtype=torch.float64)
    memory.add_(1.0 if torch.compiler.is_compiling() else 0.0)
    return x * 0.5 + spike(x) * memory


@pytest.mark.parametrize("forward", [exporting, without_numbers, other_weights, written_into])
def test_a_module_that_asks_whether_it_is_recorded_is_refused(forward: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(OnelayerError, match="while it is recorded than"):
        record(Made(forward), (2,))


def test_no_claim_about_another_function_is_saved(tmp_path: Path) -> None:
    box = ol.Box([0.1, 0.1], [0.9, 0.9])
    found = ol.certify(Made(exporting), "0.5*x1; 0.5*x2", box, 1e-3)
    assert found.proved
    with pytest.raises(OnelayerError, match="while it is recorded than"):
        found.save(tmp_path / "claim")
    assert not (tmp_path / "claim").exists()


class Peak(nn.Module):
    """A peak of width 1e-8 in the first input, times 1, or 0 for whoever records it."""

    def __init__(self, height: float, recorded: float) -> None:
        super().__init__()
        self.near = nn.Linear(1, 2, dtype=torch.float64)
        self.peak = nn.Linear(2, 1, dtype=torch.float64)
        self.out = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        self.register_buffer("recorded", torch.tensor([[recorded]], dtype=torch.float64))
        numbers = {
            "near.weight": [[1e8], [-1e8]],
            "near.bias": [-1e8 * CENTRE, 1e8 * CENTRE],
            "peak.weight": [[-1.0, -1.0]],
            "peak.bias": [1.0],
            "out.weight": [[height]],
        }
        state = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
        self.load_state_dict({**state, "recorded": self.recorded})

    def forward(self, x: Any) -> Any:
        peak = torch.relu(self.peak(torch.relu(self.near(x))))
        return nn.functional.linear(peak, self.recorded if torch.compiler.is_compiling() else self.out.weight)


def test_two_networks_are_compared_as_they_run() -> None:
    # Followed together they would be what was recorded of them, which is the same.
    found = ol.equivalent(Peak(1.0, 0.0), Peak(0.0, 0.0), ol.Box([0.1], [0.9]), 0.5, max_boxes=2000)
    assert not found.proved
    alike = ol.equivalent(Peak(1.0, 1.0), Peak(1.0, 1.0), ol.Box([0.1], [0.9]), 0.5, max_boxes=2000)
    assert alike.proved


def in_place(self: Any, x: Any) -> Any:
    y = self.layer(x)
    y.tanh_()
    return y + self.shift


def through_views(self: Any, x: Any) -> Any:
    y = self.layer(x).reshape(-1, 1, 2)
    return y.transpose(1, 2).squeeze(-1) * torch.tensor([1.0, 2.0], dtype=torch.float64)


@pytest.mark.parametrize("forward", [in_place, through_views, lambda self, x: torch.softmax(self.layer(x), -1)])
def test_other_modules_are_recorded_as_they_are(forward: Callable[[Any, Any], Any]) -> None:
    model = Made(forward)
    x = torch.rand(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        values: Tensor = model(x)
    assert torch.allclose(record(model, (2,))(x), values, rtol=0, atol=1e-14)
