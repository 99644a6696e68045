"""gather: functions of sequences by positional heads and a one-hidden-layer ReLU network, tokens staying tokens.

f is first written as a sum of terms D = sum_k g_k(w_k . X), read off its formula as far as it has that structure, the
rest by projection pursuit; then each g_k becomes a piecewise-linear function, one hidden unit per piece.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.build.arguments import (
    check_box,
    check_budget,
    check_choice,
    check_dimension,
    check_dtype,
    check_eps,
    check_seed,
    check_size,
)
from onelayer.build.lookup.blueprint import seen_size
from onelayer.build.refine import refined
from onelayer.build.sequences.composed import certified
from onelayer.build.sequences.directed import constant_term
from onelayer.build.sequences.ffn import PlacedTerm, composition_of, fit_terms, units_of, with_units
from onelayer.build.sequences.gather_layer import gather_layer
from onelayer.build.sequences.pursuit import Pursued, pursue
from onelayer.build.sequences.rational import rounded
from onelayer.build.sequences.recognise import FormulaTerm, Recogniser
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.language.formula import Formula
from onelayer.language.tree import Tape
from onelayer.lemmas.argument import Atom, Composition
from onelayer.lemmas.composition import composition_error
from onelayer.observer import Observer, Stopped, observing
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.proof.recorded import understood
from onelayer.recording.target import Target, place
from onelayer.result import Approximation

Array = NDArray[np.float64]
EXACT_SHARE = 0.02  # of eps, for |f - D| when D is f rewritten
PURSUIT_SHARE = 0.3  # of eps, when part of D is fitted
# Of eps for units and |f - D| together: bounds are a little above what was fitted.
ROOM = 0.985
# Share of the time after which a fit has to do with what it found.
FIT_TIME = 0.5


@door
@pinned()
def gather(
    f: Any,
    box: Box,
    eps: float,
    *,
    dtype: torch.dtype = torch.float64,
    residual: bool = True,
    norm: str = "none",
    max_units: int = 20_000,
    max_boxes: int = 200_000,
    max_seconds: float = math.inf,
    seed: int = 0,
    jobs: int = -1,
    observer: Observer | None = None,
) -> Approximation:
    """A tokens layer T with sup over ``box`` of |T - f| <= ``eps``, proved.

    f           formula text, Formula, torch function or module on sequences: box shape (n, d) or (n,), output per
                position (n, ...) or one for the whole sequence
    residual    whether the layer has a residual stream; ``norm`` none, pre or post: where it normalises

    When f commutes with cyclic shifts of the sequence, as every permutation-equivariant function does, all positions
    share their units; otherwise each position has its own, shut elsewhere through the position code.
    """
    check_eps(eps)
    check_dtype(dtype)
    seed = check_seed(seed)
    check_budget(max_seconds, jobs, max_units=max_units, max_boxes=max_boxes)
    check_box(box, dtype)
    if len(box.shape) not in (1, 2):
        raise OnelayerError(f"a sequence has shape (n,) or (n, d), got {tuple(box.shape)}")
    check_choice("norm", norm, ("none", "pre", "post"))
    if not isinstance(residual, bool):
        raise OnelayerError(f"residual must be True or False, got {repr(residual)[:60]}")
    check_dimension(box)
    wanted = _Wanted(eps, dtype, residual, norm, max_units, max_boxes, seed, jobs)
    with observing(observer, max_seconds) as watch:
        return _gathered(f, box, wanted, watch)


@dataclass(frozen=True)
class _Wanted:
    """What the layer is to be, and within what limits."""

    eps: float
    dtype: torch.dtype
    residual: bool
    norm: str
    max_units: int
    max_boxes: int
    seed: int
    jobs: int


def _gathered(f: Any, box: Box, wanted: _Wanted, observer: Observer) -> Approximation:
    started = time.monotonic()
    eps = wanted.eps
    observer.report("reading f")
    target = understood(f, box, observer=observer)
    check_size(seen_size(target, box, observer), wanted.dtype, "f")
    n = box.shape[0]
    each = target.output_shape[:1] == (n,)
    found, fitted = _decompose(target, box, each, wanted, observer.share(FIT_TIME))
    share = EXACT_SHARE if fitted is None else PURSUIT_SHARE
    outputs = _outputs(target, box, each)
    terms = [_placed(term, output, position, box) for position, output, term in found]
    width = box.dim // n
    atoms = [Atom(q, "x1") for q in range(width)]
    decomposed = composition_of(terms, atoms, width=width, outputs=outputs, each=each, exact=False)
    gap = _gap(target, decomposed, box, share * eps, wanted, observer)

    def attempt(goal: float) -> Approximation:
        fits = fit_terms(terms, (ROOM - share) * goal)
        units = units_of(fits)
        model = gather_layer(
            box,
            target.output_shape,
            terms,
            units,
            outputs=outputs,
            residual=wanted.residual,
            norm=wanted.norm,
            dtype=wanted.dtype,
        )
        composition = with_units(decomposed, units)
        error = composition_error(model, composition, box, observer)
        return certified(model, composition, target, box, eps, error, gap, started)

    # A pursuit out of time may have missed by far: closer units would not help.
    goal = max(eps, fitted or 0.0)
    return refined(attempt, eps, observer, goal=goal, fixed=gap.upper)


def _outputs(target: Target, box: Box, each: bool) -> int:
    """The outputs of one position."""
    total = math.prod(target.output_shape)
    return total // box.shape[0] if each else total


def _gap(
    target: Target, composition: Composition, box: Box, eps: float, wanted: _Wanted, observer: Observer
) -> Certificate:
    """|f - D| by branch and bound: both are smooth and nearly equal, so few boxes do."""
    decomposed = composition.formula().shaped(tuple(box.shape), target.output_shape)
    return certify(
        decomposed,
        target,
        box,
        eps,
        execution=None,
        max_boxes=wanted.max_boxes,
        jobs=wanted.jobs,
        observer=observer,
    )


def _positions(target: Target, box: Box, each: bool) -> list[int | None]:
    """The positions that need terms of their own; None serves all."""
    if not each or _commutes(target, box):
        return [None]
    return list(range(box.shape[0]))


def _pursued(target: Target, part: Formula | None, flat: int, box: Box, wanted: _Wanted, observer: Observer) -> Pursued:
    """Terms fitted to what of one output is not recognised; without time for any, its value at the centre."""
    values = _values(target, part, flat, observer)
    tolerance = PURSUIT_SHARE * wanted.eps
    try:
        return pursue(values, box, tolerance, max_units=wanted.max_units, seed=wanted.seed, observer=observer)
    except Stopped:
        return Pursued([_middle_value(target, box, flat)], tolerance)


def _middle_value(target: Target, box: Box, flat: int) -> FormulaTerm:
    """The value at the centre, for an output that there was no time to fit."""
    values = target.function(box.center[None]).reshape(-1)
    return constant_term(float(values[flat]), box)


def _decompose(
    target: Target, box: Box, each: bool, wanted: _Wanted, observer: Observer
) -> tuple[list[tuple[int | None, int, FormulaTerm]], float | None]:
    """(position, output, term) for all terms of D, and the error seen of those that had to be fitted, if any.

    With a read-out at each position and a function that commutes with cyclic shifts, the terms of the first position
    serve all.
    """
    outputs = _outputs(target, box, each)
    positions = _positions(target, box, each)
    read = _reading(target.formula, box)
    found: list[tuple[int | None, int, FormulaTerm]] = []
    error: float | None = None
    places = list(itertools.product(positions, range(outputs)))
    for done, (position, output) in enumerate(places):
        observer.report("fitting", done / len(places))
        flat = (position or 0) * outputs + output
        made, complete, part = read(flat)
        if not complete:
            more = _pursued(target, part, flat, box, wanted, observer)
            made = [*made, *more.terms]
            error = max(error or 0.0, more.error)
        found += [(position, output, term) for term in made]
    return found, error


# Terms of an output, whether they are all, the rest if known.
Read = tuple[list[FormulaTerm], bool, Formula | None]


def reads_whole(formula: Formula, box: Box) -> bool:
    """Whether all outputs are sums of functions of one linear form each: nothing is left to pursuit."""
    read = _reading(formula, box)
    found = map(read, range(len(formula.outputs)))
    return all(complete for _, complete, _ in found)


def _reading(formula: Formula | None, box: Box) -> Callable[[int], Read]:
    """What the formula, if there is one, says of an output."""
    if formula is None:
        return lambda flat: ([], False, None)
    recogniser = Recogniser(formula, box, affine=True)

    def read(flat: int) -> Read:
        terms, rest = recogniser.terms(flat)
        if rest:
            return terms, False, _rest(formula, rest)
        return terms, True, None

    return read


def _rest(formula: Formula, rest: Any) -> Formula:
    """The sum of the terms that have no such structure."""
    tape = Tape()
    places: list[int] = []
    for node in formula.nodes:
        args = [places[arg] for arg in node.args]
        places.append(tape.add(node.op, *args, value=node.value))
    total = tape.number(0.0)
    for factor, at in rest:
        # Rounded, since a fit is no proof: what is fitted is compared with f itself.
        part = tape.add("mul", tape.number(rounded(factor)), places[at])
        total = tape.add("add", total, part)
    return Formula.build(tape.nodes, [total], formula.input_shape)


def _values(target: Target, part: Formula | None, output: int, observer: Observer) -> Any:
    """The function to be fitted at points (S, D) -> (S,)."""

    def at_points(points: Array) -> Array:
        x = torch.from_numpy(points).reshape(-1, *target.input_shape)
        with torch.no_grad():
            if part is not None:
                found = part(x)
            else:
                every = target.values(x, observer).reshape(len(points), -1)
                found = every[:, output]
        values = np.asarray(found.double().numpy(), dtype=np.float64)
        if not np.isfinite(values).all():
            where = place(x[int(np.isfinite(values).argmin())])
            raise OnelayerError(f"f is not finite at x = {where}; choose a box on which it is")
        return values

    return at_points


def _commutes(target: Target, box: Box) -> bool:
    """Whether f(shifted X) = shifted f(X) at sample points of a box that is the same for all tokens."""
    alike = (box.lower == box.lower[:1]) & (box.upper == box.upper[:1])
    same = bool(alike.all())
    if not same or box.shape[0] == 1:
        return same
    x = box.sample(64, seed=7)
    with torch.no_grad():
        value = target.function(x)
        moved = target.function(torch.roll(x, 1, dims=1))
    # A guess: if it is wrong, |f - D| cannot be proved small.
    scale = 1e-9 * (1 + value.abs().max())
    apart = moved - torch.roll(value, 1, dims=1)
    return bool(apart.abs().max() <= scale)


def _placed(term: FormulaTerm, output: int, position: int | None, box: Box) -> PlacedTerm:
    """The term with its weights (n, d) by token, and the values that its sum takes."""
    n = box.shape[0]
    width = box.dim // n
    weights = np.zeros((n, width))
    for variable, _, weight in term.inner:
        token, coordinate = divmod(variable, width)
        weights[token, coordinate] += rounded(weight)
    at_low = weights * box.lower.reshape(n, width).numpy()
    at_high = weights * box.upper.reshape(n, width).numpy()
    least = np.minimum(at_low, at_high).sum()
    most = np.maximum(at_low, at_high).sum()
    return PlacedTerm(term.outer, weights, output, float(least), float(most), position)
