"""Kernels are loaded, and on a machine that never used them compiled, before the clock of a deadline runs."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from onelayer.taylor import variables
from onelayer.taylor.kernels import INSTALLED


@cache
def prepare() -> None:
    """Use every kernel once, on a few boxes; seconds the first time on a machine, less than one in a new process."""
    if not INSTALLED:
        return
    # Softmax, product, quotient, sums, an interval, and a contraction without a common variable: all of them.
    low = torch.zeros(2, 2, dtype=torch.float64, device="cpu")
    x: Any = variables(low, low + 0.5, 3, execution=torch.float64)
    a, b = x[..., 0], x[..., 1]
    weights = torch.softmax(torch.stack([a, b, a * 2.0], dim=-1), dim=-1)
    values = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, device="cpu")
    head = (weights @ values) * torch.sin(b) / (a * a + 1.5)
    apart = torch.einsum("bi,bi->b", x[..., :1], x[..., 1:])  # one variable each
    enclosed: Any = torch.relu(head - 0.25) - torch.exp(a * b) + apart
    enclosed.plain().split_bound()
