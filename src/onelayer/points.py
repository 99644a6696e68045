"""Numbers as users bring them: arrays, lists, tensors, or one line that says why they are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.errors import OnelayerError


def real_numbers(value: Any) -> NDArray[Any]:
    """A value as an array; ValueError for text, times, complex numbers and numbers hidden by a mask.

    NumPy would drop imaginary parts without an error, and show what lies under a mask.
    """
    refuse_masked(value)
    # NumPy knows neither all formats nor gradients.
    array = np.asarray(plain(value) if isinstance(value, Tensor) else value)
    if array.dtype.kind not in "fiubO":
        raise ValueError(f"{array.dtype} is no format of real numbers")
    return array


def refuse_masked(value: Any) -> None:
    """ValueError for an array of which a mask hides some numbers."""
    if np.ma.is_masked(value):
        raise ValueError("some numbers are masked")


def points_of(value: Any) -> NDArray[np.float64]:
    """Points as an array of float64 numbers; OnelayerError for what is none."""
    try:
        return real_numbers(value).astype(np.float64)
    # Whatever an object of another library raises where it is no number.
    except Exception as error:
        shown = f"{type(value).__name__} {value!r}" if isinstance(value, list | tuple | str) else type(value).__name__
        raise OnelayerError(f"points must be numbers of one regular shape, got {shown[:60]}") from error


def need_tensor(x: Any) -> None:
    """OnelayerError unless x is a tensor, or something that computes as one."""
    if not hasattr(type(x), "__torch_function__"):
        raise OnelayerError(f"points are a tensor, an array or a list of numbers, not {type(x).__name__}")


def dense(x: Tensor) -> Tensor:
    """A tensor that holds all of its numbers, one after another; OnelayerError for any other."""
    if x.layout != torch.strided or x.is_meta:
        kind = "without numbers" if x.is_meta else str(x.layout).removeprefix("torch.")
        raise OnelayerError(f"a plain tensor of numbers is taken, not one that is {kind}")
    return x


def plain(x: Tensor) -> Tensor:
    """A tensor as NumPy takes it, which knows neither gradients nor all formats."""
    numbers = dense(x).detach().cpu()
    return numbers.double() if numbers.is_floating_point() else numbers
