"""Six states of the process that a rigorous computation must not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import numpy as np
import torch
from flint import ctx


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _meta_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def _flushed() -> Iterator[None]:
    """Denormals flushed, and every NumPy warning an error."""
    torch.set_flush_denormal(True)
    try:
        with np.errstate(all="raise"):
            yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def _coarse() -> Iterator[None]:
    """Products in reduced precision, gradients on, deterministic kernels, and a flint precision of a few bits."""
    bits = ctx.prec
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True)
    ctx.prec = 10
    try:
        with torch.enable_grad():
            yield
    finally:
        ctx.prec = bits
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")


@contextmanager
def _autocast() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        yield


HOSTILE: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "float16": lambda: _default_dtype(torch.float16),
    "bfloat16": lambda: _default_dtype(torch.bfloat16),
    "meta device": _meta_device,
    "flushed denormals": _flushed,
    "coarse products": _coarse,
    "autocast and inference": _autocast,
}
