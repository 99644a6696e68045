"""Cones: functions with h(t u) = t h(u) for all t >= 0 take their largest absolute value on the rim of a box.

Lemma: let h be such a function on a box around zero. Every u of the box is t b with b on the rim and 0 <= t <= 1, so
|h(u)| = t |h(b)| <= |h(b)|. So a bound of |g - sum of c |a . u|| over the rim is one over the box: functions of one
variable on four edges, in place of boxes that close in on the tip.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from onelayer.float64 import numbers
from onelayer.language.compose import substituted
from onelayer.language.formula import Formula
from onelayer.language.tree import LEAVES, Node, Tape
from onelayer.lemmas.nested import Outer
from onelayer.lemmas.univariate import halved
from onelayer.observer import Observer
from onelayer.taylor import difference, variables
from onelayer.taylor.hull import evaluate_hulled

ORDER = 6  # of the Taylor models on an edge: one variable, so a high order costs little and saves halvings
GUARD = 1e-9  # of an edge, around a kink: the enclosure of an absolute value is as wide as what holds its kink
# Operations that keep the one degree of their arguments; whatever is neither here nor has a rule has no degree.
KEPT = ("add", "sub", "neg", "abs", "relu", "max", "min")


def homogeneous(formula: Formula) -> bool:
    """Whether the formula shows that g(t u) = t g(u) for all t >= 0."""
    degrees: list[Fraction] = []
    for node in formula.nodes:
        degree = _degree(node, [degrees[at] for at in node.args])
        if degree is None:
            return False
        degrees.append(degree)
    return degrees[formula.outputs[0]] == 1


def _degree(node: Node, args: list[Fraction]) -> Fraction | None:
    """The d with node(t u) = t^d node(u) for all t >= 0, from those of its arguments; None where none is known."""
    match node.op:
        case "var":
            return Fraction(1)
        case op if op in LEAVES:
            return Fraction(0)
        case "mul":
            return args[0] + args[1]
        # Negative powers have no value at zero, where the tip is, and the power 0 is 1.
        case "pow":
            return args[0] * int(node.value) if node.value > 0 else None
        case "sqrt":
            return args[0] / 2
        # Sums and maxima of one degree; abs and relu of any, since t >= 0.
        case op if op in KEPT and len(set(args)) == 1:
            return args[0]
    return None


def around_zero(outer: Outer) -> bool:
    """Whether the box of two sums holds zero inside."""
    sides = zip(outer.low, outer.high, strict=True)
    inside = all(low < 0 < high for low, high in sides)
    return len(outer.sums) == 2 and inside


def cone_error(outer: Outer, goal: float, observer: Observer | None = None) -> float:
    """Upper bound of |g - sum of the ridges| over the box of a cone, below ``goal`` if intervals show it; else inf."""
    cones = around_zero(outer) and homogeneous(outer.formula) and homogeneous(outer.decomposed())
    if not cones:
        return math.inf
    worst = 0.0
    for fixed in range(2):
        for end in (outer.low[fixed], outer.high[fixed]):
            worst = max(worst, _edge_error(outer, fixed, end, goal, observer))
    return worst


def _edge_error(outer: Outer, fixed: int, end: float, goal: float, observer: Observer | None) -> float:
    """The bound on the edge on which one sum is ``end``."""
    free = 1 - fixed
    low = outer.low[free]
    high = outer.high[free]
    g = on_edge(outer.formula, fixed, end)
    ridges = on_edge(outer.decomposed(), fixed, end)
    # |a . u| has its kink where a . u = 0. It is cut out on both sides, so that all other pieces are smooth.
    around = GUARD * (high - low)
    cuts = {low, high}
    for ridge in outer.ridges:
        if ridge.weights[free]:
            kink = -ridge.weights[fixed] * end / ridge.weights[free]
            cuts |= {cut for cut in (kink - around, kink + around) if low < cut < high}

    def bounds(left: Tensor, right: Tensor, piece: Tensor) -> Tensor:
        lower, upper = left[:, None], right[:, None]
        x = variables(lower, upper, ORDER)
        sides = [evaluate_hulled(formula, x, lower, upper) for formula in (g, ridges)]
        bound: Tensor = difference(*sides).split_bound()
        return torch.where(torch.isnan(bound), torch.inf, bound)

    edges = numbers(sorted(cuts))
    found = halved(bounds, edges[:-1], edges[1:], goal, observer)
    return found if found <= goal else math.inf


def on_edge(formula: Formula, fixed: int, end: float) -> Formula:
    """A formula of two variables as one of the variable that is not fixed."""
    tape = Tape()
    number = tape.number(end)
    variable = tape.variable(0)
    arguments = [number, variable] if fixed == 0 else [variable, number]
    restricted = substituted(tape, formula, arguments)
    return Formula.build(tape.nodes, [restricted], (1,))
