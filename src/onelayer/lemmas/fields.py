"""Fields of an argument that come from a file: what is malformed ends in one line."""

from __future__ import annotations

import math
from typing import Any

from onelayer.errors import FileError


def made(kind: type[Any], data: Any) -> Any:
    fields = set(kind.__dataclass_fields__)
    need(isinstance(data, dict) and set(data) == fields, f"a malformed {kind.__name__.lower()}")
    return kind(**data)


def need(holds: bool, complaint: str) -> None:
    if not holds:
        raise FileError(complaint)


def numbers(values: Any) -> tuple[float, ...]:
    need(isinstance(values, list | tuple), "a list of numbers is needed")
    need(all(type(v) in (int, float) and math.isfinite(v) for v in values), "numbers must be finite")
    return tuple(float(v) for v in values)
