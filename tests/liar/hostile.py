"""Global settings of torch that a proof must not depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import torch

SETTINGS: dict[str, Callable[[], None]] = {
    "plain": lambda: None,
    "default float64": lambda: torch.set_default_dtype(torch.float64),
    "default float16": lambda: torch.set_default_dtype(torch.float16),
    "default bfloat16": lambda: torch.set_default_dtype(torch.bfloat16),
    "device meta": lambda: torch.set_default_device("meta"),
    "flush denormal": lambda: torch.set_flush_denormal(True) and None,
    "matmul medium": lambda: torch.set_float32_matmul_precision("medium"),
    "gradients": lambda: torch.set_grad_enabled(True),
    "no gradients": lambda: torch.set_grad_enabled(False),
}


@contextmanager
def setting(name: str) -> Iterator[None]:
    """One hostile setting, given back afterwards."""
    dtype, precision, gradients = (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.is_grad_enabled(),
    )
    try:
        SETTINGS[name]()
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(dtype)
        torch.set_flush_denormal(False)
        torch.set_float32_matmul_precision(precision)
        torch.set_grad_enabled(gradients)


def draw(rng: Random) -> str:
    return rng.choice(list(SETTINGS)) if rng.random() < 0.25 else "plain"
