"""A seal on a state that a proof goes on from: its bounds are believed, so nobody else may have written them.

The key is a file of the user's own, made when it is first needed: ``onelayer/key`` below ``$XDG_STATE_HOME``, or below
``~/.local/state``. Who can read it can write in the user's place anyway.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from onelayer.disk import read_bounded
from onelayer.errors import FileError

BYTES = 32  # of the key: as many as the hash has


def seal(text: str) -> str:
    """A word that only who has the key can make for this text."""
    return hmac.new(_key(), text.encode(), hashlib.sha256).hexdigest()


def _key() -> bytes:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "onelayer" / "key"
    if not path.exists():
        _make(path)
    key = read_bounded(path, BYTES)
    if len(key) != BYTES:
        raise FileError(f"{path} is not a key of {BYTES} bytes; remove it")
    return key


def _make(path: Path) -> None:
    """A new key, whole or not at all; that of another process stays if it came first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, beside = tempfile.mkstemp(dir=path.parent)  # readable by the user alone
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(BYTES))
            # Linked, not moved: of two processes that come at the same time, both go on with the key of the first.
            with suppress(FileExistsError):
                os.link(beside, path)
        finally:
            Path(beside).unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
