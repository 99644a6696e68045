"""approximate: a function, a box and an eps in; a built layer with its proof out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from onelayer.box import Box, Domain, as_box
from onelayer.build.arguments import (
    check_box,
    check_budget,
    check_dimension,
    check_dtype,
    check_eps,
    check_seed,
    check_size,
)
from onelayer.build.lookup.blueprint import Blueprint, Budget, draw_up, seen_size, straight
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import needs_superposition, superpose
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.observer import Observer, Stopped, observing
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.proof.recorded import understood
from onelayer.recording.target import Target, as_target
from onelayer.result import Approximation

# Share of eps given to the fit; the rest is room for the proof, which pays for tightness with boxes, more so in more
# dimensions. No claim that the numbers are optimal.
FIT_SHARE = {1: 0.97, 2: 0.9, 3: 0.8, 4: 0.7}
HIGH_DIMENSION_SHARE = 0.5
ATTEMPTS = 5
LAYOUTS = ("packed", "tokens")
FIT_TIME = 0.5  # share of max_seconds after which a fit has to do with what it found


@pinned()
def approximate(
    f: Any,
    domain: Domain,
    eps: float,
    *,
    layout: str = "packed",
    dtype: torch.dtype = torch.float64,
    lipschitz: Any = None,
    max_tokens: int = 20_000,
    max_boxes: int = 1_000_000,
    max_seconds: float = math.inf,
    seed: int = 0,
    jobs: int = 1,
    observer: Observer | None = None,
) -> Approximation:
    """Build a one-layer Transformer T and prove sup over ``domain`` of |T - f| <= ``eps``.

    No training: heads over memory tokens are fitted by least squares with minimax polish, kinks become ReLU units, and
    the tolerance of the fit is tightened until the proof goes through. When ``max_tokens``, ``max_seconds`` or the
    ``observer`` end the work first, the result is the best model found with its honest certificate, and
    ``wanted_tokens`` says what eps would need.

    f           formula text, torch callable, nn.Module, Table, BlackBox, or a NumPy function with ``lipschitz``: a
                number (maximum norm), or one per coordinate as a list or a dict by name
    layout      "packed": one query token carries the whole input and memory tokens do the work; "tokens": tokens stay
                tokens, positional heads gather the sequence and the ReLU network approximates (sequences/gather.py);
                sums of curved functions of single tokens go through a number embedding (sequences/superpose.py)
    dtype       torch.float64 or torch.float32: the format of the weights and the execution that is certified
    observer    follows the call and may cancel it; by default a bar in a terminal, nothing elsewhere
    """
    check_eps(eps)
    check_dtype(dtype)
    check_seed(seed)
    check_budget(max_seconds, jobs, max_tokens=max_tokens, max_boxes=max_boxes)
    domain = as_box(domain)
    check_box(domain, dtype)
    if layout not in LAYOUTS:
        raise OnelayerError(f"layout must be 'packed' or 'tokens', got {layout!r}")
    with observing(observer, max_seconds) as watch:
        watch.report("reading f")
        target = as_target(f, domain, lipschitz=lipschitz, observer=watch)
        if layout == "tokens":
            if needs_superposition(target, domain, watch):
                return superpose(target, domain, eps, dtype=dtype, observer=watch)
            return gather(target, domain, eps, dtype=dtype, seed=seed, max_boxes=max_boxes, jobs=jobs, observer=watch)
        check_dimension(domain)
        prove = partial(certify, box=domain, eps=eps, max_boxes=max_boxes, jobs=jobs, observer=watch)
        attempts = _attempts(target, domain, eps, Budget(dtype, max_tokens, seed, observer=watch), lipschitz, prove)
        return min(attempts, key=lambda attempt: attempt.certificate.upper)


def _attempts(
    target: Target,
    domain: Box,
    eps: float,
    budget: Budget,
    lipschitz: Any,
    prove: Callable[..., Certificate],
) -> Iterator[Approximation]:
    """Layers with their proofs, each fitted more tightly than the last; at least one, however little time there is."""
    watch = budget.observer
    try:
        target = understood(target, domain, lipschitz=lipschitz, observer=watch)
        check_size(seen_size(target, domain, watch), budget.dtype, "f")
    except Stopped:
        yield _proved(straight(target, domain), target, budget.dtype, prove)
        return
    budget = replace(budget, fitting=watch.share(FIT_TIME))
    goal = FIT_SHARE.get(domain.dim, HIGH_DIMENSION_SHARE) * eps
    tolerance = goal
    for attempt in range(ATTEMPTS):
        watch.report("fitting")
        try:
            blueprint = draw_up(target, domain, tolerance, budget)
        except Stopped:
            if attempt:
                return
            blueprint = straight(target, domain)
        found = _proved(blueprint, target, budget.dtype, prove)
        yield found
        hopeless = blueprint.error > tolerance or not found.certificate.upper < math.inf  # closer changes nothing
        if found.certificate.proved or hopeless or watch.over:
            return
        tolerance = _tightened(tolerance, goal, found.certificate)


def _proved(
    blueprint: Blueprint, target: Target, dtype: torch.dtype, prove: Callable[..., Certificate]
) -> Approximation:
    model = blueprint.build(dtype)
    certificate = prove(model, target)
    return Approximation(model, certificate, target, wanted_tokens=_wanted(blueprint, certificate))


def _tightened(tolerance: float, goal: float, certificate: Certificate) -> float:
    """A refuted fit was worse than estimated by lower / tolerance; an undecided one needs more room for the proof."""
    if certificate.status == "refuted":
        return tolerance * min(0.8, goal / certificate.lower)
    return tolerance / 2


def _wanted(blueprint: Blueprint, certificate: Certificate) -> int | None:
    return None if certificate.proved else blueprint.wanted or None
