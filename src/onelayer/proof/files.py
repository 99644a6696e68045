"""The files of a saved proof: certificate.json, boxes.bin, function.txt. docs/certificates.md describes every byte.

No torch here and no arithmetic beyond the format: the independent checker reads proofs through this module.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onelayer.disk import read_bounded, read_if_there, read_tensors, replace_file
from onelayer.errors import FileError, OnelayerError
from onelayer.proof.claim import Record, from_json, to_json
from onelayer.proof.tree import MAX_DIM, MAX_NODES, BoxTree

__all__ = ["BoxTree", "Record", "SavedProof", "read_proof", "write_proof"]

CERTIFICATE, BOXES, FUNCTION = "certificate.json", "boxes.bin", "function.txt"
ARGUMENT, TABLE = "argument.json", "table.safetensors"
ATTACHMENTS = (ARGUMENT, TABLE)  # what a proof without boxes, or beyond them, stands on
BELONG = {"lemma": (ARGUMENT,), "composition": (ARGUMENT,), "enumeration": ATTACHMENTS}
MAGIC = b"OLBOXES\n"
BOXES_VERSION = 1
_HEADER = struct.Struct("<8sIIQ")  # magic, version, D, nodes
MAX_BYTES = {CERTIFICATE: 2**24, BOXES: 2**29, FUNCTION: 2**24, ARGUMENT: 2**26, TABLE: 2**32}


@dataclass(frozen=True)
class SavedProof:
    """What a folder claims: the record, the boxes that carry the proof, and the text of f if it was recorded.

    ``attachments`` are the files beside those, by name: the argument of a lemma or composition, a memorised table.
    """

    record: Record
    tree: BoxTree | None
    function: str | None
    attachments: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record, tree = self.record, self.tree
        if record.recorded != (self.function is not None):
            raise FileError("certificate.json and function.txt disagree on whether the function was recorded")
        foreign = sorted(set(self.attachments) - set(BELONG.get(record.method, ())))
        if foreign:
            raise FileError(f"a certificate by {record.method} has no use for {', '.join(foreign)}")
        if tree is None:
            if record.boxes or record.method in ("branch and bound", "conditional on Lipschitz constant"):
                raise FileError(f"a certificate by {record.method} with {record.boxes} boxes needs boxes.bin")
            return
        if tree.leaves != record.boxes:
            raise FileError(f"boxes.bin holds {tree.leaves} boxes, certificate.json states {record.boxes}")
        if (tuple(tree.lower.tolist()), tuple(tree.upper.tolist())) != record.domain:
            raise FileError("the root box of boxes.bin is not the domain of certificate.json")


def write_proof(folder: str | Path, proof: SavedProof) -> None:
    """Write the files of ``proof`` into ``folder``, each atomically, certificate.json last.

    Interrupted at any moment, the folder holds the old proof, the new one, or files whose digests disagree, which
    :func:`read_proof` refuses.
    """
    folder = Path(folder)
    content = {}
    if proof.tree is not None:
        content[BOXES] = encode_boxes(proof.tree)
    if proof.function is not None:
        content[FUNCTION] = proof.function.encode("utf-8")
    content |= proof.attachments
    for name, data in content.items():
        if len(data) > MAX_BYTES[name]:
            raise FileError(f"cannot save: {name} has {len(data):,} bytes, a reader takes {MAX_BYTES[name]:,}")
    text = to_json(proof.record, {name: _sha256(data) for name, data in content.items()})
    for name in (BOXES, FUNCTION, *ATTACHMENTS):
        if name in content:
            replace_file(folder / name, content[name])
        else:
            (folder / name).unlink(missing_ok=True)
    replace_file(folder / CERTIFICATE, text.encode("ascii"))


def read_proof(folder: str | Path) -> SavedProof:
    """The proof saved in ``folder``, every digest, size, range and invariant checked; FileError otherwise."""
    folder = Path(folder)
    text = read_bounded(folder / CERTIFICATE, MAX_BYTES[CERTIFICATE])
    names = (BOXES, FUNCTION, *ATTACHMENTS)
    content = {name: data for name in names if (data := read_if_there(folder / name, MAX_BYTES[name])) is not None}
    try:
        function = content[FUNCTION].decode("utf-8") if FUNCTION in content else None
        record, digests = from_json(text.decode("ascii"), function)
    except UnicodeDecodeError as error:
        raise FileError(f"{folder}: certificate.json must be ASCII and function.txt UTF-8 text") from error
    found = {name: _sha256(data) for name, data in content.items()}
    if found != digests:
        odd = sorted(name for name in found.keys() | digests.keys() if found.get(name) != digests.get(name))
        raise FileError(f"{folder}: {', '.join(odd)} is not the file that certificate.json describes")
    tree = decode_boxes(content[BOXES]) if BOXES in content else None
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


def encode_boxes(tree: BoxTree) -> bytes:
    """boxes.bin: magic, version, D, nodes, root lower and upper corner, then one byte per node in preorder."""
    header = _HEADER.pack(MAGIC, BOXES_VERSION, tree.lower.size, tree.tree.size)
    return header + tree.lower.astype("<f8").tobytes() + tree.upper.astype("<f8").tobytes() + tree.tree.tobytes()


def decode_boxes(data: bytes) -> BoxTree:
    """The tree in the bytes of boxes.bin; FileError unless every byte is accounted for."""
    if len(data) < _HEADER.size:
        raise FileError(f"boxes.bin is truncated: {len(data)} bytes, the header alone has {_HEADER.size}")
    magic, version, dim, nodes = _HEADER.unpack_from(data)
    if magic != MAGIC or version != BOXES_VERSION:
        raise FileError(f"boxes.bin is not a box file of version {BOXES_VERSION}")
    if not (1 <= dim <= MAX_DIM and 1 <= nodes <= MAX_NODES):
        raise FileError(f"boxes.bin states {dim} coordinates and {nodes} nodes; the limits are {MAX_DIM}, {MAX_NODES}")
    if len(data) != _HEADER.size + 16 * dim + nodes:
        raise FileError(f"boxes.bin has {len(data)} bytes where {_HEADER.size + 16 * dim + nodes} belong")
    bounds = np.frombuffer(data, "<f8", 2 * dim, _HEADER.size)
    try:
        tree = BoxTree(bounds[:dim], bounds[dim:], np.frombuffer(data, np.uint8, nodes, _HEADER.size + 16 * dim))
        tree.boxes()
    except OnelayerError as error:
        raise FileError(f"boxes.bin: {error}") from error
    return tree


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
