"""Where a function of pieces jumps: two neighbouring points with values far apart."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.language.evaluate import evaluate
from onelayer.language.formula import Formula
from onelayer.language.operations import operation
from onelayer.language.poles import needed_at
from onelayer.language.tree import LEAVES, Node
from onelayer.observer import Observer

_POINTS = 256  # at which a jump is looked for
_PAIRS = 8  # segments across each border: a jump may vary along it
# Until no float lies between: 2 * 1023 exponents and 52 digits are halved away long before.
_BISECTIONS = 1100


@dataclass(frozen=True)
class Jump:
    """f changes by ``size`` between two points that no float64 point of their segment separates."""

    size: float
    first: tuple[float, ...]
    second: tuple[float, ...]

    def __str__(self) -> str:
        return f"f jumps by {self.size:.6g} between {_shown(self.first)} and {_shown(self.second)}"


class JumpWarning(UserWarning):
    """A function that no continuous one comes close to."""


def find_jump(formula: Formula, box: Box, observer: Observer | None = None) -> Jump | None:
    """The largest jump seen at the borders of the pieces of f, None where none is seen; what is not seen may exist."""
    return max(jumps(formula, box, observer).values(), key=lambda jump: jump.size, default=None)


def jumps(formula: Formula, box: Box, observer: Observer | None = None) -> dict[int, Jump]:
    """The largest jump seen at the border of every piece of f, by the node that chooses.

    What f changes by over the next floats on either side is no part of a jump: a steep function is continuous. Once the
    ``observer`` says that it is over, the borders that are left are not looked at.
    """
    watch = observer or Observer()
    borders = [at for at, node in enumerate(formula.nodes) if _chooses(node)]
    if not borders:
        return {}
    looked_at = torch.cat([box.corners(64), box.sample(_POINTS)])
    points = looked_at.reshape(-1, box.dim)
    needed = needed_at(formula, points)
    largest: dict[int, Jump] = {}
    for border in takewhile(lambda border: not watch.over, borders):
        # Where a node is not asked for, as on the other side of an outer choice, its border is none of f.
        known = points[needed[border]]
        piece = _piece(formula, border, known)
        # A border lies above every piece but the last.
        for name in sorted(set(piece.tolist()))[:-1][:_PAIRS]:
            pairs = zip(known[piece <= name][:_PAIRS], known[piece > name][:_PAIRS], strict=False)
            for below, above in pairs:
                beside = _neighbours(formula, border, name, below, above)
                jump = _between(formula, box, *beside)
                if border not in largest or jump.size > largest[border].size:
                    largest[border] = jump
    return largest


def jump_beyond(formula: Formula | None, box: Box, eps: float, observer: Observer | None = None) -> Jump | None:
    """A jump by more than 2 eps, with a warning that shows it: a layer is continuous, so eps is out of reach."""
    jump = None if formula is None else find_jump(formula, box, observer)
    if jump is None or not jump.size > 2 * eps * (1 + 1e-9):
        return None
    message = f"{jump}: no continuous function is within {eps!r} of both"
    # Shown at the caller of approximate, which is decorated.
    warnings.warn(message, JumpWarning, stacklevel=4)
    return jump


def _chooses(node: Node) -> bool:
    """Whether a node has pieces: where() and floor()."""
    if node.op == "floor":
        return True
    return node.op not in LEAVES and operation(node.op, node.value).chooses


def _piece(formula: Formula, at: int, points: Tensor) -> Tensor:
    """Which piece of a node the points (C, D) lie in, as numbers: 0 and 1 for where(), the value of floor()."""
    if formula.nodes[at].op == "floor":
        return _value(formula, at, points)
    condition = formula.nodes[at].args[0]
    return (_value(formula, condition, points) > 0).double()


def _between(formula: Formula, box: Box, a: Tensor, b: Tensor) -> Jump:
    """The most f changes by over one of three steps around a border, less what it does over the steps beside them.

    Three, because the value on the border itself may belong to neither side, as that of sign(x) at zero.
    """
    step = b - a
    rows = torch.stack([a - 2 * step, a - step, a, b, b + step, b + 2 * step])
    # Beyond the box f need not have a value.
    rows = torch.minimum(torch.maximum(rows, box.lower.flatten()), box.upper.flatten())
    f = torch.stack(evaluate(formula.nodes, formula.outputs, rows), -1)
    before, *across, behind = (f[1:] - f[:-1]).abs()
    before, behind = before.nan_to_num(), behind.nan_to_num()
    sizes = [float((change - before - behind).max()) for change in across]
    most = max(range(len(sizes)), key=lambda at: sizes[at])
    first, second = sorted(tuple(row.tolist()) for row in rows[1 + most : 3 + most])
    return Jump(sizes[most], first, second)


def _shown(point: tuple[float, ...]) -> str:
    shown = ", ".join(map(repr, point[:6]))
    more = ", ..." if len(point) > 6 else ""
    return f"({shown}{more})"


def _value(formula: Formula, at: int, points: Tensor) -> Tensor:
    values: Tensor = evaluate(formula.nodes[: at + 1], [at], points)[0]
    return values


def _neighbours(formula: Formula, border: int, name: float, below: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
    """The two points of the segment beside the border after the piece ``name``, found by bisection."""
    for _ in range(_BISECTIONS):
        middle = below / 2 + above / 2
        if torch.equal(middle, below) or torch.equal(middle, above):
            break
        if bool(_piece(formula, border, middle[None])[0] <= name):
            below = middle
        else:
            above = middle
    return below, above
