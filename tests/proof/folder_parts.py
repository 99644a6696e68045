"""The files of a saved folder as bytes, taken apart and put together again, digests and all."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np

from onelayer.proof.claim import _digest

Folder = dict[str, bytes]
CERTIFICATE, BOXES, FUNCTION = "certificate.json", "boxes.bin", "function.txt"
MODEL, ARGUMENT, TABLE, OTHER = "model.safetensors", "argument.json", "table.safetensors", "other.safetensors"


def signed(folder: Folder) -> Folder:
    """Every digest computed anew, as far as the files can be read at all."""
    try:
        claim = json.loads(folder[CERTIFICATE])
        beside = [name for name in (BOXES, FUNCTION, ARGUMENT, TABLE, OTHER) if name in folder]
        claim["files"] = {name: hashlib.sha256(folder[name]).hexdigest() for name in beside}
        claim.pop("sha256", None)
        if MODEL in folder and isinstance(claim.get("weights_sha256"), str):
            claim["weights_sha256"] = weights_digest(folder[MODEL]) or claim["weights_sha256"]
        claim["sha256"] = _digest(claim)
        return {**folder, CERTIFICATE: json.dumps(claim).encode()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return folder


def opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and payload of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def closed(header: Any, payload: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + payload


def arrays_of(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Metadata and tensors."""
    header, payload = opened(data)
    metadata = header.pop("__metadata__", {})
    kinds = {"F64": "<f8", "F32": "<f4"}
    found = {}
    for name, entry in header.items():
        low, high = entry["data_offsets"]
        found[name] = np.frombuffer(payload[low:high], kinds[entry["dtype"]]).reshape(entry["shape"]).copy()
    return metadata, found


def stored(metadata: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at, parts = 0, []
    for name, array in arrays.items():
        data = array.tobytes()
        kind = "F32" if array.dtype.itemsize == 4 else "F64"
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    return closed(header, b"".join(parts))


def weights_digest(data: bytes) -> str | None:
    """Of a layer or a network: of the text that describes it, and of its tensors."""
    try:
        metadata, arrays = arrays_of(data)
        (described,) = metadata.values()
        digest = hashlib.sha256(f"{described}\n".encode())
        for name, array in sorted(arrays.items()):
            kind = "F32" if array.dtype.itemsize == 4 else "F64"
            digest.update(f"{name} {kind} {','.join(map(str, array.shape))}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
