"""The door of the command line: every target is written, run and compared; what is missing is named."""

from __future__ import annotations

import importlib

import pytest

from onelayer import extras
from onelayer.errors import OnelayerError
from onelayer.export.exporter import export
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
