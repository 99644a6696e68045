"""The cheapest heads for one group of coordinates: an axis, a tensor grid, or a combination of grids."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from onelayer.build.lookup.axis import fit_axis
from onelayer.build.lookup.families import Array, Keys
from onelayer.build.lookup.ladder import Effort
from onelayer.build.lookup.sparse import SparseFitter
from onelayer.build.lookup.structure import FlatFunction, Group
from onelayer.build.lookup.tensor import TensorFit, TensorFitter
from onelayer.float64 import linspace
from onelayer.formats import format_of
from onelayer.layer.lookup import AxisKeys, LookupHead
from onelayer.observer import Observer
from onelayer.recording.evaluation import Pace
from onelayer.recording.target import Target

# Couplings and affine residuals below this share of the tolerance are ignored; the certificate still sees them.
NEGLIGIBLE = 1 / 40
# Points at which two axes are compared: enough to tell apart what a fit would.
SAME_AXIS_POINTS = 65
# Tokens of a fit without search: solved in well under a second.
HASTY_TOKENS = 1024
# Of a grid, up to which a shorter one is looked for: a few tenths of a second.
SLIM_TOKENS = 128
FEW_AXES = 3  # a grid over so many is still small
# At least, for a combination of heads beside one head.
SPARSE_SECONDS = 1.0


@dataclass(frozen=True)
class FitBudget:
    """What a fit may use."""

    dtype: torch.dtype
    max_tokens: int
    seed: int
    effort: Effort = "thorough"
    # Times the tolerance, within which a grid of fewer tokens is of interest too.
    slack: float = 1.0
    # At least, of one unit of |v|: more than its rounding where the format has no room for large ones.
    price: float = 0.0
    # Over when a fit has to do with what it found.
    fitting: Observer = field(default_factory=Observer)
    observer: Observer = field(default_factory=Observer)  # over when the whole call is

    def patience(self, target: Target) -> Observer:
        """When values of f are refused: those of a slow f once the time of the fit is over, for they take all of it."""
        if target.pace == Pace():
            return self.observer
        return self.fitting

    @property
    def unit(self) -> float:
        """What one unit of |v| costs: the unit roundoff of the format of the weights, or more."""
        return max(self.price, format_of(self.dtype).unit)


@dataclass(frozen=True)
class GroupFit:
    """Heads of one group, the estimated sup error of their sum, the tokens its tolerance wants; a fit of fewer ones."""

    heads: list[LookupHead]
    error: float
    wanted: int
    fewer: GroupFit | None = None


@dataclass(frozen=True)
class KnownAxis:
    """A fitted axis and samples of its function, to recognise the same function of another coordinate."""

    group: Group
    samples: Tensor
    fitted: GroupFit


def fit_axis_once(
    g: FlatFunction, group: Group, tolerance: float, budget: FitBudget, known: list[KnownAxis]
) -> GroupFit:
    """Fit one axis, or reuse the head of an axis with the same function up to a constant: weights sum to one."""
    nodes = linspace(float(group.lower), float(group.upper), SAME_AXIS_POINTS)
    samples = g(nodes[:, None])
    for axis in known:
        error = axis.fitted.error
        shift = samples - axis.samples
        same_lower = torch.equal(axis.group.lower, group.lower)
        same_upper = torch.equal(axis.group.upper, group.upper)
        varies = (shift.amax(0) - shift.amin(0)).max()
        # A constant up to a thousandth of what is neglected anyway.
        same = same_lower and same_upper and varies <= 1e-3 * NEGLIGIBLE * tolerance
        if same and error <= tolerance:
            head = axis.fitted.heads[0]
            keys = replace(head.axes[0], direction=group.directions[0])
            shifted = LookupHead([keys], head.values + shift.mean(0))
            return GroupFit([shifted], error, axis.fitted.wanted)
    fitted = _fit_axis(g, group, tolerance, budget)
    known.append(KnownAxis(group, samples, fitted))
    return fitted


def _fit_axis(g: FlatFunction, group: Group, tolerance: float, budget: FitBudget) -> GroupFit:
    fit = fit_axis(
        lambda u: g(u[:, None]),
        float(group.lower),
        float(group.upper),
        tolerance,
        dtype=budget.dtype,
        max_tokens=budget.max_tokens,
        effort=budget.effort,
        observer=budget.fitting,
        unit=budget.unit,
    )
    keys = AxisKeys(group.directions[0], fit.slopes.double(), fit.biases.double())
    head = LookupHead([keys], fit.values.double())
    wanted = fit.size if fit.meets else _extrapolated(fit.size, fit.error, tolerance)
    return GroupFit([head], fit.error + fit.rounding, wanted)


def fit_grid(g: FlatFunction, group: Group, tolerance: float, budget: FitBudget) -> GroupFit:
    """One tensor head, or from three axes on a sparse-grid combination of heads where that takes fewer tokens.

    When the tolerance needs more than the allowed tokens it is loosened until a fit is possible.
    """

    def unit(points: Array) -> Array:
        share = (torch.from_numpy(points) + 1) / 2
        u = group.lower + share * (group.upper - group.lower)
        values: Array = g(u).numpy()
        return values

    fitter = TensorFitter(unit, group.rank, tolerance, unit=budget.unit, seed=budget.seed, observer=budget.fitting)
    goal = tolerance
    wanted = 0
    fits = None
    while fits is None:
        fits = _cheapest(fitter, goal, budget)
        # What the tolerance itself wants, not a looser goal after it.
        if not wanted:
            wanted = _tokens(fits) if fits else fitter.predicted(goal)
        goal *= 4
    heads = [_lookup_head(fit, group) for fit in fits]
    fewer = _fewer(fitter, fits, group, budget.slack * tolerance)
    return GroupFit(heads, fits[0].error, wanted, fewer)


def _fewer(fitter: TensorFitter, fits: list[TensorFit], group: Group, tolerance: float) -> GroupFit | None:
    """A single head made shorter while it stays within a looser tolerance; None where that saves nothing."""
    first, *others = fits
    looser = first.error <= fitter.tolerance < tolerance
    if others or not looser or first.tokens > SLIM_TOKENS:
        return None
    slim = fitter.shortened(first, tolerance)
    if slim.tokens >= first.tokens:
        return None
    return GroupFit([_lookup_head(slim, group)], slim.error, slim.tokens)


def _lookup_head(fit: TensorFit, group: Group) -> LookupHead:
    """A head over the axes that have more than one token: a single token has weight one everywhere."""
    axes = []
    for direction, keys, low, high in zip(group.directions, fit.keys, group.lower, group.upper, strict=True):
        slopes, biases = _to_coordinate(keys, float(low), float(high))
        axes.append(AxisKeys(direction, slopes, biases))
    used = [axis for axis in axes if len(axis.slopes) > 1] or axes[:1]
    counts = [len(axis.slopes) for axis in used]
    values = torch.from_numpy(fit.values).reshape(*counts, -1)
    return LookupHead(used, values)


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
    sparse = None
    if fitter.rank > FEW_AXES:
        sparse = SparseFitter(fitter).fit(tolerance, budget.max_tokens)
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
    if single and single.tokens <= bound:
        return single
    return None


def _plain_or_fitted(fitter: TensorFitter, tolerance: float, bound: int) -> TensorFit | None:
    """One head of at most ``bound`` tokens: a plain grid for what oscillates, a fitted one for all else."""
    head = fitter.plain if fitter.oscillates(tolerance) else fitter.fit
    single = head(tolerance, bound)
    if single is not None and single.tokens <= bound:
        return single
    return None


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
    sparse = None
    if bound > 0 and not slower.observer.over:
        sparse = SparseFitter(slower).fit(tolerance, bound)
    if sparse and sparse[0].error <= tolerance:
        return sparse
    if single is not None:
        return [single]
    if budget.fitting.over:
        return _at_hand(fitter, sparse, budget)
    return sparse


def _to_coordinate(keys: Keys, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """Keys in t of [-1, 1] rewritten for u of [lower, upper]."""
    centre = lower / 2 + upper / 2
    radius = upper / 2 - lower / 2
    slopes = torch.from_numpy(np.asarray(keys.slopes / radius))
    biases = torch.from_numpy(np.asarray(keys.biases))
    return slopes, biases - slopes * centre


def _extrapolated(size: int, error: float, tolerance: float) -> int:
    """Tokens for ``tolerance`` if the error keeps falling as size^-2, the rate of a C^2 function."""
    missed = max(error / tolerance, 1.0)
    if not math.isfinite(missed):
        return 2 * size
    return math.ceil(size * math.sqrt(missed))
