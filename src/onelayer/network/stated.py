"""What a program says of its own operations: which argument is which, and what the result of each is like.

Both are held against it. An argument is the one that the schema of the operation has under its name, wherever it
stands; a result has the shape and the format that the program states, or the rule that wrote it meant something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.network.builder import NetworkWriter, Value

# Where a tensor lies changes no value of it.
PLACED = ("device", "pin_memory", "layout")


def in_order(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as rules take them: those with a place in that order, defaults in gaps, the others by their names."""
    placed = [item for item in schema.arguments if not item.kwarg_only]
    given = _given(schema, [item.name for item in placed], args, kwargs)
    count = max((at for at, item in enumerate(placed, start=1) if item.name in given), default=0)
    ordered = [_taken(schema, item, given) for item in placed[:count]]
    names = {item.name for item in placed} | {*PLACED}
    return ordered, {name: given[name] for name in given.keys() - names}


def _given(schema: Any, placed: list[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by their names, each once."""
    if len(args) > len(placed):
        raise UnsupportedOperation(str(schema.name)[:60], f"it has {len(placed)} arguments in their order")
    given = dict(zip(placed, args, strict=False))
    strange = [name for name in kwargs if name in given or name not in {item.name for item in schema.arguments}]
    if strange:
        raise UnsupportedOperation(str(schema.name)[:60], f"its argument {strange[0][:40]!r} is given twice or unknown")
    return given | dict(kwargs)


def _taken(schema: Any, item: Any, given: Mapping[str, Any]) -> Any:
    if item.name not in given and not item.has_default_value():
        raise UnsupportedOperation(str(schema.name)[:60], f"its argument {item.name!r} is not given")
    return given.get(item.name, item.default_value)


def need_stated(build: NetworkWriter, name: str, value: Any, shape: Sequence[Any], dtype: torch.dtype | None) -> None:
    """What a rule or torch made of an operation is what the program states of its result."""
    if not isinstance(value, Tensor | Value):
        return
    kind = value.dtype if isinstance(value, Tensor) else build.dtype
    if kind != dtype:
        raise UnsupportedOperation(name[:60], f"it is {kind} here, and another format there")
    if tuple(value.shape) != tuple(shape):
        raise UnsupportedOperation(name[:60], f"its shape is {tuple(value.shape)} here, and {tuple(shape)} there")


def need_sides(name: str, value: Any, sides: Sequence[int | None] | None) -> None:
    """What a rule made of an operation has the sides that are known of its result; None: nothing is."""
    if sides is None or value is None:
        return
    own = np.shape(value) if not isinstance(value, Value) else value.shape
    if len(own) != len(sides) or any(side not in (None, here) for here, side in zip(own, sides, strict=True)):
        raise UnsupportedOperation(name[:40], f"its shape is {own} here, and {tuple(sides)} there")
