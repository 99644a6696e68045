"""Blueprint: f minus its kinks, split into groups, each group given the cheapest head; the weights of one layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.arguments import narrowest, reach_of_values, relative, scale_of
from onelayer.build.lookup.groups import NEGLIGIBLE, FitBudget, GroupFit, KnownAxis, fit_axis_once, fit_grid
from onelayer.build.lookup.kinks import HingeSum, find_kinks
from onelayer.build.lookup.structure import FlatFunction, Group, find_structure
from onelayer.errors import OnelayerError
from onelayer.float64 import ones, zeros
from onelayer.layer.lookup import Affine, LookupHead, Ridges, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer
from onelayer.recording.target import Target, place

# Of the rounding of |f|: a fit that close is as good as an exact one.
BELOW_ROUNDING = 1 / 16


@dataclass(frozen=True)
class Blueprint:
    """A packed layer on paper: heads + kinks + affine part, with an estimated sup error and the tokens eps would need.

    ``wanted`` counts the tokens that the tolerance asks for; it exceeds ``tokens`` when a budget cut the fit short.
    ``fewer`` is a layer of fewer tokens within the slack of the budget, where there is one.
    """

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    heads: list[LookupHead]
    kinks: HingeSum
    affine: Affine
    error: float
    wanted: int
    fewer: Blueprint | None = None

    @property
    def tokens(self) -> int:
        """Memory tokens over all heads."""
        return sum(math.prod(head.values.shape[:-1]) for head in self.heads)

    def times(self, scale: float) -> Blueprint:
        """The same layer for f times ``scale``, a power of two."""
        heads = [replace(head, values=head.values * scale) for head in self.heads]
        kinks = replace(self.kinks, coefficients=self.kinks.coefficients * scale)
        affine = Affine(self.affine.matrix * scale, self.affine.offset * scale)
        fewer = self.fewer and self.fewer.times(scale)
        return replace(self, heads=heads, kinks=kinks, affine=affine, error=self.error * scale, fewer=fewer)

    def build(self, dtype: torch.dtype) -> OneLayerTransformer:
        """The layer itself."""
        kinks = self.kinks
        ridges = None
        if len(kinks):
            ridges = Ridges(kinks.normals, kinks.offsets, kinks.coefficients)
        there = self.affine.matrix.any() or self.affine.offset.any()
        affine = self.affine if bool(there) else None
        return lookup_model(self.input_shape, self.output_shape, self.heads, ridges, affine, dtype=dtype)


def draw_up(target: Target, box: Box, tolerance: float, budget: FitBudget) -> Blueprint:
    """The smallest layer found whose estimated sup error is at most ``tolerance``.

    Very large and very small values are fitted in units of a power of two, so that no square of them is needed.
    """
    size = seen_size(target, box, budget.patience(target))
    scale = scale_of(size)
    least = budget.unit * size * BELOW_ROUNDING
    tolerance = relative(max(tolerance, least), scale)
    # Values as large as the format allows cost all of the tolerance.
    most = reach_of_values(budget.dtype) / scale
    priced = replace(budget, price=tolerance / most)
    found = _drawn(target, box, scale, tolerance, priced)
    if scale == 1.0:
        return found
    return found.times(scale)


def straight(target: Target, box: Box) -> Blueprint:
    """The affine layer through f at the centre and in the middle of every face: what there is without time for a fit.

    It takes 2 D + 1 values of f and no head.
    """
    centre = box.center.flatten()
    half = box.width.flatten() / 2
    steps = torch.diag(half)
    points = centre + torch.cat([zeros(1, box.dim), steps, -steps])  # (1 + 2D, D)
    # With an observer of its own: it is called when the time of the given one is over.
    values = flat(target, box, Observer())(points)
    base = values[0]  # (K,)
    right, left = values[1:].chunk(2)  # (D, K) each
    # No slope along a side of no width.
    width = torch.where(half > 0, 2 * half, torch.inf)
    slopes = ((right - left) / width[:, None]).T  # (K, D)
    none = HingeSum(zeros(0, box.dim), zeros(0), zeros(0, len(base)))
    affine = Affine(slopes, base - slopes @ centre)
    return Blueprint(tuple(box.shape), target.output_shape, [], none, affine, math.inf, 0)


def seen_size(target: Target, box: Box, observer: Observer | None = None) -> float:
    """The largest |f| at corners and some points of the box."""
    points = torch.cat([box.corners(64), box.sample(256, seed=1, arcsine=True)])
    f = flat(target, box, observer or Observer())
    return float(f(points).abs().max())


def _drawn(target: Target, box: Box, scale: float, tolerance: float, budget: FitBudget) -> Blueprint:
    f = flat(target, box, budget.patience(target), scale)
    kinks = find_kinks(target.formula, f, box, seed=budget.seed)

    def smooth(points: Tensor) -> Tensor:
        return f(points) - kinks(points)

    unseen = NEGLIGIBLE * tolerance
    shortest = narrowest(budget.dtype)
    structure = find_structure(smooth, box, unseen, seed=budget.seed, narrowest=shortest)
    base = smooth(structure.anchor[None])[0]  # (K,)
    matrix = zeros(len(base), box.dim)
    offset = base.clone()
    curved = []
    for group in structure.groups:
        slope = _affine_group(smooth, group, base, unseen, budget.seed)
        if slope is None:
            curved.append(group)
        else:
            matrix += slope @ group.directions
            offset -= slope @ (group.directions @ structure.anchor)
    # Axes before grids: what they leave of the tolerance is worth more where tokens multiply.
    curved.sort(key=lambda group: group.rank)
    fits: list[GroupFit] = []
    error = 0.0
    known: list[KnownAxis] = []
    for done, group in enumerate(curved):
        # The first group carries f at the anchor; weights sum to one, so that costs no token.
        part = _offset_function(smooth, group, base if done else torch.zeros_like(base))
        # A group that missed its share leaves nothing.
        left = max(tolerance - error, unseen)
        share = left / (len(curved) - done)
        if group.rank == 1:
            fitted = fit_axis_once(part, group, share, budget, known)
        else:
            fitted = fit_grid(part, group, share, budget)
        fits.append(fitted)
        error = error + fitted.error
    if fits:
        offset -= base
    affine = Affine(matrix, offset)
    whole = Blueprint(tuple(box.shape), target.output_shape, [], kinks, affine, error, 0)
    return _assembled(whole, fits)


def _assembled(whole: Blueprint, fits: list[GroupFit]) -> Blueprint:
    """The heads of all groups in one layer; with fewer tokens too where a single group is all there is."""
    heads = [head for fitted in fits for head in fitted.heads]
    drawn = replace(whole, heads=heads, wanted=sum(fitted.wanted for fitted in fits))
    slim = fits[0].fewer if len(fits) == 1 else None
    if slim is None:
        return drawn
    fewer = replace(whole, heads=slim.heads, error=slim.error, wanted=slim.wanted)
    return replace(drawn, fewer=fewer)


def flat(target: Target, box: Box, observer: Observer, scale: float = 1.0) -> FlatFunction:
    """f / scale on points (S, D) -> (S, K) in float64; OnelayerError at a point where it is not finite.

    Raises Stopped once the ``observer`` says that it is over.
    """

    def evaluate(points: Tensor) -> Tensor:
        shaped = points.reshape(-1, *box.shape)
        with torch.no_grad():
            values: Tensor = target.values(shaped, observer)
        values = values.reshape(len(points), -1).to(torch.float64)
        finite = torch.isfinite(values).all(1)
        if not bool(finite.all()):
            first = int(finite.int().argmin())
            where = place(points[first])
            raise OnelayerError(f"f is not finite at x = {where}; choose a box on which it is")
        return values if scale == 1.0 else values / scale

    return evaluate


def _offset_function(f: FlatFunction, group: Group, base: Tensor) -> FlatFunction:
    return lambda u: f(group.lift(u)) - base


def _affine_group(f: FlatFunction, group: Group, base: Tensor, tolerance: float, seed: int) -> Tensor | None:
    """Slopes (K, r) when f is affine in the group's coordinates to ``tolerance``, else None."""
    u = Box(group.lower, group.upper).sample(64 * group.rank, seed=seed, arcsine=True)
    centre = (group.lower + group.upper) / 2
    radius = (group.upper - group.lower) / 2
    unit = (u - centre) / radius
    columns = torch.cat([unit, ones(len(u), 1)], -1)
    values = f(group.lift(u)) - base
    solution = torch.linalg.lstsq(columns, values).solution  # (r + 1, K)
    apart = (columns @ solution - values).abs().max()
    # Written so that nan is not small.
    if not apart <= tolerance:
        return None
    slopes: Tensor = solution[:-1] / radius[:, None]
    return slopes.T
