"""A packed softmax layer in exact rationals: heads, ReLU units and an affine part, all products multiplied out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.layer.config import Config
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer

Vector = list[Fraction]
Matrix = list[Vector]


@dataclass(frozen=True)
class Token:
    """A memory token: its logit is slopes . x + bias, and it votes for one value per output."""

    slopes: Vector
    bias: Fraction
    values: Vector


@dataclass(frozen=True)
class Unit:
    """gains[i] relu(slopes . x + offset), added to output i."""

    slopes: Vector
    offset: Fraction
    gains: Vector


@dataclass(frozen=True)
class ExactLayer:
    """T_i(x) = constants[i] + slopes[i] . x + sum of units + sum over heads of softmax-weighted values.

    In real arithmetic this is the layer: every number is a sum of products of stored numbers, divided by sqrt(d_k).
    """

    heads: list[list[Token]]
    units: list[Unit]
    slopes: Matrix  # (outputs, inputs)
    constants: Vector

    def __call__(self, x: Tensor) -> Tensor:
        """Values in float64, (points, inputs) -> (points, outputs): a measurement, to compare with the forward pass."""
        y = x @ _floats(self.slopes).T + _floats(self.constants)
        for unit in self.units:
            y = y + torch.relu(x @ _floats(unit.slopes) + float(unit.offset))[:, None] * _floats(unit.gains)
        for head in self.heads:
            logits = x @ _floats([token.slopes for token in head]).T + _floats([token.bias for token in head])
            y = y + torch.softmax(logits, -1) @ _floats([token.values for token in head])
        return y


def _read_tokens(tokens: Sequence[tuple[Vector, Fraction, Vector]], read: Matrix) -> list[Token]:
    """The tokens of a head with what the read-out makes of each."""
    return [Token(slopes, bias, _row(stream, read)) for slopes, bias, stream in tokens]


def _seen(tokens: Sequence[tuple[Vector, Fraction, Vector]], first: Matrix) -> Vector:
    """What the hidden units see of a head, which must not depend on the token."""
    return _constant([_row(stream, first) for *_, stream in tokens])


def _units(directions: Matrix, offsets: Vector, gains: Matrix) -> list[Unit]:
    """Hidden units from the columns of what they see and the rows of what they write."""
    return [Unit([line[j] for line in directions], offset, gains[j]) for j, offset in enumerate(offsets)]


def exact_layer(model: OneLayerTransformer) -> ExactLayer:
    """The layer multiplied out, or one line that says which part of it is not of this form."""
    config = model.config
    _refuse(config)
    own = {name: _fractions(tensor) for name, tensor in model.state_dict().items() if "." not in name}
    inputs, outputs = math.prod(config.input_shape), math.prod(config.output_shape)
    # What of the stream R reaches the read-out past the network, and what of x is in it.
    read, embedded, start = own["W_R"], own["W_E"], own["b_O"]
    if config.residual:
        start = _sum(own["b_O"], own["b_E"])
    else:
        embedded = _zeros(inputs, config.d_model)
        read = _zeros(config.d_model, outputs) if config.hidden else read

    streams = [_streams(model, h, own) for h in range(len(config.heads))]
    heads = [_read_tokens(tokens, read) for tokens in streams]
    affine = _product(embedded, read)
    constants = _sum(_row(start, read), own["b_R"])
    units: list[Unit] = []
    if config.hidden:
        seen = [_seen(tokens, own["W_1"]) for tokens in streams]
        offsets = _sum(_row(start, own["W_1"]), own["b_1"], *seen)
        units = _units(_product(embedded, own["W_1"]), offsets, _product(own["W_2"], own["W_R"]))
        constants = _sum(constants, _row(own["b_2"], own["W_R"]))
    return ExactLayer(heads, units, [[line[i] for line in affine] for i in range(outputs)], constants)


def _streams(model: OneLayerTransformer, h: int, own: dict[str, Any]) -> list[tuple[Vector, Fraction, Vector]]:
    """Slopes and bias of the logit of every token of head h, and what it adds to the stream."""
    before, shape = model.config.heads[:h], model.config.heads[h]
    columns, rows = sum(head.d_k for head in before), sum(head.d_v for head in before)
    query = [_part(line, columns, shape.d_k) for line in own["W_Q"]]
    slopes = _product(own["W_E"], query)
    bias = _sum(_row(own["b_E"], query), _part(own["b_Q"], columns, shape.d_k))
    root, out = math.isqrt(shape.d_k), own["W_O"][rows : rows + shape.d_v]
    return [
        ([_dot(line, key) / root for line in slopes], _dot(bias, key) / root, _row(value, out))
        for key, value in _tokens(model, h)
    ]


def _refuse(config: Config) -> None:
    if config.layout != "packed":
        raise OnelayerError("a Coq certificate needs a layer of one query token; this one attends over a sequence")
    if config.norm != "none":
        raise OnelayerError("a Coq certificate of a layer with LayerNorm is out of reach; build it with norm='none'")
    if config.attention != "softmax":
        raise OnelayerError(f"a Coq certificate needs softmax attention; this layer uses '{config.attention}'")
    if config.embedding != "linear" or config.positions != "none":
        raise OnelayerError("a Coq certificate needs a linear embedding without positions")
    for shape in config.heads:
        if math.isqrt(shape.d_k) ** 2 != shape.d_k:
            raise OnelayerError(f"a Coq certificate needs a rational sqrt(d_k); this layer has d_k = {shape.d_k}")


def _tokens(model: OneLayerTransformer, h: int) -> list[tuple[Vector, Vector]]:
    """Keys and values of the memory of head h; keys of a grid are added exactly."""
    memory = model.memory_of(h)
    assert memory is not None
    if not isinstance(memory, GridMemory):
        return list(zip(_fractions(memory.keys), _fractions(memory.values), strict=True))
    keys: Matrix = [[Fraction(0)] * memory.shape.d_k]
    for axis in memory.axes:
        own = _fractions(axis)
        keys = [_sum(key, more) for key in keys for more in own]
    return list(zip(keys, _fractions(memory.values.flatten(0, -2)), strict=True))


def _constant(seen: Matrix) -> Vector:
    """What a head adds to the units where all its tokens agree: weights sum to one. Otherwise units read attention."""
    if any(row != seen[0] for row in seen):
        raise OnelayerError("a Coq certificate needs ReLU units of x alone; units of this layer read a head")
    return seen[0]


def _fractions(tensor: Tensor) -> Any:
    """Nested lists of the exact stored numbers."""

    def exact(item: Any) -> Any:
        return [exact(part) for part in item] if isinstance(item, list) else Fraction(item)

    return exact(tensor.detach().cpu().double().tolist())


def _floats(numbers: Sequence[Any]) -> Tensor:
    def near(item: Any) -> Any:
        return float(item) if isinstance(item, Fraction) else [near(part) for part in item]

    return torch.tensor(near(numbers), dtype=torch.float64, device="cpu")


def _zeros(rows: int, columns: int) -> Matrix:
    return [[Fraction(0)] * columns for _ in range(rows)]


def _part(row: Vector, start: int, count: int) -> Vector:
    return row[start : start + count]


def _dot(a: Vector, b: Vector) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True) if x and y), Fraction(0))


def _row(row: Vector, matrix: Matrix) -> Vector:
    return [_dot(row, list(column)) for column in zip(*matrix, strict=True)]


def _product(a: Matrix, b: Matrix) -> Matrix:
    return [_row(row, b) for row in a]


def _sum(*rows: Vector) -> Vector:
    return [sum(column, Fraction(0)) for column in zip(*rows, strict=True)]
