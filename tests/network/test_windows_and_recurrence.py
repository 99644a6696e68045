"""Convolutions, poolings and recurrent layers: enclosed, recorded, saved and checked as what torch computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onelayer as ol
from onelayer import Box
from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.network.record import record
from onelayer.recording.target import as_target
from onelayer.taylor import variables

SEQUENCE = Box(torch.full((2, 6), -1.0), torch.full((2, 6), 0.5))  # channels, length
IMAGE = Box(torch.full((2, 4, 5), -1.0), torch.full((2, 4, 5), 0.5))
TIMES = Box(torch.full((4, 2), -1.0), torch.ones(4, 2))  # times, features


class Last(nn.Module):
    """A recurrent layer read at its last time, or a cell read after one step."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(x[:, -1] if "Cell" in type(self.inner).__name__ else x)
        return found[0][..., -1, :] if isinstance(found, tuple) and found[0].ndim == 3 else _first(found)


def _first(found: Any) -> Tensor:
    return found[0] if isinstance(found, tuple) else found


WINDOWED: dict[str, tuple[Callable[[], nn.Module], Box]] = {
    "conv1d": (lambda: nn.Conv1d(2, 3, 3), SEQUENCE),
    "conv1d with borders": (lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1), SEQUENCE),
    "conv1d in groups": (lambda: nn.Conv1d(2, 4, 2, groups=2, bias=False), SEQUENCE),
    "conv1d apart": (lambda: nn.Conv1d(2, 3, 2, dilation=3), SEQUENCE),
    "conv1d same": (lambda: nn.Conv1d(2, 3, 4, padding="same"), SEQUENCE),
    "conv2d": (lambda: nn.Conv2d(2, 3, (3, 2), padding=(1, 0), stride=(1, 2)), IMAGE),
    "avg_pool1d": (lambda: nn.AvgPool1d(3, stride=2, padding=1), SEQUENCE),
    "avg_pool2d": (lambda: nn.AvgPool2d(2), IMAGE),
    "max_pool1d": (lambda: nn.MaxPool1d(2, padding=1), SEQUENCE),
    "max_pool2d": (lambda: nn.MaxPool2d((2, 3), stride=1), IMAGE),
    "network": (lambda: nn.Sequential(nn.Conv1d(2, 2, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()), SEQUENCE),
}
OTHERS: dict[str, tuple[Callable[[], nn.Module], Box]] = {
    "instance_norm": (lambda: nn.InstanceNorm1d(2, affine=True), SEQUENCE),
    "softmin": (lambda: nn.Softmin(-1), SEQUENCE),
    "hardshrink": (lambda: nn.Hardshrink(0.3), SEQUENCE),
    "rnn cell": (lambda: Last(nn.RNNCell(2, 3)), TIMES),
    "rnn cell, relu": (lambda: Last(nn.RNNCell(2, 3, nonlinearity="relu")), TIMES),
    "rnn": (lambda: Last(nn.RNN(2, 3, batch_first=True)), TIMES),
    "gru": (lambda: Last(nn.GRU(2, 3, batch_first=True)), TIMES),
    "lstm": (lambda: Last(nn.LSTM(2, 3, num_layers=2, batch_first=True)), TIMES),
    "lstm without biases": (lambda: Last(nn.LSTM(2, 3, bias=False, batch_first=True)), TIMES),
}
EVERY = WINDOWED | OTHERS


def made(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Box]:
    torch.manual_seed(0)
    build, box = EVERY[name]
    return build().to(dtype).eval(), box


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_enclosures_hold_what_torch_computes(name: str, dtype: torch.dtype) -> None:
    """Boxes of every width, at their corners and inside, in the executing format."""
    model, box = made(name, dtype)
    centre = box.sample(6, seed=1)
    for half in (0.0, 1e-6, 0.05, 0.4):
        low, high = (centre + side * half * torch.ones_like(centre) for side in (-1, 1))
        low, high = low.to(dtype).double(), high.to(dtype).double()
        with torch.no_grad():
            found = model(variables(low.flatten(1), high.flatten(1), 2, execution=dtype).reshape(6, *box.shape))
        below, above = found.range()
        picks = torch.cat([box.sample(40, seed=2), box.corners(24)])
        unit = (picks - box.lower) / box.width
        points = (low[:, None] + unit * (high - low)[:, None]).to(dtype).double().clamp(low[:, None], high[:, None])
        with torch.no_grad():
            values = model(points.flatten(0, 1).to(dtype)).double().reshape(6, len(picks), *below.shape[1:])
        assert bool(((values >= below[:, None]) & (values <= above[:, None])).all())
        if half == 0.0 and name != "hardshrink":
            assert float((above - below).max()) < (1e-10 if dtype == torch.float64 else 1e-2)


@pytest.mark.parametrize("name", EVERY)
def test_the_recorded_formula_is_the_module(name: str) -> None:
    model, box = made(name, torch.float32)
    target = as_target(model, box)
    assert target.formula is not None
    x = box.sample(30)
    torch.testing.assert_close(target.formula(x), target.function(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WINDOWED)
def test_the_saved_network_is_the_module(name: str) -> None:
    model, box = made(name)
    x = box.sample(30)
    with torch.no_grad():
        torch.testing.assert_close(record(model, tuple(box.shape))(x), model(x), rtol=1e-12, atol=1e-12)


def test_a_claim_about_a_convolutional_network_is_checked(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv1d(1, 2, 3, padding=1), nn.Tanh(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(4, 1)]
    model = nn.Sequential(*layers).double()
    box = Box(torch.zeros(1, 4), torch.full((1, 4), 0.3))
    found = ol.bound(model, box)
    found.save(tmp_path / "claim")
    assert ol.check(tmp_path / "claim").ok


@pytest.mark.parametrize(
    ("model", "box"),
    [
        (nn.MaxPool1d(2, ceil_mode=True), SEQUENCE),
        (nn.AvgPool1d(2, padding=1, count_include_pad=False), SEQUENCE),
        (nn.AvgPool1d(2, ceil_mode=True), SEQUENCE),
        (Last(nn.LSTM(2, 3, batch_first=True, bidirectional=True)), TIMES),
        (Last(nn.LSTM(2, 3, batch_first=True, proj_size=2)), TIMES),
    ],
)
def test_what_is_not_covered_is_refused_by_name(model: nn.Module, box: Box) -> None:
    model = model.double().eval()
    with pytest.raises(UnsupportedOperation) as caught:
        model(variables(box.lower.flatten()[None], box.upper.flatten()[None], 2).reshape(1, *box.shape))
    assert "\n" not in str(caught.value)
    with pytest.raises(OnelayerError) as caught_too:
        as_target(model, box)
    assert "\n" not in str(caught_too.value)
