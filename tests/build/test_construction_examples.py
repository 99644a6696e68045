"""Every example of a construction prints what stands beside it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "name", ["memorize", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sort", "gather", "superpose"))]
)
def test_example_prints_its_expected_output(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == (EXAMPLES / f"{name}.out").read_text()


@pytest.mark.slow
def test_pictures_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["constructions.py", "--out", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "constructions.py"), run_name="__main__")
    assert capsys.readouterr().out == (EXAMPLES / "constructions.out").read_text()
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["gather", "memorize", "sort", "superpose"]
