"""argument.json: what a proof by lemma, composition or enumeration stands on, beside the weights. Plain data."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from onelayer.errors import FileError

FORMAT = "onelayer argument"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class OrderStatistics:
    """f sorts n numbers (``weights`` None), or is sum_k weights[k] x_(k); ``construction`` names the lemma."""

    length: int
    construction: str  # thresholds | subsets
    weights: tuple[float, ...] | None

    KIND = "order statistics"

    def __post_init__(self) -> None:
        _need(type(self.length) is int and self.length >= 1, "length must be a whole number >= 1")
        _need(self.construction in ("thresholds", "subsets"), "construction must be 'thresholds' or 'subsets'")
        if self.weights is not None:
            numbers = _numbers(self.weights)
            _need(len(numbers) == self.length, "weights must be one finite number per order statistic")
            object.__setattr__(self, "weights", numbers)


@dataclass(frozen=True)
class Recall:
    """The claim is about the rows of table.safetensors alone; ``recipe`` names the construction."""

    recipe: str  # softmax | relu
    rows: int

    KIND = "recall"

    def __post_init__(self) -> None:
        _need(self.recipe in ("softmax", "relu"), "recipe must be 'softmax' or 'relu'")
        _need(type(self.rows) is int and self.rows >= 1, "rows must be a whole number >= 1")


Argument = OrderStatistics | Recall
KINDS: dict[str, type[Argument]] = {OrderStatistics.KIND: OrderStatistics, Recall.KIND: Recall}


def to_text(argument: Argument) -> bytes:
    """The content of argument.json."""
    data = {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": argument.KIND, **asdict(argument)}
    return (json.dumps(data, allow_nan=False) + "\n").encode("ascii")


def from_text(text: bytes) -> Argument:
    """The argument in the bytes of argument.json; FileError on anything irregular."""
    try:
        data = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise FileError("argument.json is not valid JSON") from error
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise FileError(f"argument.json is not an argument: its 'format' must be {FORMAT!r}")
    if data.pop("format_version", None) != FORMAT_VERSION:
        raise FileError(f"argument.json has an unknown format_version; this program reads {FORMAT_VERSION}")
    kind = KINDS.get(str(data.pop("kind", None)))
    if kind is None or set(data) != set(kind.__dataclass_fields__):
        raise FileError("argument.json has an unknown kind or missing or unknown fields")
    try:
        return kind(**data)
    except (TypeError, ValueError, OverflowError) as error:
        raise FileError(f"argument.json: {error}") from error


def _need(holds: bool, complaint: str) -> None:
    if not holds:
        raise FileError(complaint)


def _numbers(values: Any) -> tuple[float, ...]:
    _need(isinstance(values, list | tuple), "a list of numbers is needed")
    _need(all(type(v) in (int, float) and math.isfinite(v) for v in values), "numbers must be finite")
    return tuple(float(v) for v in values)
