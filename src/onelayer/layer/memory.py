"""Persistent memory of one head: constant keys and values that a query attends to, plain or stored by grid axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from onelayer.errors import OnelayerError
from onelayer.layer.config import HeadShape

MAX_TOKENS = 2**28  # 2 GiB of float64 numbers per column


class PlainMemory(nn.Module):
    """M memory tokens: ``keys`` (M, d_k) and ``values`` (M, d_v)."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        matrices = keys.ndim == 2 and values.ndim == 2
        if not matrices or len(keys) != len(values) or len(keys) == 0:
            raise OnelayerError(
                f"plain memory needs keys (M, d_k) and values (M, d_v), got {tuple(keys.shape)}, {tuple(values.shape)}"
            )
        # Copies: numbers that a caller changes later are not to change under a certificate.
        self.keys = nn.Parameter(keys.detach().clone())
        self.values = nn.Parameter(values.detach().clone())

    @property
    def shape(self) -> HeadShape:
        """The shape that a configuration states of it."""
        count, d_k = self.keys.shape
        return HeadShape(d_k, self.values.shape[1], "plain", (count,))

    def plain_tokens(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Keys (M, d_k) and values (M, d_v), converted to ``dtype`` if given."""
        keys = self.keys.to(dtype or self.keys.dtype)
        values = self.values.to(dtype or self.values.dtype)
        return keys, values

    def nonzeros(self) -> int:
        """Numbers of keys and values that are not zero."""
        keys = torch.count_nonzero(self.keys)
        values = torch.count_nonzero(self.values)
        return int(keys + values)


class GridMemory(nn.Module):
    """Tokens on a tensor grid, stored by axes.

    Token (m_1, ..., m_r) has key sum_a axes[a][m_a] and value values[m_1, ..., m_r]. Its logit is a sum over the axes,
    so softmax over all M_1 ... M_r tokens is the product over the axes of one softmax each:
    alpha_m(q) = prod_a softmax(q . axes[a] / sqrt(d_k))[m_a]. ``axes`` are (M_a, d_k), ``values`` (M_1, ..., M_r, d_v).
    """

    def __init__(self, axes: Sequence[Tensor], values: Tensor) -> None:
        super().__init__()
        counts = tuple(int(axis.shape[0]) for axis in axes)
        # What follows the count in the shape of each axis: the same single d_k for all.
        widths = {tuple(axis.shape[1:]) for axis in axes}
        alike = len(widths) == 1 and len(next(iter(widths))) == 1
        if not alike or tuple(values.shape[:-1]) != counts:
            raise OnelayerError(
                "grid memory needs axes (M_a, d_k) and values (M_1, ..., M_r, d_v), got axes "
                f"{[tuple(axis.shape) for axis in axes]} and values {tuple(values.shape)}"
            )
        own = [nn.Parameter(axis.detach().clone()) for axis in axes]
        self.axes = nn.ParameterList(own)
        self.values = nn.Parameter(values.detach().clone())

    @property
    def shape(self) -> HeadShape:
        """The shape that a configuration states of it."""
        *tokens, d_v = self.values.shape
        d_k = self.axes[0].shape[1]
        return HeadShape(d_k, d_v, "grid", tuple(tokens))

    def plain_tokens(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """The same tokens one by one in row-major order: keys (M, d_k), values (M, d_v) with M = M_1 ... M_r.

        Converted to ``dtype`` if given, before the keys of the axes are added.
        """
        count = math.prod(self.values.shape[:-1])
        # A small file may hold a grid that no memory could hold written out.
        if count > MAX_TOKENS:
            raise OnelayerError(f"a grid of {count:,} tokens is too large to write out (limit {MAX_TOKENS:,})")
        dtype = dtype or self.values.dtype
        keys = _grid_keys([axis.to(dtype) for axis in self.axes])
        return keys, self.values.to(dtype).reshape(count, -1)

    def nonzeros(self) -> int:
        """Numbers of keys and values, written out, that are not zero.

        Column by column: most columns belong to one axis, and the others repeat what they have.
        """
        count = math.prod(self.values.shape[:-1])
        found = int(torch.count_nonzero(self.values))
        for column in range(self.axes[0].shape[1]):
            entries = [axis.detach()[:, column : column + 1] for axis in self.axes]
            parts = [entry for entry in entries if bool(entry.any())]
            if parts:
                keys = _grid_keys(parts)
                repeated = count // len(keys)
                found += int(torch.count_nonzero(keys)) * repeated
        return found


Memory = PlainMemory | GridMemory


def _grid_keys(axes: Sequence[Tensor]) -> Tensor:
    """Keys of all tokens of a grid, (M_1 ... M_r, d_k): the sum of one key per axis, row-major."""
    keys = axes[0]
    # One axis after another, so that the last one is the fastest.
    for axis in axes[1:]:
        keys = (keys[:, None, :] + axis).flatten(0, 1)  # (M_1 ... M_a, d_k)
    return keys


def random_memory(shape: HeadShape, generator: torch.Generator, dtype: torch.dtype) -> Memory | None:
    """Memory of the given shape with standard normal keys and values, the start of a training run."""

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=dtype, device="cpu")

    if shape.memory == "none":
        return None
    values = normal(*shape.tokens, shape.d_v)
    if shape.memory == "plain":
        return PlainMemory(normal(shape.tokens[0], shape.d_k), values)
    axes = [normal(count, shape.d_k) for count in shape.tokens]
    return GridMemory(axes, values)
