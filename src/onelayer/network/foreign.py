"""read_network: a model file of anybody as a network, by its ending. Nothing is unpickled and nothing of it is run."""

from __future__ import annotations

import os
from pathlib import Path

from onelayer.errors import FileError, OnelayerError
from onelayer.network.architecture import read_weights
from onelayer.network.exported import read_exported
from onelayer.network.network import RecordedNetwork
from onelayer.network.onnx_file import read_onnx

READ = "an ONNX file, a torch.export archive (.pt2), or weights (.safetensors) with an architecture"


def read_network(path: str | os.PathLike[str], architecture: str | None = None) -> RecordedNetwork:
    """The network of a file: .onnx, .pt2 or .pt of torch.export, or .safetensors with a named ``architecture``."""
    file = Path(path)
    ending = file.suffix.lower()
    if ending == ".safetensors":
        if architecture is None:
            raise OnelayerError(f"{file} holds weights alone; name their architecture, for example mlp:2,32,32,1:tanh")
        return read_weights(file, architecture)
    if architecture is not None:
        raise OnelayerError("an architecture is for files of weights, .safetensors")
    if ending == ".onnx":
        return read_onnx(file)
    if ending in (".pt2", ".pt", ".pth"):
        return read_exported(file)
    raise FileError(f"{file} is no model that is read: {READ}")
