"""The numbers of a layer: the tensors a configuration prescribes, where they start, the module that holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn

from onelayer.errors import OnelayerError
from onelayer.float64 import counted, eye, full, zeros
from onelayer.formats import spelled
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.memory import Memory, random_memory
from onelayer.narrow import linear

NamedWeights = Mapping[str, Tensor | Sequence[Tensor]]
RAMPS = ("ramp_start", "ramp_slope")
GAINS = ("gain_1", "gain_2")


class Weights(nn.Module):
    """Named tensors and memories of a layer, checked against its configuration. Final use: OneLayerTransformer."""

    def __init__(
        self,
        config: Config,
        memory: Sequence[Memory | None] | None = None,
        *,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        # Whether a float32 layer is stored in int8: see layer/int8.py.
        self.integers = False
        generator = torch.Generator("cpu").manual_seed(seed)
        for name, value in _initial_weights(config, generator, dtype).items():
            # Ramps and fixed positions are part of the construction: an optimiser is not to find them.
            if name in RAMPS or (name == "position" and config.positions != "learned"):
                self.register_buffer(name, value)
            else:
                self.register_parameter(name, nn.Parameter(value))
        if memory is None:
            memory = [random_memory(shape, generator, dtype) for shape in config.heads]
        _need_shapes(config, memory)
        self.memory = nn.ModuleDict()
        for h, item in enumerate(memory):
            if item is not None:
                # A copy, since ``to`` changes a module in place, and this one is the caller's.
                self.memory[str(h)] = deepcopy(item).to(dtype)
        for name, value in self.memory.named_parameters():
            _require_finite(f"memory.{name}", value)

    def set_weights(self, weights: NamedWeights) -> None:
        """Overwrite weights outside the memories by name; a list is joined over the heads."""
        own = {name: self.own(name) for name in weight_shapes(self.config)}
        for name, value in weights.items():
            if name not in own:
                raise OnelayerError(f"this layer has no weight '{name}'; it has {', '.join(own)}")
            new = value if isinstance(value, Tensor) else _joined(name, value)
            held = own[name]
            if new.shape != held.shape:
                raise OnelayerError(f"{name} must have shape {tuple(held.shape)}, got {tuple(new.shape)}")
            with torch.no_grad():
                held.copy_(new)
            # After the copy, which rounds: a large float64 number may be infinite in a narrow format.
            _require_finite(name, held)

    def own(self, name: str) -> Tensor:
        """The stored tensor of that name."""
        tensor: Tensor = getattr(self, name)
        return tensor

    def memory_of(self, h: int) -> Memory | None:
        """The memory of head h."""
        if str(h) not in self.memory:
            return None
        return cast(Memory, self.memory[str(h)])

    def cast(self, name: str, x: Tensor) -> Tensor:
        """The tensor of that name in the dtype of ``x``."""
        tensor = self.own(name)
        if tensor.dtype == x.dtype:
            return tensor
        return tensor.to(x.dtype)

    def affine(self, x: Tensor, which: str, columns: slice | None = None) -> Tensor:
        """x W + b for the pair of that name, or some columns of it."""
        w = self.cast(f"W_{which}", x)
        b = self.cast(f"b_{which}", x)
        if columns is not None:
            w = w[:, columns]
            b = b[columns]
        found: Tensor = linear(x, w, b)
        return found

    @property
    def dtype(self) -> torch.dtype:
        """The format of the weights."""
        return self.own("W_E").dtype

    @property
    def int8(self) -> bool:
        """Whether the weights are whole numbers of 8 bits times scales, and stored as such."""
        return self.integers and self.dtype == torch.float32

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.own("W_E").device

    def size(self) -> dict[str, int]:
        """Heads, memory tokens over all heads, hidden units, parameters and those that are not zero, of the plain form.

        That is what a stock layer would store: every memory token counts with its own key and value.
        """
        heads = self.config.heads
        matrices = sum(map(math.prod, weight_shapes(self.config).values()))
        memories = sum(shape.token_count * (shape.d_k + shape.d_v) for shape in heads)
        return {
            "heads": len(heads),
            "tokens": sum(shape.token_count for shape in heads),
            "hidden_units": self.config.hidden,
            "parameters": matrices + memories,
            "nonzeros": self._nonzeros(),
        }

    def _nonzeros(self) -> int:
        total = 0
        for name in weight_shapes(self.config):
            total += int(torch.count_nonzero(self.own(name)))
        for memory in self.memory.values():
            total += cast(Memory, memory).nonzeros()
        return total


def _joined(name: str, parts: Sequence[Tensor]) -> Tensor:
    """What is given head by head as one matrix: heads lie below one another in W_O, side by side elsewhere."""
    return torch.cat(list(parts), dim=0 if name == "W_O" else -1)


def _need_shapes(config: Config, memory: Sequence[Memory | None]) -> None:
    """Memories as the configuration has them, or OnelayerError."""
    found: list[HeadShape | None] = []
    for shape, item in zip(config.heads, memory, strict=False):
        # Nothing in memory is what such a head asks for; what it is given otherwise must have its shape.
        if item is None and shape.memory == "none":
            found.append(shape)
        else:
            found.append(None if item is None else item.shape)
    if tuple(found) != config.heads or len(memory) != len(found):
        raise OnelayerError(f"memories {tuple(found)} differ from the configured heads {config.heads}")


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor outside the memories, in the order of the forward pass."""
    d_k = sum(head.d_k for head in config.heads)
    d_v = sum(head.d_v for head in config.heads)
    shapes: dict[str, tuple[int, ...]] = {}

    def affine(name: str, rows: int, columns: int) -> None:
        shapes[f"W_{name}"] = (rows, columns)
        shapes[f"b_{name}"] = (columns,)

    if config.embedding == "piecewise":
        shapes |= dict.fromkeys(RAMPS, (config.token_width, config.ramps))
    # In the pieces layout one row holds the features of all tokens side by side.
    affine("E", config.features, config.d_model * max(1, config.pieces))
    if config.positions != "none":
        shapes["position"] = (config.length, config.d_model)
    affine("Q", config.d_model, d_k)
    if config.token_attention:
        affine("K", config.d_model, d_k)
        affine("V", config.d_model, d_v)
    affine("O", d_v, config.d_model)
    for which in ("1", "2") if config.hidden else ("1",):
        if config.norm != "none":
            shapes[f"gain_{which}"] = (config.d_model,)
            shapes[f"shift_{which}"] = (config.d_model,)
    if config.hidden:
        affine("1", config.d_model, config.hidden)
        affine("2", config.hidden, config.d_model)
    affine("R", config.d_model, config.readout_width)
    return shapes


def memory_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor inside the memories."""
    shapes: dict[str, tuple[int, ...]] = {}
    for h, head in enumerate(config.heads):
        if head.memory == "plain":
            shapes[f"memory.{h}.keys"] = (*head.tokens, head.d_k)
        for a, count in enumerate(head.tokens if head.memory == "grid" else ()):
            shapes[f"memory.{h}.axes.{a}"] = (count, head.d_k)
        if head.memory != "none":
            shapes[f"memory.{h}.values"] = (*head.tokens, head.d_v)
    return shapes


def _initial_weights(config: Config, generator: torch.Generator, dtype: torch.dtype) -> dict[str, Tensor]:
    """Matrices uniform in +-1/sqrt(rows), zero biases, unit gains, ramps of equal length over [0, 1]."""
    weights: dict[str, Tensor] = {}
    # In the order of the names, which is fixed: the generator gives each weight the same numbers every time.
    for name, shape in weight_shapes(config).items():
        if name == "position":
            weights[name] = positional_encoding(config.positions, *shape, generator=generator)
        elif name == "ramp_start":
            tokens, ramps = shape
            starts = counted(ramps) / ramps
            weights[name] = starts.repeat(tokens, 1)
        elif name == "ramp_slope":
            weights[name] = full(shape, float(shape[1]))
        elif len(shape) == 2:
            # Drawn in float64 whatever the format, so that one seed means the same start in all of them.
            draw = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")
            signed = draw * 2 - 1
            weights[name] = signed / math.sqrt(shape[0])
        else:
            weights[name] = full(shape, 1.0 if name in GAINS else 0.0)
    return {name: value.to(dtype) for name, value in weights.items()}


def positional_encoding(kind: str, length: int, width: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Rows added to the token embeddings, (length, width) float64.

    ``one-hot`` puts the identity into the last ``length`` features. ``sinusoidal`` puts sin and cos of
    i / 10000^(2j/width) into features 2j and 2j + 1. ``learned`` starts from small normal numbers.
    """
    if kind == "one-hot":
        before = zeros(length, width - length)
        return torch.cat([before, eye(length)], dim=1)
    if kind == "sinusoidal":
        feature = counted(width)
        rate = 10000.0 ** (-2 * (feature // 2) / width)
        angle = counted(length)[:, None] * rate
        return torch.where(feature % 2 == 0, torch.sin(angle), torch.cos(angle))
    # Small beside embeddings: 0.02 is what GPT-2 starts from.
    return 0.02 * torch.randn(length, width, generator=generator, dtype=torch.float64, device="cpu")


def _require_finite(name: str, tensor: Tensor) -> None:
    """A stored number is a number of the format: an infinite one would make every output inf or nan."""
    if not bool(torch.isfinite(tensor).all()):
        kind = spelled(tensor.dtype)
        largest = torch.finfo(tensor.dtype).max
        raise OnelayerError(
            f"{name} would hold a number beyond the largest {kind}, {largest:.2g}; scale the function or the box"
        )
