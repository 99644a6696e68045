"""docs/paper.md is a report that was run: same claims, same verdicts as the tests, no check that failed."""

from __future__ import annotations

import re
from pathlib import Path

from onelayer.paper.registry import ROWS, experiments

DOCS = Path(__file__).parents[2] / "docs"


def test_every_experiment_is_in_the_page_with_its_verdict() -> None:
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    for item in experiments():
        title = f"{item.key}. {item.title}" if item.key in ROWS else item.title
        assert re.search(rf"^### {re.escape(title)}: (holds|fails as stated|holds after repair)$", text, re.M), title
        assert item.claim in text
        assert item.command in text
    assert "**no**" not in text
    assert "not confirmed" not in text
    assert "--quick" not in text
    assert f"{len(experiments())} experiments, {len(experiments())} of them at full size" in text


def test_pages_link_to_files_that_exist() -> None:
    for name in ("paper.md", "obstruction.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert link.startswith("http") or (DOCS / link).exists(), f"{name}: {link}"
