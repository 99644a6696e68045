"""Models on disk: one safetensors file with the configuration in its metadata, written atomically, read with distrust.

The format is written down in docs/file-format.md. Nothing is ever unpickled; every size is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.disk import BITS, INT8, read_bounded, read_tensors, replace_file, strict_json
from onelayer.errors import FileError, OnelayerError
from onelayer.formats import FORMATS, NAMES, are_formats, format_of
from onelayer.layer.config import Config
from onelayer.layer.int8 import computed_tensors, stored_tensors
from onelayer.layer.memory import GridMemory, Memory, PlainMemory
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.layer.weights import memory_shapes, weight_shapes

FILE_NAME = "model.safetensors"
METADATA_KEY = "onelayer"
FORMAT = "onelayer model"
VERSION = 1  # of the file format
MAX_BYTES = 2**32  # 4 GiB of weights


def save_model(model: OneLayerTransformer, folder: str | os.PathLike[str]) -> Path:
    """Write ``model`` to folder/model.safetensors and return that path.

    The folder is made if missing. The file appears complete or not at all. Weights must be finite and of one format
    of the table: a file that ``load_model`` would refuse is not written.
    """
    tensors = _tensors(model)
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise FileError(f"cannot save: weight {name} holds nan or inf")
    payload = safetensors.torch.save(tensors, {METADATA_KEY: _describe(model.config)})
    # What no reader of ours would take is not written.
    if len(payload) > MAX_BYTES:
        raise FileError(f"cannot save: {len(payload):,} bytes exceed the limit of {MAX_BYTES:,}")
    path = Path(folder) / FILE_NAME
    replace_file(path, payload)
    return path


def load_model(folder: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> OneLayerTransformer:
    """The frozen model saved in ``folder``; FileError of one line for anything but a sound file of this version."""
    path = Path(folder) / FILE_NAME
    if not path.is_file():
        raise FileError(f"no model at {path}: expected a folder that contains {FILE_NAME}")
    data = read_bounded(path, max_bytes)
    metadata, arrays = read_tensors(data, str(path))
    config = _config(path, metadata)
    held = {name: _tensor(array) for name, array in arrays.items()}
    try:
        tensors = computed_tensors(held)
        # Before the layer is made: a configuration alone could ask for more memory than there is.
        dtype = _matching(path, config, tensors)
        model = OneLayerTransformer(config, _memories(config, tensors), dtype=dtype)
        model.set_weights({name: tensors[name] for name in weight_shapes(config)})
        # Scales are no weights of their own: a file that has some holds more tensors than the layer.
        model.integers = len(tensors) < len(held)
    except FileError:
        raise
    except OnelayerError as error:
        raise FileError(f"{path}: {error}") from error
    return model.requires_grad_(False)


def weights_sha256(model: OneLayerTransformer) -> str:
    """SHA-256 of configuration and weights; equal for equal models, whatever wrote them.

    Hashed are the description stored in the file, a newline, and for every tensor in order of name the line
    "name dtype size,size,...\\n" followed by its little-endian bytes.
    """
    digest = hashlib.sha256((_describe(model.config) + "\n").encode())
    # By name, since the order of a state_dict is that of its making.
    for name, tensor in sorted(_tensors(model).items()):
        shape = ",".join(str(size) for size in tensor.shape)
        whole = tensor.dtype == torch.int8
        tag = INT8 if whole else format_of(tensor.dtype).tag
        digest.update(f"{name} {tag} {shape}\n".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    """The numbers of a tensor, little-endian on any machine."""
    # NumPy has no bfloat16: its numbers go as their bits.
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    array = tensor.numpy()
    little = array.dtype.newbyteorder("<")
    return array.astype(little).tobytes()


def _tensor(array: NDArray[Any]) -> Tensor:
    """An array of a file as a tensor of its format; bfloat16 comes as its bits."""
    own = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    if array.dtype == BITS:
        return own.view(torch.bfloat16)
    return own


def _tensors(model: OneLayerTransformer) -> dict[str, Tensor]:
    tensors = {}
    for name, value in model.state_dict().items():
        tensors[name] = value.detach().cpu().contiguous()
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) != 1 or not are_formats(dtypes):
        raise FileError(f"a saved model has all its weights in {' or all in '.join(NAMES)}; use model.double()")
    return stored_tensors(tensors) if model.int8 else tensors


def _describe(config: Config) -> str:
    document = {"format": FORMAT, "version": VERSION, "config": config.to_dict()}
    # One text for one configuration, since it is hashed: keys in order, no blanks.
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _config(path: Path, metadata: Mapping[str, str]) -> Config:
    """The configuration in the metadata of the file."""
    document = None
    # Alone: beside a second description the same bytes would be two models.
    if set(metadata) == {METADATA_KEY}:
        document = strict_json(metadata[METADATA_KEY], f"the metadata of {path}")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileError(f"{path} was not written by onelayer: its metadata has no '{FORMAT}', or more than that")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise FileError(f"{path} has format version {str(version)[:20]}; this onelayer reads {VERSION}")
    try:
        return Config.from_dict(document.get("config", {}))
    except OnelayerError as error:
        raise FileError(f"{path} has a bad configuration: {error}") from error


def _matching(path: Path, config: Config, arrays: Mapping[str, Tensor]) -> torch.dtype:
    """The one dtype of the weights, which are exactly those that the configuration implies."""
    expected = weight_shapes(config) | memory_shapes(config)
    for name in sorted(set(expected) | set(arrays)):
        found = list(arrays[name].shape) if name in arrays else None
        if name not in expected or found != list(expected[name]):
            right = list(expected[name]) if name in expected else "no such weight"
            raise FileError(f"{path}: weight {name} has shape {found}, configured is {right}")
    dtypes = {array.dtype for array in arrays.values()}
    if len(dtypes) != 1 or not are_formats(dtypes):
        tags = [row.tag for row in FORMATS]
        raise FileError(f"{path}: weights must be all {' or all '.join(tags)}")
    return dtypes.pop()


def _memories(config: Config, tensors: dict[str, Tensor]) -> list[Memory | None]:
    memories: list[Memory | None] = []
    for h, head in enumerate(config.heads):
        name = f"memory.{h}"
        if head.memory == "none":
            memories.append(None)
        elif head.memory == "plain":
            keys = tensors[f"{name}.keys"]
            memories.append(PlainMemory(keys, tensors[f"{name}.values"]))
        else:
            names = [f"{name}.axes.{a}" for a in range(len(head.tokens))]
            axes = [tensors[axis] for axis in names]
            memories.append(GridMemory(axes, tensors[f"{name}.values"]))
    return memories
