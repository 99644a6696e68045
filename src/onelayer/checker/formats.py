"""The float formats as the checker knows them: a table of its own, so that a wrong row elsewhere is found here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class FloatFormat:
    """A format that forward passes run in: its tag in files, its name in claims, and its three numbers."""

    tag: str
    arithmetic: str
    kind: np.dtype[Any]
    unit: float  # unit roundoff
    normal: float  # smallest normal number
    largest: float


REAL = "real"
EXECUTED = (
    FloatFormat("F64", "float64 execution", np.dtype(np.float64), 2.0**-53, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
    FloatFormat("F32", "float32 execution", np.dtype(np.float32), 2.0**-24, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
)
BY_TAG = {row.tag: row for row in EXECUTED}
BY_ARITHMETIC = {row.arithmetic: row for row in EXECUTED}
BY_KIND = {row.kind: row for row in EXECUTED}
