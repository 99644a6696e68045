"""Nothing in a rigorous room takes its format from a global setting, and no guard is an assert.

The ground is pinned when code runs; this is the same rule read off the syntax trees. A created tensor names its dtype
and its device, ``torch.where`` never chooses between two Python numbers (that is a float32 to torch), narrow formats
are named only where formats are listed, and nothing rests on an assert, which an optimised run removes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "onelayer"
RIGOROUS = (
    *(
        "box.py",
        "float64.py",
        "formats.py",
        "ground.py",
        "narrow.py",
        "recurrence.py",
        "windowed.py",
        "windows.py",
        "layer",
    ),
    *("language", "recording", "network", "taylor", "lemmas", "proof", "checker"),
)
# Always entered through a pinned door: the device may be left out, the dtype may not.
PINNED = ("build", "portfolio", "conductor.py")
# What they write speaks of a proof: each of their doors is pinned, and what they do inside is theirs.
SHOWN = ("export", "pictures", "report")
# What they do is proved by others, or nothing is claimed of it.
GUESTS = {
    *("app", "cli", "equations", "paper", "study", "training", "zoo.py"),
    *(
        "__init__.py",
        "__main__.py",
        "card.py",
        "disk.py",
        "door.py",
        "errors.py",
        "extras.py",
        "guard.py",
        "lazy.py",
        "names.py",
    ),
    *("observer.py", "result.py", "seeds.py", "source.py", "webpage.py"),
}
CREATING = {
    *("arange", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm"),
    *("scalar_tensor", "zeros", "tensor", "as_tensor", "asarray", "tril_indices", "triu_indices"),
}
NUMBERS = {"float", "int", "len", "factorial", "gamma", "relative_error"}
LEGACY = {"Tensor", "FloatTensor", "DoubleTensor", "LongTensor", "set_default_dtype", "set_default_device"}
NARROW = {"float32", "float16", "bfloat16", "half", "float"}
# Where formats are listed, compared or asked for: everywhere else the format comes from an argument or is float64.
FORMATS = {
    "proof/contract.py": "the default dtype under which a model is tried once more",
    "proof/certify.py": "the formats of execution",
    "proof/forward.py": "the formats of execution",
    "proof/points.py": "the range of each format",
    "conductor.py": "the formats of weights",
    "build/arguments.py": "the formats of weights",
    "build/lookup/storage.py": "the formats of weights",
    "build/sequences/gather.py": "the formats of weights",
    "build/memorize.py": "the formats of weights",
    "build/sort.py": "the formats of weights",
    "layer/file.py": "the formats of weights",
    "layer/int8.py": "what whole numbers and their scales are multiplied in",
    "layer/weights.py": "what an int8 layer computes in",
    "layer/grid_kernel.py": "the one format that its kernel computes in",
    "network/architecture.py": "the weights of a drawn network",
    "network/exported.py": "the formats of files",
    "network/onnx_file.py": "the formats of files",
    "taylor/__init__.py": "the formats of execution",
    "taylor/attributes.py": "casts",
    "taylor/core.py": "the coarser of two formats of execution",
    "taylor/normalize.py": "the default eps of a norm in each format",
    "taylor/rounding.py": "the formats of execution",
    "recording/callables.py": "weights that are widened",
    "recording/dispatch.py": "casts",
    "recording/recorder.py": "the format of what a recorded function creates",
}
SETTERS = {"ground.py", "proof/contract.py"}  # may touch the defaults, which they give back


def files(rooms: tuple[str, ...]) -> list[Path]:
    found = [[SOURCE / room] if room.endswith(".py") else sorted((SOURCE / room).rglob("*.py")) for room in rooms]
    return [path for part in found for path in part]


def torch_name(node: ast.AST) -> str:
    """name for ``torch.name``, else nothing."""
    owner = node.value if isinstance(node, ast.Attribute) else None
    return node.attr if isinstance(node, ast.Attribute) and isinstance(owner, ast.Name) and owner.id == "torch" else ""


def number(node: ast.AST) -> bool:
    """Whether an expression is surely a Python number: literals, names in capitals, torch.inf, calls that return one,
    and sums of those."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp():
            return number(node.operand)
        case ast.BinOp():
            return number(node.left) and number(node.right)
        case ast.Attribute(value=ast.Name(id="torch" | "math" | "np")):
            return node.attr in ("inf", "nan", "pi", "e")
        case ast.Call(func=ast.Name(id=called)):
            return called in NUMBERS
        case ast.Name():
            return node.id.lstrip("_").isupper()
    return False


def complaints(name: str, tree: ast.AST, needed: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        line = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Assert) and needed == {"dtype", "device"}:
            yield f"{line}: assert"
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            taken = {alias.name for alias in node.names} & (CREATING | LEGACY - {"Tensor"})
            yield from (f"{line}: import of torch.{item} under a bare name" for item in taken)
        if torch_name(node) in NARROW and name not in FORMATS:
            yield f"{line}: torch.{torch_name(node)}"
        if not isinstance(node, ast.Call):
            continue
        called, given = torch_name(node.func), {keyword.arg for keyword in node.keywords}
        if called in CREATING and None not in given and not needed <= given:
            yield f"{line}: torch.{called} without {' and '.join(sorted(needed - given))}"
        if called in LEGACY and name not in SETTERS:
            yield f"{line}: torch.{called}"
        if called == "where" and len(node.args) == 3 and number(node.args[1]) and number(node.args[2]):
            yield f"{line}: torch.where of two Python numbers"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("float", "half", "bfloat16") and not node.args:
            yield f"{line}: a cast by .{node.func.attr}()"


def test_every_room_is_rigorous_pinned_or_a_guest() -> None:
    """A room that is added has to say which."""
    rooms = {path.name for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms == {*RIGOROUS, *PINNED, *SHOWN} | GUESTS


@pytest.mark.parametrize("path", files(RIGOROUS), ids=lambda path: str(path.relative_to(SOURCE)))
def test_rigorous_rooms_leave_nothing_to_global_settings(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    assert not list(complaints(name, ast.parse(path.read_text()), {"dtype", "device"}))


@pytest.mark.parametrize("path", files(PINNED), ids=lambda path: str(path.relative_to(SOURCE)))
def test_constructions_name_the_format_of_every_tensor(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    assert not list(complaints(name, ast.parse(path.read_text()), {"dtype"}))


def decorators(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Every function with the names of its decorators."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name, [ast.unparse(item) for item in node.decorator_list]


@pytest.mark.parametrize("path", files(SHOWN), ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_is_written_about_a_proof_is_written_on_pinned_ground(path: Path) -> None:
    for name, wrapped in decorators(ast.parse(path.read_text())):
        assert "door" not in wrapped or wrapped[-2:] == ["door", "pinned()"], name


@pytest.mark.parametrize(
    "code",
    [
        "torch.where(x > 0, TINY, 0.0)",
        "torch.where(x > 0, -torch.inf, 2 * math.pi)",
        "torch.where(x > 0, 1.01, UNIT + gamma(2 * k + 4))",
        "torch.tensor(0.1)",
        "torch.zeros(3, dtype=torch.float64)",
        "torch.zeros(3, device='cpu')",
        "y = x.to(torch.float32)",
        "y = x.float()",
        "assert low.dtype == torch.float64",
        "from torch import zeros",
        "torch.set_default_dtype(torch.float64)",
        "torch.FloatTensor([1.0])",
    ],
)
def test_each_rule_sees_what_it_forbids(code: str) -> None:
    assert list(complaints("planted.py", ast.parse(code), {"dtype", "device"}))


@pytest.mark.parametrize(
    "code",
    [
        "torch.where(x > 0, x, 0.0)",
        "torch.zeros(3, dtype=torch.float64, device=x.device)",
        "torch.zeros_like(x)",
        "x.new_zeros(3)",
        "torch.full(**where)",
    ],
)
def test_and_nothing_else(code: str) -> None:
    assert not list(complaints("planted.py", ast.parse(code), {"dtype", "device"}))
