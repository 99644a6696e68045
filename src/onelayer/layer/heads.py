"""Multi-head attention of a layer, eqs (5)-(8): MHA(E; memory) W_O + b_O from the embedded tokens E."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.layer.attention import Softmax, attention_kind, grid_average
from onelayer.layer.memory import GridMemory
from onelayer.layer.weights import Weights
from onelayer.narrow import ACCUMULATORS, held, widened

WRITTEN_OUT = "its keys are sums, rounded when they are written out; certify model.materialize(), which holds them"


def attended(layer: Weights, e: Tensor) -> Tensor:
    """MHA(E; memory) W_O + b_O: all heads at once when alike, else one by one."""
    if e.dtype in ACCUMULATORS:
        # One product with W_O, so that the sum over the heads is rounded once and not head by head.
        count = len(layer.config.heads)
        each = [_head(layer, h, e) for h in range(count)]
        return layer.affine(torch.cat(each, dim=-1), "O")
    if layer.config.alike:
        return _together(layer, e)
    return _one_by_one(layer, e)


def asking(layer: Weights, e: Tensor) -> Tensor:
    """The positions that ask: all of them, or of a layer of pieces the first, which alone is read."""
    if layer.config.pieces:
        return e[..., :1, :]
    return e


def query(layer: Weights, h: int, e: Tensor) -> Tensor:
    """Queries of head h, already scaled by 1/sqrt(d_k): (..., N, d_k)."""
    config = layer.config
    asked = layer.affine(asking(layer, e), "Q", config.key_columns(h))
    return _scaled(widened(asked), config.heads[h].d_k)


def _scaled(asked: Tensor, d_k: int) -> Tensor:
    """Queries with the scale of eq (5), so that a logit is a plain product."""
    return asked * (1 / math.sqrt(d_k))


def weights_of(layer: Weights, h: int, e: Tensor) -> Tensor:
    """Attention weights of head h, (..., N, S): first the tokens of the sequence, then its memory, row-major."""
    keys = [keys for keys, _ in _token_sources(layer, h, e)]
    if layer.memory_of(h) is not None:
        written_out, _ = _plain(layer, h, e)
        keys.append(written_out)
    return attention_kind(layer.config).weights(query(layer, h, e), keys)


def _together(layer: Weights, e: Tensor) -> Tensor:
    """Heads of one shape as one more axis of every array."""
    config = layer.config
    shape = config.heads[0]
    count = len(config.heads)

    def split(u: Tensor, width: int) -> Tensor:
        by_head = u.reshape(*u.shape[:-1], count, width)
        return by_head.transpose(-3, -2)  # (..., H, N, width)

    asked = layer.affine(asking(layer, e), "Q")
    queries = _scaled(split(asked, shape.d_k), shape.d_k)
    sources = []
    if config.token_attention:
        keys = split(layer.affine(e, "K"), shape.d_k)
        values = split(layer.affine(e, "V"), shape.d_v)
        sources.append((keys, values))
    if shape.memory == "plain":
        items = [_plain(layer, h, e) for h in range(count)]
        keys = torch.stack([k for k, _ in items])  # (H, M, d_k)
        values = torch.stack([v for _, v in items])
        sources.append((keys, values))
    z = attention_kind(config).average(queries, sources)
    z = z.transpose(-3, -2)  # (..., N, H, d_v)
    side_by_side = z.reshape(*z.shape[:-2], count * shape.d_v)
    return layer.affine(side_by_side, "O")


def _one_by_one(layer: Weights, e: Tensor) -> Tensor:
    """One head at a time: each keeps to the inputs that its query reads, which keeps Taylor models small."""
    w_o = layer.cast("W_O", e)
    b_o = layer.cast("b_O", e)

    def parts() -> Iterator[Tensor]:
        for h in range(len(layer.config.heads)):
            own = w_o[layer.config.value_columns(h)]
            z = _head(layer, h, e)
            yield F.linear(z, own.transpose(0, 1))  # (..., N, d_model)

    # Added as they come, so that only one of them is held beside the sum.
    return reduce(operator.add, parts()) + b_o


def _head(layer: Weights, h: int, e: Tensor) -> Tensor:
    """Z_h of eq (8), (..., N, d_v): logits, weights and average in one piece, rounded once in a narrow format."""
    asked = query(layer, h, e)
    sources = _token_sources(layer, h, e)
    memory = layer.memory_of(h)
    kind = attention_kind(layer.config)
    if isinstance(memory, GridMemory) and isinstance(kind, Softmax):
        axes = [_as(axis, e) for axis in memory.axes]
        average = grid_average(asked, axes, _as(memory.values, e), sources)
        return held(average, e)
    # Other kinds need every key by itself, and the sum of axis keys is rounded: an enclosure would speak of other keys.
    if isinstance(memory, GridMemory) and not isinstance(e, Tensor):
        raise UnsupportedOperation("a grid without softmax, of enclosures", WRITTEN_OUT)
    if memory is not None:
        sources.append(_plain(layer, h, e))
    return held(kind.average(asked, sources), e)


def _token_sources(layer: Weights, h: int, e: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of the tokens of the sequence, where they are attended to."""
    if not layer.config.token_attention:
        return []
    keys = layer.affine(e, "K", layer.config.key_columns(h))
    values = layer.affine(e, "V", layer.config.value_columns(h))
    return [(widened(keys), widened(values))]


def _plain(layer: Weights, h: int, e: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of the memory of head h, written out."""
    memory = layer.memory_of(h)
    if memory is None:
        raise OnelayerError(f"head {h} has no memory")
    keys, values = memory.plain_tokens(e.dtype)
    return widened(keys), widened(values)


def _as(stored: Tensor, x: Tensor) -> Tensor:
    """A stored tensor in the format that a head computes in for x."""
    if stored.dtype != x.dtype:
        stored = stored.to(x.dtype)
    return widened(stored)
