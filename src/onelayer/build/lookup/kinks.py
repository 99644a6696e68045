"""Kinks of f along hyperplanes, taken out as ReLU units of the feed-forward network.

Smooth heads see |w.x + b| only at rate O(1/M); one unit relu(w.x + b) on the residual stream represents it exactly. A
kink can sit where the argument of abs, relu, min or max vanishes. If that argument is affine, or depends on one
coordinate, the zero set is a union of hyperplanes; where the gradient of f jumps across one by a constant, subtracting
(jump) * relu(w.x + b) leaves a smoother function. Nested maxima have kinks on parts of hyperplanes only and stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.families import Array
from onelayer.build.lookup.structure import FlatFunction, simplest
from onelayer.float64 import zeros
from onelayer.language.formula import Formula, Node
from onelayer.language.operations import operation
from onelayer.language.tree import LEAVES, float_value

# Hyperplanes of one argument: an oscillation has no use for so many units.
MOST_ZEROS = 64
# Points of an axis between which a sign change of a kink's argument is looked for.
ZERO_GRID = 2049
# Of the shortest side of the box, for second differences across a plane: their rounding is then about 1e-11 of f.
STEP = 1e-5
# Of a jump, by which it may differ from place to place and still be called constant.
SAME = 1e-4


@dataclass(frozen=True)
class HingeSum:
    """sum_j coefficients[j] relu(normals[j] . x + offsets[j]): (J, D), (J,) and (J, K)."""

    normals: Tensor
    offsets: Tensor
    coefficients: Tensor

    def __len__(self) -> int:
        return self.normals.shape[0]

    def __call__(self, points: Tensor) -> Tensor:
        """Value at points (S, D) -> (S, K)."""
        active = torch.relu(points @ self.normals.T + self.offsets)  # (S, J)
        values: Tensor = active @ self.coefficients
        return values


def find_kinks(formula: Formula | None, f: FlatFunction, box: Box, *, seed: int = 0) -> HingeSum:
    """The hyperplanes across which the gradient of f jumps by a constant, with that jump."""
    outputs = f(box.center.reshape(1, -1)).shape[-1]
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for normal, offset in _hyperplanes(formula, box) if formula else []:
        jump = _constant_jump(f, box, normal, offset, seed)
        if jump is not None and (jump.abs() > 0).any():
            found.append((normal, offset, jump))
    if not found:
        empty = zeros(0)
        return HingeSum(empty.reshape(0, box.dim), empty, empty.reshape(0, outputs))
    columns = zip(*found, strict=True)
    normals, offsets, jumps = map(torch.stack, columns)
    return HingeSum(normals, offsets, jumps)


def only_hinges(formula: Formula, f: FlatFunction, box: Box, *, seed: int = 0) -> bool:
    """Whether every bend of f is one that a ReLU unit takes out: of affine functions, its jump constant."""
    affine = _affine_forms(formula, box.dim)
    arguments = [arg for node in formula.nodes for arg in _bending(node)]
    if any(affine[arg] is None for arg in arguments):
        return False
    planes = _hyperplanes(formula, box)
    return all(_constant_jump(f, box, *plane, seed) is not None for plane in planes)


def _hyperplanes(formula: Formula, box: Box) -> list[tuple[Tensor, Tensor]]:
    """Distinct (normal, offset) that meet the interior of the box; the largest entry of a normal is 1."""
    affine = _affine_forms(formula, box.dim)
    found: dict[tuple[float, ...], tuple[Tensor, Tensor]] = {}
    for node in formula.nodes:
        args = _bending(node)
        if not args:
            continue
        forms = [affine[arg] for arg in args]
        known = [form for form in forms if form is not None]
        planes = _bend(known) if len(known) == len(forms) else _axis_zeros(formula, args, box)
        for plane in planes:
            largest = plane[:-1].abs().argmax()
            plane = plane / plane[largest]
            normal = plane[:-1]
            offset = plane[-1]
            reach = (normal.abs() * box.width.flatten()).sum() / 2
            away = (normal @ box.center.flatten() + offset).abs()
            # It meets the interior: one along a face bends nothing.
            if away < reach * (1 - 1e-12):
                # Two arguments that vanish together differ by rounding.
                same = tuple(np.round(plane.numpy(), 12).tolist())
                found.setdefault(same, (normal, offset))
    return list(found.values())


def _bend(forms: list[Tensor]) -> list[Tensor]:
    """Where an operation on affine functions bends: its argument vanishes, or its two are equal."""
    plane = forms[0] - forms[1] if len(forms) > 1 else forms[0]
    if plane[:-1].abs().max() > 0:
        return [plane]
    return []


def _bending(node: Node) -> tuple[int, ...]:
    """The arguments of a node whose value, or difference, vanishes where f may bend; none for a smooth one."""
    if node.op in LEAVES:
        return ()
    row = operation(node.op, node.value)
    if row.chooses:
        return node.args[:1]
    return node.args if row.kink else ()


def _affine_forms(formula: Formula, dim: int) -> list[Tensor | None]:
    """For each node the coefficients (D + 1,) of w . x + b, the constant last, or None when it is not affine."""
    forms: list[Tensor | None] = []
    for node in formula.nodes:
        arguments = [forms[arg] for arg in node.args]
        forms.append(_affine(node, arguments, dim))
    return forms


def _affine(node: Node, args: list[Tensor | None], dim: int) -> Tensor | None:
    if node.op in LEAVES:
        form = zeros(dim + 1)
        if node.op == "var":
            form[int(node.value)] = 1.0
        else:
            form[dim] = float_value(node, [])
        return form
    forms = [arg for arg in args if arg is not None]
    rule = _AFFINE.get(node.op)
    if rule is None or len(forms) < len(args):
        return None
    return rule(*forms)


def _constant(form: Tensor) -> bool:
    return bool((form[:-1] == 0).all())


def _times(a: Tensor, b: Tensor) -> Tensor | None:
    """A product is affine where one factor is constant."""
    if _constant(b):
        return a * b[-1]
    if _constant(a):
        return b * a[-1]
    return None


def _over(a: Tensor, b: Tensor) -> Tensor | None:
    """A quotient is affine where it divides by a constant."""
    if _constant(b) and b[-1] != 0:
        return a / b[-1]
    return None


# Operations that may keep affine functions affine; a form is (coefficients, constant).
_AFFINE: dict[str, Callable[..., Tensor | None]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "neg": lambda a: -a,
    "mul": _times,
    "div": _over,
}


def _axis_zeros(formula: Formula, args: tuple[int, ...], box: Box) -> list[Tensor]:
    """Zeros of a kink's argument that depends on one coordinate, as hyperplanes x_i - z = 0."""
    argument = Formula.build(formula.nodes, args, (box.dim,), (len(args),))
    used = {int(inner.value) for inner in argument.nodes if inner.op == "var"}
    if len(used) != 1:
        return []
    (axis,) = used
    lower = float(box.lower.flatten()[axis])
    upper = float(box.upper.flatten()[axis])

    def gap(position: float | Array) -> Array:
        points = box.center.flatten().repeat(np.size(position), 1)
        points[:, axis] = torch.as_tensor(position, dtype=torch.float64, device="cpu")
        values = argument(points)
        other = values[:, 1] if len(args) == 2 else 0.0
        return np.asarray(values[:, 0] - other)

    grid = np.linspace(lower, upper, ZERO_GRID)
    values = gap(grid)
    planes = []
    # Signs, since the product of two small values is zero whatever they are.
    signs = np.sign(values[:-1]) * np.sign(values[1:])
    changes = np.flatnonzero(np.isfinite(signs) & (signs <= 0))
    for k in changes[:MOST_ZEROS]:
        plane = zeros(box.dim + 1)
        plane[axis] = 1.0
        ends = (grid[k], grid[k + 1])
        at_ends = (values[k], values[k + 1])
        plane[-1] = -_zero_between(gap, ends, at_ends)
        planes.append(plane)
    return planes


def _zero_between(gap: Callable[[float], Array], ends: tuple[float, float], values: tuple[float, float]) -> float:
    """A zero of ``gap``, whose values at the ends have different signs or vanish."""
    from scipy.optimize import brentq  # slow to load, and few functions have kinks

    for end, value in zip(ends, values, strict=True):
        # Of a point alone the value may be rounded otherwise than in a batch, and have the sign of the other end's.
        alone = float(gap(end)[0])
        if value == 0 or np.sign(alone) != np.sign(value):
            return float(end)
    digits = 1e-15 * max(1.0, abs(ends[0]))
    return float(brentq(lambda p: float(gap(p)[0]), *ends, xtol=digits))


def _constant_jump(f: FlatFunction, box: Box, normal: Tensor, offset: Tensor, seed: int) -> Tensor | None:
    """Coefficient c (K,) of relu(normal . x + offset) in f, if the same at all points tried.

    The derivative along the unit normal jumps by c |normal|.
    """
    points = box.sample(64, seed=seed).reshape(64, -1)
    beside = (points @ normal + offset) / normal.dot(normal)
    on_plane = points - beside[:, None] * normal
    step = STEP * box.width.flatten().min() * normal / normal.norm()
    ahead = (on_plane + 4 * step).reshape(-1, *box.shape)
    behind = (on_plane - 4 * step).reshape(-1, *box.shape)
    inside = box.contains(ahead) & box.contains(behind)
    base = on_plane[inside][:24]
    if len(base) == 0:
        return None
    here = f(base)

    def second_difference(scale: float) -> Tensor:
        ahead = f(base + scale * step)
        behind = f(base - scale * step)
        rate: Tensor = (ahead - 2 * here + behind) / (scale * step.norm())
        return rate

    # Three steps cancel what the smooth part adds, up to O(step^3).
    jumps = (8 * second_difference(1) - 6 * second_difference(2) + second_difference(4)) / 3
    jumps = jumps / normal.norm()
    middle = jumps.median(0).values
    size = middle.abs().max()
    spread = (jumps - middle).abs().max()
    # False for what is no number.
    same = spread <= SAME * size
    noise = 1e-7 * here.abs().max()
    if same and size > noise:
        return simplest(middle)
    return None
