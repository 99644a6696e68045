"""memorize: a finite table in; a layer that recalls every row, with a proven margin, out."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flint import arb
from safetensors.numpy import save
from torch import Tensor

from onelayer.box import Box
from onelayer.build.arguments import check_budget, check_choice, check_dtype, check_eps, check_seed, check_size
from onelayer.build.tables.between import between_rows
from onelayer.build.tables.recall import Recaller, relu_recall, softmax_recall
from onelayer.build.tables.table import Rows, as_table
from onelayer.door import door
from onelayer.errors import OnelayerError
from onelayer.formats import format_of
from onelayer.ground import pinned
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.lemmas.argument import Recall, from_text
from onelayer.observer import Observer, observing
from onelayer.proof.argued import argued_certificate, distance_at
from onelayer.proof.certificate import outward
from onelayer.proof.certify import chosen_device
from onelayer.proof.files import ARGUMENT, TABLE
from onelayer.recording.columns import Array
from onelayer.result import Approximation

RECIPES = ("softmax", "relu")
LABEL_EPS = 0.25  # half way to the middle between two labels
# Relative to the largest output, for a format that has so many digits.
REAL_EPS = 1e-9
# Unit roundoffs of a format that has not, then the next power of ten.
REAL_UNITS = 128
# Beyond, the proof of the relu recipe cannot succeed: its bound grows like N^3.
RELU_ROWS = 50_000


@dataclass(frozen=True)
class RecallReport:
    """What a memorised table costs and how well it is recalled.

    ``stored_numbers`` counts keys, values, knots and coefficients; recalling arbitrary real outputs needs at least
    ``lower_bound`` of them. ``error`` is proved, ``measured`` was seen when every row was run through the layer, and
    ``recalled`` rows came back as their label, or within eps. ``margin`` is the proved distance of every recalled label
    from the border to another one. Between the rows, |T(x) - T(y)| <= lipschitz max_i |x_i - y_i| in real arithmetic,
    and nothing else is promised: ``between`` is how far T was seen from linear interpolation at the middles of the
    cells, for numbers on a full grid.
    """

    rows: int
    columns: int
    outputs: int
    recipe: str
    stored_numbers: int
    lower_bound: int
    error: float
    measured: float
    recalled: int
    margin: float | None
    lipschitz: float
    seconds: float
    between: float | None = None

    def __str__(self) -> str:
        # What was proved is rounded to its own side: a bound up, a margin down.
        margin = "" if self.margin is None else f", margin {outward(self.margin, up=False)}"
        between = ""
        if self.between is not None:
            seen = f"up to {outward(self.between, up=True)} from linear interpolation"
            between = f"; between the rows {seen}: to be right there, approximate the table instead"
        error = outward(self.error, up=True)
        recalled = f"{self.recalled:,} of {self.rows:,} rows recalled by {self.recipe}, error <= {error}{margin}"
        stored = f"{self.stored_numbers:,} numbers stored (at least {self.lower_bound:,} are needed)"
        slope = f"Lipschitz constant {outward(self.lipschitz, up=True)}"
        return f"{recalled}, {stored}, {slope}, {self.seconds:.1f} s{between}"


@dataclass(frozen=True, repr=False)
class Memorization(Approximation):
    """An Approximation whose claim is about the rows of a table; ``classes`` holds the labels, if there are any."""

    recall_report: RecallReport | None = None
    classes: tuple[Any, ...] | None = None

    def recall(self, x: Any) -> Any:
        """Output of each row of ``x``: a tensor of numbers, or a list of labels."""
        return recall(self, x)


@door
@pinned()
def recall(result: Approximation, x: Any) -> Any:
    """What a memorised table, fresh or loaded, holds for each row of ``x``: a tensor of numbers or a list of labels.

    OnelayerError for a row at which T is no number, which no label is near.
    """
    result.need_certified()
    model = result.model
    points = torch.as_tensor(np.asarray(x), dtype=model.dtype, device=model.device)
    values = model(points)
    classes = labels(result)
    if classes is None:
        return values
    known = torch.isfinite(values).flatten()
    if not bool(known.all()):
        first = int(known.int().argmin())
        raise OnelayerError(f"no label for row {first + 1}: T is not a number there")
    # Between the rows T may be anything, also beyond the codes.
    codes = values.round().long().clamp(0, len(classes) - 1)
    return [classes[code] for code in codes.flatten().tolist()]


@pinned()
def labels(result: Approximation) -> tuple[Any, ...] | None:
    """The labels of a memorised table in the order of their codes; None for numbers and for other results."""
    text = result.certificate.attachments.get(ARGUMENT)
    if text is None:
        return None
    argument = from_text(text)
    return argument.classes if isinstance(argument, Recall) else None


@door
@pinned()
def memorize(
    X: Any,
    Y: Any,
    *,
    recipe: str | None = None,
    eps: float | None = None,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
    seed: int = 0,
    names: Sequence[str] = (),
    max_seconds: float = math.inf,
    observer: Observer | None = None,
) -> Memorization:
    """A layer T with |T(x_r) - y_r| <= ``eps`` at every row, proved for its execution, and run on every row.

    X           inputs (N, D), (N,) or sequences (N, n, d)
    Y           outputs (N,) or (N, K); whole numbers, text and truth values are labels, recalled by rounding
    recipe      "softmax" (one memory token per row), "relu" (one hidden unit per row), or None for the one that stores
                fewer numbers and is proved
    names       of the inputs, as columns have them; those that cannot name a coordinate are left out
    dtype       the format of the layer; X and Y are rounded to it first, and the rows are those numbers
    eps         None means 0.25 for labels and 1e-9 (float32: 1e-5) times the largest output otherwise

    When ``max_seconds`` or the ``observer`` end it, the layer is there with what is proved of it by then, if anything.
    """
    started = time.monotonic()
    if recipe is not None:
        check_choice("recipe", recipe, RECIPES)
    if not isinstance(names, Sequence):
        raise OnelayerError(f"names are a list of texts, got {repr(names)[:60]}")
    check_dtype(dtype)
    seed = check_seed(seed)
    check_budget(max_seconds)
    if eps is not None:
        check_eps(eps)
    table = _in_format(as_table(X, Y), dtype)
    if eps is None:
        eps = _default_eps(table, dtype)
    place = chosen_device(device)
    with observing(observer, max_seconds) as watch:
        watch.report("memorising", detail=f"{len(table):,} rows")
        made = _build(table, recipe, eps, dtype, place, seed, watch)
        values = _run(made.model, table, place, watch)
    errors = _errors(values, table)
    # A label comes back by rounding, so half way to the next one is near enough.
    recalled = errors < 0.5 if table.classes else errors <= eps
    seconds = time.monotonic() - started
    argument = Recall(made.recipe, len(table), table.classes)
    # Rows for which there was no time have no value to be a witness.
    worst = int(np.where(errors < np.inf, errors, -1.0).argmax())
    certificate = argued_certificate(
        made.model,
        _hull(table, names),
        eps,
        argument,
        made.error,
        _witness(made.model, table, worst),
        function=argument.stated(),
        method="enumeration",
        seconds=seconds,
        attachments={TABLE: save({"X": table.inputs, "Y": table.outputs})},
    )
    # What is left of the half that keeps two classes apart, rounded down: it is promised.
    margin = math.nextafter(0.5 - made.error, -math.inf) if table.classes else None
    summary = RecallReport(
        rows=len(table),
        columns=math.prod(table.inputs.shape[1:]),
        outputs=math.prod(table.outputs.shape[1:]),
        recipe=made.recipe,
        stored_numbers=made.stored_numbers,
        lower_bound=table.outputs.size,
        error=made.error,
        measured=float(errors.max()),
        recalled=int(recalled.sum()),
        margin=margin,
        lipschitz=made.lipschitz,
        seconds=seconds,
        between=None if table.classes else between_rows(made.model, table.inputs, table.outputs),
    )
    return Memorization(made.model, certificate, recall_report=summary, classes=table.classes)


def _build(
    table: Rows,
    recipe: str | None,
    eps: float,
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
    observer: Observer,
) -> Recaller:
    """The recipe asked for; else relu, which stores fewer numbers, where its proof succeeds, and softmax otherwise."""

    def distances(share: float) -> None:
        observer.check()
        observer.report("distances", share)

    if recipe == "softmax":
        return softmax_recall(table, dtype, device, distances)
    if recipe == "relu":
        return relu_recall(table, dtype, seed)
    made = relu_recall(table, dtype, seed) if len(table) <= RELU_ROWS else None
    if made is not None and made.error <= eps:
        return made
    other = softmax_recall(table, dtype, device, distances)
    if made is None or other.error <= made.error:
        return other
    return made


def _default_eps(table: Rows, dtype: torch.dtype) -> float:
    """The error that is proved when none is asked for: fixed for labels, relative to the largest of numbers."""
    if table.classes:
        return LABEL_EPS
    reachable = REAL_UNITS * format_of(dtype).unit
    share = max(REAL_EPS, 10.0 ** math.ceil(math.log10(reachable)))
    # Above zero for a table of zeros; two digits, since people read it.
    size = max(float(np.abs(table.outputs).max()), 1e-300)
    return float(f"{share * size:.2g}")


def _in_format(table: Rows, dtype: torch.dtype) -> Rows:
    """The table in numbers of the executing format; rows that become equal are refused."""
    check_size(float(np.abs(table.inputs).max()), dtype, "X")
    check_size(float(np.abs(table.outputs).max()), dtype, "Y")
    if dtype == torch.float64:
        return table
    name = format_of(dtype).name
    inputs = table.inputs.astype(name).astype(np.float64)
    outputs = table.outputs.astype(name).astype(np.float64)
    try:
        kept = as_table(inputs, outputs)
    except OnelayerError as error:
        raise OnelayerError(f"{error}; rounded to {name}, that is: use float64") from error
    return Rows(kept.inputs, kept.outputs, table.classes, table.rows)


@np.errstate(all="ignore")
def _errors(values: Array, table: Rows) -> Array:
    """The largest error of every row as executed, inf where there is no value. Not rigorous."""
    apart = np.abs(values - table.outputs)
    errors: Array = apart.reshape(len(table), -1).max(1)
    return np.where(np.isnan(errors), np.inf, errors)


@torch.no_grad()
def _run(model: OneLayerTransformer, table: Rows, device: torch.device, observer: Observer) -> Array:
    """Every row through the layer itself; NaN in the rows for which there was no time."""
    there = model.to(device)
    # Two hundred parts: fine enough for a bar and a deadline, coarse enough to cost nothing.
    size = max(1, len(table) // 200)
    inputs = torch.from_numpy(table.inputs)
    found = _unknown(table)
    for start in range(0, len(table), size):
        if observer.over:
            break
        # Copied into place: small results kept between large intermediate arrays would pin the memory of those.
        rows = slice(start, start + size)
        points = inputs[rows].to(device, model.dtype)
        found[rows] = there(points).cpu()
        done = (start + size) / len(table)
        observer.report("recall", min(1.0, done))
    model.cpu()
    return found.numpy()


def _unknown(table: Rows) -> Tensor:
    return torch.full(table.outputs.shape, torch.nan, dtype=torch.float64, device="cpu")


def _hull(table: Rows, names: Sequence[str]) -> Box:
    box = Box(table.inputs.min(0), table.inputs.max(0))
    try:
        return box.named(names) if names else box
    # A column may be called "petal length", a coordinate may not.
    except OnelayerError:
        return box


def _witness(model: OneLayerTransformer, table: Rows, row: int) -> tuple[tuple[float, ...], float]:
    """The row with the largest error seen, and a lower bound of the error there."""
    outputs = np.ravel(table.outputs[row]).tolist()
    truth = [arb(y) for y in outputs]
    point = torch.from_numpy(np.asarray(table.inputs[row], dtype=np.float64))
    error = distance_at(model, point, lambda: truth)
    return tuple(point.flatten().tolist()), error
