"""Table: numbers on a full grid and the function between them, a piecewise polynomial that is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.box import Box
from onelayer.card import card
from onelayer.door import door, door_to
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.language.formula import Formula
from onelayer.language.operations import SPLINE
from onelayer.language.tree import Tape
from onelayer.points import plain, real_numbers
from onelayer.recording.columns import Array, column_of, listed, named_after, numbers, read_columns
from onelayer.recording.evaluation import at_points
from onelayer.recording.scattered import Scattered, scattered
from onelayer.recording.splines import Axis, interpolant

DEGREES = {"linear": 1, "cubic": 3}  # of the splines


@door_to
@dataclass(frozen=True, eq=False)
class Table:
    """Values on the grid of ``axes`` and the interpolant between them: multilinear, or the not-a-knot cubic spline.

    ``values`` has one axis per input; the function is defined on :attr:`box`, the smallest box around the rows, and is
    known exactly: :attr:`formula` is what a proof speaks of, and it meets every row within :attr:`rows_within`.
    """

    axes: tuple[Array, ...]
    values: Array
    names: tuple[str, ...]
    output: str = "y"
    interpolate: str = "linear"

    def __post_init__(self) -> None:
        for name, known in (("axes", tuple(map(_floats, self.axes))), ("values", _floats(self.values))):
            object.__setattr__(self, name, known)
        object.__setattr__(self, "names", tuple(self.names))
        if len(self.names) != len(self.axes):
            raise OnelayerError(f"{len(self.names)} names for {len(self.axes)} axes; give one per axis")
        if self.interpolate not in DEGREES:
            raise OnelayerError(f"interpolate must be {' or '.join(DEGREES)}, got {self.interpolate!r}")
        if self.values.shape != tuple(len(axis) for axis in self.axes) or not self.axes:
            raise OnelayerError(f"values of shape {self.values.shape} do not fill the grid of the axes")
        for name, axis in zip(self.names, self.axes, strict=True):
            _refuse_axis(name, axis)
        if not np.isfinite(self.values).all():
            raise OnelayerError("a table needs a finite value in every row")

    @classmethod
    @door
    @pinned()
    def read(
        cls, source: Any, *, inputs: Sequence[str] | str, output: str, interpolate: str = "linear"
    ) -> Table | Scattered:
        """From a CSV or Parquet file, a pandas frame, or a mapping of names to columns; other columns are ignored.

        Rows that are far from filling a grid become the Delaunay-linear interpolant.
        """
        if not isinstance(interpolate, str) or interpolate not in DEGREES:
            raise OnelayerError(f"interpolate must be {' or '.join(DEGREES)}, got {interpolate!r}")
        inputs = [name.strip() for name in inputs.split(",")] if isinstance(inputs, str) else inputs
        listed = isinstance(inputs, list | tuple) and all(isinstance(name, str) for name in (*inputs, output))
        if not listed:
            raise OnelayerError(f"inputs and output are names of columns, got {repr((inputs, output))[:80]}")
        chosen, called = _chosen(source, [*inputs, output])
        *names, output = chosen
        *columns, values = chosen.values()
        points = np.stack(columns, axis=1)
        # Most combinations of the inputs have no row: no grid is meant.
        if _is_scattered(points):
            return scattered(points, values, names, output, interpolate)
        axes, grid = on_grid(points, values, names, called)
        return cls(axes, grid, tuple(names), output, interpolate)

    @property
    def box(self) -> Box:
        """The smallest box around the rows; its coordinates have the names of the columns, where those are names."""
        low = [float(axis[0]) for axis in self.axes]
        high = [float(axis[-1]) for axis in self.axes]
        box = Box(low, high)
        return named_after(self.names, box)

    def _repr_html_(self) -> str:
        rows = [(name, _ends(axis)) for name, axis in zip(self.names, self.axes, strict=True)]
        rows += [(self.output, _ends(self.values)), ("between the rows", self.interpolate)]
        return card("Table", rows)

    @cached_property
    def formula(self) -> Formula:
        """The interpolant in the formula language; it is valid on :attr:`box` only."""
        degree = DEGREES[self.interpolate]
        tape = Tape()
        arguments = [tape.variable(at) for at in range(len(self.axes))]
        axes = [Axis.on(axis, degree) for axis in self.axes]
        node = tape.add(SPLINE, *arguments, value=interpolant(axes, self.values))
        return Formula.build(tape.nodes, [node], (len(self.axes),))

    @cached_property
    def rows_within(self) -> float:
        """The largest distance, seen in float64, between the formula and a row of the table."""
        mesh = np.meshgrid(*self.axes, indexing="ij")
        grid = np.stack(mesh, axis=-1).reshape(-1, len(self.axes))
        found = self.formula(torch.from_numpy(grid)).numpy()
        return float(np.abs(found - self.values.ravel()).max())

    @door
    def covers(self, box: Box) -> bool:
        """Whether a box lies within the rows."""
        low = self.box.lower
        high = self.box.upper
        above = box.lower.flatten() >= low
        below = box.upper.flatten() <= high
        return bool((above & below).all())

    def __len__(self) -> int:
        return int(self.values.size)

    @door
    def __call__(self, x: Any) -> Any:
        """The interpolant at points (..., D) of the box."""
        return at_points(self.formula, x)

    def __repr__(self) -> str:
        sizes = zip(self.names, map(len, self.axes), strict=True)
        sides = " x ".join(f"{name} {size}" for name, size in sizes)
        return f"Table({self.output} on {sides}, {self.interpolate})"


def _refuse_axis(name: str, axis: Array) -> None:
    if len(axis) < 2 or not (np.isfinite(axis).all() and (np.diff(axis) > 0).all()):
        raise OnelayerError(f"input '{name}' needs at least two different finite numbers, in ascending order")


def _ends(values: Array) -> str:
    """How many numbers, from the smallest to the largest."""
    return f"{values.size:,} from {values.min():.6g} to {values.max():.6g}"


def _floats(values: Any) -> Array:
    """An array of numbers, or one line that says what is none."""
    try:
        return real_numbers(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        shown = " ".join(repr(values).split())[:60]
        raise OnelayerError(f"axes and values of a table are arrays of numbers, got {shown}") from error


def _chosen(source: Any, names: Sequence[str]) -> tuple[dict[str, Array], str]:
    """The columns of these names, the inputs and then the output, with what errors call their source."""
    columns, called = _columns(source)
    full = [column_of(columns, name, called) for name in names]
    if len(full) < 2 or len(set(full)) != len(full):
        raise OnelayerError("inputs must be different columns, and the output another one")
    chosen = {name: numbers(called, name, columns[name]) for name in full}
    # A mapping may hold columns of any length.
    if len(set(map(len, chosen.values()))) > 1:
        raise OnelayerError(f"{called} has columns of {listed(map(len, chosen.values()))} rows; give all as many")
    return chosen, called


def _columns(source: Any) -> tuple[Mapping[str, Any], str]:
    """The columns of whatever holds them, and what errors call it."""
    if isinstance(source, (str, Path)):
        return read_columns(source), str(source)
    # A data frame.
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):
        frame = {str(name): _cells_of(source[name]) for name in source.columns}
        if len(frame) < len(source.columns):
            raise OnelayerError(f"the frame must name every column once, got {listed(source.columns)}")
        return frame, "the frame"
    if isinstance(source, Mapping):
        columns = {str(name): _cells_of(column) for name, column in source.items()}
        return columns, "the table"
    kind = type(source).__name__
    raise OnelayerError(f"a table is read from a file, a data frame or a mapping of names to columns, not from {kind}")


def _cells_of(column: Any) -> list[Any]:
    """The cells of a column: None for a masked one, and times as text that is no number."""
    if isinstance(column, Tensor):
        column = plain(column)
    try:
        cells = column if isinstance(column, np.ma.MaskedArray) else np.asarray(column)
    except (TypeError, ValueError) as error:
        raise OnelayerError(f"a column is one list of numbers, got {type(column).__name__} of lists") from error
    flat = cells.ravel()
    # A year would be a number.
    return [f"time {cell}" for cell in flat.astype(str)] if cells.dtype.kind in "mM" else flat.tolist()


def on_grid(points: Array, values: Array, names: Sequence[str], called: str) -> tuple[tuple[Array, ...], Array]:
    """Axes and values of rows that fill a grid, in any order; what is missing or double is named."""
    each = [np.unique(column, return_inverse=True) for column in points.T]
    axes, places = zip(*each, strict=True)
    shape = tuple(len(axis) for axis in axes)
    count = _cells(shape, len(points), names, called)
    flat: NDArray[np.int64] = np.ravel_multi_index([place.ravel() for place in places], shape)
    # Each cell of the grid once: neither a hole nor two values.
    seen = np.bincount(flat, minlength=count)
    if (seen != 1).any():
        at = int(np.flatnonzero(seen != 1)[0])
        place = zip(names, axes, np.unravel_index(at, shape), strict=True)
        where = ", ".join(f"{name}={axis[i]:g}" for name, axis, i in place)
        what = "more than once" if seen[at] else "not at all"
        raise OnelayerError(f"{called} has the row {where} {what}; a full grid has each combination of inputs once")
    grid = np.empty(count)
    grid[flat] = values
    # Adding 0 makes -0.0 the zero that it equals.
    return tuple(np.asarray(axis) + 0.0 for axis in axes), grid.reshape(shape)


def _is_scattered(points: Array) -> bool:
    """Whether the grid of all values would have more than twice as many points as there are rows."""
    sizes = [len(np.unique(column)) for column in points.T]
    # Python integers: the product of many sizes must not wrap around.
    cells = int(np.prod(sizes, dtype=object))
    return cells > 2 * len(points)


def _cells(shape: tuple[int, ...], rows: int, names: Sequence[str], called: str) -> int:
    """Number of grid points, refused where it is far from the number of rows."""
    count = int(np.prod(shape, dtype=object))
    if count > 2 * rows:
        sizes = zip(names, shape, strict=True)
        sides = " x ".join(f"{size} values of {name}" for name, size in sizes)
        raise OnelayerError(
            f"the {rows:,} rows of {called} are scattered ({sides} would be {count:,} rows); interpolation needs a "
            "full grid, every combination of the inputs once"
        )
    return count
