"""Proof by composition: a layer that applies one-variable functions to sums of one-variable functions.

D(x) = sum_k g_k(s_k), s_k = sum_{j,c} w_kjc phi_c(x_jc). The layer embeds numbers by functions phi^_c close to phi_c,
attention and W_1 form the sums, and the ReLU units of term k make a piecewise-linear function G_k. Then
    |T - D| <= sum_k [ sup |G_k - g_k| + Lip(G_k) sum_{j,c} |w_kjc| sup |phi^_c - phi_c| ] + rounding,
so that only functions of one variable have to be compared, whatever the number of tokens.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.float64 import UNIT
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Composition
from onelayer.lemmas.atoms import Atoms, embedded_atoms
from onelayer.lemmas.forward import SLACK, UP, range_of_sum, rounding_of, upper_bound, widened
from onelayer.lemmas.overflow import overflows
from onelayer.lemmas.streams import Forms, last_norm_error, outer_coefficients, unit_forms
from onelayer.lemmas.units import ramps_of, steepest_slope
from onelayer.lemmas.univariate import piecewise_error
from onelayer.observer import Observer

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OuterRamps:
    """G_k of one term: knots of its units in s, sup |G_k - g_k| over the values of s, and the largest slope there."""

    knots: Floats  # (units of the term,): t
    slopes: Floats  # (units of the term,): mu > 0 with z = mu (s - t)
    error: float
    steepest: float


@np.errstate(all="ignore")  # what is not finite ends as inf
def composition_error(
    model: OneLayerTransformer, composition: Composition, box: Box, observer: Observer | None = None
) -> float:
    """Upper bound of sup over the box of |T - D|, T as executed; inf where an enclosure fails."""
    if overflows(model, box):
        return math.inf
    atoms = embedded_atoms(model, composition, box, observer)
    # Taylor models need a finite box; an atom without a finite range bounds nothing.
    enclosures = (atoms.low, atoms.high, atoms.error, atoms.rounding)
    if not all(np.isfinite(side).all() for side in enclosures):
        return math.inf
    forms = unit_forms(model, atoms)
    outer, offset = outer_coefficients(model)
    proof = _CompositionProof(composition, atoms, forms, (outer, offset), observer)
    # np.max and not max: nan stays nan, and is stated as inf.
    worst = float(np.max([proof.errors(position) for position in composition.positions]))
    executed = worst + SLACK * proof.rounding(model)
    return upper_bound(executed * UP)


class _CompositionProof:
    """The pieces of one proof. V = n C variables, the embedded atoms of all tokens; U hidden units."""

    def __init__(
        self,
        composition: Composition,
        atoms: Atoms,
        forms: Forms,
        read: tuple[Floats, Floats],
        observer: Observer | None,
    ) -> None:
        self.composition = composition
        self.atoms = atoms
        self.forms = forms
        outer, offset = read
        self.outer, self.offset = outer, offset  # (U, outputs), (outputs,)
        self.observer = observer
        self.units = np.array(composition.units, dtype=int)
        if len(self.units) != len(outer):
            raise OnelayerError(f"the argument speaks of {len(self.units)} units, the layer has {len(outer)}")
        self.terms = [self._outer(k) for k in range(len(composition.terms))]

    def weights(self, k: int, position: int) -> Floats:
        """Weights (V,) of term k at a position."""
        term = self.composition.terms[k]
        rows = self.composition.rows(term, position)
        return np.array(rows).reshape(-1)

    def errors(self, position: int) -> Floats:
        """Bounds of |T - D| for the outputs of one position, rounding after the ReLU apart."""
        active = self.composition.active(position)
        total = np.zeros(self.composition.outputs)
        rest = self.offset.copy()
        for k in active:
            term = self.composition.terms[k]
            outer = self.terms[k]
            rest[term.output] -= term.constant
            drift = self.drift(self.weights(k, position))
            mismatch = self._mismatch(k, position)
            total[term.output] += outer.error + outer.steepest * drift + mismatch
        # Units of terms that do not exist here add nothing if they never open.
        shut = ~np.isin(self.units, active)
        if not bool((self._top(position)[shut] <= 0).all()):
            raise OnelayerError(f"a unit of another position is not shut at position {position + 1}")
        # The constants of the terms and of the read-out must cancel; their difference is an error too.
        constants = sum(abs(self.composition.terms[k].constant) for k in active)
        sizes = np.abs(self.offset) + constants
        rounded = 4 * (len(active) + 2) * UNIT * sizes
        return total + np.abs(rest) + rounded

    def rounding(self, model: OneLayerTransformer) -> float:
        """Of the executed second matrix, residual sum and read-out, and what else reaches the outputs."""
        r = rounding_of(model.dtype)
        opened = [np.maximum(self._top(position), 0) for position in self.composition.positions]  # (U,) each
        weights = np.abs(self.outer)
        sizes = [units @ weights for units in opened]
        largest = float(np.max(sizes)) + float(np.abs(self.offset).max())
        # What reaches the outputs beside the units: through a last norm as its error, else as it is.
        post = model.config.norm == "post"
        last = last_norm_error(model, self.atoms, np.max(sizes, axis=0)) if post else 0.0
        leak = 0.0 if post else self.forms.leak
        reach = max(float(units.sum()) for units in opened)
        count = len(self.units)
        # A product below the normal range is lost, times what it would have met.
        lost = r.tiny * (8 * count + reach + float(weights.sum()))
        return r.gamma(count + 8) * largest + lost + leak + SLACK * last

    def drift(self, weights: Floats) -> float:
        """|s^ - s|: the sum formed from embedded atoms against that of the atoms themselves."""
        errors = np.tile(self.atoms.error, self.composition.length)  # (V,)
        # A product below the normal range may be lost here, and a steep outer function sees what is left.
        lost = np.count_nonzero((weights != 0) & (errors > 0)) * sys.float_info.min
        return (float(np.abs(weights) @ errors) + lost) * UP

    def range(self, k: int) -> tuple[float, float]:
        """Values that s_k takes over the box, at all positions where the term exists."""
        term = self.composition.terms[k]
        places = self.composition.positions if term.position is None else [term.position]
        lows, highs = [], []
        for place in places:
            w = self.weights(k, place)
            one = w * self.atoms.true_low.reshape(-1)
            other = w * self.atoms.true_high.reshape(-1)
            low, high = range_of_sum(np.minimum(one, other), np.maximum(one, other))
            lows.append(low)
            highs.append(high)
        return min(lows), max(highs)

    def _outer(self, k: int) -> OuterRamps:
        """Knots and slopes read off the forms at one position, then compared with g_k."""
        term = self.composition.terms[k]
        position = term.position or 0
        mine = self.units == k
        w = self.weights(k, position)
        scaled = w * self.forms.radius
        largest = float(np.abs(scaled).max(initial=0.0))
        # Divided by a power of two near it, which rounds nothing, their squares neither overflow nor vanish.
        size = math.ldexp(0.5, math.frexp(largest)[1])
        unit = scaled / size
        square = float(unit @ unit)
        slopes = np.ones(int(mine.sum()))
        # Least squares of z in s. Any mu > 0 would do: what z differs from mu (s - t) by is bounded in _mismatch.
        if square > 0:
            linear = self.forms.linear[:, position, mine]
            slopes = unit @ linear / square / size
        others = np.delete(self.outer[mine], term.output, axis=1)
        if not (bool((slopes > 0).all()) and not others.any()):
            raise OnelayerError(f"the units of term {k + 1} do not make a function of its sum")
        starts = self.forms.const[position, mine] / slopes
        knots = float(w @ self.forms.center) - starts
        changes = self.outer[mine, term.output] * slopes
        ramps = ramps_of(knots, changes, term.constant)
        low, high = self.range(k)
        error = piecewise_error(term.formula, ramps, *widened(low, high), self.observer)
        steepest = steepest_slope(ramps, low, high, self.drift(w))
        return OuterRamps(knots, slopes, error, steepest)

    def _mismatch(self, k: int, position: int) -> float:
        """sum_u |c_u| sup |z_u - mu_u (s^ - t_u)| over the units of the term."""
        term = self.composition.terms[k]
        mine = self.units == k
        w = self.weights(k, position)
        slopes = self.terms[k].slopes
        knots = self.terms[k].knots
        f = self.forms
        # Both are affine in t: s^ = w . center + (w radius) . t, and z by its form.
        scaled = w * f.radius
        apart = f.linear[:, position, mine] - scaled[:, None] * slopes
        linear = np.abs(apart).sum(0)
        center = float(w @ f.center)
        const = np.abs(f.const[position, mine] - slopes * (center - knots))
        # The rounding of this comparison itself, and of c mu, the slope that the ramps of the term have; or its loss.
        farthest = np.abs(f.center) + f.radius
        size = np.abs(w) @ farthest + np.abs(knots)
        own = 16 * (len(w) + 4) * UNIT * slopes * size
        # What the products with weights lose below the normal range is lost times the slope that it is compared with.
        own += (1 + slopes) * (4 * (len(w) + 4) * sys.float_info.min)
        each = linear + const + own + f.rem[position, mine]
        weights = np.abs(self.outer[mine, term.output])
        return (float(weights @ each) + float(size.sum()) * sys.float_info.min) * UP

    def _top(self, position: int) -> Floats:
        """The largest value that every unit can see, (U,)."""
        f = self.forms
        const = f.const[position]
        linear = np.abs(f.linear[:, position]).sum(0)
        reach = linear + f.rem[position]
        top: Floats = const + reach * UP
        top += 8 * UNIT * np.abs(const)
        return top
