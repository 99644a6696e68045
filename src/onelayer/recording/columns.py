"""Columns of numbers and labels from CSV and Parquet files; every irregularity is named by line and column."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, dropwhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.box import Box
from onelayer.errors import FileError, OnelayerError, first_line
from onelayer.names import tidy, without_unit

Array = NDArray[np.float64]
PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", *PARQUET)
_PARENTHESES = re.compile(r"\(([^()]*)\)$")  # a unit at the end of a name
SEPARATORS = (",", ";", "\t")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
# One thousand to some, and one to others, in either spelling.
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}[,.][0-9]{3}")


class Unclear(str):
    """A cell that is two numbers to two readers, and so none: one and a half, or fifteen hundred."""

    __slots__ = ()


def read_columns(path: str | Path) -> Mapping[str, Sequence[Any]]:
    """The columns of a .csv or .parquet file by name, in the order of the file; the values of a CSV are text."""
    path = Path(path)
    if path.suffix.lower() in PARQUET:
        return _parquet(path)
    return _csv(path)


def numbers(source: object, name: str, values: Sequence[Any]) -> Array:
    """A column as finite numbers; ``source`` is what an error calls the place where the column came from."""
    column = np.empty(len(values))
    for row, value in enumerate(values, start=1):
        number = as_number(value)
        if number is None:
            what = "a missing value" if is_missing(value) else f"text {str(value)[:30]!r}"
            raise OnelayerError(f"{source}: column '{name}' has {what} in row {row}; it must have a number in each")
        column[row - 1] = number
    return column


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: no object, no character, or what data frames have for a gap."""
    # Those compare as no truth value, not even with themselves.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, str) and value == "")


def as_number(value: Any) -> float | None:
    """The finite number that a cell holds, None where it holds none."""
    # Python reads 1_0 as ten, in text and in bytes.
    if isinstance(value, Unclear) or (isinstance(value, str | bytes) and "_" in str(value)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def column_of(columns: Mapping[str, Any], name: str, source: object) -> str:
    """What a column is called in full: rpm[1/min] where rpm is asked for and no column is called just that."""
    if name in columns:
        return name
    plain = {full: without_unit(str(tidy(full))).strip() for full in columns}
    with_unit = [full for full, name_alone in plain.items() if name_alone == name]
    if len(with_unit) == 1:
        return with_unit[0]
    unnamed = all(as_number(full) is not None for full in columns)
    hint = "; its first line must name the columns" if unnamed else ""
    raise OnelayerError(f"{source} has no column '{name}'; it has {listed(columns)}{hint}")


def named_after(columns: Sequence[str], box: Box) -> Box:
    """The box with the names of columns: "engine speed (rpm)" is engine_speed[rpm]; without, where that is no name."""
    written = [_PARENTHESES.sub(r"[\1]", name.strip()) for name in columns]
    parts = [str(tidy(name)).partition("[") for name in written]
    try:
        names = [re.sub(r"[ .-]+", "_", name) + mark + unit for name, mark, unit in parts]
        return box.named(names)
    except OnelayerError:
        return box


def listed(names: Iterable[Any]) -> str:
    """Names for an error, the first eight of them."""
    shown = [str(name) for name in names]
    return ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "")


def _lines(path: Path) -> tuple[list[list[str]], str]:
    """The values of every line that has any, without remarks (#) before the first, and what stands between them.

    That is commas, semicolons or tabs, whichever the first line has most of.
    """
    try:
        _refuse_irregular(path)
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = dropwhile(lambda text: text.startswith("#") or not text.strip(), file)
            first = next(lines, "")
            # The first line has no decimal commas: it holds names.
            between = max(SEPARATORS, key=first.count)
            # Strict: a quote that is never closed would swallow the rows behind it.
            rows = csv.reader(chain([first], lines), delimiter=between, strict=True)
            return [row for row in rows if row], between
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, csv.Error) as error:  # not UTF-8, or a name with a null byte
        raise FileError(f"{str(path)!r} is not a CSV file in UTF-8: {error}") from error


def _with_points(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The cells of columns, those that are numbers with a comma for their point with a point.

    Beside such columns 1.500 may be fifteen hundred, where a column has no number with a point that is surely one.
    """
    decimal = {name for name, cells in columns.items() if _has_decimal_commas(cells)}
    found: dict[str, list[str]] = {}
    for name, cells in columns.items():
        unclear = bool(decimal) and all(map(_THOUSANDS.fullmatch, _pointed(cells)))
        found[name] = [_with_point(cell, name in decimal, unclear) for cell in cells]
    return found


def _with_point(cell: str, decimal: bool, unclear: bool) -> str:
    if decimal:
        return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell
    return Unclear(cell) if unclear and "." in cell else cell


def _has_decimal_commas(cells: Sequence[str]) -> bool:
    """Whether a comma can be nothing but a point.

    1,500 is one thousand and five hundred beside 0.5, and may be where all numbers with commas look like it. Then they
    stay as they are, and are no numbers.
    """
    commas = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
    return not (_pointed(cells) or all(map(_THOUSANDS.fullmatch, commas)))


def _pointed(cells: Sequence[str]) -> list[str]:
    """The cells that are numbers with a point."""
    return [cell for cell in cells if "." in cell and as_number(cell) is not None]


def _csv(path: Path) -> dict[str, list[str]]:
    rows, between = _lines(path)
    if len(rows) < 2:
        raise FileError(f"{path} needs a line of column names and at least one row")
    header = [name.strip() for name in rows[0]]
    if len(set(header)) != len(header) or "" in header:
        raise FileError(f"{path} must name every column once in its first line, got {listed(header)}")
    for at, row in enumerate(rows[1:], start=2):
        _need_row(f"{path} line {at}", row, len(header), between)
    named = zip(header, zip(*rows[1:], strict=True), strict=True)
    columns = {name: [cell.strip() for cell in column] for name, column in named}
    # With commas between the values none stands inside a number.
    return columns if between == "," else _with_points(columns)


def _need_row(place: str, row: Sequence[str], count: int, between: str) -> None:
    """As many values as the header has, each a value of its own."""
    if len(row) != count:
        raise FileError(f"{place} has {len(row)} values, the header {count}")
    if any(_holds_rows(cell, between, count) for cell in row):
        raise FileError(f"{place} has a value in quotes that holds whole rows; close its quotes")


def _holds_rows(cell: str, between: str, count: int) -> bool:
    """Whether a cell has a line that is a row of the file: two quotes too many may be far apart."""
    return "\n" in cell and any(line.count(between) == count - 1 > 0 for line in cell.splitlines()[1:])


def _refuse_irregular(path: Path) -> None:
    """A pipe would wait for ever and a device may never end; a path that is missing is left to whoever opens it."""
    if path.exists() and not path.is_file():
        raise FileError(f"cannot read {path}: it is no regular file")


def _parquet(path: Path) -> dict[str, list[Any]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise OnelayerError("reading Parquet needs pyarrow: pip install pyarrow") from error
    _refuse_irregular(path)
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise FileError(f"cannot read {path}: {first_line(error)}") from error
    return {name: table[name].to_pylist() for name in table.column_names}
