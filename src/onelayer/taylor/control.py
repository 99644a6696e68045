"""The control net of a spline on a box: what its values lie between, and the polynomial that is closest to it.

Lemma (polar forms). On [lo, hi] a spline of degree k is sum_j c_j B_j with the B-splines of the knots lo (k + 1 times),
the knots inside, hi (k + 1 times), and c_j is the polar form of the piece of a cell that B_j meets at the k inner knots
of B_j. The B_j are weights, so values of the spline lie between the least and the greatest c_j. The monomial t^p, p <=
k, has c_j = e_p(inner knots of B_j) / binomial(k, p), e_p being the elementary symmetric polynomial (Marsden). Hence a
spline minus a polynomial Q lies between the least and the greatest of the differences of their coefficients, whatever Q
is: a fit that need not be exact. All of it holds axis by axis for tensor products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, prod

import torch
from torch import Tensor

from onelayer.language.intervals import Interval
from onelayer.language.knots import Spline
from onelayer.language.spline import tensors
from onelayer.taylor.rounding import gamma, inflate, middle_and_reach

MOST = 4096  # coefficients of the net of one box; a box that meets more cells is enclosed by all values of the spline
PENALTY = 1e-13  # keeps the fit solvable on a box of no width; any fit is as true


@dataclass(frozen=True)
class Stretch:
    """One axis of boxes (G,) that meet equally many cells: ``first`` cell, refined ``knots`` and their normal form."""

    degree: int
    first: Tensor  # (G,)
    knots: Tensor  # (G, w + k + 1), w = k + 1 + inner knots
    normal: Tensor  # (knots - middle) / radius, each within two roundings
    refinement: Tensor  # (G, w, w): coefficients of the cells to those of the net, within gamma of its absolute values
    size: Tensor  # (G,): the largest sum of absolute weights in a row

    @classmethod
    def of(cls, spline: Spline, axis: int, ends: Interval, normal: Interval, first: Tensor, inner: int) -> Stretch:
        """The axis restricted to an interval, whose first cell is ``first`` and which holds ``inner`` knots.

        ``normal`` are the middle and the radius that make t of it.
        """
        k = spline.degrees[axis]
        middle, radius = normal
        knots = tensors(spline)[0][axis].to(first.device)
        between = knots[first[:, None] + 1 + _count(inner, first)]
        first_end, last_end = (end[:, None].expand(-1, k + 1) for end in ends)  # k + 1 times each
        refined = torch.cat([first_end, between, last_end], dim=1)
        rows, size = _refinement(knots, k, first, refined, inner)
        normalised = (refined - middle[:, None]) / radius[:, None]
        return cls(k, first, refined, normalised, rows, size)

    @property
    def width(self) -> int:
        """Coefficients of the net along this axis."""
        return self.refinement.shape[-1]

    @property
    def powers(self) -> int:
        """The highest power that is fitted: one more than the degree for lines that break."""
        if self.degree == 1 and self.width > 2:
            return 2
        return self.degree

    def monomials(self) -> Tensor:
        """Coefficients of 1, t, ..., (G, w, powers + 1); those of t^2 on a broken line are its values at the knots."""
        inner = [self.normal[:, at : at + self.width] for at in range(1, self.degree + 1)]
        # Elementary symmetric polynomials of the inner knots, one knot more at a time.
        symmetric = [torch.ones_like(inner[0])]
        for knot in inner:
            longer = [*symmetric, torch.zeros_like(knot)]
            raised = (longer[p] + knot * longer[p - 1] for p in range(1, len(longer)))
            symmetric = [longer[0], *raised]
        rows = [value / comb(self.degree, p) for p, value in enumerate(symmetric)]
        if self.powers > self.degree:
            rows.append(inner[0] * inner[0])
        return torch.stack(rows, dim=-1)

    def bend(self) -> Tensor:
        """How far the broken line through t^2 is from t^2, (G,): a quarter of the square of the longest piece."""
        gaps = self.normal[:, 1:] - self.normal[:, :-1]
        return inflate((gaps * gaps).amax(1) / 4)


@dataclass(frozen=True)
class ControlFit:
    """f = sum_a factors[a] t^a within ``radius`` on each box: factors (G, p_1 + 1, ..., p_D + 1), radius (G,)."""

    factors: Tensor
    radius: Tensor


def normal_form(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Middle and radius of intervals; 1 where there is no width."""
    middle, radius = middle_and_reach(low, high)
    return middle, torch.where(radius > 0, radius, torch.ones_like(radius))


def fit(spline: Spline, stretches: Sequence[Stretch], degree: int) -> ControlFit:
    """The polynomial of this total degree that is close to the net of the spline, and how far the spline is from it."""
    net, slack = _net(spline, stretches)
    monomials = [stretch.monomials() for stretch in stretches]
    factors = net
    for axis, rows in enumerate(monomials):
        factors = _along(_least_squares(rows), factors, axis)
    # Dropped before the comparison, not after: the radius then covers what the model has no room for.
    factors = torch.where(_total_degree(factors) > degree, 0.0, factors)
    curve = factors
    for axis, rows in enumerate(monomials):
        curve = _along(rows, curve, axis)
    # What is left lies between two numbers: their middle joins the polynomial, half their distance the radius.
    rest = (net - curve).flatten(1)
    middle, reach = middle_and_reach(rest.amin(1), rest.amax(1))
    factors = _raised(factors, middle)
    sizes = factors.abs().flatten(1).sum(1)
    # Monomials err by 24 roundings of numbers up to 1; each axis adds four products.
    monomial_error = sizes * gamma(32 + 8 * len(stretches))
    slack = slack + monomial_error + _bends(stretches, factors)
    rounded = gamma(8) * (rest.abs().amax(1) + sizes)
    return ControlFit(factors, inflate(reach + slack + rounded))


def _net(spline: Spline, stretches: Sequence[Stretch]) -> tuple[Tensor, Tensor]:
    """The coefficients (G, w_1, ..., w_D) on each box, and a bound of their error."""
    coefficients = tensors(spline)[1].to(stretches[0].first.device)
    boxes = len(stretches[0].first)
    places = torch.zeros(boxes, dtype=torch.int64, device=coefficients.device)
    for axis, stretch in enumerate(stretches):
        window = stretch.first[:, None] - stretch.degree + _count(stretch.width, coefficients)
        window = window.reshape(boxes, *[1] * axis, -1)
        places = places[..., None] * coefficients.shape[axis] + window
    net = coefficients.ravel()[places]
    # Each axis mixes coefficients with weights that sum to at most its size, in a row of that many roundings.
    size = net.abs().flatten(1).amax(1)
    roundings = 8
    for axis, stretch in enumerate(stretches):
        net = _along(stretch.refinement, net, axis)
        size = size * stretch.size
        roundings += 10 * stretch.degree + stretch.width
    return net, size * gamma(roundings)


def _bends(stretches: Sequence[Stretch], factors: Tensor) -> Tensor:
    """What t^2 on broken lines adds: a product of up to D squares of which each is known within its bend."""
    grown = torch.ones_like(factors)
    for axis, stretch in enumerate(stretches):
        if stretch.powers > stretch.degree:
            squares = grown.select(axis + 1, 2)
            bend = stretch.bend().reshape(-1, *[1] * (squares.ndim - 1))
            squares.mul_(1 + bend)
    return (factors.abs() * (grown - 1)).flatten(1).sum(1)


def _refinement(knots: Tensor, k: int, first: Tensor, refined: Tensor, inner: int) -> tuple[Tensor, Tensor]:
    """De Boor's algorithm with another argument on every level, on unit vectors: rows of weights, and their size.

    Each weight is made of quotients of differences of numbers, of which each errs by three roundings.
    """
    width = k + 1 + inner
    piece = _count(width, refined).clamp(max=inner)  # the cell, counted from the first, that row j is taken from
    cell = first[:, None] + piece
    unit = torch.eye(k + 1, dtype=torch.float64, device=refined.device)
    rows = unit.expand(*cell.shape, k + 1, k + 1)
    weights = list(rows.unbind(2))
    sizes = list(rows.unbind(2))
    for level in range(1, k + 1):
        x = refined[:, level : level + width]
        for at in range(k, level - 1, -1):
            low = knots[cell - k + at]
            high = knots[cell + at + 1 - level]
            width_of_both = high - low
            left = ((high - x) / width_of_both)[..., None]
            right = ((x - low) / width_of_both)[..., None]
            weights[at] = left * weights[at - 1] + right * weights[at]
            sizes[at] = left.abs() * sizes[at - 1] + right.abs() * sizes[at]
    # The k + 1 weights of row j stand at the coefficients of its cell.
    dense = torch.zeros(*cell.shape, width, dtype=torch.float64, device=refined.device)
    columns = (piece[:, None] + _count(k + 1, refined)).expand(len(cell), -1, -1)
    largest = sizes[k].sum(-1).amax(1)
    return dense.scatter(2, columns, weights[k]), inflate(largest)


def _least_squares(rows: Tensor) -> Tensor:
    """(G, p, w): from coefficients to the factors of the monomials that fit them best, nearly."""
    gram = rows.transpose(1, 2) @ rows
    unit = torch.eye(gram.shape[-1], dtype=torch.float64, device=rows.device)
    gram = gram + PENALTY * unit
    found: Tensor = torch.linalg.solve(gram, rows.transpose(1, 2))
    return found


def _along(matrix: Tensor, values: Tensor, axis: int) -> Tensor:
    """Apply matrices (G, a, b) along one axis of (G, ..., b, ...)."""
    moved = values.movedim(axis + 1, 1)
    shape = moved.shape
    applied = matrix @ moved.reshape(shape[0], shape[1], -1)
    return applied.reshape(shape[0], matrix.shape[1], *shape[2:]).movedim(1, axis + 1)


def _total_degree(factors: Tensor) -> Tensor:
    """The degree of each monomial, shaped to meet the factors."""
    total = torch.zeros(factors.shape[1:], dtype=torch.int64, device=factors.device)
    for axis, count in enumerate(factors.shape[1:]):
        shape = [1] * total.ndim
        shape[axis] = count
        total = total + _count(count, factors).reshape(shape)
    return total


def _count(number: int, like: Tensor) -> Tensor:
    return torch.arange(number, dtype=torch.int64, device=like.device)


def _raised(factors: Tensor, offset: Tensor) -> Tensor:
    """The polynomials plus a number on each box."""
    flat = factors.flatten(1)
    constant = flat[:, :1] + offset[:, None]
    return torch.cat([constant, flat[:, 1:]], dim=1).reshape(factors.shape)


def width_of(degrees: Sequence[int], inner: Sequence[int]) -> int:
    """Coefficients of the net of a box that holds so many knots on each axis."""
    return prod(k + 1 + m for k, m in zip(degrees, inner, strict=True))
