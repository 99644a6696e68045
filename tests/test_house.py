"""The shape of the source itself: one name, one class; functions that can be followed; files that can be read."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import onelayer

SOURCE = Path(onelayer.__file__).parent
MOST_BRANCHES = 10
LONGEST_FILE = 500


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), ast.parse(path.read_text())


def branches(function: ast.AST) -> int:
    """One more than the decisions of a function, nested functions included: ways through it."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.Assert):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.match_case):
            count += 1
    return count


def test_a_public_class_name_means_one_class() -> None:
    homes = defaultdict(list)
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_few_functions_have_more_than_ten_branches() -> None:
    tangled = [
        f"{path}:{node.lineno} {node.name} {branches(node)}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and branches(node) > MOST_BRANCHES
    ]
    assert len(tangled) < 13, "\n".join(tangled)


def test_files_stay_readable() -> None:
    long = {str(path): len((SOURCE / path).read_text().splitlines()) for path, _ in trees()}
    assert {path: lines for path, lines in long.items() if lines > LONGEST_FILE} == {}
