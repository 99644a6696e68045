"""Splines of tables as data: the parameter of one operation of formulas, its numbers told apart by their content.

    spline(x, y, [3, 1], [knots of x], [knots of y], [coefficients, the last axis fastest])

The degrees are 1, 2 or 3 on each axis and the knots ascend, so f is a polynomial between neighbouring knots; n + k + 1
knots belong to n coefficients of degree k. The axis begins at knot k and ends at knot n; beyond, the last pieces go on.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.errors import FormulaError

DEGREES = (1, 2, 3)  # of splines that are read and written


# A float, since the parameter of every other node is one; its value is 0 and means nothing.
class Content(float):
    """The parameter of a node that is no number: two are the same if their texts are."""

    digest: str

    def text(self) -> str:
        """Its numbers as they are written in a formula, behind the arguments."""
        raise NotImplementedError

    @property
    def dim(self) -> int:
        """Number of arguments."""
        raise NotImplementedError

    def sealed(self) -> None:
        """Take the digest of what is written."""
        self.digest = hashlib.sha256(self.text().encode("ascii")).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Content) and self.digest == other.digest

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: float) -> bool:
        return isinstance(other, Content) and self.digest < other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.digest})"


class Spline(Content):
    """Degrees, knots and coefficients. As the parameter of a node it is told apart by its content, not by a number."""

    degrees: tuple[int, ...]
    knots: tuple[tuple[float, ...], ...]
    coefficients: NDArray[np.float64]

    def __new__(cls, degrees: Sequence[int], knots: Sequence[Sequence[float]], coefficients: Any) -> Spline:
        """Of coefficients in any shape, the last axis fastest; refused where they do not belong to the knots."""
        self = super().__new__(cls, 0.0)
        self.degrees = tuple(int(degree) for degree in degrees)
        self.knots = tuple(tuple(map(float, axis)) for axis in knots)
        matched = 1 <= len(self.degrees) == len(self.knots)
        if not matched or any(degree not in DEGREES for degree in self.degrees):
            raise FormulaError("a spline needs a degree from 1 to 3 and a list of knots for each of its arguments")
        self.coefficients = _table(self.degrees, self.knots, coefficients)
        _check_numbers(self.knots, self.coefficients)
        # Values are cached by the digest: the numbers behind it must not change.
        self.coefficients.flags.writeable = False
        self.sealed()
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Spline, (self.degrees, self.knots, np.asarray(self.coefficients))

    @property
    def dim(self) -> int:
        """Number of arguments."""
        return len(self.degrees)

    def text(self) -> str:
        """Its numbers as they are written in a formula, behind the arguments."""
        return written([self.degrees, *self.knots, self.coefficients.ravel().tolist()])


def _table(degrees: Sequence[int], knots: Sequence[Sequence[float]], coefficients: Any) -> NDArray[np.float64]:
    """The coefficients in the shape that the knots ask for; refused where they do not have it."""
    shape = tuple(len(axis) - k - 1 for axis, k in zip(knots, degrees, strict=True))
    values = np.array(coefficients, dtype=np.float64).ravel()
    too_few = any(n <= k for n, k in zip(shape, degrees, strict=True))
    if too_few or len(values) != math.prod(shape):
        wanted = " x ".join(str(n) for n in shape)
        raise FormulaError(f"{len(values)} coefficients do not fit the knots of the spline, which ask for {wanted}")
    return values.reshape(shape)


def _check_numbers(knots: Sequence[Sequence[float]], values: NDArray[np.float64]) -> None:
    """Refuse knots that do not ascend, and numbers that are not finite."""
    ascend = all(a < b for axis in knots for a, b in pairwise(axis))
    if not ascend or not np.isfinite(values).all():
        raise FormulaError("the knots of a spline must ascend, and all its numbers be finite")
    # They ascend, so the ends tell of all.
    if not all(math.isfinite(end) for axis in knots for end in (axis[0], axis[-1])):
        raise FormulaError("the knots of a spline must be finite")


def written(lists: Sequence[Sequence[float]]) -> str:
    """Lists of numbers as a formula holds them."""
    joined = (", ".join(map(literal, numbers)) for numbers in lists)
    return ", ".join(f"[{numbers}]" for numbers in joined)


def literal(value: float) -> str:
    """The shortest decimal that reads back as the same float64; whole numbers without a point."""
    # Beyond 1e15 repr is shorter than all the digits.
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return repr(value)


class Facets(Content):
    """Points, values at them and simplices: the function that is affine on each simplex.

        facets(x, y, [points, one after another], [values], [corners of simplices, counted from 0])

    Where simplices overlap or leave gaps, and beyond them, the simplex counts whose least barycentric coordinate is the
    largest: the one that holds the point, if any.
    """

    points: NDArray[np.float64]  # (N, D)
    values: NDArray[np.float64]  # (N,)
    simplices: NDArray[np.int64]  # (S, D + 1)

    def __new__(cls, dim: int, points: Any, values: Any, simplices: Any) -> Facets:
        """Of flat lists; refused where they do not belong together."""
        self = super().__new__(cls, 0.0)
        flat = [np.array(part, dtype=np.float64).ravel() for part in (points, values, simplices)]
        coordinates, heights, corners = flat
        count = len(heights)
        if not (dim >= 1 and count > dim and len(coordinates) == dim * count):
            raise FormulaError("facets need one value for each point, and more points than coordinates")
        if not _are_corners(corners, dim, count):
            raise FormulaError(f"the simplices of facets need {dim + 1} corners each, points counted from 0")
        if not all(np.isfinite(part).all() for part in flat):
            raise FormulaError("the numbers of facets must be finite")
        self.points = coordinates.reshape(count, dim)
        self.values = heights
        self.simplices = corners.astype(np.int64).reshape(-1, dim + 1)
        for part in (self.points, self.values, self.simplices):
            part.flags.writeable = False
        self.sealed()
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Facets, (self.dim, *map(np.asarray, (self.points, self.values, self.simplices)))

    @property
    def dim(self) -> int:
        """Number of arguments."""
        return int(self.points.shape[1])

    def text(self) -> str:
        """Points, values, simplices."""
        parts = (self.points, self.values, self.simplices)
        return written([part.ravel().tolist() for part in parts])


def _are_corners(numbers: NDArray[np.float64], dim: int, count: int) -> bool:
    """Whether these are corners of simplices, ``dim + 1`` of each: whole numbers of so many points, from 0."""
    if not len(numbers) or len(numbers) % (dim + 1) or not np.isfinite(numbers).all():
        return False
    whole = bool((numbers == np.floor(numbers)).all())
    return whole and bool(numbers.min() >= 0) and bool(numbers.max() < count)
