"""Outer functions in hidden units: each as ridges of its sums, each ridge as a piecewise-linear function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from onelayer.box import Box
from onelayer.build.lookup.families import Array
from onelayer.build.nested.apart import OuterGroup
from onelayer.build.nested.cones import cone_ridges, exactly, is_cone
from onelayer.build.nested.directions import span
from onelayer.build.nested.spans import WIDER, Spans
from onelayer.build.sequences.ffn import fit_shared
from onelayer.build.sequences.piecewise import Piecewise
from onelayer.build.sequences.pursuit import pursue
from onelayer.build.sequences.rational import rounded
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula
from onelayer.lemmas.cone import cone_error
from onelayer.lemmas.nested import Outer, RidgeTerm
from onelayer.lemmas.surface import surface_error
from onelayer.observer import Observer

# Of ridges, by the number of sums: columns of their fit stay below a thousand.
DEGREES = {2: 24, 3: 16}
# Of a tolerance, for outer functions of several sums that ridges approximate.
GAP_SHARE = 0.25
# Of that for the fit of ridges: the proof of the gap by boxes takes the rest.
PURSUED = 0.8
# Of a tolerance, for absolute values: units make them exactly, so gaps get the most of it.
CONE_SHARE = 0.75
# Of that for their fit: the rim of the box proves a little more.
CONE_ROOM = 0.95


def outer_function(
    group: OuterGroup, spans: Spans, tolerance: float, *, max_units: int, seed: int, observer: Observer
) -> Outer:
    """An outer function with its ridges, their constants still open."""
    sums = tuple(spans.places(part) for part in group.sums)
    ends = [spans.of_sum(part) for part in group.sums]
    low, high = zip(*ends, strict=True)
    text = str(group.outer)
    # A function of one sum is its own ridge, without a gap.
    if len(sums) == 1:
        ridge = RidgeTerm((1.0,), text, 0.0)
        return Outer(group.output, sums, text, low, high, 0.0, (ridge,))
    bare = Outer(group.output, sums, text, low, high, 0.0, ())
    cone = _coned(bare, CONE_SHARE * tolerance, observer) if is_cone(bare) else None
    if cone is not None:
        return cone
    found = pursue(
        _finite(group.outer),
        Box(low, high),
        PURSUED * GAP_SHARE * tolerance,
        max_units=max_units,
        seed=seed,
        single=True,
        max_degree=DEGREES[len(sums)],
        observer=observer,
    )
    ridges = []
    for term in found.terms:
        weights = {variable: rounded(weight) for variable, _, weight in term.inner}
        # Directions that a pursuit leaves out have weight zero.
        along = tuple(weights.get(i, 0.0) for i in range(len(sums)))
        ridges.append(RidgeTerm(along, str(term.outer), 0.0))
    return _with_gap(replace(bare, ridges=tuple(ridges)), GAP_SHARE * tolerance, observer)


def _with_gap(outer: Outer, tolerance: float, observer: Observer) -> Outer:
    """The outer function with the gap to its ridges that boxes in the sums prove."""
    gap = surface_error(outer, tolerance, observer)
    if not gap < math.inf:
        raise OnelayerError(f"the ridges of {outer.text[:60]} could not be bounded")
    return replace(outer, gap=gap * (1 + WIDER))


def _coned(outer: Outer, tolerance: float, observer: Observer) -> Outer | None:
    """A cone with absolute values for ridges, and the gap that the rim of its box proves; None where they are many."""
    ridges = cone_ridges(outer, CONE_ROOM * tolerance)
    if ridges is None:
        return None
    made = replace(outer, ridges=ridges)
    gap = cone_error(made, tolerance, observer)
    if gap < math.inf:
        return replace(made, gap=gap * (1 + WIDER))
    return None


def _finite(formula: Formula) -> Callable[[Array], Array]:
    """Values of an outer function on the box of its sums, which may be larger than what the sums take together."""

    def values(u: Array) -> Array:
        found: Array = formula(torch.from_numpy(u)).numpy()
        if not np.isfinite(found).all():
            raise OnelayerError(f"{str(formula)[:60]} has no value for some sums in their intervals")
        return found

    return values


def fitted_ridges(own: list[Outer], tolerance: float) -> list[Piecewise]:
    """A piecewise-linear function for every ridge of the outer functions of one output; they share the tolerance."""
    if own and not tolerance > 0:
        raise OnelayerError("the ridges of the outer functions are not close enough")
    functions = _functions([outer for outer in own if not is_cone(outer)])
    fits = iter(fit_shared(functions, tolerance) if functions else [])
    found: list[Piecewise] = []
    for outer in own:
        if is_cone(outer):
            found += [exactly(ridge, *_range(outer, ridge)) for ridge in outer.ridges]
        else:
            found += [next(fits) for _ in outer.ridges]
    return found


def _functions(outers: list[Outer]) -> list[tuple[Formula, float, float]]:
    """Every ridge of these outer functions with the interval on which it is needed."""
    return [(ridge.formula, *_range(outer, ridge)) for outer in outers for ridge in outer.ridges]


def with_constants(outers: list[Outer], fitted: list[Piecewise]) -> tuple[list[Outer], tuple[int, ...]]:
    """The value of each fitted function at its first knot, and the ridge of every unit."""
    rest = list(fitted)
    found = []
    for outer in outers:
        mine = rest[: len(outer.ridges)]
        rest = rest[len(outer.ridges) :]
        ridges = []
        for ridge, fit in zip(outer.ridges, mine, strict=True):
            ridges.append(replace(ridge, constant=float(fit.values[0])))
        found.append(replace(outer, ridges=tuple(ridges)))
    units = [k for k, fit in enumerate(fitted) for _ in range(fit.pieces)]
    return found, tuple(units)


def _range(outer: Outer, ridge: RidgeTerm) -> tuple[float, float]:
    """The interval of the argument of a ridge."""
    return span(ridge.weights, outer.low, outer.high)
