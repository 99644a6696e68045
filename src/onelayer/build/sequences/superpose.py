"""superpose: f = sum_k g_k(sum_j phi_kj(x_j)) over tokens of a sequence, any number of them.

Size O(1/sqrt(eps)) per smooth one-variable function: the proof compares functions of one variable only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.build.arguments import check_box, check_budget, check_dtype, check_eps, check_size
from onelayer.build.lookup.blueprint import seen_size
from onelayer.build.refine import refined
from onelayer.build.sequences.composed import certified, target_of
from onelayer.build.sequences.ffn import PlacedTerm, composition_of, fit_terms, units_of, with_units
from onelayer.build.sequences.piecewise import Piecewise, fit_piecewise
from onelayer.build.sequences.rational import as_float
from onelayer.build.sequences.recognise import FormulaTerm, Recogniser
from onelayer.build.sequences.superpose_layer import superposition_layer
from onelayer.build.sort import maximum, minimum
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.language.formula import Formula
from onelayer.lemmas.argument import Atom
from onelayer.lemmas.composition import composition_error
from onelayer.lemmas.forward import range_of_sum, widened
from onelayer.lemmas.univariate import at, has_values, range_of
from onelayer.observer import Observer, observing
from onelayer.proof.recorded import understood
from onelayer.recording.target import Target, as_target
from onelayer.result import Approximation
from onelayer.taylor.hull import defined_on

Array = NDArray[np.float64]
# Of eps, for the outer functions when the inner ones are curved too.
OUTER_SHARE = 0.6
# Of eps for all together: bounds are a little above what was fitted.
ROOM = 0.98


@door
@pinned()
def superpose(
    f: Any,
    box: Box,
    eps: float,
    *,
    dtype: torch.dtype = torch.float64,
    max_ramps: int = 2**17,
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Approximation:
    """A layer T with sup over ``box`` of |T - f| <= ``eps``, proved by composition, for f in superposed form.

    f           formula text, a Formula or a torch function of n numbers, box shape (n,), or of n tokens (n, d); every
                term of f must reach its variables through one sum of one-variable functions: means, power sums, norms,
                log-sum-exp, products of positive numbers. The largest or smallest of n numbers is built by thresholds.

    The certificate speaks of f as it was taken apart: sums reordered, rational factors collected, products of positive
    numbers written as exp of a sum of logarithms.
    """
    check_eps(eps)
    check_dtype(dtype)
    check_box(box, dtype)
    check_budget(max_seconds, max_ramps=max_ramps)
    with observing(observer, max_seconds) as watch:
        return _superposed(f, box, eps, dtype, max_ramps, watch)


def _superposed(f: Any, box: Box, eps: float, dtype: torch.dtype, max_ramps: int, observer: Observer) -> Approximation:
    started = time.monotonic()
    observer.report("reading f")
    target = understood(f, box, observer=observer)
    if target.formula is None:
        raise OnelayerError(f"a superposition needs a recorded function; {target.unrecorded or 'it has no formula'}")
    check_size(seen_size(target, box, observer), dtype, "f")
    build = extreme(target.formula, box)
    if build is not None:
        low = float(box.lower.min())
        high = float(box.upper.max())
        return build(box.dim, low, high, eps, dtype=dtype, observer=observer)
    found = _terms(target, box)
    _need_values(target.formula, box)
    atoms, terms = _placed(found, box)
    work = _Superposition(target, box, atoms, terms, eps, dtype, max_ramps, started, observer)

    def attempt(goal: float) -> Approximation:
        observer.report("building")
        made = work.attempt(goal)
        observer.report("proving", lower=made.certificate.lower, upper=made.certificate.upper)
        return made

    return refined(attempt, eps, observer)


@pinned()
def needs_superposition(f: Any, box: Box, observer: Observer | None = None) -> bool:
    """Whether f is a superposition, and no sum of functions of one linear form each, which needs no embedding."""
    target = as_target(f, box, observer=observer)
    if target.formula is None or len(box.shape) not in (1, 2):
        return False
    if extreme(target.formula, box) is not None:
        return True
    linear = _read_whole(target.formula, box, affine=True)
    return not linear and _read_whole(target.formula, box, affine=False)


def _read_whole(formula: Formula, box: Box, *, affine: bool) -> bool:
    """Whether every output is a sum of functions of one sum each, of the variables themselves where ``affine``."""
    recogniser = Recogniser(formula, box, affine=affine)
    for output in range(len(formula.outputs)):
        _, rest = recogniser.terms(output)
        if rest:
            return False
    return True


@dataclass(frozen=True)
class _Superposition:
    """A function taken apart, and what its layer is to be."""

    target: Target
    box: Box
    atoms: list[Atom]
    terms: list[PlacedTerm]
    eps: float
    dtype: torch.dtype
    max_ramps: int
    started: float
    observer: Observer

    @property
    def outputs(self) -> int:
        """How many numbers the function has."""
        return len(self.target.formula.outputs) if self.target.formula else 1

    def attempt(self, goal: float) -> Approximation:
        """Outer functions first; their slopes say how exact the inner ones must be."""
        curved = [str(atom.formula) != "x1" for atom in self.atoms]
        share = OUTER_SHARE if any(curved) else ROOM
        fitted = fit_terms(self.terms, share * goal)
        # Straight outer functions take nothing of what they were given.
        straight = all(found.pieces == 1 for found in fitted)
        left = ROOM * goal * (1.0 if straight else 1 - share)
        each = left / max(1, sum(curved))
        tolerances = _inner_tolerances(self.terms, fitted, len(self.atoms), self.outputs, each)
        embedded = []
        for atom, tolerance, bent in zip(self.atoms, tolerances, curved, strict=True):
            embedded.append(_fit_atom(atom, self.box, tolerance if bent else math.inf, self.max_ramps))
        return self._proved(fitted, embedded)

    def _proved(self, fitted: list[Piecewise], embedded: list[Piecewise]) -> Approximation:
        """The layer of fitted outer functions and embedded inner ones, with its bound."""
        box = self.box
        target = self.target
        units = units_of(fitted)
        shape = tuple(box.shape)
        outputs = self.outputs
        model = superposition_layer(
            shape, outputs, target.output_shape, self.atoms, embedded, self.terms, units, self.dtype
        )
        width = shape[1] if len(shape) == 2 else 1
        decomposed = composition_of(self.terms, self.atoms, width=width, outputs=outputs, each=False, exact=True)
        composition = with_units(decomposed, units)
        normal = target_of(decomposed.formula(), box, target.output_shape, target.description)
        upper = composition_error(model, composition, box, self.observer)
        return certified(model, composition, normal, box, self.eps, upper, None, self.started)


@np.errstate(over="ignore")  # an atom that counts for nothing may err by anything
def _inner_tolerances(
    terms: list[PlacedTerm], fitted: list[Piecewise], atoms: int, outputs: int, share: float
) -> Array:
    """An error of the atom costs its weights times the slope of the outer function, added over the terms."""
    cost = np.zeros((outputs, atoms))
    for term, found in zip(terms, fitted, strict=True):
        sizes = np.abs(term.weights).sum(0)
        cost[term.output] += found.steepest * sizes
    worst: Array = share / np.maximum(cost.max(0), 1e-300)
    return worst


def _fit_atom(atom: Atom, box: Box, tolerance: float, max_ramps: int) -> Piecewise:
    low, high = _interval(box, atom.coordinate)
    formula = atom.formula
    if tolerance == math.inf:
        ends = np.array([low, high])
        return Piecewise(ends, at(formula, ends))
    made = fit_piecewise(lambda s: at(formula, s), low, high, tolerance)
    if made.pieces > max_ramps:
        raise OnelayerError(f"the embedding of {atom.text} needs {made.pieces:,} ramps, more than {max_ramps:,}")
    return made


def _interval(box: Box, coordinate: int) -> tuple[float, float]:
    """The ends of one coordinate over all tokens, which share their embedding."""
    n = box.shape[0]
    low = box.lower.reshape(n, -1)[:, coordinate]
    high = box.upper.reshape(n, -1)[:, coordinate]
    return float(low.min()), float(high.max())


def _terms(target: Target, box: Box) -> list[tuple[int, FormulaTerm]]:
    """Terms of all outputs; an error names the first term of another form."""
    formula = target.formula
    if formula is None:
        return []
    if len(box.shape) not in (1, 2):
        raise OnelayerError(f"a sequence has shape (n,) or (n, d), got {tuple(box.shape)}")
    return _of_outputs(Recogniser(formula, box, affine=False))


def _of_outputs(recogniser: Recogniser) -> list[tuple[int, FormulaTerm]]:
    """The terms that a formula is taken apart into."""
    formula = recogniser.formula
    found = []
    for output in range(len(formula.outputs)):
        made, rest = recogniser.terms(output)
        if rest:
            _, first = rest[0]
            text = str(Formula.build(formula.nodes, [first], formula.input_shape))
            raise OnelayerError(
                f"'{text[:80]}' is no function of one sum of one-variable functions; use layout='tokens'"
            )
        found += [(output, term) for term in made]
    return found


def _need_values(formula: Formula, box: Box) -> None:
    """OnelayerError unless f is shown to have a value all over the box: what its superposition has shows only its own.

    Lemma. Of f the superposition leaves out parts of one variable alone, which cancel or count zero times, and
    singularities that can be removed once several sums are written as one. f has a value where the largest parts of one
    variable have, and the outer functions of the sums with nothing removed.
    """
    if defined_on(formula, box):
        return
    low = box.lower.flatten().tolist()
    high = box.upper.flatten().tolist()
    recogniser = Recogniser(formula, box, affine=False, cancels=False)
    # Tokens mostly share their functions and intervals: each is looked at once.
    parts = {(str(part), low[at], high[at]): part for at, part in recogniser.singles()}
    _, terms = _placed(_of_outputs(recogniser), box)
    parts |= {(str(term.outer), term.low, term.high): term.outer for term in terms}
    for (text, *ends), part in parts.items():
        if not has_values(part, *widened(*ends)):
            shown = f"every x1 from {ends[0]!r} to {ends[1]!r}"
            raise OnelayerError(f"'{text[:80]}', a part of f, is not shown to have a value for {shown}")


def _placed(terms: list[tuple[int, FormulaTerm]], box: Box) -> tuple[list[Atom], list[PlacedTerm]]:
    """Atoms without repetition, and each term with its weights (n, C) and the range of its sum."""
    n = box.shape[0]
    width = box.dim // n
    index: dict[tuple[int, str], int] = {}
    for _, term in terms:
        for variable, formula, _ in term.inner:
            index.setdefault((variable % width, str(formula)), len(index))
    # A constant function has no atoms, but a layer has an embedding.
    if not index:
        index[0, "x1"] = 0
    atoms = [Atom(coordinate, text) for coordinate, text in index]
    placed = []
    for output, term in terms:
        # Parts that differ may be one atom once they are written: their weights add up exactly, or not at all.
        exact: dict[tuple[int, int], Fraction] = {}
        for variable, formula, weight in term.inner:
            token, coordinate = divmod(variable, width)
            place = index[coordinate, str(formula)]
            exact[token, place] = exact.get((token, place), Fraction(0)) + weight
        weights = np.zeros((n, len(atoms)))
        for place_of_weight, weight in exact.items():
            weights[place_of_weight] = _exactly(weight)
        low, high = _range(weights, atoms, box)
        placed.append(PlacedTerm(term.outer, weights, output, low, high))
    return atoms, placed


def _exactly(weight: Fraction) -> float:
    """The weight as a float, or OnelayerError: the argument of the proof states weights, not their rounding."""
    exact = as_float(weight)
    if exact is None:
        digits = str(weight)
        shown = digits if len(digits) < 60 else f"with {len(digits):,} digits"
        raise OnelayerError(f"the weight {shown} of a sum is no float; scale the sum so that its weights are")
    return exact


def _range(weights: Array, atoms: list[Atom], box: Box) -> tuple[float, float]:
    """The values that a weighted sum of atoms takes."""
    ends = []
    for column, atom in zip(weights.T, atoms, strict=True):
        least, most = range_of(atom.formula, *_interval(box, atom.coordinate))
        ends.append(np.stack([column * least, column * most]))
    both = np.concatenate(ends, axis=1)  # (2, atoms n)
    return range_of_sum(both.min(0), both.max(0))


def extreme(formula: Formula, box: Box) -> Callable[..., Approximation] | None:
    """The construction of max(x1, ..., xn) and min(x1, ..., xn) over one interval, if f is one of them."""
    n = box.dim
    low = float(box.lower.min())
    high = float(box.upper.max())
    same = bool(((box.lower == low) & (box.upper == high)).all())
    if len(formula.outputs) != 1 or len(box.shape) != 1 or not same or n < 2:
        return None
    variables = {node.value for node in formula.nodes if node.op == "var"}
    operations = {node.op for node in formula.nodes} - {"var"}
    if len(variables) < n or len(operations) != 1:
        return None
    # Maxima of maxima of all variables, in whatever order, are the largest of them.
    (only,) = operations
    return {"max": maximum, "min": minimum}.get(only)
