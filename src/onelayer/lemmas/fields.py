"""Fields of an argument that come from a file: what is malformed ends in one line."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from onelayer.errors import FileError


def places(values: Sequence[Any], count: int) -> bool:
    """Whether these are whole numbers from 0 to count - 1."""
    return all(type(value) is int and 0 <= value < count for value in values)


def records(kind: type[Any], given: Any) -> tuple[Any, ...]:
    """Records of that kind, those among them that are still fields made."""
    return tuple(one if isinstance(one, kind) else made(kind, one) for one in given)


def made(kind: type[Any], data: Any) -> Any:
    """A record of that kind from its fields; those that have a default may be missing."""
    complaint = f"a malformed {_spoken(kind.__name__)}"
    need(isinstance(data, dict), complaint)
    fields = kind.__dataclass_fields__
    needed = {name for name, field in fields.items() if field.default is MISSING}
    need(needed <= set(data) <= set(fields), complaint)
    return kind(**data)


def need(holds: bool, complaint: str) -> None:
    """FileError with this complaint where something does not hold."""
    if not holds:
        raise FileError(complaint)


def numbers(values: Any) -> tuple[float, ...]:
    """A list of finite numbers."""
    need(isinstance(values, list | tuple), "a list of numbers is needed")
    need(all(type(v) in (int, float) and math.isfinite(v) for v in values), "numbers must be finite")
    return tuple(float(v) for v in values)


def _spoken(name: str) -> str:
    """The words of a class name: TokenTerm is a token term."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
