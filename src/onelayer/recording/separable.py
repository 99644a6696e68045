"""Black boxes of declared structure: sums or products of functions of one input each, known by values on lines alone.

Let a be a point of the box, y_i(t) the value of f at a with its i-th coordinate t, and L_i how fast f changes along it.

    additive   |f(x) - (sum_i y_i(x_i) - (D - 1) f(a))| <= A   for all x in the box
    product    |f(x) - prod_i y_i(x_i) / f(a)^(D - 1)|  <= A

is what the user declares, with an allowance A for the rounding of a simulator. Lemma: between two nodes at distance h
with values that differ by d, y_i is at most (L_i^2 h^2 - d^2) / (2 L_i h) away from its chord, because it lies below
both cones that rise from its ends and above those that fall. So f is that close to a known function s, a sum or product
of broken lines, and a proof about s is one about f under the assumption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.language.formula import Formula, parse
from onelayer.observer import Observer
from onelayer.recording.lipschitz import ESTIMATE, Lipschitz

Array = NDArray[np.float64]
ADDITIVE, PRODUCT = "additive", "product"
NOT = {ADDITIVE: "not additive", PRODUCT: "no product"}
STRUCTURES = (ADDITIVE, PRODUCT, ESTIMATE)
# No claim that these are optimal. Of eps: what lines may miss between their nodes, and the allowance A.
MISSED, ALLOWED = 0.5, 1 / 64
# Points off the lines: where f is looked at first, and where the structure is tried.
SCATTERED, CROSSED = 32, 32
FIRST = 9  # nodes of a line before it is refined
ROUNDS = 40  # of halving; floats end earlier
# Above the rounding of the few dozen operations of a bound.
UP = 1 + 2.0**-40
SLACK = 2.0**-48  # of the values themselves: 16 units in the last place


@dataclass(frozen=True)
class Separated:
    """A known function within ``within`` of f on the box, if what is assumed of f is true."""

    formula: Formula
    within: float
    assumption: str
    estimated: bool

    def left_of(self, eps: float) -> float:
        """The error that the known function may have for f to have eps."""
        return (eps - self.within) * (1 - 2.0**-48)


@dataclass(frozen=True)
class BrokenLine:
    """Values (n, K) of f on a line through the anchor, at ascending coordinates (n,) of one axis."""

    nodes: Array
    values: Array
    missed: float  # how far f may be from its broken line


class Lines:
    """f on the lines through an anchor: values, refined where a broken line may miss f by too much."""

    def __init__(self, f: Callable[[Tensor], Tensor], box: Box, lipschitz: Lipschitz, observer: Observer) -> None:
        self.f = f
        self.box = box
        self.observer = observer
        constants = lipschitz.constants
        self.steepness = np.array(constants if lipschitz.per_coordinate else constants * box.dim)
        self.low = box.lower.flatten().numpy()
        self.high = box.upper.flatten().numpy()
        self.scattered = box.sample(SCATTERED).reshape(-1, box.dim).numpy()
        self.seen = self.at(self.scattered)  # (C, K)
        size = np.abs(self.seen)
        largest = np.maximum(size.max(0), np.finfo(np.float64).tiny)
        # The point that is far from zero in every output: a product is divided by the value there.
        best = int((size / largest).min(1).argmax())
        self.anchor = self.scattered[best]
        self.value = self.seen[best]

    def at(self, points: Array) -> Array:
        """f at points (C, D), (C, K)."""
        self.observer.check()
        shaped = torch.from_numpy(points).reshape(-1, *self.box.shape)
        found = self.f(shaped)
        return found.detach().double().reshape(len(points), -1).numpy()

    def along(self, axis: int, tolerance: float) -> BrokenLine:
        """The line of an axis, refined until f is within ``tolerance`` of it."""
        steepness = float(self.steepness[axis])
        nodes = np.unique(np.linspace(self.low[axis], self.high[axis], FIRST))
        values = self._on_line(axis, nodes)
        # An axis without width has one node, and nothing between nodes to miss.
        if len(nodes) == 1:
            return BrokenLine(nodes, values, 0.0)
        for _ in range(ROUNDS):
            cones = _cones(nodes, values, steepness)
            middle = nodes[:-1] / 2 + nodes[1:] / 2
            # Between neighbouring floats there is no node more to be had.
            between = (middle > nodes[:-1]) & (middle < nodes[1:])
            new = middle[(cones > tolerance) & between]
            if not len(new):
                break
            nodes, order = np.unique(np.concatenate([nodes, new]), return_index=True)
            values = np.concatenate([values, self._on_line(axis, new)])[order]
        missed = _cones(nodes, values, steepness) + _rounding(values)
        return BrokenLine(nodes, values, float(missed.max()) * UP)

    def _on_line(self, axis: int, coordinates: Array) -> Array:
        points = np.repeat(self.anchor[None], len(coordinates), 0)
        points[:, axis] = coordinates
        return self.at(points)


def _rounding(values: Array) -> Array:
    """What rounding makes of values and their chords, between neighbours: finer lines do not miss less of it."""
    sizes = np.abs(values[1:]) + np.abs(values[:-1])
    size: Array = SLACK * sizes.max(1)
    return size


def _cones(nodes: Array, values: Array, steepness: float) -> Array:
    """How far f may be from the chord between neighbours: (L^2 h^2 - d^2) / (2 L h), never rounded down."""
    reach = steepness * np.diff(nodes) * UP
    size = np.abs(values[1:]) + np.abs(values[:-1])
    # A smaller change makes a larger bound: what rounding may have added to it is taken off.
    change = np.maximum(np.abs(np.diff(values, axis=0)) - SLACK * size, 0.0)  # (n - 1, K)
    positive = np.maximum(reach, np.finfo(np.float64).tiny)[:, None]
    share = np.minimum(change / positive, 1.0).min(1)
    # (L^2 h^2 - d^2) / (2 L h) = L h (1 - share^2) / 2, above by the rounding of 1 - share^2.
    rest = 1 - share**2 * (1 - 2.0**-50)
    most: Array = (reach * rest / 2) * UP
    return most


def separate(
    f: Callable[[Tensor], Tensor],
    box: Box,
    eps: float,
    lipschitz: Lipschitz,
    structure: str,
    shape: tuple[int, ...],
    observer: Observer,
) -> Separated | None:
    """f as a known function and its distance from f; None where a structure was to be estimated and none is seen.

    Raises with the point where values contradict a structure that was declared.
    """
    lines = Lines(f, box, lipschitz, observer)
    allowed = ALLOWED * eps
    goal = MISSED * eps
    # Shares of the goal by which all lines together have the fewest nodes, if each misses like L h.
    shares = np.sqrt(lines.steepness * (lines.high - lines.low))
    whole = max(float(shares.sum()), np.finfo(np.float64).tiny)
    tolerances = goal * shares / whole
    for form in (ADDITIVE, PRODUCT) if structure == ESTIMATE else (structure,):
        found = _fitted(lines, form, tolerances, goal)
        refusal = found.contradiction(allowed)
        if refusal is None:
            # A guess at either makes the whole an estimate.
            estimated = structure == ESTIMATE or bool(lipschitz.estimated_from)
            within = (found.missed() + allowed) * UP
            assumption = found.assumption(lipschitz, allowed, estimated)
            return Separated(found.formula(shape), within, assumption, estimated)
        if structure != ESTIMATE:
            raise OnelayerError(f"f is {NOT[form]} as declared: {refusal}")
    return None


def _fitted(lines: Lines, form: str, tolerances: Array, goal: float) -> _Structured:
    """Lines fine enough for the goal; a product multiplies what its lines miss."""
    found = _Structured.along(form, lines, tolerances)
    for _ in range(3):
        missed = found.missed()
        if missed <= goal * UP or not math.isfinite(missed):
            break
        tolerances = tolerances * (goal / missed) / UP
        found = _Structured.along(form, lines, tolerances)
    return found


@dataclass(frozen=True)
class _Structured:
    """The function that lines and a structure make."""

    form: str
    lines: Lines
    parts: Sequence[BrokenLine]

    @classmethod
    def along(cls, form: str, lines: Lines, tolerances: Array) -> _Structured:
        """With every line refined to its tolerance."""
        return cls(form, lines, [lines.along(axis, float(t)) for axis, t in enumerate(tolerances)])

    def missed(self) -> float:
        """How far the function with exact lines may be from that with broken ones."""
        missed = np.array([line.missed for line in self.parts])
        if self.form == ADDITIVE:
            return float(missed.sum()) * UP
        # Lemma: |prod y_i - prod s_i| <= sum_i |y_i - s_i| prod over j != i of max(|y_j|, |s_j|).
        sizes = np.stack([np.abs(line.values).max(0) for line in self.parts])
        largest = sizes + missed[:, None]  # (D, K)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            share = largest / np.abs(self.lines.value)
            others = np.stack([np.delete(share, at, 0).prod(0) for at in range(len(share))])
            each = missed[:, None] * others
            total = float(each.sum(0).max()) * UP
        return total if not math.isnan(total) else math.inf

    def joined(self, values: Array) -> Array:
        """The structure, of values (D, C, K) on the lines: (C, K)."""
        if self.form == ADDITIVE:
            repeated = (len(values) - 1) * self.lines.value
            return np.asarray(values.sum(0) - repeated)
        shares = values / self.lines.value
        return np.asarray(shares.prod(0) * self.lines.value)

    def contradiction(self, allowed: float) -> str | None:
        """A point that the structure does not bear, in words: crossed nodes first, then wherever f was looked at."""
        # A product is measured in shares of its value at the anchor.
        if self.form == PRODUCT and not bool((self.lines.value != 0).all()):
            return "it vanishes wherever it was looked at"
        generator = np.random.default_rng(0)
        picks = [generator.integers(len(line.nodes), size=CROSSED) for line in self.parts]
        chosen = list(zip(self.parts, picks, strict=True))
        points = np.stack([line.nodes[pick] for line, pick in chosen], 1)
        values = np.stack([line.values[pick] for line, pick in chosen])
        # At crossed nodes the lines are exact: nothing but the allowance stands between f and the structure.
        crossed = self._refusal(points, self.lines.at(points), self.joined(values), allowed)
        if crossed is not None:
            return crossed
        scattered = self.lines.scattered
        between = np.stack([_broken(line, scattered[:, at]) for at, line in enumerate(self.parts)])
        return self._refusal(scattered, self.lines.seen, self.joined(between), allowed + self.missed())

    def _refusal(self, points: Array, values: Array, expected: Array, allowed: float) -> str | None:
        gap = np.abs(values - expected)
        size = np.abs(values) + np.abs(expected) + len(self.parts) * np.abs(self.lines.value)
        off = (gap - size * SLACK).max(1)
        worst = int(off.argmax())
        if off[worst] <= allowed:
            return None
        output = int(gap[worst].argmax())
        seen = f"{values[worst, output]:.9g}"
        made = f"{expected[worst, output]:.9g}"
        return (
            f"at ({_shown(points[worst])}) it is {seen}, and its values on the lines through "
            f"({_shown(self.lines.anchor)}) make {made}; {allowed:.3g} apart was allowed"
        )

    def formula(self, shape: tuple[int, ...]) -> Formula:
        """The known function in the formula language."""
        outputs = range(len(self.lines.value))
        text = "; ".join(self._text(output) for output in outputs)
        known = parse(text, len(self.parts), limit=len(text))
        return known.shaped(tuple(self.lines.box.shape), shape)

    def _text(self, output: int) -> str:
        lines = [_spline(at, line, output) for at, line in enumerate(self.parts)]
        value = _number(self.lines.value[output])
        others = len(lines) - 1
        if self.form == ADDITIVE:
            return f"{' + '.join(lines)} - {others}*{value}"
        return f"{'*'.join(lines)}/{value}**{others}"

    def assumption(self, lipschitz: Lipschitz, allowed: float, estimated: bool) -> str:
        """What is assumed of f, and what follows."""
        kind = "a sum" if self.form == ADDITIVE else "a product"
        anchor = _shown(self.lines.anchor)
        count = sum(len(line.nodes) for line in self.parts)
        source = "estimated from values, not proved" if estimated else "as declared"
        return (
            f"f is {kind} of functions of one input each up to {allowed!r}, the ones that its values on the lines "
            f"through ({anchor}) show, and {lipschitz.statement} on the domain, {source}; the function stated here "
            f"joins {count:,} of these values by broken lines, and f as its code evaluates it is that close to it"
        )


def _broken(line: BrokenLine, at: Array) -> Array:
    """The broken line at coordinates (C,), (C, K)."""
    columns = [np.interp(at, line.nodes, column) for column in line.values.T]
    return np.stack(columns, 1)


def _spline(axis: int, line: BrokenLine, output: int) -> str:
    """The broken line as text; an axis without width has one value."""
    if len(line.nodes) == 1:
        return _number(line.values[0, output])
    first, second, *_ = line.nodes
    *_, before_last, last = line.nodes
    # Outside lie one knot each, which no point of the box is beyond; between neighbouring floats a step may be lost.
    before = min(2 * first - second, math.nextafter(first, -math.inf))
    behind = max(2 * last - before_last, math.nextafter(last, math.inf))
    knots = ", ".join(map(_bare, [before, *line.nodes, behind]))
    values = ", ".join(map(_bare, line.values[:, output]))
    return f"spline(x{axis + 1}, [1], [{knots}], [{values}])"


def _bare(number: Any) -> str:
    return repr(float(number))


def _number(number: Any) -> str:
    return f"({_bare(number)})"


def _shown(point: Array) -> str:
    return ", ".join(f"{number:.6g}" for number in point.tolist()[:8])
