"""The shape of the source itself: one name, one class; functions that can be followed; files that can be read."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import onelayer

SOURCE = Path(onelayer.__file__).parent
MOST_BRANCHES = 10
LONGEST_FILE = 400
MOST_NODES = 50  # of the syntax tree of a statement in one line or two: beyond, it does several things at once


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


def narrows_a_type(test: ast.AST) -> bool:
    """``x is not None`` or ``isinstance(x, ...)``: said to a type checker, and true whatever a user does."""
    match test:
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
    return False


def test_no_assertion_guards_anything() -> None:
    """An optimised run removes assertions, so what must hold is an error of its own."""
    guards = [
        f"{path}:{node.lineno} {ast.unparse(node.test)}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and not narrows_a_type(node.test)
    ]
    assert guards == []


def test_a_class_name_means_one_class() -> None:
    """Public or private; the checker has names of its own for private ones, as it has its own of everything."""
    homes = defaultdict(list)
    for path, tree in trees():
        for node in ast.walk(tree):
            hidden = isinstance(node, ast.ClassDef) and node.name.startswith("_") and path.parts[0] == "checker"
            if isinstance(node, ast.ClassDef) and not hidden:
                homes[node.name.lstrip("_")].append(str(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_few_functions_have_more_than_ten_branches() -> None:
    tangled = [
        f"{path}:{node.lineno} {node.name} {branches(node)}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and branches(node) > MOST_BRANCHES
    ]
    assert len(tangled) < 4, "\n".join(tangled)


def test_a_line_does_one_thing() -> None:
    simple = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Raise | ast.Expr
    dense = [
        f"{path}:{node.lineno} {size} nodes"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, simple) and (node.end_lineno or 0) - node.lineno < 2
        if (size := sum(1 for _ in ast.walk(node))) > MOST_NODES
    ]
    assert dense == []


def test_files_stay_readable() -> None:
    long = {str(path): len((SOURCE / path).read_text().splitlines()) for path, _ in trees()}
    assert {path: lines for path, lines in long.items() if lines > LONGEST_FILE} == {}


def test_test_files_stay_readable() -> None:
    tests = Path(__file__).parent
    long = {str(path.relative_to(tests)): len(path.read_text().splitlines()) for path in tests.rglob("*.py")}
    assert {path: lines for path, lines in long.items() if lines > LONGEST_FILE} == {}


def is_number(value: ast.AST | None) -> bool:
    """A number, or arithmetic, a tuple or a dictionary of such."""
    match value:
        case ast.Constant(value=int() | float() as number):
            return not isinstance(number, bool)
        case ast.UnaryOp(operand=inside):
            return is_number(inside)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=parts) | ast.Dict(values=parts):
            return bool(parts) and all(map(is_number, parts))
    return False


def test_a_number_at_the_top_of_a_module_says_where_it_comes_from() -> None:
    """By a comment in its line or above it; signs and letters of the alphabet need none."""
    plain = {"_SIGNS", "_LETTERS", "SEEDS"}
    silent = []
    for path, tree in trees():
        lines = (SOURCE / path).read_text().splitlines()
        for node in tree.body:
            if not isinstance(node, ast.Assign) or not is_number(node.value):
                continue
            own = lines[node.lineno - 1 : node.end_lineno]
            if not any("#" in line for line in own) and not lines[node.lineno - 2].startswith("#"):
                silent.append(f"{path}:{node.lineno} {own[0]}")
    assert [line for line in silent if line.split()[1] not in plain] == []


def test_two_files_know_the_inverse_sine() -> None:
    """The table of operations and a Taylor rule; the checker has a table of its own. All others read a row."""
    for name in ("asin", "acos"):
        homes = {
            path.as_posix()
            for path, tree in trees()
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value == name and path.parts[0] != "checker"
        }
        assert homes == {"language/operations.py", "taylor/inverse.py"}, name
