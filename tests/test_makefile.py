"""Every `make` command that a document names is a target of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_documented_commands_are_targets() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    named = {word for page in documents for word in re.findall(r"`make ([a-z]+)", page.read_text())}
    assert {"test", "demo", "liar"} <= named
    assert named <= targets
