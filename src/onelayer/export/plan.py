"""Plan: a layer rewritten so that one sequence, one shared width and plain residuals carry it, as stock layers want.

A stock layer keeps its memory tokens in the sequence, gives every head the same width, and always adds its input to its
output. So a token gets named features: whether it is a token of the sequence, the stream of our layer, and for memory
tokens their keys and values. Results are written to features that were zero when our layer has no residual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.layer.config import Config
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.source import Source, plain_heads

# exp(-50) = 2e-22 beside any weight that counts: below the rounding of float64.
OFF = 50.0
# Tokens of a stock layer, whose attention is quadratic in memory.
MAX_TOKENS = 4096
ANCHOR_FEATURES = 2  # two features of opposite sign: their mean is zero


@dataclass(frozen=True)
class Names:
    """Where features lie: sequence flag, stream before and after attention and FFN, then keys, off flags, values."""

    stream: slice
    after: slice
    last: slice
    keys: list[slice]
    off: int
    values: list[slice]
    count: int


@dataclass(frozen=True)
class Plan:
    """Matrices over F named features, all float64; F(z) = W z + b with W stored (out, in) as in nn.Linear.

    A sequence token starts as ``embed`` (F, features) of its numbers + ``start`` (N, F); memory tokens are ``memory``
    (M, F). Heads of width w lie side by side in ``query``, ``key``, ``value`` (H w, F) and ``output`` (F, H w); H w is
    at least 2 F + 2, the width of a anchored token. ``bound`` (F,) is the largest value a feature takes on the box,
    before and after the layer, ``reach`` the largest logit.
    """

    config: Config
    names: Names
    width: int
    embed: Tensor
    start: Tensor
    memory: Tensor
    query: Tensor
    query_bias: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    output_bias: Tensor
    first: Tensor
    first_bias: Tensor
    second: Tensor
    second_bias: Tensor
    read: Tensor
    read_bias: Tensor
    bound: Tensor
    reach: float

    @property
    def heads(self) -> int:
        """Number of heads."""
        return len(self.config.heads)

    @property
    def features(self) -> int:
        """Numbers in the stream before anchors."""
        return len(self.bound)


def plan(source: Source) -> Plan:
    """The plan of a softmax layer without LayerNorm of its own."""
    model = source.model
    config = source.model.config
    # A stock layer has LayerNorms of its own, at places that ours does not have.
    if config.norm != "none":
        raise OnelayerError(f"a layer with its own {config.norm}-LayerNorm is exported by to_torch(a, norm='none')")
    if config.pieces:
        raise OnelayerError(
            "tokens that are affine in the whole input have no stock embedding; use to_torch(a, norm='none')"
        )
    # A stock layer knows no grids: all combinations become tokens.
    heads = plain_heads(model)
    count = max(len(keys) for keys, _ in heads)
    tokens = count + config.length
    if tokens > MAX_TOKENS:
        raise OnelayerError(
            f"a sequence of {tokens:,} tokens is too long for a layer in which all attend to all "
            f"(limit {MAX_TOKENS:,}); use to_torch(a, norm='none') or to_onnx"
        )
    names = _names(config)
    own = {name: tensor.detach().double() for name, tensor in model.state_dict().items()}
    # Wide enough for each head, and together for a token with its anchors.
    anchored = 2 * names.count + ANCHOR_FEATURES
    width = max(head_width(config), math.ceil(anchored / len(heads)))
    bound = _bounds(source, heads, own, names)
    reach = _largest_logit(config, heads, own, bound[names.stream])
    attention = _attention(config, heads, own, names, width, OFF + 2 * reach)
    # A stock layer always has a network: one unit of zeros adds nothing.
    hidden = max(1, config.hidden)
    first = torch.zeros(hidden, names.count).double()
    second = torch.zeros(names.count, hidden).double()
    first_bias = torch.zeros(hidden).double()
    second_bias = torch.zeros(names.count).double()
    if config.hidden:
        first[:, names.after] = own["W_1"].T
        first_bias = own["b_1"]
        second[names.last] = own["W_2"].T
        second_bias[names.last] = own["b_2"]
    read = torch.zeros(config.readout_width, names.count).double()
    read[:, names.last] = own["W_R"].T
    embed = torch.zeros(names.count, config.features).double()
    embed[names.stream] = own["W_E"].T
    return Plan(
        config=config,
        names=names,
        width=width,
        embed=embed,
        start=_start(config, own, names),
        memory=_memory(heads, names, count),
        **attention,
        first=first,
        first_bias=first_bias,
        second=second,
        second_bias=second_bias,
        read=read,
        read_bias=own["b_R"],
        bound=bound,
        reach=reach,
    )


def head_width(config: Config) -> int:
    """Width that every head fits in: its key and one more coordinate to switch tokens off, or its value."""
    widths = [max(head.d_k + 1, head.d_v) for head in config.heads]
    return max(widths)


def _names(config: Config) -> Names:
    at = 1

    def take(size: int) -> slice:
        nonlocal at
        at += size
        return slice(at - size, at)

    stream = take(config.d_model)
    # With a residual attention writes where it read; without, into features that were zero.
    after = stream if config.residual else take(config.d_model)
    last = after if config.residual or not config.hidden else take(config.d_model)
    keys = [take(head.d_k) for head in config.heads]
    off = take(len(config.heads)).start
    values = [take(head.d_v) for head in config.heads]
    return Names(stream, after, last, keys, off, values, at)


def _start(config: Config, own: dict[str, Tensor], names: Names) -> Tensor:
    """What a sequence token holds besides its numbers: the flag 1, the bias of the embedding, its position."""
    start = torch.zeros(config.length, names.count).double()
    start[:, 0] = 1
    start[:, names.stream] = own["b_E"]
    if config.positions != "none":
        start[:, names.stream] += own["position"]
    return start


def _memory(heads: list[tuple[Tensor, Tensor]], names: Names, count: int) -> Tensor:
    """Memory token m holds key and value m of every head, and an off flag where a head has fewer tokens."""
    memory = torch.zeros(count, names.count).double()
    for h, (keys, values) in enumerate(heads):
        memory[: len(keys), names.keys[h]] = keys
        memory[: len(keys), names.values[h]] = values
        memory[len(keys) :, names.off + h] = 1
    return memory


def _attention(
    config: Config, heads: list[tuple[Tensor, Tensor]], own: dict[str, Tensor], names: Names, width: int, off: float
) -> dict[str, Tensor]:
    """Projections whose head h has logit q . k / sqrt(d_k) on its own tokens and less than -OFF below on all others."""
    rows = len(config.heads) * width
    features = names.count
    query = torch.zeros(rows, features).double()
    key = torch.zeros(rows, features).double()
    value = torch.zeros(rows, features).double()
    query_bias = torch.zeros(rows).double()
    output = torch.zeros(features, rows).double()
    output_bias = torch.zeros(features).double()
    k = v = 0
    for h, head in enumerate(config.heads):
        at = h * width
        # A stock layer divides by the root of its one width, ours by that of each head.
        scale = math.sqrt(width / head.d_k)
        keys = slice(at, at + head.d_k)
        values = slice(at, at + head.d_v)
        stored_keys = slice(k, k + head.d_k)
        stored_values = slice(v, v + head.d_v)
        query[keys, names.stream] = scale * own["W_Q"][:, stored_keys].T
        query_bias[keys] = scale * own["b_Q"][stored_keys]
        key[keys, names.keys[h]] = torch.eye(head.d_k).double()
        value[values, names.values[h]] = torch.eye(head.d_v).double()
        # One coordinate more, 1 in every query: a token with an off flag is that far below all others.
        switch = at + head.d_k
        query_bias[switch] = math.sqrt(width)
        key[switch, names.off + h] = -off
        if config.token_attention:
            key[keys, names.stream] = own["W_K"][:, stored_keys].T
            key[keys, 0] = own["b_K"][stored_keys]
            value[values, names.stream] = own["W_V"][:, stored_values].T
            value[values, 0] = own["b_V"][stored_values]
        else:
            key[switch, 0] = -off
        output[names.after, values] = own["W_O"][stored_values].T
        k = k + head.d_k
        v = v + head.d_v
    output_bias[names.after] = own["b_O"]
    return {
        "query": query,
        "query_bias": query_bias,
        "key": key,
        "value": value,
        "output": output,
        "output_bias": output_bias,
    }


def _bounds(source: Source, heads: list[tuple[Tensor, Tensor]], own: dict[str, Tensor], names: Names) -> Tensor:
    """Largest absolute value of every feature over the box, by the triangle inequality."""
    config = source.model.config
    stream = _embedded(source, own)
    spread = own["b_O"].abs()
    v = 0
    for h, (_, values) in enumerate(heads):
        columns = slice(v, v + config.heads[h].d_v)
        w_o = own["W_O"][columns]
        # A head returns a mean of values, so no more than the largest of them.
        largest = (values @ w_o).abs().amax(0) if len(values) else torch.zeros_like(spread)
        if config.token_attention:
            w_v = own["W_V"][..., columns]
            b_v = own["b_V"][..., columns]
            of_tokens = stream @ (w_v @ w_o).abs() + (b_v @ w_o).abs()
            largest = torch.maximum(largest, of_tokens)
        spread = spread + largest
        v = v + config.heads[h].d_v
    after = stream + spread if config.residual else spread
    bound = torch.zeros(names.count).double()
    # The flag of sequence tokens, and those that switch memory tokens off.
    bound[0] = 1
    bound[names.off : names.off + len(heads)] = 1
    bound[names.stream] = stream
    bound[names.after] = after
    if config.hidden:
        inner = after @ own["W_1"].abs() + own["b_1"].abs()
        last = inner @ own["W_2"].abs() + own["b_2"].abs()
        bound[names.last] = last + after if config.residual else last
    for h, (keys, values) in enumerate(heads):
        if len(keys):
            bound[names.keys[h]] = keys.abs().amax(0)
            bound[names.values[h]] = values.abs().amax(0)
    return bound


def _embedded(source: Source, own: dict[str, Tensor]) -> Tensor:
    """Bound of |E| per feature, over all tokens of the sequence."""
    config = source.model.config
    box = source.domain
    size = torch.maximum(box.lower.abs(), box.upper.abs())
    size = size.reshape(config.length, config.token_width)
    if config.embedding == "piecewise":
        size = torch.ones(config.length, config.features).double()
    bias = own["b_E"] + own["position"] if config.positions != "none" else own["b_E"]
    return (size @ own["W_E"].abs() + bias.abs()).amax(0)


def _largest_logit(config: Config, heads: list[tuple[Tensor, Tensor]], own: dict[str, Tensor], stream: Tensor) -> float:
    """Bound of every logit over the box."""
    query = stream @ own["W_Q"].abs() + own["b_Q"].abs()
    own_keys = torch.zeros_like(query)
    if config.token_attention:
        own_keys = stream @ own["W_K"].abs() + own["b_K"].abs()
    reach, k = 0.0, 0
    for head, (keys, _) in zip(config.heads, heads, strict=True):
        columns = slice(k, k + head.d_k)
        every = torch.cat([keys.abs(), own_keys[columns][None]])
        largest = float((every @ query[columns]).max())
        reach = max(reach, largest / math.sqrt(head.d_k))
        k = k + head.d_k
    return reach


def ramp_layers(model: OneLayerTransformer) -> tuple[Tensor, Tensor, Tensor] | None:
    """Weights of clip((x - start) slope, 0, 1) = relu(t) - relu(t - 1), t = slope x - slope start, or None if linear.

    Returns W (2 features, token_width), b (2 features,) of t and t - 1, and the sign matrix (features, 2 features).
    """
    config = model.config
    if config.embedding != "piecewise":
        return None
    start = model.own("ramp_start").detach().double()
    slope = model.own("ramp_slope").detach().double()
    weight = torch.zeros(config.token_width, config.ramps, config.token_width).double()
    each = torch.arange(config.token_width)
    # Each number of a token has ramps of its own and is seen by no other.
    weight[each, :, each] = slope
    flat = weight.reshape(config.features, config.token_width)
    bias = -(slope * start).reshape(-1)
    eye = torch.eye(config.features).double()
    weights = torch.cat([flat, flat])
    biases = torch.cat([bias, bias - 1])
    return weights, biases, torch.cat([eye, -eye], dim=1)
