"""Stock PyTorch: the function inside nn.TransformerEncoderLayer, or as a composition of torch.nn parts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from onelayer.domain import Box
from onelayer.errors import OnelayerError
from onelayer.export.dress import ANCHORS, NORM_EPS, Dress, dress
from onelayer.export.parts import LayerOfParts, embedding, layer_of_parts, linear, read_out, table
from onelayer.export.plan import Plan, plan, ramp_layers
from onelayer.export.source import Exportable, need_softmax, source_of
from onelayer.model import Config

NORMS = ("pre", "post", "none")


class EncoderLayer(nn.Module):
    """x (..., *input_shape) -> (..., *output_shape) through one nn.TransformerEncoderLayer.

    The sequence is the input tokens followed by the memory tokens; all attend to all, and weights alone decide who is
    heard. The forward pass runs on Taylor models, so ``certify`` proves this very module.
    """

    def __init__(self, config: Config, embed: nn.Module, start: nn.Embedding, memory: nn.Embedding) -> None:
        super().__init__()
        self.config = config
        self.embed = embed
        self.start = start
        self.memory = memory
        self.layer: nn.Module = nn.Identity()
        self.read: nn.Module = nn.Identity()

    def forward(self, x: Any) -> Any:
        config = self.config
        batch = x.shape[: len(x.shape) - len(config.input_shape)]
        count = math.prod(batch)
        tokens = self.embed(x.reshape(count, config.length, config.token_width)) + self.start.weight
        memory = self.memory.weight.expand(count, *self.memory.weight.shape)
        stream = self.layer(torch.cat([tokens, memory], dim=1))  # (B, N + M, d)
        return self.read(read_out(config, stream[:, : config.length])).reshape(*batch, *config.output_shape)


def to_torch(
    a: Exportable, *, norm: str = "pre", anchor: float | None = None, box: Box | None = None
) -> EncoderLayer | LayerOfParts:
    """The function of ``a`` in a module made of torch.nn parts, frozen, in the dtype of ``a``.

    norm     "pre" or "post": one nn.TransformerEncoderLayer(norm_first=True or False) with the memory tokens in its
             sequence. It differs from ``a`` by rounding and a relative 1/(2 anchor^2) of its logits.
             "none": nn.MultiheadAttention over memory keys and values, nn.Linear, nn.ReLU; equal to ``a`` to rounding
    anchor   size of the features that hold LayerNorm still, beside the largest token
    box      domain of a bare model; an approximation knows its own
    """
    source = source_of(a, box)
    need_softmax(source.model, "torch.nn")
    if norm not in NORMS:
        raise OnelayerError(f"norm must be one of {', '.join(NORMS)}; got {norm!r}")
    if norm == "none":
        return layer_of_parts(source.model)
    anchor = ANCHORS[source.model.dtype] if anchor is None else anchor
    if not 1 < anchor < math.inf:
        raise OnelayerError(f"anchor must be a number > 1, got {anchor!r}")
    drawn = plan(source)
    worn = dress(drawn, anchor)
    module = EncoderLayer(
        drawn.config,
        embedding(worn.up @ drawn.embed, None, ramp_layers(source.model)),
        table(worn.tokens(drawn.start)),
        table(worn.tokens(drawn.memory, exact=True)),
    )
    module.layer = encoder_layer(drawn, worn, norm_first=norm == "pre")
    module.read = linear(drawn.read @ worn.down, drawn.read_bias)
    return module.to(source.model.dtype).requires_grad_(False).eval()


def encoder_layer(drawn: Plan, worn: Dress, *, norm_first: bool) -> nn.TransformerEncoderLayer:
    """The stock layer that computes a plan on dressed tokens."""
    layer = nn.TransformerEncoderLayer(
        worn.width,
        drawn.heads,
        dim_feedforward=len(drawn.first),
        dropout=0.0,
        activation="relu",
        layer_norm_eps=NORM_EPS,
        batch_first=True,
        norm_first=norm_first,
        dtype=torch.float64,
    )
    projections = torch.cat([drawn.query, drawn.key, drawn.value]) @ worn.down
    zero = torch.zeros_like(drawn.query_bias)
    gain = torch.full((worn.width,), worn.gain, dtype=torch.float64)
    none = torch.zeros_like(gain)
    layer.load_state_dict(
        {
            "self_attn.in_proj_weight": projections,
            "self_attn.in_proj_bias": torch.cat([drawn.query_bias, zero, zero]),
            "self_attn.out_proj.weight": worn.up @ drawn.output,
            "self_attn.out_proj.bias": worn.up @ drawn.output_bias,
            "linear1.weight": drawn.first @ worn.down,
            "linear1.bias": drawn.first_bias,
            "linear2.weight": worn.up @ drawn.second,
            "linear2.bias": worn.up @ drawn.second_bias,
            "norm1.weight": gain,
            "norm1.bias": none,
            "norm2.weight": gain,
            "norm2.bias": none,
        }
    )
    return layer
