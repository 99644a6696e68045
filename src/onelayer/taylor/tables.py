"""Indices and constants of the arithmetic as tensors, made once per device: a GPU must not wait for them in every call.

They are shared: nobody writes into them. They are never given up: graphs that were recorded read them by address. No
function mode sees them made, so that meters count every call alike.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.taylor import basis


@cache
def rows(index: tuple[int, ...], device: torch.device) -> Tensor:
    """Row numbers."""
    return placed(np.array(index, dtype=np.int64), device)


@cache
def multinomials(variables: int, degree: int, device: torch.device) -> Tensor:
    """``basis.multinomials``, (P,)."""
    return placed(np.array(basis.multinomials(variables, degree)), device)


@cache
def inverse_factorials(variables: int, degree: int, device: torch.device) -> Tensor:
    """``basis.inverse_factorials``, (P,)."""
    return placed(np.array(basis.inverse_factorials(variables, degree)), device)


@cache
def exponents(variables: int, degree: int, device: torch.device) -> Tensor:
    """``basis.exponents``, (P, s), as numbers."""
    return placed(basis.exponents(variables, degree).astype(np.float64), device)


def placed(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array on a device."""
    with torch._C.DisableTorchFunction():
        return torch.from_numpy(array).to(device)


def number(value: float, device: torch.device) -> Tensor:
    """One number as a tensor; filled on the device, where a copy from here would make it wait."""
    return torch.full((), value, dtype=torch.float64, device=device)
