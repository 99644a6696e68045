"""The layer of a superposition: piecewise-linear number embedding, heads that average classes of tokens, FFN."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from onelayer.build.sequences.ffn import PlacedTerm, Units
from onelayer.build.sequences.piecewise import Piecewise
from onelayer.float64 import eye, ones, zeros
from onelayer.layer.config import Config, HeadShape
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Atom

# Logits of tokens outside a head's class are this far below: exp(-64) is less than a rounding of float64.
MASK = 64.0


def superposition_layer(
    input_shape: tuple[int, ...],
    outputs: int,
    output_shape: tuple[int, ...],
    atoms: list[Atom],
    embedded: list[Piecewise],
    terms: list[PlacedTerm],
    units: Units,
    dtype: torch.dtype,
) -> OneLayerTransformer:
    """T = sum_k constant_k + sum_u change_u relu(sum_{j,c} w_kjc phi^_c(x_j) - knot_u), read at the first position.

    Column c of the embedding is phi^_c. Tokens with equal weights in all terms form a class; head h attends uniformly
    to class h, so its output times the size of the class is the sum over it, and W_1 applies the weights.
    """
    n = input_shape[0]
    count = len(atoms)
    classes = _classes(terms)
    features = len(classes) * count
    places = n if len(classes) > 1 else 0
    d_model = max(count + places, features, outputs)
    start, slope, first, bias = _ramps(input_shape, atoms, embedded, d_model)
    weights = {"ramp_start": start, "ramp_slope": slope, "W_E": first, "b_E": bias}
    heads = len(classes)
    query = zeros(d_model, heads)
    key = zeros(d_model, heads)
    constant = zeros(heads)
    # One class attends to all tokens, and needs no positions to tell them apart.
    if places:
        constant = ones(heads)
        for h, members in enumerate(classes):
            outside = ones(n)
            outside[members] = 0
            key[-n:, h] = -MASK * outside
    value = eye(d_model, count).repeat(1, heads)
    above = zeros(d_model, len(units.term))
    below = zeros(len(units.term), d_model)
    offset = np.zeros(outputs)
    for k, term in enumerate(terms):
        mine = units.term == k
        units_of_term = torch.from_numpy(mine)
        # A head averages its class: times its size that is the sum.
        column = np.concatenate([term.weights[members[0]] * len(members) for members in classes])
        above[:features, units_of_term] = torch.from_numpy(column)[:, None]
        below[units_of_term, term.output] = torch.from_numpy(units.change[mine])
        offset[term.output] += units.constants[k]
    weights |= {
        "W_Q": query,
        "b_Q": constant,
        "W_K": key,
        "W_V": value,
        "W_O": eye(features, d_model),
        "W_1": above,
        "b_1": torch.from_numpy(-units.knot),
        "W_2": below,
        "W_R": eye(d_model, outputs),
        "b_R": torch.from_numpy(offset),
    }
    config = Config(
        layout="tokens",
        input_shape=input_shape,
        output_shape=output_shape,
        d_model=d_model,
        heads=(HeadShape(1, count),) * heads,
        hidden=len(units.term),
        embedding="piecewise",
        ramps=start.shape[1],
        positions="one-hot" if places else "none",
        readout="first",
    )
    model = OneLayerTransformer(config, [None] * heads, dtype=dtype)
    model.set_weights(weights)
    return model.requires_grad_(False)


def _classes(terms: list[PlacedTerm]) -> list[list[int]]:
    """Tokens grouped by their weights in all terms."""
    stacked = np.concatenate([term.weights for term in terms], axis=1)  # (n, K C)
    found: dict[bytes, list[int]] = {}
    # + 0.0 makes -0.0 and 0.0 one number, with the same bytes.
    for token, row in enumerate(stacked + 0.0):
        found.setdefault(row.tobytes(), []).append(token)
    return list(found.values())


def _ramps(
    input_shape: tuple[int, ...], atoms: list[Atom], embedded: list[Piecewise], d_model: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ramps of all atoms of a coordinate side by side; unused ones rise beyond every number and weigh nothing."""
    width = input_shape[1] if len(input_shape) == 2 else 1
    lengths = [0] * width
    for atom, piece in zip(atoms, embedded, strict=True):
        lengths[atom.coordinate] += piece.pieces
    count = max(1, *lengths)
    start = zeros(width, count)
    slope = ones(width, count)
    first = zeros(width * count, d_model)
    bias = zeros(d_model)
    used = [0] * width
    for c, (atom, piece) in enumerate(zip(atoms, embedded, strict=True)):
        q = atom.coordinate
        begin = used[q]
        end = begin + piece.pieces
        start[q, begin:end] = torch.from_numpy(piece.knots[:-1])
        slope[q, begin:end] = torch.from_numpy(1 / np.diff(piece.knots))
        features = slice(q * count + begin, q * count + end)
        first[features, c] = torch.from_numpy(np.diff(piece.values))
        bias[c] = float(piece.values[0])
        used[q] = end
    return start, slope, first, bias
