"""How torch functions are written in the formula language, entry by entry; and tensors made of constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from onelayer.errors import UnsupportedOperation
from onelayer.language.functions import FUNCTIONS, SOFT
from onelayer.language.operations import OPERATIONS
from onelayer.recording.dispatch import operation, same_type
from onelayer.recording.symbolic import CPU, INFINITE, MINUS_INFINITY, ONE, ZERO, Recording, Symbolic, lift, positions

Fold = Callable[[Recording, int, int], int]


def elementwise(tape: Recording, function: Callable[..., int], *args: Any) -> Symbolic:
    """Broadcast the arguments and apply a function of tape positions entry by entry."""
    raw = [lift(tape, arg).ids for arg in args]
    shape = torch.Size(np.broadcast_shapes(*(part.shape for part in raw)))
    flat = [part.expand(shape).flatten().tolist() for part in raw]
    # A masked logit can only be added to: no other operation has a meaning for minus infinity.
    if function is not add_entries and any(MINUS_INFINITY in part for part in flat):
        raise UnsupportedOperation("-inf", INFINITE)
    ids = [function(tape, *entries) for entries in zip(*flat, strict=True)]
    return Symbolic(tape, positions(ids, shape))


def unary(tape: Recording, name: str, x: Any) -> Symbolic:
    """A one-argument function of the formula language."""
    return elementwise(tape, lambda tape, a: FUNCTIONS[name].build(tape, [a]), x)


# Lemma: what the next functions leave out is a literal 0 or 1, or the product of 0 with a node that has a value
# everywhere; so the shorter formula is undefined where the longer one is.
def add_entries(tape: Recording, a: int, b: int) -> int:
    """Node of a + b, with zeros left out; a masked entry stays masked."""
    if MINUS_INFINITY in (a, b):
        return MINUS_INFINITY
    if a == ZERO:
        return b
    if b == ZERO:
        return a
    first = tape.nodes[a]
    second = tape.nodes[b]
    # A sum of two choices by one condition is one choice: each side is enclosed without the other.
    if first.op == second.op == "where" and first.args[0] == second.args[0]:
        condition, *ours = first.args
        sides = (add_entries(tape, *pair) for pair in zip(ours, second.args[1:], strict=True))
        return tape.add("where", condition, *sides)
    return tape.add("add", a, b)


def _chosen(tape: Recording, mask: int, b: int) -> int | None:
    """(x < 1) * b as where(x < 1, b, 0), None where the first factor is no choice between 0 and 1.

    Both are one function where b has values everywhere; as a choice, each side is enclosed on its own.
    """
    if tape.nodes[mask].op != "where" or not tape.total[b]:
        return None
    return _masked(tape, mask, b)


def _masked(tape: Recording, mask: int, b: int) -> int | None:
    """A nested choice between 0 and 1 with b in the place of 1."""
    if mask in (ZERO, ONE):
        return b if mask == ONE else ZERO
    node = tape.nodes[mask]
    if node.op != "where":
        return None
    condition, one, other = node.args
    first = _masked(tape, one, b)
    second = _masked(tape, other, b)
    if first is None or second is None:
        return None
    return tape.add("where", condition, first, second)


def _sub(tape: Recording, a: int, b: int) -> int:
    if b == ZERO:
        return a
    if a == ZERO:
        return _neg(tape, b)
    return tape.add("sub", a, b)


def _neg(tape: Recording, a: int) -> int:
    if a == ZERO:
        return ZERO
    return tape.add("neg", a)


def mul_entries(tape: Recording, a: int, b: int) -> int:
    """Node of a b, with zeros and ones left out."""
    # 0 times a node without a value somewhere has none there either: only a total one may be left out.
    if (a == ZERO and tape.total[b]) or (b == ZERO and tape.total[a]):
        return ZERO
    if a == ONE:
        return b
    if b == ONE:
        return a
    chosen = _chosen(tape, a, b)
    if chosen is None:
        chosen = _chosen(tape, b, a)
    return tape.add("mul", a, b) if chosen is None else chosen


def _div(tape: Recording, a: int, b: int) -> int:
    if b == ONE:
        return a
    # Only where the divisor is a number other than zero: any other may vanish somewhere.
    if a == ZERO and tape.exact[b]:
        return ZERO
    return tape.add("div", a, b)


def min_entries(tape: Recording, a: int, b: int) -> int:
    """Node of min(a, b)."""
    if a == b:
        return a
    return tape.add("min", a, b)


def max_entries(tape: Recording, a: int, b: int) -> int:
    """Node of max(a, b)."""
    if a == b:
        return a
    return tape.add("max", a, b)


_SPELLINGS = {"asinh": ("arcsinh",), "acosh": ("arccosh",), "atanh": ("arctanh",)}


def _register_functions() -> None:
    """Every one-argument function of the language is recorded under its own name."""
    in_place = ("relu", "silu")
    for name, function in FUNCTIONS.items():
        if name not in SOFT and function.most == 1 and name not in ("gelu", "softplus", "ln"):
            spellings = OPERATIONS[name].spellings if name in OPERATIONS else _SPELLINGS.get(name, ())
            # By the names that torch has for them, of which some take inplace=.
            operation(name, *spellings)(_written(name, name in in_place))


def _written(name: str, in_place: bool) -> Callable[..., Symbolic]:
    def plain(tape: Recording, input: Any) -> Symbolic:
        return unary(tape, name, input)

    def either(tape: Recording, input: Any, inplace: bool = False) -> Symbolic:
        return unary(tape, name, input)

    # An argument that torch's function does not have must stay refused.
    return either if in_place else plain


_register_functions()


@operation("add", "radd")
def add(tape: Recording, input: Any, other: Any, *, alpha: float = 1) -> Symbolic:
    """a + alpha b, as torch has it."""
    scaled = other if alpha == 1 else mul(tape, other, alpha)
    return elementwise(tape, add_entries, input, scaled)


@operation("sub", "subtract")
def sub(tape: Recording, input: Any, other: Any, *, alpha: float = 1) -> Symbolic:
    """a - alpha b, as torch has it."""
    scaled = other if alpha == 1 else mul(tape, other, alpha)
    return elementwise(tape, _sub, input, scaled)


@operation("rsub")
def rsub(tape: Recording, input: Any, other: Any, *, alpha: float = 1) -> Symbolic:
    """b - a."""
    return sub(tape, other, input, alpha=alpha)


@operation("mul", "multiply", "rmul")
def mul(tape: Recording, input: Any, other: Any) -> Symbolic:
    """a b."""
    return elementwise(tape, mul_entries, input, other)


@operation("div", "divide", "truediv", "true_divide")
def div(tape: Recording, input: Any, other: Any, *, rounding_mode: str | None = None) -> Symbolic:
    """a / b; a rounding mode is refused."""
    if rounding_mode is not None:
        raise UnsupportedOperation("div(rounding_mode)", "rounding is discontinuous")
    return elementwise(tape, _div, input, other)


@operation("rtruediv")
def rdiv(tape: Recording, input: Any, other: Any) -> Symbolic:
    """b / a."""
    return div(tape, other, input)


@operation("reciprocal")
def reciprocal(tape: Recording, input: Any) -> Symbolic:
    """1 / a."""
    return div(tape, 1.0, input)


@operation("rsqrt")
def rsqrt(tape: Recording, input: Any) -> Symbolic:
    """1 / sqrt(a)."""
    return div(tape, 1.0, unary(tape, "sqrt", input))


@operation("neg", "negative")
def neg(tape: Recording, input: Any) -> Symbolic:
    """-a."""
    return elementwise(tape, _neg, input)


@operation("pow", "float_power")
def power(tape: Recording, input: Any, exponent: Any) -> Symbolic:
    """a to a constant power."""
    return elementwise(tape, lambda tape, a, b: tape.power(a, b), input, exponent)


@operation("rpow")
def rpow(tape: Recording, exponent: Any, input: Any) -> Symbolic:
    """A constant to the power a."""
    return power(tape, input, exponent)


@operation("maximum", "fmax")
def maximum(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The larger of two."""
    return elementwise(tape, max_entries, input, other)


@operation("minimum", "fmin")
def minimum(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The smaller of two."""
    return elementwise(tape, min_entries, input, other)


@operation("clamp", "clip")
def clamp(tape: Recording, input: Any, min: Any = None, max: Any = None) -> Symbolic:
    """min(max(x, low), high)"""
    if min is None and max is None:
        raise UnsupportedOperation("clamp", "give min or max")
    x = lift(tape, input) if min is None else maximum(tape, input, min)
    if max is None:
        return x
    return minimum(tape, x, max)


@operation("lerp")
def lerp(tape: Recording, input: Any, end: Any, weight: Any) -> Symbolic:
    """start + weight (end - start)."""
    return add(tape, input, mul(tape, weight, sub(tape, end, input)))


@operation("atan2", "arctan2")
def atan2(tape: Recording, input: Any, other: Any) -> Symbolic:
    """The angle of the point (b, a)."""
    return of_two(tape, "atan2", input, other)


@operation("hypot")
def hypot(tape: Recording, input: Any, other: Any) -> Symbolic:
    """sqrt(a^2 + b^2)."""
    return of_two(tape, "hypot", input, other)


def of_two(tape: Recording, name: str, a: Any, b: Any) -> Symbolic:
    """A two-argument function of the formula language."""
    return elementwise(tape, lambda tape, *ids: FUNCTIONS[name].build(tape, list(ids)), a, b)


@operation("pad")
def pad(tape: Recording, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Symbolic:
    """Entries around the entries: constants, or in the other modes copies."""
    ids = lift(tape, input).ids
    if mode == "constant":
        filler = tape.number(0.0 if value is None else float(value))
        return Symbolic(tape, torch.nn.functional.pad(ids, pad, value=filler))
    # The other modes move entries; torch has them for floats only, which hold positions exactly.
    moved = torch.nn.functional.pad(ids.to(torch.float64), pad, mode=mode)
    return Symbolic(tape, moved.to(torch.int64))


# Settings of a constant tensor, none of which changes a value.
PLACED = "layout device requires_grad memory_format pin_memory"


@operation("zeros_like", neutral=PLACED)
def zeros_like(tape: Recording, input: Symbolic, *, dtype: Any = None) -> Symbolic:
    """Zeros in the shape of a recorded tensor."""
    return full_like(tape, input, 0.0, dtype=dtype)


@operation("ones_like", neutral=PLACED)
def ones_like(tape: Recording, input: Symbolic, *, dtype: Any = None) -> Symbolic:
    """Ones in the shape of a recorded tensor."""
    return full_like(tape, input, 1.0, dtype=dtype)


@operation("full_like", neutral=PLACED)
def full_like(tape: Recording, input: Symbolic, fill_value: Any, *, dtype: Any = None) -> Symbolic:
    """One value in the shape of a recorded tensor."""
    same_type(dtype)
    return _constant(tape, tuple(input.shape), fill_value)


@operation("new_zeros", neutral=PLACED)
def new_zeros(tape: Recording, input: Symbolic, *sizes: Any, size: Any = (), dtype: Any = None) -> Symbolic:
    """Zeros."""
    same_type(dtype)
    return _constant(tape, sizes or size, 0.0)


@operation("new_ones", neutral=PLACED)
def new_ones(tape: Recording, input: Symbolic, *sizes: Any, size: Any = (), dtype: Any = None) -> Symbolic:
    """Ones."""
    same_type(dtype)
    return _constant(tape, sizes or size, 1.0)


@operation("new_full", neutral=PLACED)
def new_full(tape: Recording, input: Symbolic, size: Any, fill_value: Any, *, dtype: Any = None) -> Symbolic:
    """One value."""
    same_type(dtype)
    return _constant(tape, size, fill_value)


@operation("new_tensor", neutral=PLACED)
def new_tensor(tape: Recording, input: Symbolic, data: Any, *, dtype: Any = None) -> Symbolic:
    """Constants."""
    same_type(dtype)
    # Torch copies here: writing into one must not write into the other.
    return Symbolic(tape, lift(tape, data).ids.clone())


def _constant(tape: Recording, size: Any, value: Any) -> Symbolic:
    """A tensor of that size, given as numbers or as one sequence, filled with one number."""
    whole = len(size) == 1 and not isinstance(size[0], int)
    shape = tuple(size[0] if whole else size)
    node = tape.number(float(value))
    return Symbolic(tape, torch.full(shape, node, dtype=torch.int64, device=CPU))
