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
BLOCK = 512  # new points compared at a time: bounds the memory of the comparison
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
        points = x.detach().double().cpu().reshape(-1, self.points.shape[1])
        if len(points):
            self._see(points, values.detach().double().cpu().reshape(len(points), -1))
        return values

    def _see(self, points: Tensor, values: Tensor) -> None:
        """Compare new points (C, D) and values (C, K) with the kept ones and among themselves; keep some of them."""
        first = len(self.points)
        known = values if self.values is None else torch.cat([self.values, values])
        every = torch.cat([self.points, points])
        kept = every[:COMPARED]
        known_kept = known[:COMPARED]
        for start in range(first, len(every), BLOCK):
            self._compare(every[start : start + BLOCK], known[start : start + BLOCK], kept, known_kept)
        self.points = kept
        self.values = known_kept

    def _compare(self, points: Tensor, values: Tensor, kept: Tensor, known: Tensor) -> None:
        allowed = self.lipschitz.over((points[:, None] - kept).abs())  # (C, N)
        change = (values[:, None] - known).abs().amax(-1)
        scale = torch.maximum(values.abs().amax(-1)[:, None], known.abs().amax(-1))
        worse = torch.nonzero(change > allowed * (1 + SLACK) + scale * SLACK)
        if len(worse):
            i, j = worse[0].tolist()
            raise OnelayerError(
                f"the declared constant is too small: {self.name} changes by {change[i, j]:.6g} between "
                f"({_shown(points[i])}) and ({_shown(kept[j])}), where {self.lipschitz.statement} allows "
                f"{allowed[i, j]:.6g}"
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
        self.tangents: tuple[Tensor, Tensor] | None = None  # (N, K) values and (N, K, D) slopes, at the centres

    def __call__(self, x: Tensor) -> Tensor:
        """The values; raises where one of them leaves a tangent by more than is allowed."""
        values = self.function(x)
        points = x.detach().double().cpu().reshape(-1, self.points.shape[1])
        flat = values.detach().double().cpu().reshape(len(points), -1)
        if self.tangents is not None:
            self._apart(points, flat, self.centres, *self.tangents)
        if len(points):
            self.points = torch.cat([self.points, points])[:COMPARED]
            self.values = (flat if self.values is None else torch.cat([self.values, flat]))[:COMPARED]
        return values

    def gradient(self, x: Tensor) -> Tensor:
        """The gradients (..., *output_shape, D); raises where values or other gradients contradict them."""
        values = self(x)
        slopes = self.slopes(x)
        dim = self.points.shape[1]
        if slopes.shape != (*values.shape, dim):
            raise OnelayerError(
                f"the gradient of {self.name} has shape {tuple(slopes.shape[1:])} at one point; it must be "
                f"{(*values.shape[1:], dim)}: one slope per coordinate, in the last place"
            )
        points = x.detach().double().cpu().reshape(-1, dim)
        flat = values.detach().double().cpu().reshape(len(points), -1)
        steep = slopes.detach().double().cpu().reshape(len(points), -1, dim)
        if self.values is not None:
            self._apart(self.points, self.values, points, flat, steep)
        before = (flat[:0], steep[:0]) if self.tangents is None else self.tangents
        self.centres = torch.cat([self.centres, points])[:TOUCHED]
        self.tangents = (torch.cat([before[0], flat])[:TOUCHED], torch.cat([before[1], steep])[:TOUCHED])
        self._turned(points, steep, self.centres, self.tangents[1])
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
        size = values.abs()[:, None] + touched.abs() + torch.einsum("cnd,nkd->cnk", step.abs(), slopes.abs())
        gap = ((values[:, None] - touched - line).abs() - size * SLACK).amax(-1)
        allowed = self.curvature.over(step.abs())
        worse = torch.nonzero(gap > allowed * (1 + SLACK))
        if len(worse):
            i, j = worse[0].tolist()
            raise OnelayerError(
                f"curvature or gradient is wrong: at ({_shown(points[i])}) {self.name} is {gap[i, j]:.6g} away from "
                f"its tangent at ({_shown(centres[j])}), where half the declared curvature allows {allowed[i, j]:.6g}"
            )

    def _turned(self, points: Tensor, slopes: Tensor, centres: Tensor, known: Tensor) -> None:
        """Compare gradients (C, K, D) with those at N centres."""
        one = not self.curvature.per_coordinate
        for start in range(0, len(points), BLOCK):
            here = points[start : start + BLOCK]
            steep = slopes[start : start + BLOCK]
            allowed = self.curvature.changes((here[:, None] - centres).abs())  # (C, N, D)
            change = (steep[:, None] - known).abs().amax(2)
            size = torch.maximum(steep.abs().amax(1)[:, None], known.abs().amax(1))
            if one:
                change = change.sum(-1, True)
                size = size.sum(-1, True)
                allowed = allowed[..., :1]
            worse = torch.nonzero(change > allowed * (1 + SLACK) + size * SLACK)
            if len(worse):
                i, j, d = worse[0].tolist()
                which = "the gradient" if one else f"slope {d + 1}"
                raise OnelayerError(
                    f"the declared curvature is too small: {which} of {self.name} changes by {change[i, j, d]:.6g} "
                    f"between ({_shown(here[i])}) and ({_shown(centres[j])}), where it allows {allowed[i, j, d]:.6g}"
                )


def _shown(point: Tensor) -> str:
    return ", ".join(f"{number:.6g}" for number in point.tolist()[:8])
