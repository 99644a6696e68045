"""Stack: L standard Transformer blocks in a row, for comparison with one layer. Not a layer of this package."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from onelayer.errors import OnelayerError


class Stack(nn.Module):
    """Tokens of X (n, d) or (n,), embedded linearly with learned positions, through ``depth`` blocks to a read-out.

    A block is torch's nn.TransformerEncoderLayer without dropout, normalised first, with ReLU or GELU units; the
    read-out is linear, from each position when the output shape starts with n, else from their mean. ``depth`` 1
    is a standard one-layer Transformer.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        output_shape: Sequence[int],
        *,
        depth: int,
        d_model: int = 32,
        heads: int = 4,
        hidden: int = 128,
        activation: str = "relu",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if depth < 1 or d_model % heads or hidden < 1:
            raise OnelayerError(
                f"a stack needs depth >= 1, hidden >= 1 and d_model divisible by heads, got {depth}, {hidden}, "
                f"{d_model} and {heads}"
            )
        self.input_shape = tuple(input_shape)
        self.output_shape = tuple(output_shape)
        self.length = self.input_shape[0]
        self.each = self.output_shape[:1] == self.input_shape[:1]
        width = math.prod(self.input_shape) // self.length
        read = math.prod(self.output_shape) // (self.length if self.each else 1)
        with torch.random.fork_rng(devices=[]):  # torch's modules draw from the global generator
            torch.manual_seed(seed)
            self.embed = nn.Linear(width, d_model, dtype=dtype)
            self.position = nn.Parameter(torch.randn(self.length, d_model, dtype=dtype))
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    d_model, heads, hidden, 0.0, activation, batch_first=True, norm_first=True, dtype=dtype
                )
                for _ in range(depth)
            )
            self.readout = nn.Linear(d_model, read, dtype=dtype)
        self.heads = heads
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        """(..., *input_shape) -> (..., *output_shape)."""
        batch = x.shape[: x.ndim - len(self.input_shape)]
        tokens = x.reshape(-1, self.length, self.embed.in_features)
        e = self.embed(tokens) + self.position  # (B, N, d_model)
        for block in self.blocks:
            e = block(e)
        out: Tensor = self.readout(e if self.each else e.mean(-2))
        return out.reshape(*batch, *self.output_shape)

    def size(self) -> dict[str, int]:
        """Blocks, heads and hidden units over all blocks, and parameters."""
        depth = len(self.blocks)
        return {
            "depth": depth,
            "heads": depth * self.heads,
            "tokens": 0,
            "hidden_units": depth * self.hidden,
            "parameters": sum(parameter.numel() for parameter in self.parameters()),
        }
