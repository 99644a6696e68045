"""export: the door of the command line, from a saved folder to a file or folder of another library."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from onelayer.disk import as_path, replace_file, replace_files
from onelayer.door import door
from onelayer.errors import FileError, OnelayerError
from onelayer.export import stock
from onelayer.export.c import to_c
from onelayer.export.compiled import compiled, compiler
from onelayer.export.coq import to_coq
from onelayer.export.exact import exact_layer
from onelayer.export.huggingface import to_huggingface
from onelayer.export.lens import to_lens
from onelayer.export.onnx import to_onnx
from onelayer.export.stock import StockLayer
from onelayer.export.torch import to_torch
from onelayer.extras import require
from onelayer.ground import pinned
from onelayer.guard import carried, inward
from onelayer.narrow import widened
from onelayer.proof.certificate import outward
from onelayer.result import Approximation, load
from onelayer.source import Exportable, Source, source_of

SAMPLES = 256  # at which an export is compared with the layer


@dataclass(frozen=True)
class Exported:
    """Where an export lies and the largest difference to our own forward pass seen on sample points of the domain.

    ``difference`` is a measurement on SAMPLES points, not a proof: nan where nothing could run the export, infinite
    where one of the two gives a number and the other none. ``scale`` is the largest output there.
    """

    to: str
    path: Path
    difference: float
    scale: float
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data for --json."""
        return {
            "to": self.to,
            "path": str(self.path),
            "max_difference": self.difference,
            "scale": self.scale,
            "samples": SAMPLES,
            "bytes": self.bytes,
        }

    def __str__(self) -> str:
        written = f"{self.to}: {self.path} ({self.bytes:,} bytes)"
        # Nothing was measured, and nothing is said of it.
        if math.isnan(self.difference):
            return f"{written}, not run: no C compiler was found"
        # Rounded up: an export that differs by more than it says would be none that was measured.
        most = outward(self.difference, up=True)
        return f"{written}, differs from the layer by at most {most} on {SAMPLES} sample points"


@door
@pinned()
def export(
    a: Exportable | str | os.PathLike[str],
    *,
    to: str,
    out: str | os.PathLike[str],
    integers: str = "plain",
    guard: str | None = None,
    named: bool = False,
) -> Exported:
    """Write ``a``, an approximation or the folder of one, for another library; then run that library and compare.

    to="torch"   a folder with the weights of to_torch(a) and stock.py, which loads them without this package
    to="onnx"    a file, or the file model.onnx in a folder
    to="hf"      a folder for OneLayerGPT2.from_pretrained
    to="lens"    the same folder; TransformerLens runs it once to compare
    to="coq"     a file, or certificate.v in a folder: the certificate as a theorem, over "plain" or "machine"
                 ``integers``; compared are the weights multiplied out, evaluated in float64
    to="c"       a file, or model.c in a folder, and its header; compiled and compared where there is a C compiler

    ``named`` is for "onnx": one input per variable, by its name in the domain.
    ``guard`` ("warn", "raise" or "clamp") is for all but "coq": what they do outside the certified domain.
    """
    if to not in WRITERS:
        raise OnelayerError(f"cannot export to {to!r}; choose one of {', '.join(WRITERS)}")
    if guard is not None and to not in GUARDED:
        raise OnelayerError(f"guard is for {', '.join(GUARDED)}; a.guarded({guard!r}) guards a torch module")
    if named and to != "onnx":
        raise OnelayerError("named inputs are for onnx")
    source = load(a) if isinstance(a, str | os.PathLike) else a
    # Asked before anything is written whether it is what it was.
    own = source_of(source)
    try:
        options = Options(integers, guard, named)
        path, run = WRITERS[to](source, as_path(out), options)
    except OSError as error:
        raise FileError(f"cannot write {out}: {error.strerror or error}") from error
    points = _samples(own)
    with torch.no_grad():
        # Run once in the other library: an export that nobody has run is not called done.
        expected = own.model(points)
        difference = math.nan if run is None else _apart(run(points), expected)
    scale = float(expected.abs().max())
    return Exported(to, path, difference, scale, _bytes(path))


def _samples(own: Source) -> Tensor:
    """Points of the domain that are numbers of the format: a guard would not let through what is rounded outside."""
    box = own.domain
    dtype = own.model.dtype
    points = box.sample(SAMPLES).to(dtype)
    above = torch.maximum(points, inward(box.lower, dtype, up=True))
    return torch.minimum(above, inward(box.upper, dtype, up=False))


def _apart(found: Tensor, expected: Tensor) -> float:
    """The largest distance of two numbers; infinite where only one of them is a number.

    In float64: in the format of the layer a finer export would be rounded before it is compared, and so would a
    difference of narrow numbers.
    """
    found, expected = found.to(expected.device, torch.float64), expected.double()
    alike = (found == expected) | (found.isnan() & expected.isnan())
    apart = (found - expected).abs().where(~alike, 0.0)
    return float(apart.nan_to_num(nan=math.inf).max())


def _bytes(path: Path) -> int:
    """Size of what was written: a folder, or a file with its header."""
    inside = path.rglob("*") if path.is_dir() else [path]
    files = [file for file in inside if file.is_file()]
    header = path.with_suffix(".h")
    files += [header] if path.suffix == ".c" and header.is_file() else []
    return sum(file.stat().st_size for file in files)


Run = Callable[[Tensor], Tensor]
GUARDED = ("torch", "onnx", "hf", "lens", "c")


@dataclass(frozen=True)
class Options:
    """What some targets let one choose."""

    integers: str = "plain"
    guard: str | None = None
    named: bool = False


def _write_torch(a: Exportable, out: Path, options: Options) -> tuple[Path, Run]:
    layer = to_torch(a)
    assert isinstance(layer, StockLayer)
    source = source_of(a)
    layer.arguments |= carried(options.guard, source.domain, source.model.dtype)
    state = {name: tensor.contiguous() for name, tensor in layer.state_dict().items()}
    replace_file(out / "model.safetensors", safetensors.torch.save(state))
    replace_file(out / "config.json", (json.dumps(layer.arguments, indent=2) + "\n").encode())
    replace_file(out / "stock.py", Path(stock.__file__).read_bytes())
    return out, stock.load(out)


def _write_onnx(a: Exportable, out: Path, options: Options) -> tuple[Path, Run]:
    file = out if out.suffix == ".onnx" else out / "model.onnx"
    path = to_onnx(a, file, guard=options.guard, named=options.named)
    session = require("onnxruntime", "onnx").InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(x: Tensor) -> Tensor:
        points = widened(x).numpy()
        given = {"x": points}
        if options.named:
            names = source_of(a).domain.variables
            given = {name: points[:, at] for at, name in enumerate(names)}
        return torch.from_numpy(session.run(None, given)[0])

    return path, run


def _write_huggingface(a: Exportable, out: Path, options: Options) -> tuple[Path, Run]:
    model = to_huggingface(a, guard=options.guard)
    logging = require("transformers.utils.logging", "hf")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        replace_files(out, model.save_pretrained)
    finally:
        if shown:
            logging.enable_progress_bar()
    return out, lambda x: torch.as_tensor(model(x).logits)


def _write_lens(a: Exportable, out: Path, options: Options) -> tuple[Path, Run]:
    lens = to_lens(a, guard=options.guard)
    path, _ = _write_huggingface(a, out, options)
    return path, lambda x: lens.run_with_cache(x)[0]


def _write_c(a: Exportable, out: Path, options: Options) -> tuple[Path, Run | None]:
    file = out if out.suffix == ".c" else out / "model.c"
    path = to_c(a, file, guard=options.guard)
    return path, compiled(path, source_of(a).model) if compiler() else None


def _write_coq(a: Exportable, out: Path, options: Options) -> tuple[Path, Run]:
    if not isinstance(a, Approximation):
        raise OnelayerError("a bare model has no certificate; export an approximation to Coq")
    file = out if out.suffix == ".v" else out / "certificate.v"
    path = to_coq(a, file, integers=options.integers)
    layer = exact_layer(a.model)
    shape = a.model.config.output_shape
    return path, lambda x: layer(x.double().flatten(1)).reshape(-1, *shape)


WRITERS: dict[str, Callable[[Exportable, Path, Options], tuple[Path, Run | None]]] = {
    "torch": _write_torch,
    "onnx": _write_onnx,
    "hf": _write_huggingface,
    "lens": _write_lens,
    "coq": _write_coq,
    "c": _write_c,
}
