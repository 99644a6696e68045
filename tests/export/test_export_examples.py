"""Every export example prints what stands beside it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SLOW = ("torch", "onnx", "huggingface")
NEEDS = {"onnx": "onnxruntime", "huggingface": "transformers", "lens": "transformer_lens", "sklearn": "sklearn"}


@pytest.mark.parametrize("name", [*("lens", "sklearn"), *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_example_prints_its_expected_output(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    runpy.run_path(str(EXAMPLES / f"export_{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == (EXAMPLES / f"export_{name}.out").read_text()
