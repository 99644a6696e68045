"""The road of the package is one-way: a room imports only rooms below it, and no public name hides a module."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import onelayer

SOURCE = Path(__file__).parents[1] / "src" / "onelayer"

# From the ground up. A room imports itself and what stands before it; rooms in one line do not import each other.
FLOORS = [
    ["errors", "lazy", "card", "seeds"],
    ["door", "formats", "unfused"],
    ["expressed", "extras", "float64", "ground", "disk", "names", "narrow", "observer", "points", "webpage", "windows"],
    ["box", "recurrence", "windowed"],
    ["layer", "guard", "network"],
    ["language", "equations"],
    ["recording", "taylor"],
    ["lemmas"],
    ["proof"],
    ["checker"],
    ["result"],
    ["source"],
    ["build"],
    ["portfolio"],
    ["conductor"],
    ["training", "pictures", "export", "zoo"],
    ["study", "report"],
    ["paper"],
    ["app"],
    ["cli"],
    ["__init__", "__main__"],
]
RANK = {room: at for at, floor in enumerate(FLOORS) for room in floor}
# Floors within a room, likewise from the ground up: a subfolder imports only those before it.
SUBFOLDERS = {
    "build": ["tables", "ordering", "lookup", "sequences", "pieces", "nested"],
    "training": ["", "estimators"],
}
MODULES = sorted(SOURCE.rglob("*.py"))
# Written in the language of a compiler that comes with torch for GPUs alone.
PROGRAMS = (
    {"onelayer.layer.grid_triton", "onelayer.taylor.fused_triton"}
    if importlib.util.find_spec("triton") is None
    else set()
)


def room(name: str) -> str:
    return name.split(".")[0]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imports(path: Path) -> set[str]:
    """Modules of this package that a file imports, without the leading ``onelayer.``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: use absolute imports"
            module = node.module or ""
            if module == "onelayer":
                found |= {alias.name for alias in node.names}
            elif module.startswith("onelayer."):
                found.add(module.removeprefix("onelayer."))
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("onelayer.")]
            found |= {name.removeprefix("onelayer.") for name in names}
    return found - {"__version__"}


def foreign(path: Path) -> set[str]:
    """Other libraries that a file imports by name."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)]
    return {alias.name.split(".")[0] for node in nodes for alias in node.names}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down_the_road(path: Path) -> None:
    here = name_of(path)
    for other in imports(path):
        assert room(other) == room(here) or RANK[room(other)] < RANK[room(here)], f"{here} must not import {other}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_subfolders_point_down_the_road(path: Path) -> None:
    here = name_of(path).split(".")
    order = SUBFOLDERS.get(here[0], [])
    if len(here) < 3 or here[1] not in order:
        return
    for other in (name.split(".") for name in imports(path)):
        if other[0] == here[0] and len(other) > 2 and other[1] in order:
            assert order.index(other[1]) <= order.index(here[1]), f"{'.'.join(here)} must not import {'.'.join(other)}"


def test_every_subfolder_has_its_floor() -> None:
    folders = {(path.parent.parent.name, path.parent.name) for path in MODULES if path.parent.parent.parent == SOURCE}
    assert folders == {(room, name) for room, names in SUBFOLDERS.items() for name in names if name}


def test_no_module_imports_itself_by_a_detour() -> None:
    """Imports at the top of modules, inside a room too, have an order from the ground up."""
    known = {f"onelayer.{name_of(path)}".removesuffix(".__init__") for path in MODULES}
    graph = {}
    for path in MODULES:
        top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
        pairs = [(f"{node.module}.{alias.name}", node.module) for node in top for alias in node.names]
        found = {module if module in known else package for module, package in pairs}
        graph[f"onelayer.{name_of(path)}".removesuffix(".__init__")] = found & known
    TopologicalSorter(graph).prepare()  # raises CycleError, with the detour


def test_no_public_name_hides_a_module() -> None:
    for found in pkgutil.walk_packages(onelayer.__path__, "onelayer."):
        if found.name.endswith("__main__") or found.name in PROGRAMS:
            continue
        module = importlib.import_module(found.name)
        parent, _, leaf = found.name.rpartition(".")
        assert getattr(importlib.import_module(parent), leaf) is module, found.name
    for name in onelayer.__all__:
        assert not isinstance(getattr(onelayer, name), type(onelayer)), name


def test_checker_shares_no_arithmetic() -> None:
    """The independent checker may import file formats and the formula syntax tree, nothing that computes."""
    allowed = {
        "disk",
        "door",
        "errors",
        "ground",
        "observer",
        "language.formula",
        "language.knots",
        "language.requirement",
        "lemmas.argument",
        "lemmas.nested",
        "lemmas.pieces",
        "formats",
        "language.words",
        "names",
    }
    for path in SOURCE.glob("checker/*.py"):
        for other in imports(path):
            assert room(other) == "checker" or other in allowed, f"{path.name} must not import {other}"
        assert not foreign(path) & {"torch", "scipy"}, path.name


def test_the_package_is_imported_lazily() -> None:
    code = "import sys, onelayer; print(sorted({'torch', 'matplotlib', 'numpy', 'scipy'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_reading_code_loads_no_compiler() -> None:
    """Torch's takes seconds to load, and NumPy code that was watched meanwhile seemed to ask for types."""
    of_torch = "return torch.sin(x[..., 0])"
    of_points = "return np.sin(x[0]) * x[0]"
    in_place = "y = x.copy(); y[0] = np.sin(x[0]); return y[0]"  # for which torch loads SymPy
    for body in (of_torch, of_points, in_place):
        code = f"import sys, torch, numpy as np, onelayer as ol\ndef f(x): {body}\n"
        code += "a = ol.approximate(f, ol.Box([0], [1]), 1e-2)\n"
        code += "print(a.certificate.proved, 'torch._dynamo' in sys.modules)"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert shown.stdout.strip() == "True False", shown.stderr


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    """A folder that pytest does not enter by its name is a room that nobody tests."""
    passed_over = pytestconfig.getini("norecursedirs")
    folders = {path.parent for path in Path(__file__).parent.rglob("test_*.py")}
    assert not [part for folder in folders for part in folder.parts if any(fnmatch(part, name) for name in passed_over)]
