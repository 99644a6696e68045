"""approximate: a function, a box and an eps in; a built layer with its proof out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from onelayer.box import Domain, as_box
from onelayer.build.arguments import (
    check_box,
    check_budget,
    check_dimension,
    check_dtype,
    check_eps,
    check_seed,
    check_size,
)
from onelayer.build.lookup.blueprint import seen_size, straight
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.observer import AT_LEAST, Observer, Stopped, observing
from onelayer.portfolio import Task, lookups, proved, race, tokens
from onelayer.proof.recorded import understood
from onelayer.recording.jumps import warn_of_jump
from onelayer.recording.target import as_target
from onelayer.result import Approximation
from onelayer.taylor.preparation import prepare

LAYOUTS = ("auto", "packed", "tokens")


@pinned()
def approximate(
    f: Any,
    domain: Domain,
    eps: float,
    *,
    layout: str = "auto",
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
    layout      "auto": the ways below race in slices of the time, cheap ones first; ``history`` of the result has them
                "packed": one query token carries the whole input and memory tokens do the work; "tokens": tokens stay
                tokens, positional heads gather the sequence and the ReLU network approximates (sequences/gather.py);
                sums of curved functions of single tokens go through a number embedding (sequences/superpose.py)
    dtype       torch.float64 or torch.float32: the format of the weights and the execution that is certified
    jobs        processes that share a long proof, -1 for one per core; the result does not depend on it
    observer    follows the call and may cancel it; by default a bar in a terminal, nothing elsewhere
    """
    check_eps(eps)
    check_dtype(dtype)
    check_seed(seed)
    check_budget(max_seconds, jobs, max_tokens=max_tokens, max_boxes=max_boxes)
    domain = as_box(domain)
    check_box(domain, dtype)
    if layout not in LAYOUTS:
        raise OnelayerError(f"layout must be 'auto', 'packed' or 'tokens', got {layout!r}")
    prepare()
    with observing(observer, max(max_seconds, AT_LEAST)) as watch:
        watch.report("reading f")
        target = as_target(f, domain, lipschitz=lipschitz, observer=watch)
        warn_of_jump(target.formula, domain, eps)
        task = Task(target, domain, eps, dtype, max_tokens, max_boxes, seed, jobs)
        if layout == "tokens":
            return tokens(task, watch)
        check_dimension(domain)
        try:
            target = understood(target, domain, lipschitz=lipschitz, observer=watch)
            check_size(seen_size(target, domain, watch), dtype, "f")
        except Stopped:
            return proved(straight(target, domain), task, watch)
        task = replace(task, target=target)
        if layout == "packed":
            return min(lookups(task, watch), key=lambda attempt: attempt.certificate.upper)
        return race(task, watch)
