"""Bytes to and from the disk: what is read is bounded and plain, what is written is whole, failures are one line.

A folder may come from anybody. Three readers stand between its files and the rest of the package, and nothing else
opens them: :func:`read_bounded` for bytes, :func:`strict_json` for JSON, :func:`read_tensors` for safetensors.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.errors import FileError
from onelayer.formats import BFLOAT16, FORMATS

# 32 MiB: names and shapes of a million tensors.
MAX_HEADER_BYTES = 2**25
MAX_AXES = 32  # as many as NumPy has allowed for long
MAX_INTEGER = 2**63  # of JSON: beyond, other readers overflow
# Whole numbers of 8 bits, for weights with scales beside them.
INT8 = "I8"
# NumPy has no bfloat16: its numbers are read as their 16 bits.
BITS = np.dtype(np.uint16).newbyteorder("<")
DTYPES: dict[str, np.dtype[Any]] = {
    row.tag: np.dtype(row.name).newbyteorder("<") for row in FORMATS if row is not BFLOAT16
}
DTYPES |= {BFLOAT16.tag: BITS, INT8: np.dtype(np.int8)}


def as_path(given: Any) -> Path:
    """A path from what a user gives for one; FileError of one line for anything else."""
    if not isinstance(given, str | os.PathLike):
        raise FileError(f"a path is text or a Path, got {repr(given)[:60]}")
    try:
        return Path(given)
    # Some paths are bytes inside.
    except TypeError as error:
        raise FileError(f"a path is text or a Path, got {repr(given)[:60]}") from error


# No waiting for the writer of a pipe, no link in the last place, no line ends changed; systems lack some of the flags.
_OPEN = os.O_RDONLY
for _flag in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"):
    _OPEN |= getattr(os, _flag, 0)


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of the regular file ``path``; a link, a pipe, a device, or more than ``limit`` bytes is refused unread.

    Opening does not wait: a pipe without a writer is recognised as one.
    """
    try:
        data = _read(path, limit)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    except FileError:
        raise
    # A name that no file can have; a file larger than the memory.
    except (ValueError, MemoryError) as error:
        raise FileError(f"cannot read {path}: {error or 'not enough memory'}") from error
    if data is None or len(data) > limit:
        raise FileError(f"{path} is larger than the limit of {limit:,} bytes")
    return data


def _read(path: Path, limit: int) -> bytes | None:
    """The bytes of a regular file, one more than ``limit`` if it grew beyond that; None of one that is larger."""
    # Twice: some systems have no flag against links, and what lies there may change between the two calls.
    _need_regular(path, os.lstat(path))
    with os.fdopen(os.open(path, _OPEN), "rb") as file:
        status = os.fstat(file.fileno())
        _need_regular(path, status)
        if status.st_size > limit:
            return None
        # One byte more than it has shows a file that grew; room for the whole limit is taken for such a one alone.
        data = file.read(status.st_size + 1)
        if len(data) > status.st_size:
            data += file.read(limit + 1 - len(data))
        return data


def _need_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"cannot read {path}: it is not a regular file")


def read_if_there(path: Path, limit: int) -> bytes | None:
    """Like :func:`read_bounded`, None when nothing has that name; a dangling link has it."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
    except ValueError:
        pass
    return read_bounded(path, limit)


def strict_json(text: str | bytes, name: str, *, shortest: bool = False) -> Any:
    """The value of a JSON text in which every number is finite, every key single and every string proper Unicode.

    Python's own reader takes NaN, 1e999 (as infinity), repeated keys and halves of surrogate pairs; each of them would
    surface later as an error of another kind. Where numbers are claims each has to be the ``shortest`` decimal of the
    float that it is read as: 1e-400 would be one claim in the file and 0 another one here.
    """
    real = _shortest if shortest else _finite
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=real, parse_int=_integer
        )
        # Halves of surrogate pairs cannot be written back.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise FileError(f"{name} is not valid JSON: {str(reason)[:120]}") from error
    return value


def canonical_json(text: str, name: str) -> Any:
    """The value of a strict JSON text that is written in the one way that is hashed: keys in order, no spaces."""
    value = strict_json(text, name)
    if json.dumps(value, sort_keys=True, separators=(",", ":")) != text:
        raise FileError(f"{name} is not written as it is hashed: keys in order, and nothing between its words")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a field appears twice")
    return data


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is not a finite number")
    return value


def _shortest(digits: str) -> float:
    """The float of a decimal that is as long as it has to be; 1e-2 and 0.010 are as short as 0.01."""
    value = _finite(digits)
    # Of zero by its digits, whose exponent may be of any length.
    if value:
        same = Decimal(digits) == Decimal(repr(value))
    else:
        same = not digits.lower().partition("e")[0].strip("-0.")
    if not same:
        raise ValueError(f"{digits[:40]} is no float64 number; the nearest one is {value!r}")
    return value


def _integer(digits: str) -> int:
    # By length first: Python takes quadratic time to read a long number, and refuses one of some thousand digits.
    if len(digits) > 20 or abs(int(digits)) > MAX_INTEGER:
        raise ValueError(f"the whole number {digits[:20]}... is out of range")
    return int(digits)


def spelled_out(value: Any) -> Any:
    """Plain data for JSON, which has no infinity and no NaN: such numbers become words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [spelled_out(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): spelled_out(item) for key, item in value.items()}
    return value


def read_tensors(data: bytes, name: str) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Metadata and arrays of a safetensors file: floats of the table alone, finite, each byte of it in one tensor.

    Eight bytes of little-endian length, a JSON header of that length, then the payload. Arrays of BF16 are the 16 bits
    of each number; ``from_bits`` gives the numbers.
    """
    header, first = _header(data, name)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise FileError(f"{name} is corrupt: its metadata must be texts")
    spans = []
    arrays = {}
    for key, entry in header.items():
        dtype, shape, span = _entry(entry, f"{name}: tensor {key}")
        start, end = span
        if end > len(data) - first:
            raise FileError(f"{name} is truncated: tensor {key} ends after the file")
        spans.append(span)
        flat = np.frombuffer(data, dtype, math.prod(shape), first + start)
        arrays[key] = flat.reshape(shape)
    _need_cover(spans, len(data) - first, name)
    for key, array in arrays.items():
        numbers = _from_bits(array) if array.dtype == BITS else array
        if not np.isfinite(numbers).all():
            raise FileError(f"{name} holds nan or inf in tensor {key}")
    return metadata, arrays


def _from_bits(array: NDArray[Any]) -> NDArray[np.float32]:
    """The bfloat16 numbers with these 16 bits, as float32: their bits are the upper half of its own."""
    return (array.astype(np.uint32) << 16).view(np.float32)


def _header(data: bytes, name: str) -> tuple[dict[str, Any], int]:
    """The JSON header, and where the payload begins."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8 or length > MAX_HEADER_BYTES:
        raise FileError(f"{name} is truncated or not a safetensors file")
    header = strict_json(data[8 : 8 + length], f"the header of {name}")
    if not isinstance(header, dict):
        raise FileError(f"{name} is corrupt: its header is not a JSON object")
    return header, 8 + length


def _need_cover(spans: list[tuple[int, int]], size: int, name: str) -> None:
    """Each byte of the payload belongs to one tensor."""
    spans = sorted(spans)
    ends = [0, *(end for _, end in spans)]
    if [start for start, _ in spans] != ends[:-1] or ends[-1] != size:
        raise FileError(f"{name} is corrupt: its tensors overlap or leave bytes out")


def _whole(numbers: Any, least: int) -> bool:
    """Whether this is a list of whole numbers, none below ``least``."""
    if not isinstance(numbers, list):
        return False
    # Not isinstance: JSON's true would count as 1.
    return all(type(n) is int and n >= least for n in numbers)


def _entry(entry: Any, where: str) -> tuple[np.dtype[Any], tuple[int, ...], tuple[int, int]]:
    """Type, shape and byte range of one tensor, consistent with each other."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FileError(f"{where} needs dtype, shape and data_offsets")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise FileError(f"{where} must be {' or '.join(DTYPES)}, found {entry['dtype']}")
    dtype = DTYPES[entry["dtype"]]
    shape = entry["shape"]
    offsets = entry["data_offsets"]
    if not (_whole(shape, 1) and _whole(offsets, 0) and len(shape) <= MAX_AXES and len(offsets) == 2):
        raise FileError(f"{where} has a malformed shape or range")
    start, end = offsets
    if end - start != math.prod(shape) * dtype.itemsize:
        raise FileError(f"{where} has {end - start} bytes, which do not fill the shape {shape}")
    return dtype, tuple(shape), (start, end)


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a reader sees the old content or the new one, never a part; makes folders.

    A device, a pipe or a socket of that name is refused: the move would put a file in its place.
    """
    need_replaceable(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, since only a move within one file system happens at once.
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # Temporary files are for their owner alone; what is saved is as readable as any new file.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise FileError(f"cannot write {path}: {reason}; choose a folder you can write to") from error
        raise


def need_replaceable(path: Path) -> None:
    """A name that a file can have, of nothing or of a regular file, or a link to one.

    What is not there may still come: a folder that is made, a disk that is mounted.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    # Names that no file can have are ValueErrors.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"cannot write {path}: {reason}; choose another name") from error
    if not stat.S_ISREG(mode):
        raise FileError(f"cannot write {path}: it is not a regular file; choose another name")


def replace_files(folder: Path, write: Callable[[Path], object]) -> None:
    """The files that ``write`` makes in the folder that it is given, each put whole into ``folder``.

    For libraries that write to files themselves: they would wait for the reader of a pipe, and leave halves behind.
    """
    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
        for file in sorted(Path(place).iterdir()):
            replace_file(folder / file.name, file.read_bytes())
