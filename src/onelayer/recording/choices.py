"""How comparisons, the choice by them, and steps are written in the formula language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.language.conditions import COMPARISONS, Both, Condition, Known, Not, either
from onelayer.language.functions import FUNCTIONS
from onelayer.recording.algebra import div, elementwise, unary
from onelayer.recording.dispatch import operation
from onelayer.recording.symbolic import CPU, Recording, Symbolic, Truth, lift, positions

_NAMES = {
    ">": ("gt", "greater"),
    "<": ("lt", "less"),
    ">=": ("ge", "greater_equal"),
    "<=": ("le", "less_equal"),
    "==": ("eq",),
    "!=": ("ne", "not_equal"),
}


def _compared(sign: str) -> Callable[..., Truth]:
    def compare(tape: Recording, input: Any, other: Any) -> Truth:
        a = lift(tape, input).ids
        b = lift(tape, other).ids
        shape = np.broadcast_shapes(tuple(a.shape), tuple(b.shape))
        pairs = zip(a.expand(shape).flatten().tolist(), b.expand(shape).flatten().tolist(), strict=True)
        return Truth.of(tape, [COMPARISONS[sign](tape, p, q) for p, q in pairs], shape)

    return compare


for _sign, _spelled in _NAMES.items():
    operation(*_spelled)(_compared(_sign))


def truth(tape: Recording, value: Any, name: str) -> Truth:
    """A comparison, or a tensor of bools that do not depend on x."""
    if isinstance(value, Truth):
        return value
    if isinstance(value, bool):
        value = torch.tensor(value, dtype=torch.bool, device=CPU)
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        raise UnsupportedOperation(name, "its condition must be a comparison such as x > 0, or a tensor of bools")
    return Truth.of(tape, [Known(bool(item)) for item in value.flatten().tolist()], tuple(value.shape))


def _joined(
    tape: Recording, name: str, join: Callable[[Condition, Condition], Condition], input: Any, other: Any
) -> Truth:
    a = truth(tape, input, name)
    b = truth(tape, other, name)
    shape = np.broadcast_shapes(tuple(a.shape), tuple(b.shape))
    first, second = (Truth(tape, side.ids.expand(shape)).conditions for side in (a, b))
    return Truth.of(tape, [join(p, q) for p, q in zip(first, second, strict=True)], shape)


@operation("logical_and", "and", "bitwise_and")
def logical_and(tape: Recording, input: Any, other: Any) -> Truth:
    """Both."""
    return _joined(tape, "and", Both, input, other)


@operation("logical_or", "or", "bitwise_or")
def logical_or(tape: Recording, input: Any, other: Any) -> Truth:
    """At least one."""
    return _joined(tape, "or", either, input, other)


@operation("logical_not", "invert", "bitwise_not")
def logical_not(tape: Recording, input: Any) -> Truth:
    """The opposite."""
    known = truth(tape, input, "not")
    return Truth.of(tape, [Not(condition) for condition in known.conditions], tuple(known.shape))


@operation("where")
def where(tape: Recording, condition: Any, input: Any, other: Any) -> Symbolic:
    """A choice between entries; what is chosen nowhere is not in the formula."""
    a = lift(tape, input).ids
    b = lift(tape, other).ids
    if isinstance(condition, Tensor) and condition.dtype == torch.bool:
        return Symbolic(tape, torch.where(condition, a, b))
    known = truth(tape, condition, "where")
    shape = np.broadcast_shapes(tuple(known.shape), tuple(a.shape), tuple(b.shape))
    conditions = Truth(tape, known.ids.expand(shape)).conditions
    sides = (side.expand(shape).flatten().tolist() for side in (a, b))
    chosen = [condition.choose(tape, p, q) for condition, p, q in zip(conditions, *sides, strict=True)]
    return Symbolic(tape, positions(chosen, shape))


@operation("masked_fill")
def masked_fill(tape: Recording, input: Any, mask: Any, value: Any) -> Symbolic:
    """A value where the mask holds."""
    return where(tape, mask, value, input)


def _folded(
    tape: Recording, input: Any, dim: int | None, keepdim: bool, join: Callable[[Condition, Condition], Condition]
) -> Truth:
    known = truth(tape, input, "any or all")
    rows = known.ids.reshape(-1)[None] if dim is None else known.ids.movedim(dim, -1)
    shape = [] if dim is None else list(rows.shape[:-1])
    each: list[Sequence[Condition]] = [
        [tape.conditions[at] for at in row] for row in rows.reshape(-1, rows.shape[-1]).tolist()
    ]
    made = Truth.of(tape, [reduce(join, row) for row in each], shape)
    if keepdim and dim is not None:
        return Truth(tape, made.ids.unsqueeze(dim))
    return made


@operation("any")
def any_of(tape: Recording, input: Any, dim: int | None = None, keepdim: bool = False) -> Truth:
    """Whether one holds, along a dimension or at all."""
    return _folded(tape, input, dim, keepdim, either)


@operation("all")
def all_of(tape: Recording, input: Any, dim: int | None = None, keepdim: bool = False) -> Truth:
    """Whether all hold, along a dimension or at all."""
    return _folded(tape, input, dim, keepdim, Both)


@operation("floor_divide", "floordiv")
def floor_divide(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The floor of a / b."""
    return unary(tape, "floor", div(tape, input, other))


@operation("rfloordiv")
def rfloordiv(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The floor of b / a."""
    return floor_divide(tape, other, input)


@operation("remainder", "mod")
def remainder(tape: Recording, input: Any, other: Any) -> Symbolic:
    """Python's: it has the sign of ``other``."""
    return elementwise(tape, lambda tape, a, b: FUNCTIONS["mod"].build(tape, [a, b]), input, other)


@operation("rmod")
def rmod(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The remainder of b divided by a."""
    return remainder(tape, other, input)


@operation("threshold")
def threshold(tape: Recording, input: Any, threshold: float, value: float, inplace: bool = False) -> Symbolic:
    """x above a number, else a constant."""
    return where(tape, _compared(">")(tape, input, float(threshold)), input, float(value))


@operation("hardshrink")
def hardshrink(tape: Recording, input: Any, lambd: float = 0.5) -> Symbolic:
    """x, but 0 near 0."""
    small = _joined(
        tape, "and", Both, _compared("<=")(tape, input, float(lambd)), _compared(">=")(tape, input, -float(lambd))
    )
    return where(tape, small, 0.0, input)


@operation("heaviside")
def heaviside(tape: Recording, input: Any, values: Any) -> Symbolic:
    """0 below zero, 1 above, a given value at zero."""
    at_zero = where(tape, _compared("==")(tape, input, 0.0), values, 0.0)
    return where(tape, _compared(">")(tape, input, 0.0), 1.0, at_zero)
