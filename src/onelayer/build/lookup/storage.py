"""The numbers that a layer may hold, as grids on which its keys and values are chosen."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onelayer.build.lookup.families import Array
from onelayer.errors import OnelayerError
from onelayer.formats import NAMES, are_formats, either, format_of, named
from onelayer.layer.int8 import MOST, power_scale, scale_for
from onelayer.narrow import ACCUMULATORS


def rounded(values: Array, dtype: torch.dtype) -> Array:
    """The nearest numbers of a format, as float64."""
    exact = torch.from_numpy(np.ascontiguousarray(values))
    nearest: Array = exact.to(dtype).double().numpy()
    return nearest


class Storage(ABC):
    """Numbers in columns (M, K), each column with a grid of its own."""

    dtype: torch.dtype  # of the layer

    @property
    def unit(self) -> float:
        """Relative rounding of what a layer returns, 0 where that is as fine as what it computes."""
        if self.dtype in ACCUMULATORS:
            return format_of(self.dtype).unit
        return 0.0

    def output_rounding(self, size: float) -> float:
        """Error of rounding numbers up to ``size`` once more at the end of the layer: half a unit in the last place."""
        if size > 0:
            return self.unit * 2.0 ** math.floor(math.log2(size))
        return 0.0

    @property
    @abstractmethod
    def step(self) -> float:
        """How far a value may be from its nearest number, as a share of the largest value."""

    @abstractmethod
    def nearest(self, columns: Array) -> Array:
        """Numbers of the grids near these."""

    def beside_one(self, columns: Array) -> Array:
        """Numbers near these in columns that hold a one as well."""
        return self.nearest(columns)

    @abstractmethod
    def neighbours(self, columns: Array) -> tuple[Array, Array]:
        """For numbers of the grids the next ones below and above; the same number where there is none."""


@dataclass(frozen=True)
class Floats(Storage):
    """The numbers of a float format."""

    dtype: torch.dtype

    @property
    def step(self) -> float:
        """The unit roundoff."""
        return self.unit

    def nearest(self, columns: Array) -> Array:
        """Rounded to nearest."""
        return rounded(columns, self.dtype)

    def neighbours(self, columns: Array) -> tuple[Array, Array]:
        """The next floats."""
        here = torch.from_numpy(np.ascontiguousarray(columns)).to(self.dtype)
        below = torch.nextafter(here, torch.full_like(here, -torch.inf))
        above = torch.nextafter(here, torch.full_like(here, torch.inf))
        return below.double().numpy(), above.double().numpy()


@dataclass(frozen=True)
class Integers(Storage):
    """Whole numbers from -127 to 127 times a scale per column; the layer itself computes in float32."""

    dtype: torch.dtype = torch.float32

    @property
    def step(self) -> float:
        """Half of 127 steps."""
        return 0.5 / MOST

    def nearest(self, columns: Array) -> Array:
        """Rounded to nearest with the scale that the largest number of each column asks for."""
        return _on_grid(columns, self._scales(columns))

    def neighbours(self, columns: Array) -> tuple[Array, Array]:
        """One step of the scale; the largest numbers stay, for it is they that the scale is known by."""
        scales = self._scales(columns)
        whole = np.abs(np.round(columns / scales))
        steps = np.where(whole < MOST - 1, scales, 0.0)
        return columns - steps, columns + steps

    def beside_one(self, columns: Array) -> Array:
        """Multiples of a power of two that divides one."""
        sizes = np.maximum(np.abs(columns).max(0), 1.0)
        exponents = np.ceil(np.log2(sizes / MOST))
        # A scale above one would not divide the one beside; numbers too large for it are cut off at 127.
        scales = np.exp2(np.minimum(exponents, 0.0))
        return _on_grid(columns, scales)

    def _scales(self, columns: Array) -> Array:
        """Of columns that are whole already their own, so that they stay as they are; of others by their largest."""
        found = []
        for column in columns.T.tolist():
            largest = max(map(abs, column))
            found.append(power_scale(column) or scale_for(largest))
        return np.array(found)


def _on_grid(columns: Array, scales: Array) -> Array:
    """Whole numbers of at most 127 times the scales, near these columns."""
    whole = np.clip(np.round(columns / scales), -MOST, MOST)
    nearest: Array = whole * scales
    return nearest


INT8 = "int8"


def storage_of(dtype: Any) -> Storage | None:
    """What ``dtype`` says by a torch dtype or a name: a narrow format, int8, or None for a wide format.

    OnelayerError for anything else.
    """
    if dtype is torch.int8 or (isinstance(dtype, str) and dtype == INT8):
        return Integers()
    by_name = isinstance(dtype, str) and dtype in NAMES
    found = named(dtype).dtype if by_name else dtype
    if not are_formats([found]):
        raise OnelayerError(f"dtype must be {either()}, by name or as a torch dtype, or 'int8'; got {dtype}")
    return Floats(found) if found in ACCUMULATORS else None


def computing(dtype: Any, storage: Storage | None) -> torch.dtype:
    """The format of the layer: that of its storage, or the wide format that ``dtype`` names."""
    if storage is not None:
        return storage.dtype
    if isinstance(dtype, str):
        return named(dtype).dtype
    return format_of(dtype).dtype
