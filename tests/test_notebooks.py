"""The tutorial notebooks run, and say what they are stored to say."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
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


NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
DIGITS_OF_THE_MACHINE = 1e-3  # smaller numbers may be rounding alone


def _words(text: str) -> list[str]:
    """The text without its numbers: columns move with their digits, so spaces do not count."""
    return NUMBER.sub("#", text).split()


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def _alike(found: float, stored: float) -> bool:
    """Processors solve least squares to different last digits: fits and their proofs then differ a little."""
    small, large = sorted((abs(found), abs(stored)))
    return found == stored or large <= DIGITS_OF_THE_MACHINE or (found * stored > 0 and large <= 2 * small)


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
    if path.stem == "engineer" and shutil.which("cc") is None:
        pytest.skip("the engineer's tutorial compiles C, and there is no cc")
    stored = json.loads(path.read_text())
    found = _runner().run(path)
    for said, before in zip(_said(found), _said(stored), strict=True):
        assert _words(said) == _words(before)
        assert all(map(_alike, _numbers(said), _numbers(before))), f"{said}\n{before}"
    assert _kinds(found) == _kinds(stored)
