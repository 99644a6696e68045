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
from onelayer.layer.transformer import OneLayerTransformer

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O2")
SECONDS = 300  # for a compiler, before it is given up


def compiled(path: Path, model: OneLayerTransformer, *, flags: tuple[str, ...] = FLAGS) -> Callable[[Tensor], Tensor]:
    """The function of the C file ``path`` on batches of points; one that returns nan where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    shape = model.config.output_shape
    if compiler is None:
        return lambda x: torch.full((len(x), *shape), math.nan, dtype=x.dtype)
    with tempfile.TemporaryDirectory(prefix="onelayer-c-") as folder:
        library = Path(folder) / "layer.so"
        command = [compiler, *flags, "-shared", "-fPIC", str(path), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            first = done.stderr.strip().splitlines()[0]
            raise OnelayerError(f"{compiler} refuses {path}: {first[:200]}")
        # The folder goes with this block; what is loaded stays in memory.
        function = getattr(ctypes.CDLL(str(library)), path.stem)
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
