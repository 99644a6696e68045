"""The float formats that layers have and certificates speak of: each is one row here.

A format of ``bits`` significant bits and largest exponent ``exponent`` (IEEE 754, rounding to nearest) has

    unit roundoff              2^-bits
    smallest normal number     2^(1 - exponent)
    smallest number            2^(2 - exponent - bits)
    largest number             2^exponent (2 - 2^(1 - bits)).

A wide format computes in itself. A narrow one holds weights and activations, and a layer computes in its
``accumulator``: a number of the narrow format is exact there, and what an operation returns is rounded back once.

The independent checker shares nothing with this table and has rows of its own, in ``checker/formats.py``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from onelayer.errors import OnelayerError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Format:
    """A float format: ``name`` for torch, NumPy and people, ``tag`` in files of weights, ``accumulator`` if narrow."""

    name: str
    tag: str
    bits: int
    exponent: int
    accumulator: str | None = None

    @property
    def unit(self) -> float:
        """Unit roundoff: the largest relative error of rounding to nearest."""
        return 2.0**-self.bits

    @property
    def normal(self) -> float:
        """The smallest normal number: below it, rounding errors are no longer relative."""
        return 2.0 ** (1 - self.exponent)

    @property
    def smallest(self) -> float:
        """The smallest number above zero."""
        return 2.0 ** (2 - self.exponent - self.bits)

    @property
    def underflow(self) -> float:
        """Absolute error of a cast to the format of a number that is too small for it.

        Underflow is gradual and to nearest, so half the smallest number, unless the smallest normal number is that of
        float32: processors may then flush to zero.
        """
        if self.normal <= 2.0**-126:
            return self.normal
        return self.smallest / 2

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return math.ldexp(2.0 - 2.0 ** (1 - self.bits), self.exponent)

    @property
    def execution(self) -> str:
        """What a certificate calls the arithmetic of a forward pass in this format."""
        return f"{self.name} execution"

    @property
    def dtype(self) -> torch.dtype:
        """The format as torch knows it; torch is imported only here, so that the table costs nothing."""
        import torch

        found = getattr(torch, self.name)
        if not isinstance(found, torch.dtype):
            raise OnelayerError(f"torch has no format {self.name}")
        return found

    @property
    def computing(self) -> Format:
        """The format in which a layer computes: this one, or the accumulator of a narrow one."""
        if self.accumulator is None:
            return self
        return named(self.accumulator)


FLOAT64 = Format("float64", "F64", 53, 1023)
FLOAT32 = Format("float32", "F32", 24, 127)
FLOAT16 = Format("float16", "F16", 11, 15, "float32")
BFLOAT16 = Format("bfloat16", "BF16", 8, 127, "float32")

# From the most precise to the least.
WIDE = (FLOAT64, FLOAT32)
FORMATS = (*WIDE, FLOAT16, BFLOAT16)
NAMES = tuple(row.name for row in FORMATS)
REAL = "real"  # what a certificate calls exact arithmetic
MODEL_DTYPE = "model dtype"  # the execution to prove something of: that of the format of the weights
ARITHMETICS = (REAL, *(row.execution for row in FORMATS))


def either(prefix: str = "", rows: Iterable[Format] = FORMATS) -> str:
    """The names of formats in a sentence: ``float64, float32, float16 or bfloat16``."""
    *others, last = (prefix + row.name for row in rows)
    return f"{', '.join(others)} or {last}"


def named(name: Any) -> Format:
    """The format of that name, or OnelayerError."""
    for row in FORMATS:
        if row.name == name:
            return row
    raise OnelayerError(f"dtype must be {either()}, got {name}")


def format_of(dtype: Any) -> Format:
    """The format of a torch dtype, or OnelayerError."""
    if not are_formats([dtype]):
        raise OnelayerError(f"dtype must be {either('torch.')}, got {dtype}")
    return _by_dtype()[dtype]


def are_formats(dtypes: Iterable[Any]) -> bool:
    """Whether every one of these torch dtypes is a row of the table."""
    rows = _by_dtype()
    return all(isinstance(dtype, Hashable) and dtype in rows for dtype in dtypes)


def coarsest(dtypes: Iterable[torch.dtype]) -> torch.dtype:
    """The least precise of these torch dtypes: its rounding covers that of the others."""
    rows = map(format_of, dtypes)
    return min(rows, key=lambda row: row.bits).dtype


def spelled(dtype: torch.dtype | str) -> str:
    """The name of any torch dtype, a format of ours or not, or of one that is named: ``float64``, ``int32``."""
    return str(dtype).removeprefix("torch.")


@cache
def _by_dtype() -> dict[torch.dtype, Format]:
    return {row.dtype: row for row in FORMATS}
