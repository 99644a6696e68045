"""Tables to memorise: read from CSV or Parquet, or given as arrays; every irregularity is named by row and column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.points import plain, refuse_masked
from onelayer.recording.columns import Array, as_number, column_of, is_missing, numbers, read_columns

# Up to this, float64 holds every whole number.
MAX_EXACT = 2**53


@dataclass(frozen=True)
class Rows:
    """N distinct inputs (N, *input_shape) and their outputs (N, *output_shape), float64 and finite.

    ``classes`` is set for labels: output k stands for classes[k]. ``rows`` counts the rows given, duplicates included.
    """

    inputs: Array
    outputs: Array
    classes: tuple[Any, ...] | None
    rows: int

    def __len__(self) -> int:
        return len(self.inputs)


@pinned()
def read_table(path: str | Path, target: str) -> tuple[Array, NDArray[Any]]:
    """Inputs (N, D) and the column ``target`` of a .csv or .parquet file, in the order of its columns.

    Inputs must be numbers; the target may be numbers or labels. Whole numbers in a target column stay whole, so that
    they are memorised as labels.
    """
    inputs, outputs, _ = read_named(path, target)
    return inputs, outputs


@pinned()
def read_named(path: str | Path, target: str) -> tuple[Array, NDArray[Any], tuple[str, ...]]:
    """The same, with the names of the input columns."""
    columns = read_columns(path)
    target = column_of(columns, target, path)
    names = [name for name in columns if name != target]
    if not names:
        raise OnelayerError(f"{path} has only the column '{target}'; a table needs input columns too")
    inputs = np.stack([numbers(path, name, columns[name]) for name in names], axis=1)
    outputs = _target(path, target, columns[target])
    return inputs, outputs, tuple(names)


def as_table(inputs: Any, outputs: Any) -> Rows:
    """Check and clean what is to be memorised: shapes, finite numbers, and no input with two outputs."""
    x = _array(inputs, "X").astype(np.float64, copy=False)
    y = _array(outputs, "Y")
    if x.ndim < 1 or y.ndim < 1 or len(x) == 0 or len(x) != len(y):
        raise OnelayerError(f"X and Y must have one row per example, got {x.shape} and {y.shape}")
    x = x[:, None] if x.ndim == 1 else x
    classes: tuple[Any, ...] | None = None
    # Numbers with a point are to be approximated; anything else is a label, whole numbers too.
    if y.dtype.kind not in "f":
        if y.ndim != 1:
            raise OnelayerError(f"labels must be one per row, got shape {y.shape}")
        classes, y = _coded(y)
    for name, array in (("X", x), ("Y", y)):
        finite = np.isfinite(array.reshape(len(array), -1)).all(1)
        bad = np.flatnonzero(~finite)
        if len(bad):
            raise OnelayerError(f"{name} has a missing or infinite value in row {bad[0] + 1}; drop or fill it")
    keep = _distinct(x, y)
    kept_inputs = np.ascontiguousarray(x[keep])
    kept_outputs = np.ascontiguousarray(y[keep], dtype=np.float64)
    return Rows(kept_inputs, kept_outputs, classes, len(x))


def _coded(labels: NDArray[Any]) -> tuple[tuple[Any, ...], Array]:
    """The labels there are, in order, and the place of each row's among them."""
    try:
        names, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise OnelayerError(f"labels must be of one kind, all text or all numbers: {error}") from error
    return tuple(names.tolist()), codes.astype(np.float64)


def _array(values: Any, name: str) -> NDArray[Any]:
    if isinstance(values, torch.Tensor):
        values = plain(values).numpy()
    try:
        refuse_masked(values)
        array = np.asarray(values)
    except ValueError as error:
        raise OnelayerError(f"{name} must be a regular array, one row per example, and nothing masked") from error
    if name == "X" and array.dtype.kind not in "fiub":
        raise OnelayerError(f"X must hold numbers, got {array.dtype}")
    if array.dtype.kind not in "fiubUO":
        raise OnelayerError(f"{name} must hold numbers or labels, got {array.dtype}")
    _need_as_given(values, array, name)
    return array


def _need_as_given(values: Any, array: NDArray[Any], name: str) -> None:
    """OnelayerError where what is memorised would be other numbers or labels than were given."""
    kind = array.dtype.kind
    # NumPy writes numbers as text beside text, and drops zeros at the end of it: labels would not come back as given.
    if kind == "U" and isinstance(values, list | tuple) and array.tolist() != list(values):
        raise OnelayerError(f"labels in {name} must be all text, without a zero character at its end")
    if kind == "f" and array.dtype.itemsize > 8 and not np.array_equal(array.astype(np.float64), array, equal_nan=True):
        raise OnelayerError(f"{name} has numbers of {array.dtype} that are no float64 numbers; round them first")
    if kind in "iu" and array.size and int(np.abs(array).max()) > MAX_EXACT:
        raise OnelayerError(f"{name} has whole numbers beyond 2^53, which are no float64 numbers")


def _distinct(x: Array, y: NDArray[Any]) -> NDArray[np.int64]:
    """First row of each distinct input; an input that occurs with two outputs is refused, naming its rows."""
    # Rows are compared as bytes, which is fast; with + 0.0, -0.0 becomes 0.0 and equal numbers have equal bytes.
    flat = np.ascontiguousarray(x.reshape(len(x), -1)) + 0.0
    row_bytes = np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))
    records = flat.view(row_bytes).ravel()
    _, first, group = np.unique(records, return_index=True, return_inverse=True)
    leader = first[group.ravel()]
    outputs = y.reshape(len(y), -1)
    differs = (outputs != outputs[leader]).any(1)
    if differs.any():
        row = int(np.flatnonzero(differs)[0])
        other = int(leader[row])
        raise OnelayerError(
            f"rows {other + 1} and {row + 1} have equal inputs and different outputs; no function has both"
        )
    return np.sort(first)


def _target(path: str | Path, name: str, values: Sequence[Any]) -> NDArray[Any]:
    """Whole numbers as integers, other numbers as floats, anything else as labels."""
    for row, value in enumerate(values, start=1):
        if _missing(value):
            raise OnelayerError(f"{path}: target column '{name}' has a missing value in row {row}")
    found = [as_number(value) for value in values]
    if any(number is None for number in found):
        _refuse_infinite(path, name, values)
        return np.array([str(value) for value in values])
    column = np.array(found, dtype=np.float64)
    largest = float(np.abs(column).max())
    # Below it: the next whole number would be rounded to it.
    whole = all(map(_written_whole, values)) and largest < MAX_EXACT
    return column.astype(np.int64) if whole else column


def _written_whole(value: Any) -> bool:
    if isinstance(value, str):
        return value.lstrip("+-").isdigit()
    return isinstance(value, int)


def _missing(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return is_missing(value)


def _refuse_infinite(path: str | Path, name: str, values: Sequence[Any]) -> None:
    """In a column of numbers, nan and inf are missing numbers; among names they may be names."""
    odd = [row for row, value in enumerate(values, start=1) if as_number(value) is None]
    if len(odd) < len(values) and all(_reads_as_number(values[row - 1]) for row in odd):
        raise OnelayerError(f"{path}: target column '{name}' has no finite number in row {odd[0]}; drop or fill it")


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
