"""Natural intervals beside Taylor models, for functions given by a formula.

A Taylor model of log(x2 / x1) on a wide box may reach below zero although x2 / x1 does not, and then has no logarithm.
Plain interval arithmetic, node by node, keeps such signs: each node's interval [a, b] replaces a poorer model, and
afterwards narrows the range in which compositions and quotients look for singularities. On small boxes the models win
and the intervals cost little. Differences sqrt(a^2 + b) - a and squared sides of triangles have intervals
of their own (language/conjugates.py, third_side.py).
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.language.conjugates import Conjugate, conjugates, cut
from onelayer.language.evaluate import evaluate
from onelayer.language.formula import Formula, Node
from onelayer.language.intervals import Interval, outward
from onelayer.language.operations import OPERATIONS, operation
from onelayer.language.third_side import ThirdSide, third_sides
from onelayer.language.tree import LEAVES, float_value
from onelayer.taylor import tables
from onelayer.taylor.compose import within_image
from onelayer.taylor.core import TaylorModel

# Where they end they have a value and no slope: there the interval is all there is.
CLOSED = frozenset(name for name, row in OPERATIONS.items() if row.closed)


def evaluate_hulled(formula: Formula, x: TaylorModel, low: Tensor, high: Tensor) -> Any:
    """The formula on the boxes of ``x`` (B, D) with corners ``low``, ``high``: (B, *output_shape)."""
    values = hulled_outputs(formula, x, low, high)
    if formula.output_shape == ():
        return values[0]
    return torch.stack(values, dim=-1)


def hulled_outputs(formula: Formula, x: TaylorModel, low: Tensor, high: Tensor) -> list[Any]:
    """Each output of the formula, (B,), together with its interval; unbounded where it may be undefined."""
    everywhere = torch.ones_like(low[:, 0], dtype=torch.bool)
    defined: list[Tensor] = []  # (B,) per node: whether it surely has a value on the box
    special = _known_signs(formula)
    found = list[Interval]()

    def narrowed(node: Node, args: list[Any], value: Any) -> Any:
        before = [defined[at] for at in node.args]
        if not isinstance(value, TaylorModel):
            defined.append(everywhere)
            found.append(_ends(value, low.device))
            return value
        if node.op == "var":
            ends = (low[:, int(node.value)], high[:, int(node.value)])
            sure = everywhere
        else:
            ends_of = _both_ends if node.op in CLOSED else _ends
            known = [ends_of(arg, value.device) for arg in args]
            ends, sure = interval(node, known, value)
            # Either shows the operation itself to be defined; that its arguments are is another question.
            sure = (sure | value.decided()) & needed(node, known, before)
            if len(defined) in special:
                ends = cut(ends, special[len(defined)].interval(found))
        defined.append(sure.expand(len(everywhere)))
        found.append(ends)
        # Whether the node is defined is kept apart: an output needs all nodes that it is made of.
        return within_image(value, *ends, torch.ones_like(value.rem, dtype=torch.bool)).with_hull(*ends)

    values = evaluate(formula.nodes, formula.outputs, x, narrowed)
    for at, value in zip(formula.outputs, values, strict=True):
        value.rem = torch.where(defined[at], value.rem, torch.inf)
    return values


def needed(node: Node, args: list[Interval], defined: list[Tensor]) -> Tensor | bool:
    """Whether the arguments of a node are defined where they are needed: of a choice, those that may be chosen."""
    if not defined:
        return True
    if not operation(node.op, node.value).chooses:
        return reduce(torch.logical_and, defined)
    (low, high), (condition, first, second) = args[0], defined
    return condition & (first | (high <= 0)) & (second | (low > 0))


def surely_defined(formula: Formula, low: Tensor, high: Tensor) -> Tensor:
    """(B,): whether interval arithmetic alone shows every output of the formula to be defined on the box."""
    found: list[Interval] = []
    defined: list[Tensor] = []
    everywhere = torch.ones_like(low[:, 0], dtype=torch.bool)
    special = _known_signs(formula)
    for at, node in enumerate(formula.nodes):
        args = [found[arg] for arg in node.args]
        match node.op:
            case "var":
                variable = int(node.value)
                ends = low[:, variable], high[:, variable]
                sure = everywhere
            case op if op in LEAVES:
                number = tables.number(float_value(node, []), low.device)
                ends = (number, number) if node.op == "num" else outward(number, number)
                sure = everywhere
            case _:
                ends, sure = _ruled(node, args)
                ends = cut(ends, special[at].interval(found)) if at in special else ends
                sure = sure & needed(node, args, [defined[arg] for arg in node.args])
        found.append(ends)
        defined.append(sure.expand(len(low)))
    return torch.stack([defined[at] for at in formula.outputs]).all(0)


def defined_on(formula: Formula, box: Box) -> bool:
    """Whether interval arithmetic alone shows every output of the formula to be defined on one whole box."""
    low = box.lower.reshape(1, -1)
    high = box.upper.reshape(1, -1)
    return bool(surely_defined(formula, low, high).all())


def _known_signs(formula: Formula) -> dict[int, Conjugate | ThirdSide]:
    """Nodes of which more is known than the intervals of their arguments say."""
    return {**conjugates(formula), **third_sides(formula)}


def interval(node: Node, args: list[Interval], value: TaylorModel) -> tuple[Interval, Tensor]:
    """Interval of one operation on intervals, rounded outward, everything where it may be undefined; and where not."""
    if not args:
        return value.range(), torch.ones_like(value.rem, dtype=torch.bool)
    (low, high), sure = _ruled(node, args)
    ends = low.expand(value.shape), high.expand(value.shape)
    return ends, sure.expand(value.shape)


def _ruled(node: Node, args: list[Interval]) -> tuple[Interval, Tensor]:
    """The image by the table of operations; everything, and not sure, where it may have no value."""
    low, high = operation(node.op, node.value).image(*args)
    if not low.dtype == high.dtype == torch.float64:
        raise TypeError(f"interval of {node.op} in {low.dtype}: its rounding would not be covered")
    # Ends in the wrong order, as NaN, say that no rule holds; taken for an interval, its radius would be negative.
    bad = ~(low <= high)
    low = torch.where(bad, -torch.inf, low)
    high = torch.where(bad, torch.inf, high)
    return (low, high), ~bad


def _both_ends(arg: Any, device: torch.device) -> Interval:
    """The interval of an argument cut with the range of its model: both hold its values."""
    low, high = _ends(arg, device)
    if not isinstance(arg, TaylorModel) or arg.hull is None:
        return low, high
    return cut((low, high), arg.range())


def _ends(arg: Any, device: torch.device) -> Interval:
    if isinstance(arg, TaylorModel):
        return arg.hull or arg.range()
    number = tables.number(float(arg), device)
    return number, number
