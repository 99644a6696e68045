"""Where a formula has no finite value: division by zero, logarithms and roots out of range, poles of tan."""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.language.evaluate import evaluate
from onelayer.language.formula import Formula
from onelayer.language.operations import Guard, Need, operation
from onelayer.language.tree import LEAVES

_BISECTIONS = 60  # down to neighbouring float64 numbers


def find_pole(formula: Formula, points: Tensor) -> tuple[str, Tensor] | None:
    """A reason and a place (D,) where ``formula`` is undefined, looked for from points (C, D); None when none is seen.

    Lemma: a continuous denominator that takes both signs on a connected domain vanishes between; bisection on the
    segment between two such points names the place. Poles that touch zero without a change of sign are found only
    where a point hits them, so None proves nothing.
    """
    needed = needed_at(formula, points)
    for guard, argument, at in _guards(formula):
        margin = _margin(formula, guard, argument, points)
        # Where the argument itself is nan, an earlier guard has failed, and that one is named.
        failed = ~guard.need.met_by(margin) & ~torch.isnan(margin)
        hits = torch.nonzero(failed & needed[at])
        if len(hits):
            return guard.reason, points[int(hits[0, 0])]
        both_signs = bool((margin < 0).any()) and bool((margin > 0).any())
        crossed = guard.need is Need.NONZERO and both_signs
        # What is chosen by a condition may have its pole elsewhere.
        if crossed and bool(needed[at].all()):
            negative = points[int(margin.argmin())]
            positive = points[int(margin.argmax())]
            return guard.reason, _between(formula, guard, argument, negative, positive)
    return None


def needed_at(formula: Formula, points: Tensor) -> list[Tensor]:
    """(C,) per node: at which points some output needs its value; what a choice does not take is not needed."""
    nobody = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    found = [nobody] * len(formula.nodes)
    for at in formula.outputs:
        found[at] = ~nobody
    # From the outputs down: all uses of a node come after it.
    for at in range(len(formula.nodes) - 1, -1, -1):
        node = formula.nodes[at]
        if node.op in LEAVES:
            continue
        own = found[at]
        shares = [own] * len(node.args)
        if operation(node.op, node.value).chooses:
            positive = _value_of(formula, node.args[0], points) > 0
            shares = [own, own & positive, own & ~positive]
        for arg, share in zip(node.args, shares, strict=True):
            found[arg] = found[arg] | share
    return found


def _value_of(formula: Formula, at: int, points: Tensor) -> Tensor:
    """The value of a node at points."""
    (value,) = evaluate(formula.nodes[: at + 1], [at], points)
    found: Tensor = value
    return found


def _guards(formula: Formula) -> list[tuple[Guard, int, int]]:
    """The guard of each node that can fail, that argument's node, and the node itself."""
    found: list[tuple[Guard, int, int]] = []
    for at, node in enumerate(formula.nodes):
        guard = None if node.op in LEAVES else operation(node.op, node.value).guard
        if guard is not None:
            found.append((guard, node.args[guard.argument], at))
    return found


def _margin(formula: Formula, guard: Guard, argument: int, points: Tensor) -> Tensor:
    """What has to meet the guard's need, at points."""
    margin: Tensor = guard.margin(_value_of(formula, argument, points))
    return margin


def _between(formula: Formula, guard: Guard, argument: int, negative: Tensor, positive: Tensor) -> Tensor:
    """A place between two points of different signs, rounded to what a reader can use."""
    length = float((positive - negative).abs().max())
    for _ in range(_BISECTIONS):
        middle = negative / 2 + positive / 2
        if _margin(formula, guard, argument, middle[None])[0] < 0:
            negative = middle
        else:
            positive = middle
    # Nine digits of the distance: 0.5 is shown as 0.5, and not as what bisection left of it.
    step = length * 1e-9
    return torch.round(positive / step) * step
