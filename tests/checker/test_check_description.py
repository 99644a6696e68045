"""The description of a model in its file says one thing: other spellings and a second one beside it are refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as write_arrays
from stated_folders import claimed, identity, restated

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.errors import FileError
from onelayer.layer.file import FILE_NAME, load_model
from onelayer.network.file import load_network

ONE = {"weight": np.zeros(1)}
TIMES = '{"format":"onelayer network","input":[1],"steps":[%s],"version":%s}'


def described(folder: Path, text: str, arrays: dict[str, np.ndarray], function: str, metadata: dict[str, str]) -> Path:
    """A folder that says of the network in the text that it is the function on [0, 1], exactly; signed."""
    box = Box([0.0], [1.0])
    claimed(folder, identity(), function, box, [255], upper=0.0)
    (folder / FILE_NAME).write_bytes(write_arrays(arrays, {"network": text, **metadata}))
    digest = hashlib.sha256(f"{text}\n".encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} F64 {','.join(map(str, array.shape))}\n".encode() + array.tobytes())
    return restated(folder, weights_sha256=digest.hexdigest(), arithmetic="real")


def refused_by_both(folder: Path) -> bool:
    """No reader takes the model."""
    for read in (check, load_network):
        with pytest.raises(FileError):
            read(folder)
    return True


@pytest.mark.parametrize(("number", "function"), [("3.0", "3*x1"), ("9007199254740992", "2**53*x1")])
def test_a_number_is_read_as_it_is_written(number: str, function: str, tmp_path: Path) -> None:
    step = f'{{"args":[0],"number":{number},"op":"scale","shape":[1]}}'
    assert check(described(tmp_path, TIMES % (step, 1), ONE, function, {})).ok


def test_a_whole_number_between_two_floats_is_refused(tmp_path: Path) -> None:
    """T(1) = 2^53 + 1 as it is written, and 2^53 as it was read."""
    step = f'{{"args":[0],"number":{2**53 + 1},"op":"scale","shape":[1]}}'
    assert refused_by_both(described(tmp_path, TIMES % (step, 1), ONE, "2**53*x1", {}))


@pytest.mark.parametrize("version", ["true", "1.0"])
def test_a_version_is_a_whole_number(version: str, tmp_path: Path) -> None:
    step = '{"args":[0],"op":"neg","shape":[1]}'
    assert refused_by_both(described(tmp_path, TIMES % (step, version), ONE, "-x1", {}))


def test_a_file_describes_one_model(tmp_path: Path) -> None:
    """T(x) = -3 x by the description of a network, and x by that of a layer, of the same weights."""
    claimed(tmp_path / "layer", identity(), "x1", Box([0.0], [1.0]), [255], upper=0.0)
    model = tmp_path / "layer" / FILE_NAME
    layer = load_model(tmp_path / "layer")
    assert layer(torch.ones(1, 1, dtype=torch.float64)) == 1
    header = model.read_bytes()
    begun = header.index(b'"onelayer":"') + len('"onelayer":"')
    text = header[begun : header.index(b'"}', begun)].decode().replace("\\", "")
    step = '{"args":[0],"number":-3.0,"op":"scale","shape":[1]},{"args":[1],"op":"arrange","shape":[]}'
    arrays = read_arrays(header)
    assert check(described(tmp_path / "network", TIMES % (step, 1), arrays, "-3*x1", {})).ok
    both = described(tmp_path / "both", TIMES % (step, 1), arrays, "-3*x1", {"onelayer": text})
    assert refused_by_both(both)
    with pytest.raises(FileError):
        load_model(both)
