"""Checkpoints: one safetensors file with everything a run depends on, replaced at once, never unpickled.

Nested states (an optimiser's, for one) are split into tensors and a JSON skeleton that names them. The skeleton is the
file's metadata, so weights, optimiser, random state and history are of one moment whatever ends the process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from onelayer.disk import read_if_there, replace_file
from onelayer.errors import FileError

FILE_NAME = "checkpoint.safetensors"
MOST_BYTES = 2**36  # of a checkpoint, beyond what a training on one machine keeps
METADATA_KEY = "onelayer training"
TENSOR, TUPLE, PAIRS = "$tensor", "$tuple", "$pairs"


def write_checkpoint(folder: str | Path, state: dict[str, Any]) -> Path:
    """Write ``state`` (dicts, lists, tuples, numbers, strings, None and tensors) to folder/checkpoint.safetensors."""
    path = Path(folder) / FILE_NAME
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(split(state, tensors))
    payload = safetensors.torch.save(tensors, {METADATA_KEY: skeleton})
    replace_file(path, payload)
    return path


def read_checkpoint(folder: str | Path) -> dict[str, Any] | None:
    """The state written last, or None where there is none; FileError for anything that is not such a file."""
    path = Path(folder) / FILE_NAME
    data = read_if_there(path, MOST_BYTES)
    if data is None:
        return None
    try:
        tensors = safetensors.torch.load(data)
        # The header has been read as one: its length in eight bytes, then JSON.
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        text = header.get("__metadata__", {}).get(METADATA_KEY)
        if text is None:
            raise FileError(f"{path} is no checkpoint of a training run; choose another folder")
        state = joined(json.loads(text), tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, FileError):
            raise
        line = " ".join(str(error).split())[:200]
        raise FileError(f"{path} is corrupt ({line}); remove it to start the training anew") from error
    if not isinstance(state, dict):
        raise FileError(f"{path} is corrupt (no state inside); remove it to start the training anew")
    return state


def split(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A JSON skeleton of ``value``; its tensors are added to ``tensors`` under the names the skeleton gives them."""
    if isinstance(value, Tensor):
        name = f"{len(tensors)}"
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {TENSOR: name}
    if isinstance(value, dict):
        return {PAIRS: [[split(key, tensors), split(item, tensors)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {TUPLE: [split(item, tensors) for item in value]}
    if isinstance(value, list):
        return [split(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__}")


def joined(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    """Inverse of :func:`split`."""
    if isinstance(skeleton, list):
        return [joined(item, tensors) for item in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    if TENSOR in skeleton:
        return tensors[skeleton[TENSOR]]
    if TUPLE in skeleton:
        return tuple(joined(item, tensors) for item in skeleton[TUPLE])
    return {joined(key, tensors): joined(item, tensors) for key, item in skeleton[PAIRS]}
