"""LayerOfParts: our layer as nn.MultiheadAttention over memory keys and values, nn.Linear, nn.ReLU, nn.LayerNorm."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.export.plan import head_width, ramp_layers
from onelayer.export.stock import pooled
from onelayer.layer.config import Config
from onelayer.layer.transformer import NORM_EPS, OneLayerTransformer
from onelayer.source import plain_heads

# A logit below all others, of a head that hears no memory; far from the largest float32, so that scales fit before it.
OFF = -1e30


class LayerOfParts(nn.Module):
    """x (..., *input_shape) -> (..., *output_shape), line by line as OneLayerTransformer computes it.

    Memory tokens are the parts ``memory_keys`` and ``memory_values`` (M, H w); ``key`` and ``value`` project the tokens
    of a sequence that attend to each other.
    """

    def __init__(self, config: Config, parts: dict[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.parts = nn.ModuleDict(parts)

    def forward(self, x: Any) -> Any:
        """The layer for points (B, *input_shape)."""
        config = self.config
        parts = self.parts
        batch = x.shape[: len(x.shape) - len(config.input_shape)]
        count = math.prod(batch)
        e = parts["embed"](x.reshape(count, config.rows, config.token_width))
        e = e.reshape(count, config.length, config.d_model)
        if "position" in parts:
            e = e + self._rows("position")
        u = parts["norm1"](e) if config.norm == "pre" else e
        keys, values = self._sources(u, count)
        z, _ = parts["attention"](parts["query"](u), keys, values, need_weights=False)  # (B, N, H w)
        r = parts["output"](z)
        r = e + r if config.residual else r
        r = parts["norm1"](r) if config.norm == "post" else r
        y = self._feed_forward(r) if config.hidden else r
        read = parts["read"](pooled(y, config.readout))
        return read.reshape(*batch, *config.output_shape)

    def _sources(self, u: Any, count: int) -> tuple[Any, Any]:
        """Keys and values (B, S, H w): of the sequence where tokens attend to tokens, then of the memory."""
        sources = []
        if "key" in self.parts:
            sources.append((self.parts["key"](u), self.parts["value"](u)))
        if "memory_keys" in self.parts:
            keys = self._rows("memory_keys")
            values = self._rows("memory_values")
            of_memory = [part.expand(count, *part.shape) for part in (keys, values)]
            sources.append((of_memory[0], of_memory[1]))
        if len(sources) == 1:
            return sources[0]
        every_key, every_value = zip(*sources, strict=True)
        return torch.cat(every_key, dim=1), torch.cat(every_value, dim=1)

    def _feed_forward(self, r: Any) -> Any:
        parts = self.parts
        config = self.config
        inner = parts["norm2"](r) if config.norm == "pre" else r
        y = parts["second"](torch.relu(parts["first"](inner)))
        y = r + y if config.residual else y
        if config.norm == "post":
            return parts["norm2"](y)
        return y

    def _rows(self, name: str) -> Tensor:
        table = self.parts[name]
        assert isinstance(table, nn.Embedding)
        return table.weight


def layer_of_parts(model: OneLayerTransformer) -> LayerOfParts:
    """The same function in torch.nn parts, frozen, in the dtype of ``model``."""
    config = model.config
    own = {name: tensor.detach().double() for name, tensor in model.state_dict().items()}
    width = head_width(config)
    embed = embedding(own["W_E"].T, own["b_E"], ramp_layers(model))
    parts: dict[str, nn.Module] = {"embed": embed}
    if config.positions != "none":
        parts["position"] = table(own["position"])
    parts |= _attention_parts(model, own, width)
    parts |= _network_parts(config, own)
    parts["read"] = linear(own["W_R"].T, own["b_R"])
    return LayerOfParts(config, parts).to(model.dtype).requires_grad_(False).eval()


def _attention_parts(model: OneLayerTransformer, own: dict[str, Tensor], width: int) -> dict[str, nn.Module]:
    """Projections, memory and the attention itself, heads padded to one ``width``."""
    config = model.config
    parts: dict[str, nn.Module] = {}
    d_k = [head.d_k for head in config.heads]
    d_v = [head.d_v for head in config.heads]
    # A stock head divides by the root of its one width, ours by that of each key.
    scales = [torch.full((size,), math.sqrt(width / size), dtype=torch.float64) for size in d_k]
    scale = torch.cat(scales)
    query, query_bias = _spread(own["W_Q"] * scale, own["b_Q"] * scale, d_k, width)
    for h, size in enumerate(d_k):
        # One coordinate more, 1 in every query: there memory keys hold what is added to their logits.
        query_bias[h * width + size] = math.sqrt(width)
    parts["query"] = linear(query.T, query_bias)
    if config.token_attention:
        key, key_bias = _spread(own["W_K"], own["b_K"], d_k, width)
        value, value_bias = _spread(own["W_V"], own["b_V"], d_v, width)
        parts["key"] = linear(key.T, key_bias)
        parts["value"] = linear(value.T, value_bias)
    if any(head.memory != "none" for head in config.heads):
        keys, values = _memory_tables(model, width)
        parts |= {"memory_keys": table(keys), "memory_values": table(values)}
    parts["attention"] = _bare_attention(len(config.heads), width)
    output, _ = _spread(own["W_O"].T, own["b_O"], d_v, width)
    parts["output"] = linear(output, own["b_O"])
    return parts


def _network_parts(config: Config, own: dict[str, Tensor]) -> dict[str, nn.Module]:
    """Norms and the feed-forward network, where the layer has them."""
    parts: dict[str, nn.Module] = {}
    for which in ("1", "2") if config.hidden else ("1",):
        if config.norm != "none":
            gain, shift = own[f"gain_{which}"], own[f"shift_{which}"]
            parts[f"norm{which}"] = _layer_norm(gain, shift)
    if config.hidden:
        parts["first"] = linear(own["W_1"].T, own["b_1"])
        parts["second"] = linear(own["W_2"].T, own["b_2"])
    return parts


def _memory_tables(model: OneLayerTransformer, width: int) -> tuple[Tensor, Tensor]:
    """Keys and values (M, H w) of all heads side by side.

    A head with fewer tokens than M is filled up with copies of its last one, which share its mass: c copies whose
    logits are lower by log c weigh as much as the one token, whatever the query. A head without memory gets logits OFF.
    """
    heads = plain_heads(model)
    count = max(len(keys) for keys, _ in heads)
    keys = torch.zeros(count, len(heads) * width).double()
    values = torch.zeros_like(keys)
    for h, (own_keys, own_values) in enumerate(heads):
        d_k = own_keys.shape[1]
        at = h * width
        # A head without memory beside others that have some.
        if not len(own_keys):
            keys[:, at + d_k] = OFF
            continue
        copies = count - len(own_keys) + 1
        rows = torch.arange(count).clamp(max=len(own_keys) - 1)
        keys[:, at : at + d_k] = own_keys[rows]
        values[:, at : at + own_values.shape[1]] = own_values[rows]
        last = len(own_keys) - 1
        keys[last:, at + d_k] = -math.log(copies)
    return keys, values


def _spread(weight: Tensor, bias: Tensor, sizes: list[int], width: int) -> tuple[Tensor, Tensor]:
    """Columns (., sum of sizes) moved to (., H width): head h starts at h width, the rest is zero."""
    places = [h * width + torch.arange(size) for h, size in enumerate(sizes)]
    columns = torch.cat(places)
    wide = torch.zeros(len(weight), len(sizes) * width).double()
    wide[:, columns] = weight
    wide_bias = torch.zeros(len(sizes) * width).double()
    if len(bias) == len(columns):
        wide_bias[columns] = bias
    return wide, wide_bias


def _bare_attention(heads: int, width: int) -> nn.MultiheadAttention:
    """Multi-head attention whose projections are the identity: queries, keys and values arrive projected."""
    attention = nn.MultiheadAttention(heads * width, heads, batch_first=True, dtype=torch.float64)
    eye = torch.eye(heads * width).double()
    zero = torch.zeros(len(eye)).double()
    identity = {
        "in_proj_weight": torch.cat([eye, eye, eye]),
        "in_proj_bias": torch.cat([zero, zero, zero]),
        "out_proj.weight": eye,
        "out_proj.bias": zero,
    }
    attention.load_state_dict(identity)
    return attention


def linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """nn.Linear with these numbers, weight (out, in)."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=bias is not None, dtype=torch.float64)
    state = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    layer.load_state_dict(state)
    return layer


def table(rows: Tensor) -> nn.Embedding:
    """nn.Embedding with these rows."""
    return nn.Embedding(rows.shape[0], rows.shape[1], _weight=rows.clone())


def embedding(weight: Tensor, bias: Tensor | None, ramps: tuple[Tensor, Tensor, Tensor] | None) -> nn.Module:
    """Linear on the numbers of a token, or on their ramps clip(t, 0, 1) = relu(t) - relu(t - 1)."""
    if ramps is None:
        return linear(weight, bias)
    slopes, offsets, signs = ramps
    clipped = linear(slopes, offsets)
    return nn.Sequential(clipped, nn.ReLU(), linear(weight @ signs, bias))


def _layer_norm(gain: Tensor, shift: Tensor) -> nn.LayerNorm:
    norm = nn.LayerNorm(len(gain), eps=NORM_EPS, dtype=torch.float64)
    norm.load_state_dict({"weight": gain, "bias": shift})
    return norm
