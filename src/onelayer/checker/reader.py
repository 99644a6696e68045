"""The checker's own reader of a saved proof: certificate.json, boxes.bin, function.txt and what is attached.

It shares the format with the writer (docs/certificates.md describes every byte) and no code but the three readers of
bytes: what the writer believes of its own files is not believed here.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.checker.fields import typed
from onelayer.checker.record import BOXED, SHA256, Record
from onelayer.disk import read_bounded, read_if_there, read_tensors, strict_json
from onelayer.errors import FileError, OnelayerError

FORMAT = "onelayer certificate"
FORMAT_VERSION = 1  # of certificate.json
OPTIONAL = {"names", "claim", "about", "within"}  # fields that files of earlier versions do not have
CERTIFICATE, BOXES, FUNCTION = "certificate.json", "boxes.bin", "function.txt"
ARGUMENT, TABLE, OTHER = "argument.json", "table.safetensors", "other.safetensors"
ATTACHMENTS = (ARGUMENT, TABLE, OTHER)
BELONG = {"lemma": (ARGUMENT,), "composition": (ARGUMENT,), "enumeration": (ARGUMENT, TABLE)}
# What is read at most: sixteen million numbers as text, a tree of half a gigabyte, tables and networks of four.
MAX_BYTES = {CERTIFICATE: 2**24, BOXES: 2**29, FUNCTION: 2**24, ARGUMENT: 2**26, TABLE: 2**32, OTHER: 2**32}
MAGIC, BOXES_VERSION = b"OLBOXES\n", 1  # first bytes and version of boxes.bin
# The byte of a box, axes below it, and what fits in memory.
LEAF, MAX_DIM, MAX_NODES, MAX_NUMBERS = 255, 254, 2**28 - 1, 2**26
_HEADER = struct.Struct("<8sIIQ")  # magic, version, D, nodes


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
        record = self.record
        tree = self.tree
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
    found = {name: read_if_there(folder / name, MAX_BYTES[name]) for name in names}
    content = {name: data for name, data in found.items() if data is not None}
    try:
        function = content[FUNCTION].decode("utf-8") if FUNCTION in content else None
        record, digests = _record(text.decode("ascii"), function)
    except UnicodeDecodeError as error:
        raise FileError(f"{folder}: certificate.json must be ASCII and function.txt UTF-8 text") from error
    _need_same(folder, content, digests)
    tree = _cuts(content[BOXES]) if BOXES in content else None
    attached = {name: content[name] for name in ATTACHMENTS if name in content}
    return SavedProof(record, tree, function, attached)


def read_table(data: bytes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """X (N, ...) and Y (N, ...) in the bytes of table.safetensors, N >= 1 rows of finite float64 numbers each."""
    _, arrays = read_tensors(data, TABLE)
    if set(arrays) != {"X", "Y"}:
        raise FileError(f"{TABLE} must hold X and Y and nothing else")
    x = arrays["X"]
    y = arrays["Y"]
    if not (x.dtype.itemsize == y.dtype.itemsize == 8 and x.ndim >= 1 and y.ndim >= 1 and len(x) == len(y)):
        raise FileError(f"{TABLE} must hold as many rows in X as in Y, in F64")
    return x.astype(np.float64), y.astype(np.float64)


def _one_tree(code: NDArray[np.uint8], dim: int) -> bool:
    """Whether the bytes are one binary tree in preorder that cuts existing axes: each cut opens one box more."""
    leaf = code == LEAF
    open_boxes = np.cumsum(np.where(leaf, -1, 1))
    # The last box closes the tree, and no earlier one: bytes behind it would be read by nobody.
    whole = open_boxes[-1] == -1 and not (open_boxes[:-1] < 0).any()
    beyond = ~leaf & (code >= dim)
    return bool(whole and not beyond.any())


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
    odd = sorted(set(data) ^ {*names, "format", "format_version", "files", "sha256"})
    if odd:
        raise FileError(f"certificate.json has missing or unknown fields: {', '.join(map(repr, odd[:5]))}")
    files = _sealed(data)
    if data["function"] is None:
        if function is None:
            raise FileError("certificate.json refers to function.txt, which is not there")
        data["function"] = function
    try:
        record = Record(**{name: typed(name, data[name]) for name in names})
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
    if not isinstance(files, dict) or not all(isinstance(v, str) and SHA256.fullmatch(v) for v in files.values()):
        raise FileError("certificate.json: 'files' must map file names to sha256 digests")
    return files


def _parse(text: str | bytes) -> dict[str, Any]:
    data = strict_json(text, "certificate.json", shortest=True)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FileError(f"certificate.json is not a certificate: its 'format' must be {FORMAT!r}")
    if type(data.get("format_version")) is not int or data["format_version"] != FORMAT_VERSION:
        raise FileError(f"certificate.json has an unknown format_version; this program reads {FORMAT_VERSION}")
    return data


def _digest(data: dict[str, Any]) -> str:
    """sha256 of the canonical JSON (sorted keys, no spaces, ASCII) of all fields but 'sha256' itself."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
