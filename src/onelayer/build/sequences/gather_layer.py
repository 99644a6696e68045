"""The layer that gathers a sequence at every position: positional heads of finite temperature, then ReLU units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.sequences.ffn import PlacedTerm, Units
from onelayer.errors import OnelayerError
from onelayer.float64 import eye, full, zeros
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.transformer import NORM_EPS, OneLayerTransformer

# Logit of the token a head looks for; the others have 0. Any other would do: W_1 undoes the mixing.
TEMPERATURE = 3.0
# Size of the constant pair that keeps LayerNorm close to a constant factor.
ANCHOR = 2.0**16
# Numbers of a sequence whose constant pair, below 2^17 times as large, still has squares in float64.
LARGEST_NORMALISED = 1e148


@dataclass(frozen=True)
class StreamShape:
    """Where things lie in a token: its numbers, the gathered sequence, the outputs, its one-hot position last.

    With a normalisation every feature has a twin of opposite sign, and a pair of large constants stands in front.
    """

    length: int
    width: int
    outputs: int
    norm: bool

    @property
    def base(self) -> int:
        """Numbers in the stream: own token, all tokens, outputs, position."""
        tokens = self.length * self.width
        return self.width + tokens + self.outputs + self.length

    @property
    def d_model(self) -> int:
        """Width of the stream, doubled and anchored where a norm must not change it."""
        if self.norm:
            return 2 * self.base + 2
        return self.base

    @property
    def gathered(self) -> slice:
        """Where all tokens are written."""
        return slice(self.width, self.width + self.length * self.width)

    @property
    def read(self) -> slice:
        """Where the outputs are read."""
        start = self.width + self.length * self.width
        return slice(start, start + self.outputs)

    @property
    def place(self) -> slice:
        """Where the position is marked."""
        return slice(self.base - self.length, self.base)

    def spread(self, columns: Tensor) -> Tensor:
        """Written features (..., base) -> (..., d_model), twins included."""
        if not self.norm:
            return columns
        pair = columns.new_zeros(*columns.shape[:-1], 2)
        return torch.cat([columns, -columns, pair], -1)

    def seen(self, rows: Tensor) -> Tensor:
        """Weights on features (base, ...) -> (d_model, ...): only the first of each pair is looked at."""
        unseen = self.d_model - self.base
        return torch.cat([rows, rows.new_zeros(unseen, *rows.shape[1:])])


def gather_layer(
    box: Box,
    output_shape: tuple[int, ...],
    terms: list[PlacedTerm],
    units: Units,
    *,
    outputs: int,
    residual: bool,
    norm: str,
    dtype: torch.dtype,
) -> OneLayerTransformer:
    """Head r looks from position i for token i + r (mod n): logits TEMPERATURE there and 0 elsewhere.

    With a = e^L / (e^L + n - 1) and b = 1 / (e^L + n - 1) the gathered numbers are C x, C = (a - b) I + b 1 1^T, in
    the coordinates relative to the position. C is invertible with C^-1 = (I - b 1 1^T) / (a - b), since its rows sum
    to one, so W_1 can ask for any linear function of the sequence, at any temperature. A term of one position has units
    relu(s - t - gate (1 - [i = position])), shut elsewhere.
    """
    n = box.shape[0]
    width = box.dim // n
    shape = StreamShape(n, width, outputs, norm != "none")
    named = _attention(shape, residual)
    named |= _feed_forward(shape, box, terms, units, residual)
    if shape.norm:
        named |= _norms(shape, box, residual, norm)
    config = Config(
        layout="tokens",
        input_shape=tuple(box.shape),
        output_shape=output_shape,
        d_model=shape.d_model,
        heads=(HeadShape(n, width if residual else width + n),) * n,
        hidden=len(units.term),
        residual=residual,
        norm=norm,
        positions="learned" if shape.norm else "one-hot",
        readout="each" if output_shape[:1] == (n,) else "first",
    )
    model = OneLayerTransformer(config, [None] * n, dtype=dtype)
    model.set_weights(named)
    return model.requires_grad_(False)


def _attention(shape: StreamShape, residual: bool) -> dict[str, Tensor]:
    """Embedding, positions and the n heads. Without a residual stream, head 0 carries the position along."""
    n = shape.length
    d = shape.width
    base = shape.base
    basis = eye(base)
    d_v = d if residual else d + n
    query = zeros(base, n * n)
    key = zeros(base, n * n)
    value = zeros(base, n * d_v)
    output = zeros(n * d_v, base)
    for r in range(n):
        columns = slice(r * n, (r + 1) * n)
        carried = slice(r * d_v, r * d_v + d)
        gathered = slice(d + r * d, d + (r + 1) * d)
        target = torch.roll(eye(n), r, dims=1)  # row i has its one at i + r
        query[shape.place, columns] = TEMPERATURE * math.sqrt(n) * target
        key[shape.place, columns] = eye(n)
        value[:d, carried] = eye(d)
        output[carried, gathered] = eye(d)
    if not residual:
        position = slice(d, d + n)
        value[shape.place, position] = eye(n)
        output[position, shape.place] = eye(n)
    named = {
        "W_E": shape.spread(basis[:d]),
        "W_Q": shape.seen(query),
        "W_K": shape.seen(key),
        "W_V": shape.seen(value),
        "W_O": shape.spread(output),
        "W_R": shape.seen(basis[:, shape.read]),
    }
    if shape.norm:
        named["position"] = shape.spread(basis[shape.place])
    return named


def _feed_forward(
    shape: StreamShape, box: Box, terms: list[PlacedTerm], units: Units, residual: bool
) -> dict[str, Tensor]:
    """W_1 undoes the mixing of the heads and applies the gates; W_2 adds to the outputs."""
    n = shape.length
    falls = math.exp(TEMPERATURE) + n - 1
    near = math.exp(TEMPERATURE) / falls
    far = 1 / falls
    # The code of a position, at it and at the others.
    here, elsewhere = (1.0, 0.0) if residual else (near, far)
    first = np.zeros((shape.base, len(units.term)))
    second = np.zeros((len(units.term), shape.base))
    bias = -units.knot.copy()
    offset = np.zeros(shape.outputs)
    for k, term in enumerate(terms):
        mine = np.flatnonzero(units.term == k)
        # Head r gathers the token r places further, so weights are counted from the position.
        relative = np.roll(term.weights, -(term.position or 0), axis=0)
        undone = (relative - far * relative.sum(0)) / (near - far)  # C^-1 w, C symmetric
        first[shape.gathered, mine] = undone.reshape(-1)[:, None]
        second[mine, shape.read.start + term.output] = units.change[mine]
        offset[term.output] += units.constants[k]
        if term.position is not None:
            # Twice the largest argument that a unit can have elsewhere.
            farthest = float(np.abs(units.knot[mine]).max())
            gate = 2 * (_reach(term, box) + farthest) / (here - elsewhere)
            first[shape.place.start + term.position, mine] = gate
            bias[mine] -= gate * here
    return {
        "W_1": shape.seen(torch.from_numpy(first)),
        "b_1": torch.from_numpy(bias),
        "W_2": shape.spread(torch.from_numpy(second)),
        "b_R": torch.from_numpy(offset),
    }


def _reach(term: PlacedTerm, box: Box) -> float:
    """Bound of |w . x| whichever token of the box meets which weight."""
    return float(np.abs(term.weights).sum()) * _largest(box) + 1


def _largest(box: Box) -> float:
    """The largest number of the box in absolute value."""
    return float(torch.maximum(box.lower.abs(), box.upper.abs()).max())


def _norms(shape: StreamShape, box: Box, residual: bool, norm: str) -> dict[str, Tensor]:
    """A pair of constants +-L in front of features of size about 1: LayerNorm then divides by nearly a constant.

    The features come with twins of opposite sign, so their mean is zero; the gain undoes the constant factor. The
    factor varies by |features|^2 / (2 L^2), which the proof accounts for. A residual stream carries the pair along;
    without one, the bias of every matrix whose result is normalised writes it anew.
    """
    largest = max(1.0, _largest(box))
    if largest > LARGEST_NORMALISED:
        raise OnelayerError(
            f"a norm squares what it sees: keep the box within +-{LARGEST_NORMALISED:g}, or norm='none'"
        )
    anchor = ANCHOR * 2.0 ** math.ceil(math.log2(largest))
    bias = zeros(shape.d_model)
    bias[-2] = anchor
    bias[-1] = -anchor
    # About what the squares of all tokens add up to: the gain undoes a typical factor.
    middle = (box.lower**2 + box.upper**2).sum() / 2 / 3
    named = {"b_E": bias}
    if not residual:
        named["b_O"] = bias
    if not residual and norm == "post":
        named["b_2"] = bias
    own = middle / shape.length + 1
    gathered = middle * (1 + 1 / shape.length) + 1
    for which, features in (("1", own), ("2", gathered)):
        variance = (2 * anchor**2 + 2 * float(features)) / shape.d_model
        named[f"gain_{which}"] = full((shape.d_model,), math.sqrt(variance + NORM_EPS))
    return named
