"""A sketch of f: an interpolant from few values, to which a fit turns hundreds of thousands of times.

The points are those of a sparse grid of Chebyshev points that grows where f asks for it: a level is refined next to the
one whose new values were predicted worst. The grid of several axes is begun at the corners of two of them, where the
prediction misses exactly the mixed second differences of f; where these vanish, so for every sum of functions of one
variable, no such grid grows further.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.levels import Level, coefficient, held_below, moved
from onelayer.build.lookup.structure import FlatFunction
from onelayer.float64 import indices, zeros

# Level of 129 points on an axis; more are not smooth functions.
FINEST = 7
# Values that a sketch may ask for; no claim that it is optimal.
MOST = 8_192
# For which positions on the finest grid, counted together, are numbers of 63 bits.
MOST_AXES = 8
NUMBERS = 2**22  # in one block of an evaluation
# Of the tolerance of a fit: what a sketch may be off by.
CLOSE = 1 / 8


def sketch(f: FlatFunction, box: Box, tolerance: float, tested: Tensor) -> FlatFunction | None:
    """An interpolant of f that is within a part of the tolerance at the points ``tested`` (P, D); None where none is.

    It is a guide for fits alone: what is proved is proved of f.
    """
    if box.dim > MOST_AXES or not bool((box.width > 0).all()):
        return None
    made = Sketch(f, box)
    truth = f(tested)
    allowed = CLOSE * tolerance
    while bool((made(tested) - truth).abs().max() > allowed):
        if not made.refine(allowed):
            return None
    return made


class Sketch:
    """The interpolant on a set of levels: the combination of their full grids.

    Level 0 of an axis is the centre alone, level l stands for 2^l + 1 Chebyshev points.
    """

    def __init__(self, f: FlatFunction, box: Box) -> None:
        self.f = f
        self.centre = box.center.flatten()
        self.half = box.width.flatten() / 2
        self.dim = box.dim
        self.places = torch.empty(0, dtype=torch.int64, device="cpu")  # of known values, sorted
        self.values = zeros(0, 1)
        self.surplus: dict[Level, float] = {}  # of levels that may be refined
        self.levels: set[Level] = set()
        self._include((0,) * box.dim)

    def refine(self, allowed: float) -> bool:
        """Refine around the level that was predicted worst, or the coarsest once all are predicted; False at the end.

        A level that is predicted well may still miss f: sin(2 pi x) vanishes at 0, 1/2 and 1.
        """
        if not self.surplus or len(self.places) > MOST:
            return False
        missed = max(self.surplus.values()) > allowed
        # While something is missed, the largest correction first; then the coarsest level, which may hide one.
        chosen = min(self.surplus, key=self._worst_first if missed else self._coarsest_first)
        del self.surplus[chosen]
        for axis in range(self.dim):
            higher = moved(chosen, axis, 1)
            new = higher[axis] <= FINEST and higher not in self.levels
            if new and held_below(higher, self.levels):
                self._include(higher)
        return True

    def _worst_first(self, level: Level) -> tuple[float, int, Level]:
        return -self.surplus[level], sum(level), level

    def _coarsest_first(self, level: Level) -> tuple[int, float, Level]:
        return sum(level), -self.surplus[level], level

    def _include(self, level: Level) -> None:
        """Ask for the values of a level that are not known, and note how far they were from what was predicted."""
        places = _places(level)
        new = places[~torch.isin(places, self.places)]
        points = self.centre + self.half * _nodes(new, self.dim)
        found = self.f(points)
        predicted = self(points) if self.levels else torch.zeros_like(found)
        self.surplus[level] = float((found - predicted).abs().max()) if len(new) else 0.0
        known = self.values.expand(-1, found.shape[1])
        all_places = torch.cat([self.places, new])
        # Kept in order, so that a value is found by bisection.
        order = torch.argsort(all_places)
        self.places = all_places[order]
        self.values = torch.cat([known, found])[order]
        self.levels.add(level)

    def __call__(self, points: Tensor) -> Tensor:
        """The interpolant at points (S, D): (S, K)."""
        grids = []
        for level in self.levels:
            c = coefficient(level, self.levels)
            if c:
                at = torch.searchsorted(self.places, _places(level))
                grids.append((c, level, self.values[at]))
        largest = max(grid.numel() for _, _, grid in grids)
        unit = ((points - self.centre) / self.half).clamp(-1, 1)
        blocks = torch.split(unit, max(1, NUMBERS // largest))
        return torch.cat([_combined(block, grids) for block in blocks])


def _combined(x: Tensor, grids: list[tuple[int, Level, Tensor]]) -> Tensor:
    total = zeros(len(x), grids[0][2].shape[1])
    for c, level, grid in grids:
        total += c * _interpolated(x, level, grid)
    return total


def _axis_places(level: int) -> Tensor:
    """Positions of a level among the 2^FINEST + 1 points of the finest one."""
    spacing = 2 ** (FINEST - level)
    places: Tensor = indices(2**level + 1) * spacing
    # Level 0 is the middle alone.
    return places if level else places[1:] // 2


def _places(level: Level) -> Tensor:
    """The points of a full grid as numbers, last axis fastest."""
    base = 2**FINEST + 1
    total = torch.zeros(1, dtype=torch.int64, device="cpu")
    for n in level:
        # Numbers in the base of the finest grid, one digit per axis.
        total = (total[:, None] * base + _axis_places(n)).flatten()
    return total


def _nodes(places: Tensor, dim: int) -> Tensor:
    """The points themselves in [-1, 1]^D, (N, D)."""
    base = 2**FINEST + 1
    exponents = reversed(range(dim))
    powers = torch.tensor([base**at for at in exponents], dtype=torch.int64, device="cpu")
    digits = (places[:, None] // powers) % base
    return _chebyshev(digits)


def _chebyshev(position: Tensor) -> Tensor:
    """-cos(pi j / 2^FINEST), zero in the middle."""
    half = 2 ** (FINEST - 1)
    # As a sine of the distance to the middle, so that the middle is exactly zero.
    from_middle = (position - half).double()
    return torch.sin(math.pi * from_middle / (2 * half))


def _interpolated(x: Tensor, level: Level, grid: Tensor) -> Tensor:
    """The polynomial through values (N, K) on a full grid at x (S, D), one axis after another."""
    rest = grid.expand(len(x), -1, -1)  # (S, N, K)
    for axis, n in enumerate(level):
        if n:
            rest = rest.reshape(len(x), 2**n + 1, -1)
            shares = _lagrange(x[:, axis], n)
            rest = (shares[:, None] @ rest)[:, 0]
    return rest.reshape(len(x), -1)


def _lagrange(x: Tensor, level: int) -> Tensor:
    """The Lagrange polynomials of a level at x (S,) in barycentric form, (S, 2^level + 1)."""
    nodes = _chebyshev(_axis_places(level))
    weights = torch.ones_like(nodes)
    weights[1::2] = -1
    weights[[0, -1]] /= 2
    step = x[:, None] - nodes
    # At a node the form divides by zero, and its polynomial is one there.
    hit = step == 0
    share = weights / torch.where(hit, 1.0, step)
    share = torch.where(hit.any(1, keepdim=True), hit.double(), share)
    return share / share.sum(1, keepdim=True)
