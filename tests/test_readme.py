"""The page that a package index shows: nothing in it leads into a checkout that is not there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELATIVE = re.compile(r"\]\((?!https?://)")


def test_no_link_of_the_long_description_is_relative() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = "".join(
        part["text"] if "text" in part else (ROOT / part["path"]).read_text(encoding="utf-8")
        for part in hook["fragments"]
    )
    assert RELATIVE.search(text)
    for substitution in hook["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    assert not RELATIVE.search(text)
    assert "docs/theory.md names them" in text
    assert "x[..., 0]) + torch.sin(x[..., 1])" in text


def test_installing_comes_first() -> None:
    blocks = re.findall(r"```\w*\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks[0].startswith("pip install onelayer")


def test_every_file_that_the_readme_names_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = [target.split("#")[0] for target in re.findall(r"\]\((?!https?://)([^)]+)\)", text)]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
