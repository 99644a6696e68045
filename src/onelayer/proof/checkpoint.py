"""Checkpoints: the state of a long proof in one file, from which it goes on after the process is gone.

A file holds a line that says what it is, a line of JSON (the problem it belongs to, names, types and shapes of arrays,
a hash of their bytes) and the bytes of the arrays. The problem is a hash of the weights, the formula, the box, eps,
the versions of this package and of torch, and all else that the search depends on: another problem's is refused.

What is trusted: the bounds of the boxes that it calls bounded, and so the file carries a seal that only its writer can
make (proof/seal.py). Its tree and its boxes are read as hostile all the same and held against each other
(proof/resume.py), its witness is verified again and so are some of its bounds. ``onelayer check`` re-proves a
certificate from nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.disk import need_replaceable, read_bounded, replace_file, strict_json
from onelayer.errors import FileError
from onelayer.proof.seal import seal

Arrays = dict[str, NDArray[Any]]

MAGIC = b"onelayer checkpoint 3\n"
MAX_BYTES = 2**33  # tens of millions of boxes
# Seconds between two checkpoints: with what it takes to write one, less than a minute is ever lost.
EVERY = 30.0
SHARE = 0.1  # of the time, at most, is spent in writing
TYPES: dict[str, np.dtype[Any]] = {"f8": np.dtype("<f8"), "i8": np.dtype("<i8"), "i2": np.dtype("<i2")}


class Checkpoint:
    """Where a search leaves its state from time to time; nowhere without a path."""

    def __init__(self, path: Path | None, problem: str) -> None:
        if path is not None:
            need_replaceable(path)  # now, and not when the proof has ended
        self.path = path
        self.problem = problem
        self.started = time.monotonic()
        self.next = self.started + EVERY

    def leave(self, state: Callable[[], Arrays], *, now: bool = False) -> None:
        """Write the state if it is time to; a disk that refuses is said once and does not end a proof."""
        if self.path is None or not (now or time.monotonic() >= self.next):
            return
        started = time.monotonic()
        try:
            replace_file(self.path, packed(self.problem, state()))
        except FileError as error:
            warnings.warn(f"no checkpoint: {error}", stacklevel=2)
            self.path = None
        # A large state on a slow disk is written less often.
        taken = time.monotonic() - started
        self.next = time.monotonic() + max(EVERY, taken / SHARE)

    def end(self, state: Callable[[], Arrays], *, finished: bool) -> None:
        """A finished proof needs no checkpoint; one that ran out of time or boxes leaves its last state."""
        if self.path is not None and finished:
            # Where it could not be written either there is nothing to take away.
            with suppress(OSError):
                self.path.unlink()
        elif time.monotonic() - self.started >= EVERY:
            self.leave(state, now=True)


def packed(problem: str, arrays: Arrays) -> bytes:
    """The bytes of a checkpoint."""
    entries: list[Any] = []
    parts: list[bytes] = []
    for name, array in arrays.items():
        row = np.ascontiguousarray(array)
        entries.append([name, f"{row.dtype.kind}{row.dtype.itemsize}", list(row.shape)])
        # Little-endian whatever the machine: another one with the user's key may go on.
        parts.append(row.astype(row.dtype.newbyteorder("<"), copy=False).tobytes())
    body = b"".join(parts)
    header: dict[str, Any] = {"problem": problem, "arrays": entries, "sha256": hashlib.sha256(body).hexdigest()}
    header["seal"] = seal(json.dumps(header))
    return MAGIC + json.dumps(header).encode() + b"\n" + body


def unpacked(path: Path, problem: str) -> Arrays:
    """The arrays of a checkpoint of this problem; one line of error for anything else."""
    data = read_bounded(path, MAX_BYTES)
    first = data[: len(MAGIC)]
    second = data.find(b"\n", len(MAGIC))
    if first != MAGIC or second < 0:
        raise FileError(f"{path} is no checkpoint of a proof")
    header = strict_json(data[len(MAGIC) : second], str(path))
    if not isinstance(header, dict) or set(header) != {"problem", "arrays", "sha256", "seal"}:
        raise FileError(f"{path} is no checkpoint of a proof")
    if header["problem"] != problem:
        raise FileError(
            f"{path} is the checkpoint of another problem: weights, formula, box, eps and order must be the same"
        )
    # A view: the arrays of a long proof are gigabytes.
    body = memoryview(data)[second + 1 :]
    if hashlib.sha256(body).hexdigest() != header["sha256"]:
        raise FileError(f"{path} is damaged: its numbers are not those that were written")
    if header.pop("seal") != seal(json.dumps(header)):
        raise FileError(f"{path} was not written by this user on this machine: its bounds are not known to be right")
    return _arrays(header["arrays"], body, path)


def _arrays(entries: Any, body: memoryview, path: Path) -> Arrays:
    found: Arrays = {}
    at = 0
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise FileError(f"{path} describes its arrays in another way than a checkpoint does")
    for entry in entries:
        name, kind, shape = entry
        # Python integers: a product of hostile sides must not wrap around.
        size = int(np.prod(shape, dtype=object)) * TYPES[kind].itemsize
        if at + size > len(body):
            raise FileError(f"{path} is shorter than it says")
        part = np.frombuffer(body[at : at + size], dtype=TYPES[kind])
        found[name] = part.reshape(shape).astype(kind)
        at += size
    if at != len(body):
        raise FileError(f"{path} is longer than it says")
    return found


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[0], str) or entry[1] not in TYPES:
        return False
    shape = entry[2]
    if not isinstance(shape, list) or len(shape) > 2:
        return False
    return all(type(n) is int and n >= 0 for n in shape)
