"""Ways to build f race in slices of the budget: cheap ones first, any proof first, then a smaller one while cheap.

A way that stalls is set aside, and what it found is kept: the result is the best of all ways, with the history of what
was tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from onelayer.box import Box
from onelayer.build.lookup.blueprint import Blueprint, FitBudget, draw_up, straight
from onelayer.build.nested.compose import Composer, compose, composer
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import extreme, needs_superposition, superpose
from onelayer.errors import OnelayerError
from onelayer.observer import Observer, Stopped
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.recording.target import Target
from onelayer.result import Approximation, Attempt

# Share of eps given to the fit; the rest is room for the proof, which pays for tightness with boxes, more so in more
# dimensions. No claim that the numbers are optimal.
FIT_SHARE = {1: 0.97, 2: 0.9, 3: 0.8, 4: 0.7}
HIGH_DIMENSION_SHARE = 0.5  # of eps for the fit where FIT_SHARE has no row; the proof needs the rest
ATTEMPTS = 5  # each with an eps that the last bound corrects; two suffice as a rule
FIT_TIME = 0.5  # share of the time after which a fit has to do with what it found
TIGHTER = 0.25  # a proof that stalls gets a fit this much closer: what a smaller eps would have had
CLOSE = 2.0  # times eps: a bound that far needs time, not another fit
FEW = 3  # coordinates up to which one grid of tokens is cheap to fit and to prove
MANY_UNITS = 800  # predicted hidden units beyond which a composition waits for the lookup
FIRST_SHARE, SLICE_BOXES = 0.2, 10_000  # of a lookup that is not the only way: easy functions need less
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


def race(task: Task, watch: Observer) -> Approximation:
    """The best result of all ways; OnelayerError when none of them leads anywhere."""
    found = _Found(task)
    if task.target.formula is not None and extreme(task.target.formula, task.domain) is not None:
        found.run("sharp heads", lambda slot: iter([tokens(task, slot)]), watch.share(0.5))
        if found.proved:
            return found.result()
    composed = _composer(task)
    if composed is not None and task.domain.dim > FEW:
        found.run("composition", lambda slot: iter([compose(composed, task.eps, slot)]), watch.share(0.5))
        if found.proved and task.domain.dim <= SMALL:
            found.run("lookup", _lookup(task, 1.0), watch.within(min(max(LEAST, found.seconds), MOST)))
        if found.proved:
            return found.result()
    others = composed is not None or _kinked(task)
    first = replace(task, max_boxes=min(SLICE_BOXES, task.max_boxes)) if others else task
    found.run("lookup", _lookup(first, 1.0), watch.share(FIRST_SHARE if others else 0.5))
    if composed is not None and task.domain.dim <= FEW and not found.proved:
        found.run("composition", lambda slot: iter([compose(composed, task.eps, slot)]), watch.share(0.4))
    if not found.proved and not watch.over and _kinked(task):
        found.run("tokens", lambda slot: iter([tokens(task, slot)]), watch.share(0.5))
    if (found.stalled or (others and not found.proved)) and not watch.over:
        closer = TIGHTER if found.stalled and found.upper >= CLOSE * task.eps else 1.0
        found.run("lookup, closer" if closer < 1 else "lookup, longer", _lookup(task, closer), watch)
    return found.result()


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


def lookups(task: Task, watch: Observer, closer: float = 1.0) -> Iterator[Approximation]:
    """Lookup layers with their proofs, each fitted more tightly than the last; at least one, however little time.

    ``closer`` is the part of the usual tolerance that the first fit gets.
    """
    budget = FitBudget(task.dtype, task.max_tokens, task.seed, observer=watch, fitting=watch.share(FIT_TIME))
    goal = FIT_SHARE.get(task.domain.dim, HIGH_DIMENSION_SHARE) * task.eps * closer
    tolerance = goal
    for attempt in range(ATTEMPTS):
        watch.report("fitting")
        try:
            blueprint = draw_up(task.target, task.domain, tolerance, budget)
        except Stopped:
            if attempt:
                return
            blueprint = straight(task.target, task.domain)
        found = proved(blueprint, task, watch)
        yield found
        hopeless = blueprint.error > tolerance or not found.certificate.upper < math.inf  # closer changes nothing
        if found.certificate.proved or hopeless or watch.over:
            return
        tolerance = _tightened(tolerance, goal, found.certificate)


def proved(blueprint: Blueprint, task: Task, watch: Observer) -> Approximation:
    """The layer of a blueprint with its certificate."""
    model = blueprint.build(task.dtype)
    certificate = certify(
        model, task.target, task.domain, task.eps, max_boxes=task.max_boxes, jobs=task.jobs, observer=watch
    )
    wanted = None if certificate.proved else blueprint.wanted or None
    return Approximation(model, certificate, task.target, wanted_tokens=wanted)


def _lookup(task: Task, closer: float) -> Build:
    return lambda slot: lookups(task, slot, closer)


def _tightened(tolerance: float, goal: float, certificate: Certificate) -> float:
    """A refuted fit was worse than estimated by lower / tolerance; an undecided one needs more room for the proof."""
    if certificate.status == "refuted":
        return tolerance * min(0.8, goal / certificate.lower)
    return tolerance / 2


def _composer(task: Task) -> Composer | None:
    """f as inner and outer functions, unless sums of inner functions are all there is: then lookup does the same."""
    found = composer(task.target, task.domain, task.dtype, task.seed)
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
        self.started = time.monotonic()

    def run(self, way: str, build: Build, watch: Observer) -> None:
        """One way, in its slice of the time: the best is kept, a failure noted."""
        begun = time.monotonic()
        try:
            for made in build(watch):
                self.history.append(_attempt(way, made, time.monotonic() - begun))
                self.best = made if self.best is None else min(self.best, made, key=_rank)
                begun = time.monotonic()
        except OnelayerError as error:
            self.error = self.error or error
            self.history.append(Attempt(way, "failed", 0.0, math.inf, 0, time.monotonic() - begun, str(error)))

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
