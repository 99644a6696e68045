"""The float formats as the checker knows them: a table of its own, so that a wrong row elsewhere is found here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FloatFormat:
    """A format that forward passes run in: its tag in files, its name in claims, and its three numbers.

    A layer of float16 or bfloat16 computes in float32 (``kind``) and rounds what each operation returns: ``held`` has
    the unit roundoff of what it is rounded to, the error of a number too small for it (bfloat16 may be flushed to zero
    below its normal numbers, float16 underflows gradually), and its largest number.
    """

    tag: str
    arithmetic: str
    kind: np.dtype[Any]  # computed in
    unit: float  # unit roundoff
    normal: float  # smallest normal number
    largest: float
    held: tuple[float, float, float] | None = None

    @property
    def most(self) -> float:
        """The largest number that a layer may hold."""
        if self.held is None:
            return self.largest
        return self.held[2]


REAL = "real"
_SINGLE = (np.dtype(np.float32), 2.0**-24, 2.0**-126, (2 - 2.0**-23) * 2.0**127)
EXECUTED = (
    FloatFormat("F64", "float64 execution", np.dtype(np.float64), 2.0**-53, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
    FloatFormat("F32", "float32 execution", np.dtype(np.float32), 2.0**-24, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
    FloatFormat("F16", "float16 execution", *_SINGLE, held=(2.0**-11, 2.0**-25, 65504.0)),
    FloatFormat("BF16", "bfloat16 execution", *_SINGLE, held=(2.0**-8, 2.0**-126, (2 - 2.0**-7) * 2.0**127)),
)
BY_TAG = {row.tag: row for row in EXECUTED}
BY_ARITHMETIC = {row.arithmetic: row for row in EXECUTED}
BY_KIND = {row.kind: row for row in EXECUTED if row.held is None}
WHOLE = "I8"  # whole numbers with scales beside them, which make float32 numbers
# How NumPy reads each tag; it has no bfloat16, whose numbers come as their 16 bits.
READ = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "uint16", WHOLE: "int8"}


def is_point(point: Sequence[float], arithmetic: str) -> bool:
    """Whether a forward pass can be given the point: its coordinates are numbers of the format; real ones are all."""
    if arithmetic == REAL:
        return True
    row = BY_ARITHMETIC[arithmetic]
    exact = np.array(point, dtype=np.float64)
    with np.errstate(over="ignore"):
        given = exact.astype(row.kind)
    return bool(((given if row.held is None else narrowed(given, row.tag)) == exact).all())


def narrowed(values: NDArray[np.float32], tag: str) -> NDArray[np.float32]:
    """float32 numbers rounded to nearest, ties to even, in the narrow format of that tag."""
    if tag == "F16":
        return values.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    kept = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return np.where(np.isfinite(values), kept.view(np.float32), values)
