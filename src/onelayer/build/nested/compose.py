"""compose: f as outer functions of sums of inner functions, in the heads and units of one packed layer.

The proof compares functions of one variable, and outer functions of a few sums on a box of these sums: never boxes in
the dimension of the input.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from onelayer.box import Box
from onelayer.build.lookup.axis import fit_axis
from onelayer.build.lookup.families import Array
from onelayer.build.lookup.search import ROUNDING_SHARE
from onelayer.build.nested.apart import Apart, OuterGroup, Summand, take_apart
from onelayer.build.nested.cones import cone_ridges, exactly, is_cone
from onelayer.build.nested.gates import take_apart_widely
from onelayer.build.nested.layer import Lookup, nested_layer
from onelayer.build.refine import refined
from onelayer.build.sequences.composed import certified
from onelayer.build.sequences.ffn import fit_shared
from onelayer.build.sequences.piecewise import Piecewise
from onelayer.build.sequences.pursuit import pursue
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula, parse
from onelayer.language.tree import Tape
from onelayer.lemmas.algebra import same_function
from onelayer.lemmas.cone import cone_error
from onelayer.lemmas.nested import Inner, Nested, Outer, RidgeTerm
from onelayer.lemmas.nesting import nested_error
from onelayer.lemmas.surface import surface_error
from onelayer.lemmas.univariate import at, range_of
from onelayer.observer import Observer
from onelayer.recording.target import Target
from onelayer.result import Approximation

PREDICTION_POINTS = 513  # of an axis, to predict its tokens without fitting it
SIGHTED = 256  # points at which outer functions are looked at before anything is built
MOST_SUMS = 3  # of an outer function: beyond, its ridges are too many
DEGREES = {2: 24, 3: 16}  # of ridges, by the number of sums: columns of their fit stay below a thousand
GAP_SHARE = 0.25  # of eps, for outer functions of several sums that ridges approximate
INNER_SHARE = 0.12  # of eps, for inner functions: another digit costs them one token, outer ones three times the units
ROOM = 0.98  # of eps for all together: bounds are a little above what was fitted
CONE_SHARE, CONE_ROOM = 0.75, 0.95  # of eps for absolute values, which units make exactly; of that for their fit
ROUNDING, EXECUTED = 0.1, 1e-12  # share of a tolerance for rounding, and what executed heads round off their values
LEAST_LARGER = 2.0  # times a function, for the values of a head: fewer tokens do not carry it
WIDER = 1e-3  # of its width, by which an interval of sums is widened: another proof may find it less tightly


@dataclass(frozen=True)
class Composer:
    """A target taken apart, ready to be built for any eps."""

    target: Target
    box: Box
    apart: Apart
    dtype: torch.dtype
    seed: int = 0
    max_units: int = 20_000
    max_tokens: int = 20_000

    @property
    def rank(self) -> int:
        """The largest number of sums in one outer function."""
        return self.apart.rank

    @property
    def multiplies(self) -> bool:
        """Whether an inner function is a product, which takes a grid of tokens."""
        return self.apart.multiplies

    def predicted_units(self, eps: float) -> float:
        """About how many hidden units outer functions of one sum take; others are not predicted.

        N pieces err like (integral of sqrt|g''|)^2 / (16 N^2); groups share eps equally.
        """
        groups = [group for group in self.apart.groups if len(group.sums) == 1]
        work = _Work(self, Observer())
        total = 0.0
        for group in groups:
            outer = work.outer(group, eps)
            s = np.linspace(outer.low[0], outer.high[0], PREDICTION_POINTS)
            bend = np.abs(np.diff(at(group.outer, s), 2))
            total += float(np.sqrt(np.where(np.isfinite(bend), bend, 0.0)).sum()) / 4 * math.sqrt(len(groups) / eps)
        return total


def composer(
    target: Target, box: Box, dtype: torch.dtype, seed: int = 0, *, max_tokens: int = 20_000
) -> Composer | None:
    """The target as inner and outer functions; None when it is not of that form.

    Inner functions of one direction each are preferred, unless products of them leave outer functions of fewer sums.
    """
    if target.formula is None or target.lipschitz is not None:
        return None
    formula = target.formula.shaped((box.dim,), target.formula.output_shape)
    found: list[Apart] = []
    for read in (_taken_apart, take_apart_widely):
        try:
            found += read(formula, box)
        except OnelayerError:
            continue
    for apart in sorted(found, key=lambda one: max(1, one.rank)):
        groups = tuple(replace(group, outer=_continued(group.outer)) for group in apart.groups)
        made = Composer(target, box, replace(apart, groups=groups), dtype, seed, max_tokens=max_tokens)
        if apart.rank <= MOST_SUMS and _has_values(made):
            return made
    return None


def _taken_apart(formula: Formula, box: Box) -> list[Apart]:
    return [take_apart(formula, box)]


def _has_values(made: Composer) -> bool:
    """Whether outer functions have values where their sums may be, which is more than where they are together."""
    try:
        work = _Work(made, Observer())
        for group in made.apart.groups:
            sides = Box(*zip(*(work.interval_of(part) for part in group.sums), strict=True))
            points = torch.cat([sides.corners(64), sides.sample(SIGHTED)])
            if not bool(torch.isfinite(group.outer(points)).all()):
                return False
    except OnelayerError:
        return False
    return True


def compose(found: Composer, eps: float, observer: Observer) -> Approximation:
    """The layer and its proof; OnelayerError where an enclosure fails or the time is over before there is one."""
    started = time.monotonic()
    work = _Work(found, observer)
    return refined(lambda goal: work.attempt(goal, eps, started), eps, observer)


class _Work:
    """Everything that attempts share: names of inner functions, fitted axes, gaps of outer functions."""

    def __init__(self, found: Composer, observer: Observer) -> None:
        self.found, self.observer = found, observer
        self.summands: dict[Inner, Summand] = {}
        for part in (*found.apart.direct, *(one for group in found.apart.groups for one in group.sums)):
            for one in part:
                self.summands.setdefault(one.inner, one)
        self.inner = list(self.summands)
        self.factors = [[self._factor(one) for one in inner.factors] for inner in self.inner]
        self.values = [_product_range(factors) for factors in self.factors]
        self.axes: dict[tuple[str, float, float, int, float], Lookup] = {}

    def _factor(self, one: Inner) -> _Factor:
        ends = self._interval(one)
        return _Factor(one.text, ends, ends if one.plain else range_of(one.formula, *ends))

    def _interval(self, one: Inner) -> tuple[float, float]:
        """Values of direction . x, a little wider than rounding needs."""
        low, high = (side.flatten().numpy() for side in (self.found.box.lower, self.found.box.upper))
        ends = np.array(one.direction) * low, np.array(one.direction) * high
        slack = 1e-15 * float(np.abs(ends).sum()) if np.count_nonzero(one.direction) > 1 else 0.0
        return float(np.minimum(*ends).sum()) - slack, float(np.maximum(*ends).sum()) + slack

    def attempt(self, goal: float, eps: float, started: float) -> Approximation:
        found = self.found
        outers = [self.outer(group, goal) for group in found.apart.groups]
        fitted, slopes = self._outer_functions(outers, goal)
        lookups = self._inner_functions(outers, slopes, goal)
        outers, units = _with_constants(outers, fitted)
        index = {one: c for c, one in enumerate(self.inner)}
        direct = tuple(tuple(index[one.inner] for one in part) for part in found.apart.direct)
        outputs = len(found.apart.direct)
        columns = tuple(_columns(axes) for axes in lookups if axes is not None and len(axes) > 1)
        nested = Nested(found.box.dim, outputs, tuple(self.inner), direct, tuple(outers), units, columns)
        if found.target.formula is None or not same_function(
            found.target.formula.shaped((found.box.dim,), found.target.formula.output_shape),
            nested.formula(),
            found.box,
            second_defined=True,  # where it is not, its bounds below are infinite
        ):
            raise OnelayerError("algebra does not show the function to be its inner and outer functions")
        model = nested_layer(
            tuple(found.box.shape), tuple(found.target.output_shape), nested, lookups, fitted, found.dtype
        )
        upper = nested_error(model, nested, found.box)
        return certified(model, nested, found.target, found.box, eps, upper, None, started)

    def interval_of(self, part: tuple[Summand, ...]) -> tuple[float, float]:
        """Where a sum of inner functions has its values."""
        values = [self.values[self.inner.index(one.inner)] for one in part]
        return _widened(sum(low for low, _ in values), sum(high for _, high in values))

    def outer(self, group: OuterGroup, goal: float) -> Outer:
        """An outer function with its ridges, their constants still open."""
        index = {one: c for c, one in enumerate(self.inner)}
        sums = tuple(tuple(index[one.inner] for one in part) for part in group.sums)
        sides = [self.interval_of(part) for part in group.sums]
        low, high = (tuple(side) for side in zip(*sides, strict=True))
        text = str(group.outer)
        if len(sums) == 1:
            return Outer(group.output, sums, text, low, high, 0.0, (RidgeTerm((1.0,), text, 0.0),))
        share = goal / len(self.found.apart.groups)
        open_ = Outer(group.output, sums, text, low, high, 0.0, ())
        cone = _coned(open_, CONE_SHARE * share) if is_cone(open_) else None
        return cone or self._pursued(open_, group.outer, GAP_SHARE * share)

    def _pursued(self, outer: Outer, formula: Formula, tolerance: float) -> Outer:
        """Ridges by projection pursuit, and the gap that boxes in the sums prove."""
        box = Box(outer.low, outer.high)
        found = pursue(
            _finite(formula),
            box,
            0.8 * tolerance,
            max_units=self.found.max_units,
            seed=self.found.seed,
            single=True,
            max_degree=DEGREES[len(outer.sums)],
            observer=self.observer,
        )
        ridges = []
        for term in found.terms:
            weights = {variable: float(weight) for variable, _, weight in term.inner}
            along = tuple(weights.get(i, 0.0) for i in range(len(outer.sums)))
            ridges.append(RidgeTerm(along, str(term.outer), 0.0))
        made = replace(outer, ridges=tuple(ridges))
        gap = surface_error(made, tolerance, self.observer)
        if not gap < math.inf:
            raise OnelayerError(f"the ridges of {outer.text[:60]} could not be bounded")
        return replace(made, gap=gap * (1 + WIDER))

    def _outer_functions(self, outers: list[Outer], goal: float) -> tuple[list[Piecewise], list[float]]:
        """Piecewise-linear functions of all ridges, and their largest slopes."""
        curved = any(not one.plain for one in self.inner)
        fits: list[Piecewise] = []
        for o in range(len(self.found.apart.direct)):
            own = [outer for outer in outers if outer.output == o]
            tolerance = ROOM * goal - sum(outer.gap for outer in own) - INNER_SHARE * goal * curved
            functions = _ridge_functions([outer for outer in own if not is_cone(outer)])
            if own and not tolerance > 0:
                raise OnelayerError("the ridges of the outer functions are not close enough")
            smooth = iter(fit_shared(functions, tolerance) if functions else [])
            for outer in own:
                exact = is_cone(outer)
                fits += [exactly(one, *_range(outer, one)) if exact else next(smooth) for one in outer.ridges]
        return fits, [fit.steepest for fit in fits]

    def _cost(self, outers: list[Outer], slopes: list[float]) -> Array:
        """What an error of each inner function adds to each output, at most, (outputs, inner functions)."""
        cost = np.zeros((len(self.found.apart.direct), len(self.inner)))
        for o, part in enumerate(self.found.apart.direct):
            cost[o, [self.inner.index(one.inner) for one in part]] += 1.0
        ridges = [(outer, ridge) for outer in outers for ridge in outer.ridges]
        for (outer, ridge), slope in zip(ridges, slopes, strict=True):
            for weight, members in zip(ridge.weights, outer.sums, strict=True):
                cost[outer.output, list(members)] += abs(weight) * slope
        return cost

    def _inner_functions(self, outers: list[Outer], slopes: list[float], goal: float) -> list[list[Lookup] | None]:
        """Every curved inner function by one axis of tokens: its error costs its weights times the slopes."""
        cost = self._cost(outers, slopes)
        curved = [c for c, one in enumerate(self.inner) if not one.plain]
        share = (INNER_SHARE if outers else ROOM) * goal / max(1, len(curved))
        return [
            None if one.plain else self._lookup(c, share / max(float(cost[:, c].max()), 1e-300))
            for c, one in enumerate(self.inner)
        ]

    def _lookup(self, c: int, tolerance: float) -> list[Lookup]:
        """An axis of tokens for every factor; the error of one counts as often as the others are large."""
        factors, one = self.factors[c], self.summands[self.inner[c]]
        whole = max(math.prod(factor.size for factor in factors), 1e-300)
        # Values are larger than what they average, on each axis; their product is what rounding takes its share of.
        larger = max(LEAST_LARGER, (ROUNDING * tolerance / (EXECUTED * whole)) ** (1 / len(factors)))
        axes = []
        for a, factor in enumerate(factors):
            share = tolerance / len(factors) / whole * max(factor.size, 1e-300)
            unit = share * ROUNDING_SHARE / (2 * larger * max(factor.size, 1e-300)) if len(factors) > 1 else 0.0
            # The first factor has the weight of the product, which is taken out: multiples share their keys.
            text, scale = (one.base, one.factor) if a == 0 else (factor.text, 1.0)
            axis = self._axis(text, *factor.ends, share / abs(scale), unit)
            axes.append(replace(axis, values=axis.values * scale))
        if math.prod(len(axis.slopes) for axis in axes) > self.found.max_tokens:
            raise OnelayerError("a product of inner functions takes too many tokens")
        return axes

    def _axis(self, text: str, low: float, high: float, tolerance: float, unit: float) -> Lookup:
        """Tokens for a function of one variable."""
        level = math.floor(math.log2(tolerance))
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
            self.axes[key] = Lookup(*(array.double().numpy() for array in (fit.slopes, fit.biases, fit.values)))
        return self.axes[key]


@dataclass(frozen=True)
class _Factor:
    """A factor of an inner function: its text, the ends of its argument, the ends of its values."""

    text: str
    ends: tuple[float, float]
    values: tuple[float, float]

    @property
    def size(self) -> float:
        return max(map(abs, self.values))


def _coned(outer: Outer, tolerance: float) -> Outer | None:
    """A cone with absolute values for ridges, and the gap that the rim of its box proves; None where they are many."""
    ridges = cone_ridges(outer, CONE_ROOM * tolerance)
    if ridges is None:
        return None
    made = replace(outer, ridges=ridges)
    gap = cone_error(made, tolerance)
    return replace(made, gap=gap * (1 + WIDER)) if gap < math.inf else None


def _columns(axes: list[Lookup]) -> tuple[tuple[float, ...], ...]:
    """The values along each axis."""
    return tuple(tuple(axis.values.reshape(-1).tolist()) for axis in axes)


def _product_range(factors: list[_Factor]) -> tuple[float, float]:
    low, high = factors[0].values
    for factor in factors[1:]:
        ends = [x * y for x in (low, high) for y in factor.values]
        low, high = min(ends), max(ends)
    return low, high


def _continued(formula: Formula) -> Formula:
    """The formula with asin and acos continued by constants: a sum may leave their domain by its rounding."""
    if not any(node.op in ("asin", "acos") for node in formula.nodes):
        return formula
    tape = Tape()
    places: list[int] = []
    for node in formula.nodes:
        args = [places[at] for at in node.args]
        if node.op in ("asin", "acos"):
            args = [tape.add("min", tape.add("max", args[0], tape.number(-1.0)), tape.number(1.0))]
        places.append(tape.add(node.op, *args, value=node.value))
    return Formula.build(tape.nodes, [places[at] for at in formula.outputs], (formula.dim,))


def _finite(formula: Formula) -> Callable[[Array], Array]:
    """Values of an outer function on the box of its sums, which may be larger than what the sums take together."""

    def values(u: Array) -> Array:
        found: Array = formula(torch.from_numpy(u)).numpy()
        if not np.isfinite(found).all():
            raise OnelayerError(f"{str(formula)[:60]} has no value for some sums in their intervals")
        return found

    return values


def _range(outer: Outer, ridge: RidgeTerm) -> tuple[float, float]:
    ends = [(a * low, a * high) for a, low, high in zip(ridge.weights, outer.low, outer.high, strict=True)]
    return sum(map(min, ends)), sum(map(max, ends))


def _widened(low: float, high: float) -> tuple[float, float]:
    """A little more on both sides, and no sign changed: logarithms and roots of a sum keep their values."""
    more = WIDER * (high - low) + 1e-12 * max(abs(low), abs(high))
    bottom = low - more
    top = high + more
    if low >= 0 > bottom:
        bottom = low / 2
    if high <= 0 < top:
        top = high / 2
    return bottom, top


def _with_constants(outers: list[Outer], fitted: list[Piecewise]) -> tuple[list[Outer], tuple[int, ...]]:
    """The value of each fitted function at its first knot, and the ridge of every unit."""
    rest = list(fitted)
    found = []
    for outer in outers:
        mine = rest[: len(outer.ridges)]
        rest = rest[len(outer.ridges) :]
        ridges = [replace(ridge, constant=float(fit.values[0])) for ridge, fit in zip(outer.ridges, mine, strict=True)]
        found.append(replace(outer, ridges=tuple(ridges)))
    return found, tuple(k for k, fit in enumerate(fitted) for _ in range(fit.pieces))


def _ridge_functions(outers: list[Outer]) -> list[tuple[Formula, float, float]]:
    """Every ridge of these outer functions with the interval on which it is needed."""
    ridges = [(outer, ridge) for outer in outers for ridge in outer.ridges]
    return [(ridge.formula, *_range(outer, ridge)) for outer, ridge in ridges]
