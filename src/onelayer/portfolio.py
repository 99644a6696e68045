"""Ways to build f race in slices of the budget: cheap ones first, any proof first, then a smaller one while cheap.

A way that stalls is set aside, and what it found is kept: the result is the best of all ways, with the history of what
was tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.blueprint import Blueprint, FitBudget, draw_up, flat, seen_size, straight
from onelayer.build.lookup.kinks import only_hinges
from onelayer.build.lookup.settle import settle
from onelayer.build.lookup.sketch import sketch
from onelayer.build.lookup.smooth import Closeness, smoothed
from onelayer.build.lookup.storage import Integers, Storage
from onelayer.build.nested.compose import Composer, compose, composer
from onelayer.build.pieces.sharp import sharpen, sharpener
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import needs_superposition, superpose
from onelayer.errors import OnelayerError
from onelayer.formats import format_of
from onelayer.language.formula import Formula
from onelayer.observer import Observer, Stopped
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.proof.claims import gradient_error
from onelayer.recording.evaluation import Pace
from onelayer.recording.target import Target, looked_at
from onelayer.result import Approximation, Attempt

# Share of eps given to the fit; the rest is room for the proof, which pays for tightness with boxes, more so in more
# dimensions. No claim that the numbers are optimal.
FIT_SHARE = {1: 0.97, 2: 0.9, 3: 0.8, 4: 0.7}
HIGH_DIMENSION_SHARE = 0.5  # of eps for the fit where FIT_SHARE has no row; the proof needs the rest
PAID_SHARE = 0.2  # of eps for the fit of a black box: the proof pays for the rest with values, (1 - share)^-D of them
ATTEMPTS = 5  # each with an eps that the last bound corrects; two suffice as a rule
SMOOTH_ATTEMPTS = 8  # of a fit for values and slopes; two suffice as a rule
MOST_CLOSER = 8.0  # by which a fit is made closer at once: errors fall fast with every token
STORED_SHARE = 0.4  # of what is left of eps, for a fit whose values are then rounded
FIT_TIME = 0.5  # share of the time after which a fit has to do with what it found
TIGHTER = 0.25  # a proof that stalls gets a fit this much closer: what a smaller eps would have had
CLOSE = 2.0  # times eps: a bound that far needs time, not another fit
FEW = 3  # coordinates up to which one grid of tokens is cheap to fit and to prove
MANY_UNITS = 800  # predicted hidden units beyond which a composition waits for the lookup
PURSUIT_SHARE = 0.25  # of the time, for outer functions of several sums: their ridges come soon or hardly at all
# Of a lookup that is not the only way, a part of the time but at most these seconds: easy functions need less.
FIRST_SHARE, SLICE_BOXES, SLICE_SECONDS = 0.2, 10_000, 40.0
LEAST, MOST = 5.0, 15.0  # seconds for a smaller one after a proof: as many as the proof took, within these
SMALL = 5  # coordinates up to which a grid of tokens has a chance to be smaller than a composition
KINKED = ("max", "min", "abs", "relu")

Build = Callable[[Observer], Iterator[Approximation]]


@dataclass(frozen=True)
class Task:
    """What is to be built, and within what limits."""

    target: Target
    domain: Box
    eps: float
    dtype: torch.dtype
    max_tokens: int
    max_boxes: int
    seed: int
    jobs: int
    device: str | torch.device = "cpu"  # where proofs are computed
    executor: Executor | None = None  # who shares long proofs, instead of processes of this machine
    storage: Storage | None = None  # of the weights, where it is coarser than what the layer computes in


def race(task: Task, watch: Observer) -> Approximation:
    """The best result of all ways; OnelayerError when none of them leads anywhere."""
    found = _Found(task)
    if task.storage is not None:
        found.run("lookup", _lookup(task, 1.0), watch)
    elif not (_kinked(task) and _sharp(found, task, watch)):
        _raced(found, task, _composer(task), watch)
    return found.result()


def _raced(found: _Found, task: Task, composed: Composer | None, watch: Observer) -> None:
    """All ways but sharp heads: a composition first in many coordinates, after the lookup in few.

    A composition of products takes grids of tokens as a lookup does, so the lookup comes before it there too.
    """
    if composed is not None and _comes_first(composed, task) and _composed_first(found, task, composed, watch):
        return
    others = composed is not None or _kinked(task)
    slot = watch.share(FIRST_SHARE).within(SLICE_SECONDS) if others else watch.share(0.5)
    _first_lookup(found, task, others, slot)
    cut = found.cut
    if composed is not None and not _comes_first(composed, task) and not found.proved:
        found.run("composition", _composition(composed, task), watch.share(0.4))
    _cut_lookup(found, task, cut, watch)
    _kept_tokens(found, task, watch)
    _last_lookup(found, task, others, watch)


def _comes_first(composed: Composer, task: Task) -> bool:
    return task.domain.dim > FEW and not composed.multiplies


def _composed_first(found: _Found, task: Task, composed: Composer, watch: Observer) -> bool:
    """Whether a composition proves it; in not too many coordinates, a lookup may still be smaller."""
    share = 0.5 if composed.rank == 1 else PURSUIT_SHARE
    found.run("composition", _composition(composed, task), watch.share(share))
    if found.proved and task.domain.dim <= SMALL:
        _smaller_lookup(found, task, watch)
    return found.proved


def _smaller_lookup(found: _Found, task: Task, watch: Observer) -> None:
    """A lookup after a proof by another way, for about as long as that took."""
    found.run("lookup", _lookup(task, 1.0), watch.within(min(max(LEAST, found.seconds), MOST)))


def _first_lookup(found: _Found, task: Task, others: bool, slot: Observer) -> None:
    """A lookup, with few boxes where there are other ways."""
    first = replace(task, max_boxes=min(SLICE_BOXES, task.max_boxes)) if others else task
    found.run("lookup", _lookup(first, 1.0), slot)


def _cut_lookup(found: _Found, task: Task, cut: Approximation | None, watch: Observer) -> None:
    """The proof of a lookup goes on where time cut it off, unless another way was faster."""
    if cut is not None and not found.proved and not watch.over:
        found.run("lookup, proof", _again(cut, task), watch.share(0.5))


def _kept_tokens(found: _Found, task: Task, watch: Observer) -> None:
    """Tokens that stay tokens, for kinks that nothing else has proved."""
    if not found.proved and not watch.over and _kinked(task):
        found.run("tokens", lambda slot: iter([tokens(task, slot)]), watch.share(0.5))


def _last_lookup(found: _Found, task: Task, others: bool, watch: Observer) -> None:
    """A lookup with all the time left, where more may help; more closely where the first proof stalled far from eps."""
    if watch.over or found.proved or not (others or found.stalled or found.hurried):
        return
    closer = TIGHTER if found.stalled and found.upper >= CLOSE * task.eps else 1.0
    found.run("lookup, closer" if closer < 1 else "lookup, longer", _lookup(task, closer), watch)


def _sharp(found: _Found, task: Task, watch: Observer) -> bool:
    """Whether sharp heads prove it; where units approximate curves, a lookup may still be smaller."""
    formula = task.target.formula
    if formula is not None and only_hinges(formula, flat(task.target, task.domain, watch), task.domain):
        return False  # lookup takes such kinks out exactly
    way = sharpener(task.target, task.domain, task.dtype)
    if way is None:
        return False
    found.run("sharp heads", lambda slot: iter([sharpen(way, task.eps, slot)]), watch.share(0.5))
    if found.proved and way.curved and task.domain.dim <= FEW:
        _smaller_lookup(found, task, watch)
    return found.proved


def tokens(task: Task, watch: Observer) -> Approximation:
    """The layer in which tokens stay tokens."""
    if needs_superposition(task.target, task.domain, watch):
        return superpose(task.target, task.domain, task.eps, dtype=task.dtype, observer=watch)
    return gather(
        task.target,
        task.domain,
        task.eps,
        dtype=task.dtype,
        seed=task.seed,
        max_boxes=task.max_boxes,
        jobs=task.jobs,
        observer=watch,
    )


def pieces(task: Task, watch: Observer) -> Approximation:
    """The layer of sharp heads; OnelayerError where f is not of that form."""
    way = sharpener(task.target, task.domain, task.dtype)
    if way is None:
        raise OnelayerError(
            "layout 'pieces' is for kinks: max, min, abs and relu of affine functions, and functions of one sum of them"
        )
    return sharpen(way, task.eps, watch)


def lookups(task: Task, watch: Observer, closer: float = 1.0) -> Iterator[Approximation]:
    """Lookup layers with their proofs, each fitted more tightly than the last; at least one, however little time.

    ``closer`` is the part of the usual tolerance that the first fit gets.
    """
    computing = format_of(task.dtype).computing.dtype
    budget = FitBudget(computing, task.max_tokens, task.seed, observer=watch, fitting=watch.share(FIT_TIME))
    share = PAID_SHARE if task.target.paid else FIT_SHARE.get(task.domain.dim, HIGH_DIMENSION_SHARE)
    goal = share * _left_to_fit(task, watch) * closer
    tolerance = goal
    for attempt in range(ATTEMPTS):
        watch.report("fitting")
        try:
            blueprint = _drawn(task, tolerance, budget)
        except Stopped:
            if attempt:
                return
            blueprint = straight(task.target, task.domain)
        found = proved(blueprint, task, watch)
        yield found
        missed = task.storage is None and blueprint.error > tolerance
        hopeless = missed or not found.certificate.upper < math.inf  # closer changes nothing
        if found.certificate.proved or hopeless or watch.over:
            return
        tolerance = _tightened(tolerance, goal, found.certificate)


def _drawn(task: Task, tolerance: float, budget: FitBudget) -> Blueprint:
    """A blueprint within the tolerance, on the numbers that the layer is stored in."""
    fitted = _sketched(task, tolerance, budget)
    drawn = draw_up(fitted, task.domain, tolerance, budget)
    if task.storage is None:
        return drawn
    f = flat(fitted, task.domain, budget.patience(fitted))
    return settle(drawn, f, task.domain, task.storage, budget.fitting)


def _sketched(task: Task, tolerance: float, budget: FitBudget) -> Target:
    """A black box by a sketch of it where there is one: a fit asks for far more values than should be paid for."""
    target, box = task.target, task.domain
    if not target.paid:
        return target
    f = flat(target, box, budget.patience(target))
    made = sketch(f, box, tolerance, looked_at(box).reshape(-1, box.dim))
    if made is None:
        return target

    def function(x: Tensor) -> Tensor:
        return made(x.reshape(-1, box.dim)).reshape(*x.shape[: x.ndim - len(box.shape)], *target.output_shape)

    return replace(target, function=function, pace=Pace())


def smooth(task: Task, gradient_eps: float, watch: Observer) -> Approximation:
    """A lookup layer whose slopes are proved close as well: fitted more closely until both proofs go through."""
    formula = task.target.formula
    if formula is None:
        raise OnelayerError("gradient_eps needs the slopes of f: give f as a formula or torch function")
    budget = FitBudget(task.dtype, task.max_tokens, task.seed, observer=watch, fitting=watch.share(FIT_TIME))
    wanted = Closeness(task.eps, gradient_eps, budget.unit)
    share = FIT_SHARE.get(task.domain.dim, HIGH_DIMENSION_SHARE)
    tolerance = share * task.eps
    best = None
    for attempt in range(SMOOTH_ATTEMPTS):
        watch.report("fitting")
        drawn, seen = _drawn_smooth(task, formula, tolerance, wanted, budget)
        if seen <= share or attempt == SMOOTH_ATTEMPTS - 1 or watch.over:
            best = _with_slopes(proved(drawn, task, watch), task, gradient_eps, watch)
            if _both_proved(best) or watch.over:
                return best
        tolerance /= min(max(seen / share, 1.5), MOST_CLOSER)
    if best is None:
        raise OnelayerError("nothing was built; raise max_seconds")
    return best


def _drawn_smooth(
    task: Task, formula: Formula, tolerance: float, wanted: Closeness, budget: FitBudget
) -> tuple[Blueprint, float]:
    """A blueprint fitted to values and slopes, and the worst share of either tolerance that was seen."""
    drawn = draw_up(task.target, task.domain, tolerance, budget)
    if len(drawn.kinks):
        raise OnelayerError("f has kinks in the domain, and no slopes there; leave out gradient_eps")
    if not drawn.heads:
        return drawn, 0.0
    f = flat(task.target, task.domain, budget.observer)
    return smoothed(drawn, f, _slopes(formula, task.domain), task.domain, wanted)


def _both_proved(made: Approximation) -> bool:
    """Whether values and slopes are proved."""
    return made.certificate.proved and made.gradient is not None and made.gradient.proved


def _slopes(formula: Formula, box: Box) -> Callable[[Tensor], Tensor]:
    """df/dx (S, K, D) at points (S, D)."""

    def evaluate(points: Tensor) -> Tensor:
        x = points.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            values = formula(x.reshape(-1, *box.shape)).reshape(len(points), -1)
            columns = [
                torch.autograd.grad(values[:, k].sum(), x, retain_graph=True, allow_unused=True, materialize_grads=True)
                for k in range(values.shape[1])
            ]
        return torch.stack([column[0] for column in columns], 1)

    return evaluate


def _with_slopes(made: Approximation, task: Task, gradient_eps: float, watch: Observer) -> Approximation:
    """The layer with a second certificate, of its slopes; without one where the first already failed."""
    if not made.certificate.proved:
        return made
    gradient = gradient_error(made.model, task.target, task.domain, gradient_eps, jobs=task.jobs, observer=watch)
    return replace(made, gradient=gradient)


def _left_to_fit(task: Task, watch: Observer) -> float:
    """What of eps a fit may take: half of what the rounding of the output leaves, where values are rounded too."""
    if task.storage is None:
        return task.eps
    rounding = task.storage.output_rounding(seen_size(task.target, task.domain, watch))
    return STORED_SHARE * max(task.eps - rounding, task.eps / 4)


def proved(blueprint: Blueprint, task: Task, watch: Observer) -> Approximation:
    """The layer of a blueprint with its certificate."""
    model = blueprint.build(task.dtype)
    model.integers = isinstance(task.storage, Integers)
    certificate = _certified(model, task, watch)
    wanted = None if certificate.proved else blueprint.wanted or None
    return Approximation(model, certificate, task.target, wanted_tokens=wanted)


def _certified(model: Any, task: Task, watch: Observer) -> Certificate:
    travels = task.target.formula is not None and task.target.lipschitz is None
    return certify(
        model,
        task.target,
        task.domain,
        task.eps,
        max_boxes=task.max_boxes,
        jobs=task.jobs,
        executor=task.executor if travels else None,
        device=task.device,
        observer=watch,
    )


def _again(made: Approximation, task: Task) -> Build:
    """The proof of a layer whose fit had used up its time."""

    def build(slot: Observer) -> Iterator[Approximation]:
        yield replace(made, certificate=_certified(made.model, task, slot))

    return build


def _lookup(task: Task, closer: float) -> Build:
    return lambda slot: lookups(task, slot, closer)


def _composition(composed: Composer, task: Task) -> Build:
    return lambda slot: iter([compose(composed, task.eps, slot)])


def _tightened(tolerance: float, goal: float, certificate: Certificate) -> float:
    """A refuted fit was worse than estimated by lower / tolerance; an undecided one needs more room for the proof."""
    if certificate.status == "refuted":
        return tolerance * min(0.8, goal / certificate.lower)
    return tolerance / 2


def _composer(task: Task) -> Composer | None:
    """f as inner and outer functions, unless sums of inner functions are all there is: then lookup does the same."""
    found = composer(task.target, task.domain, task.dtype, task.seed, max_tokens=task.max_tokens)
    if found is None or found.rank == 0 or found.predicted_units(task.eps) > MANY_UNITS:
        return None
    return found


def _kinked(task: Task) -> bool:
    """Whether f is a formula with kinks, on points that are sequences."""
    formula = task.target.formula
    return formula is not None and len(task.domain.shape) <= 2 and any(node.op in KINKED for node in formula.nodes)


class _Found:
    """What has been found so far."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.best: Approximation | None = None
        self.history: list[Attempt] = []
        self.error: OnelayerError | None = None
        self.cut: Approximation | None = None  # the last one, where its time was over before its proof was
        self.hurried = False  # whether the last way had used up the time of a fit
        self.started = time.monotonic()

    def run(self, way: str, build: Build, watch: Observer) -> None:
        """One way, in its slice of the time: the best is kept, a failure noted."""
        begun = started = time.monotonic()
        enough = FIT_TIME * watch.seconds_left
        try:
            for made in build(watch):
                self.history.append(_attempt(way, made, time.monotonic() - begun))
                self.best = made if self.best is None else min(self.best, made, key=_rank)
                self.cut = made if made.certificate.status == "undecided" else None
                begun = time.monotonic()
        except OnelayerError as error:
            self.error = self.error or error
            self.history.append(Attempt(way, "failed", 0.0, math.inf, 0, time.monotonic() - begun, str(error)))
        self.cut = self.cut if watch.over else None
        self.hurried = time.monotonic() - started >= enough

    @property
    def proved(self) -> bool:
        return self.best is not None and self.best.certificate.proved

    @property
    def upper(self) -> float:
        return self.best.certificate.upper if self.best is not None else math.inf

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def stalled(self) -> bool:
        """Whether a lookup ended undecided although its tokens were allowed: the proof, not the fit, gave up."""
        last = [attempt for attempt in self.history if attempt.way == "lookup"]
        return not self.proved and bool(last) and last[-1].status == "undecided"

    def result(self) -> Approximation:
        """The best, with the history; the first error where there is nothing else."""
        if self.best is None:
            raise self.error or OnelayerError("nothing was built; raise max_seconds")
        return replace(self.best, history=tuple(self.history))


def _rank(made: Approximation) -> tuple[bool, float]:
    """Proofs by size, the others by their bound."""
    proof = made.certificate.proved
    return not proof, float(made.size()["parameters"]) if proof else made.certificate.upper


def _attempt(way: str, made: Approximation, seconds: float) -> Attempt:
    certificate = made.certificate
    parameters = made.size()["parameters"]
    return Attempt(way, certificate.status, certificate.lower, certificate.upper, parameters, seconds, "")
