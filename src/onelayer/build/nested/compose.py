"""compose: f as outer functions of sums of inner functions, in the heads and units of one packed layer.

The proof compares functions of one variable, and outer functions of a few sums on a box of these sums: never boxes in
the dimension of the input.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from onelayer.build.lookup.axis import fit_axis
from onelayer.build.lookup.families import Array
from onelayer.build.lookup.search import ROUNDING_SHARE
from onelayer.build.nested.composer import Composer
from onelayer.build.nested.layer import Lookup, nested_layer
from onelayer.build.nested.outer import fitted_ridges, outer_function, with_constants
from onelayer.build.nested.spans import Spans
from onelayer.build.refine import refined
from onelayer.build.sequences.composed import certified
from onelayer.build.sequences.piecewise import Piecewise
from onelayer.errors import OnelayerError
from onelayer.language.formula import parse
from onelayer.lemmas.algebra import same_function
from onelayer.lemmas.nested import Nested, Outer
from onelayer.lemmas.nesting import nested_error
from onelayer.observer import Observer
from onelayer.result import Approximation

# Of eps, for inner functions: another digit costs them one token, outer ones three times the units.
INNER_SHARE = 0.12
# Of eps for all together: bounds are a little above what was fitted.
ROOM = 0.98
# Share of a tolerance for rounding, and what executed heads round off their values.
ROUNDING, EXECUTED = 0.1, 1e-12
# Above zero, where sizes are divided by.
TINY = 1e-300
# Times a function, for the values of a head: fewer tokens do not carry it, and larger ones cancel so much that the
# bound of their error is found slowly or never.
LEAST_LARGER, MOST_LARGER = 2.0, 1e6


def compose(found: Composer, eps: float, observer: Observer) -> Approximation:
    """The layer and its proof; OnelayerError where an enclosure fails or the time is over before there is one."""
    started = time.monotonic()
    work = _Work(found, observer)
    return refined(lambda goal: work.attempt(goal, eps, started), eps, observer)


class _Work:
    """Everything that attempts share: names of inner functions, fitted axes."""

    def __init__(self, found: Composer, observer: Observer) -> None:
        self.found = found
        self.observer = observer
        self.spans = Spans(found.apart, found.box)
        self.axes: dict[tuple[str, float, float, int, float], Lookup] = {}

    def attempt(self, goal: float, eps: float, started: float) -> Approximation:
        """One layer, fitted to ``goal``, and the bound that its proof finds."""
        found = self.found
        outers = self._outer_functions(goal)
        fitted = self._fitted(outers, goal)
        lookups = self._inner_functions(outers, [fit.steepest for fit in fitted], goal)
        nested = self._statement(outers, fitted, lookups)
        inputs = tuple(found.box.shape)
        outputs = tuple(found.target.output_shape)
        model = nested_layer(inputs, outputs, nested, lookups, fitted, found.dtype)
        upper = nested_error(model, nested, found.box, self.observer)
        return certified(model, nested, found.target, found.box, eps, upper, None, started)

    def _statement(self, outers: list[Outer], fitted: list[Piecewise], lookups: list[list[Lookup] | None]) -> Nested:
        """What the layer computes, in words of the lemma; OnelayerError unless algebra shows it to be the function."""
        box = self.found.box
        outers, units = with_constants(outers, fitted)
        direct = tuple(self.spans.places(part) for part in self.found.apart.direct)
        # The statement holds the values along the axes of products; a single axis speaks for itself.
        grids = [axes for axes in lookups if axes is not None and len(axes) > 1]
        columns = tuple(map(_columns, grids))
        inner = tuple(self.spans.inner)
        nested = Nested(box.dim, len(direct), inner, direct, tuple(outers), units, columns)
        formula = self.found.target.formula
        if formula is not None:
            formula = formula.shaped((box.dim,), formula.output_shape)
            # Where the statement is not defined, its bounds are infinite.
            if same_function(formula, nested.formula(), box, second_defined=True):
                return nested
        raise OnelayerError("algebra does not show the function to be its inner and outer functions")

    def _outer_functions(self, goal: float) -> list[Outer]:
        """All outer functions with their ridges, which share the goal equally."""
        groups = self.found.apart.groups
        limits = {"max_units": self.found.max_units, "seed": self.found.seed}
        made = []
        for group in groups:
            share = goal / len(groups)
            made.append(outer_function(group, self.spans, share, **limits, observer=self.observer))
        return made

    def _fitted(self, outers: list[Outer], goal: float) -> list[Piecewise]:
        """Piecewise-linear functions of all ridges, within what gaps and inner functions leave of the goal."""
        curved = any(not one.plain for one in self.spans.inner)
        fits: list[Piecewise] = []
        for o in range(len(self.found.apart.direct)):
            own = [outer for outer in outers if outer.output == o]
            gaps = sum(outer.gap for outer in own)
            tolerance = ROOM * goal - gaps - INNER_SHARE * goal * curved
            fits += fitted_ridges(own, tolerance)
        return fits

    def _cost(self, outers: list[Outer], slopes: list[float]) -> Array:
        """What an error of each inner function adds to each output, at most, (outputs, inner functions)."""
        direct = self.found.apart.direct
        cost = np.zeros((len(direct), len(self.spans.inner)))
        for o, part in enumerate(direct):
            cost[o, list(self.spans.places(part))] += 1.0
        ridges = [(outer, ridge) for outer in outers for ridge in outer.ridges]
        for (outer, ridge), slope in zip(ridges, slopes, strict=True):
            for weight, members in zip(ridge.weights, outer.sums, strict=True):
                cost[outer.output, list(members)] += abs(weight) * slope
        return cost

    def _inner_functions(self, outers: list[Outer], slopes: list[float], goal: float) -> list[list[Lookup] | None]:
        """Every curved inner function by one axis of tokens: its error costs its weights times the slopes."""
        cost = self._cost(outers, slopes)
        curved = [one for one in self.spans.inner if not one.plain]
        share = (INNER_SHARE if outers else ROOM) * goal / max(1, len(curved))
        lookups: list[list[Lookup] | None] = []
        for c, one in enumerate(self.spans.inner):
            worst = max(float(cost[:, c].max()), TINY)
            lookups.append(None if one.plain else self._lookup(c, share / worst))
        return lookups

    def _lookup(self, c: int, tolerance: float) -> list[Lookup]:
        """An axis of tokens for every factor; the error of one counts as often as the others are large."""
        factors = self.spans.factors[c]
        one = self.spans.summands[self.spans.inner[c]]
        whole = max(math.prod(factor.size for factor in factors), TINY)
        # Values are larger than what they average, on each axis; their product is what rounding takes its share of.
        room = (ROUNDING * tolerance / (EXECUTED * whole)) ** (1 / len(factors))
        larger = max(LEAST_LARGER, min(room, MOST_LARGER))
        axes = []
        for a, factor in enumerate(factors):
            size = max(factor.size, TINY)
            share = tolerance / len(factors) / whole * size
            # A power of two, so that axes which differ a little share their fit.
            price = share * ROUNDING_SHARE / (2 * larger * size)
            unit = _power_below(price)
            # The first factor has the weight of the product, which is taken out: multiples share their keys.
            text, scale = (one.base, one.factor) if a == 0 else (factor.text, 1.0)
            axis = self._axis(text, *factor.ends, share / abs(scale), unit)
            axes.append(replace(axis, values=axis.values * scale))
        if math.prod(len(axis.slopes) for axis in axes) > self.found.max_tokens:
            raise OnelayerError("a product of inner functions takes too many tokens")
        return axes

    def _axis(self, text: str, low: float, high: float, tolerance: float, unit: float) -> Lookup:
        """Tokens for a function of one variable."""
        # Attempts ask for goals that differ a little: a power of two of the tolerance is fitted, once.
        level = round(math.log2(_power_below(tolerance)))
        key = (text, low, high, level, unit)
        if key not in self.axes:
            self.observer.check()
            formula = parse(text, 1)
            fit = fit_axis(
                lambda u: formula(u[:, None]),
                low,
                high,
                2.0**level,
                dtype=self.found.dtype,
                effort="fast",
                observer=self.observer,
                unit=unit,
            )
            arrays = [array.double().numpy() for array in (fit.slopes, fit.biases, fit.values)]
            self.axes[key] = Lookup(*arrays)
        return self.axes[key]


def _columns(axes: list[Lookup]) -> tuple[tuple[float, ...], ...]:
    """The values along each axis."""
    flat = [axis.values.reshape(-1).tolist() for axis in axes]
    return tuple(map(tuple, flat))


def _power_below(number: float) -> float:
    """The power of two at or next below a number; what has none, nan or infinite or zero, is no tolerance."""
    if not 0 < number < math.inf:
        raise OnelayerError("an inner function is so small or so steep that no tolerance of it is a float")
    return 2.0 ** math.floor(math.log2(number))
