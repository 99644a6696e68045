"""How comparisons, the choice by them, and steps are written in the formula language."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.language.conditions import COMPARISONS, Both, Condition, Known, Not, either
from onelayer.recording.algebra import div, of_two, unary
from onelayer.recording.dispatch import operation
from onelayer.recording.symbolic import (
    CPU,
    INFINITE,
    MINUS_INFINITY,
    Recording,
    Symbolic,
    Truth,
    lift,
    positions,
)

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
        a = _finite(tape, input).ids
        b = _finite(tape, other).ids
        shape = np.broadcast_shapes(tuple(a.shape), tuple(b.shape))
        left = a.expand(shape).flatten().tolist()
        right = b.expand(shape).flatten().tolist()
        compared = COMPARISONS[sign]
        found = [compared(tape, p, q) for p, q in zip(left, right, strict=True)]
        return Truth.of(tape, found, shape)

    return compare


def _finite(tape: Recording, value: Any) -> Symbolic:
    """The entries of a value, of which none is infinite: there is no node to compare, or to choose."""
    lifted = lift(tape, value)
    if bool((lifted.ids == MINUS_INFINITY).any()):
        raise UnsupportedOperation("-inf", INFINITE)
    return lifted


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
    conditions = [Known(bool(item)) for item in value.flatten().tolist()]
    return Truth.of(tape, conditions, tuple(value.shape))


def _joined(
    tape: Recording, name: str, join: Callable[[Condition, Condition], Condition], input: Any, other: Any
) -> Truth:
    a = truth(tape, input, name)
    b = truth(tape, other, name)
    shape = np.broadcast_shapes(tuple(a.shape), tuple(b.shape))
    first = Truth(tape, a.ids.expand(shape)).conditions
    second = Truth(tape, b.ids.expand(shape)).conditions
    both = [join(p, q) for p, q in zip(first, second, strict=True)]
    return Truth.of(tape, both, shape)


@operation("logical_and", "and", "bitwise_and")
def logical_and(tape: Recording, input: Any, other: Any) -> Truth:
    """Both."""
    return _joined(tape, "and", Both, input, other)


@operation("logical_or", "or", "bitwise_or")
def logical_or(tape: Recording, input: Any, other: Any) -> Truth:
    """At least one."""
    return _joined(tape, "or", either, input, other)


@operation("logical_xor", "xor", "bitwise_xor")
def logical_xor(tape: Recording, input: Any, other: Any) -> Truth:
    """One and not the other."""
    return _joined(tape, "xor", lambda p, q: either(Both(p, Not(q)), Both(Not(p), q)), input, other)


@operation("logical_not", "invert", "bitwise_not")
def logical_not(tape: Recording, input: Any) -> Truth:
    """The opposite."""
    known = truth(tape, input, "not")
    opposite = [Not(condition) for condition in known.conditions]
    return Truth.of(tape, opposite, tuple(known.shape))


@operation("where")
def where(tape: Recording, condition: Any, input: Any, other: Any) -> Symbolic:
    """A choice between entries; what is chosen nowhere is not in the formula."""
    # What does not depend on x is decided now: the formula has no choice in it.
    if isinstance(condition, Tensor) and condition.dtype == torch.bool:
        return Symbolic(tape, torch.where(condition, lift(tape, input).ids, lift(tape, other).ids))
    known = truth(tape, condition, "where")
    a = _finite(tape, input).ids
    b = _finite(tape, other).ids
    shape = np.broadcast_shapes(tuple(known.shape), tuple(a.shape), tuple(b.shape))
    conditions = Truth(tape, known.ids.expand(shape)).conditions
    first = a.expand(shape).flatten().tolist()
    second = b.expand(shape).flatten().tolist()
    chosen = [one.choose(tape, p, q) for one, p, q in zip(conditions, first, second, strict=True)]
    return Symbolic(tape, positions(chosen, shape))


@operation("masked_fill")
def masked_fill(tape: Recording, input: Any, mask: Any, value: Any) -> Symbolic:
    """A value where the mask holds."""
    return where(tape, mask, value, input)


def _folded(
    tape: Recording, input: Any, dim: int | None, keepdim: bool, join: Callable[[Condition, Condition], Condition]
) -> Truth:
    known = truth(tape, input, "any or all")
    rows = known.ids.reshape(1, -1) if dim is None else known.ids.movedim(dim, -1)
    shape = [] if dim is None else list(rows.shape[:-1])
    made = []
    for row in rows.reshape(-1, rows.shape[-1]).tolist():
        conditions: list[Condition] = [tape.conditions[at] for at in row]
        made.append(reduce(join, conditions))
    folded = Truth.of(tape, made, shape)
    if keepdim and dim is not None:
        return Truth(tape, folded.ids.unsqueeze(dim))
    return folded


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
    return of_two(tape, "mod", input, other)


@operation("rmod")
def rmod(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The remainder of b divided by a."""
    return remainder(tape, other, input)


@operation("threshold")
def threshold(tape: Recording, input: Any, threshold: float, value: float, inplace: bool = False) -> Symbolic:
    """x above a number, else a constant."""
    above = _compared(">")(tape, input, float(threshold))
    return where(tape, above, input, float(value))


@operation("hardshrink")
def hardshrink(tape: Recording, input: Any, lambd: float = 0.5) -> Symbolic:
    """x, but 0 near 0."""
    below = _compared("<=")(tape, input, float(lambd))
    above = _compared(">=")(tape, input, -float(lambd))
    small = _joined(tape, "and", Both, below, above)
    return where(tape, small, 0.0, input)


@operation("heaviside")
def heaviside(tape: Recording, input: Any, values: Any) -> Symbolic:
    """0 below zero, 1 above, a given value at zero."""
    at_zero = where(tape, _compared("==")(tape, input, 0.0), values, 0.0)
    return where(tape, _compared(">")(tape, input, 0.0), 1.0, at_zero)
