"""Formats of recorded tensors other than float64: counts, masks as numbers, choices between plain numbers.

Torch computes them in bool, in int64, or in its default format, which need not be float64: 16777217 * (x > 0) is
16777216 in float32, and two bools add up to one. Lemma: where every value that a node can take is a number of its
format, and so is every value on the way there, no operation rounds, and what is computed is the real number. Whatever
else such a tensor would hold is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from onelayer.recording.exact import DOUBLE, fraction, holds, need_exact, rounding
from onelayer.recording.symbolic import Recording, Symbolic, Truth

# Arguments that choose, and so have no part in the format of the result.
_CHOOSING = {"tape", "condition", "condlist", "funclist", "mask"}
_LIKE = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor", "masked_fill"}
_COUNTING = {"sum", "prod", "cumsum"}
_DIVIDING = {"div", "divide", "truediv", "true_divide", "rtruediv", "reciprocal", "mean"}


def settled(tape: Recording, name: str, arguments: Mapping[str, Any], result: Any) -> Any:
    """The result of an operation on these arguments, in its format; refused where the format would round it."""
    given = {key: value for key, value in arguments.items() if key not in _CHOOSING}
    kind = promoted(tape, name, given)
    if kind == DOUBLE:
        return result
    # A number beside a narrow tensor is taken in the tensor's format, in comparisons too.
    numbers = (value for value in _flat(given) if isinstance(value, float))
    if not all(holds(kind, fraction(value)) for value in numbers):
        raise rounding(name, kind)
    for part in _flat(result):
        if isinstance(part, Symbolic):
            need_exact(tape, name, part.ids, kind)
            part.kind = kind
    return result


def promoted(tape: Recording, name: str, given: Mapping[str, Any]) -> torch.dtype:
    """The format that torch, or NumPy, computes in."""
    if given.get("dtype") == DOUBLE:
        return DOUBLE
    parts = list(_flat([given.get("input")] if name in _LIKE else given))
    tensors = [part for part in parts if isinstance(part, (Symbolic, Truth, Tensor))]
    if tensors and all(_kind(part) == DOUBLE for part in tensors):
        return DOUBLE
    kind = _together(tape, tensors) if tensors else torch.bool
    return kind if kind.is_floating_point else _of_whole(tape, name, kind, parts)


def _of_whole(tape: Recording, name: str, kind: torch.dtype, parts: Sequence[Any]) -> torch.dtype:
    """The format of what is computed of whole numbers or bools, and Python's numbers beside them."""
    if name in _DIVIDING or any(isinstance(part, float) for part in parts):
        return tape.default
    if kind == torch.bool and (name in _COUNTING or any(type(part) is int for part in parts)):
        return torch.int64
    return kind


def _together(tape: Recording, tensors: list[Any]) -> torch.dtype:
    """The common format of tensors. Torch lets those with dimensions outweigh numbers, NumPy does not."""
    if tape.default == DOUBLE:
        return reduce(torch.promote_types, map(_kind, tensors))
    stand_ins = [torch.empty([1] * part.ndim, dtype=_kind(part), device="cpu") for part in tensors]
    while len(stand_ins) > 1:
        first, second, *rest = stand_ins
        kind = torch.result_type(first, second)
        stand_ins = [torch.empty([1] * max(first.ndim, second.ndim), dtype=kind, device="cpu"), *rest]
    return stand_ins[0].dtype


def _kind(part: Any) -> torch.dtype:
    if isinstance(part, Symbolic):
        return part.kind
    found: torch.dtype = part.dtype
    return found


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _flat(part)
    else:
        yield value
