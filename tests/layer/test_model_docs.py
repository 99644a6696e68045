"""The examples in the documents of the model give the output printed beside them."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "examples"), [("layer.md", 15), ("equations.md", 20), ("formats.md", 7)])
def test_examples_in_documents(page: str, examples: int) -> None:
    # A fence after an example would be read as its output.
    text = (DOCS / page).read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, page, str(DOCS / page), 0)
    assert len(test.examples) >= examples
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert not report, "".join(report)
