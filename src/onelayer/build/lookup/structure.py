"""What a function really depends on: inactive coordinates, additive groups, ridges along one direction.

Everything here is found by evaluating f at points, so it only *suggests* a cheaper construction; the certificate is
what decides. f is flattened: points (S, D) -> values (S, K).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.float64 import counted, eye, indices, zeros

FlatFunction = Callable[[Tensor], Tensor]
# Of the box, for central differences, which then err like its square.
STEP = 1e-4
# Cosine of gradients that are proportional up to the error of such differences.
PARALLEL = 1 - 1e-8


@dataclass(frozen=True)
class Group:
    """Coordinates that interact. ``directions`` (r, D): the group's own coordinates are u = directions @ x.

    ``lower``/``upper`` (r,) bound u over the box, and ``lift`` maps u (S, r) to points (S, D) of the box with that u.
    """

    directions: Tensor
    lower: Tensor
    upper: Tensor
    lift: Callable[[Tensor], Tensor]

    @property
    def rank(self) -> int:
        """Number of directions."""
        return self.directions.shape[0]


@dataclass(frozen=True)
class Structure:
    """f(x) = f(anchor) + sum over groups of [f(lift(u_g)) - f(anchor)], up to the tolerance it was found with."""

    anchor: Tensor
    groups: list[Group]


def find_structure(
    f: FlatFunction, box: Box, tolerance: float, *, seed: int = 0, points: int = 128, narrowest: float = 0.0
) -> Structure:
    """Groups of coordinates that interact by more than ``tolerance``; coordinates that matter less are dropped.

    So are those whose side of the box is shorter than ``narrowest``: no key could be steep enough to tell its ends
    apart.
    """
    wide = (box.width.flatten() > narrowest).tolist()
    found = _active_coordinates(f, box, tolerance, seed, points)
    active = [i for i in found if wide[i]]
    anchor = box.center.flatten()
    groups = []
    for members in _interacting(f, box, active, tolerance, seed, points):
        directions = _merged(f, box, anchor, members, tolerance, seed, points)
        groups.append(_group(box, anchor, directions))
    return Structure(anchor, groups)


def _active_coordinates(f: FlatFunction, box: Box, tolerance: float, seed: int, points: int) -> list[int]:
    base, other = _pairs(box, seed, points)
    reference = f(base)
    # (D, S, D): copy i has coordinate i resampled.
    moved = base.expand(box.dim, -1, -1).clone()
    index = indices(box.dim)
    moved[index, :, index] = other.T
    values = f(moved.reshape(-1, box.dim))
    values = values.reshape(box.dim, points, -1)
    change = (values - reference).abs().amax((1, 2))
    # Also where a change is no number.
    return [i for i in range(box.dim) if not change[i] <= tolerance]


def _interacting(
    f: FlatFunction, box: Box, active: list[int], tolerance: float, seed: int, points: int
) -> list[list[int]]:
    """Connected components of the graph of pairs with a mixed second difference above ``tolerance``."""
    base, other = _pairs(box, seed, points)
    parent = {i: i for i in active}

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    pairs = list(combinations(active, 2))
    if pairs:
        first, second = torch.tensor(pairs, dtype=torch.int64, device="cpu").T
        row = indices(len(pairs))
        # All pairs in one call of f, which is what costs.
        only_i = base.expand(len(pairs), -1, -1).clone()  # (pairs, S, D)
        only_j = only_i.clone()
        both = only_i.clone()
        for moved, index in ((only_i, first), (only_j, second), (both, first), (both, second)):
            moved[row, :, index] = other.T[index]
        resampled = torch.cat([only_i, only_j, both])
        values = f(resampled.reshape(-1, box.dim))
        of_i, of_j, of_both = values.reshape(3, len(pairs), points, -1)
        mixed = (of_both - of_i - of_j + f(base)).abs().amax((1, 2))
        coupled = torch.nonzero(~(mixed <= tolerance)).flatten()
        for k in coupled.tolist():
            i, j = pairs[k]
            parent[root(i)] = root(j)
    components: dict[int, list[int]] = {}
    for i in active:
        components.setdefault(root(i), []).append(i)
    return sorted(components.values())


def _merged(
    f: FlatFunction, box: Box, anchor: Tensor, members: list[int], tolerance: float, seed: int, points: int
) -> list[Tensor]:
    """Directions (D,) whose supports partition ``members``: coordinates with proportional gradients become one.

    If df/dx_j = c df/dx_i everywhere, f depends on x_i + c x_j alone. Supports stay disjoint, so the image of the box
    under the directions is again a box.
    """
    alone = list(eye(box.dim)[members])
    base, _ = _pairs(box, seed + 1, points)
    scattered = anchor.repeat(points, 1)
    scattered[:, members] = base[:, members]
    # A step to either side stays in the box.
    inside = anchor + (1 - 2 * STEP) * (scattered - anchor)
    gradients = _scaled_gradients(f, box, inside, members)  # (S K, r)
    length = gradients.norm(dim=0)
    # Functions with jumps may be flat wherever they are looked at.
    usable = torch.isfinite(gradients).all() and (length > 0).all()
    if not usable:
        return alone
    directions = _clusters(box, members, gradients, length)
    group = _group(box, anchor, directions)
    lifted = group.lift(scattered @ group.directions.T)
    # Parallel gradients are only seen at points; what decides is whether f is the same along the merged directions.
    gap = (f(lifted) - f(scattered)).abs().max()
    return directions if gap <= tolerance else alone


def _clusters(box: Box, members: list[int], gradients: Tensor, length: Tensor) -> list[Tensor]:
    """A direction for each set of coordinates whose gradients (S K, r) are parallel, the steepest one leading."""
    cosine = (gradients.T @ gradients) / (length[:, None] * length)
    width = box.width.flatten()[members]
    directions = []
    left = list(range(len(members)))
    while left:
        lead = max(left, key=lambda i: float(length[i]))
        parallel = cosine[lead].abs() > PARALLEL
        cluster = [i for i in left if i == lead or parallel[i]]
        left = [i for i in left if i not in cluster]
        direction = zeros(box.dim)
        for i in cluster:
            # Of gradients in units of the box, then in those of the coordinates.
            ratio = cosine[lead, i] * length[i] / length[lead]
            direction[members[i]] = ratio * width[lead] / width[i]
        directions.append(simplest(direction / direction.abs().max()))
    # By their first coordinate, as a person would list them.
    directions.sort(key=lambda d: int((d != 0).int().argmax()))
    return directions


def _scaled_gradients(f: FlatFunction, box: Box, inside: Tensor, members: list[int]) -> Tensor:
    """Central differences of f in units of the box width, (points * K, len(members))."""
    step = STEP * eye(box.dim)[members] * box.width.flatten()  # (r, D)
    ahead = inside[None] + step[:, None]
    behind = inside[None] - step[:, None]
    shifted = torch.cat([ahead, behind]).reshape(-1, box.dim)
    values = f(shifted)
    plus, minus = values.reshape(2, len(members), len(inside), -1)
    gradients: Tensor = (plus - minus) / (2 * STEP)
    return gradients.movedim(0, -1).reshape(-1, len(members))


def simplest(numbers: Tensor) -> Tensor:
    """Snap entries within 1e-6 of a fraction with denominator up to 60: formulas have such weights, noise has not."""
    denominators = counted(1, 61)[:, None]
    fractions = torch.round(numbers * denominators) / denominators
    close = (fractions - numbers).abs() < 1e-6
    # The first that is close has the smallest denominator.
    smallest = close.int().argmax(0)
    snapped = fractions[smallest, indices(numbers.numel())]
    result: Tensor = torch.where(close.any(0), snapped, numbers)
    return result


def _group(box: Box, anchor: Tensor, directions: list[Tensor]) -> Group:
    """The diagonal of a face from its least to its greatest u stays in the box and meets every value of u."""
    lower = box.lower.flatten()
    upper = box.upper.flatten()
    stacked = torch.stack(directions)  # (r, D)
    rising = stacked >= 0
    start = torch.where(rising, lower, upper)
    end = torch.where(rising, upper, lower)
    low = (stacked * start).sum(-1)
    high = (stacked * end).sum(-1)
    touched = stacked != 0

    def lift(u: Tensor) -> Tensor:
        share = ((u - low) / (high - low)).clamp(0, 1)
        along = share[..., None]  # (S, r, 1)
        # Supports are disjoint, so a sum over the directions takes each coordinate from its own.
        moved = torch.where(touched, start + along * (end - start), 0.0).sum(-2)
        points: Tensor = torch.where(touched.any(0), moved, anchor)
        return points

    return Group(stacked, low, high, lift)


def _pairs(box: Box, seed: int, points: int) -> tuple[Tensor, Tensor]:
    base = box.sample(points, seed=seed, arcsine=True)
    other = box.sample(points, seed=seed + 101, arcsine=True)
    return base.reshape(points, -1), other.reshape(points, -1)
