"""Where a function of pieces jumps: two neighbouring points with values far apart."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.language.evaluate import evaluate
from onelayer.language.formula import Formula
from onelayer.language.operations import operation
from onelayer.language.poles import needed_at
from onelayer.language.tree import LEAVES

_POINTS = 256  # at which a jump is looked for
_PAIRS = 8  # segments across each border: a jump may vary along it
_BISECTIONS = 1100  # until no float lies between: 2 * 1023 exponents and 52 digits are halved away long before


@dataclass(frozen=True)
class Jump:
    """f changes by ``size`` between two points that no float64 point of their segment separates."""

    size: float
    first: tuple[float, ...]
    second: tuple[float, ...]


class JumpWarning(UserWarning):
    """A function that no continuous one comes close to."""


def find_jump(formula: Formula, box: Box) -> Jump | None:
    """The largest jump seen at the borders of the pieces of f, None where none is seen; what is not seen may exist."""
    borders = [
        node.args[0] for node in formula.nodes if node.op not in LEAVES and operation(node.op, node.value).chooses
    ]
    if not borders:
        return None
    points = torch.cat([box.corners(64), box.sample(_POINTS)]).reshape(-1, box.dim)
    needed = needed_at(formula, points)
    best: Jump | None = None
    for border in dict.fromkeys(borders):
        side = _value(formula, border, points) > 0
        ends = [points[needed[border] & mask][:_PAIRS] for mask in (side, ~side)]
        for positive, other in zip(*ends, strict=False):
            a, b = _neighbours(formula, border, positive, other)
            f = torch.stack(evaluate(formula.nodes, formula.outputs, torch.stack([a, b])), -1)
            size = float((f[0] - f[1]).abs().max())
            if best is None or size > best.size:
                best = Jump(size, tuple(a.tolist()), tuple(b.tolist()))
    return best


def warn_of_jump(formula: Formula | None, box: Box, eps: float) -> None:
    """One line with the two points where f jumps by more than 2 eps: a layer is continuous, so eps is out of reach."""
    jump = None if formula is None else find_jump(formula, box)
    if jump is not None and jump.size > 2 * eps * (1 + 1e-9):
        message = (
            f"f jumps by {jump.size:.6g} between {_shown(jump.first)} and {_shown(jump.second)}: "
            f"no continuous function is within {eps!r} of both"
        )
        warnings.warn(message, JumpWarning, stacklevel=3)


def _shown(point: tuple[float, ...]) -> str:
    return f"({', '.join(repr(value) for value in point[:6])}{', ...' if len(point) > 6 else ''})"


def _value(formula: Formula, at: int, points: Tensor) -> Tensor:
    values: Tensor = evaluate(formula.nodes[: at + 1], [at], points)[0]
    return values


def _neighbours(formula: Formula, border: int, positive: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The two points of the segment beside the border, found by bisection."""
    for _ in range(_BISECTIONS):
        middle = positive / 2 + other / 2
        if torch.equal(middle, positive) or torch.equal(middle, other):
            break
        if bool(_value(formula, border, middle[None])[0] > 0):
            positive = middle
        else:
            other = middle
    return positive, other
