"""The recipes of docs/extending.md work as printed, and the files and tests that they name are there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"
RECIPES = 6


def test_every_recipe_runs() -> None:
    text = PAGE.read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert not report, "".join(report)


def test_every_recipe_has_an_example_and_names_what_exists() -> None:
    text = PAGE.read_text()
    sections = text.split("\n## ")[1:]
    assert len(sections) == RECIPES
    assert all(">>>" in section for section in sections)
    paths = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)", text)
    assert paths
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "src" / "onelayer" / path).exists(), path
