"""Layers for tables: softmax heads over features, over pairs of features and over scattered points.

Every head is a partition of unity, so a prediction is linear in the values of the tokens. Inputs are standardised
numbers; the stream of the layer carries them beside the outputs, so an affine part is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.build.lookup.families import softmax
from onelayer.layer.memory import GridMemory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

Array = NDArray[np.float64]

# Difference of two neighbours' logits from one centre to the next: weights pass over smoothly in about one spacing.
PASSAGE = 4.0
# Penalties on size and on slopes, relative to those on curvature. No claim that they are optimal.
SIZE_PENALTY = 0.05
AFFINE_PENALTY = 1e-3  # of the affine part, small against that of the tokens


@dataclass(frozen=True)
class GridHead:
    """One softmax over the grid of some features; ``slopes`` and ``biases`` of the tokens per axis."""

    features: tuple[int, ...]
    slopes: tuple[Array, ...]
    biases: tuple[Array, ...]

    def weights(self, x: Array) -> Array:
        """(n, M): the product of the softmax weights of the axes, row-major."""
        rows = np.ones((len(x), 1))
        for feature, slopes, biases in zip(self.features, self.slopes, self.biases, strict=True):
            axis = softmax(x[:, [feature]] * slopes + biases)
            both = rows[:, :, None] * axis[:, None, :]
            rows = both.reshape(len(x), -1)
        return rows

    def penalty(self) -> Array:
        """Squared second differences along every axis plus a share of the size, (M, M)."""
        return curvature(tuple(len(slopes) for slopes in self.slopes))

    def query(self, width: int) -> tuple[Tensor, Tensor]:
        """W_Q (width, r + 1) and b_Q of q = sqrt(r + 1) (u_1, ..., u_r, 1)."""
        count = len(self.features)
        weight = torch.zeros(width, count + 1).double()
        bias = torch.zeros(count + 1).double()
        for a, feature in enumerate(self.features):
            weight[feature, a] = math.sqrt(count + 1)
        bias[count] = math.sqrt(count + 1)
        return weight, bias

    def memory(self, values: Array) -> GridMemory:
        """Axis a keeps its slopes in key feature a and its biases in key feature r."""
        count = len(self.features)
        axes = []
        for a, (slopes, biases) in enumerate(zip(self.slopes, self.biases, strict=True)):
            keys = torch.zeros(len(slopes), count + 1).double()
            keys[:, a] = torch.from_numpy(slopes)
            keys[:, count] = torch.from_numpy(biases)
            axes.append(keys)
        sizes = [len(slopes) for slopes in self.slopes]
        return GridMemory(axes, torch.from_numpy(values).reshape(*sizes, -1))


@dataclass(frozen=True)
class PointHead:
    """One softmax over scattered points: logit -|s (x - c)|^2 up to a term shared by all tokens."""

    centres: Array  # (M, D)
    scale: Array  # (D,)

    def weights(self, x: Array) -> Array:
        """Softmax weights of the centres for every row."""
        slopes, biases = self._keys()
        return softmax(x @ slopes.T + biases)

    def penalty(self) -> Array:
        """What regularisation charges for the values."""
        return np.eye(len(self.centres))

    def query(self, width: int) -> tuple[Tensor, Tensor]:
        """W_Q and b_Q that read the coordinates."""
        dim = len(self.scale)
        weight = torch.zeros(width, dim + 1).double()
        bias = torch.zeros(dim + 1).double()
        weight[:dim, :dim] = math.sqrt(dim + 1) * torch.eye(dim).double()
        bias[dim] = math.sqrt(dim + 1)
        return weight, bias

    def memory(self, values: Array) -> PlainMemory:
        """The head as memory tokens with these values."""
        keys = np.column_stack(self._keys())
        return PlainMemory(torch.from_numpy(keys), torch.from_numpy(values))

    def _keys(self) -> tuple[Array, Array]:
        """Slopes and biases of -|s (x - c)|^2 + |s x|^2 = 2 s^2 c . x - |s c|^2."""
        slopes = 2 * self.centres * self.scale**2
        biases = -((self.centres * self.scale) ** 2).sum(1)
        return slopes, biases


Head = GridHead | PointHead


@dataclass(frozen=True)
class Basis:
    """Heads and an affine part on standardised inputs (x - mean) / scale."""

    heads: tuple[Head, ...]
    mean: Array
    scale: Array

    def features(self, x: Array) -> Array:
        """(n, P) from raw inputs: weights of all tokens, head by head, then the standardised inputs."""
        u = (x - self.mean) / self.scale
        return np.concatenate([*(head.weights(u) for head in self.heads), u], axis=1)

    def root(self, affine: float = AFFINE_PENALTY) -> Array:
        """R with R R' the inverse of the penalty, (P, P): values R w have penalty |w|^2; ``affine`` that of slopes."""
        blocks = [head.penalty() for head in self.heads]
        blocks.append(affine * np.eye(len(self.mean)))
        size = sum(map(len, blocks))
        root = np.zeros((size, size))
        at = 0
        for block in blocks:
            end = at + len(block)
            # P = L L' has the inverse (L^-1)' L^-1.
            root[at:end, at:end] = np.linalg.inv(np.linalg.cholesky(block)).T
            at = end
        return root

    def model(self, values: Array, intercept: Array) -> OneLayerTransformer:
        """The packed layer for raw inputs: standardise in the embedding, look up, add, read out, (D,) -> (K,)."""
        outputs = values.shape[1]
        dim = len(self.mean)
        memory = []
        queries = []
        at = 0
        for head in self.heads:
            tokens = len(head.penalty())
            memory.append(head.memory(values[at : at + tokens]))
            queries.append(head.query(dim + outputs))
            at += tokens
        if not self.heads:
            # A layer has at least one head, here with one token of value zero.
            silent = PointHead(np.zeros((1, dim)), np.ones(dim))
            memory.append(silent.memory(np.zeros((1, outputs))))
            queries.append(silent.query(dim + outputs))
        # The residual stream holds the D standardised inputs, then the K outputs that the heads add up.
        eye = torch.eye(outputs).double()
        nothing = torch.zeros(dim, outputs).double()
        mean = torch.from_numpy(self.mean)
        scale = torch.from_numpy(self.scale)
        weights: dict[str, Tensor | Sequence[Tensor]] = {
            "W_E": torch.cat([torch.diag(1 / scale), nothing], dim=1),
            "b_E": torch.cat([-mean / scale, torch.zeros(outputs).double()]),
            "W_Q": [weight for weight, _ in queries],
            "b_Q": [bias for _, bias in queries],
            "W_O": torch.cat([nothing.T, eye], dim=1).repeat(len(memory), 1),
            "W_R": torch.cat([torch.from_numpy(values[at:]), eye]),
            "b_R": torch.from_numpy(intercept),
        }
        width = dim + outputs
        return OneLayerTransformer.packed((dim,), (outputs,), memory, d_model=width, residual=True, weights=weights)


@lru_cache(maxsize=64)
def curvature(sizes: tuple[int, ...]) -> Array:
    """Squared second differences along every axis of a grid of values plus a share of their size, (M, M)."""
    total = SIZE_PENALTY * np.eye(math.prod(sizes))
    for a, size in enumerate(sizes):
        bend = np.diff(np.eye(size), n=min(2, size - 1), axis=0)
        before = np.eye(math.prod(sizes[:a]))
        behind = np.eye(math.prod(sizes[a + 1 :]))
        total += np.kron(before, np.kron(bend.T @ bend, behind))
    total.setflags(write=False)  # shared by all heads of these sizes
    return total


def grid_head(u: Array, features: Sequence[int], count: int) -> GridHead | None:
    """A grid head over some features of the data, with ``count`` tokens per axis; None where a feature is constant."""
    keys = [axis_keys(u[:, feature], count) for feature in features]
    if any(len(slopes) < 2 for slopes, _ in keys):
        return None
    slopes, biases = zip(*keys, strict=True)
    return GridHead(tuple(features), slopes, biases)


def axis_keys(values: Array, count: int) -> tuple[Array, Array]:
    """Slopes and biases of at most ``count`` tokens at quantiles of the values.

    Token m is the strongest between the midpoints to its neighbours: slopes grow by PASSAGE / gap from centre to
    centre, and biases make neighbouring logits equal half way.
    """
    centres = np.unique(np.quantile(values, np.linspace(0, 1, count)))
    # Centres closer than a millionth of the range count as one: slopes between them would be millions, and cancel.
    far = np.diff(centres) > 1e-6 * np.ptp(values)
    centres = np.concatenate([centres[:1], centres[1:][far]])
    steps = PASSAGE / np.diff(centres)
    half_ways = steps * (centres[1:] + centres[:-1]) / 2
    slopes = np.concatenate([[0.0], np.cumsum(steps)])
    biases = np.concatenate([[0.0], -np.cumsum(half_ways)])
    # A slope that all tokens share softmax does not see: without it the logits are as small as can be.
    middle = (slopes[0] + slopes[-1]) / 2
    return slopes - middle, biases
