"""The claim of a certificate as plain data, its invariants, and its JSON text. NumPy-free and torch-free."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from onelayer.disk import MAX_AXES, strict_json
from onelayer.errors import FileError, OnelayerError
from onelayer.formats import ARITHMETICS
from onelayer.language.words import NOT_RECORDED
from onelayer.names import check_names

FORMAT = "onelayer certificate"
FORMAT_VERSION = 1
STATUSES = ("proved", "refuted", "undecided")
METHODS = ("branch and bound", "lemma", "composition", "enumeration", "conditional on Lipschitz constant")
INLINE_FUNCTION = 4096
MAX_ASSUMPTIONS = 64
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Record:
    """lower <= sup over the domain of |T - f| <= upper, the sup taken over points and outputs alike.

    proved    eps is given and upper <= eps (strictness of print: see the certificate), or no eps was asked and the
              requested gap between lower and upper was reached, see :func:`decide`
    refuted   eps is given and lower > eps: at ``witness`` the error is at least ``lower``
    undecided neither; ``resisted`` is a box (lower corner, upper corner) that could not be decided

    ``domain`` is (lower, upper), flattened in row-major order of the event ``shape``; so is the witness. ``names`` are
    those of the coordinates, none where they are x1 ... xD: what is claimed does not depend on them. NaN satisfies none
    of the comparisons below, so no record with a NaN can be built.
    """

    status: str
    eps: float | None
    lower: float
    upper: float
    witness: tuple[float, ...] | None
    resisted: tuple[tuple[float, ...], tuple[float, ...]] | None
    boxes: int
    order: int
    arithmetic: str
    shape: tuple[int, ...]
    domain: tuple[tuple[float, ...], tuple[float, ...]]
    function: str
    weights_sha256: str
    seconds: float
    version: str
    method: str
    assumptions: tuple[str, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_names(self.names, self.shape)
        for holds, complaint in self._rules():
            if not holds:
                raise OnelayerError(f"inconsistent certificate: {complaint}")

    def _rules(self) -> list[tuple[bool, str]]:
        """Every rule with the complaint of breaking it; comparisons are written so that NaN breaks them."""
        low, high = self.domain
        return [
            (self.status in STATUSES, f"status must be one of {', '.join(STATUSES)}"),
            (self.arithmetic in ARITHMETICS, f"arithmetic must be one of {', '.join(ARITHMETICS)}"),
            (self.method in METHODS, f"method must be one of {', '.join(METHODS)}"),
            (self.eps is None or 0 <= self.eps < math.inf, "eps must be a finite number >= 0"),
            (0 <= self.lower < math.inf, "lower must be a finite number >= 0"),
            (self.lower <= self.upper, "lower must not exceed upper"),
            (self.status != "proved" or self.upper < math.inf, "proved needs a finite upper bound"),
            (
                self.status == decide(self.eps, self.lower, self.upper, reached=self.status == "proved"),
                "the status does not follow from eps, lower and upper",
            ),
            (self.status != "refuted" or self.witness is not None, "refuted needs a witness"),
            (self.lower == 0 or self.witness is not None, "lower > 0 needs a witness"),
            (0 <= self.boxes <= 2**28 and 0 <= self.order <= 64, "boxes and order must be counts"),
            (0 <= self.seconds < math.inf, "seconds must be a finite number >= 0"),
            (_shape(self.shape), f"the shape must have at most {MAX_AXES} positive sides"),
            (len(low) == len(high) and _size(self.shape) == len(low) >= 1, "the domain must match its shape"),
            (_ordered(low, high), "the domain must have finite bounds with lower <= upper"),
            (self.witness is None or _inside(self.witness, low, high), "the witness must lie in the domain"),
            (
                self.resisted is None
                or (_ordered(*self.resisted) and all(_inside(side, low, high) for side in self.resisted)),
                "the resisting box must lie in the domain",
            ),
            (self.weights_sha256 == "" or bool(_SHA256.fullmatch(self.weights_sha256)), "weights_sha256 is no sha256"),
            (len(self.assumptions) <= MAX_ASSUMPTIONS, "too many assumptions"),
        ]

    @property
    def recorded(self) -> bool:
        """Whether ``function`` is the text of f in the formula language."""
        return not self.function.startswith(NOT_RECORDED)


def decide(eps: float | None, lower: float, upper: float, *, reached: bool = False) -> str:
    """The status that lower <= sup|T - f| <= upper gives; a NaN in either decides nothing.

    Without an eps there is nothing to refute, and a finite enclosure is proved iff it ``reached`` the gap asked for.
    """
    if math.isnan(lower) or math.isnan(upper):
        return "undecided"
    if eps is None:
        return "proved" if reached and upper < math.inf else "undecided"
    if lower > eps:
        return "refuted"
    return "proved" if upper <= eps < math.inf else "undecided"


def to_json(record: Record, files: dict[str, str] | None = None) -> str:
    """JSON text of a record, one field per line, with a sha256 over all its other fields.

    ``files`` maps the names of the files beside it to their sha256. Floats are written in their shortest exact form;
    an infinite upper bound is the string "inf".
    """
    data: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(record)}
    data["upper"] = "inf" if math.isinf(record.upper) else record.upper
    if not record.names:  # files of earlier versions have no such field
        del data["names"]
    if record.recorded and len(record.function) > INLINE_FUNCTION:
        data["function"] = None
    data["files"] = dict(sorted((files or {}).items()))
    data["sha256"] = _digest(data)
    lines = [f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str, function: str | None = None) -> tuple[Record, dict[str, str]]:
    """The record in a JSON text and the sha256 of the files beside it; raises FileError on anything irregular.

    ``function`` is the content of function.txt, needed when the text was too long to repeat in the JSON.
    """
    data = _parse(text)
    names = {field.name for field in fields(Record)} - ({"names"} - set(data))
    if set(data) != names | {"format", "format_version", "files", "sha256"}:
        odd = sorted(set(data) ^ (names | {"format", "format_version", "files", "sha256"}))
        raise FileError(f"certificate.json has missing or unknown fields: {', '.join(map(repr, odd[:5]))}")
    stated = data.pop("sha256")
    if not isinstance(stated, str) or stated != _digest(data):
        raise FileError("certificate.json was changed: its fields do not match its sha256")
    files = data.pop("files")
    if not isinstance(files, dict) or not all(isinstance(v, str) and _SHA256.fullmatch(v) for v in files.values()):
        raise FileError("certificate.json: 'files' must map file names to sha256 digests")
    if data["function"] is None:
        if function is None:
            raise FileError("certificate.json refers to function.txt, which is not there")
        data["function"] = function
    try:
        record = Record(**{name: _typed(name, data[name]) for name in names})
    except OnelayerError as error:
        raise FileError(f"certificate.json: {error}") from error
    if function is not None and record.function != function:
        raise FileError("certificate.json states another function than function.txt")
    return record, files


def _parse(text: str | bytes) -> dict[str, Any]:
    data = strict_json(text, "certificate.json")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FileError(f"certificate.json is not a certificate: its 'format' must be {FORMAT!r}")
    if type(data.get("format_version")) is not int or data["format_version"] != FORMAT_VERSION:
        raise FileError(f"certificate.json has an unknown format_version; this program reads {FORMAT_VERSION}")
    return data


def _typed(name: str, value: Any) -> Any:
    """``value`` as the type of field ``name``, or an error: JSON lists become tuples, integers become floats."""
    if name in ("status", "arithmetic", "function", "weights_sha256", "version", "method"):
        return _checked(isinstance(value, str), name, value)
    if name in ("boxes", "order"):
        return _checked(isinstance(value, int) and not isinstance(value, bool), name, value)
    if name in ("eps", "witness", "resisted") and value is None:
        return None
    if name == "upper" and value == "inf":
        return math.inf
    if name in ("eps", "lower", "upper", "seconds"):
        return _real(name, value)
    _checked(isinstance(value, list), name, value)
    if name in ("assumptions", "names"):
        return tuple(_checked(isinstance(line, str), name, line) for line in value)
    if name == "shape":
        return tuple(_checked(isinstance(side, int) and not isinstance(side, bool), name, side) for side in value)
    if name == "witness":
        return tuple(_real(name, number) for number in value)
    _checked(len(value) == 2 and all(isinstance(side, list) for side in value), name, value)
    return tuple(tuple(_real(name, number) for number in side) for side in value)


def _checked(holds: bool, name: str, value: Any) -> Any:
    if not holds:
        raise OnelayerError(f"field '{name}' has the wrong type")
    return value


def _real(name: str, value: Any) -> float:
    _checked(isinstance(value, int | float) and not isinstance(value, bool), name, value)
    try:
        return float(value)
    except OverflowError as error:
        raise OnelayerError(f"field '{name}' is too large") from error


def _digest(data: dict[str, Any]) -> str:
    """sha256 of the canonical JSON (sorted keys, no spaces, ASCII) of all fields but 'sha256' itself."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _shape(shape: tuple[int, ...]) -> bool:
    return len(shape) <= MAX_AXES and all(side >= 1 for side in shape)


def _size(shape: tuple[int, ...]) -> int:
    """Numbers in a point, 0 for what is no shape: the product of endless sides is never formed."""
    return math.prod(shape) if _shape(shape) else 0


def _ordered(low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    return len(low) == len(high) and all(-math.inf < a <= b < math.inf for a, b in zip(low, high, strict=True))


def _inside(point: tuple[float, ...], low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    return len(point) == len(low) == len(high) and all(a <= x <= b for a, x, b in zip(low, point, high, strict=True))
