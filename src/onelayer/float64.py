"""Float64 tensors on the CPU, and indices, whatever the global defaults of torch are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def zeros(*size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.float64, device="cpu")


def ones(*size: int) -> Tensor:
    return torch.ones(size, dtype=torch.float64, device="cpu")


def full(size: Sequence[int], value: float) -> Tensor:
    return torch.full(tuple(size), value, dtype=torch.float64, device="cpu")


def eye(rows: int, columns: int | None = None) -> Tensor:
    return torch.eye(rows, rows if columns is None else columns, dtype=torch.float64, device="cpu")


def numbers(values: Any) -> Tensor:
    """A tensor of these numbers."""
    return torch.tensor(values, dtype=torch.float64, device="cpu")


def counted(start: int, stop: int | None = None) -> Tensor:
    """0, 1, ... or start, ..., stop - 1 as float64 numbers."""
    first, last = (0, start) if stop is None else (start, stop)
    return torch.arange(first, last, dtype=torch.float64, device="cpu")


def indices(count: int) -> Tensor:
    """0, 1, ..., count - 1 as whole numbers, to index with."""
    return torch.arange(count, dtype=torch.int64, device="cpu")


def linspace(low: float, high: float, count: int) -> Tensor:
    """``count`` numbers at equal distances, both ends included."""
    return torch.linspace(low, high, count, dtype=torch.float64, device="cpu")
