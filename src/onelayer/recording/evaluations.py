"""Evaluations: values of a function that are paid for once, kept in memory and in a file, and computed in parallel."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.card import number_of
from onelayer.errors import FileError, OnelayerError, told
from onelayer.ground import DEFAULT_DTYPE, Watching, another
from onelayer.points import points_of, real_numbers
from onelayer.recording.callables import Spread, of_one_array

Array = NDArray[np.float64]
DEFAULT = "it returns another value under another default dtype of torch; give dtype= where it makes tensors"
TRIED = 3  # values of a cache file that are computed again when it is first used
VALUES, GRADIENTS = "evaluations", "gradients"  # the tables of a cache file


@dataclass(frozen=True)
class Means:
    """How a function is called: how often at most, how many calls at a time, and where its values are kept."""

    cache: Path | None = None
    most: int | None = None
    jobs: int = 1
    executor: Executor | None = None


@dataclass
class Evaluations:
    """A function of one point, each value computed once: a repeated point is looked up, in memory and in the file.

    A point at which it raises, or returns what is not finite, is an error that names it; the values so far are kept.
    """

    function: Callable[[Any], Any]
    name: str
    means: Means
    table: str = VALUES
    calls: int = 0
    _known: dict[bytes, Array] = field(default_factory=dict, repr=False)
    _read: list[bytes] = field(default_factory=list, repr=False)  # points from the file, until some were tried

    def __post_init__(self) -> None:
        self.given = self.function  # whatever its arguments are
        self.one_function = False  # whether that was tried
        self.order: tuple[int, ...] | None = None  # in which it takes the coordinates, once it has met a box
        if self.means.cache is not None:
            self._known.update(_stored(self.means.cache, self.table))
            self._read = list(self._known)

    def take(self, box: Box) -> None:
        """Call the function as its arguments ask for: with a point of the box, or with its coordinates by name.

        Known values are those of points in the order of the first box: a box of another order is refused.
        """
        asked = of_one_array(self.given, box)
        order = asked.order if isinstance(asked, Spread) else ()
        if self.order not in (None, order):
            raise OnelayerError(
                f"{self.name} was evaluated on a box that has its coordinates in another order; "
                "name them in that order, or make a new BlackBox"
            )
        self.function, self.order = asked, order

    def __len__(self) -> int:
        """Points whose value is known."""
        return len(self._known)

    def __call__(self, points: Any) -> Array:
        """Values at points (C, D), (C, *output_shape)."""
        # -0.0 and 0.0 are one point.
        rows = np.ascontiguousarray(points_of(points)) + 0.0
        if rows.ndim < 2 or not len(rows):
            raise OnelayerError(f"{self.name} takes points (C, D), one or more, got an array of shape {rows.shape}")
        keys = [row.tobytes() for row in rows]
        rows_of = dict(zip(keys, rows, strict=True))
        self._try_again({key: row for key, row in rows_of.items() if key in self._known})
        wanted = {key: row for key, row in rows_of.items() if key not in self._known}
        if wanted:
            self._evaluate(wanted)
        return np.stack([self._known[key] for key in keys])

    def _try_again(self, given: dict[bytes, Array]) -> None:
        """Compute some of the values of the file again, once: it may have been written for another function."""
        held = sorted(given.keys() & set(self._read)) if self._read else []
        if not held or (self.means.most is not None and self.calls + TRIED > self.means.most):
            return
        self._read = []
        chosen = secrets.SystemRandom().sample(held, min(TRIED, len(held)))
        for key, value in zip(chosen, self._outcomes([given[key] for key in chosen]), strict=True):
            self.calls += 1
            if not np.array_equal(self._checked(value, given[key]), self._known[key]):
                raise FileError(
                    f"{self.means.cache} holds values of another function: at {_where(given[key])} "
                    f"{self.name} returns {str(value)[:40]}, not {str(self._known[key])[:40]}; choose another name"
                )

    def _evaluate(self, wanted: dict[bytes, Array]) -> None:
        most = self.means.most
        if most is not None and self.calls + len(wanted) > most:
            done = f"{self.name} was evaluated {self.calls:,} times"
            raise OnelayerError(f"{done} and needs {len(wanted):,} more values; raise max_evaluations={most:,} or eps")
        found: dict[bytes, Array] = {}
        try:
            for key, value in zip(wanted, self._outcomes(list(wanted.values())), strict=True):
                self.calls += 1
                found[key] = self._checked(value, wanted[key])
        # Whatever ends this, values that were paid for are kept.
        finally:
            self._known.update(found)
            if self.means.cache is not None and found:
                _store(self.means.cache, self.table, found)

    def _outcomes(self, points: list[Array]) -> Any:
        """What the function returns at each point, or the exception it raised, one after another as they come."""
        jobs = self.means.jobs
        executor = self.means.executor
        if executor is not None:
            return executor.map(_attempted, [self.function] * len(points), points)
        if jobs not in (0, 1) and len(points) > 1:
            tasks = (delayed(_attempted)(self.function, point) for point in points)
            return Parallel(n_jobs=jobs, return_as="generator")(tasks)
        return map(self._outcome, points)

    def _outcome(self, point: Array) -> Any:
        """What the function returns; an error where it hangs on torch's default dtype, seen at the first point."""
        # Values are those of pinned ground, and whoever calls the function may have another default there.
        if self.one_function or DEFAULT_DTYPE.read() == DEFAULT_DTYPE.other:
            return _attempted(self.function, point)
        self.one_function = True
        with Watching() as watching:
            value = _attempted(self.function, point)
        room = self.means.most is None or self.calls + 2 <= self.means.most
        # What computes nothing with torch does not know its default.
        if isinstance(value, Exception) or not watching.seen or not room:
            return value
        self.calls += 1
        with another(DEFAULT_DTYPE):
            again = _attempted(self.function, point)
        return value if _same(value, again) else OnelayerError(DEFAULT)

    def _checked(self, value: Any, point: Array) -> Array:
        where = _where(point)
        cache = f" in {self.means.cache}" if self.means.cache else ""
        kept = f"; {number_of(len(self._known), 'values')} kept{cache}"
        if isinstance(value, Exception):
            raise OnelayerError(f"{self.name} failed at {where}: {told(value)}{kept}") from value
        try:
            array = real_numbers(value).astype(np.float64)
        # Whatever an object of another library raises where it is no array.
        except Exception as error:
            kind = type(value).__name__
            raise OnelayerError(f"{self.name} returned {kind} at {where}; it must return numbers{kept}") from error
        if not np.isfinite(array).all():
            raise OnelayerError(f"{self.name} is not finite at {where}; choose a box on which it is{kept}")
        return array


def _same(value: Any, again: Any) -> bool:
    """Whether two values are the same numbers; what is none is refused elsewhere."""
    try:
        return np.array_equal(real_numbers(value), real_numbers(again))
    except Exception:
        return isinstance(value, type(again))


def _where(point: Array) -> str:
    coordinates = ", ".join(f"{number:.17g}" for number in point.ravel().tolist()[:8])
    return f"x = ({coordinates})"


# At the top of the module: other processes find it by its name.
def _attempted(f: Callable[[Any], Any], point: Array) -> Any:
    """f at a point; an exception comes back as a value, so that what other points gave is not lost with it."""
    try:
        return f(point.copy())
    except Exception as error:
        return error


def _stored(path: Path, table: str) -> dict[bytes, Array]:
    """Every value in a table of a cache file, created when it is not there."""
    columns = "point BLOB PRIMARY KEY, shape TEXT NOT NULL, value BLOB NOT NULL"
    try:
        with closing(sqlite3.connect(path)) as base, base:
            base.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            rows = base.execute(f"SELECT point, shape, value FROM {table}").fetchall()
        return {point: _array(shape, value) for point, shape, value in rows}
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise FileError(f"{path} is no cache of evaluations: {error}; choose another name") from error


def _array(shape: str, value: bytes) -> Array:
    sides = [int(side) for side in shape.split()]
    # Of any length: a shape that does not fit the bytes is an error that the reader names.
    array = np.frombuffer(value, dtype=np.float64).reshape(sides)
    if not np.isfinite(array).all():
        raise ValueError("it holds a value that is not finite")
    return array


def _store(path: Path, table: str, found: dict[bytes, Array]) -> None:
    rows = []
    for point, value in found.items():
        sides = " ".join(map(str, value.shape))
        rows.append((point, sides, value.tobytes()))
    try:
        with closing(sqlite3.connect(path)) as base, base:
            base.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", rows)
    except sqlite3.Error as error:
        raise FileError(f"cannot write {path}: {error}") from error
