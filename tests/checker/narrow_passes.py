"""A pass of the checker in float32 without a layer of interest, and fractions as its balls."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import torch
from flint import arb, fmpq

from onelayer.checker.rounding import Execution
from onelayer.checker.weights import read_model
from onelayer.layer.file import save_model
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer


def float32_pass(folder: Path) -> Execution:
    """The execution of one token that weighs nothing."""
    zero = torch.zeros(1, 1, dtype=torch.float32)
    save_model(OneLayerTransformer.packed((1,), (), [PlainMemory(zero, zero)], dtype=torch.float32), folder)
    made = Execution.of("float32 execution", read_model(folder), ((0.0,), (1.0,)))
    assert made is not None
    return made


def ball(value: Fraction) -> arb:
    """The fraction to the precision of balls."""
    return arb(fmpq(value.numerator, value.denominator))
