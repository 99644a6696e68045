"""approximate: a function, a box and an eps in; a built layer with its proof out."""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import torch

from onelayer.box import Domain, as_box
from onelayer.build.arguments import (
    check_box,
    check_budget,
    check_dimension,
    check_eps,
    check_seed,
    check_size,
)
from onelayer.build.lookup.blueprint import seen_size, straight
from onelayer.build.lookup.solve import solved_on
from onelayer.build.lookup.storage import Storage, computing, storage_of
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.float64 import at_most, one_number
from onelayer.formats import WIDE, either
from onelayer.ground import pinned
from onelayer.observer import AT_LEAST, Observer, Stopped, observing
from onelayer.portfolio.lookup import lookups
from onelayer.portfolio.slopes import smooth
from onelayer.portfolio.standing import preference
from onelayer.portfolio.task import Task, proved
from onelayer.portfolio.ways import pieces, race, tokens
from onelayer.proof.certify import AUTO, chosen_device
from onelayer.proof.recorded import understood
from onelayer.proof.supposed import supposed
from onelayer.proof.tree import MAX_DIM
from onelayer.recording.jumps import jump_beyond
from onelayer.recording.target import as_target
from onelayer.result import Approximation
from onelayer.taylor.preparation import prepare

# Those with which memory tokens do the work: only their heads have slopes to fit and values to round.
LOOKUP_LAYOUTS = ("auto", "packed")
LAYOUTS = ("auto", "packed", "tokens", "pieces")
# Of the time, to look for jumps; what is not seen costs a fit in vain.
LOOK = 0.25


@door
@pinned()
def approximate(
    f: Any,
    domain: Domain,
    eps: float,
    *,
    gradient_eps: float | None = None,
    layout: str = "auto",
    dtype: torch.dtype | str = torch.float64,
    lipschitz: Any = None,
    max_tokens: int = 20_000,
    max_boxes: int = 1_000_000,
    max_seconds: float = math.inf,
    seed: int = 0,
    jobs: int = -1,
    executor: Executor | None = None,
    device: str | torch.device = AUTO,
    observer: Observer | None = None,
) -> Approximation:
    """Build a one-layer Transformer T and prove sup over ``domain`` of |T - f| <= ``eps``.

    No training: heads over memory tokens are fitted by least squares with minimax polish, kinks become ReLU units, and
    the tolerance of the fit is tightened until the proof goes through. When ``max_tokens``, ``max_seconds`` or the
    ``observer`` end the work first, the result is the best model found with its honest certificate, and
    ``wanted_tokens`` says what eps would need.

    f           formula text, torch callable, nn.Module, Table, BlackBox, or a NumPy function with ``lipschitz``: a
                number (maximum norm), or one per coordinate as a list or a dict by name
    gradient_eps  prove |dT/dx_i - df/dx_i| <= gradient_eps as well, for every input and point: values and slopes of a
                lookup layer are solved together, and ``gradient`` of the result is the second certificate
    layout      "auto": the ways below race in slices of the time, cheap ones first; ``history`` of the result has them
                "packed": one query token carries the whole input and memory tokens do the work; "tokens": tokens stay
                tokens, positional heads gather the sequence and the ReLU network approximates (sequences/gather.py);
                sums of curved functions of single tokens go through a number embedding (sequences/superpose.py);
                "pieces": sharp heads choose among tokens that are affine in the input, for functions with kinks
    dtype       torch.float64, float32, float16 or bfloat16, or its name: the format of the weights and the execution
                that is certified; "int8": weights of 8 bits with scales, executed in float32. Below float32 keys and
                values are chosen on the grid of the format, in lookup layers alone
    jobs        processes that share a long proof, -1 for one per core; the result does not depend on it
    executor    any concurrent.futures.Executor that shares long proofs instead, of a cluster for example
    device      "cpu", "cuda", or "auto": large fits and long proofs are computed on a GPU where there is one
    observer    follows the call and may cancel it; by default a bar in a terminal, nothing elsewhere
    """
    eps = one_number(eps)
    gradient_eps = one_number(gradient_eps)
    check_eps(eps)
    # A number of another kind may round up to a float; a certificate states no larger eps than was asked.
    eps = at_most(eps)
    if gradient_eps is not None:
        check_eps(gradient_eps, "gradient_eps")
    storage = storage_of(dtype)
    dtype = computing(dtype, storage)
    seed = check_seed(seed)
    check_budget(max_seconds, jobs, max_tokens=max_tokens, max_boxes=max_boxes)
    domain = as_box(domain)
    check_box(domain, dtype)
    _check_layout(layout, gradient_eps, storage)
    place = chosen_device(device)
    # Compiles kernels once, before the clock of this call starts.
    prepare()
    with observing(observer, max(max_seconds, AT_LEAST)) as watch, solved_on(place):
        watch.report("reading f")
        # A black box of declared structure is close to a known function: that one is built, to what is left of eps.
        given = supposed(f, domain, eps, watch)
        if gradient_eps is not None and given.known is not None:
            raise OnelayerError("gradient_eps needs the slopes of f: give f as a formula or torch function")
        target = as_target(given.f, domain, lipschitz=lipschitz, observer=watch)
        goal = given.eps or eps
        # No layer is within half of a jump, so a larger one settles what can be asked for.
        jump = jump_beyond(target.formula, domain, goal, watch.share(LOOK))
        task = Task(target, domain, goal, dtype, max_tokens, max_boxes, seed, jobs, device, executor, storage, jump)
        # A claim that rests on an estimate is kept with boxes; other layouts would keep an argument instead.
        if given.estimated and layout == "auto":
            layout = "packed"
        made = _built(task, layout, gradient_eps, lipschitz, watch)
        # What was tried was tried for the function that stands for f.
        tried = tuple(replace(one, note=one.note or given.note()) for one in made.history)
        return replace(made, certificate=given.concluded(made.certificate), history=tried)


def _built(task: Task, layout: str, gradient_eps: float | None, lipschitz: Any, watch: Observer) -> Approximation:
    """The layer by the ways that the layout allows; an affine one where time is over before f is understood."""
    if layout != "tokens":
        check_dimension(task.domain)
    try:
        if layout == "tokens":
            return tokens(task, watch)
        target = understood(task.target, task.domain, lipschitz=lipschitz, observer=watch)
        check_size(seen_size(target, task.domain, watch), task.dtype, "f")
    except Stopped:
        # Boxes with more coordinates cannot be proved, so there is nothing honest to return.
        if task.domain.dim > MAX_DIM:
            raise
        return proved(straight(task.target, task.domain), task, watch)
    task = replace(task, target=target)
    if gradient_eps is not None:
        return smooth(task, gradient_eps, watch)
    if layout == "pieces":
        return pieces(task, watch)
    # Beyond a jump no fit comes close, and the race knows what to do instead.
    if layout == "packed" and task.jump is None:
        return min(lookups(task, watch), key=preference)
    return race(task, watch)


def _check_layout(layout: str, gradient_eps: float | None, storage: Storage | None) -> None:
    """That there is such a layout, and that it has what else was asked for."""
    if layout not in LAYOUTS:
        raise OnelayerError(f"layout must be 'auto', 'packed', 'tokens' or 'pieces', got {layout!r}")
    if gradient_eps is not None and (storage is not None or layout not in LOOKUP_LAYOUTS):
        raise OnelayerError(f"gradient_eps is for layers of {either('', WIDE)} and layout='packed' or 'auto'")
    if storage is not None and layout not in LOOKUP_LAYOUTS:
        raise OnelayerError(f"layout '{layout}' is built in {either('', WIDE)}; use layout='packed'")
