"""Splines of tables in the checker's arithmetic.

On a box the spline has a net: one coefficient per B-spline of the box's own knots, the polar form of a piece at the
inner knots of that B-spline. B-splines are not negative and sum to one, so the spline minus any polynomial of which
the net is known too lies within the ball around the differences. The polynomial is a fit in float64, taken as exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from math import comb, prod
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from onelayer.checker.arithmetic import UNIT_BALL, Taylor, constant
from onelayer.language.knots import Spline

Ends = tuple[arb, arb]
Balls = NDArray[Any]  # of arb
MOST = 1500  # coefficients of a net; on a box that meets more cells all values of the spline are taken
NOWHERE = arb("nan"), arb("nan")


class Side:
    """One axis on [low, high]: its cells, the knots of the box, and t = (u - middle) / radius."""

    def __init__(self, knots: Sequence[float], degree: int, ends: Ends) -> None:
        self.knots = knots
        self.k = degree
        low, high = ends
        cells = range(degree, len(knots) - degree - 1)
        # Beyond the axis the first and the last piece go on.
        begun = [c for c in cells if arb(knots[c]) <= low]
        met = [c for c in cells if not arb(knots[c]) >= high]
        self.first = max(begun, default=cells[0])
        self.last = max([self.first, *met])
        between = [arb(knots[c]) for c in range(self.first + 1, self.last + 1)]
        self.own = [low] * (degree + 1) + between + [high] * (degree + 1)
        self.width = len(self.own) - degree - 1
        self.middle = arb(((low + high) / 2).mid())
        reach = (high - self.middle).max(self.middle - low).upper()
        self.radius = reach if reach > 0 else arb(1)

    @property
    def powers(self) -> int:
        """The highest power of the fit: a broken line is fitted by parabolas too."""
        if self.k == 1 and self.width > 2:
            return 2
        return self.k

    def refinement(self) -> Balls:
        """From the coefficients of the cells to those of the net."""
        rows = np.full((self.width, self.width), arb(0), dtype=object)
        for j in range(self.width):
            piece = min(j, self.last - self.first)
            inner = self.own[j + 1 : j + 1 + self.k]
            for column, weight in enumerate(self._polar(self.first + piece, inner)):
                rows[j, piece + column] = weight
        return rows

    def _polar(self, cell: int, arguments: Sequence[arb]) -> list[arb]:
        """Weights of the k + 1 coefficients of a cell in the polar form of its piece: de Boor's algorithm."""
        k = self.k
        unit = np.vectorize(arb, otypes=[object])(np.eye(k + 1, dtype=int).astype(object))
        rows: list[Balls] = list(unit)
        for level, x in enumerate(arguments, start=1):
            for at in range(k, level - 1, -1):
                low = arb(self.knots[cell - k + at])
                high = arb(self.knots[cell + at + 1 - level])
                share = (x - low) / (high - low)
                rows[at] = rows[at - 1] * (1 - share) + rows[at] * share
        return list(rows[k])

    def monomials(self) -> Balls:
        """The nets of 1, t, t^2, ...: (width, powers + 1)."""
        rows = []
        for j in range(self.width):
            inner = [(x - self.middle) / self.radius for x in self.own[j + 1 : j + 1 + self.k]]
            symmetric = [arb(1)]
            for x in inner:
                longer = [*symmetric, arb(0)]
                symmetric = [longer[0], *(longer[p] + x * longer[p - 1] for p in range(1, len(longer)))]
            row = [value / comb(self.k, p) for p, value in enumerate(symmetric)]
            rows.append([*row, inner[0] * inner[0]] if self.powers > self.k else row)
        return np.array(rows, dtype=object)

    def bend(self) -> arb:
        """How far the broken line through t^2 is from t^2."""
        longest = arb(0)
        for a, b in pairwise(self.own):
            longest = longest.max(((b - a) / self.radius).abs_upper())
        # A chord of a parabola is half its width squared above it in the middle.
        return longest * longest / 4


def image(data: Spline, *args: Ends) -> Ends:
    """Between the least and the greatest coefficient of the cells that are met; nothing is said beyond the axes."""
    window = []
    for (low, high), knots, k in zip(args, data.knots, data.degrees, strict=True):
        if not (low >= knots[k] and high <= knots[-k - 1]):
            return NOWHERE
        side = Side(knots, k, (low, high))
        window.append(slice(side.first - k, side.last + 1))
    met = data.coefficients[tuple(window)]
    return arb(float(met.min())), arb(float(met.max()))


def enclosed(data: Spline, args: Sequence[Taylor]) -> Taylor:
    """The spline of Taylor elements."""
    order = args[0].order
    ends = [arg.ends() for arg in args]
    if not all(low.is_finite() and high.is_finite() for low, high in ends):
        return constant(arb("nan"), order)
    sides = [Side(knots, k, end) for knots, k, end in zip(data.knots, data.degrees, ends, strict=True)]
    if prod(side.width for side in sides) > MOST:
        low, high = image(data, *ends)
        return constant(low.union(high), order)
    net = _net(data, sides)
    monomials = [side.monomials() for side in sides]
    factors = _fit(net, monomials, order)
    curve: Balls = np.vectorize(arb, otypes=[object])(factors)
    for axis, rows in enumerate(monomials):
        curve = _along(rows, curve, axis)
    rest = _hull(net - curve)
    return _polynomial(args, sides, factors).shifted(rest + UNIT_BALL * _bends(sides, factors))


def _hull(balls: Balls) -> arb:
    """A ball that holds all of these."""
    first, *others = balls.ravel()
    held: arb = first
    for ball in others:
        held = held.union(ball)
    return held


def _net(data: Spline, sides: Sequence[Side]) -> Balls:
    window = tuple(slice(side.first - side.k, side.last + 1) for side in sides)
    net: Balls = np.vectorize(arb, otypes=[object])(data.coefficients[window])
    for axis, side in enumerate(sides):
        net = _along(side.refinement(), net, axis)
    return net


def _along(matrix: Balls, values: Balls, axis: int) -> Balls:
    """A matrix applied along one axis."""
    moved = np.moveaxis(values, axis, 0)
    columns = moved.reshape(len(moved), -1)
    applied: Balls = np.dot(matrix, columns).reshape(len(matrix), *moved.shape[1:])
    return np.moveaxis(applied, 0, axis)


def _fit(net: Balls, monomials: Sequence[Balls], order: int) -> NDArray[np.float64]:
    """Floats that fit the net axis by axis, up to the order of the arithmetic; whatever they are, they are exact."""
    middle = np.vectorize(lambda ball: float(ball.mid()), otypes=[np.float64])
    factors: NDArray[np.float64] = middle(net)
    for axis, rows in enumerate(monomials):
        inverse = np.linalg.pinv(middle(rows))
        factors = np.moveaxis(np.tensordot(inverse, factors, axes=(1, axis)), 0, axis)
    degree = np.indices(factors.shape).sum(0)
    return np.where((degree <= order) & np.isfinite(factors), factors, 0.0)


def _bends(sides: Sequence[Side], factors: NDArray[np.float64]) -> arb:
    """What is lost where t^2 stands for the broken line through it."""
    total = arb(0)
    bends = [side.bend() if side.powers > side.k else arb(0) for side in sides]
    for exponents in product(*(range(n) for n in factors.shape)):
        grown = arb(1)
        for n, bend in zip(exponents, bends, strict=True):
            grown = grown * (1 + bend) if n == 2 else grown
        total = total + abs(arb(float(factors[exponents]))) * (grown - 1)
    return total.upper()


def _polynomial(args: Sequence[Taylor], sides: Sequence[Side], factors: NDArray[np.float64]) -> Taylor:
    """sum_a factors[a] t^a, by Horner's scheme axis by axis from the last."""
    t = [arg.shifted(-side.middle).scaled(1 / side.radius) for arg, side in zip(args, sides, strict=True)]
    order = args[0].order

    def nested(values: NDArray[np.float64], axis: int) -> Taylor:
        if axis == len(t):
            return constant(arb(float(values)), order)
        total = nested(values[-1], axis + 1)
        for row in values[-2::-1]:
            total = t[axis] * total + nested(row, axis + 1)
        return total

    return nested(factors, 0)
