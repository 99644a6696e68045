"""The road of the package is one-way: a room imports only rooms below it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "onelayer"

# Rooms of equal rank do not import each other, with the exceptions written in SAME_RANK.
RANK = {
    "errors": 0,
    "float64": 0,
    "lazy": 0,
    "extras": 1,
    "ground": 1,
    "disk": 2,
    "domain": 2,
    "observer": 2,
    "model": 3,
    "target": 4,
    "certify": 5,
    "result": 6,
    "source": 7,
    "construct": 7,
    "training": 8,
    "pictures": 8,
    "export": 8,
    "study": 9,
    "paper": 10,
    "app": 11,
    "cli": 11,
    "__init__": 12,
    "__main__": 12,
}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: use absolute imports"
            names = [node.module or ""]
            if node.module == "onelayer":
                names = [f"onelayer.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("onelayer.")}
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down_the_road(path: Path) -> None:
    here = room(path)
    for other in imported_rooms(path):
        if other == "__version__":
            continue
        assert other == here or RANK[other] < RANK[here], f"{here} must not import {other}"


def test_checker_shares_no_arithmetic() -> None:
    """The independent checker may import file formats and the formula syntax tree, nothing that computes."""
    formats = {"onelayer.certify.files", "onelayer.certify.lemmas.argument"}
    ground = {"onelayer.disk", "onelayer.errors", "onelayer.ground", "onelayer.observer"}
    allowed = {*ground, "onelayer.target.formula", *formats}
    for path in [SOURCE / "certify" / "check.py", *SOURCE.glob("certify/checking/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onelayer"):
                assert node.module in allowed or node.module.startswith("onelayer.certify.check"), node.module
            if isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] in {"torch", "scipy"} for alias in node.names)
