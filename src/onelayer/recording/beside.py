"""Torch itself beside the recording: every operation is run on numbers too, and must be what was written of it.

An operation is known by its name, and read by what torch, or NumPy, means by that name. Where it is read wrongly, f and
its formula need not differ at any point that is looked at: a factor that vanishes but for one place in 10^8 hides what
stands beside it. So whatever is recorded carries the numbers that it has at a few points of the box, as a tensor of
torch or an array of NumPy, and each operation is run on these as f runs it. Refused is one whose result has another
shape, other values than its nodes, or shares its memory with other arguments than the recording has it.

Lemma: what passes is, at these points, what f computes there, operation by operation, and what is written into one of
its tensors is seen in the same others. Nodes are balls there, wider than the rounding of float64 by 13 bits at every
operation and by the smallest normal number: no order of sums and no underflow is taken for a wrong reading.

Code may also ask what it is given, and go another way. So what torch computes beside the recording is followed as an
expression of the argument (expressed.py), and must be the one that f is on tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flint import arb
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.expressed import expression_of_any
from onelayer.formats import spelled
from onelayer.language.balls import ball
from onelayer.language.conditions import Both, Condition, Known, Not, Positive
from onelayer.recording.recorded import Recorded
from onelayer.recording.symbolic import CPU, MINUS_INFINITY, Recording, Symbolic

WIDE, TINY = arb(1, 2.0**-40), arb(0, 2.0**-1022)
OTHERWISE = "what it computes is not what would be recorded of it; write it with other operations"
LAYOUT = "whether it is a view is not what would be recorded of it; write it with a clone"


def points_of(box: Box | None, batch: int, shape: Sequence[int]) -> Tensor:
    """Points for a recording: of the box, or where there is none any numbers."""
    if box is not None:
        return box.sample(batch).reshape(batch, *shape)
    size = (batch, *shape)
    generator = torch.Generator("cpu").manual_seed(1)
    return torch.rand(size, generator=generator, dtype=torch.float64, device=CPU)


def run_beside(tape: Recording, name: str, function: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The result, with the numbers that the function itself has for it; refused where these are not its own."""
    given: list[Recorded] = []
    numbers, named = _numbers(args, given), _numbers(kwargs, given)
    if any(one.beside is None for one in given):
        return result
    with tape.followed:
        returned = function(*numbers, **named)
    for found, computed in _pairs(result, returned):
        _need_same(tape, name, found, computed)
        for one in given:
            _need_same_memory(tape, name, found, computed, one)
        if found.beside is None:
            found.beside = computed
    return result


def need_same_way(tape: Recording, f: Callable[..., Any], found: Any) -> None:
    """Refuse torch code that computes otherwise on tensors than it did while it was recorded with this result."""
    if tape.points is None:
        return
    numbers = found.beside if isinstance(found, Recorded) else found
    if expression_of_any(f, tape.points) != tape.followed.expressions(numbers):
        raise OnelayerError(
            "f computes otherwise on numbers than while it is recorded; it must not ask what it is given"
        )


def _numbers(value: Any, given: list[Recorded]) -> Any:
    """Nested arguments with numbers in the place of what is recorded, which is appended to ``given``."""
    if isinstance(value, Recorded):
        given.append(value)
        return value.beside
    if isinstance(value, Mapping):
        return {key: _numbers(part, given) for key, part in value.items()}
    if isinstance(value, list):
        return [_numbers(part, given) for part in value]
    if isinstance(value, tuple):
        return tuple(_numbers(part, given) for part in value)
    return value


def _pairs(result: Any, computed: Any) -> Iterator[tuple[Recorded, Any]]:
    """Everything recorded in a result, with what was computed in its place."""
    if isinstance(result, Recorded):
        yield result, computed
    elif isinstance(result, list | tuple):
        for part, numbers in zip(result, computed, strict=True):
            yield from _pairs(part, numbers)


def _need_same(tape: Recording, name: str, found: Recorded, computed: Any) -> None:
    """Refuse a result of another shape, or of which an entry is not the value of its node."""
    inner = found.inner
    # Of a tensor whose gradient was asked for, NumPy is given no numbers.
    numbers = np.asarray(computed.detach() if isinstance(computed, Tensor) else computed)
    # What is in torch's default format is in float64 here.
    formats = {spelled(inner.dtype), "float64" if inner.dtype == tape.default else ""}
    if tuple(numbers.shape) != tuple(inner.shape) or numbers.dtype.name not in formats:
        tape.refuse(name, OTHERWISE)
    pairs = zip(inner.ids.flatten().tolist(), numbers.ravel().tolist(), strict=True)
    same = _is_value if isinstance(inner, Symbolic) else _is_truth
    if not all(same(tape, at, number) for at, number in pairs):
        tape.refuse(name, OTHERWISE)


def _is_value(tape: Recording, at: int, number: float) -> bool:
    """Whether a number may be the value of a node; what overflows, or has no value, tells nothing."""
    if at < 0:
        return at != MINUS_INFINITY or number == -np.inf
    value = _ball(tape, at)
    return not (value.is_finite() and np.isfinite(number)) or bool(value.overlaps(arb(number)))


def _is_truth(tape: Recording, at: int, number: bool) -> bool:
    holds = _holds(tape, tape.conditions[at])
    return holds is None or holds == number


def _holds(tape: Recording, condition: Condition) -> bool | None:
    """Whether a condition holds at the points; None where rounding may decide."""
    if isinstance(condition, Known):
        return condition.holds
    if isinstance(condition, Not):
        inner = _holds(tape, condition.inner)
        return None if inner is None else not inner
    if isinstance(condition, Both):
        both = [_holds(tape, part) for part in (condition.first, condition.second)]
        return None if None in both and False not in both else all(both)
    return _is_positive(_ball(tape, condition.node)) if isinstance(condition, Positive) else None


def _is_positive(value: arb) -> bool | None:
    # Comparisons of balls are false where they are not sure.
    if value > 0:
        return True
    return False if value <= 0 else None


def _ball(tape: Recording, at: int) -> arb:
    """The value of a node at the points of the recording, wide enough for any rounding on the way to it."""
    known = tape.balls
    for node in tape.nodes[len(known) : at + 1]:
        if node.op == "var":
            value = arb(tape.numbers[int(node.value)])
        else:
            value = ball(node, [known[arg] for arg in node.args])
        known.append(value * WIDE + TINY)
    return known[at]


def _need_same_memory(tape: Recording, name: str, found: Recorded, computed: Any, given: Recorded) -> None:
    """Refuse a result that is a view of an argument, and recorded as none, or the other way round."""
    if not found.inner.ids.numel():
        return
    recorded = _storage(found.inner.ids) == _storage(given.inner.ids)
    shared = _storage(computed) == _storage(given.beside)
    # Where the layout in memory decides, a copy is recorded that knows its twin.
    if (recorded and not shared) or (shared and not recorded and not tape.twins.are(found.inner.ids, given.inner.ids)):
        tape.refuse(name, LAYOUT)


def _storage(numbers: Any) -> Any:
    """What tells the memory of a tensor or an array from that of others."""
    if isinstance(numbers, Tensor):
        return numbers.untyped_storage().data_ptr()
    while isinstance(getattr(numbers, "base", None), np.ndarray):
        numbers = numbers.base
    return id(numbers)
