"""What a claim about a network is about, in the checker's arithmetic: G of lower <= sup|G - f| <= upper.

Kinds and settings are those of docs/certificates.md; this is a reading of its own of that page.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flint import arb

from onelayer.checker.arithmetic import ZERO, Taylor, constant
from onelayer.checker.attention import Vector
from onelayer.checker.elements import (
    Element,
    Jet,
    absolute,
    larger,
    plus,
    relu,
    seeded,
    smaller,
    smooth,
    times,
    twice_seeded,
    underlying,
)
from onelayer.checker.formula import evaluate
from onelayer.checker.functions import Kinks
from onelayer.checker.margins import margin_errors
from onelayer.checker.operations import CONSTANTS
from onelayer.checker.outcome import Rejected
from onelayer.checker.passes import NetworkPass
from onelayer.checker.reading import need_one_condition
from onelayer.checker.steps import Evaluation
from onelayer.language.formula import Formula, Node
from onelayer.language.requirement import Requirement, parse_requirement

SIGNED = 4  # terms up to which a sum of absolute values is the largest of sums with signs
CURVED = 4  # inputs up to which convexity is claimed
SLOPES = ("lipschitz", "slopes", "monotone", "convex")  # kinds about real arithmetic alone
MARGINS = ("monotone", "convex", "condition")
NORMS = {"inf": "sup sum_i |dT/dx_i|", "1": "sup_i sum_k |dT_k/dx_i|", "2": "sup |dT/dx|_2"}
NAMED = 8  # slopes that the words of a claim spell out


def wording(about: Mapping[str, Any]) -> str:
    """The words that a certificate about this must have."""
    kind = about["kind"]
    if kind == "lipschitz":
        return NORMS[about["norm"]]
    if kind == "monotone":
        pairs = zip(about["inputs"], about["signs"], strict=True)
        slopes = [f"{'+' if sign > 0 else '-'}dT/dx{at + 1}" for at, sign in pairs]
        more = ", ..." if len(slopes) > NAMED else ""
        return f"sup|M - ({', '.join(slopes[:NAMED])}{more})|"
    return {
        "range": "sup_k |y_k - centre_k| / radius_k",
        "difference": "sup|A - B|",
        "slopes": "sup|dT/dx_i - df/dx_i|",
        "convex": "sup|M - principal minors of the Hessian|",
        "condition": "sup|M - margins|",
    }[kind]


class Objective:
    """G on a box: the network, or what the claim makes of it."""

    def __init__(
        self,
        about: Mapping[str, Any],
        networks: Sequence[Evaluation],
        formula: Formula,
        names: Sequence[str],
        execution: NetworkPass | None,
    ) -> None:
        self.about = about
        self.networks = networks
        self.formula = formula
        self.execution = execution
        self.requirement: Requirement | None = None
        if about.get("kind") == "condition":
            count = math.prod(networks[0].network.output_shape)
            outputs = [f"y{at + 1}" for at in range(count)]
            both = [*outputs, *names]
            self.requirement = parse_requirement(about["text"], both)
            need_one_condition(about["text"], self.requirement, both)

    def __call__(self, x: Sequence[Taylor], kinks: Kinks) -> Vector:
        kind = self.about.get("kind", "error")
        if kind in SLOPES:
            items = _DERIVED[kind](self, x, kinks)
            return Vector(items, [ZERO] * len(items))
        return _EXECUTED[kind](self, x, kinks)

    def _values(self, x: Sequence[Taylor], kinks: Kinks, which: int = 0) -> Vector:
        found = self.networks[which](x, kinks)
        return Vector([underlying(item) for item in found.items], found.errors)

    def _range(self, x: Sequence[Taylor], kinks: Kinks) -> Vector:
        y = self._values(x, kinks)
        items, errors = [], []
        for item, error, low, high in zip(y.items, y.errors, self.about["low"], self.about["high"], strict=True):
            share = 2 / (arb(high) - arb(low))
            middle = (arb(low) + arb(high)) / 2
            items.append(item.shifted(-middle).scaled(share))
            errors.append((error * share).upper())
        return Vector(items, errors)

    def _difference(self, x: Sequence[Taylor], kinks: Kinks) -> Vector:
        """Also as executed: the difference of two numbers is rounded once more."""
        a = self._values(x, kinks)
        b = self._values(x, kinks, 1)
        items = [p - q for p, q in zip(a.items, b.items, strict=True)]
        errors = [p + q for p, q in zip(a.errors, b.errors, strict=True)]
        if self.execution is None:
            return Vector(items, errors)
        rounded = [
            self.execution.rounded(item.range().abs_upper(), error, 1)
            for item, error in zip(items, errors, strict=True)
        ]
        return Vector(items, rounded)

    def _condition(self, x: Sequence[Taylor], kinks: Kinks) -> Vector:
        """Margins of what an execution returns: its error is a ball around each output."""
        y = self._values(x, kinks)
        if self.requirement is None:
            raise Rejected("there is no condition")
        outputs = [item.shifted(arb(0, error)) for item, error in y.entries()]
        both = [*outputs, *x]
        items = evaluate(self.requirement.margins, both, kinks)
        if self.execution is None:
            return Vector(items, [ZERO] * len(items))
        # A margin may have been computed in the format too, as the one at a witness is.
        margins = self.requirement.margins
        errors = margin_errors(margins, both, self.networks[0], self.execution, kinks)
        # Where a node has no bound: as if none of them passed on more than it was given.
        roundings = 16 * len(margins.nodes)
        way = sum((item.range().abs_upper() for item in both), arb(1))
        sizes = [way + item.range().abs_upper() for item in items]
        all_alike = [self.execution.rounded(size, ZERO, roundings) for size in sizes]
        known = zip(errors, all_alike, strict=True)
        return Vector(items, [error if error.is_finite() else alike for error, alike in known])

    def _jacobian(self, x: Sequence[Taylor], kinks: Kinks) -> list[list[Taylor]]:
        """dT_k/dx_i, one row per output."""
        return [_tangents(item, len(x)) for item in self.networks[0](seeded(x), kinks).items]

    def _steepness(self, x: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
        rows = self._jacobian(x, kinks)
        if self.about["norm"] == "2":
            squares = [times(item, item) for row in rows for item in row]
            return [_plain(smooth("sqrt", _sum(squares), _above(squares)))]
        table = rows if self.about["norm"] == "inf" else [list(column) for column in zip(*rows, strict=True)]
        return [item for row in table for item in _absolute_sums(row, kinks)]

    def _gradient(self, x: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
        slopes = self._jacobian(x, kinks)
        values = evaluate(self.formula, x, Kinks(kinks.cases))
        jets = followed(self.formula, seeded(x), kinks)
        found: list[Taylor] = []
        for row, jet, value in zip(slopes, jets, values, strict=True):
            # The rules of slopes ask less than f does: where f has no value it has no slope, whatever they say.
            others = _fenced(_tangents(jet, len(x)), value)
            found += [a - b for a, b in zip(row, others, strict=True)]
        return found

    def _directed(self, x: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
        rows = self._jacobian(x, kinks)
        pairs = list(zip(self.about["inputs"], self.about["signs"], strict=True))
        return [row[at].scaled(arb(sign)) for row in rows for at, sign in pairs]

    def _minors(self, x: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
        outputs = self.networks[0](twice_seeded(x), kinks).items
        count = len(x)
        found = []
        for y in outputs:
            table = [_second(y, i, count, x[0].order) for i in range(count)]
            for size in range(1, count + 1):
                for chosen in itertools.combinations(range(count), size):
                    found.append(_determinant([[table[i][j] for j in chosen] for i in chosen]))
        return found


_EXECUTED: dict[str, Callable[[Objective, Sequence[Taylor], Kinks], Vector]] = {
    "error": Objective._values,
    "range": Objective._range,
    "difference": Objective._difference,
    "condition": Objective._condition,
}
_DERIVED: dict[str, Callable[[Objective, Sequence[Taylor], Kinks], list[Taylor]]] = {
    "lipschitz": Objective._steepness,
    "slopes": Objective._gradient,
    "monotone": Objective._directed,
    "convex": Objective._minors,
}


def outputs_of(about: Mapping[str, Any], outputs: int, dim: int) -> int:
    """How many numbers G has, for a network of so many outputs and inputs."""
    kind = about.get("kind", "error")
    # Of a norm: rows or columns of the Jacobian, each as one sum or as many as there are signs.
    signs = {"inf": outputs * _sums(dim), "1": dim * _sums(outputs), "2": 1}
    counts = {
        "range": outputs,
        "difference": outputs,
        "error": outputs,
        "lipschitz": signs.get(about.get("norm", ""), 0),
        "slopes": outputs * dim,
        "monotone": outputs * len(about.get("inputs", ())),
        "convex": outputs * ((1 << dim) - 1),
    }
    return counts.get(kind, 0)


def _sums(terms: int) -> int:
    """How many sums a sum of absolute values is the largest of: as many as signs, up to one for all of them."""
    if terms > SIGNED:
        return 1
    return 1 << (terms - 1)


def _plain(u: Element) -> Taylor:
    if not isinstance(u, Taylor):
        raise Rejected("a derivative is missing its value")
    return u


def _tangents(y: Element, count: int) -> list[Taylor]:
    """Derivatives along the coordinates, undefined where the value is: log x has none at -1, whatever 1 / x says."""
    zero = constant(ZERO, y.order)
    tangents = y.tangents if isinstance(y, Jet) else [None] * count
    return _fenced([zero if t is None else underlying(t) for t in tangents], underlying(y))


def _fenced(slopes: Sequence[Taylor], value: Taylor) -> list[Taylor]:
    """The same slopes, and no numbers where the value is none: infinity times zero."""
    return list(slopes) if value.is_finite() else [slope + value.scaled(ZERO) for slope in slopes]


def _second(y: Element, i: int, count: int, order: int) -> list[Taylor]:
    """d2y/dx_i dx_j for all j."""
    first = y.tangents[i] if isinstance(y, Jet) else None
    value = underlying(y)
    if first is None:
        return _fenced([constant(ZERO, order)] * count, value)
    return _fenced(_tangents(first, count), value)


def _sum(items: Sequence[Element]) -> Element:
    total = items[0]
    for item in items[1:]:
        total = plus(total, item)
    return total


def _above(squares: Sequence[Element]) -> tuple[arb, arb]:
    """Ends of a sum of squares: not below zero."""
    ends = [underlying(item).ends() for item in squares]
    low, high = (sum((end[side] for end in ends), ZERO) for side in (0, 1))
    return low.max(ZERO).lower(), high.upper()


def _absolute_sums(row: Sequence[Taylor], kinks: Kinks) -> list[Taylor]:
    """sum |u_i|: of few terms as the sums with signs, whose largest absolute value it is, without kinks."""
    if len(row) > SIGNED:
        return [_plain(_sum([kinks.absolute(item) for item in row]))]
    found = []
    # The sign of the first is free: the absolute value of a sum does not know it.
    for signs in itertools.product((1, -1), repeat=len(row) - 1):
        terms = [item.scaled(arb(s)) for s, item in zip((1, *signs), row, strict=True)]
        found.append(_plain(_sum(terms)))
    return found


def _determinant(block: list[list[Taylor]]) -> Taylor:
    if len(block) == 1:
        return block[0][0]
    total = None
    for at, entry in enumerate(block[0]):
        minor = [[*row[:at], *row[at + 1 :]] for row in block[1:]]
        term = entry * _determinant(minor)
        term = term if at % 2 == 0 else -term
        total = term if total is None else total + term
    if total is None:
        return block[0][0]
    return total


def followed(formula: Formula, x: Sequence[Jet], kinks: Kinks) -> list[Element]:
    """The outputs of a formula with their derivatives."""
    values: list[Element] = []
    for node in formula.nodes:
        args = [values[at] for at in node.args]
        values.append(_node(node, args, x, kinks))
    return [values[at] for at in formula.outputs]


def _node(node: Node, args: list[Element], x: Sequence[Jet], kinks: Kinks) -> Element:
    order = x[0].order
    if node.op == "var":
        return x[int(node.value)]
    if node.op == "num":
        return constant(arb(node.value), order)
    if node.op in CONSTANTS:
        return constant(CONSTANTS[node.op](), order)
    if node.op == "pow":
        return _power(args[0], int(node.value))
    if node.op in _FORMULA:
        return _FORMULA[node.op](args, kinks)
    if node.op in ("where", "floor"):
        raise Rejected(f"the slope of '{node.op}' cannot be re-proved")
    return smooth(node.op, args[0])


def _power(u: Element, n: int) -> Element:
    if n < 0:
        return smooth("inv", _power(u, -n))
    result: Element = constant(arb(1), u.order)
    for _ in range(n):
        result = times(u, result) if isinstance(u, Jet) else times(result, u)
    return result


_FORMULA: dict[str, Callable[[list[Element], Kinks], Element]] = {
    "add": lambda args, kinks: plus(args[0], args[1]),
    "sub": lambda args, kinks: plus(args[0], -args[1]),
    "mul": lambda args, kinks: times(args[0], args[1]),
    "div": lambda args, kinks: times(args[0], smooth("inv", args[1])),
    "neg": lambda args, kinks: -args[0],
    "min": lambda args, kinks: smaller(args[0], args[1], kinks),
    "max": lambda args, kinks: larger(args[0], args[1], kinks),
    "relu": lambda args, kinks: relu(args[0], kinks),
    "abs": lambda args, kinks: absolute(args[0], kinks),
}
