"""What a function really depends on: inactive coordinates, additive groups, ridges along one direction.

Everything here is found by evaluating f at points, so it only *suggests* a cheaper construction; the certificate is
what decides. f is flattened: points (S, D) -> values (S, K).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.float64 import counted, eye, indices, zeros

FlatFunction = Callable[[Tensor], Tensor]
STEP = 1e-4  # of the box, for central differences, which then err like its square
PARALLEL = 1 - 1e-8  # cosine of gradients that are proportional up to the error of such differences


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
    active = [i for i in _active_coordinates(f, box, tolerance, seed, points) if wide[i]]
    anchor = box.center.flatten()
    groups = []
    for members in _interacting(f, box, active, tolerance, seed, points):
        directions = _merged(f, box, anchor, members, tolerance, seed, points)
        groups.append(_group(box, anchor, directions))
    return Structure(anchor, groups)


def _active_coordinates(f: FlatFunction, box: Box, tolerance: float, seed: int, points: int) -> list[int]:
    base, other = _pairs(box, seed, points)
    reference = f(base)
    moved = base.expand(box.dim, -1, -1).clone()  # (D, S, D): copy i has coordinate i resampled
    index = indices(box.dim)
    moved[index, :, index] = other.T
    values = f(moved.reshape(-1, box.dim)).reshape(box.dim, points, -1)
    change = (values - reference).abs().amax((1, 2))
    return [i for i in range(box.dim) if not change[i] <= tolerance]  # also where a value is no number


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

    pairs = [(i, j) for k, i in enumerate(active) for j in active[k + 1 :]]
    if pairs:
        first, second = (torch.tensor(column, dtype=torch.int64, device="cpu") for column in zip(*pairs, strict=True))
        row = indices(len(pairs))
        only_i = base.expand(len(pairs), -1, -1).clone()  # (pairs, S, D)
        only_j = only_i.clone()
        both = only_i.clone()
        for moved, index in ((only_i, first), (only_j, second), (both, first), (both, second)):
            moved[row, :, index] = other.T[index]
        resampled = torch.cat([only_i, only_j, both]).reshape(-1, box.dim)
        of_i, of_j, of_both = f(resampled).reshape(3, len(pairs), points, -1)
        mixed = (of_both - of_i - of_j + f(base)).abs().amax((1, 2))
        for k in torch.nonzero(~(mixed <= tolerance)).flatten().tolist():
            parent[root(pairs[k][0])] = root(pairs[k][1])
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
    inside = anchor + (1 - 2 * STEP) * (scattered - anchor)  # a step to either side stays in the box
    gradients = _scaled_gradients(f, box, inside, members)  # (S K, r)
    length = gradients.norm(dim=0)
    if not (torch.isfinite(gradients).all() and (length > 0).all()):  # steps are flat wherever they are looked at
        return alone
    directions = _clusters(box, members, gradients, length)
    group = _group(box, anchor, directions)
    lifted = group.lift(scattered @ group.directions.T)
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
        cluster = [i for i in left if i == lead or cosine[lead, i].abs() > PARALLEL]
        left = [i for i in left if i not in cluster]
        direction = zeros(box.dim)
        for i in cluster:
            ratio = cosine[lead, i] * length[i] / length[lead]  # of gradients in units of the box
            direction[members[i]] = ratio * width[lead] / width[i]
        directions.append(simplest(direction / direction.abs().max()))
    directions.sort(key=lambda d: int(d.abs().gt(0).int().argmax()))
    return directions


def _scaled_gradients(f: FlatFunction, box: Box, inside: Tensor, members: list[int]) -> Tensor:
    """Central differences of f in units of the box width, (points * K, len(members))."""
    step = STEP * eye(box.dim)[members] * box.width.flatten()  # (r, D)
    ahead = inside[None] + step[:, None]
    behind = inside[None] - step[:, None]
    shifted = torch.cat([ahead, behind]).reshape(-1, box.dim)
    plus, minus = f(shifted).reshape(2, len(members), inside.shape[0], -1)
    gradients: Tensor = (plus - minus) / (2 * STEP)
    return gradients.movedim(0, -1).reshape(-1, len(members))


def simplest(numbers: Tensor) -> Tensor:
    """Snap entries within 1e-6 of a fraction with denominator up to 60: formulas have such weights, noise has not."""
    denominators = counted(1, 61)[:, None]
    fractions = torch.round(numbers * denominators) / denominators
    close = (fractions - numbers).abs() < 1e-6
    snapped = fractions[close.int().argmax(0), indices(numbers.numel())]
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
        along = ((u - low) / (high - low)).clamp(0, 1)[..., None]  # (S, r, 1)
        moved = torch.where(touched, start + along * (end - start), 0.0).sum(-2)
        points: Tensor = torch.where(touched.any(0), moved, anchor)
        return points

    return Group(stacked, low, high, lift)


def _pairs(box: Box, seed: int, points: int) -> tuple[Tensor, Tensor]:
    base = box.sample(points, seed=seed, arcsine=True).reshape(points, -1)
    other = box.sample(points, seed=seed + 101, arcsine=True).reshape(points, -1)
    return base, other
