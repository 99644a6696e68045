"""Claims beyond |T - f|: the range of a model, its slopes, two models against each other. One engine proves them all.

Each is sup|g| of another g, so the same search, the same Taylor models and the same certificate serve. Slopes are exact
derivatives of the real function of the stored weights; the rounding of an execution has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from onelayer.box import Box, Domain, as_box
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.formats import MODEL_DTYPE, REAL
from onelayer.ground import pinned
from onelayer.language.formula import Formula, parse
from onelayer.language.requirement import parse_requirement
from onelayer.observer import Observer, Stopped, observing, observing_all
from onelayer.proof.about import flat_inputs, norm_of, words
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify, digest_of
from onelayer.proof.error import error_function
from onelayer.proof.fit import formats_held
from onelayer.proof.kept import Kept, kept
from onelayer.proof.objectives import (
    MOST_CURVED,
    Difference,
    Directed,
    Forward,
    Margins,
    Minors,
    Output,
    Slopes,
    Steepness,
)
from onelayer.proof.own import is_own_layer
from onelayer.proof.recorded import understood
from onelayer.proof.seen import outputs_seen, values_seen
from onelayer.proof.slopes import examine_slopes
from onelayer.proof.together import Together, together
from onelayer.proof.verdicts import Range, Verdict, margin_above, single_output, undecided
from onelayer.recording.target import as_target

# Share of the range seen by which the constant lies aside of it, from which a range is measured.
ASIDE = 0.05
# A thousandth: more than two accounts of roundings differ by, less than anybody misses.
GIVEN_AWAY = 2.0**-10  # of a margin that is proved
# Gap of the first look at a slope, which only sets the scale of the second.
ROUGH = 1.0


@door
@pinned()
def bound(
    model: Forward,
    box: Domain,
    *,
    gap: float = 0.01,
    execution: str | torch.dtype | None = MODEL_DTYPE,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
    **options: Any,
) -> Range:
    """The range of every output of ``model`` on ``box``, each end within ``gap`` of the width of the range.

    Lemma: T <= c + sup|T - c| and T >= c - sup|T - c| for every number c. With c below all values the first is sharp,
    with c above them the second. Where c lies matters for sharpness alone, so it may come from samples.
    ``options`` are those of certify.
    """
    box = as_box(box)
    held = kept(model, box)
    model = held.model
    with observing(observer, max_seconds) as watch:
        values = values_seen(model, box)  # (S, K)
        if not bool(values.isfinite().all()):
            raise OnelayerError("the model returns numbers in the box that are not finite: it has no range there")
        shape = outputs_seen(model, box)
        low = []
        high = []
        proofs = []
        for at in range(values.shape[1]):
            one = model if single_output(model) else Output(model, at)
            first = float(values[:, at].min())
            last = float(values[:, at].max())
            # As much time for each output as for those that are left, half of it for either end.
            share = watch.share(1 / (values.shape[1] - at))
            settings = {"gap": gap, "execution": execution, **options}
            step = ASIDE * (last - first)
            bottom = first - step
            above = _from(one, at, model, box, bottom, share.share(0.5), settings)
            # One float further out covers the rounding of the sum.
            highest = math.nextafter(bottom + above.upper, math.inf)
            top = highest if math.isfinite(highest) else last + step
            below = _from(one, at, model, box, top, share, settings)
            lowest = math.nextafter(top - below.upper, -math.inf)
            low.append(lowest)
            high.append(highest)
            proofs += [above, below]
    least = torch.tensor(low, dtype=torch.float64, device="cpu").reshape(shape)
    most = torch.tensor(high, dtype=torch.float64, device="cpu").reshape(shape)
    seen_low = values.amin(0).reshape(shape)
    seen_high = values.amax(0).reshape(shape)
    held.unchanged()
    return Range(least, most, seen_low, seen_high, tuple(proofs), held)


def _from(
    one: Forward, at: int, model: Forward, box: Box, level: float, observer: Observer, settings: Mapping[str, Any]
) -> Certificate:
    """sup|T_k - c| of one output; that of a layer itself is a claim like any other about the constant function c."""
    constant = _levels(level, box, outputs_seen(one, box))
    found = certify(one, constant, box, observer=observer, **settings)
    if one is model:
        return found
    # One output alone is no model that could be saved: the claim is kept as words.
    claim = f"sup|y{at + 1} - {level!r}|"
    return replace(found, claim=claim, weights_sha256=digest_of(model), models=())


@door
def equivalent(a: Forward, b: Forward, box: Domain, eps: float | None = None, **options: Any) -> Certificate:
    """Whether |A - B| <= ``eps`` on ``box``, all outputs; without eps, the tightest enclosure of sup|A - B|.

    Both models are taken as they are executed if they have one format, and in real arithmetic if they differ in it.
    Networks with the same steps are followed together (proof/together.py). ``options`` are those of certify.
    """
    box = as_box(box)
    one, other = kept(a, box), kept(b, box)
    with observing_all(options) as watch:
        # Recorded before the ground is pinned: torch.export asks for settings of the GPU that it then finds set by
        # parts. It cannot be cut short, but its time counts.
        both = together(one.model, other.model, tuple(box.shape))
        return _equivalent(one, other, box, eps, both, {**options, "observer": watch})


@pinned()
def _equivalent(
    first: Kept, second: Kept, box: Box, eps: float | None, both: Together | None, options: dict[str, Any]
) -> Certificate:
    a, b = first.model, second.model
    shape, other = (outputs_seen(model, box) for model in (a, b))
    # Outputs are compared one by one; broadcasting would compare other pairs.
    if shape != other:
        raise OnelayerError(f"the models return shapes {shape} and {other} at one point; they must be equal")
    formats = {*formats_held(a), *formats_held(b)}
    options.setdefault("execution", MODEL_DTYPE if len(formats) <= 1 else REAL)
    if both is not None:
        # Kinks make its remainders: higher orders cost more than they win.
        options.setdefault("order", 2)
    zero = _levels(0.0, box, shape)
    found = certify(both or Difference(a, b), zero, box, eps, **options)
    return _about({"kind": "difference"}, found, first, second)


@door
@pinned()
def lipschitz(
    model: Forward, box: Domain, eps: float | None = None, *, norm: Any = "inf", **options: Any
) -> Certificate:
    """The Lipschitz constant of T on ``box``: |T(x) - T(y)| <= upper |x - y| there, in real arithmetic.

    ``norm`` is that of both distances, and the constant is the largest norm of the Jacobian that belongs to it:

        "inf"   the largest of sum_i |dT_k/dx_i| over outputs k
        1       the largest of sum_k |dT_k/dx_i| over inputs i
        2       the root of the sum of all squares: of one output the constant itself, of several a bound of it

    lower is reached at the witness. With ``eps``: whether upper <= eps. ``options`` are those of certify.
    """
    about = {"kind": "lipschitz", "norm": norm_of(norm)}
    box = as_box(box)
    held = kept(model, box)
    return _of_slopes(Steepness(held.model, about["norm"]), held, box, eps, about, options)


@door
@pinned()
def gradient_error(model: Forward, f: Any, box: Domain, eps: float | None = None, **options: Any) -> Certificate:
    """sup over ``box``, outputs and inputs of |dT/dx_i - df/dx_i|, f formula text, a torch function or a module.

    With ``eps``: whether all slopes are that close. ``options`` are those of certify.
    """
    box = as_box(box)
    held = kept(model, box)
    with observing_all(options) as watch:
        target = as_target(f, box, observer=watch)
        with suppress(Stopped):  # the search has no time either, and claims nothing
            target = understood(target, box, observer=watch)
        if target.lipschitz is not None:
            raise OnelayerError("a black box has no slopes to compare with; give f as a formula or torch function")
        outputs = outputs_seen(held.model, box)
        # One number is one number, whether in () or in (1,).
        if math.prod(outputs) == math.prod(target.output_shape) == 1:
            target = target.one_number(outputs)
        function = target.formula if target.formula is not None else target.function
        settings = {**options, "observer": watch}
        found = _of_slopes(Slopes(held.model, function), held, box, eps, {"kind": "slopes"}, settings)
    if target.formula is not None:
        return replace(found, function=str(target.formula))
    return found


@door
@pinned()
def monotone(model: Forward, box: Domain, directions: Mapping[str, str], **options: Any) -> Verdict:
    """Whether T rises ("+") or falls ("-") along the named inputs everywhere on ``box``; equal values are allowed.

    Lemma: let M bound |dT/dx_i|. Then dT/dx_i >= 0 on the box iff sup|M - dT/dx_i| <= M.
    ``options`` are those of certify.
    """
    box = as_box(box)
    inputs, signs = zip(*_directions(box, directions), strict=True)
    _need_width(box, inputs)
    about = {"kind": "monotone", "inputs": list(inputs), "signs": list(signs)}
    named = ((_name(box, at), "+" if sign > 0 else "-") for at, sign in zip(inputs, signs, strict=True))
    asked = ", ".join(f"{name} {mark}" for name, mark in named)
    held = kept(model, box)
    objective = Directed(held.model, inputs, signs)
    return _judged(objective, held, box, about, asked, _real(options))


@door
@pinned()
def convex(model: Forward, box: Domain, **options: Any) -> Verdict:
    """Whether every output of T is a convex function of its inputs on ``box``, in real arithmetic.

    Lemma: a twice differentiable T is convex iff its Hessian is positive semidefinite, which is so iff none of its
    principal minors is negative. Where it is refuted, one of them is negative at the witness.
    ``options`` are those of certify.
    """
    box = as_box(box)
    if box.dim > MOST_CURVED:
        raise OnelayerError(f"convexity is proved of functions of up to {MOST_CURVED} inputs, the box has {box.dim}")
    _need_width(box, range(box.dim))
    held = kept(model, box)
    return _judged(Minors(held.model), held, box, {"kind": "convex"}, "convex", _real(options))


@door
@pinned()
def prove(model: Forward, box: Domain, condition: str, **options: Any) -> Verdict:
    """Whether a condition on the outputs y1, y2, ... and the inputs holds everywhere on ``box``, as executed.

    ``condition`` is comparisons joined by and, or, not, for example "y1 <= y2 + 0.1 and y1 >= 0". The inputs are x1,
    x2, ... or have the names of the box. ``options`` are those of certify.
    """
    box = as_box(box)
    held = kept(model, box)
    outputs = math.prod(outputs_seen(held.model, box))
    of_outputs = [f"y{at + 1}" for at in range(outputs)]
    names = [*of_outputs, *(_name(box, at) for at in range(box.dim))]
    # A condition on y1 must not read an input of that name.
    if len(set(names)) < len(names):
        raise OnelayerError("an input of the box has the name of an output, y1, y2, ...; call it otherwise")
    asked = parse_requirement(condition, names)
    about = {"kind": "condition", "text": condition}
    objective = Margins(held.model, asked.margins)
    return _judged(objective, held, box, about, condition, options, strict=asked.strict)


def _judged(
    objective: nn.Module,
    held: Kept,
    box: Box,
    about: Mapping[str, Any],
    asked: str,
    options: Mapping[str, Any],
    *,
    strict: bool = False,
) -> Verdict:
    """Whether no entry of g is negative. Lemma: if |g| <= M, then g >= 0 iff sup|M - g| <= M."""
    rest = dict(options)
    with observing_all(rest) as watch:
        if isinstance(objective, Slopes | Minors):
            _examine(objective.models, box, watch)
        shape = outputs_seen(objective, box)
        # Half of the time for a bound M of |g|, of which its size alone matters.
        look = {**rest, "gap": ROUGH, "observer": watch.share(0.5)}
        rough = certify(objective, _levels(0.0, box, shape), box, **look)
        known = math.isfinite(rough.upper)
        size = rough.upper if known else 1.0
        # Above zero means a distance below M, and the floats below M end with the one before it.
        goal = math.nextafter(size, 0.0) if strict else size
        shifted = certify(objective, _levels(size, box, shape), box, goal, **rest, observer=watch)
    # Without a bound of g the distance may be to its other side.
    upper = math.nextafter(size - shifted.lower, math.inf) if known else math.inf
    # The margin of a strict comparison may be zero beside one that allows it: below zero alone the condition fails.
    found = _with_room(shifted if upper < 0 else undecided(shifted))
    lower = margin_above(size, found.upper)
    holds = lower > 0 if strict else lower >= 0
    status = "proved" if holds else "refuted" if upper < 0 else "undecided"
    witness = found.witness if status == "refuted" else None
    certificate = _about(about, found, held)
    return Verdict(status, lower, upper, witness, (certificate,), asked)


def _with_room(found: Certificate) -> Certificate:
    """A proof that states a little less of the margin: who proves it again counts roundings in another way."""
    if found.eps is None or not found.proved:
        return found
    margin = found.eps - found.upper
    return replace(found, upper=min(found.eps, found.upper + margin * GIVEN_AWAY))


def _about(about: Mapping[str, Any], found: Certificate, *models: Kept) -> Certificate:
    """The certificate of an objective as one about the models that it is made of, which have not changed meanwhile."""
    first, *_ = (held.unchanged() for held in models)
    digest = digest_of(first)
    return replace(found, about=dict(about), claim=words(about), weights_sha256=digest, models=models)


def _real(options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a claim about slopes: what an execution rounds to has none."""
    execution = options.get("execution", REAL)
    if not (execution is None or (isinstance(execution, str) and execution == REAL)):
        raise OnelayerError("a claim about slopes is about real arithmetic; leave out execution")
    return {**options, "execution": REAL}


def _of_slopes(
    objective: Slopes,
    held: Kept,
    box: Box,
    eps: float | None,
    about: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Certificate:
    """sup|g| of something made of slopes."""
    rest = _real(options)
    with observing_all(rest) as watch:
        _examine(objective.models, box, watch)
        zero = _levels(0.0, box, outputs_seen(objective, box))
        found = certify(objective, zero, box, eps, **rest, observer=watch)
    return _about(about, found, held)


def _levels(level: float, box: Box, shape: tuple[int, ...]) -> Formula:
    """The constant function of the box with outputs of this shape."""
    count = max(1, math.prod(shape))
    text = "; ".join([repr(level)] * count)
    constant = parse(text, box.dim, limit=len(text))
    return constant.shaped(tuple(box.shape), shape)


def _examine(models: Sequence[Forward], box: Box, watch: Observer) -> None:
    """What slopes are claimed of is a function of its point, and its derivatives are followed as it is executed."""
    with suppress(Stopped):  # the search has no time either, and claims nothing
        for model in models:
            # What code of this package computes is differentiated by rules that its own tests hold against it.
            if type(model) is not Formula and not is_own_layer(model):
                _examine_foreign(model, box, watch)


def _examine_foreign(model: Forward, box: Box, watch: Observer) -> None:
    target = understood(_levels(0.0, box, outputs_seen(model, box)), box)
    dtype = next(iter(formats_held(model)), torch.float64)
    error = error_function(model, target, box, dtype, torch.device("cpu"), watch)
    examine_slopes(error)


def _directions(box: Box, asked: Mapping[str, str]) -> list[tuple[int, int]]:
    """(input, +1 or -1) in the order asked."""
    names = [_name(box, at) for at in range(box.dim)]
    found = []
    for name, sign in asked.items():
        if name not in names or sign not in ("+", "-"):
            known = ", ".join(names[:8])
            raise OnelayerError(f"ask for inputs among {known} with '+' or '-', got {name!r}: {sign!r}")
        found.append((names.index(name), 1 if sign == "+" else -1))
    if not found:
        raise OnelayerError('name at least one input, for example {"x1": "+"}')
    return found


def _need_width(box: Box, inputs: Sequence[int]) -> None:
    """A slope along an input that has one value says nothing of T on the box: it could refute what holds there."""
    low, high = box.lower.flatten().tolist(), box.upper.flatten().tolist()
    for at in flat_inputs(low, high, inputs):
        name = _name(box, at)
        raise OnelayerError(
            f"{name} has one value in the box: T neither rises, falls nor bends along it; give it a width"
        )


def _name(box: Box, at: int) -> str:
    if box.names:
        return box.variables[at]
    return f"x{at + 1}"
