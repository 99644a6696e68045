"""Outer functions of a few sums against sums of polynomial ridges, on a box of these sums.

On a box u = c + r t the ridge p(a . u) is its own Taylor expansion, p^(q)(a . c) / q! (a . r t)^q, known exactly up to
rounding; g is enclosed by a Taylor model. Their difference is bounded box by box, and boxes are halved until it is
small: in two or three variables, whatever the number of inputs is.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.errors import OnelayerError
from onelayer.float64 import UNIT
from onelayer.language.formula import Formula
from onelayer.language.tree import Node
from onelayer.lemmas.nested import Outer
from onelayer.observer import Observer
from onelayer.taylor import basis, difference, variables
from onelayer.taylor.core import Space, TaylorModel
from onelayer.taylor.hull import evaluate_hulled

Floats = NDArray[np.float64]
ORDERS = {1: 8, 2: 8, 3: 6}  # of the Taylor models, by the number of sums: tables of coefficients stay below 100
ORDER = 4  # with more sums than that
FIRST = {1: 16, 2: 8, 3: 4}  # parts of every side to begin with: 64 boxes in two or three dimensions, one call
ROUNDS = 40  # of halving; boxes run out before
MAX_BOXES = 2**15  # of one outer function, a few seconds
MAX_DEGREE = 64  # of a composed polynomial, whose coefficients are bounded


def surface_error(outer: Outer, goal: float, observer: Observer) -> float:
    """Upper bound of |g - sum of the ridges| over the box of ``outer``, below ``goal`` if boxes show it; else inf."""
    rank = len(outer.sums)
    ridges = RidgePolynomials(outer)
    bottom = np.array(outer.low)
    top = np.array(outer.high)
    low, high = _grid(bottom, top, FIRST.get(rank, 2))
    whole = top - bottom
    formula = outer.formula
    order = ORDERS.get(rank, ORDER)
    worst = 0.0
    for _ in range(ROUNDS):
        observer.check()
        bound = _bounds(formula, ridges, low, high, order)
        done = bound <= goal  # false for nan
        worst = max(worst, float(bound[done].max(initial=0.0)))
        if done.all():
            return worst
        low, high = _halved(low[~done], high[~done], whole)
        if len(low) > MAX_BOXES:
            break
    return math.inf


def _bounds(formula: Formula, ridges: RidgePolynomials, low: Floats, high: Floats, order: int) -> Floats:
    ends = torch.from_numpy(low), torch.from_numpy(high)
    x = variables(*ends, order)
    g: Any = evaluate_hulled(formula, x, *ends)
    apart = difference(g, ridges.expanded(x, order))
    found: Floats = apart.split_bound().numpy()
    return np.where(np.isnan(found), np.inf, found)


class RidgePolynomials:
    """sum_k p_k(a_k . u) with p_k(s) = sum_j c_kj ((s - m_k) / h_k)^j, coefficients rounded once."""

    def __init__(self, outer: Outer) -> None:
        self.weights = np.array([ridge.weights for ridge in outer.ridges])  # (K, r)
        sides = np.stack([outer.low, outer.high], -1)
        ends = self.weights[:, :, None] * sides  # (K, r, 2)
        low = ends.min(-1).sum(-1)
        high = ends.max(-1).sum(-1)
        # Powers of (s - m) / h in [-1, 1] neither overflow nor cancel as those of s would.
        self.middle = (low + high) / 2
        self.half = np.maximum((high - low) / 2, 1e-300)
        exact = [polynomial(ridge.formula) for ridge in outer.ridges]
        shifted = list(map(_moved, exact, self.middle.tolist(), self.half.tolist()))
        self.degree = max(map(len, shifted)) - 1
        self.coefficients = np.zeros((len(shifted), self.degree + 1))  # (K, degree + 1)
        for row, p in zip(self.coefficients, shifted, strict=True):
            row[: len(p)] = p

    def expanded(self, x: Any, order: int) -> TaylorModel:
        """The sum on the boxes c + r t of ``x`` as a Taylor model of that order.

        Every coefficient is a sum of products of at most n factors, so its rounding is gamma(n) times the sum of their
        sizes; the argument (a . c - m) / h of a ridge errs by ``blur``, which moves p by at most blur sup |p'|.
        """
        rank = self.weights.shape[1]
        center = x.coef[0].numpy()  # (B, r)
        radius = np.stack([x.coef[1 + i, :, i].numpy() for i in range(rank)], -1)  # (B, r)
        place = (center @ self.weights.T - self.middle) / self.half  # (B, K)
        sizes_of_sum = np.abs(center) @ np.abs(self.weights).T + np.abs(self.middle)
        reach = sizes_of_sum / self.half
        blur = 8 * (rank + 4) * UNIT * reach
        # Products of weights with places, and quotients with radii, that fall below the normal range.
        lost = 8 * (rank + 4) * sys.float_info.min
        blur = blur + lost * (1 / self.half + radius.sum(-1)[:, None])
        step = radius[:, None] * (self.weights / self.half[:, None])  # (B, K, r)
        table, sizes = self._derivatives(place)  # (B, K, degree + 1) each
        # Coefficient of t^e, |e| = q: multinomial(e) p^(q)(place) / q! step^e, summed over the ridges.
        rows = basis.exponents(rank, order)  # (P, r)
        factors = np.array(basis.multinomials(rank, order))[:, None, None]
        powers = np.prod(step[None] ** rows[:, None, None, :], axis=-1)  # (P, B, K)
        picked, largest = (self._by_exponent(numbers, rows.sum(1)) for numbers in (table, sizes))  # (P, B, K)
        coef = (factors * picked * powers).sum(-1)  # (P, B)
        roundings = 8 * (self.degree + order + len(self.weights) + 16) * UNIT
        rem = roundings * (factors * largest * np.abs(powers)).sum((0, -1))  # (B,)
        # Degrees above the order of the model: |p^(q)| / q! (sum of |steps|)^q, since |t| <= 1.
        span = np.abs(step).sum(-1) * (1 + 16 * UNIT)  # (B, K)
        for q in range(order + 1, self.degree + 1):
            rem += (sizes[..., q] * span**q).sum(-1) * (1 + roundings)
        # sup |p'| <= 2 sum of j |c_j| where the argument is at most 1 + 1 / (2 d + 2): to the power d - 1 that is
        # below sqrt(e) < 2. Beyond that reach nothing is said.
        degrees = np.arange(self.degree + 1)
        slopes = (np.abs(self.coefficients) * degrees) @ np.ones(self.degree + 1)  # (K,)
        rem += (blur * slopes * 2).sum(-1)
        farthest = np.abs(place).max(-1) + span.max(-1) + blur.max(-1)
        rem = np.where(farthest <= 1 + 1 / (2 * self.degree + 2), rem, np.inf)
        # Up for the arithmetic of the remainder itself, and for what underflows before it meets its coefficient.
        rem = rem * (1 + 2.0**-30) + 2.0**-900 * (1 + float(np.abs(self.coefficients).sum()))
        space = Space(order, rank, None, None)
        return TaylorModel(torch.from_numpy(coef), torch.from_numpy(rem), space, tuple(range(rank)), order)

    def _by_exponent(self, table: Floats, degrees: NDArray[np.int64]) -> Floats:
        """The columns (B, K) of a table for every exponent of these degrees, (P, B, K): zero beyond the own degree."""
        columns = table[..., np.minimum(degrees, self.degree)]
        inside = (degrees <= self.degree)[:, None, None]
        return np.moveaxis(columns, -1, 0) * inside

    def _derivatives(self, place: Floats) -> tuple[Floats, Floats]:
        """p_k^(q) / q! at the places, q = 0 ... degree, and the sums of absolute values behind them."""
        n = self.degree + 1
        table = np.zeros((*place.shape, n))
        sizes = np.zeros((*place.shape, n))
        for q in range(n):
            for j in range(q, n):
                term = self.coefficients[:, j] * math.comb(j, q) * place ** (j - q)
                table[..., q] += term
                sizes[..., q] += np.abs(term)
        return table, sizes


def polynomial(formula: Formula) -> list[Fraction]:
    """Coefficients of a formula of one variable that is a polynomial, exactly, ascending; OnelayerError otherwise."""
    values: list[list[Fraction]] = []
    for node in formula.nodes:
        values.append(_of_node(node, [values[at] for at in node.args]))
    return values[formula.outputs[0]]


def _of_node(node: Node, args: list[list[Fraction]]) -> list[Fraction]:
    match node.op:
        case "var":
            return [Fraction(0), Fraction(1)]
        case "num":
            return [Fraction(node.value)]
        case "add" | "sub":
            return _added(args[0], args[1], 1 if node.op == "add" else -1)
        case "neg":
            return [-c for c in args[0]]
        case "mul":
            return _product(args[0], args[1])
    raise OnelayerError(f"a ridge of several sums is a polynomial; '{node.op}' is none of its operations")


def _added(a: list[Fraction], b: list[Fraction], sign: int) -> list[Fraction]:
    pairs = zip_longest(a, b, fillvalue=Fraction(0))
    return [x + sign * y for x, y in pairs]


def _product(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
    if len(a) + len(b) > MAX_DEGREE:
        raise OnelayerError(f"a ridge has a degree above {MAX_DEGREE}")
    found = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            found[i + j] += x * y
    return found


def _moved(p: list[Fraction], middle: float, half: float) -> list[float]:
    """The coefficients of p(middle + half t) in t, exact but for one rounding each."""
    found: list[Fraction] = [Fraction(0)]
    line = [Fraction(middle), Fraction(half)]
    for c in reversed(p):  # Horner
        found = _added(_product(found, line), [c], 1)
    try:
        return [float(c) for c in found[: len(p)]]
    except OverflowError as error:
        raise OnelayerError("a coefficient of a ridge is beyond 1.8e308; scale the function") from error


def _grid(low: Floats, high: Floats, parts: int) -> tuple[Floats, Floats]:
    """The box cut into equal parts along every side that has a width."""
    edges = []
    for a, b in zip(low, high, strict=True):
        side = np.linspace(a, b, parts + 1) if b > a else np.array([a, b])
        # linspace may round its ends; together the boxes must hold the whole.
        side[0] = a
        side[-1] = b
        edges.append(side)
    return _corners([side[:-1] for side in edges]), _corners([side[1:] for side in edges])


def _corners(sides: Sequence[Floats]) -> Floats:
    """All combinations of one number of every side, (boxes, sides)."""
    crossed = np.meshgrid(*sides, indexing="ij")
    return np.stack(crossed, -1).reshape(-1, len(sides))


def _halved(low: Floats, high: Floats, whole: Floats) -> tuple[Floats, Floats]:
    """Each box in two, across its longest side in units of the whole."""
    shares = (high - low) / np.where(whole > 0, whole, np.inf)
    longest = np.arange(len(low)), shares.argmax(1)
    middle = low[longest] / 2 + high[longest] / 2
    top_of_first = high.copy()
    bottom_of_second = low.copy()
    top_of_first[longest] = bottom_of_second[longest] = middle
    return np.concatenate([low, bottom_of_second]), np.concatenate([top_of_first, high])
