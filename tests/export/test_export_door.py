"""The door of the command line: every target is written, run and compared; what is missing is named."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from onelayer import extras
from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.export import exporter
from onelayer.export.exporter import Exported, export
from onelayer.layer.lookup import Affine, AxisKeys, LookupHead, lookup_model
from onelayer.proof.certify import certify
from onelayer.recording.target import as_target
from onelayer.result import Approximation
from onelayer.training.estimators import estimator

EXTRAS = {"onnx": "onnx", "hf": "transformers", "lens": "transformer_lens"}


@pytest.mark.parametrize("to", ["torch", "onnx", "hf", "lens"])
def test_export_from_a_folder(to: str, approximation, tmp_path) -> None:
    if to in EXTRAS:
        pytest.importorskip(EXTRAS[to], reason=f"the extra {to} is not installed")
    folder = approximation.save(tmp_path / "sin")
    exported = export(folder, to=to, out=tmp_path / "out")
    assert exported.difference <= 1e-9
    assert exported.path.exists()
    assert exported.as_dict()["bytes"] == exported.bytes > 0
    assert str(exported.path) in str(exported)


def test_unknown_target(approximation, tmp_path) -> None:
    with pytest.raises(OnelayerError, match="choose one of torch, onnx, hf, lens"):
        export(approximation, to="tensorflow", out=tmp_path)


@pytest.mark.parametrize("to", EXTRAS)
def test_missing_library_is_named_with_its_command(to: str, approximation, tmp_path, monkeypatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    with pytest.raises(OnelayerError) as raised:
        export(approximation, to=to, out=tmp_path / "x")
    assert f'pip install "onelayer[{to}]"' in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_sklearn_is_named(monkeypatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    with pytest.raises(OnelayerError, match=r'pip install "onelayer\[sklearn\]"'):
        importlib.reload(estimator)


def test_package_imports_no_foreign_library() -> None:
    import subprocess
    import sys

    code = (
        "import sys, onelayer.export; "
        "print([m for m in ('onnx', 'onnxruntime', 'transformers', 'transformer_lens', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


def line(slope: float, box: Box, dtype: torch.dtype = torch.float64) -> Approximation:
    """T = slope x with its proof."""
    matrix = torch.tensor([[slope]], dtype=torch.float64)
    model = lookup_model(1, (), [], affine=Affine(matrix, torch.zeros(1).double()), dtype=dtype)
    f = f"{slope!r}*x1"
    return Approximation(model, certify(model, f, box, max(1.0, slope)), as_target(f, box))


@pytest.mark.parametrize("difference", [1.34e-15, 9.96e-10, 1.0000000000000002])
def test_the_difference_is_not_printed_smaller_than_it_is(difference: float) -> None:
    said = str(Exported("onnx", Path("f.onnx"), difference, 1.0, 1))
    printed = re.search(r"at most (\S+) on", said)
    assert printed is not None
    assert float(printed[1]) >= difference


def test_an_export_that_gives_no_numbers_is_not_called_close(tmp_path: Path) -> None:
    """Values of 1e308 have no scale in float64: the stock layer gives nan where the layer gives numbers."""
    keys = AxisKeys(0, torch.tensor([-1.0, 1.0]).double(), torch.zeros(2).double())
    model = lookup_model(1, (), [LookupHead([keys], torch.tensor([[0.0], [1e308]], dtype=torch.float64))])
    a = Approximation(model, certify(model, "0", Box([0.0], [1.0]), max_boxes=9), as_target("0", Box([0.0], [1.0])))
    exported = export(a, to="torch", out=tmp_path)
    assert math.isinf(exported.difference)
    assert "no C compiler" not in str(exported)


def test_an_export_is_compared_at_points_that_its_guard_lets_through(tmp_path: Path) -> None:
    """The upper end is no float32 number, and what lies close to it is rounded to one outside."""
    a = line(1.0, Box([0.1], [0.1000000089]), torch.float32)
    assert export(a, to="torch", out=tmp_path, guard="raise").difference <= 1e-6
    assert export(a, to="onnx", out=tmp_path / "f.onnx", guard="raise").difference <= 1e-6


def test_without_a_compiler_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "compiler", lambda: None)
    exported = export(line(1.0, Box([0.0], [1.0])), to="c", out=tmp_path)
    assert math.isnan(exported.difference)
    assert "not run: no C compiler was found" in str(exported)


@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("torch", "config.json"),
        ("torch", "stock.py"),
        ("torch", "model.safetensors"),
        ("hf", "config.json"),
        ("hf", "model.safetensors"),
        ("coq", "certificate.v"),
    ],
)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_lies_where_a_file_is_to_go_is_one_line(
    to: str, name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    """A pipe was waited for without end, and a folder was an error of another library."""
    if to in EXTRAS:
        pytest.importorskip(EXTRAS[to], reason=f"the extra {to} is not installed")
    make(tmp_path / name)
    with pytest.raises(OnelayerError, match=f"cannot write .*{name}"):
        export(line(1.0, Box([0.0], [1.0])), to=to, out=tmp_path)
    assert not (tmp_path / name).is_file()
