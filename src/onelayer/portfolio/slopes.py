"""Lookup layers for a task whose slopes are to be proved close as well."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from onelayer.box import Box
from onelayer.build.lookup.blueprint import Blueprint, draw_up, flat, straight
from onelayer.build.lookup.groups import FitBudget
from onelayer.build.lookup.smooth import Closeness, smoothed
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.observer import Observer, Stopped
from onelayer.portfolio.task import FIT_TIME, Task, proved
from onelayer.proof.claims import gradient_error
from onelayer.recording.target import place
from onelayer.result import Approximation

# Of a fit for values and slopes; two suffice as a rule.
SMOOTH_ATTEMPTS = 8
# By which a fit is made closer at once: errors fall fast with every token.
MOST_CLOSER = 8.0


def smooth(task: Task, gradient_eps: float, watch: Observer) -> Approximation:
    """A lookup layer whose slopes are proved close as well: fitted more closely until both proofs go through."""
    formula = task.target.formula
    if formula is None:
        raise OnelayerError("gradient_eps needs the slopes of f: give f as a formula or torch function")
    budget = FitBudget(task.dtype, task.max_tokens, task.seed, observer=watch, fitting=watch.share(FIT_TIME))
    wanted = Closeness(task.eps, gradient_eps, budget.unit)
    share = task.fit_share
    tolerance = share * task.eps
    best = None
    attempt = 0
    while True:
        attempt += 1
        watch.report("fitting")
        try:
            drawn, seen = _drawn_smooth(task, formula, tolerance, wanted, budget)
        except Stopped:
            return best or proved(straight(task.target, task.domain), task, watch)
        # A fit that is seen to miss is not worth a proof, unless there will be no other.
        last = attempt == SMOOTH_ATTEMPTS or watch.over
        if seen <= share or last:
            best = _with_slopes(proved(drawn, task, watch), task, gradient_eps, watch)
            if _both_proved(best) or last:
                return best
        tolerance /= _closer(seen / share)


def _closer(missed: float) -> float:
    """By what a fit that missed is made closer: at least a half, so that one that just misses is not made again."""
    if not math.isfinite(missed):
        return MOST_CLOSER
    return min(max(missed, 1.5), MOST_CLOSER)


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
    return smoothed(drawn, f, _slopes(formula, task.domain), task.domain, wanted, budget.fitting)


def _with_slopes(made: Approximation, task: Task, gradient_eps: float, watch: Observer) -> Approximation:
    """The layer with a second certificate, of its slopes; without one where the first already failed."""
    if not made.certificate.proved:
        return made
    gradient = gradient_error(made.model, task.target, task.domain, gradient_eps, jobs=task.jobs, observer=watch)
    return replace(made, gradient=gradient)


def _both_proved(made: Approximation) -> bool:
    """Whether values and slopes are proved."""
    return made.certificate.proved and made.gradient is not None and made.gradient.proved


def _slopes(formula: Formula, box: Box) -> Callable[[Tensor], Tensor]:
    """df/dx (S, K, D) at points (S, D)."""

    def evaluate(points: Tensor) -> Tensor:
        x = points.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            values = formula(x.reshape(-1, *box.shape))
            values = values.reshape(len(points), -1)
            slopes = torch.stack([_summed_slopes(column, x) for column in values.unbind(1)], 1)
        known = torch.isfinite(slopes).flatten(1).all(1)
        if not bool(known.all()):
            where = place(points[int(known.int().argmin())])
            raise OnelayerError(
                f"f has no finite slope at x = {where}; choose a box on which it has, or no gradient_eps"
            )
        return slopes

    return evaluate


def _summed_slopes(values: Tensor, x: Tensor) -> Tensor:
    """d(sum of values)/dx: row by row, since each value depends on its own row alone; zero where x does not occur."""
    (slopes,) = torch.autograd.grad(values.sum(), x, retain_graph=True, allow_unused=True, materialize_grads=True)
    return slopes
