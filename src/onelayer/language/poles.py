"""Where a formula has no finite value: division by zero, logarithms and roots out of range, poles of tan."""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.language.evaluate import evaluate
from onelayer.language.formula import Formula
from onelayer.language.tree import POWER

_BISECTIONS = 60


def find_pole(formula: Formula, points: Tensor) -> tuple[str, Tensor] | None:
    """A reason and a place (D,) where ``formula`` is undefined, looked for from points (C, D); None when none is seen.

    Lemma: a continuous denominator that takes both signs on a connected domain vanishes between; bisection on the
    segment between two such points names the place. Poles that touch zero without a change of sign are found only
    where a point hits them, so None proves nothing.
    """
    for reason, guard, one_sided in _guards(formula):
        values = _node(formula, guard, points)
        bad = values <= 0 if one_sided and reason.startswith("log") else values < 0
        if one_sided:
            hits = torch.nonzero(bad)
            if len(hits):
                return reason, points[int(hits[0, 0])]
            continue
        zero = torch.nonzero(values == 0)
        if len(zero):
            return reason, points[int(zero[0, 0])]
        if bool((values < 0).any()) and bool((values > 0).any()):
            return reason, _between(formula, guard, points[int(values.argmin())], points[int(values.argmax())])
    return None


def _guards(formula: Formula) -> list[tuple[str, int, bool]]:
    """For each node that can fail: the reason, the node that must not vanish (or be negative), and which of the two."""
    found: dict[tuple[str, int], bool] = {}
    for at, node in enumerate(formula.nodes):
        if node.op == "div":
            found["division by zero", node.args[1]] = False
        elif node.op == POWER and node.value < 0:
            found["division by zero", node.args[0]] = False
        elif node.op == "tan":
            found["pole of tan", at] = False
        elif node.op == "log":
            found["logarithm of a number that is not positive", node.args[0]] = True
        elif node.op == "sqrt":
            found["square root of a negative number", node.args[0]] = True
    return [(reason, at, one_sided) for (reason, at), one_sided in found.items()]


def _node(formula: Formula, at: int, points: Tensor) -> Tensor:
    """Value of a guard at points: of the node itself, or of the cosine for the argument of a tangent."""
    if formula.nodes[at].op == "tan":
        argument = formula.nodes[at].args[0]
        return torch.cos(evaluate(formula.nodes[: argument + 1], [argument], points)[0])
    values: Tensor = evaluate(formula.nodes[: at + 1], [at], points)[0]
    return values


def _between(formula: Formula, at: int, negative: Tensor, positive: Tensor) -> Tensor:
    length = float((positive - negative).abs().max())
    for _ in range(_BISECTIONS):
        middle = negative / 2 + positive / 2
        if _node(formula, at, middle[None])[0] < 0:
            negative = middle
        else:
            positive = middle
    step = length * 1e-9
    return torch.round(positive / step) * step
