"""A function inside one nn.TransformerEncoderLayer. This file needs torch, and safetensors to load; nothing else.

layer = load("folder")      # the folder holds model.safetensors, config.json and a copy of this file
layer(x)                    # (..., *input_shape) -> (..., *output_shape)
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn


class StockLayer(nn.Module):
    """x (..., *input_shape) -> (..., *output_shape) through one nn.TransformerEncoderLayer.

    The sequence is ``length`` tokens that carry the input, followed by ``memory`` tokens that hold the function; all
    attend to all, and weights alone decide who is heard. Numbers are embedded linearly, or through ``ramps`` clipped to
    [0, 1] as relu(t) - relu(t - 1). ``readout`` is "each", "mean", "first" or "last" token. Outside ``domain``, flat
    lower and upper corner, ``guard`` "warn" computes and warns, "raise" raises ValueError, "clamp" moves the point in.
    """

    def __init__(
        self,
        input_shape: list[int],
        output_shape: list[int],
        length: int,
        memory: int,
        width: int,
        heads: int,
        hidden: int,
        norm_first: bool,
        readout: str = "first",
        ramps: int = 0,
        layer_norm_eps: float = 1e-5,
        guard: str | None = None,
        domain: list[list[float]] | None = None,
    ) -> None:
        super().__init__()
        # All of them, so that config.json can build the same layer again.
        self.arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self.input_shape = tuple(input_shape)
        self.output_shape = tuple(output_shape)
        self.length = length
        self.readout = readout
        self.guard = guard
        self.domain = domain
        self.numbers = math.prod(self.input_shape) // length
        outputs = math.prod(self.output_shape) // (length if readout == "each" else 1)
        if ramps:
            clipped = 2 * self.numbers * ramps
            ramp = nn.Linear(self.numbers, clipped)
            into: nn.Module = nn.Sequential(ramp, nn.ReLU(), nn.Linear(clipped, width, bias=False))
        else:
            into = nn.Linear(self.numbers, width, bias=False)
        self.embed = into
        self.start = nn.Embedding(length, width)
        self.memory = nn.Embedding(memory, width)
        self.layer = nn.TransformerEncoderLayer(
            width,
            heads,
            dim_feedforward=hidden,
            dropout=0.0,
            activation="relu",
            layer_norm_eps=layer_norm_eps,
            batch_first=True,
            norm_first=norm_first,
        )
        self.read = nn.Linear(width, outputs)

    def forward(self, x: Any) -> Any:
        """The layer for points (..., *input_shape)."""
        batch = x.shape[: len(x.shape) - len(self.input_shape)]
        count = math.prod(batch)
        if self.guard is not None and self.domain is not None:
            points = x.reshape(count, *self.input_shape)
            x = guarded(points, self.guard, *self.domain, dtype=self.read.weight.dtype)
        numbers = x.reshape(count, self.length, self.numbers)
        tokens = self.embed(numbers) + self.start.weight
        memory = self.memory.weight.expand(count, *self.memory.weight.shape)
        stream = self.layer(torch.cat([tokens, memory], dim=1))  # (B, N + M, width)
        seen = pooled(stream[:, : self.length], self.readout)
        return self.read(seen).reshape((*batch, *self.output_shape))


def guarded(x: torch.Tensor, guard: str, low: list[float], high: list[float], *, dtype: torch.dtype) -> torch.Tensor:
    """Points (B, *shape) as a layer of format ``dtype`` takes them whose domain is a box.

    nan is outside, and clamping leaves it nan. Points are compared in float64, which holds every float: rounded
    to the format of the points, a bound may lie outside the box. A point that is moved goes to a number of ``dtype``.
    """
    event = x.shape[1:]
    points = x.double()
    lower, upper = (torch.tensor(end, dtype=torch.float64, device=x.device).reshape(event) for end in (low, high))
    # Written as "not inside", so that nan is outside.
    outside = ~((points >= lower) & (points <= upper))
    if not bool(outside.any()):
        return x
    if guard == "clamp":
        inside = torch.minimum(torch.maximum(points, _inward(lower, dtype, 1.0)), _inward(upper, dtype, -1.0))
        return inside.to(dtype)
    count = int(outside.flatten(1).any(1).sum())
    message = f"{count} of {len(x)} points lie outside the domain of the layer"
    if guard == "raise":
        raise ValueError(message)
    warnings.warn(message, stacklevel=2)
    return x


def _inward(bound: torch.Tensor, dtype: torch.dtype, way: float) -> torch.Tensor:
    """The number of ``dtype`` nearest to a bound that is not outside it, as float64; ``way`` 1.0 of a lower bound."""
    near = bound.to(dtype)
    beyond = (near.double() - bound) * way < 0
    away = torch.full_like(near, way * math.inf)
    return torch.where(beyond, torch.nextafter(near, away), near).double()


def pooled(y: Any, readout: str) -> Any:
    """Positions (B, N, width) -> what a read-out sees: each of them, their mean, the first or the last."""
    if readout == "each":
        return y
    if readout == "mean":
        return y.sum(1) * (1 / y.shape[1])
    at = 0 if readout == "first" else y.shape[1] - 1
    return y[:, at]


def load(folder: str | Path) -> StockLayer:
    """The layer saved in a folder, frozen, in the dtype of its file."""
    from safetensors.torch import load_file

    state = load_file(Path(folder) / "model.safetensors")
    layer = StockLayer(**json.loads((Path(folder) / "config.json").read_text()))
    layer.to(state["read.weight"].dtype).load_state_dict(state)
    return layer.requires_grad_(False).eval()
