"""Proof by composition: a layer that applies one-variable functions to sums of one-variable functions.

D(x) = sum_k g_k(s_k), s_k = sum_{j,c} w_kjc phi_c(x_jc). The layer embeds numbers by functions phi^_c close to phi_c,
attention and W_1 form the sums, and the ReLU units of term k make a piecewise-linear function G_k. Then
    |T - D| <= sum_k [ sup |G_k - g_k| + Lip(G_k) sum_{j,c} |w_kjc| sup |phi^_c - phi_c| ] + rounding,
so that only functions of one variable have to be compared, whatever the number of tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.float64 import UNIT
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Composition
from onelayer.lemmas.atoms import Atoms, embedded_atoms
from onelayer.lemmas.forward import SLACK, UP, rounding_of, sum_slack, upper_bound
from onelayer.lemmas.overflow import overflows
from onelayer.lemmas.streams import Forms, last_norm_error, outer_coefficients, unit_forms
from onelayer.lemmas.units import MARGIN
from onelayer.lemmas.univariate import Ramps, piecewise_error

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OuterRamps:
    """G_k of one term: its ramps in s, sup |G_k - g_k| over the values of s, and the largest slope there."""

    ramps: Ramps
    slopes: Floats  # (units of the term,): mu > 0 with z = mu (s - knot)
    error: float
    steepest: float


@np.errstate(all="ignore")  # what is not finite ends as inf
def composition_error(model: OneLayerTransformer, composition: Composition, box: Box) -> float:
    """Upper bound of sup over the box of |T - D|, T as executed; inf where an enclosure fails."""
    if overflows(model, box):
        return math.inf
    atoms = embedded_atoms(model, composition, box)
    if not all(np.isfinite(side).all() for side in (atoms.low, atoms.high, atoms.error, atoms.rounding)):
        return math.inf
    forms = unit_forms(model, atoms)
    outer, offset = outer_coefficients(model)
    proof = _Proof(composition, atoms, forms, outer, offset)
    positions = range(composition.length) if composition.each else [0]
    worst = float(np.max([proof.errors(position) for position in positions]))
    return upper_bound((worst + SLACK * proof.rounding(model)) * UP)


class _Proof:
    """The pieces of one proof. V = n C variables, the embedded atoms of all tokens; U hidden units."""

    def __init__(self, composition: Composition, atoms: Atoms, forms: Forms, outer: Floats, offset: Floats) -> None:
        self.composition = composition
        self.atoms = atoms
        self.forms = forms
        self.outer, self.offset = outer, offset  # (U, outputs), (outputs,)
        self.units = np.array(composition.units, dtype=int)
        if len(self.units) != len(outer):
            raise OnelayerError(f"the argument speaks of {len(self.units)} units, the layer has {len(outer)}")
        self.terms = [self._outer(k) for k in range(len(composition.terms))]

    def weights(self, k: int, position: int) -> Floats:
        """Weights (V,) of term k at a position."""
        return np.array(self.composition.rows(self.composition.terms[k], position)).reshape(-1)

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
            total[term.output] += outer.error + outer.steepest * drift + self._mismatch(k, position)
        shut = ~np.isin(self.units, active)
        if not bool((self._top(position)[shut] <= 0).all()):
            raise OnelayerError(f"a unit of another position is not shut at position {position + 1}")
        constants = sum(abs(self.composition.terms[k].constant) for k in active)
        sizes = np.abs(self.offset) + constants
        return total + np.abs(rest) + 4 * (len(active) + 2) * UNIT * sizes

    def rounding(self, model: OneLayerTransformer) -> float:
        """Of the executed second matrix, residual sum and read-out, and what else reaches the outputs."""
        r = rounding_of(model.dtype)
        positions = range(self.composition.length) if self.composition.each else [0]
        sizes = [np.maximum(self._top(position), 0) @ np.abs(self.outer) for position in positions]
        largest = float(np.max(sizes)) + float(np.abs(self.offset).max())
        last = last_norm_error(model, self.atoms, np.max(sizes, axis=0)) if model.config.norm == "post" else 0.0
        leak = self.forms.leak if model.config.norm != "post" else 0.0
        reach = max(float(np.maximum(self._top(position), 0).sum()) for position in positions)
        count = len(self.units)
        lost = r.tiny * (8 * count + reach + float(np.abs(self.outer).sum()))
        return r.gamma(count + 8) * largest + lost + leak + SLACK * last

    def drift(self, weights: Floats) -> float:
        """|s^ - s|: the sum formed from embedded atoms against that of the atoms themselves."""
        errors = np.tile(self.atoms.error, self.composition.length)  # (V,)
        return float(np.abs(weights) @ errors) * UP

    def range(self, k: int) -> tuple[float, float]:
        """Values that s_k takes over the box, at all positions where the term exists."""
        term = self.composition.terms[k]
        places = [term.position] if term.position is not None else range(self.composition.length)
        lows, highs = [], []
        for place in places if self.composition.each else [0]:
            w = self.weights(k, place)
            one = w * self.atoms.true_low.reshape(-1)
            other = w * self.atoms.true_high.reshape(-1)
            slack = sum_slack(len(w), (np.abs(one) + np.abs(other)).sum())
            low = np.minimum(one, other)
            least = low.sum() - slack
            # Signs survive rounding: a sum of numbers >= 0 is >= 0.
            lows.append(max(least, 0.0) if (low >= 0).all() else least)
            highs.append(np.maximum(one, other).sum() + slack)
        return float(min(lows)), float(max(highs))

    def _outer(self, k: int) -> OuterRamps:
        """Knots and slopes read off the forms at one position, then compared with g_k."""
        term = self.composition.terms[k]
        position = term.position or 0
        mine = self.units == k
        w = self.weights(k, position)
        scaled = w * self.forms.radius
        largest = float(np.abs(scaled).max(initial=0.0))
        size = math.ldexp(0.5, math.frexp(largest)[1])  # a power of two near it: squares of scaled / size exist
        unit = scaled / size
        square = float(unit @ unit)
        low, high = self.range(k)
        formula = term.formula
        slopes = np.ones(int(mine.sum()))
        if square > 0:  # least squares of z in s
            slopes = unit @ self.forms.linear[:, position, mine] / square / size
        others = np.delete(self.outer[mine], term.output, axis=1)
        if not (bool((slopes > 0).all()) and not others.any()):
            raise OnelayerError(f"the units of term {k + 1} do not make a function of its sum")
        knots = float(w @ self.forms.center) - self.forms.const[position, mine] / slopes
        changes = self.outer[mine, term.output] * slopes
        order = np.argsort(knots, kind="stable")
        ramps = Ramps(knots[order], changes[order], term.constant)
        top = high if high > low else low + 1e-9 * (1 + abs(low))  # an interval of some width
        error = piecewise_error(formula, ramps, low, top)
        margin = self.drift(w) + MARGIN * (abs(low) + abs(high))
        reached = ramps.on(low - margin, high + margin)[2]
        return OuterRamps(ramps, slopes, error, float(np.abs(reached).max()) * UP)

    def _mismatch(self, k: int, position: int) -> float:
        """sum_u |c_u| sup |z_u - mu_u (s^ - t_u)| over the units of the term."""
        term = self.composition.terms[k]
        mine = self.units == k
        w = self.weights(k, position)
        slopes = self.terms[k].slopes
        order = np.argsort(self._knots(k), kind="stable")
        knots = np.empty(len(order))
        knots[order] = self.terms[k].ramps.knots
        f = self.forms
        scaled = w * f.radius
        linear = np.abs(f.linear[:, position, mine] - scaled[:, None] * slopes).sum(0)
        center = float(w @ f.center)
        const = np.abs(f.const[position, mine] - slopes * (center - knots))
        size = np.abs(w) @ (np.abs(f.center) + f.radius) + np.abs(knots)
        own = 16 * (len(w) + 4) * UNIT * slopes * size  # the rounding of this comparison itself
        each = linear + const + own + f.rem[position, mine]
        return float(np.abs(self.outer[mine, term.output]) @ each) * UP

    def _knots(self, k: int) -> Floats:
        """Knots of the units of term k in the order of the units."""
        term = self.composition.terms[k]
        mine = self.units == k
        position = term.position or 0
        w = self.weights(k, position)
        starts = self.forms.const[position, mine] / self.terms[k].slopes
        knots: Floats = float(w @ self.forms.center) - starts
        return knots

    def _top(self, position: int) -> Floats:
        """The largest value that every unit can see, (U,)."""
        f = self.forms
        reach = np.abs(f.linear[:, position]).sum(0) + f.rem[position]
        top: Floats = f.const[position] + reach * UP
        top += 8 * UNIT * np.abs(f.const[position])
        return top
