"""An exported C file, compiled and called: how an export is compared with the layer it came from."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.export.c_text import function_name
from onelayer.layer.transformer import OneLayerTransformer

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O2")
SECONDS = 300  # for a compiler, before it is given up


def compiler() -> str | None:
    """The C compiler of this machine, if there is one."""
    return shutil.which("gcc") or shutil.which("cc")


def compiled(path: Path, model: OneLayerTransformer, *, flags: tuple[str, ...] = FLAGS) -> Callable[[Tensor], Tensor]:
    """The function of the C file ``path`` on batches of points; OnelayerError where it cannot be compiled."""
    found = compiler()
    shape = model.config.output_shape
    if found is None:
        raise OnelayerError("no C compiler was found: install gcc")
    with tempfile.TemporaryDirectory(prefix="onelayer-c-") as folder:
        library = Path(folder) / "layer.so"
        command = [found, *flags, "-shared", "-fPIC", str(path), "-o", str(library), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise OnelayerError(f"{found} needs more than {SECONDS} s for {path}") from error
        if done.returncode:
            first = next(iter(done.stderr.strip().splitlines()), "it says nothing")
            raise OnelayerError(f"{found} refuses {path}: {first[:200]}")
        # The folder goes with this block; what is loaded stays in memory.
        function = getattr(ctypes.CDLL(str(library)), function_name(path))
    number = ctypes.c_double if model.dtype == torch.float64 else ctypes.c_float
    inputs = math.prod(model.config.input_shape)
    outputs = math.prod(shape)

    def run(x: Tensor) -> Tensor:
        rows = []
        for row in x.reshape(-1, inputs).tolist():
            y = (number * outputs)()
            function((number * inputs)(*row), y)
            rows.append(list(y))
        return torch.tensor(rows, dtype=x.dtype).reshape(len(x), *shape)

    return run
