"""What a GPU does otherwise: sums over the rows of polynomials in one pass, and no waiting for flags.

The sums need Triton; everything works without. The lemmas are those of the plain way: sums in some order, rounded up
afterwards (taylor/rounding.py).
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.taylor import basis, tables
from onelayer.taylor.rounding import GROWTH, TINY

INSTALLED = importlib.util.find_spec("triton") is not None
BLOCK = 256  # columns of a program; eight bytes each, two per thread
WIDTH = 8  # variables that a program sums for at least: fewer programs to compile
DEVICES = {"cuda"}


def ready(coef: Tensor) -> bool:
    """Whether the kernels can read these coefficients."""
    return INSTALLED and coef.device.type in DEVICES and coef.is_contiguous() and coef.numel() > 0


@cache
def _program() -> Any:
    return importlib.import_module("onelayer.taylor.fused_triton")


@cache
def _upwards(device: torch.device) -> Tensor:
    return tables.placed(np.array([TINY, GROWTH]), device)


def sums(coef: Tensor, variables: int, degree: int) -> tuple[Tensor, Tensor]:
    """Absolute sums per degree (degree + 1, *shape), and their sum, rounded upwards."""
    shape = coef.shape[1:]
    columns = math.prod(coef.shape[1:])
    ends = tuple(basis.count(variables, d - 1) for d in range(degree + 2))
    if ends[-1] != len(coef):
        raise IndexError(f"{len(coef)} rows where {ends[-1]} were due")
    # Filled with NaN: an entry that a program forgets is undecided.
    norms = torch.full((degree + 1, *shape), torch.nan, dtype=torch.float64, device=coef.device)
    total = torch.full(shape, torch.nan, dtype=torch.float64, device=coef.device)
    blocks = tables.rows(ends, coef.device)
    upwards = _upwards(coef.device)
    grid = (-(-columns // BLOCK),)
    _program().sums[grid](coef, blocks, upwards, norms, total, columns, degree, BLOCK=BLOCK)
    return norms, total


def any_of(flags: Tensor) -> bool:
    """Whether to act on flags: if one is set. On a GPU always, for waiting to see costs more than acting in vain."""
    return flags.is_cuda or bool(flags.any())


def weighted_sizes(coef: Tensor, table: Tensor) -> Tensor:
    """sum_p |coef[p]| table[p, i], (s, *shape), from rows (P, *shape) and weights (P, s). Rounded as it comes."""
    if ready(coef):
        return shares(coef, table)
    sums: Tensor = torch.tensordot(table.T, coef.abs(), dims=1)
    return sums


def shares(coef: Tensor, table: Tensor) -> Tensor:
    """``weighted_sizes`` by a kernel."""
    shape = coef.shape[1:]
    columns = math.prod(coef.shape[1:])
    if len(table) != len(coef) or not table.is_contiguous():
        raise IndexError(f"a table of {len(table)} rows for {len(coef)}")
    variables = table.shape[1]
    out = torch.full((variables, *shape), torch.nan, dtype=torch.float64, device=coef.device)
    width = max(WIDTH, 1 << (variables - 1).bit_length())
    grid = (-(-columns // BLOCK),)
    _program().shares[grid](coef, table, out, len(coef), columns, variables, WIDTH=width, BLOCK=BLOCK)
    return out
