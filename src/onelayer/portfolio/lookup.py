"""Lookup layers for a task, each fitted more tightly than the last until one is proved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from onelayer.build.lookup.blueprint import Blueprint, draw_up, flat, seen_size, straight
from onelayer.build.lookup.groups import FitBudget
from onelayer.build.lookup.settle import settle
from onelayer.build.lookup.sketch import sketch
from onelayer.formats import format_of
from onelayer.observer import Observer, Stopped
from onelayer.portfolio.task import FIT_TIME, Task, proved
from onelayer.proof.certificate import Certificate
from onelayer.recording.evaluation import Pace
from onelayer.recording.target import Target, looked_at
from onelayer.result import Approximation

# Of eps for the fit of a black box: the proof pays for the rest with values, (1 - share)^-D of them.
PAID_SHARE = 0.2
# Of what is left of eps, for a fit whose values are then rounded.
STORED_SHARE = 0.4
# Of eps, for a fit of fewer tokens after a proof: almost all of it, since one proof is there already.
SLIM_SHARE = 0.96
# Boxes of the proof of that fit: two or three seconds in four dimensions.
SLIM_BOXES = 20_000
# Seconds for it, beyond those that the first proof took.
SLIM_SECONDS = 3.0
# Each with an eps that the last bound corrects; two suffice as a rule.
ATTEMPTS = 5


def lookups(task: Task, watch: Observer, closer: float = 1.0, attempts: int = ATTEMPTS) -> Iterator[Approximation]:
    """Lookup layers with their proofs, each fitted more tightly than the last; at least one, however little time.

    After a proof comes a smaller layer, where giving the proof less room saves tokens.
    ``closer`` is the part of the usual tolerance that the first fit gets; ``attempts`` are the fits before a proof.
    """
    share = PAID_SHARE if task.target.paid else task.fit_share
    budget = _fit_budget(task, share, watch)
    goal = share * _left_to_fit(task, watch) * closer
    tolerance = goal
    for attempt in range(attempts):
        watch.report("fitting")
        try:
            blueprint = _drawn(task, tolerance, budget)
        except Stopped:
            if attempt:
                return
            blueprint = straight(task.target, task.domain)
        found = proved(blueprint, task, watch)
        yield found
        if found.certificate.proved:
            patience = found.certificate.seconds + SLIM_SECONDS
            yield from _slimmer(blueprint, task, watch.within(patience))
            return
        # A closer fit changes nothing where this one missed what it was asked for, or where no bound exists at all.
        # Values that are rounded afterwards miss by their rounding, which says nothing of the fit.
        missed = task.storage is None and blueprint.error > tolerance
        unbounded = not found.certificate.upper < math.inf
        if missed or unbounded or watch.over:
            return
        tolerance = _tightened(tolerance, goal, found.certificate)


def _fit_budget(task: Task, share: float, watch: Observer) -> FitBudget:
    """What a fit within a share of eps may use; a smaller one is looked for where values of f cost nothing."""
    computing = format_of(task.dtype).computing.dtype
    costly = task.target.paid or task.storage is not None
    slack = 1.0 if costly else SLIM_SHARE / share
    fitting = watch.share(FIT_TIME)
    return FitBudget(computing, task.max_tokens, task.seed, slack=slack, observer=watch, fitting=fitting)


def _slimmer(blueprint: Blueprint, task: Task, watch: Observer) -> Iterator[Approximation]:
    """The layer of fewer tokens that leaves its proof less room, if there is one."""
    if blueprint.fewer is not None and not watch.over:
        short = replace(task, max_boxes=min(SLIM_BOXES, task.max_boxes))
        yield proved(blueprint.fewer, short, watch)


def _left_to_fit(task: Task, watch: Observer) -> float:
    """What of eps a fit may take: half of what the rounding of the output leaves, where values are rounded too."""
    if task.storage is None:
        return task.eps
    largest = seen_size(task.target, task.domain, watch)
    rounding = task.storage.output_rounding(largest)
    # Where rounding alone takes all of eps, a fit still needs a tolerance above zero.
    return STORED_SHARE * max(task.eps - rounding, task.eps / 4)


def _tightened(tolerance: float, goal: float, certificate: Certificate) -> float:
    """A refuted fit was worse than estimated by lower / tolerance; an undecided one needs more room for the proof."""
    if certificate.status == "refuted":
        # At least by a fifth: an error just above eps would hardly change the fit.
        return tolerance * min(0.8, goal / certificate.lower)
    return tolerance / 2


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
    target = task.target
    box = task.domain
    if not target.paid:
        return target
    f = flat(target, box, budget.patience(target))
    # The points at which f was examined when it was read.
    tested = looked_at(box).reshape(-1, box.dim)
    made = sketch(f, box, tolerance, tested)
    if made is None:
        return target

    def function(x: Tensor) -> Tensor:
        batch = x.shape[: x.ndim - len(box.shape)]
        values = made(x.reshape(-1, box.dim))
        return values.reshape(*batch, *target.output_shape)

    return replace(target, function=function, pace=Pace())
