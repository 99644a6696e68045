"""Scattered: numbers at points in no order, and the function that is affine on the triangles between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch

from onelayer.box import Box
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.knots import Facets
from onelayer.language.operations import FACETS
from onelayer.language.tree import Tape
from onelayer.recording.columns import Array, named_after
from onelayer.recording.evaluation import at_points

HALVINGS = 50  # of a step towards the border of the hull
# Volume of a simplex by that of a cube on its longest edge: thinner ones are left out, since rounding makes them.
FLAT = 1e-9


@dataclass(frozen=True, eq=False)
class Scattered:
    """Values at ``points`` (N, D) and their Delaunay-linear interpolant, known exactly: :attr:`formula`.

    It is defined on the hull of the points; :attr:`box` is a box inside it.
    """

    points: Array
    values: Array
    names: tuple[str, ...]
    output: str = "y"

    @cached_property
    def triangulation(self) -> Any:
        """Of the points with each coordinate scaled to [0, 1]: units must not decide what is near."""
        # Slow to load, and few functions are tables.
        from scipy.spatial import Delaunay, QhullError

        low = self.points.min(0)
        high = self.points.max(0)
        if not (high > low).all():
            flat = self.names[int((high <= low).argmax())]
            raise OnelayerError(f"input '{flat}' needs two different numbers")
        try:
            return Delaunay((self.points - low) / (high - low))
        except QhullError as error:
            raise OnelayerError("the rows lie on a line or a plane; nothing lies between them") from error

    @cached_property
    def formula(self) -> Formula:
        """The interpolant in the formula language; refused where it would miss a row."""
        corners = self.triangulation.points[self.triangulation.simplices]  # (S, D + 1, D)
        # Each by its own size: rows that stand close together make small simplices, not flat ones.
        across = corners[:, :, None] - corners[:, None]
        longest = np.linalg.norm(across, axis=-1).max((1, 2))
        edges = (corners[:, 1:] - corners[:, :1]) / longest[:, None, None]
        kept = self.triangulation.simplices[np.abs(np.linalg.det(edges)) > FLAT]
        self._need_every_row(kept)
        tape = Tape()
        arguments = [tape.variable(at) for at in range(self.points.shape[1])]
        data = Facets(len(arguments), self.points, self.values, kept)
        node = tape.add(FACETS, *arguments, value=data)
        return Formula.build(tape.nodes, [node], (len(arguments),))

    def _need_every_row(self, simplices: Array) -> None:
        """The interpolant meets the rows that are corners of simplices, and says nothing of others."""
        missed = np.setdiff1d(np.arange(len(self.points)), simplices)
        if len(missed):
            at = zip(self.names, self.points[missed[0]], strict=True)
            where = ", ".join(f"{name}={x:g}" for name, x in at)
            raise OnelayerError(f"the row {where} lies so near to others that no triangle has it; leave it out")

    @cached_property
    def box(self) -> Box:
        """A box inside the hull: from the middle of the rows as far as all corners stay inside, then side by side."""
        low = self.points.min(0)
        high = self.points.max(0)
        middle = self.points.mean(0)
        below = low - middle
        above = high - middle
        share = _largest(lambda s: self._inside(middle + s * below, middle + s * above))
        a = middle + share * below
        b = middle + share * above
        # Each side by itself reaches further than all of them together did.
        for at in range(len(low)):
            a = self._pushed(a, b, at, low, side=0)
            b = self._pushed(b, a, at, high, side=1)
        return named_after(self.names, Box(a.tolist(), b.tolist()))

    def _pushed(self, corner: Array, other: Array, at: int, end: Array, side: int) -> Array:
        """One corner moved along one coordinate towards the end of the rows, as far as the box stays inside."""

        def holds(share: float) -> bool:
            ends = [_moved(corner, at, share * (end - corner)), other]
            return self._inside(*(ends if side == 0 else ends[::-1]))

        return _moved(corner, at, _largest(holds) * (end - corner))

    @door
    def covers(self, box: Box) -> bool:
        """Whether all corners, and so all points, of a box lie in the hull."""
        low = box.lower.flatten().numpy()
        high = box.upper.flatten().numpy()
        return self._inside(low, high)

    def _inside(self, low: Array, high: Array) -> bool:
        sides = zip(low.tolist(), high.tolist(), strict=True)
        corners = np.array(list(product(*sides)))
        first = self.points.min(0)
        last = self.points.max(0)
        scaled = (corners - first) / (last - first)
        # The hull is convex: with its corners the whole box lies in it.
        simplex = self.triangulation.find_simplex(scaled, tol=1e-12)
        return bool((simplex >= 0).all())

    @cached_property
    def rows_within(self) -> float:
        """The largest distance, seen in float64, between the formula and a row."""
        found = self.formula(torch.from_numpy(self.points)).numpy()
        return float(np.abs(found - self.values).max())

    def __len__(self) -> int:
        return len(self.values)

    @door
    def __call__(self, x: Any) -> Any:
        """The interpolant at points (..., D)."""
        return at_points(self.formula, x)

    def __repr__(self) -> str:
        inputs = ", ".join(self.names)
        return f"Scattered({self.output} at {len(self):,} rows of {inputs}, linear)"


def _moved(point: Array, at: int, by: Array) -> Array:
    moved = point.copy()
    moved[at] += by[at]
    return moved


def _largest(holds: Callable[[float], bool]) -> float:
    """The largest share in [0, 1] that holds, from below."""
    low, high = 0.0, 1.0
    if holds(high):
        return high
    # From below: what is returned has held, never what only might.
    for _ in range(HALVINGS):
        share = (low + high) / 2
        low, high = (share, high) if holds(share) else (low, share)
    return low


def scattered(points: Array, values: Array, names: Sequence[str], output: str, how: str) -> Scattered:
    """The interpolant of rows that fill no grid; only the linear one is defined."""
    if how != "linear":
        raise OnelayerError(f"scattered rows have a linear interpolant only; leave interpolate={how!r} out")
    unique, counts = np.unique(points, axis=0, return_counts=True)
    if (counts > 1).any():
        repeated = unique[int(counts.argmax())]
        where = ", ".join(f"{name}={x:g}" for name, x in zip(names, repeated, strict=True))
        raise OnelayerError(f"the row {where} occurs more than once; a function has one value there")
    return Scattered(points, values, tuple(names), output)
