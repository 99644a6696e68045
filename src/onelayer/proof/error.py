"""ErrorFunction: g = T - f as the search sees it, enclosed on boxes and evaluated at points."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.language.quotient import Quotient, as_quotient
from onelayer.observer import Observer
from onelayer.proof.axes import balanced, by_length, families, gains, with_trials
from onelayer.proof.bounded import Bounded, Enclosure, as_taylor, shares, smaller, steepness
from onelayer.proof.cleared import cleared
from onelayer.proof.forward import enclose, execute, settled
from onelayer.proof.own import is_own_layer
from onelayer.proof.points import rounded_into
from onelayer.proof.replays import Replays
from onelayer.proof.trusted import trusted
from onelayer.recording.target import Target
from onelayer.taylor import difference, variables
from onelayer.taylor.hull import evaluate_hulled
from onelayer.taylor.kernels import untallied
from onelayer.taylor.levels import Levels
from onelayer.taylor.rounding import inflate
from onelayer.taylor.sides import Sides

# Points evaluated in one batch; larger ones do not fit a cache.
POINTS_AT_ONCE = 2048
# Kinks of f taken side by side at once on one box: each one more doubles the calls.
MAX_SIDES = 2
# Order at which axes and forms are tried: low orders are cheap, and mostly tell the same.
TRIAL_ORDER = 3
TRIAL_BOXES = 16  # on which two forms of an enclosure are compared
FEW_AXES = 2  # up to which every axis is tried for a cut
# Boxes and trials up to which one call costs little more than the call for the boxes alone, at a low and a high order.
TRIED_ALONG, TRIED_ALONG_HIGH = 512, 128
# A formula is evaluated node by node with intervals beside it, longer ones level by level without.
MAX_NODES = 5000


@dataclass(frozen=True)
class ErrorFunction:
    """g = T - f on a box, points and boxes flattened to D coordinates.

    ``model`` runs on tensors of ``dtype`` and on Taylor models. ``execution`` tags the Taylor models of T: None
    encloses T in real arithmetic, a dtype encloses whatever a forward pass in that dtype returns. f is always the real
    function, except for a black box, of which trusted.py says what is known. Whatever is asked of it raises Stopped
    once the ``observer`` says that it is over.
    """

    model: Callable[[Any], Any]
    target: Target
    box: Box
    execution: torch.dtype | None
    device: torch.device
    observer: Observer = field(default_factory=Observer, repr=False, compare=False)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.box.dim

    @property
    def dtype(self) -> torch.dtype:
        """Format of the points at which T is evaluated."""
        return self.execution or torch.float64

    @cached_property
    def span(self) -> Tensor:
        """(D,): sides of the domain, in which those of boxes are measured."""
        return self.box.width.flatten().to(self.device)

    @torch.no_grad()
    def enclose(
        self,
        low: Tensor,
        high: Tensor,
        order: int,
        threshold: float = 0.0,
        stall: Tensor | None = None,
        inherited: Tensor | None = None,
    ) -> Enclosure:
        """Rigorous enclosure of |g| on each of B boxes given by corners (B, D), on the device where those are.

        No pains are taken over the axes of boxes that need no cut, those with a bound <= ``threshold``; more are taken
        over boxes that ``stall`` (B,): cuts since the bound last fell. Axes are tried for all pieces of one box
        together: those that have ``inherited`` one bound (B,).
        """
        origin = low.device
        low = low.to(self.device)
        high = high.to(self.device)
        gain = None
        # On few boxes a call costs the same however many they are: then trials of all axes come along with it.
        if self.in_one_call(len(low), order) > len(low):
            every = self.bounded(*with_trials(low, high), order)
            own = slice(-len(low), None)  # the boxes themselves come last
            found = Bounded(*(part[own] for part in every))
            gain = gains(every.bound, self.dim)
        else:
            found = self._bounded(low, high, order)
        self._try_axes(found, low, high, order, threshold, stall, inherited, gain)
        sensitivity = found.sensitivity
        if self.dim > 1:
            sensitivity = balanced(sensitivity, low, high, self.span)
        return Enclosure(found.bound.to(origin), sensitivity.to(origin))

    @torch.no_grad()
    def bounds(self, low: Tensor, high: Tensor, order: int) -> Tensor:
        """Rigorous bounds of |g| on boxes, (B,), for those who want to know nothing of the axes."""
        here = low.to(self.device)
        there = high.to(self.device)
        return self._bounded(here, there, order).bound.to(low.device)

    def _bounded(self, low: Tensor, high: Tensor, order: int) -> Bounded:
        if self.kinked:
            return self._sides(low, high, order, [])
        return self.bounded(low, high, order)

    def in_one_call(self, boxes: int, order: int) -> int:
        """Boxes that are bounded in the first call for so many: with trials of axes where they come at no call more."""
        most = TRIED_ALONG if order <= TRIAL_ORDER else TRIED_ALONG_HIGH
        with_all_trials = boxes * (self.dim + 1)
        if with_all_trials <= most and self.dim > FEW_AXES and not self.kinked:
            return with_all_trials
        return boxes

    def _try_axes(
        self,
        found: Bounded,
        low: Tensor,
        high: Tensor,
        order: int,
        threshold: float,
        stall: Tensor | None,
        inherited: Tensor | None,
        known: Tensor | None,
    ) -> None:
        """Where coefficients do not tell which axis to cut, try each axis at half its side, or take ``known`` gains.

        That is so where there is no bound, and where the remainder dominates it: that may come from an axis which no
        coefficient shows. With few axes a trial pays only once cuts have failed to help. A low order is cheap and
        mostly enough; boxes on which it has no finite bound are tried at the full order. Those that stay unbounded are
        cut along their longest side.
        """
        decided = found.remainder < found.bound / 2
        if self.dim <= FEW_AXES and stall is not None:
            patient = stall.to(self.device) <= self.dim
            decided |= torch.isfinite(found.bound) & patient
        # Written as "not <=", so that NaN counts as too large.
        too_large = ~(found.bound <= threshold)
        lost = (~decided & too_large).nonzero()[:, 0]
        kin = found.bound if inherited is None else inherited.to(self.device)
        for trial in sorted({min(TRIAL_ORDER, order), order}):
            if self.dim == 1 or not len(lost):
                return
            if known is None:
                gain = self._gains(low[lost], high[lost], trial, kin[lost], found.bound[lost])
            else:
                gain = known[lost]
            told = (gain > 0).any(1)
            found.sensitivity[lost[told]] = gain[told].clamp(min=0)
            lost = lost[~told]
        found.sensitivity[lost] = by_length(low[lost], high[lost], self.span)

    def _gains(self, low: Tensor, high: Tensor, order: int, inherited: Tensor, bound: Tensor) -> Tensor:
        family = families(inherited, bound)
        trials = with_trials(low[family.tried], high[family.tried])
        with untallied():  # what a box costs is asked of the boxes alone
            every = self.bounded(*trials, order)
        return gains(every.bound, self.dim)[family.member]

    @cached_property
    def kinked(self) -> bool:
        """Whether f has kinks that can be taken side by side.

        That needs to know which box an entry belongs to, which is certain where formulas and layers of this package
        keep the boxes in front; code from elsewhere may move or merge that dimension.
        """
        formula = self.target.formula
        if formula is None or not is_own_layer(self.model) or len(formula.nodes) > MAX_NODES:
            return False
        return self.target.lipschitz is None and formula.kinked

    def _sides(self, low: Tensor, high: Tensor, order: int, assumed: list[Tensor]) -> Bounded:
        """Enclosure on the part of each box where the assumed sides of kinks hold.

        A kink of f that stays open is assumed to either side in turn; the larger of the two bounds holds on both.
        """
        watch = Sides(assumed, len(low), self.dim, self.device, take_notes=len(assumed) < MAX_SIDES)
        found = self.bounded(low, high, order, watch)
        index = watch.open.nonzero()[:, 0]
        if not len(index):
            return found
        low, high = low[index], high[index]
        before = [q[:, index] for q in assumed]
        plane = watch.plane[:, index]
        one = self._sides(low, high, order, [*before, 1.0 * plane])
        other = self._sides(low, high, order, [*before, -1.0 * plane])
        # Each holds on its side, so the larger one on both; the bound without sides holds too, and may be smaller.
        either = torch.maximum(one.bound, other.bound)
        bound = found.bound.clone()
        sensitivity = found.sensitivity.clone()
        bound[index] = torch.minimum(bound[index], either)
        sensitivity[index] = torch.maximum(one.sensitivity, other.sensitivity)
        remainder = found.remainder.clone()
        remainder[index] = torch.maximum(one.remainder, other.remainder)
        return Bounded(bound, sensitivity, remainder)

    @torch.no_grad()
    def bounded(self, low: Tensor, high: Tensor, order: int, watch: Sides | None = None) -> Bounded:
        """Enclosure by one Taylor model of g; ``watch`` holds assumed sides and notes the kinks of f left open."""
        self.observer.check()
        # Sides write their notes into tensors of one call alone, which a recorded graph would not see.
        if watch is None and low.is_cuda and len(low) and self.replayable:
            return Bounded(*self.replays(low, high, order))
        return self._enclosed(low, high, order, watch)

    @cached_property
    def replayable(self) -> bool:
        """Whether T and f are arithmetic alone: code from elsewhere may do anything between two operations."""
        return self.target.formula is not None and (type(self.model) is Formula or is_own_layer(self.model))

    @cached_property
    def replays(self) -> Replays:
        """Graphs of enclosures on a GPU."""
        return Replays(self._enclosed)

    def _enclosed(self, low: Tensor, high: Tensor, order: int, watch: Sides | None = None) -> Bounded:
        t = self._model(low, high, order, watch)
        if self.quotient is None:
            return self._divided(t, low, high, order, watch)
        without_division = cleared(self.quotient, t, low, high, order)
        # Where a denominator may vanish, the formula as it is written may still have a bound.
        if bool(torch.isfinite(without_division.bound).all()):
            return without_division
        return smaller(without_division, self._divided(t, low, high, order))

    def _model(self, low: Tensor, high: Tensor, order: int, watch: Sides | None = None) -> Any:
        """T on boxes (B, D)."""
        lower, upper = self._shaped(low), self._shaped(high)
        silent = None if watch is None else watch.silent()
        x = variables(lower, upper, order, execution=self.execution, sides=silent)
        return enclose(self.model, x, tuple(self.target.output_shape))

    def _shaped(self, flat: Tensor) -> Tensor:
        """Points or corners (B, D) in the shape of the domain, (B, *shape)."""
        return flat.reshape(-1, *self.box.shape)

    def _divided(self, t: Any, low: Tensor, high: Tensor, order: int, watch: Sides | None = None) -> Bounded:
        """Enclosure of T - f with f as it is written."""
        lower, upper = self._shaped(low), self._shaped(high)
        slack = torch.zeros(low.shape[0], dtype=torch.float64, device=self.device)
        f: Any
        if self.target.lipschitz is None:
            f = self._target(lower, upper, order, watch)
        else:
            f, slack = trusted(self.target, self.box, low, high, order, self.observer)
        t_model, f_model = as_taylor(t, f, lower, upper, order)
        g = difference(t_model, f_model).reshape(low.shape[0], -1)
        bound = g.split_bound().amax(1)
        bound = bound if self.target.lipschitz is None else inflate(bound + slack)
        # An enclosure that is no number excludes nothing.
        bound = torch.where(torch.isnan(bound), torch.inf, bound)
        steep = steepness(t) + steepness(f)
        return Bounded(bound, shares(g, bound, steep), g.rem.amax(1))

    @cached_property
    def quotient(self) -> Quotient | None:
        """f as a quotient where that is the better form: a formula without kinks that divides by more than constants.

        Cleared of its division f stays polynomial where 1 / D is not, but its degree grows. Some boxes of a quarter of
        the sides tell which matters more.
        """
        formula = self.target.formula
        if formula is None or self.target.lipschitz is not None or len(formula.nodes) > MAX_NODES:
            return None
        quotient = None if formula.kinked else as_quotient(formula)
        if quotient is None:
            return None
        side = self.box.width.flatten() / 4
        generator = torch.Generator().manual_seed(0)
        place = torch.rand(TRIAL_BOXES, self.dim, dtype=torch.float64, generator=generator, device="cpu")
        low = self.box.lower.flatten() + 3 * side * place
        high = torch.minimum(low + side, self.box.upper.flatten()).to(self.device)
        low = low.to(self.device)
        t = self._model(low, high, TRIAL_ORDER)
        without_division = cleared(quotient, t, low, high, TRIAL_ORDER).bound
        as_written = self._divided(t, low, high, TRIAL_ORDER).bound
        return quotient if without_division.median() < as_written.median() else None

    def decide(self) -> None:
        """Take the decisions that are taken once, so that no later call is charged with them."""
        _ = self.kinked, self.quotient, self.levels

    @cached_property
    def levels(self) -> Levels | None:
        """A long formula, made ready for evaluation level by level."""
        formula = self.target.formula
        if formula is None or len(formula.nodes) <= MAX_NODES:
            return None
        return Levels(formula)

    def _target(self, lower: Tensor, upper: Tensor, order: int, watch: Sides | None) -> Any:
        """f on boxes (B, *shape): its formula is what the certificate states, so that is what is evaluated."""
        formula = self.target.formula
        x = variables(lower, upper, order, sides=watch)
        if formula is None:
            return enclose(self.target.function, x, tuple(self.target.output_shape), "the function")
        if self.levels is not None:
            return self.levels(x.reshape(len(lower), self.dim))
        low = lower.reshape(len(lower), -1)
        high = upper.reshape(len(upper), -1)
        values = evaluate_hulled(formula, x.reshape(len(low), self.dim), low, high)
        return values.reshape(len(low), *formula.output_shape)

    @torch.no_grad()
    def values(self, points: Tensor, hurry: Observer | None = None) -> Tensor:
        """max over outputs of |g| at points (C, D) in floating arithmetic, -1 where it is no number. Not rigorous.

        Once ``hurry`` says that it is over, the points that are left get -1 as well.
        """
        if not len(points):
            return torch.zeros(0, dtype=torch.float64, device="cpu")
        found = []
        batch = min(POINTS_AT_ONCE, self.target.pace.batch(len(points)))
        for part in torch.split(points, batch):
            if hurry is not None and hurry.over:
                found.append(torch.full((len(part),), -1.0, dtype=torch.float64, device="cpu"))
                continue
            f = self.target.values(self._shaped(part), self.observer).to("cpu", torch.float64)
            g = (self.executed(part) - f).abs()
            found.append(g.reshape(len(part), -1).amax(1))
        values = torch.cat(found)
        return torch.where(torch.isfinite(values), values, -1.0)

    def executed(self, points: Tensor) -> Tensor:
        """What the forward pass returns at points (C, D) of its format, (C, *outputs) as float64."""
        self.observer.check()
        x = self._shaped(points).to(self.device, self.dtype)
        y = execute(self.model, x, tuple(self.target.output_shape))
        return y.to("cpu", torch.float64)

    def representable(self, points: Tensor) -> Tensor:
        """The points (C, D) moved to numbers of the executing format inside the box; those without one are dropped."""
        low = self.box.lower.flatten()
        high = self.box.upper.flatten()
        rounded = self.rounded(points)
        inside = (rounded >= low) & (rounded <= high)
        return rounded[inside.all(1)]

    def rounded(self, points: Tensor) -> Tensor:
        """The points (C, D) moved to numbers of the executing format, into the box where its sides hold any."""
        return rounded_into(self.box, points, self.dtype)


def error_function(
    model: Callable[[Any], Any],
    target: Target,
    box: Box,
    execution: torch.dtype | None,
    device: torch.device,
    observer: Observer | None = None,
) -> ErrorFunction:
    """g for a model in evaluation mode, on ``device``, with its weights in the executing format.

    The given module is never changed: a copy is made when its mode, device or dtype differs.
    """
    dtype = execution or torch.float64
    if isinstance(model, nn.Module):
        model = settled(model, device, execution)
    with torch.no_grad():
        centre = box.center[None].to(device, dtype)
        shape = tuple(execute(model, centre).shape[1:])
    target = _matched(target, shape)
    return ErrorFunction(model, target, box, execution, device, observer or Observer())


def _matched(target: Target, shape: tuple[int, ...]) -> Target:
    """The target with outputs of the model's shape: one number is one number, whether in () or in (1,)."""
    wanted = tuple(target.output_shape)
    if shape == wanted:
        return target
    if math.prod(shape) == math.prod(wanted) == 1:
        warnings.warn(f"the model returns shape {shape} and the function {wanted}: one number each", stacklevel=4)
        return target.one_number(shape)
    raise OnelayerError(
        f"the model returns shape {shape} and the function {wanted} at one point; they must be equal: "
        "give the model as many outputs as f has, or choose one as in model(x)[..., 0]"
    )
