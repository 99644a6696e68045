"""The checker's own reader of a saved proof: certificate.json, boxes.bin, function.txt and what is attached.

It shares the format with the writer (docs/certificates.md describes every byte) and no code but the three readers of
bytes: what the writer believes of its own files is not believed here.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.disk import MAX_AXES, read_bounded, read_if_there, read_tensors, strict_json
from onelayer.errors import FileError, OnelayerError
from onelayer.formats import ARITHMETICS
from onelayer.language.words import NOT_RECORDED
from onelayer.names import check_names

FORMAT = "onelayer certificate"
FORMAT_VERSION = 1  # of certificate.json
SUP = "sup|T - f|"
OPTIONAL = {"names", "claim", "about"}  # fields that files of earlier versions do not have
STATUSES = ("proved", "refuted", "undecided")
CONDITIONAL = ("conditional on Lipschitz constant", "conditional on Lipschitz constant of the gradient")
BOXED = ("branch and bound", *CONDITIONAL)
METHODS = (*BOXED, "lemma", "composition", "enumeration")
MAX_ASSUMPTIONS = 64  # lines; a certificate states a handful
CERTIFICATE, BOXES, FUNCTION = "certificate.json", "boxes.bin", "function.txt"
ARGUMENT, TABLE, OTHER = "argument.json", "table.safetensors", "other.safetensors"
ATTACHMENTS = (ARGUMENT, TABLE, OTHER)
BELONG = {"lemma": (ARGUMENT,), "composition": (ARGUMENT,), "enumeration": (ARGUMENT, TABLE)}
MAX_BYTES = {CERTIFICATE: 2**24, BOXES: 2**29, FUNCTION: 2**24, ARGUMENT: 2**26, TABLE: 2**32, OTHER: 2**32}
MAGIC, BOXES_VERSION = b"OLBOXES\n", 1  # first bytes and version of boxes.bin
# The byte of a box, axes below it, and what fits in memory.
LEAF, MAX_DIM, MAX_NODES, MAX_NUMBERS = 255, 254, 2**28 - 1, 2**26
_HEADER = struct.Struct("<8sIIQ")  # magic, version, D, nodes
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Record:
    """lower <= sup over the domain of |T - f| <= upper, the sup taken over points and outputs alike.

    proved    eps is given and upper <= eps (strictness of print: see the certificate), or no eps was asked and the
              requested gap between lower and upper was reached
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
    claim: str = SUP
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names(self.names, self.shape)
        for holds, complaint in self._rules():
            if not holds:
                raise OnelayerError(f"inconsistent certificate: {complaint}")

    def _rules(self) -> list[tuple[bool, str]]:
        """Every rule with the complaint of breaking it; comparisons are written so that NaN breaks them."""
        low, high = self.domain
        return [
            (self.status != "estimated", "an estimate is no proof and cannot be checked"),
            (self.status in STATUSES, f"status must be one of {', '.join(STATUSES)}"),
            (self.arithmetic in ARITHMETICS, f"arithmetic must be one of {', '.join(ARITHMETICS)}"),
            (self.method in METHODS, f"method must be one of {', '.join(METHODS)}"),
            (self.eps is None or 0 <= self.eps < math.inf, "eps must be a finite number >= 0"),
            (0 <= self.lower < math.inf, "lower must be a finite number >= 0"),
            (self.lower <= self.upper, "lower must not exceed upper"),
            (self.status != "proved" or self.upper < math.inf, "proved needs a finite upper bound"),
            (self._follows(), "the status does not follow from eps, lower and upper"),
            (self.status != "refuted" or self.witness is not None, "refuted needs a witness"),
            (self.lower == 0 or self.witness is not None, "lower > 0 needs a witness"),
            (0 <= self.boxes <= 2**28 and 0 <= self.order <= 64, "boxes and order must be counts"),
            (0 <= self.seconds < math.inf, "seconds must be a finite number >= 0"),
            (_shape(self.shape), f"the shape must have at most {MAX_AXES} positive sides"),
            (len(low) == len(high) and _size(self.shape) == len(low) >= 1, "the domain must match its shape"),
            (_ordered(low, high), "the domain must have finite bounds with lower <= upper"),
            (self.witness is None or _inside(self.witness, low, high), "the witness must lie in the domain"),
            (_box_inside(self.resisted, low, high), "the resisting box must lie in the domain"),
            (self.weights_sha256 == "" or bool(_SHA256.fullmatch(self.weights_sha256)), "weights_sha256 is no sha256"),
            (len(self.assumptions) <= MAX_ASSUMPTIONS, "too many assumptions"),
            (_settings(self.about), "it is about nothing that is known"),
        ]

    def _follows(self) -> bool:
        """Whether the status is the one that eps and the enclosure leave: a NaN leaves none."""
        if self.status == "refuted":
            return self.eps is not None and self.lower > self.eps
        if self.status == "proved":
            return self.upper < math.inf if self.eps is None else self.lower <= self.upper <= self.eps
        return self.eps is None or self.lower <= self.eps < self.upper

    @property
    def recorded(self) -> bool:
        """Whether ``function`` is the text of f in the formula language."""
        return not self.function.startswith(NOT_RECORDED)


@dataclass(frozen=True)
class Cuts:
    """The bytes of a tree of cuts in preorder, and the corners of its root."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    tree: NDArray[np.uint8]

    @property
    def leaves(self) -> int:
        """Number of boxes: a binary tree has one leaf more than cuts."""
        return (self.tree.size + 1) // 2


@dataclass(frozen=True)
class SavedProof:
    """What a folder claims: the record, the boxes that carry the proof, and the text of f if it was recorded.

    ``attachments`` are the files beside those, by name: the argument of a lemma or composition, a memorised table.
    """

    record: Record
    tree: Cuts | None
    function: str | None
    attachments: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record, tree = self.record, self.tree
        if record.recorded != (self.function is not None):
            raise FileError("certificate.json and function.txt disagree on whether the function was recorded")
        two = {OTHER} if record.about.get("kind") == "difference" else set()
        foreign = sorted(set(self.attachments) - {*BELONG.get(record.method, ()), *two})
        if foreign:
            raise FileError(f"a certificate by {record.method} has no use for {', '.join(foreign)}")
        if tree is None:
            if record.boxes or record.method in BOXED:
                raise FileError(f"a certificate by {record.method} with {record.boxes} boxes needs boxes.bin")
            return
        if tree.leaves != record.boxes:
            raise FileError(f"boxes.bin holds {tree.leaves} boxes, certificate.json states {record.boxes}")
        if (tree.lower, tree.upper) != record.domain:
            raise FileError("the root box of boxes.bin is not the domain of certificate.json")


def _need_same(folder: Path, content: dict[str, bytes], digests: dict[str, str]) -> None:
    """The files are those that the certificate describes, none missing and none more."""
    found = {name: _sha256(data) for name, data in content.items()}
    if found != digests:
        odd = sorted(name for name in found.keys() | digests.keys() if found.get(name) != digests.get(name))
        raise FileError(f"{folder}: {', '.join(odd)} is not the file that certificate.json describes")


def read_proof(folder: str | Path) -> SavedProof:
    """The proof saved in ``folder``, every digest, size, range and invariant checked; FileError otherwise."""
    folder = Path(folder)
    text = read_bounded(folder / CERTIFICATE, MAX_BYTES[CERTIFICATE])
    names = (BOXES, FUNCTION, *ATTACHMENTS)
    content = {name: data for name in names if (data := read_if_there(folder / name, MAX_BYTES[name])) is not None}
    try:
        function = content[FUNCTION].decode("utf-8") if FUNCTION in content else None
        record, digests = _record(text.decode("ascii"), function)
    except UnicodeDecodeError as error:
        raise FileError(f"{folder}: certificate.json must be ASCII and function.txt UTF-8 text") from error
    _need_same(folder, content, digests)
    tree = _cuts(content[BOXES]) if BOXES in content else None
    return SavedProof(record, tree, function, {name: content[name] for name in ATTACHMENTS if name in content})


def read_table(data: bytes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """X (N, ...) and Y (N, ...) in the bytes of table.safetensors, N >= 1 rows of finite float64 numbers each."""
    _, arrays = read_tensors(data, TABLE)
    if set(arrays) != {"X", "Y"}:
        raise FileError(f"{TABLE} must hold X and Y and nothing else")
    x, y = arrays["X"], arrays["Y"]
    if not (x.dtype.itemsize == y.dtype.itemsize == 8 and x.ndim >= 1 and y.ndim >= 1 and len(x) == len(y)):
        raise FileError(f"{TABLE} must hold as many rows in X as in Y, in F64")
    return x.astype(np.float64), y.astype(np.float64)


def _one_tree(code: NDArray[np.uint8], dim: int) -> bool:
    """Whether the bytes are one binary tree in preorder that cuts existing axes: each cut opens one box more."""
    sums = np.cumsum(np.where(code == LEAF, -1, 1))
    whole = sums[-1] == -1 and not (sums[:-1] < 0).any()
    return bool(whole and not ((code != LEAF) & (code >= dim)).any())


def _cuts(data: bytes) -> Cuts:
    """The tree in the bytes of boxes.bin; FileError unless every byte is accounted for."""
    if len(data) < _HEADER.size:
        raise FileError(f"boxes.bin is truncated: {len(data)} bytes, the header alone has {_HEADER.size}")
    magic, version, dim, nodes = _HEADER.unpack_from(data)
    if magic != MAGIC or version != BOXES_VERSION:
        raise FileError(f"boxes.bin is not a box file of version {BOXES_VERSION}")
    if not (1 <= dim <= MAX_DIM and 1 <= nodes <= MAX_NODES and dim * nodes <= MAX_NUMBERS):
        raise FileError(f"boxes.bin states {dim} coordinates and {nodes} nodes; the limits are {MAX_DIM}, {MAX_NODES}")
    if len(data) != _HEADER.size + 16 * dim + nodes:
        raise FileError(f"boxes.bin has {len(data)} bytes where {_HEADER.size + 16 * dim + nodes} belong")
    ends = np.frombuffer(data, "<f8", 2 * dim, _HEADER.size).tolist()
    code = np.frombuffer(data, np.uint8, nodes, _HEADER.size + 16 * dim)
    if not _one_tree(code, dim):
        raise FileError("boxes.bin: its bytes are not one box tree over the coordinates")
    return Cuts(tuple(ends[:dim]), tuple(ends[dim:]), code)


def _record(text: str, function: str | None = None) -> tuple[Record, dict[str, str]]:
    """The record in a JSON text and the sha256 of the files beside it; raises FileError on anything irregular.

    ``function`` is the content of function.txt, needed when the text was too long to repeat in the JSON.
    """
    data = _parse(text)
    names = {item.name for item in fields(Record)} - (OPTIONAL - set(data))
    if set(data) != names | {"format", "format_version", "files", "sha256"}:
        odd = sorted(set(data) ^ (names | {"format", "format_version", "files", "sha256"}))
        raise FileError(f"certificate.json has missing or unknown fields: {', '.join(map(repr, odd[:5]))}")
    files = _sealed(data)
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


def _sealed(data: dict[str, Any]) -> dict[str, str]:
    """Take out the seal, which must be right, and the digests of the files, which are returned."""
    stated = data.pop("sha256")
    if not isinstance(stated, str) or stated != _digest(data):
        raise FileError("certificate.json was changed: its fields do not match its sha256")
    files = data.pop("files")
    if not isinstance(files, dict) or not all(isinstance(v, str) and _SHA256.fullmatch(v) for v in files.values()):
        raise FileError("certificate.json: 'files' must map file names to sha256 digests")
    return files


def _parse(text: str | bytes) -> dict[str, Any]:
    data = strict_json(text, "certificate.json")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FileError(f"certificate.json is not a certificate: its 'format' must be {FORMAT!r}")
    if type(data.get("format_version")) is not int or data["format_version"] != FORMAT_VERSION:
        raise FileError(f"certificate.json has an unknown format_version; this program reads {FORMAT_VERSION}")
    return data


def _typed(name: str, value: Any) -> Any:
    """``value`` as the type of field ``name``, or an error: JSON lists become tuples, integers become floats."""
    if value is None and name in _MAY_BE_MISSING:
        return None
    return _KINDS[name](name, value)


def _text(name: str, value: Any) -> Any:
    return _checked(isinstance(value, str), name, value)


def _count(name: str, value: Any) -> Any:
    return _checked(isinstance(value, int) and not isinstance(value, bool), name, value)


def _bound(name: str, value: Any) -> float:
    """JSON has no infinity: it is written as a word."""
    return math.inf if value == "inf" else _real(name, value)


def _each(kind: Callable[[str, Any], Any], name: str, value: Any) -> tuple[Any, ...]:
    _checked(isinstance(value, list), name, value)
    return tuple(kind(name, item) for item in value)


def _corners(name: str, value: Any) -> tuple[Any, ...]:
    """Two lists of numbers: the lower and the upper corner of a box."""
    _checked(isinstance(value, list) and len(value) == 2, name, value)
    return tuple(_each(_real, name, side) for side in value)


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


# What each kind of claim has beside its name, and whether a value may stand there.
_ABOUT: dict[str, dict[str, Callable[[Any], bool]]] = {
    "range": {"low": lambda value: _listed(value, float), "high": lambda value: _listed(value, float)},
    "difference": {},
    "lipschitz": {"norm": lambda value: value in ("inf", "1", "2")},
    "slopes": {},
    "monotone": {
        "inputs": lambda value: _listed(value, int) and min(value) >= 0 and len(set(value)) == len(value),
        "signs": lambda value: _listed(value, int) and set(value) <= {1, -1},
    },
    "convex": {},
    "condition": {"text": lambda value: isinstance(value, str) and 0 < len(value) <= 4096},
}


def _listed(value: Any, kind: type[Any]) -> bool:
    """A list of numbers of one type, at least one, all finite."""
    return isinstance(value, list) and bool(value) and all(type(x) is kind and math.isfinite(x) for x in value)


def _settings(about: Mapping[str, Any]) -> bool:
    """Whether a claim is about something known: nothing, or a kind with its settings."""
    wanted = _ABOUT.get(str(about.get("kind")), {"": lambda value: False})
    if not about or set(about) != {"kind", *wanted}:
        return not about
    lists = [value for value in about.values() if isinstance(value, list)]
    sound = all(test(about[name]) for name, test in wanted.items()) and len({len(item) for item in lists}) <= 1
    return sound and ("low" not in about or all(a < b for a, b in zip(*lists, strict=True)))


def _object(name: str, value: Any) -> Any:
    return _checked(isinstance(value, dict), name, value)


_MAY_BE_MISSING = ("eps", "witness", "resisted")
_KINDS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("status", "arithmetic", "function", "weights_sha256", "version", "method", "claim"), _text),
    **dict.fromkeys(("boxes", "order"), _count),
    **dict.fromkeys(("eps", "lower", "seconds"), _real),
    **dict.fromkeys(("assumptions", "names"), partial(_each, _text)),
    **dict.fromkeys(("domain", "resisted"), _corners),
    "about": _object,
    "upper": _bound,
    "shape": partial(_each, _count),
    "witness": partial(_each, _real),
}


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


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _box_inside(corners: Any, low: Any, high: Any) -> bool:
    """Whether a box, if there is one, is a box and lies in the domain."""
    return corners is None or (_ordered(*corners) and all(_inside(side, low, high) for side in corners))
