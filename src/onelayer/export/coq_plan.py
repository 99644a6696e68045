"""The plan of a Coq certificate: T - f as a sum of groups of one variable each, with a bound and pieces for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.export.coq_formula import Direction, Expression, direction_of
from onelayer.export.exact import ExactLayer, Token
from onelayer.language.evaluate import evaluate
from onelayer.proof.tree import BoxTree

# Points on which offsets and bounds are measured; what they are is proved by Coq alone.
GRID = 801
# Largest difference of logits over a piece: beyond it exponentials of one piece differ too much.
SPREAD = 16.0
# Cuts of an axis at sides of the boxes of a proof: Coq proves each piece by itself.
MOST_CUTS = 64


@dataclass
class DirectionGroup:
    """Heads, units and terms of f that depend on u = w . x alone: their sum, with tilt u + shift, is the part of T - f.

    ``terms`` are subtracted. The shifts of all groups add up to the constant of T - f, the tilts to its affine part.
    """

    direction: Direction
    heads: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    terms: list[tuple[Fraction, int]] = field(default_factory=list)
    tilt: Fraction = Fraction(0)
    shift: Fraction = Fraction(0)
    bound: Fraction = Fraction(0)

    @property
    def axis(self) -> int | None:
        """The coordinate that u is, if it is one."""
        used = [i for i, number in enumerate(self.direction) if number]
        if len(used) == 1:
            return used[0]
        return None

    @property
    def w(self) -> list[Fraction]:
        """The direction scaled by a power of two to numbers of moderate size."""
        largest = max(abs(number) for number in self.direction)
        scale = 1 if largest < 256 else 1 << (largest.bit_length() - 1)
        return [Fraction(number, scale) for number in self.direction]

    def multiple(self, slopes: Sequence[Fraction]) -> Fraction:
        """a with slopes = a w."""
        at = next(i for i, number in enumerate(self.direction) if number)
        return slopes[at] / self.w[at]

    def range(self, low: Sequence[Fraction], high: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
        """The interval of u over the box."""
        sides = zip(self.w, low, high, strict=True)
        ends = [sorted((a * l, a * h)) for a, l, h in sides]
        low_end = sum((a for a, _ in ends), Fraction(0))
        high_end = sum((b for _, b in ends), Fraction(0))
        return low_end, high_end


@dataclass(frozen=True)
class Problem:
    """What a certificate speaks about: the layer, f, the box and the bound, all exact."""

    layer: ExactLayer
    f: Expression
    low: list[Fraction]
    high: list[Fraction]
    eps: Fraction
    tree: BoxTree | None


def plan(problem: Problem, output: int) -> list[DirectionGroup]:
    """The groups of one output with shifts and bounds; the bounds add up to at most eps."""
    groups = _gather(problem, output)
    terms = problem.f.terms(output)
    pairs = zip(problem.layer.slopes[output], terms.slopes, strict=True)
    slopes = [a - b for a, b in pairs]
    _tilt(problem, output, groups, slopes)
    constant = problem.layer.constants[output] - terms.constant
    _bound(problem, output, groups, constant)
    return groups


def _gather(problem: Problem, output: int) -> list[DirectionGroup]:
    """Every head, unit and term in the group of its direction."""
    groups: dict[Direction, DirectionGroup] = {}
    heads = [_directions(head) for head in problem.layer.heads]
    constant = [h for h, directions in enumerate(heads) if not directions]
    for h, directions in enumerate(heads):
        if directions:
            _group(groups, directions, "a head").heads.append(h)
    _gather_units(problem, groups)
    for factor, at in problem.f.terms(output).nodes:
        # A constant term belongs to any group: the first, or that of the first axis.
        anywhere = next(iter(groups), _unit(problem.f.dim, 0))
        directions = problem.f.directions(at) or {anywhere}
        _group(groups, directions, "a term of f").terms.append((factor, at))
    # A head whose tokens do not depend on x adds a constant, which some group must carry.
    if constant or not groups:
        _group(groups, {_unit(problem.f.dim, 0)}, "").heads += constant
    return list(groups.values())


def _directions(head: Sequence[Token]) -> set[Direction]:
    """The directions in which the tokens of a head vary."""
    return {direction_of(token.slopes) for token in head if any(token.slopes)}


def _gather_units(problem: Problem, groups: dict[Direction, DirectionGroup]) -> None:
    """Every ReLU unit in the group of its direction."""
    for j, unit in enumerate(problem.layer.units):
        if not any(unit.slopes):
            raise OnelayerError("a ReLU unit of this layer does not depend on x; a Coq certificate leaves no such unit")
        _group(groups, {direction_of(unit.slopes)}, "").units.append(j)


def _group(groups: dict[Direction, DirectionGroup], directions: set[Direction], what: str) -> DirectionGroup:
    if len(directions) > 1:
        raise OnelayerError(
            f"{what} depends on interacting variables ({len(directions)} linear forms of x); "
            "the tactic interval proves sums of functions of one linear form each"
        )
    direction = next(iter(directions))
    return groups.setdefault(direction, DirectionGroup(direction))


def _unit(dim: int, at: int) -> Direction:
    return tuple(int(i == at) for i in range(dim))


def _tilt(problem: Problem, output: int, groups: list[DirectionGroup], slopes: list[Fraction]) -> None:
    """Share the affine part of T - f, exactly: oblique groups take what flattens them, the axes take the rest."""
    for group in groups:
        if group.axis is None and any(slopes):
            group.tilt = _flattening(problem, output, group, slopes)
            slopes = [a - group.tilt * b for a, b in zip(slopes, group.w, strict=True)]
    along = {group.axis: group for group in groups}
    for i, slope in enumerate(slopes):
        if slope and i not in along:
            along[i] = DirectionGroup(_unit(len(slopes), i))
            groups.append(along[i])
        if slope:
            along[i].tilt += slope


def _flattening(problem: Problem, output: int, group: DirectionGroup, slopes: list[Fraction]) -> Fraction:
    """The multiple of its form that an oblique group takes: all of the slopes if they are one, else by measurement."""
    if direction_of(slopes) == group.direction:
        return group.multiple(slopes)
    u, error = _measure(problem, output, group)
    solution = torch.linalg.lstsq(_columns(u), error[:, None]).solution
    return Fraction(-float(solution[0, 0]))


def _columns(u: Tensor) -> Tensor:
    return torch.stack([u, torch.ones_like(u)], -1)


def _bound(problem: Problem, output: int, groups: list[DirectionGroup], constant: Fraction) -> None:
    """Shifts that centre every group and add up to the constant; bounds that share eps by what was measured."""
    radii, middles = [], []
    for group in groups:
        _, error = _measure(problem, output, group)
        high, low = error.max() / 2, error.min() / 2
        middles.append(float(high + low))
        radii.append(float(high - low))
    common = (sum(middles) + float(constant)) / len(groups)
    needed = [radius + abs(common) for radius in radii]
    # Room for pieces and rounding; beyond it the groups do not cancel what T and f share.
    if not math.isfinite(sum(needed)) or sum(needed) > 16 * problem.eps:
        raise OnelayerError(
            f"T - f does not split into groups of one variable: their errors add up to {sum(needed):.1e}, "
            f"the certificate claims {float(problem.eps):.1e}"
        )
    for group, middle in zip(groups[1:], middles[1:], strict=True):
        group.shift = Fraction(common - middle)
    # The last of them exactly: the shifts must add up to the constant, and measured ones do not.
    others = sum((group.shift for group in groups[1:]), Fraction(0))
    groups[0].shift = constant - others
    _share_eps(groups, needed, problem.eps)


def _share_eps(groups: list[DirectionGroup], needed: list[float], eps: Fraction) -> None:
    """Bounds that add up to eps: what each group needs and its part of the rest."""
    if len(groups) == 1:
        groups[0].bound = eps
        return
    extra = sum(needed) / (8 * len(groups))
    share = [need + extra + 1e-300 for need in needed]
    spare = eps - Fraction(sum(needed))
    for group, need, part in zip(groups, needed, share, strict=True):
        fraction = Fraction(part / sum(share))
        exact = eps * fraction
        if spare > 0:
            exact = Fraction(need) + spare * fraction
        group.bound = _down(exact, eps)


def _down(value: Fraction, eps: Fraction) -> Fraction:
    """A number just below ``value`` with a short denominator, a power of two that fits eps."""
    # Forty bits below eps: short numbers are quick to check, and cost nothing of the bound that matters.
    scale = 1 << (40 + max(0, (1 / eps).__ceil__().bit_length()))
    # One less: the bounds of all groups must add up to at most eps.
    return Fraction(math.floor(value * scale) - 1, scale)


def _measure(problem: Problem, output: int, group: DirectionGroup) -> tuple[Tensor, Tensor]:
    """u on a grid and the part of T - f without its shift there, in float64."""
    low, high = group.range(problem.low, problem.high)
    u = torch.linspace(float(low), float(high), GRID, dtype=torch.float64, device="cpu")
    w = torch.tensor([float(a) for a in group.w], dtype=torch.float64, device="cpu")
    # Points along w at which w . x = u.
    x = u[:, None] * w / (w @ w)
    error = float(group.tilt) * u
    for h in group.heads:
        tokens = problem.layer.heads[h]
        multiples = [float(group.multiple(t.slopes)) for t in tokens]
        biases = [float(t.bias) for t in tokens]
        logits = torch.stack([a * u + b for a, b in zip(multiples, biases, strict=True)], -1)
        rows = [float(t.values[output]) for t in tokens]
        values = torch.tensor(rows, dtype=torch.float64, device="cpu")
        error = error + torch.softmax(logits, -1) @ values
    for j in group.units:
        unit = problem.layer.units[j]
        seen = float(group.multiple(unit.slopes)) * u + float(unit.offset)
        error = error + float(unit.gains[output]) * torch.relu(seen)
    for factor, at in group.terms:
        (value,) = evaluate(problem.f.nodes, [at], x)
        error = error - float(factor) * value
    return u, error


def cuts(problem: Problem, group: DirectionGroup) -> list[Fraction]:
    """Where the interval of u is cut: at kinks, where the boxes of the package's own proof are, and for long logits."""
    low, high = group.range(problem.low, problem.high)
    inner = [place for place in _kinks(problem, group) if low < place < high]
    found = {low, high, *inner}
    if problem.tree is not None and group.axis is not None:
        lower, upper = problem.tree.boxes()
        ends = np.concatenate([lower[:, group.axis], upper[:, group.axis]])
        sides = np.unique(ends).tolist()
        step = -(-len(sides) // MOST_CUTS)
        scale = group.w[group.axis]
        found |= {Fraction(side) * scale for side in sides[::step]}
    # The steeper the logits, the further the exponentials of one piece lie apart.
    steepest = 0.0
    for h in group.heads:
        slopes = [float(group.multiple(token.slopes)) for token in problem.layer.heads[h]]
        steepest = max(steepest, max(slopes) - min(slopes))
    places = sorted(found)
    pieces = [places[0]]
    for a, b in pairwise(places):
        count = max(1, math.ceil(float(b - a) * steepest / SPREAD))
        pieces += [a + (b - a) * k / count for k in range(1, count + 1)]
    return pieces


def _kinks(problem: Problem, group: DirectionGroup) -> list[Fraction]:
    """Zeros of what ReLU units and absolute values of affine forms see."""
    places = []
    for j in group.units:
        unit = problem.layer.units[j]
        places.append(-unit.offset / group.multiple(unit.slopes))
    for _, term in group.terms:
        for at in problem.f.kinks(term):
            inner = problem.f.nodes[at].args[0]
            slopes, constant = problem.f.form(inner)
            places.append(-constant / group.multiple(slopes))
    return places


def average_logit(
    problem: Problem, group: DirectionGroup, h: int, low: Fraction, high: Fraction
) -> tuple[Fraction, Fraction]:
    """p u + q near the average logit of a head in the middle of a piece, rounded to 1/64."""
    tokens = problem.layer.heads[h]
    u = float(low + high) / 2
    multiples = [float(group.multiple(t.slopes)) for t in tokens]
    slopes = torch.tensor(multiples, dtype=torch.float64, device="cpu")
    biases = torch.tensor([float(t.bias) for t in tokens], dtype=torch.float64, device="cpu")
    weights = torch.softmax(slopes * u + biases, 0)
    # In 64ths: any line does, and a short one is quick to check.
    slope = Fraction(round(64 * float(weights @ slopes)), 64)
    bias = Fraction(round(64 * float(weights @ biases)), 64)
    return slope, bias
