"""Bytes to and from the disk: read with a limit, written whole or not at all, every failure one clear line."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from onelayer.errors import FileError


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of ``path``; a file of more than ``limit`` is refused without reading the rest."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > limit:
        raise FileError(f"{path} is larger than the limit of {limit:,} bytes")
    return data


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a reader sees the old content or the new one, never a part; makes folders."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise FileError(f"cannot write {path}: {reason}; choose a folder you can write to") from error
        raise
