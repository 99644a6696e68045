"""Networks on disk: one safetensors file, the program as a line of JSON in its metadata. See docs/file-format.md.

Nothing is ever unpickled or run; every size is checked before it is used.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from onelayer.disk import read_bounded, read_tensors, replace_file
from onelayer.errors import FileError
from onelayer.formats import WIDE, either, format_of, named
from onelayer.network.network import RecordedNetwork
from onelayer.network.program import read_program

FILE_NAME = "model.safetensors"
METADATA_KEY = "network"
MAX_BYTES = 2**32  # 4 GiB of weights


def save_network(network: RecordedNetwork, folder: str | os.PathLike[str], name: str = FILE_NAME) -> Path:
    """Write the file, whole or not at all; returns its path."""
    path = Path(folder) / name
    metadata = {METADATA_KEY: network.program.text()}
    replace_file(path, safetensors.torch.save(_tensors(network), metadata))
    return path


def is_network(folder: str | os.PathLike[str], name: str = FILE_NAME) -> bool:
    """Whether the file there says that it holds a network."""
    path = Path(folder) / name
    return METADATA_KEY in read_tensors(read_bounded(path, MAX_BYTES), str(path))[0]


def load_network(folder: str | os.PathLike[str], name: str = FILE_NAME) -> RecordedNetwork:
    """The network of a file, every name and shape checked against its program; FileError otherwise."""
    path = Path(folder) / name
    metadata, arrays = read_tensors(read_bounded(path, MAX_BYTES), str(path))
    # Alone: beside a second description the same bytes would be two models.
    if set(metadata) != {METADATA_KEY}:
        raise FileError(f"{path} does not hold a network: its metadata must be '{METADATA_KEY}' and nothing else")
    kinds = {array.dtype.newbyteorder("=").name for array in arrays.values()}
    if len(kinds) > 1 or not kinds <= {row.name for row in WIDE}:
        found = ", ".join(sorted(kinds))
        raise FileError(f"{path}: the tensors of a network are all {either('', WIDE)}, found {found}")
    shapes = {key: tuple(array.shape) for key, array in arrays.items()}
    program = read_program(metadata[METADATA_KEY], shapes)
    # Torch takes numbers in the byte order of the machine alone.
    native = {key: array.astype(array.dtype.newbyteorder("=")) for key, array in arrays.items()}
    dtype = named(kinds.pop()).dtype if kinds else torch.float64
    tensors = {key: torch.from_numpy(array).to(dtype) for key, array in native.items()}
    return RecordedNetwork(program, tensors)


def network_sha256(network: RecordedNetwork) -> str:
    """SHA-256 of the text of the program, a newline, and for every tensor in order of name its line and bytes."""
    # The program too: the same tensors make another function in another order.
    digest = hashlib.sha256((network.program.text() + "\n").encode())
    for name, tensor in sorted(_tensors(network).items()):
        shape = ",".join(str(size) for size in tensor.shape)
        line = f"{name} {format_of(tensor.dtype).tag} {shape}\n"
        array = tensor.numpy()
        digest.update(line.encode())
        digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _tensors(network: RecordedNetwork) -> dict[str, Tensor]:
    held = {name: network.tensor(name).detach() for name in network.program.tensors}
    return {name: tensor.cpu().contiguous() for name, tensor in held.items()}
