"""The forward pass of T as a proof may use it: on private copies, one tensor out, or one line that says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from onelayer.errors import ModelAssumptionError, OnelayerError, UnsupportedOperation
from onelayer.taylor.core import TaylorModel

Forward = Callable[[Any], Any]


def execute(model: Forward, x: Tensor, outputs: tuple[int, ...] | None = None) -> Tensor:
    """What T returns for the points x (C, *event), (C, *outputs) in the format of x.

    T gets its own copy of the points, so that it cannot change the ones under test.
    """
    with _one_line("the model", x):
        y = model(x.clone())
    if not isinstance(y, Tensor) or y.dtype != x.dtype:
        kind = str(y.dtype) if isinstance(y, Tensor) else type(y).__name__
        raise ModelAssumptionError(f"the model returns {kind} for points in {x.dtype}; it must return one such tensor")
    _check_shape("the model", tuple(y.shape), len(x), outputs)
    return y.detach()


def enclose(function: Forward, x: TaylorModel, outputs: tuple[int, ...], name: str = "the model") -> Any:
    """A Taylor model of ``function`` on the boxes of x, (B, *outputs); a plain tensor where it ignores x."""
    with _one_line(name, x):
        y = function(x)
    if not isinstance(y, TaylorModel) and not (isinstance(y, Tensor) and y.is_floating_point()):
        raise UnsupportedOperation(f"{name} on Taylor models", f"it returns {type(y).__name__}")
    _check_shape(name, tuple(y.shape), len(x), outputs)
    return y


def _check_shape(name: str, shape: tuple[int, ...], count: int, outputs: tuple[int, ...] | None) -> None:
    if shape[:1] != (count,) or (outputs is not None and shape[1:] != outputs):
        wanted = "(B, *outputs)" if outputs is None else f"(B, {', '.join(map(str, outputs))})"
        raise ModelAssumptionError(
            f"{name} turns a batch of B = {count} points into shape {shape}; each point must have its own row, {wanted}"
        )


@contextmanager
def _one_line(name: str, x: Any) -> Iterator[None]:
    """Errors of foreign code become one line of ours; running out of memory stays what it is."""
    try:
        yield
    except (OnelayerError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        line = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:200]}"
        if isinstance(x, Tensor):
            raise OnelayerError(f"{name} failed on a batch of shape {tuple(x.shape)} in {x.dtype} ({line})") from error
        raise UnsupportedOperation(f"{name} on Taylor models", line) from error
