"""Named architectures: how a file of weights (safetensors) becomes a network.

mlp:2,32,32,1:tanh              dense layers of these widths with this activation between them. The tensors are, in
                                order of the numbers in their names, a weight (out, in) and a bias (out) for each layer.
encoder:3,8,2,16,1:gelu:pre     tokens, width, heads, hidden units, outputs; activation; norm first (pre) or last
                                (post). Tensors: embed.weight (width, 1), embed.bias, position (tokens, width), the
                                state of a torch.nn.TransformerEncoderLayer as layer.*, read.weight, read.bias;
                                embed each number, add position, one layer, mean over tokens, read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.disk import read_bounded, read_tensors
from onelayer.errors import FileError, OnelayerError
from onelayer.formats import WIDE, either
from onelayer.network.network import RecordedNetwork
from onelayer.network.record import record

# Four gigabytes of weights are read into memory.
MAX_BYTES = 2**32
MAX_WIDTH = 2**14  # a square matrix of it takes two gigabytes
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "elu": nn.ELU,
}
WRITTEN = 'write it as "mlp:2,32,32,1:tanh" or "encoder:3,8,2,16,1:gelu:pre"'


class EncoderNetwork(nn.Module):
    """One torch encoder layer over numbers as tokens: embed, position, layer, mean, read."""

    def __init__(self, sizes: list[int], activation: str, pre: bool, dtype: torch.dtype) -> None:
        super().__init__()
        tokens, width, heads, hidden, outputs = sizes
        self.embed = nn.Linear(1, width, dtype=dtype, device="cpu")
        self.position = nn.Parameter(torch.zeros(tokens, width, dtype=dtype, device="cpu"))
        options: dict[str, Any] = {"activation": activation, "batch_first": True, "norm_first": pre, "dropout": 0.0}
        self.layer = nn.TransformerEncoderLayer(width, heads, hidden, **options, dtype=dtype, device="cpu")
        self.read = nn.Linear(width, outputs, dtype=dtype, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens) -> (B, outputs)."""
        tokens = self.embed(x[..., None]) + self.position
        y: Tensor = self.read(self.layer(tokens).mean(1))
        return y


def read_weights(path: Path, architecture: str) -> RecordedNetwork:
    """The network of a safetensors file of weights."""
    _, arrays = read_tensors(read_bounded(path, MAX_BYTES), str(path))
    # Torch takes numbers in the byte order of the machine alone.
    native = {name: array.astype(array.dtype.newbyteorder("=")) for name, array in arrays.items()}
    state = {name: torch.from_numpy(array) for name, array in native.items()}
    kinds = {value.dtype for value in state.values()}
    if len(kinds) != 1 or not kinds <= {row.dtype for row in WIDE}:
        raise FileError(f"{path}: weights of one format, {either('', WIDE)}, make a network")
    kind, sizes, words = _spelled(architecture)
    try:
        # In the format of the file: weights read into a coarser one would be rounded to it.
        model = (_mlp if kind == "mlp" else _encoder)(sizes, words, kinds.pop())
        # Strictly: a tensor too many or too few means another architecture.
        model.load_state_dict(_in_order(model, state) if kind == "mlp" else state)
    except (RuntimeError, ValueError, AssertionError) as error:
        line = " ".join(str(error).split())[:160]
        raise FileError(f"{path} does not hold the weights of {architecture!r}: {line}") from error
    return record(model.eval(), (sizes[0],))


def _spelled(architecture: str) -> tuple[str, list[int], list[str]]:
    kind, *rest = architecture.split(":")
    wanted = {"mlp": 2, "encoder": 3}
    if kind not in wanted or len(rest) != wanted[kind] or not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})+", rest[0]):
        raise OnelayerError(f"the architecture {architecture[:60]!r} is not known; {WRITTEN}")
    sizes = [int(number) for number in rest[0].split(",")]
    if not all(1 <= size <= MAX_WIDTH for size in sizes) or rest[1] not in ACTIVATIONS:
        names = ", ".join(ACTIVATIONS)
        raise OnelayerError(f"widths are 1 to {MAX_WIDTH:,} and activations {names}; got {architecture[:60]!r}")
    if kind == "encoder":
        _need_encoder(sizes, rest[1:])
    return kind, sizes, rest[1:]


def _need_encoder(sizes: list[int], words: list[str]) -> None:
    if len(sizes) != 5 or words[0] not in ("relu", "gelu") or words[1] not in ("pre", "post"):
        raise OnelayerError(f"an encoder has five sizes, relu or gelu, pre or post; {WRITTEN}")


def _natural(name: str) -> list[Any]:
    """layer2 before layer10."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if part.isdigit() else part for part in parts]


def _numbered(names: list[str]) -> bool:
    """Whether names differ by their numbers alone: words such as input, hidden, output say nothing of an order."""
    return len({re.sub(r"[0-9]+", "0", name) for name in names}) == 1


def _mlp(sizes: list[int], words: list[str], dtype: torch.dtype) -> nn.Module:
    parts: list[nn.Module] = []
    for first, second in pairwise(sizes):
        parts += [nn.Linear(first, second, dtype=dtype, device="cpu"), ACTIVATIONS[words[0]]()]
    return nn.Sequential(*parts[:-1])


def _in_order(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weight and bias by the names that the model has for them, layer by layer."""
    weights = sorted((name for name in state if state[name].ndim == 2), key=_natural)
    biases = sorted((name for name in state if state[name].ndim == 1), key=_natural)
    _need_order(state, weights, biases)
    names = [name for pair in zip(weights, biases, strict=True) for name in pair]
    return {own: state[name] for own, name in zip(model.state_dict(), names, strict=True)}


def _need_order(state: Mapping[str, Tensor], weights: list[str], biases: list[str]) -> None:
    # A tensor that nobody reads means another network than the one that was named.
    if len(weights) + len(biases) != len(state):
        raise ValueError("it has tensors that are neither a weight (out, in) nor a bias (out)")
    if len(weights) > 1 and not all(map(_numbered, (weights, biases))):
        raise ValueError("the names of its layers must differ by numbers, which say their order, as 0.weight, 2.weight")
    if len({str(_natural(name)) for name in state}) < len(state):
        raise ValueError("two of its names have the same numbers, which say the order of its layers")


def _encoder(sizes: list[int], words: list[str], dtype: torch.dtype) -> nn.Module:
    return EncoderNetwork(sizes, words[0], words[1] == "pre", dtype)
