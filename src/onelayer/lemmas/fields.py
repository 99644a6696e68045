"""Fields of an argument that come from a file: what is malformed ends in one line."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from onelayer.errors import FileError

LARGEST_SIZE = 2**20  # inputs, outputs or tokens: far above any layer, and lists of that length still fit the memory


def places(values: Sequence[Any], count: int) -> bool:
    """Whether these are whole numbers from 0 to count - 1."""
    # By type, not isinstance: true and false are ints to Python and no places in a file.
    return all(type(value) is int and 0 <= value < count for value in values)


def are_sizes(values: Sequence[Any]) -> bool:
    """Whether these are whole numbers from 1 to the largest size."""
    return places(values, LARGEST_SIZE + 1) and min(values) >= 1


def settle(record: object, **fields: Any) -> None:
    """Put checked values into a frozen record while it is made."""
    for name, value in fields.items():
        object.__setattr__(record, name, value)


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
    finite = (type(v) in (int, float) and math.isfinite(v) for v in values)
    need(all(finite), "numbers must be finite")
    return tuple(float(v) for v in values)


def need_gap(gap: Any) -> None:
    """FileError unless this is a finite number >= 0."""
    number = type(gap) in (int, float)
    need(number and 0 <= gap < math.inf, "gap must be a number >= 0")


def _spoken(name: str) -> str:
    """The words of a class name: TokenTerm is a token term."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
