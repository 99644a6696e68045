"""certify: the door to a proof of sup|T - f| <= eps for a given model."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import nn

from onelayer.box import Box, Domain, as_box
from onelayer.disk import as_path
from onelayer.door import door
from onelayer.errors import OnelayerError, first_line
from onelayer.float64 import at_most, one_number
from onelayer.formats import FORMATS, MODEL_DTYPE, NAMES, REAL, format_of, spelled
from onelayer.ground import pinned
from onelayer.language.words import NOT_RECORDED
from onelayer.layer.file import weights_sha256
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.narrow import ACCUMULATORS
from onelayer.network.file import network_sha256
from onelayer.network.network import RecordedNetwork
from onelayer.observer import AT_LEAST, Observer, Stopped, observing
from onelayer.proof.certificate import BOXES, Certificate
from onelayer.proof.checkpoint import Checkpoint, unpacked
from onelayer.proof.claim import CONDITIONAL, CURVED, ESTIMATED
from onelayer.proof.contract import POINTS, examine
from onelayer.proof.crew import Crew
from onelayer.proof.elsewhere import examine_formats
from onelayer.proof.error import error_function
from onelayer.proof.fit import format_held
from onelayer.proof.forward import has_modes
from onelayer.proof.frontier import Budget
from onelayer.proof.kept import Kept, kept, read_by
from onelayer.proof.outcome import Outcome, nothing_known
from onelayer.proof.own import is_own_layer, says_all
from onelayer.proof.problem import problem_of
from onelayer.proof.recorded import understood
from onelayer.proof.search import Outgrown, Search
from onelayer.proof.supposed import supposed
from onelayer.proof.tree import MAX_DIM
from onelayer.proof.units import Goal
from onelayer.recording.target import Target, as_target
from onelayer.taylor.preparation import prepare

EXECUTIONS: dict[Any, torch.dtype | None] = {
    None: None,
    REAL: None,
    **{row.name: row.dtype for row in FORMATS},
    **{row.dtype: row.dtype for row in FORMATS},
}
# Numbers of one pass that may be lost below the normal ones: more than two counts differ by.
UNDERFLOWS = 2**16
AUTO = "auto"
ROUNDING = (
    "the forward pass rounds each operation to nearest in {name}, sums in any order, and its elementary functions are "
    "within 4 units in the last place; no reduced-precision matrix products"
)
NARROW = (
    "the layer computes each operation in float32, rounding to nearest, sums in any order, elementary functions within "
    "4 units in the last place, no reduced-precision matrix products; what an operation returns is rounded once to "
    "nearest in {name}, with gradual underflow; bfloat16 numbers below 2^-126 may become zero"
)
WHOLE = "the weights are whole numbers of 8 bits times scales per channel; their products are exact in float32"
ALIKE = (
    "the model computes each value from its own point alone, every time alike, by the operations that it applies to "
    "enclosures; tested at {count:,} points{slow} on device {device}, and assumed of other devices and libraries"
)
OF_CONSTANTS = (
    "what the code of T makes of constants alone by single operations, as a product of two weights, is the number that "
    "torch makes of them"
)
IN_EVAL_MODE = "T is the model in eval mode; it was given in training mode, in which it may compute something else"
UNRECORDED = (
    "f has too many operations for a formula: it is what its code does on enclosures, compared with its values at up "
    "to {count:,} points"
)
LIPSCHITZ = "{statement} on the domain, {source}; f is taken as its code evaluates it"


class Tested(NamedTuple):
    """At how many points what a proof assumes of T was tested, and where; none when time ended before."""

    points: int = 0
    device: str = "cpu"


def _method(target: Target) -> str:
    """What a search over boxes rests on: nothing but arithmetic, a declared constant, or a guess at one."""
    if target.lipschitz is None:
        return BOXES
    if target.lipschitz.estimated_from:
        return ESTIMATED
    return CONDITIONAL if target.gradient is None else CURVED


@door
@pinned()
def certify(
    model: Callable[[Any], Any],
    f: Any,
    box: Domain,
    eps: float | None = None,
    *,
    order: int | None = None,
    execution: str | torch.dtype | None = MODEL_DTYPE,
    lipschitz: Any = None,
    gap: float = 0.05,
    max_boxes: int = 1_000_000,
    max_seconds: float = math.inf,
    jobs: int = -1,
    executor: Executor | None = None,
    device: str | torch.device = AUTO,
    observer: Observer | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Certificate:
    """Enclose sup over ``box`` of |T - f|, the maximum over all outputs, and decide whether it is <= ``eps``.

    With ``eps`` the search stops as soon as every box is bounded by eps (proved) or a point with a larger error is
    verified (refuted); without, when upper <= (1 + gap) * lower. When ``max_boxes`` evaluated boxes, ``max_seconds`` or
    the ``observer`` end it, the certificate is undecided and holds the best enclosure so far.

    model       any torch module or callable whose forward pass runs on Taylor models; modules are taken in eval mode
    f           formula text, a torch callable or module, or anything with a declared ``lipschitz`` constant
    order       order of the Taylor models; None chooses it by a pilot run
    execution   "model dtype", "float64" or "float32" cover the rounding of the forward pass; None or "real" is exact
                arithmetic on the stored weights
    jobs        processes that share a long proof, -1 for one per core; the result does not depend on it
    device      where enclosures are computed: "cpu", "cuda", or "auto" for the CPU, and a GPU where there is one once
                a proof turns out to be long
    executor    any concurrent.futures.Executor to share it with instead, of a cluster for example
    observer    follows the call and may cancel it; by default a bar in a terminal, nothing elsewhere
    checkpoint  file in which a long proof leaves its state every half minute; it goes when the proof has ended
    resume      checkpoint of the same problem to go on from; the certificate is that of an uninterrupted proof
    """
    started = time.monotonic()
    box = as_box(box)
    eps = one_number(eps)
    _check(eps, gap, order, max_boxes, max_seconds, jobs, box)
    # A fraction or a large integer is no float: what is proved is the next one below, which is as much or more.
    eps, gap, max_seconds = map(_as_float, (eps, gap, max_seconds))
    tested = Tested()
    # Until a search has an outcome nothing is known: whatever ends this call early leaves a true certificate.
    outcome = nothing_known(box)
    prepare()
    # What is proved is proved of this model, whatever becomes of the caller's meanwhile and later.
    held = kept(model, box)
    with observing(observer, max(max_seconds, AT_LEAST)) as watch:
        # A black box of declared structure is proved by a formula that is close to it, with that much less to spare.
        given = supposed(f, box, eps, watch)
        if not isinstance(f, Target):
            watch.report("reading f")
        target = as_target(given.f, box, lipschitz=lipschitz, observer=watch)
        dtype = _execution(held.model, execution)
        # A GPU is asked for later, once the search knows that it is long; one that was named is tried at once.
        automatic = isinstance(device, str) and device == AUTO
        place = torch.device("cpu") if automatic else chosen_device(device)
        try:
            target = understood(target, box, lipschitz=lipschitz, observer=watch)
            read = read_by(target)
            error = error_function(held.model, target, box, dtype, place, watch)
            examine_formats(held.model, box, dtype, watch)
            tested = Tested(examine(error), place.type)
            with Crew(error, jobs, executor) as crew:
                search = Search(error, Goal(given.eps, gap), Budget(max_boxes), crew)
                _keep(search, held.model, resume if checkpoint is None else checkpoint, resume, order)
                # A checkpoint holds the state of one search on the CPU, and an executor has its own machines.
                movable = error.replayable and executor is None and not search.checkpoint.path
                if automatic and movable:
                    search.gpu = graphics
                outcome = _searched(search, order)
            read.unchanged()
        except Stopped:
            # Before the search began: nothing is claimed.
            pass
    seconds = time.monotonic() - started
    held.unchanged()
    found = _certificate(outcome, held, target, box, given.eps, dtype, tested, seconds)
    return given.concluded(found)


def _searched(search: Search, order: int | None) -> Outcome:
    """The outcome of a search, on a GPU from its beginning again where it has outgrown the CPU."""
    error = search.error
    # The search on the CPU may have changed its own by the time it gives up.
    goal = search.goal
    budget = search.budget
    try:
        return search.run(order)
    except Outgrown as found:
        parts = (error.model, error.target, error.box, error.execution)
        there = error_function(*parts, found.place, error.observer)
        return Search(there, goal, budget).run(found.order)


def _keep(search: Search, model: Any, checkpoint: Any, resume: Any, order: int | None) -> None:
    """Give a search the file in which it leaves its state, and the state from which it goes on."""
    if checkpoint is None:
        return
    search.checkpoint = Checkpoint(as_path(checkpoint), problem_of(search.error, model, search.goal, order))
    if resume is not None:
        search.resume(unpacked(as_path(resume), search.checkpoint.problem))


def _assumptions(model: Any, target: Target, dtype: torch.dtype | None, tested: Tested) -> list[str]:
    """What a certificate takes for granted, in sentences."""
    found = []
    if dtype is not None:
        rounding = NARROW if dtype in ACCUMULATORS else ROUNDING
        found.append(rounding.format(name=spelled(dtype)))
    elif not says_all(model):
        found.append(OF_CONSTANTS)
    found += _assumed_of_code(model, tested)
    if target.lipschitz is not None:
        declared = target.lipschitz
        found.append(LIPSCHITZ.format(statement=declared.statement, source=declared.source))
    elif target.formula is None:
        found.append(UNRECORDED.format(count=POINTS))
    return found


def _assumed_of_code(model: Any, tested: Tested) -> list[str]:
    """What is taken for granted of the model itself; of foreign code, what was only tested."""
    found = []
    if isinstance(model, OneLayerTransformer) and model.int8:
        found.append(WHOLE)
    if not says_all(model):
        slow = "" if tested.points >= POINTS // 2 else ", fewer than usual because it is slow or the box is small"
        found.append(ALIKE.format(count=tested.points, slow=slow, device=tested.device))
    if has_modes(model):
        found.append(IN_EVAL_MODE)
    return found


def _certificate(
    outcome: Outcome,
    held: Kept,
    target: Target,
    box: Box,
    eps: float | None,
    dtype: torch.dtype | None,
    tested: Tested,
    seconds: float,
) -> Certificate:
    assumptions = _assumptions(held.model, target, dtype, tested)
    return Certificate.settled(
        eps=eps,
        lower=outcome.lower,
        upper=outcome.upper if dtype is None else _stated(outcome.upper, eps, dtype),
        reached=outcome.reached,
        resisted=outcome.resisted,
        witness=outcome.witness.point if outcome.witness else None,
        boxes=outcome.tree.leaves,
        order=outcome.order,
        arithmetic=REAL if dtype is None else format_of(dtype).execution,
        domain=box,
        function=function_text(target),
        weights_sha256=digest_of(held.model),
        seconds=seconds,
        method=_method(target),
        assumptions=tuple(assumptions),
        proof=outcome.tree,
        models=(held,),
    )


def _stated(upper: float, eps: float | None, dtype: torch.dtype) -> float:
    """A bound below what underflow may do is stated with room for another count of it, up to eps: as true, and weaker.

    The checker counts the numbers that may underflow in its own way; where nothing else errs, that is all there is.
    """
    least = UNDERFLOWS * format_of(dtype).computing.normal
    if not 0 < upper < least:
        return upper
    if eps is None or eps < upper:
        return least
    return min(least, eps)


def function_text(target: Target) -> str:
    """The text of f in the formula language, or why there is none."""
    if target.formula is not None:
        return str(target.formula)
    return f"{NOT_RECORDED}{target.unrecorded or target.description}"


def digest_of(model: Any) -> str:
    """sha256 of the weights of a module, "" for a callable without weights.

    A layer of this package is hashed as its file is. Of any other module the hash covers, for every entry of its state
    in order of name, the line "name dtype size,size,...\\n" and its little-endian bytes.
    """
    if type(model) is OneLayerTransformer:
        return weights_sha256(model)
    if isinstance(model, RecordedNetwork):
        return network_sha256(model)
    if not isinstance(model, nn.Module):
        return ""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, torch.Tensor):
            kind = spelled(value.dtype)
            flat = value.detach().cpu().contiguous().flatten()
            # NumPy has no bfloat16.
            array = (flat.view(torch.int16) if kind == "bfloat16" else flat).numpy()
            digest.update(f"{name} {kind} {','.join(map(str, value.shape))}\n".encode())
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _execution(model: Any, execution: str | torch.dtype | None) -> torch.dtype | None:
    """The format that is executed, None for real arithmetic.

    Of float16 and bfloat16 only layers of this package are known to round where the enclosures do.
    """
    found = _named_execution(model, execution)
    if found in ACCUMULATORS and not is_own_layer(model):
        raise OnelayerError(
            f"only a layer of this package is certified in {str(found).removeprefix('torch.')}: kernels of torch round "
            "at places of their own; use model.float()"
        )
    return found


def _named_execution(model: Any, execution: str | torch.dtype | None) -> torch.dtype | None:
    if isinstance(execution, str) and execution == MODEL_DTYPE:
        return format_held(model)
    if not isinstance(execution, str | torch.dtype | None) or execution not in EXECUTIONS:
        words = ", ".join(f"'{word}'" for word in (MODEL_DTYPE, *NAMES))
        raise OnelayerError(f"execution must be {words} or '{REAL}', got {execution!r}")
    return EXECUTIONS[execution]


def graphics() -> torch.device | None:
    """A GPU that computes in float64, if there is one."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return None


def chosen_device(name: str | torch.device) -> torch.device:
    """The device of that name, if it computes here; "auto": a GPU where there is one."""
    if isinstance(name, str) and name == AUTO:
        name = graphics() or "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, dtype=torch.float64, device=device).tolist()
    except (RuntimeError, TypeError, ValueError, OverflowError, AssertionError) as error:
        line = first_line(error, 120)
        raise OnelayerError(f"device {name!r} cannot compute here ({line}); use 'cpu', 'cuda' or 'auto'") from error
    return device


def _check(eps: Any, gap: Any, order: Any, max_boxes: Any, max_seconds: Any, jobs: Any, box: Any) -> None:
    """Every comparison is written so that NaN fails it."""
    if not isinstance(box, Box):
        raise OnelayerError(f"the domain must be a Box, got {type(box).__name__}")
    _check_goal(eps, gap)
    if order is not None and not (isinstance(order, int) and 1 <= order <= 8):
        raise OnelayerError(f"order must be between 1 and 8, got {order!r}")
    _check_budget(max_boxes, max_seconds, jobs)
    if box.dim > MAX_DIM:
        raise OnelayerError(f"a proof has at most {MAX_DIM} coordinates, the box has {box.dim}")


def _check_budget(max_boxes: Any, max_seconds: Any, jobs: Any) -> None:
    if not (isinstance(max_boxes, int) and max_boxes >= 1 and _real(max_seconds) and max_seconds >= 0):
        raise OnelayerError("max_boxes must be an integer of at least 1 and max_seconds at least 0")
    if not isinstance(jobs, int) or jobs == 0:
        raise OnelayerError("jobs must be a number of workers, 1 or more, or -1 for one per core")


def _check_goal(eps: Any, gap: Any) -> None:
    if eps is not None and not (_real(eps) and 0 <= eps < math.inf):
        raise OnelayerError(f"eps must be a number >= 0, got {eps!r}")
    if not (_real(gap) and 0 < gap < math.inf):
        raise OnelayerError(f"gap must be a number > 0, for example 0.05, got {gap!r}")


def _as_float(value: Any) -> Any:
    return value if value is None else at_most(value)


def _real(value: Any) -> bool:
    return isinstance(value, Real)
