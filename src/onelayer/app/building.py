"""From an order to a result: texts are read here, in the worker, and an error names the field it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from onelayer.app.orders import Refused
from onelayer.box import Box
from onelayer.build.arguments import check_eps
from onelayer.build.memorize import memorize
from onelayer.build.sort import sort
from onelayer.build.tables.table import read_named
from onelayer.conductor import approximate
from onelayer.errors import OnelayerError
from onelayer.formats import WIDE, either, named
from onelayer.language.endpoints import parse_domain
from onelayer.language.formula import parse
from onelayer.observer import Observer
from onelayer.recording.table import Table
from onelayer.result import Approximation

LEAST_CUBIC = 4  # rows along an axis that a cubic spline needs
MOST_LENGTH = 12  # numbers to sort: the live view of more is no longer small


@contextmanager
def _in(field: str) -> Iterator[None]:
    """An error inside belongs to that field."""
    try:
        yield
    except Refused:
        raise
    except (OnelayerError, OSError) as error:
        raise Refused(field, str(error)) from error


def built(order: Mapping[str, str], folder: Path, observer: Observer) -> Approximation:
    """The result that an order asks for."""
    builders: dict[str, Callable[..., Approximation]] = {
        "formula": _formula,
        "sort": _sorted,
        "table": _table,
        "map": _map,
    }
    return builders[order["kind"]](order, folder, observer)


def _eps(text: str) -> float:
    with _in("eps"):
        try:
            value = float(text)
        except ValueError as error:
            raise Refused("eps", f"eps must be a number such as 1e-4, got {text[:40]!r}") from error
        check_eps(value)
    return value


def _wide(name: str) -> torch.dtype:
    """The format of a layer that computes by comparisons and counts; narrow ones are for lookup layers alone."""
    if name not in (row.name for row in WIDE):
        raise Refused(
            "format", f"layers of this kind are built in {either(rows=WIDE)}; narrow formats are for formulas and maps"
        )
    return named(name).dtype


def _formula(order: Mapping[str, str], folder: Path, observer: Observer) -> Approximation:
    with _in("domain"):
        box: Box = parse_domain(order["domain"])
    with _in("formula"):
        parse(order["formula"], box.dim, names=box.variables)
    eps = _eps(order["eps"])
    with _in("formula"):
        return approximate(order["formula"], box, eps, dtype=order["format"], observer=observer)


def _sorted(order: Mapping[str, str], folder: Path, observer: Observer) -> Approximation:
    text = order["length"].strip()
    if not text.isascii() or not text.isdigit() or not 2 <= int(text) <= MOST_LENGTH:
        raise Refused("length", f"length must be a whole number from 2 to {MOST_LENGTH}, got {text[:20]!r}")
    eps = _eps(order["eps"])
    dtype = _wide(order["format"])
    with _in("eps"):
        return sort(int(text), 0.0, 1.0, eps, dtype=dtype, observer=observer)


def _map(order: Mapping[str, str], folder: Path, observer: Observer) -> Approximation:
    """The interpolant of a table: cubic on a full grid that is fine enough for it, else linear."""
    path = _written(order)
    target = order["target"].strip()
    header = [name.strip() for name in order["csv"].lstrip().partition("\n")[0].split(",")]
    inputs = [name for name in header if name != target]
    with _in("csv"):
        table = Table.read(path, inputs=inputs, output=target)
        if isinstance(table, Table) and min(table.values.shape) >= LEAST_CUBIC:
            table = Table.read(path, inputs=inputs, output=target, interpolate="cubic")
    eps = _eps(order["eps"])
    with _in("csv"):
        return approximate(table, table.box, eps, dtype=order["format"], observer=observer)


def _written(order: Mapping[str, str]) -> Path:
    path = Path("table.csv")  # in the worker's own folder, which no message has to name
    path.write_text(order["csv"])
    return path


def _table(order: Mapping[str, str], folder: Path, observer: Observer) -> Approximation:
    path = _written(order)
    dtype = _wide(order["format"])
    with _in("csv"):
        x, y, names = read_named(path, order["target"].strip())
        return memorize(x, y, dtype=dtype, names=names, observer=observer)
