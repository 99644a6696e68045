"""Stock PyTorch: the function inside nn.TransformerEncoderLayer, or as a composition of torch.nn parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.export.anchoring import ANCHORS, NORM_EPS, Anchoring
from onelayer.export.parts import LayerOfParts, layer_of_parts
from onelayer.export.plan import Plan, plan, ramp_layers
from onelayer.export.solve import solve_values
from onelayer.export.stock import StockLayer
from onelayer.ground import pinned
from onelayer.source import Exportable, need_softmax, source_of

NORMS = ("pre", "post", "none")


@door
@pinned()
def to_torch(
    a: Exportable, *, norm: str = "pre", anchor: float | None = None, solve: bool = False, box: Box | None = None
) -> StockLayer | LayerOfParts:
    """The function of ``a`` in a module made of torch.nn parts, frozen, in the dtype of ``a``.

    norm     "pre" or "post": one nn.TransformerEncoderLayer(norm_first=True or False) with the memory tokens in its
             sequence. It differs from ``a`` by rounding and a relative 1/(2 anchor^2) of its logits.
             "none": nn.MultiheadAttention over memory keys and values, nn.Linear, nn.ReLU; equal to ``a`` to rounding
    anchor   size of the features that hold LayerNorm still, beside the largest token
    solve    solve for the values through the finished layer; useful with a small anchor
    box      domain of a bare model; an approximation knows its own
    """
    source = source_of(a, box)
    need_softmax(source.model, "torch.nn")
    if norm not in NORMS:
        raise OnelayerError(f"norm must be one of {', '.join(NORMS)}; got {norm!r}")
    # Parts of torch.nn without an anchor: nothing normalises them.
    if norm == "none":
        return layer_of_parts(source.model)
    size = ANCHORS[source.model.dtype] if anchor is None else anchor

    def build(drawn: Plan) -> StockLayer:
        anchored = Anchoring.of(drawn, size)
        arguments = _stock_arguments(drawn, anchored, norm_first=norm == "pre")
        layer = StockLayer(**arguments).double()
        outside = _embedding(drawn, anchored, ramp_layers(source.model))
        layer.load_state_dict(outside | _layer(drawn, anchored))
        return layer.requires_grad_(False).eval()

    drawn = plan(source)
    if solve:
        drawn = solve_values(source, drawn, build)
    return build(drawn).to(source.model.dtype)


def _stock_arguments(drawn: Plan, anchored: Anchoring, *, norm_first: bool) -> dict[str, Any]:
    """Arguments of StockLayer, JSON-able."""
    config = drawn.config
    return {
        "input_shape": list(config.input_shape),
        "output_shape": list(config.output_shape),
        "length": config.length,
        "memory": len(drawn.memory),
        "width": anchored.width,
        "heads": drawn.heads,
        "hidden": len(drawn.first),
        "norm_first": norm_first,
        "readout": config.readout,
        "ramps": config.ramps,
        "layer_norm_eps": NORM_EPS,
    }


def _embedding(drawn: Plan, anchored: Anchoring, ramps: tuple[Tensor, Tensor, Tensor] | None) -> dict[str, Tensor]:
    embed = anchored.up @ drawn.embed
    weights = {
        "start.weight": anchored.tokens(drawn.start),
        "memory.weight": anchored.tokens(drawn.memory, exact=True),
        "read.weight": drawn.read @ anchored.down,
        "read.bias": drawn.read_bias,
    }
    if ramps is None:
        return weights | {"embed.weight": embed}
    slopes, offsets, signs = ramps
    return weights | {"embed.0.weight": slopes, "embed.0.bias": offsets, "embed.2.weight": embed @ signs}


def _layer(drawn: Plan, anchored: Anchoring) -> dict[str, Tensor]:
    """The state of the nn.TransformerEncoderLayer that computes a plan on anchored tokens, pre- or post-norm alike."""
    zero = torch.zeros_like(drawn.query_bias)
    gain = torch.full((anchored.width,), anchored.gain, dtype=torch.float64)
    weights = {
        "self_attn.in_proj_weight": torch.cat([drawn.query, drawn.key, drawn.value]) @ anchored.down,
        "self_attn.in_proj_bias": torch.cat([drawn.query_bias, zero, zero]),
        "self_attn.out_proj.weight": anchored.up @ drawn.output,
        "self_attn.out_proj.bias": anchored.up @ drawn.output_bias,
        "linear1.weight": drawn.first @ anchored.down,
        "linear1.bias": drawn.first_bias,
        "linear2.weight": anchored.up @ drawn.second,
        "linear2.bias": anchored.up @ drawn.second_bias,
    }
    for norm in ("norm1", "norm2"):
        weights |= {f"{norm}.weight": gain, f"{norm}.bias": torch.zeros_like(gain)}
    return {f"layer.{name}": tensor for name, tensor in weights.items()}
