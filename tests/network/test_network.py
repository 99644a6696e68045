"""Networks as plain data: recorded, run, saved and read back as they are; anything else in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from onelayer.errors import FileError, OnelayerError
from onelayer.network.file import load_network, network_sha256, save_network
from onelayer.network.program import NetworkProgram, Step, read_program
from onelayer.network.record import record


class Encoder(nn.Module):
    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.position = nn.Parameter(torch.randn(3, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=norm_first, activation="gelu")
        self.read = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.read(self.layer(self.embed(x[..., None]) + self.position).mean(1))


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x[..., None]).transpose(0, 1)
        hidden = torch.triu(torch.full((3, 3), float("-inf")), 1)
        y, _ = self.attention(tokens, tokens, tokens, need_weights=False, attn_mask=hidden, is_causal=True)
        return y.transpose(0, 1).flatten(1)[:, ::3]


class Mixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b, c = x.chunk(3, -1)
        parts = torch.cat([torch.maximum(a, b), torch.clamp(c, -0.5, 0.5), a / (b * b + 1)], -1)
        return torch.stack([parts.sum(-1), 2 - parts.mean(-1), nn.functional.leaky_relu(parts, 0.2)[:, 1]], -1)


class HiddenInParts(nn.Module):
    """Logits hidden by two masks, then taken apart in every way before the softmax."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.triu(torch.full((3, 3), float("-inf")), 1)
        padding = torch.tensor([[0.0, 0.0, 0.0], [float("-inf"), 0.0, 0.0], [0.0, float("-inf"), 0.0]])
        logits = x[:, :, None] * x[:, None, :] + hidden + padding
        parts = [*logits.unbind(1), *logits.chunk(3, 1), *torch.split(logits, [1, 2], 1)]
        return torch.cat([torch.softmax(part, -1).flatten(1) for part in parts], 1)


MODELS: dict[str, nn.Module] = {
    "hidden": HiddenInParts(),
    "pre": Encoder(True),
    "post": Encoder(False),
    "masked": Masked(),
    "mixed": Mixed(),
    **{
        name: nn.Sequential(nn.Linear(3, 6), act, nn.LayerNorm(6), nn.Linear(6, 2))
        for name, act in {"tanh": nn.Tanh(), "silu": nn.SiLU(), "elu": nn.ELU(), "softplus": nn.Softplus()}.items()
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_a_recorded_network_returns_what_the_module_returns(name: str, tmp_path: Path) -> None:
    model = MODELS[name].eval()
    network = record(model, (3,))
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)).to(network.dtype)
    with torch.no_grad():
        assert torch.allclose(network(x), model(x), rtol=1e-5, atol=1e-6)
    save_network(network, tmp_path)
    again = load_network(tmp_path)
    assert torch.equal(again(x), network(x))
    assert network_sha256(again) == network_sha256(network)


def test_what_has_no_steps_is_refused_by_name() -> None:
    class Sorted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sort(x, -1).values

    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if bool(x.sum() > 0) else -x

    with pytest.raises(OnelayerError, match="sort"):
        record(Sorted(), (3,))
    with pytest.raises(OnelayerError, match="cannot be recorded"):
        record(Branch(), (3,))


GOOD: dict[str, Any] = {"op": "tanh", "args": [0], "shape": [2]}


@pytest.mark.parametrize(
    "step",
    [
        {**GOOD, "op": "exec"},
        {**GOOD, "args": [1]},  # itself
        {**GOOD, "args": [2]},  # a later one
        {**GOOD, "args": [-1]},
        {**GOOD, "args": ["weight"]},
        {**GOOD, "args": []},
        {**GOOD, "args": [True]},
        {**GOOD, "shape": [3]},
        {**GOOD, "shape": [2**40, 2**40]},
        {**GOOD, "shape": [-2]},
        {**GOOD, "number": 1.0},
        {**GOOD, "code": "import os"},
        {"op": "arrange", "args": [0], "shape": [2], "places": [0, 2]},
        {"op": "arrange", "args": [0], "shape": [2], "places": [0]},
        {"op": "scale", "args": [0], "shape": [2]},
        {"op": "softmax", "args": [0], "shape": [2], "places": []},
        {"op": "matmul", "args": [0, 0], "shape": [2]},
    ],
)
def test_a_step_that_does_not_fit_is_refused_in_one_line(step: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps({"format": "onelayer network", "version": 1, "input": [2], "steps": [step]})
    with pytest.raises(FileError) as caught:
        read_program(text, {})
    assert "\n" not in str(caught.value)


def test_a_file_is_read_with_distrust(tmp_path: Path) -> None:
    text = NetworkProgram((2,), (Step("affine", (0, "w"), (1,)),), {"w": (1, 2)}).text()
    tensors = {"w": torch.ones(1, 3)}
    (tmp_path / "model.safetensors").write_bytes(safetensors.torch.save(tensors, {"network": text}))
    with pytest.raises(FileError, match="step 1"):
        load_network(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(safetensors.torch.save(tensors, {"network": "[" * 10**5}))
    with pytest.raises(FileError, match="JSON"):
        load_network(tmp_path)
