"""Blueprint: f minus its kinks, split into groups, each group given the cheapest head; the weights of one layer."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.arguments import narrowest, relative, scale_of
from onelayer.build.lookup.axis import fit_axis
from onelayer.build.lookup.families import Array, Keys
from onelayer.build.lookup.kinks import HingeSum, find_kinks
from onelayer.build.lookup.ladder import Effort
from onelayer.build.lookup.sparse import SparseFitter
from onelayer.build.lookup.structure import FlatFunction, Group, find_structure
from onelayer.build.lookup.tensor import TensorFit, TensorFitter
from onelayer.errors import OnelayerError
from onelayer.float64 import linspace, ones, zeros
from onelayer.formats import format_of
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.observer import Observer
from onelayer.recording.evaluation import Pace
from onelayer.recording.target import Target, place

# Couplings and affine residuals below this share of the tolerance are ignored; the certificate still sees them.
NEGLIGIBLE = 1 / 40
SAME_AXIS_POINTS = 65  # points at which two axes are compared: enough to tell apart what a fit would
HASTY_TOKENS = 1024  # tokens of a fit without search: solved in well under a second
FEW_AXES = 3  # a grid over so many is still small
SPARSE_SECONDS = 1.0  # at least, for a combination of heads beside one head
BELOW_ROUNDING = 1 / 16  # of the rounding of |f|: a fit that close is as good as an exact one

Fitted = tuple[list[LookupHead], float, int]  # heads, estimated sup error of their sum, tokens the tolerance wants


@dataclass(frozen=True)
class Blueprint:
    """A packed layer on paper: heads + kinks + affine part, with an estimated sup error and the tokens eps would need.

    ``wanted`` counts the tokens that the tolerance asks for; it exceeds ``tokens`` when a budget cut the fit short.
    """

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    heads: list[LookupHead]
    kinks: HingeSum
    affine: Affine
    error: float
    wanted: int

    @property
    def tokens(self) -> int:
        """Memory tokens over all heads."""
        return sum(math.prod(head.values.shape[:-1]) for head in self.heads)

    def times(self, scale: float) -> Blueprint:
        """The same layer for f times ``scale``, a power of two."""
        heads = [replace(head, values=head.values * scale) for head in self.heads]
        kinks = replace(self.kinks, coefficients=self.kinks.coefficients * scale)
        affine = Affine(self.affine.matrix * scale, self.affine.offset * scale)
        return replace(self, heads=heads, kinks=kinks, affine=affine, error=self.error * scale)

    def build(self, dtype: torch.dtype) -> OneLayerTransformer:
        """The layer itself."""
        kinks = self.kinks
        ridges = Ridges(kinks.normals, kinks.offsets, kinks.coefficients) if len(kinks) else None
        offset = bool(self.affine.matrix.count_nonzero() or self.affine.offset.count_nonzero())
        affine = self.affine if offset else None
        return lookup_model(self.input_shape, self.output_shape, self.heads, ridges, affine, dtype=dtype)


@dataclass(frozen=True)
class FitBudget:
    """What a fit may use."""

    dtype: torch.dtype
    max_tokens: int
    seed: int
    effort: Effort = "thorough"
    fitting: Observer = field(default_factory=Observer)  # over when a fit has to do with what it found
    observer: Observer = field(default_factory=Observer)  # over when the whole call is

    def patience(self, target: Target) -> Observer:
        """When values of f are refused: those of a slow f once the time of the fit is over, for they take all of it."""
        return self.observer if target.pace == Pace() else self.fitting

    @property
    def unit(self) -> float:
        """Unit roundoff of the format of the weights."""
        return format_of(self.dtype).unit


def draw_up(target: Target, box: Box, tolerance: float, budget: FitBudget) -> Blueprint:
    """The smallest layer found whose estimated sup error is at most ``tolerance``.

    Very large and very small values are fitted in units of a power of two, so that no square of them is needed.
    """
    size = seen_size(target, box, budget.patience(target))
    scale = scale_of(size)
    least = budget.unit * size * BELOW_ROUNDING
    found = _drawn(target, box, scale, relative(max(tolerance, least), scale), budget)
    return found if scale == 1.0 else found.times(scale)


def straight(target: Target, box: Box) -> Blueprint:
    """The affine layer through f at the centre and in the middle of every face: what there is without time for a fit.

    It takes 2 D + 1 values of f and no head.
    """
    centre = box.center.flatten()
    half = box.width.flatten() / 2
    steps = torch.diag(half)
    points = centre + torch.cat([zeros(1, box.dim), steps, -steps])  # (1 + 2D, D)
    values = flat(target, box, Observer())(points)
    base = values[0]  # (K,)
    right, left = values[1:].chunk(2)  # (D, K) each
    width = torch.where(half > 0, 2 * half, torch.inf)  # no slope along a side of no width
    slopes = ((right - left) / width[:, None]).T  # (K, D)
    none = HingeSum(zeros(0, box.dim), zeros(0), zeros(0, len(base)))
    affine = Affine(slopes, base - slopes @ centre)
    return Blueprint(tuple(box.shape), target.output_shape, [], none, affine, math.inf, 0)


def seen_size(target: Target, box: Box, observer: Observer | None = None) -> float:
    """The largest |f| at corners and some points of the box."""
    points = torch.cat([box.corners(64), box.sample(256, seed=1, arcsine=True)])
    return float(flat(target, box, observer or Observer())(points).abs().max())


def _drawn(target: Target, box: Box, scale: float, tolerance: float, budget: FitBudget) -> Blueprint:
    f = flat(target, box, budget.patience(target), scale)
    kinks = find_kinks(target.formula, f, box, seed=budget.seed)

    def smooth(points: Tensor) -> Tensor:
        return f(points) - kinks(points)

    structure = find_structure(smooth, box, NEGLIGIBLE * tolerance, seed=budget.seed, narrowest=narrowest(budget.dtype))
    base = smooth(structure.anchor[None])[0]  # (K,)
    matrix = zeros(len(base), box.dim)
    offset = base.clone()
    curved = []
    for group in structure.groups:
        slope = _affine_group(smooth, group, base, NEGLIGIBLE * tolerance, budget.seed)
        if slope is None:
            curved.append(group)
        else:
            matrix += slope @ group.directions
            offset -= slope @ (group.directions @ structure.anchor)
    heads: list[LookupHead] = []
    error, wanted = 0.0, 0
    known: list[_KnownAxis] = []
    for done, group in enumerate(sorted(curved, key=lambda group: group.rank)):
        part = _offset_function(smooth, group, base if done else torch.zeros_like(base))
        share = (tolerance - error) / (len(curved) - done)
        if group.rank == 1:
            more, part_error, part_wanted = _fit_axis_once(part, group, share, budget, known)
        else:
            more, part_error, part_wanted = _fit_grid(part, group, share, budget)
        heads += more
        error = error + part_error
        wanted = wanted + part_wanted
    if heads:
        offset -= base
    return Blueprint(tuple(box.shape), target.output_shape, heads, kinks, Affine(matrix, offset), error, wanted)


def flat(target: Target, box: Box, observer: Observer, scale: float = 1.0) -> FlatFunction:
    """f / scale on points (S, D) -> (S, K) in float64; OnelayerError at a point where it is not finite.

    Raises Stopped once the ``observer`` says that it is over.
    """

    def evaluate(points: Tensor) -> Tensor:
        with torch.no_grad():
            values: Tensor = target.values(points.reshape(-1, *box.shape), observer)
        values = values.reshape(len(points), -1).to(torch.float64)
        finite = torch.isfinite(values).all(1)
        if not bool(finite.all()):
            where = place(points[int(finite.int().argmin())])
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
    columns = torch.cat([(u - centre) / radius, ones(len(u), 1)], -1)
    values = f(group.lift(u)) - base
    solution = torch.linalg.lstsq(columns, values).solution  # (r + 1, K)
    if not (columns @ solution - values).abs().max() <= tolerance:
        return None
    slopes: Tensor = solution[:-1] / radius[:, None]
    return slopes.T


@dataclass(frozen=True)
class _KnownAxis:
    """A fitted axis and samples of its function, to recognise the same function of another coordinate."""

    group: Group
    samples: Tensor
    fitted: Fitted


def _fit_axis_once(
    g: FlatFunction, group: Group, tolerance: float, budget: FitBudget, known: list[_KnownAxis]
) -> Fitted:
    """Fit one axis, or reuse the head of an axis with the same function up to a constant: weights sum to one."""
    nodes = linspace(float(group.lower), float(group.upper), SAME_AXIS_POINTS)
    samples = g(nodes[:, None])
    for axis in known:
        heads, error, wanted = axis.fitted
        shift = samples - axis.samples
        same_ends = torch.equal(axis.group.lower, group.lower) and torch.equal(axis.group.upper, group.upper)
        varies = (shift.amax(0) - shift.amin(0)).max()
        if same_ends and error <= tolerance and varies <= 1e-3 * NEGLIGIBLE * tolerance:
            keys = replace(heads[0].axes[0], direction=group.directions[0])
            return [LookupHead([keys], heads[0].values + shift.mean(0))], error, wanted
    fitted = _fit_axis(g, group, tolerance, budget)
    known.append(_KnownAxis(group, samples, fitted))
    return fitted


def _fit_axis(g: FlatFunction, group: Group, tolerance: float, budget: FitBudget) -> Fitted:
    fit = fit_axis(
        lambda u: g(u[:, None]),
        float(group.lower),
        float(group.upper),
        tolerance,
        dtype=budget.dtype,
        max_tokens=budget.max_tokens,
        effort=budget.effort,
        observer=budget.fitting,
    )
    keys = AxisKeys(group.directions[0], fit.slopes.double(), fit.biases.double())
    head = LookupHead([keys], fit.values.double())
    wanted = fit.size if fit.meets else _extrapolated(fit.size, fit.error, tolerance)
    return [head], fit.error + fit.rounding, wanted


def _fit_grid(g: FlatFunction, group: Group, tolerance: float, budget: FitBudget) -> Fitted:
    """One tensor head, or from three axes on a sparse-grid combination of heads where that takes fewer tokens.

    When the tolerance needs more than the allowed tokens it is loosened until a fit is possible.
    """

    def unit(points: Array) -> Array:
        share = (torch.from_numpy(points) + 1) / 2
        u = group.lower + share * (group.upper - group.lower)
        values: Array = g(u).numpy()
        return values

    fitter = TensorFitter(unit, group.rank, tolerance, unit=budget.unit, seed=budget.seed, observer=budget.fitting)
    goal, wanted, fits = tolerance, 0, None
    while fits is None:
        fits = _cheapest(fitter, goal, budget)
        wanted = wanted or (sum(fit.tokens for fit in fits) if fits else fitter.predicted(goal))
        goal *= 4
    heads = [_lookup_head(fit, group) for fit in fits]
    return heads, fits[0].error, wanted


def _lookup_head(fit: TensorFit, group: Group) -> LookupHead:
    """A head over the axes that have more than one token: a single token has weight one everywhere."""
    axes = []
    for direction, keys, low, high in zip(group.directions, fit.keys, group.lower, group.upper, strict=True):
        slopes, biases = _to_coordinate(keys, float(low), float(high))
        axes.append(AxisKeys(direction, slopes, biases))
    used = [axis for axis in axes if len(axis.slopes) > 1] or axes[:1]
    values = torch.from_numpy(fit.values)
    return LookupHead(used, values.reshape(*[len(axis.slopes) for axis in used], -1))


def _tokens(fits: list[TensorFit]) -> int:
    return sum(fit.tokens for fit in fits)


def _at_hand(fitter: TensorFitter, sparse: list[TensorFit] | None, budget: FitBudget) -> list[TensorFit] | None:
    """What can be had without a search, by its error."""
    quick = fitter.hasty(min(budget.max_tokens, HASTY_TOKENS))
    fits = [found for found in (sparse, quick and [quick]) if found]
    return min(fits, key=lambda found: found[0].error, default=None)


def _cheapest(fitter: TensorFitter, tolerance: float, budget: FitBudget) -> list[TensorFit] | None:
    """The fit with the fewest tokens; when time is over, the best that can be had at once."""
    if fitter.rank == FEW_AXES:
        return _one_head_first(fitter, tolerance, budget)
    sparse = SparseFitter(fitter).fit(tolerance, budget.max_tokens) if fitter.rank >= 3 else None
    if budget.fitting.over:
        return _at_hand(fitter, sparse, budget)
    bound = _tokens(sparse) if sparse else budget.max_tokens
    if sparse and fitter.predicted(tolerance) > 2 * bound:
        return sparse
    single = _one_head(fitter, tolerance, bound, plainly=sparse is None)
    return [single] if single is not None else sparse


def _one_head(fitter: TensorFitter, tolerance: float, bound: int, *, plainly: bool) -> TensorFit | None:
    """One head of at most ``bound`` tokens: with ``plainly`` a plain grid first for what oscillates, else at last."""
    turns = plainly and fitter.oscillates(tolerance)
    single = fitter.plain(tolerance, bound) if turns else fitter.fit(tolerance, bound)
    if plainly and single is None:
        single = fitter.fit(tolerance, bound) if turns else fitter.plain(tolerance, bound)
    return single if single and single.tokens <= bound else None


def _plain_or_fitted(fitter: TensorFitter, tolerance: float, bound: int) -> TensorFit | None:
    """One head of at most ``bound`` tokens: a plain grid for what oscillates, a fitted one for all else."""
    head = fitter.plain if fitter.oscillates(tolerance) else fitter.fit
    single = head(tolerance, bound)
    return single if single is not None and single.tokens <= bound else None


def _one_head_first(fitter: TensorFitter, tolerance: float, budget: FitBudget) -> list[TensorFit] | None:
    """Three axes: one head is found in about a second where it is good, so a combination of heads comes second.

    The combination gets as long as the head took, so that no time is lost on functions that have no such form.
    """
    begun = time.monotonic()
    single = _plain_or_fitted(fitter, tolerance, budget.max_tokens)
    slower = copy.copy(fitter)
    patience = max(SPARSE_SECONDS, time.monotonic() - begun)
    slower.observer = budget.fitting if single is None else budget.fitting.within(patience)
    bound = single.tokens - 1 if single is not None else budget.max_tokens
    sparse = SparseFitter(slower).fit(tolerance, bound) if bound > 0 and not slower.observer.over else None
    if sparse and sparse[0].error <= tolerance:
        return sparse
    if single is not None:
        return [single]
    return _at_hand(fitter, sparse, budget) if budget.fitting.over else sparse


def _to_coordinate(keys: Keys, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """Keys in t of [-1, 1] rewritten for u of [lower, upper]."""
    centre = lower / 2 + upper / 2
    radius = upper / 2 - lower / 2
    slopes = torch.from_numpy(np.asarray(keys.slopes / radius))
    return slopes, torch.from_numpy(np.asarray(keys.biases)) - slopes * centre


def _extrapolated(size: int, error: float, tolerance: float) -> int:
    """Tokens for ``tolerance`` if the error keeps falling as size^-2, the rate of a C^2 function."""
    if not math.isfinite(error):
        return 2 * size
    return math.ceil(size * math.sqrt(max(error / tolerance, 1.0)))
