"""The files of a saved proof: certificate.json, boxes.bin, function.txt. docs/certificates.md describes every byte.

The independent checker has a reader of its own (checker/reader.py).
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onelayer.disk import read_bounded, read_if_there, read_tensors, replace_file
from onelayer.errors import FileError, OnelayerError
from onelayer.ground import pinned
from onelayer.proof.certificate import Certificate
from onelayer.proof.claim import CONDITIONAL, CURVED, ESTIMATED, from_json, to_json
from onelayer.proof.rules import ARGUMENT, ATTACHMENTS, OTHER, TABLE
from onelayer.proof.tree import MAX_DIM, MAX_NODES, BoxTree

__all__ = [
    "ARGUMENT",
    "ATTACHMENTS",
    "BOXES",
    "CERTIFICATE",
    "FUNCTION",
    "OTHER",
    "TABLE",
    "read_proof",
    "read_table",
    "write_proof",
]

CERTIFICATE, BOXES, FUNCTION = "certificate.json", "boxes.bin", "function.txt"
# Methods that need boxes.
BOXED = ("branch and bound", CONDITIONAL, CURVED, ESTIMATED)
MAGIC = b"OLBOXES\n"
BOXES_VERSION = 1  # of boxes.bin
_HEADER = struct.Struct("<8sIIQ")  # magic, version, D, nodes
# What is read at most: sixteen million numbers as text, a tree of half a gigabyte, tables and networks of four.
MAX_BYTES = {CERTIFICATE: 2**24, BOXES: 2**29, FUNCTION: 2**24, ARGUMENT: 2**26, TABLE: 2**32, OTHER: 2**32}


@pinned()
def write_proof(folder: str | Path, proof: Certificate) -> None:
    """Write the files of a certificate into ``folder``, each atomically, certificate.json last.

    Interrupted at any moment, the folder holds the old proof, the new one, or files whose digests disagree, which
    :func:`read_proof` refuses.
    """
    folder = Path(folder)
    _complete(proof)
    content = {}
    if proof.proof is not None:
        content[BOXES] = encode_boxes(proof.proof)
    if proof.recorded:
        content[FUNCTION] = proof.function.encode("utf-8")
    content |= proof.attachments
    for name, data in content.items():
        # Before anything is written: what no reader takes is not worth having.
        if len(data) > MAX_BYTES[name]:
            raise FileError(f"cannot save: {name} has {len(data):,} bytes, a reader takes {MAX_BYTES[name]:,}")
    digests = {name: _sha256(data) for name, data in content.items()}
    text = to_json(proof.plain(), digests)
    for name in (BOXES, FUNCTION, *ATTACHMENTS):
        if name in content:
            replace_file(folder / name, content[name])
        else:
            (folder / name).unlink(missing_ok=True)
    # Last, so that its digests speak of files that are already there.
    replace_file(folder / CERTIFICATE, text.encode("ascii"))


def _need_same(folder: Path, content: dict[str, bytes], digests: dict[str, str]) -> None:
    """The files are those that the certificate describes, none missing and none more."""
    found = {name: _sha256(data) for name, data in content.items()}
    if found != digests:
        every = found.keys() | digests.keys()
        odd = sorted(name for name in every if found.get(name) != digests.get(name))
        raise FileError(f"{folder}: {', '.join(odd)} is not the file that certificate.json describes")


def read_proof(folder: str | Path) -> Certificate:
    """The proof saved in ``folder``, every digest, size, range and invariant checked; FileError otherwise."""
    folder = Path(folder)
    text = read_bounded(folder / CERTIFICATE, MAX_BYTES[CERTIFICATE])
    content = _content(folder)
    try:
        function = content[FUNCTION].decode("utf-8") if FUNCTION in content else None
        claim, digests = from_json(text.decode("ascii"), function)
    except UnicodeDecodeError as error:
        raise FileError(f"{folder}: certificate.json must be ASCII and function.txt UTF-8 text") from error
    # Before the boxes are read: every file is the one that the claim was sealed with.
    _need_same(folder, content, digests)
    tree = decode_boxes(content[BOXES]) if BOXES in content else None
    attached = {name: content[name] for name in ATTACHMENTS if name in content}
    try:
        proof = Certificate.from_plain(claim, tree, attached)
    except OnelayerError as error:
        raise FileError(f"{folder}: {error}") from error
    if proof.recorded != (function is not None):
        raise FileError("certificate.json and function.txt disagree on whether the function was recorded")
    _complete(proof)
    return proof


def _content(folder: Path) -> dict[str, bytes]:
    """The files beside the certificate that are there."""
    names = (BOXES, FUNCTION, *ATTACHMENTS)
    data = {name: read_if_there(folder / name, MAX_BYTES[name]) for name in names}
    return {name: held for name, held in data.items() if held is not None}


def _complete(proof: Certificate) -> None:
    """What a certificate in memory may lack, a saved one needs: the boxes that carry it."""
    if proof.proof is None and (proof.boxes or proof.method in BOXED):
        raise FileError(f"a certificate by {proof.method} with {proof.boxes} boxes needs boxes.bin")


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


def encode_boxes(tree: BoxTree) -> bytes:
    """boxes.bin: magic, version, D, nodes, root lower and upper corner, then one byte per node in preorder."""
    header = _HEADER.pack(MAGIC, BOXES_VERSION, tree.lower.size, tree.tree.size)
    corners = tree.lower.astype("<f8").tobytes() + tree.upper.astype("<f8").tobytes()
    return header + corners + tree.tree.tobytes()


def decode_boxes(data: bytes) -> BoxTree:
    """The tree in the bytes of boxes.bin; FileError unless every byte is accounted for."""
    if len(data) < _HEADER.size:
        raise FileError(f"boxes.bin is truncated: {len(data)} bytes, the header alone has {_HEADER.size}")
    magic, version, dim, nodes = _HEADER.unpack_from(data)
    if magic != MAGIC or version != BOXES_VERSION:
        raise FileError(f"boxes.bin is not a box file of version {BOXES_VERSION}")
    if not (1 <= dim <= MAX_DIM and 1 <= nodes <= MAX_NODES):
        raise FileError(f"boxes.bin states {dim} coordinates and {nodes} nodes; the limits are {MAX_DIM}, {MAX_NODES}")
    start = _HEADER.size + 16 * dim  # of the nodes, behind two corners of eight bytes a coordinate
    if len(data) != start + nodes:
        raise FileError(f"boxes.bin has {len(data)} bytes where {start + nodes} belong")
    bounds = np.frombuffer(data, "<f8", 2 * dim, _HEADER.size)
    try:
        tree = BoxTree(bounds[:dim], bounds[dim:], np.frombuffer(data, np.uint8, nodes, start))
        # Every cut is made once here: one that has no float between its ends is found before anybody relies on it.
        tree.boxes()
    except OnelayerError as error:
        raise FileError(f"boxes.bin: {error}") from error
    return tree


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
