"""Nothing in a rigorous room takes its format from a global setting, and no guard is an assert.

The ground is pinned when code runs; this is the same rule read off the syntax trees. A created tensor names its dtype
and its device, ``torch.where`` never chooses between two Python numbers (that is a float32 to torch), narrow formats
are named only where formats are listed, and nothing rests on an assert, which an optimised run removes.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils._device import _device_constructors

SOURCE = Path(__file__).parents[2] / "src" / "onelayer"
RIGOROUS = (
    *(
        "box.py",
        "expressed.py",
        "float64.py",
        "formats.py",
        "ground.py",
        "narrow.py",
        "points.py",
        "unfused.py",
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
    *("arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty", "empty_permuted"),
    *("empty_quantized", "empty_strided", "eye", "fftfreq", "full", "hamming_window", "hann_window", "kaiser_window"),
    *("linspace", "logspace", "nested_tensor", "normal", "ones", "rand", "randint", "randn", "randperm", "range"),
    *("rfftfreq", "scalar_tensor", "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor"),
    *("sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor", "tensor", "tril_indices", "triu_indices", "zeros"),
}
# Modules of torch that hold tensors of their own.
HOLDING = {
    name
    for name, value in vars(torch.nn).items()
    if isinstance(value, type) and {"dtype", "device"} <= set(inspect.signature(value.__init__).parameters)
}
NUMBERS = {"float", "int", "len", "factorial", "gamma", "relative_error"}
OF_NUMBERS = {"abs", "max", "min", "pow", "round", "sum"}  # a number, if their arguments are
NARROW = {"float32", "float16", "bfloat16", "half", "float"}
NARROW_NUMPY = {"float32", "float16", "half", "single"}
NARROW_WORDS = {"float32", "float16", "bfloat16", "half", "single", "f4", "f2", "<f4", "<f2", ">f4", ">f2"}
TYPES = {"FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor"}
DEFAULTS = {f"{verb}_default_{what}" for verb in ("get", "set") for what in ("dtype", "device", "tensor_type")}
HIDDEN = CREATING | TYPES | DEFAULTS | NARROW | NARROW_NUMPY | {"where"}
# Where formats are listed, compared or asked for: everywhere else the format comes from an argument or is float64.
FORMATS = {
    "ground.py": "the default dtype under which foreign code is tried once more",
    "proof/certify.py": "the formats of execution",
    "proof/forward.py": "the formats of execution",
    "proof/points.py": "the range of each format",
    "conductor.py": "the formats of weights",
    "build/arguments.py": "the formats of weights",
    "build/lookup/storage.py": "the formats of weights",
    "build/sequences/gather.py": "the formats of weights",
    "build/memorize.py": "the formats of weights",
    "build/nested/cones.py": "the formats of weights",
    "build/sequences/directed.py": "the formats of weights",
    "checker/formats.py": "the formats of execution",
    "checker/weights.py": "what whole numbers and their scales are multiplied in",
    "build/sort.py": "the formats of weights",
    "layer/file.py": "the formats of weights",
    "layer/int8.py": "what whole numbers and their scales are multiplied in",
    "layer/weights.py": "what an int8 layer computes in",
    "layer/grid_kernel.py": "the one format that its kernel computes in",
    "network/exported.py": "the formats of files",
    "network/onnx_file.py": "the formats of files",
    "network/onnx_rules.py": "the formats of files",
    "taylor/__init__.py": "the formats of execution",
    "taylor/attributes.py": "casts",
    "taylor/core.py": "the coarser of two formats of execution",
    "taylor/normalize.py": "the default eps of a norm in each format",
    "taylor/rounding.py": "the formats of execution",
    "recording/callables.py": "weights that are widened",
    "recording/dispatch.py": "casts",
}
SETTERS = {"ground.py"}  # may touch the defaults, which they give back


def files(rooms: tuple[str, ...]) -> list[Path]:
    found = [[SOURCE / room] if room.endswith(".py") else sorted((SOURCE / room).rglob("*.py")) for room in rooms]
    return [path for part in found for path in part]


def dotted(node: ast.AST) -> str:
    """a.b.c as it is written, else nothing."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            owner = dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
    return ""


def of(library: str, node: ast.AST) -> str:
    """The last name of ``library.name`` or ``library.room.name``, else nothing."""
    first, *rest = dotted(node).split(".")
    return rest[-1] if first == library and rest and rest[0] not in ("Tensor", "_C") else ""


def number(node: ast.AST, known: frozenset[str] = frozenset()) -> bool:
    """Whether an expression is surely a Python number: literals, names in capitals and those that are known to be one,
    torch.inf, calls that return one, and what is made of those."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp():
            return number(node.operand, known)
        case ast.BinOp():
            return number(node.left, known) and number(node.right, known)
        case ast.IfExp():
            return number(node.body, known) and number(node.orelse, known)
        case ast.Attribute(value=ast.Name(id="torch" | "math" | "np" | "sys")):
            return node.attr in ("inf", "nan", "pi", "e")
        case ast.Attribute():
            return dotted(node).startswith(("sys.float_info.", "torch.finfo", "np.finfo"))
        case ast.Call(func=ast.Name(id=called)) if called in OF_NUMBERS:
            return all(number(value, known) for value in node.args)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"))):
            return True
        case ast.Call(func=ast.Name(id=called)):
            return called in NUMBERS
        case ast.Name():
            return node.id.lstrip("_").isupper() or node.id in known
    return False


def numbers_of(function: ast.AST) -> frozenset[str]:
    """Names inside a function that are Python numbers: parameters that say so, and what is made of numbers alone."""
    values: dict[str, list[ast.AST | None]] = {}
    for node in ast.walk(function):
        match node:
            case ast.arg(arg=name, annotation=kind):
                values.setdefault(name, []).append(ast.Constant(0) if dotted(kind) in ("float", "int") else None)
            case ast.Assign(targets=[ast.Tuple(elts=left)], value=ast.Tuple(elts=right)) if len(left) == len(right):
                for name, value in zip(left, right, strict=True):
                    values.setdefault(dotted(name), []).append(value)
            case ast.Assign(targets=targets, value=value):
                for name in targets:
                    values.setdefault(dotted(name), []).append(value)
            case ast.AnnAssign(target=name, value=value) | ast.AugAssign(target=name, value=value):
                values.setdefault(dotted(name), []).append(value)
            case ast.For(target=name) | ast.comprehension(target=name):
                for part in ast.walk(name):
                    values.setdefault(dotted(part), []).append(None)
    known: frozenset[str] = frozenset()
    for _ in values:
        found = {name for name, given in values.items() if all(value and number(value, known) for value in given)}
        known = frozenset(found)
    return known


def choices(tree: ast.AST) -> Iterator[tuple[ast.Call, frozenset[str]]]:
    """Every call of a function called where, with the names that are numbers there."""
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda))]
    for scope in scopes:
        known = numbers_of(scope) if scope is not tree else frozenset()
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and of("torch", node.func) == "where":
                yield node, known


def of_two_numbers(call: ast.Call, known: frozenset[str]) -> bool:
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg != "condition")]
    return any(isinstance(value, ast.Starred) for value in call.args) or (
        len(given) >= 2 and all(number(value, known) for value in given)
    )


def narrow(node: ast.AST) -> str:
    """What names a narrow format: an attribute of torch or NumPy, or a word where a format is asked for."""
    if of("torch", node) in NARROW or of("np", node) in NARROW_NUMPY:
        return dotted(node)
    if isinstance(node, ast.Call):
        asks = isinstance(node.func, ast.Attribute) and node.func.attr in ("astype", "dtype", "to", "type", "view")
        given = [*(node.args if asks else ()), *(word.value for word in node.keywords if word.arg == "dtype")]
        words = [value.value for value in given if isinstance(value, ast.Constant)]
        return next((str(word) for word in words if word in NARROW_WORDS), "")
    return ""


def renamed(node: ast.AST, called: set[int]) -> str:
    """What would hide a function from these rules: another name for a library, for a function, or a look-up of it."""
    match node:
        case ast.Import(names=names):
            usual = {"torch": (None,), "numpy": ("np",)}
            odd = [name for name in names if name.name in usual and name.asname not in usual[name.name]]
            return f"{odd[0].name} as {odd[0].asname or odd[0].name}" if odd else ""
        case ast.ImportFrom(module="torch" | "numpy" as module, names=names):
            bare = [item.name for item in names if item.name in HIDDEN | {"*"}]
            return f"{module}.{bare[0]} under a bare name" if bare else ""
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="torch" | "np"), ast.Constant(value=word), *_]):
            return f"{word} by getattr" if word in HIDDEN else ""
        case ast.Attribute() if id(node) not in called and of("torch", node) in CREATING | {"where"}:
            return f"{dotted(node)} that is not called, but handed on"
    return ""


def unpinned(node: ast.Call, needed: set[str]) -> str:
    """What a call creates in the format, or on the device, of the process."""
    given = {keyword.arg for keyword in node.keywords}
    creates = of("torch", node.func) in CREATING or (of("nn", node.func) or of("torch", node.func)) in HOLDING
    lacking = set() if None in given else needed - given
    return f"{dotted(node.func)} without {' and '.join(sorted(lacking))}" if creates and lacking else ""


def complaints(name: str, tree: ast.AST, needed: set[str]) -> Iterator[str]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        line = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Name) and node.id == "__debug__"):
            yield f"{line}: assert"
        if narrow(node) and name not in FORMATS:
            yield f"{line}: {narrow(node)}"
        if renamed(node, called):
            yield f"{line}: {renamed(node, called)}"
        if (of("torch", node) in TYPES and name not in FORMATS) or (
            of("torch", node) in DEFAULTS and name not in SETTERS
        ):
            yield f"{line}: {dotted(node)}"
        if not isinstance(node, ast.Call):
            continue
        if dotted(node.func) in {"torch.Tensor", *(f"torch.{kind}" for kind in TYPES)}:
            yield f"{line}: {dotted(node.func)}"
        if unpinned(node, needed):
            yield f"{line}: {unpinned(node, needed)}"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("float", "half", "bfloat16") and not node.args:
            yield f"{line}: a cast by .{node.func.attr}()"
    for call, known in choices(tree):
        if of_two_numbers(call, known):
            yield f"{name}:{call.lineno}: torch.where of two Python numbers"


def test_every_function_of_torch_that_creates_a_tensor_is_listed() -> None:
    """Those to which torch itself passes a default device; a library that was loaded may have put its own in place."""
    own = [function for function in _device_constructors() if (function.__module__ or "torch").startswith("torch")]
    assert {function.__name__.removeprefix("fft_") for function in own} <= CREATING
    assert len(own) > 20
    assert {"Linear", "MultiheadAttention", "LayerNorm", "GRUCell", "TransformerEncoderLayer"} <= HOLDING


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


FORBIDDEN = """
torch.where(x > 0, TINY, 0.0)
torch.where(x > 0, -torch.inf, 2 * math.pi)
torch.where(x > 0, 1.01, UNIT + gamma(2 * k + 4))
torch.where(condition=x > 0, input=1.0, other=0.0)
torch.where(x > 0, *pair)
torch.where(x > 0, 1.0 if deep else 2.0, math.ldexp(1.0, -1000))
torch.where(x > 0, max(1.0, 2.0), sys.float_info.min)
def f(x, low: float, *, high: int): return torch.where(x > 0, low, high)
def f(x): low, high = 0.0, 1.0; return torch.where(x > 0, low, high)
def f(x, low: float): half = low / 2; tiny = half; return torch.where(x > 0, tiny, 0.0)
choose = torch.where
choose = partial(torch.where, x > 0)
torch.tensor(0.1)
torch.zeros(3, dtype=torch.float64)
torch.zeros(3, device='cpu')
torch.as_tensor(0.1)
torch.fft.fftfreq(3)
torch.hann_window(3, device='cpu')
torch.normal(0.0, 1.0, (3,))
new = torch.zeros
make = functools.partial(torch.full, (3,))
table = {"zeros": torch.zeros}
nn.Linear(1, 2)
torch.nn.LayerNorm(2, dtype=torch.float64)
import torch as t
import numpy
from torch import zeros
from torch import full as make
from torch import float32
from torch import *
from numpy import float32 as single
getattr(torch, "zeros")(3)
getattr(np, "float32")
y = x.to(torch.float32)
y = x.to(torch.float)
y = x.float()
y = x.astype(np.float32)
y = x.astype("float32")
y = np.zeros(3, dtype="f4")
y = np.half(0.1)
assert low.dtype == torch.float64
if __debug__: check(low)
torch.set_default_dtype(torch.float64)
like = torch.get_default_dtype()
torch.FloatTensor([1.0])
kind = torch.FloatTensor
torch.Tensor([1.0])
"""
ALLOWED = """
torch.where(x > 0, x, 0.0)
def f(x, low: Tensor, high: float): return torch.where(x > 0, low, high)
def f(x): low = 0.0; low = low + x; return torch.where(x > 0, low, 1.0)
torch.zeros(3, dtype=torch.float64, device=x.device)
torch.zeros_like(x)
x.new_zeros(3)
torch.full(**where)
nn.Linear(1, 2, dtype=x.dtype, device="cpu")
nn.Sequential(nn.Tanh())
import torch
import numpy as np
from torch import Tensor, nn
getattr(torch, name)
y = x.astype("<f8")
y = x.astype(np.float64)
"""


@pytest.mark.parametrize("code", FORBIDDEN.strip().splitlines())
def test_each_rule_sees_what_it_forbids(code: str) -> None:
    for needed in ({"dtype", "device"}, {"dtype"}):
        found = list(complaints("planted.py", ast.parse(code), needed))
        assert found or (needed == {"dtype"} and "dtype=" in code)


@pytest.mark.parametrize("code", ALLOWED.strip().splitlines())
def test_and_nothing_else(code: str) -> None:
    assert not list(complaints("planted.py", ast.parse(code), {"dtype", "device"}))
