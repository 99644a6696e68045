"""Functions whose evaluated points hold what was declared of them to account."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.recording.curvature import Curvature
from onelayer.recording.lipschitz import Lipschitz

# Points that every new one is compared with; more would cost more than most functions.
COMPARED = 4_096
TOUCHED = 1_024  # points whose gradient every new one is compared with
# New points compared at a time: bounds the memory of the comparison.
BLOCK = 512
# Values may be off by their own rounding: a declared constant is contradicted only beyond 16 units in the last place.
SLACK = 2.0**-48


class Witnessed:
    """A batched function whose evaluated points hold its declared constant to account."""

    def __init__(self, function: Callable[[Tensor], Tensor], name: str, lipschitz: Lipschitz, dim: int) -> None:
        self.function = function
        self.name = name
        self.lipschitz = lipschitz
        self.points = torch.empty(0, dim, dtype=torch.float64, device="cpu")
        self.values: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The values; raises where two evaluated points contradict the constant."""
        values = self.function(x)
        points = _rows(x, self.points.shape[1])
        if len(points):
            self._see(points, _rows(values, len(points), first=True))
        return values

    def _see(self, points: Tensor, values: Tensor) -> None:
        """Compare new points (C, D) and values (C, K) with the kept ones and among themselves; keep some of them."""
        first = len(self.points)
        known = values if self.values is None else torch.cat([self.values, values])
        every = torch.cat([self.points, points])
        kept = every[:COMPARED]
        known_kept = known[:COMPARED]
        # The new ones alone: old pairs were compared when they came.
        for start in range(first, len(every), BLOCK):
            new = slice(start, start + BLOCK)
            self._compare(every[new], known[new], kept, known_kept)
        self.points = kept
        self.values = known_kept

    def _compare(self, points: Tensor, values: Tensor, kept: Tensor, known: Tensor) -> None:
        allowed = self.lipschitz.over((points[:, None] - kept).abs())  # (C, N)
        change = (values[:, None] - known).abs().amax(-1)
        size = values.abs().amax(-1)[:, None]
        scale = torch.maximum(size, known.abs().amax(-1))
        worse = torch.nonzero(change > allowed * (1 + SLACK) + scale * SLACK)
        if len(worse):
            i, j = worse[0].tolist()
            seen = f"{self.name} changes by {change[i, j]:.6g}"
            between = f"({_shown(points[i])}) and ({_shown(kept[j])})"
            raise OnelayerError(
                f"the declared constant is too small: {seen} between {between}, "
                f"where {self.lipschitz.statement} allows {allowed[i, j]:.6g}"
            )


class Touched:
    """A batched function and its gradient, which hold the declared curvature to account where they are evaluated."""

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        gradient: Callable[[Tensor], Tensor],
        name: str,
        curvature: Curvature,
        dim: int,
    ) -> None:
        self.function = function
        self.slopes = gradient
        self.name = name
        self.curvature = curvature
        self.points = torch.empty(0, dim, dtype=torch.float64, device="cpu")
        self.values: Tensor | None = None  # (N, K), at the points
        self.centres = self.points
        # (N, K) values and (N, K, D) slopes, at the centres.
        self.tangents: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The values; raises where one of them leaves a tangent by more than is allowed."""
        values = self.function(x)
        points = _rows(x, self.points.shape[1])
        flat = _rows(values, len(points), first=True)
        if self.tangents is not None:
            self._apart(points, flat, self.centres, *self.tangents)
        if len(points):
            before = flat[:0] if self.values is None else self.values
            self.points = torch.cat([self.points, points])[:COMPARED]
            self.values = torch.cat([before, flat])[:COMPARED]
        return values

    def gradient(self, x: Tensor) -> Tensor:
        """The gradients (..., *output_shape, D); raises where values or other gradients contradict them."""
        values = self(x)
        slopes = self.slopes(x)
        dim = self.points.shape[1]
        # In another layout slopes would be held against the wrong inputs.
        if slopes.shape != (*values.shape, dim):
            given = tuple(slopes.shape[1:])
            wanted = (*values.shape[1:], dim)
            raise OnelayerError(
                f"the gradient of {self.name} has shape {given} at one point; it must be {wanted}: one slope per "
                "coordinate, in the last place"
            )
        points = _rows(x, dim)
        flat = _rows(values, len(points), first=True)
        steep = _rows(slopes, dim).reshape(len(points), -1, dim)
        if self.values is not None:
            self._apart(self.points, self.values, points, flat, steep)
        old_values, old_slopes = (flat[:0], steep[:0]) if self.tangents is None else self.tangents
        self.centres = torch.cat([self.centres, points])[:TOUCHED]
        kept_values = torch.cat([old_values, flat])[:TOUCHED]
        kept_slopes = torch.cat([old_slopes, steep])[:TOUCHED]
        self.tangents = (kept_values, kept_slopes)
        self._turned(points, steep, self.centres, kept_slopes)
        return slopes

    def _apart(self, points: Tensor, values: Tensor, centres: Tensor, touched: Tensor, slopes: Tensor) -> None:
        """Compare values (C, K) at points with the tangents at N centres."""
        for start in range(0, len(centres), BLOCK):
            part = slice(start, start + BLOCK)
            for at in range(0, len(points), BLOCK):
                block = slice(at, at + BLOCK)
                self._left(points[block], values[block], centres[part], touched[part], slopes[part])

    def _left(self, points: Tensor, values: Tensor, centres: Tensor, touched: Tensor, slopes: Tensor) -> None:
        step = points[:, None] - centres  # (C, N, D)
        line = torch.einsum("cnd,nkd->cnk", step, slopes)
        # Sizes of all terms that cancel in the gap: each may be off by its own rounding.
        moved = torch.einsum("cnd,nkd->cnk", step.abs(), slopes.abs())
        size = values.abs()[:, None] + touched.abs() + moved
        gap = (values[:, None] - touched - line).abs() - size * SLACK
        gap = gap.amax(-1)
        allowed = self.curvature.over(step.abs())
        worse = torch.nonzero(gap > allowed * (1 + SLACK))
        if len(worse):
            i, j = worse[0].tolist()
            seen = f"at ({_shown(points[i])}) {self.name} is {gap[i, j]:.6g} away"
            raise OnelayerError(
                f"curvature or gradient is wrong: {seen} from its tangent at ({_shown(centres[j])}), where half the "
                f"declared curvature allows {allowed[i, j]:.6g}"
            )

    def _turned(self, points: Tensor, slopes: Tensor, centres: Tensor, known: Tensor) -> None:
        """Compare gradients (C, K, D) with those at N centres."""
        one = not self.curvature.per_coordinate
        for start in range(0, len(points), BLOCK):
            here = points[start : start + BLOCK]
            steep = slopes[start : start + BLOCK]
            allowed = self.curvature.changes((here[:, None] - centres).abs())  # (C, N, D)
            change = (steep[:, None] - known).abs().amax(2)
            here_size = steep.abs().amax(1)[:, None]
            size = torch.maximum(here_size, known.abs().amax(1))
            # One constant bounds the sum of the changes of all slopes, one per coordinate each of them.
            if one:
                change = change.sum(-1, True)
                size = size.sum(-1, True)
                allowed = allowed[..., :1]
            worse = torch.nonzero(change > allowed * (1 + SLACK) + size * SLACK)
            if len(worse):
                i, j, d = worse[0].tolist()
                which = "the gradient" if one else f"slope {d + 1}"
                changed = f"{which} of {self.name} changes by {change[i, j, d]:.6g}"
                between = f"({_shown(here[i])}) and ({_shown(centres[j])})"
                raise OnelayerError(
                    f"the declared curvature is too small: {changed} between {between}, where it allows "
                    f"{allowed[i, j, d]:.6g}"
                )


def _rows(numbers: Tensor, size: int, *, first: bool = False) -> Tensor:
    """Numbers in float64 on the CPU, in rows of ``size``, or in so many rows where it is the ``first`` side."""
    flat = numbers.detach().double().cpu()
    return flat.reshape(size, -1) if first else flat.reshape(-1, size)


def _shown(point: Tensor) -> str:
    return ", ".join(f"{number:.6g}" for number in point.tolist()[:8])
