"""Numbers in a format other than float64 that no operation rounds: every value that a node can take is followed.

Lemma: where every value that a node can take is a number of its format, and so is every value on the way there, no
operation rounds, and what is computed is the real number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.formats import spelled
from onelayer.language.operations import POWER, operation
from onelayer.language.tree import Node, Tape

HINT = "make its numbers of the format of x first, as x.new_tensor(0.1) and (x > 0).double() are"
DOUBLE = torch.float64
MOST = 2**14  # values of one node that are followed
# Whole numbers that float64 holds too: what is counted may be multiplied by x later.
LARGEST = 2**53
# Operations of rational numbers on rational numbers.
_RATIONAL = {"add", "sub", "mul", "div", "neg", "min", "max", "abs", "relu", "floor", POWER}
_HIGHEST = 4  # exponent that is followed
Values = frozenset[Fraction] | None


def rounding(name: str, kind: torch.dtype) -> UnsupportedOperation:
    """What is said of an operation that a format may round."""
    return UnsupportedOperation(name, f"its numbers are in {spelled(kind)}, which may round them; {HINT}")


def need_exact(tape: Tape, name: str, ids: Tensor, kind: torch.dtype) -> None:
    """Refuse entries of which some value is no number of the format, or comes from one that is none."""
    if kind == DOUBLE:
        return
    found = _possible(tape, {at for at in ids.flatten().tolist() if at >= 0})
    for values in found.values():
        if values is None or not all(holds(kind, value) for value in values):
            raise rounding(name, kind)


def fraction(value: float) -> Fraction | None:
    """A float exactly; None of one that is not finite."""
    return Fraction(value) if abs(value) < math.inf else None


def holds(kind: torch.dtype, value: Fraction | None) -> bool:
    """Whether a number is one of the format."""
    if value is None:
        return False
    if kind == torch.bool:
        return value in (0, 1)
    if not kind.is_floating_point:
        return value.denominator == 1 and abs(value) <= min(LARGEST, torch.iinfo(kind).max)
    number = float(value) if abs(value) < LARGEST else math.inf
    rounded = torch.tensor(number, dtype=DOUBLE, device="cpu").to(kind)
    return float(rounded) == number and fraction(number) == value


def _possible(tape: Tape, wanted: set[int]) -> dict[int, Values]:
    """What these nodes, and those that they are computed of, may be; None where that is not known."""
    found: dict[int, Values] = {}
    stack = list(wanted)
    while stack:
        at = stack[-1]
        node = tape.nodes[at]
        args = node.args[1:] if node.op == "where" else node.args
        waiting = [arg for arg in args if arg not in found]
        if node.op in (*_RATIONAL, "where") and waiting and at not in found:
            stack += waiting
            continue
        stack.pop()
        if at not in found:
            found[at] = _of_node(node, [found.get(arg) for arg in args])
    return found


def _of_node(node: Node, args: Sequence[Values]) -> Values:
    if node.op == "num":
        return frozenset([Fraction(node.value)])
    known = [arg for arg in args if arg is not None]
    if not args or len(known) < len(args):
        return None
    return known[0] | known[1] if node.op == "where" else _computed(node, known)


def _computed(node: Node, args: Sequence[frozenset[Fraction]]) -> Values:
    """The values of an operation for all combinations of those of its arguments."""
    if node.op not in _RATIONAL or math.prod(map(len, args)) > MOST or abs(node.value) > _HIGHEST:
        return None
    apply = operation(node.op, node.value).number
    try:
        return frozenset(Fraction(apply(*values)) for values in product(*args))
    except ZeroDivisionError:
        return None
