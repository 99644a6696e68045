"""BlackBox: a simulator or any other function that is known by its values alone, with what is known of them kept."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from torch import Tensor

from onelayer.errors import FileError, OnelayerError
from onelayer.recording.lipschitz import Lipschitz

Array = NDArray[np.float64]
# Points that every new one is compared with; more would cost more than most functions.
COMPARED = 4_096
BLOCK = 512  # new points compared at a time: bounds the memory of the comparison
# Values may be off by their own rounding: a declared constant is contradicted only beyond 16 units in the last place.
SLACK = 2.0**-48


class BlackBox:
    """f by its values, each computed once: a repeated point is looked up, in memory and in the file ``cache``.

    f           takes one point (D,) as a NumPy array and returns a number or an array
    lipschitz   how fast f may change: a number L for |f(x) - f(y)| <= L max_i |x_i - y_i|, or one number per
                coordinate (a list, or a dict by name) for sum_i L_i |x_i - y_i|; every pair of evaluated points is
                held against it (each new point against the first 4,096)
    cache       a file that keeps every value (SQLite): work survives the end of the program, however it ends
    max_evaluations   how often f may be called in all; what is in the cache is free
    jobs, executor    calls at a time in processes of this machine, or in any ``concurrent.futures.Executor``

    A point at which f raises, or returns what is not finite, is an error that names it; the values so far are kept.
    """

    def __init__(
        self,
        f: Callable[[Any], Any],
        lipschitz: Any,
        *,
        cache: str | os.PathLike[str] | None = None,
        max_evaluations: int | None = None,
        jobs: int = 1,
        executor: Executor | None = None,
    ) -> None:
        if not callable(f):
            raise OnelayerError(f"a black box needs a function, got {type(f).__name__}")
        self.f = f
        self.lipschitz = lipschitz
        self.max_evaluations = max_evaluations
        self.jobs, self.executor = jobs, executor
        self.evaluations = 0
        self.name = getattr(f, "__name__", type(f).__name__).replace("<lambda>", "f")
        self._known: dict[bytes, Array] = {}
        self._cache = None if cache is None else Path(cache)
        if self._cache is not None:
            self._known.update(_stored(self._cache))

    def __len__(self) -> int:
        """Points whose value is known."""
        return len(self._known)

    def __call__(self, points: Any) -> Array:
        """Values at points (C, D), (C, *output_shape)."""
        rows = np.ascontiguousarray(points, dtype=np.float64) + 0.0  # -0.0 and 0.0 are one point
        keys = [row.tobytes() for row in rows]
        wanted = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._known}
        if wanted:
            self._evaluate(wanted)
        return np.stack([self._known[key] for key in keys])

    def _evaluate(self, wanted: dict[bytes, Array]) -> None:
        if self.max_evaluations is not None and self.evaluations + len(wanted) > self.max_evaluations:
            raise OnelayerError(
                f"{self.name} was evaluated {self.evaluations:,} times and needs {len(wanted):,} more values; "
                f"raise max_evaluations={self.max_evaluations:,} or eps"
            )
        found: dict[bytes, Array] = {}
        try:
            for key, value in zip(wanted, self._outcomes(list(wanted.values())), strict=True):
                self.evaluations += 1
                found[key] = self._checked(value, wanted[key])
        finally:
            self._known.update(found)
            if self._cache is not None and found:
                _store(self._cache, found)

    def _outcomes(self, points: list[Array]) -> Any:
        """What f returns at each point, or the exception it raised, one after another as they come."""
        if self.executor is not None:
            return self.executor.map(_attempted, [self.f] * len(points), points)
        if self.jobs not in (0, 1) and len(points) > 1:
            return Parallel(n_jobs=self.jobs, return_as="generator")(delayed(_attempted)(self.f, p) for p in points)
        return (_attempted(self.f, point) for point in points)

    def _checked(self, value: Any, point: Array) -> Array:
        where = f"x = ({', '.join(f'{number:.17g}' for number in point.ravel().tolist()[:8])})"
        kept = f"; {len(self._known):,} values are kept" + (f" in {self._cache}" if self._cache else "")
        if isinstance(value, Exception):
            line = next(iter(str(value).splitlines()), "")[:160]
            raise OnelayerError(f"{self.name} failed at {where}: {type(value).__name__}: {line}{kept}") from value
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            kind = type(value).__name__
            raise OnelayerError(f"{self.name} returned {kind} at {where}; it must return numbers{kept}") from error
        if not np.isfinite(array).all():
            raise OnelayerError(f"{self.name} is not finite at {where}; choose a box on which it is{kept}")
        return array


def _attempted(f: Callable[[Any], Any], point: Array) -> Any:
    """f at a point; an exception comes back as a value, so that what other points gave is not lost with it."""
    try:
        return f(point.copy())
    except Exception as error:
        return error


class Witnessed:
    """A batched function whose evaluated points hold its declared constant to account."""

    def __init__(self, function: Callable[[Tensor], Tensor], name: str, lipschitz: Lipschitz, dim: int) -> None:
        self.function, self.name, self.lipschitz = function, name, lipschitz
        self.points = torch.empty(0, dim, dtype=torch.float64, device="cpu")
        self.values: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The values; raises where two evaluated points contradict the constant."""
        values = self.function(x)
        points = x.detach().double().cpu().reshape(-1, self.points.shape[1])
        if len(points):
            self._see(points, values.detach().double().cpu().reshape(len(points), -1))
        return values

    def _see(self, points: Tensor, values: Tensor) -> None:
        """Compare new points (C, D) and values (C, K) with the kept ones and among themselves; keep some of them."""
        first = len(self.points)
        known = values if self.values is None else torch.cat([self.values, values])
        every = torch.cat([self.points, points])
        kept, known_kept = every[:COMPARED], known[:COMPARED]
        for start in range(first, len(every), BLOCK):
            self._compare(every[start : start + BLOCK], known[start : start + BLOCK], kept, known_kept)
        self.points, self.values = kept, known_kept

    def _compare(self, points: Tensor, values: Tensor, kept: Tensor, known: Tensor) -> None:
        allowed = self.lipschitz.over((points[:, None] - kept).abs())  # (C, N)
        change = (values[:, None] - known).abs().amax(-1)
        scale = torch.maximum(values.abs().amax(-1)[:, None], known.abs().amax(-1))
        worse = torch.nonzero(change > allowed * (1 + SLACK) + scale * SLACK)
        if len(worse):
            i, j = worse[0].tolist()
            x, y = (", ".join(f"{number:.6g}" for number in point.tolist()[:8]) for point in (points[i], kept[j]))
            raise OnelayerError(
                f"the declared constant is too small: {self.name} changes by {change[i, j]:.6g} between ({x}) and "
                f"({y}), where {self.lipschitz.statement} allows {allowed[i, j]:.6g}"
            )


_CREATE = "CREATE TABLE IF NOT EXISTS evaluations (point BLOB PRIMARY KEY, shape TEXT NOT NULL, value BLOB NOT NULL)"


def _stored(path: Path) -> dict[bytes, Array]:
    """Every value in a cache file, created when it is not there."""
    try:
        with closing(sqlite3.connect(path)) as base, base:
            base.execute(_CREATE)
            rows = base.execute("SELECT point, shape, value FROM evaluations").fetchall()
        return {point: _array(shape, value) for point, shape, value in rows}
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise FileError(f"{path} is no cache of evaluations: {error}; choose another name") from error


def _array(shape: str, value: bytes) -> Array:
    sides = [int(side) for side in shape.split()]
    array = np.frombuffer(value, dtype=np.float64).reshape(sides)
    if not np.isfinite(array).all():
        raise ValueError("it holds a value that is not finite")
    return array


def _store(path: Path, found: dict[bytes, Array]) -> None:
    rows = [(point, " ".join(map(str, value.shape)), value.tobytes()) for point, value in found.items()]
    try:
        with closing(sqlite3.connect(path)) as base, base:
            base.executemany("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?)", rows)
    except sqlite3.Error as error:
        raise FileError(f"cannot write {path}: {error}") from error
