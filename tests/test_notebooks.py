"""The tutorial notebooks run, and say what they are stored to say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def _runner() -> Any:
    spec = importlib.util.spec_from_file_location("notebook_runner", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _said(notebook: dict[str, Any]) -> list[str]:
    """What the cells printed; cards and pictures hold seconds and fonts, which differ."""
    shown = [part for cell in notebook["cells"] for part in cell.get("outputs", [])]
    return ["".join(part["text"]) for part in shown if part["output_type"] == "stream"]


def _kinds(notebook: dict[str, Any]) -> list[list[str]]:
    shown = [part for cell in notebook["cells"] for part in cell.get("outputs", [])]
    return [sorted(part["data"]) for part in shown if part["output_type"] == "display_data"]


def test_there_are_three_of_them_executed() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["engineer", "researcher", "student"]
    for path in NOTEBOOKS:
        assert path.stat().st_size < 300_000
        notebook = json.loads(path.read_text())
        assert notebook["nbformat"] == 4
        assert _said(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_again_what_it_says(path: Path) -> None:
    stored = json.loads(path.read_text())
    found = _runner().run(path)
    assert _said(found) == _said(stored)
    assert _kinds(found) == _kinds(stored)
