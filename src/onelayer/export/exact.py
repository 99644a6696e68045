"""A packed softmax layer in exact rationals: heads, ReLU units and an affine part, all products multiplied out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
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
class Grid:
    """A head over a grid: q . k = slopes . x + bias for the tokens of every axis, whose values are left empty.

    The logit of a combination is the sum over the axes, divided by sqrt(d_k); ``values`` holds one row per combination,
    the last axis fastest.
    """

    d_k: int
    axes: list[list[Token]]
    values: Matrix  # (product of the lengths of the axes, outputs)

    def products(self) -> list[Token]:
        """All combinations, before the division."""
        found = self.axes[0]
        for axis in self.axes[1:]:
            pairs = [(a, b) for a in found for b in axis]
            found = [Token(_sum(a.slopes, b.slopes), a.bias + b.bias, []) for a, b in pairs]
        rows = zip(found, self.values, strict=True)
        return [Token(token.slopes, token.bias, row) for token, row in rows]

    def tokens(self) -> list[Token]:
        """All combinations, where sqrt(d_k) is rational."""
        root = math.isqrt(self.d_k)
        if root**2 != self.d_k:
            raise OnelayerError(f"rational logits need a rational sqrt(d_k); this layer has d_k = {self.d_k}")
        tokens = []
        for token in self.products():
            slopes = [slope / root for slope in token.slopes]
            tokens.append(Token(slopes, token.bias / root, token.values))
        return tokens


@dataclass(frozen=True)
class Unit:
    """gains[i] relu(slopes . x + offset), added to output i."""

    slopes: Vector
    offset: Fraction
    gains: Vector


@dataclass(frozen=True)
class ExactLayer:
    """T_i(x) = constants[i] + slopes[i] . x + sum of units + sum over heads of softmax-weighted values.

    In real arithmetic this is the layer: every number is a sum of products of stored numbers.
    """

    grids: list[Grid]
    units: list[Unit]
    slopes: Matrix  # (outputs, inputs)
    constants: Vector

    @cached_property
    def heads(self) -> list[list[Token]]:
        """The tokens of every head, where their numbers are rational."""
        return [grid.tokens() for grid in self.grids]

    def __call__(self, x: Tensor) -> Tensor:
        """Values in float64, (points, inputs) -> (points, outputs): a measurement, to compare with the forward pass."""
        y = x @ _floats(self.slopes).T + _floats(self.constants)
        for unit in self.units:
            seen = x @ _floats(unit.slopes) + float(unit.offset)
            active = torch.relu(seen)
            y = y + active[:, None] * _floats(unit.gains)
        for grid in self.grids:
            tokens = grid.products()
            slopes = _floats([token.slopes for token in tokens])
            logits = x @ slopes.T + _floats([token.bias for token in tokens])
            weights = torch.softmax(logits / math.sqrt(grid.d_k), -1)
            y = y + weights @ _floats(grid.values)
        return y


def _units(directions: Matrix, offsets: Vector, gains: Matrix) -> list[Unit]:
    """Hidden units from the columns of what they see and the rows of what they write."""
    columns = [list(column) for column in zip(*directions, strict=True)]
    return [Unit(columns[j], offset, gains[j]) for j, offset in enumerate(offsets)]


def _outside_memory(model: OneLayerTransformer) -> dict[str, Any]:
    """The tensors outside the memories, in fractions."""
    # Names of tensors in memories have a dot.
    own = {name: tensor for name, tensor in model.state_dict().items() if "." not in name}
    return {name: _fractions(tensor) for name, tensor in own.items()}


def exact_layer(model: OneLayerTransformer) -> ExactLayer:
    """The layer multiplied out, or one line that says which part of it is not of this form."""
    config = model.config
    _refuse(config)
    own = _outside_memory(model)
    inputs = math.prod(config.input_shape)
    outputs = math.prod(config.output_shape)
    # What of the stream R reaches the read-out past the network, and what of x is in it.
    read = own["W_R"]
    embedded = own["W_E"]
    start = own["b_O"]
    if config.residual:
        start = _sum(own["b_O"], own["b_E"])
    else:
        embedded = _zeros(inputs, config.d_model)
        # Without a residual nothing of the stream passes the network by.
        read = _zeros(config.d_model, outputs) if config.hidden else read

    streams = [_streams(model, h, own) for h in range(len(config.heads))]
    grids = []
    for shape, (axes, stream) in zip(config.heads, streams, strict=True):
        grids.append(Grid(shape.d_k, axes, _product(stream, read)))
    affine = _product(embedded, read)
    constants = _sum(_row(start, read), own["b_R"])
    units: list[Unit] = []
    if config.hidden:
        seen = [_constant(_product(stream, own["W_1"])) for _, stream in streams]
        offsets = _sum(_row(start, own["W_1"]), own["b_1"], *seen)
        directions = _product(embedded, own["W_1"])
        gains = _product(own["W_2"], own["W_R"])
        units = _units(directions, offsets, gains)
        constants = _sum(constants, _row(own["b_2"], own["W_R"]))
    slopes = [[line[i] for line in affine] for i in range(outputs)]
    return ExactLayer(grids, units, slopes, constants)


def _streams(model: OneLayerTransformer, h: int, own: dict[str, Any]) -> tuple[list[list[Token]], Matrix]:
    """Slopes and bias of q . k along every axis of head h, and what each of its tokens adds to the stream."""
    before = model.config.heads[:h]
    shape = model.config.heads[h]
    columns = sum(head.d_k for head in before)
    rows = sum(head.d_v for head in before)
    query = [_part(line, columns, shape.d_k) for line in own["W_Q"]]
    slopes = _product(own["W_E"], query)
    own_bias = _part(own["b_Q"], columns, shape.d_k)
    bias = _sum(_row(own["b_E"], query), own_bias)
    out = own["W_O"][rows : rows + shape.d_v]
    memory = model.memory_of(h)
    assert memory is not None
    keys = list(memory.axes) if isinstance(memory, GridMemory) else [memory.keys]
    axes = []
    for axis in keys:
        tokens = [Token([_dot(line, key) for line in slopes], _dot(bias, key), []) for key in _fractions(axis)]
        axes.append(tokens)
    values = _fractions(memory.values.flatten(0, -2))
    return axes, _product(values, out)


def _refuse(config: Config) -> None:
    if config.layout != "packed":
        raise OnelayerError("a Coq certificate needs a layer of one query token; this one attends over a sequence")
    if config.norm != "none":
        raise OnelayerError("a Coq certificate of a layer with LayerNorm is out of reach; build it with norm='none'")
    if config.attention != "softmax":
        raise OnelayerError(f"a Coq certificate needs softmax attention; this layer uses '{config.attention}'")
    if config.embedding != "linear" or config.positions != "none":
        raise OnelayerError("a Coq certificate needs a linear embedding without positions")


def _constant(seen: Matrix) -> Vector:
    """What a head adds to the units where all its tokens agree: weights sum to one. Otherwise units read attention."""
    if any(row != seen[0] for row in seen):
        raise OnelayerError("a Coq certificate needs ReLU units of x alone; units of this layer read a head")
    return seen[0]


def _fractions(tensor: Tensor) -> Any:
    """Nested lists of the exact stored numbers."""

    def exact(item: Any) -> Any:
        if isinstance(item, list):
            return [exact(part) for part in item]
        return Fraction(item)

    return exact(tensor.detach().cpu().double().tolist())


def _floats(numbers: Sequence[Any]) -> Tensor:
    def near(item: Any) -> Any:
        if isinstance(item, Fraction):
            return float(item)
        return [near(part) for part in item]

    return torch.tensor(near(numbers), dtype=torch.float64, device="cpu")


def _zeros(rows: int, columns: int) -> Matrix:
    return [[Fraction(0)] * columns for _ in range(rows)]


def _part(row: Vector, start: int, count: int) -> Vector:
    return row[start : start + count]


def _dot(a: Vector, b: Vector) -> Fraction:
    # Zeros are left out: fractions of hundreds of digits are slow to add.
    products = (x * y for x, y in zip(a, b, strict=True) if x and y)
    return sum(products, Fraction(0))


def _row(row: Vector, matrix: Matrix) -> Vector:
    return [_dot(row, list(column)) for column in zip(*matrix, strict=True)]


def _product(a: Matrix, b: Matrix) -> Matrix:
    return [_row(row, b) for row in a]


def _sum(*rows: Vector) -> Vector:
    return [sum(column, Fraction(0)) for column in zip(*rows, strict=True)]
