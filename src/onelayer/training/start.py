"""Where training starts: a fresh layer or stack of the shape asked for, or a copy of a given model."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.door import need_kinds
from onelayer.errors import OnelayerError
from onelayer.layer.config import HeadShape
from onelayer.layer.memory import PlainMemory, random_memory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.result import Approximation
from onelayer.training.stack import Stack

# A tokens layer embeds every coordinate by one matrix, so sides of very different length want the packed layout.
WIDEST_RATIO = 8.0
PACKED_MEMORY = 16  # tokens per head of a packed layer for which none were asked: its query attends to nothing else


@dataclass(frozen=True)
class Shape:
    """Of a fresh model: heads, width, hidden units, memory tokens per head, blocks (more than 1: a standard stack).

    ``layer`` holds further fields of a one-layer model: layout, attention, top_k, feature, order, norm, residual,
    readout.
    """

    heads: int = 4
    d_model: int = 32
    hidden: int = 128
    memory: int = 0
    depth: int = 1
    layer: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        need_kinds(self)


def fresh_layer(
    input_shape: tuple[int, ...],
    output_shape: tuple[int, ...],
    *,
    heads: int = 4,
    d_model: int = 32,
    hidden: int = 128,
    memory: int = 0,
    layout: str = "tokens",
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **options: Any,
) -> OneLayerTransformer:
    """A layer with random weights, for inputs of about unit size.

    ``memory`` is the number of memory tokens per head (a packed layer needs some). Biases and positions start at
    random: tokens that are multiples of one vector would be alike to every head. ``options`` are fields of Config:
    norm, residual, attention, top_k, feature, order, readout.
    """
    if heads < 1 or d_model < heads or d_model % heads:
        raise OnelayerError(f"d_model must be a multiple of heads, got d_model {d_model} and heads {heads}")
    generator = torch.Generator().manual_seed(seed)
    options = {"hidden": hidden, "residual": True, "dtype": dtype, "seed": seed, **options}
    width = d_model // heads
    shape = HeadShape(width, width, "plain", (memory,)) if memory else HeadShape(width, width)
    memories = [random_memory(shape, generator, dtype) for _ in range(heads)]
    if layout == "packed":
        kept = [item for item in memories if isinstance(item, PlainMemory)]
        if len(kept) < heads:
            raise OnelayerError("a packed layer needs memory tokens; give memory=, for example memory=16")
        model = OneLayerTransformer.packed(input_shape, output_shape, kept, d_model=d_model, **options)
    else:
        options.setdefault("positions", "learned")
        model = OneLayerTransformer.tokens(
            input_shape, output_shape, d_model=d_model, heads=heads, memory=memories, **options
        )
    _scatter(model, generator)
    return model


def _scatter(model: OneLayerTransformer, generator: torch.Generator) -> None:
    """Biases and positions at random, of the size of what they are added to."""

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    config = model.config
    start = {"b_E": normal(config.d_model)}
    if config.hidden:
        start["b_1"] = normal(config.hidden) / math.sqrt(config.d_model)
    if config.positions == "learned":
        start["position"] = normal(config.length, config.d_model)
    model.set_weights(start)


def suited_layout(box: Box | None, input_shape: tuple[int, ...], memory: int) -> str:
    """tokens for sequences and for boxes of comparable sides; packed where a shared embedding would fit no side."""
    if box is None:
        return "tokens" if len(input_shape) == 2 else "packed"
    width = box.width.flatten()
    uneven = bool(width.max() > WIDEST_RATIO * width.min())
    if len(input_shape) != 2 and (uneven or (box.dim == 1 and memory > 0)):
        return "packed"
    return "tokens"


def warm_start(model: Any, dtype: torch.dtype) -> nn.Module:
    """A trainable copy of an approximation's or a user's model."""
    given = model.model if isinstance(model, Approximation) else model
    if not isinstance(given, nn.Module):
        raise OnelayerError(f"model must be an Approximation, a layer or an nn.Module, got {type(model).__name__}")
    return copy.deepcopy(given).to(dtype=dtype).train().requires_grad_(True)


def fresh_model(
    input_shape: tuple[int, ...],
    output_shape: tuple[int, ...],
    shape: Shape,
    layout: str,
    dtype: torch.dtype,
    seed: int,
) -> nn.Module:
    """A layer for depth 1, in ``layout`` unless the shape says otherwise; a stack of standard blocks for more."""
    options = {"layout": layout, **(shape.layer or {})}
    size: dict[str, Any] = {
        "heads": shape.heads,
        "d_model": shape.d_model,
        "hidden": shape.hidden,
        "dtype": dtype,
        "seed": seed,
    }
    if shape.depth > 1:
        del options["layout"]
        return Stack(input_shape, output_shape, depth=shape.depth, **size, **options)
    memory = shape.memory
    if options["layout"] == "packed" and not memory:
        memory = PACKED_MEMORY
    return fresh_layer(input_shape, output_shape, memory=memory, **size, **options)
