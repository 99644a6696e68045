"""Whole weights and their scales: the checker opens the files that the package opens, and no others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from stated_folders import claimed

from onelayer.box import Box
from onelayer.checker.check import check
from onelayer.checker.weights import column_scales
from onelayer.errors import FileError, OnelayerError
from onelayer.layer.file import load_model
from onelayer.layer.int8 import integers
from onelayer.layer.memory import PlainMemory
from onelayer.layer.transformer import OneLayerTransformer

Change = Callable[[dict[str, np.ndarray]], None]


def real_line(folder: Path) -> Path:
    """A claim in real arithmetic about T(x) = x, whose head writes nothing, with weights of 8 bits."""
    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    weights = {"W_E": one, "W_Q": zero, "W_O": zero, "W_R": one, **{f"b_{k}": zero[0] for k in "EQOR"}}
    model = OneLayerTransformer.packed(
        (1,), (), [PlainMemory(zero, zero)], d_model=1, residual=True, hidden=0, weights=weights
    ).float()
    box = Box(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    return claimed(folder, model, "x1", box, [255], upper=1e-6)


def stored_whole(folder: Path, change: Change) -> None:
    """Every matrix as whole numbers with scales, then changed; the claim is signed for what comes of it."""
    path = folder / "model.safetensors"
    with safe_open(path, "np") as file:
        described = file.metadata()
    tensors = {}
    for name, value in load_file(path).items():
        tensors[name] = value.astype(np.int8) if value.ndim > 1 else value
        if value.ndim > 1:
            tensors[f"{name}.scale"] = np.ones(value.shape[-1], dtype=np.float32)
    change(tensors)
    save_file(tensors, path, metadata=described)
    claim = json.loads((folder / "certificate.json").read_text())
    del claim["sha256"]
    lines = [f"{described['onelayer']}\n".encode()]
    tags = {"int8": "I8", "float32": "F32"}
    for name, value in sorted(tensors.items()):
        shape = ",".join(map(str, value.shape))
        lines += [f"{name} {tags[value.dtype.name]} {shape}\n".encode(), value.tobytes()]
    claim |= {"arithmetic": "real", "weights_sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    text = json.dumps(claim, sort_keys=True, separators=(",", ":"))
    (folder / "certificate.json").write_text(json.dumps({**claim, "sha256": hashlib.sha256(text.encode()).hexdigest()}))


def test_whole_weights_are_read(tmp_path: Path) -> None:
    stored_whole(real_line(tmp_path), lambda tensors: None)
    assert load_model(tmp_path) is not None
    assert check(tmp_path).ok


@pytest.mark.parametrize(
    ("whole", "scale"),
    [
        (127, 3e38),  # infinite as float32 computes it, and every forward pass is NaN: hidden in real arithmetic
        (2, 1.0),  # 1 times 2
        (-128, 1.0),  # more than 127 steps
        (3, 1 / 3),  # no exact product
        (1, -1.0),
        (1, 0.0),
        (0, 2.0),
        (1, 1.5),
    ],
)
def test_other_scales_than_those_of_the_format_are_refused(tmp_path: Path, whole: int, scale: float) -> None:
    def changed(tensors: dict[str, np.ndarray]) -> None:
        tensors["W_Q"][:] = whole
        tensors["W_Q.scale"][:] = scale

    stored_whole(real_line(tmp_path), changed)
    with pytest.raises(OnelayerError):
        load_model(tmp_path)
    with pytest.raises(FileError, match="scales of int8 weight W_Q"):
        check(tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_scales_that_the_package_gives_are_those_of_the_checker(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = rng.integers(-127, 128, (5, 3)) * rng.integers(0, 2, (5, 3))
    steps[0] = 127
    scale = rng.integers(1, 2**17, 3) * 2.0 ** rng.integers(-140, 100, 3)
    columns = steps * scale
    # Single columns of multiples of one power of two, and of zeros.
    columns[:, 0] = rng.integers(-100, 100, 5) * 2.0 ** rng.integers(-130, 100)
    columns[:, 1] *= seed % 4 > 0
    _, scales = integers(torch.tensor(columns))
    assert np.array_equal(column_scales(columns), scales.numpy())
