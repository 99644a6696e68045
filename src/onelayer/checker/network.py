"""The checker's own reader of networks, from docs/file-format.md alone: steps over tensors, in one safetensors file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onelayer.checker.formats import BY_KIND, BY_TAG
from onelayer.checker.weights import Array
from onelayer.disk import MAX_AXES, canonical_json, read_tensors
from onelayer.errors import FileError

KEY = "network"
MAX_STEPS, MAX_VALUES = 2**14, 2**22  # as many as a program may have: a file must not ask for more memory
BINARY = ("add", "sub", "mul", "div", "minimum", "maximum")
NUMBERED = ("scale", "shift", "leaky_relu", "elu")
UNARY = (
    *("neg", "abs", "relu", "exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "sin", "cos", "tan", "atan"),
    *("tanh", "sigmoid", "erf", "gelu", "gelu_tanh", "silu", "softplus", "mish"),
)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class StoredStep:
    """One operation on values (numbers) and tensors (names)."""

    op: str
    args: tuple[int | str, ...]
    shape: Shape
    number: float | None
    places: tuple[int, ...] | None


@dataclass(frozen=True)
class StoredNetwork:
    """A network file: its steps, its tensors as float64 (exactly), their stored type, and the digest of both."""

    input_shape: Shape
    steps: tuple[StoredStep, ...]
    tensors: Mapping[str, Array]
    dtype: str
    sha256: str

    @property
    def output_shape(self) -> Shape:
        """The shape of the last step."""
        return self.steps[-1].shape


def read_network(data: bytes, name: str) -> StoredNetwork | None:
    """The network in the bytes of a file; None where the file does not say that it holds one."""
    metadata, raw = read_tensors(data, name)
    if KEY not in metadata:
        return None
    # Beside a second description the same bytes would be two models.
    if set(metadata) != {KEY}:
        raise FileError(f"{name} describes more than a network in its metadata")
    text = metadata[KEY]
    dtype = _format(raw, name)
    tensors = {key: value.astype(np.float64) for key, value in raw.items()}
    first, steps = _document(text, name)
    _need_order(steps, first, {key: value.shape for key, value in tensors.items()}, name)
    return StoredNetwork(first, steps, tensors, dtype, _digest(text, raw, dtype))


def _format(raw: Mapping[str, Any], name: str) -> str:
    """The one stored type of the tensors."""
    kinds = {value.dtype.newbyteorder("=") for value in raw.values()} or {np.dtype(np.float64)}
    if len(kinds) != 1 or not kinds <= set(BY_KIND):
        raise FileError(f"{name}: the tensors of a network must be all {' or all '.join(BY_TAG)}")
    return BY_KIND[kinds.pop()].tag


def _document(text: str, name: str) -> tuple[Shape, tuple[StoredStep, ...]]:
    """The shape of a point and the steps."""
    document = canonical_json(text, f"the network in {name}")
    if not isinstance(document, dict) or set(document) != {"format", "version", "input", "steps"}:
        raise FileError(f"{name} has no readable network")
    # By type too: true and 1.0 equal 1 in Python, and are no versions.
    known = document["format"] == "onelayer network" and type(document["version"]) is int and document["version"] == 1
    if not known or not _sizes(document["input"]):
        raise FileError(f"{name} holds a network of another format version than 1")
    steps = document["steps"]
    if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_STEPS:
        raise FileError(f"{name}: a network has between 1 and {MAX_STEPS} steps")
    return tuple(document["input"]), tuple(_step(item, name) for item in steps)


def _digest(text: str, raw: Mapping[str, Any], dtype: str) -> str:
    digest = hashlib.sha256(f"{text}\n".encode())
    for name, value in sorted(raw.items()):
        shape = ",".join(map(str, value.shape))
        digest.update(f"{name} {dtype} {shape}\n".encode())
        digest.update(value.astype(value.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _sizes(shape: Any) -> bool:
    if not isinstance(shape, list) or len(shape) > MAX_AXES:
        return False
    # Side by side first: the product of endless sides is never formed.
    sides = all(type(n) is int and 1 <= n <= MAX_VALUES for n in shape)
    return sides and math.prod(shape) <= MAX_VALUES


def _step(item: Any, name: str) -> StoredStep:
    always = {"op", "args", "shape"}
    if not isinstance(item, dict) or not always <= set(item) <= {*always, "number", "places"}:
        raise FileError(f"{name}: a step of the network is malformed")
    number = item.get("number", 0.0)
    places = item.get("places", [])
    args = item["args"]
    rules = [
        isinstance(item["op"], str),
        bool(args) and _each(args, (int, str)),
        _sizes(item["shape"]),
        # A whole number between two floats would be one network in the file and another one here.
        type(number) in (int, float) and float(number) == number,
        _each(places, (int,)),
    ]
    if not all(rules):
        raise FileError(f"{name}: a step of the network has a field of the wrong type")
    exact = float(number) if "number" in item else None
    listed = tuple(places) if "places" in item else None
    return StoredStep(item["op"], tuple(args), tuple(item["shape"]), exact, listed)


def _each(items: Any, kinds: tuple[type[Any], ...]) -> bool:
    """Whether this is a list of values of these types, truth values not among them."""
    return isinstance(items, list) and all(type(item) in kinds for item in items)


def _need_order(steps: Sequence[StoredStep], first: Shape, tensors: Mapping[str, Shape], name: str) -> None:
    """Every step reads what stands before it, and its shape is the one that follows from its operation."""
    shapes: list[Shape] = [first]
    if sum(len(step.places or ()) for step in steps) > MAX_VALUES:
        raise FileError(f"{name}: the steps of a network list too many places")
    for at, step in enumerate(steps, start=1):
        found = [_read(arg, shapes, tensors) for arg in step.args]
        known = [shape for shape in found if shape is not None]
        if len(known) < len(found) or not _follows(step, known):
            raise FileError(f"{name}: step {at} of the network ({step.op[:40]}) does not fit what it reads")
        shapes.append(step.shape)


def _read(arg: int | str, before: Sequence[Shape], tensors: Mapping[str, Shape]) -> Shape | None:
    """The shape of what a step reads; None where it is not there."""
    if isinstance(arg, str):
        return tensors.get(arg)
    if 0 <= arg < len(before):
        return before[arg]
    return None


def _follows(step: StoredStep, found: list[Shape]) -> bool:
    if step.op in (*UNARY, *NUMBERED):
        numbered = (step.number is not None) == (step.op in NUMBERED)
        of_value = not isinstance(step.args[0], str)
        return numbered and of_value and step.places is None and found == [step.shape]
    if step.op in BINARY:
        return step.number is None and step.places is None and found == [step.shape] * 2
    return step.op in _RULES and _RULES[step.op](step, found)


def _arranged(step: StoredStep, found: list[Shape]) -> bool:
    held = sum(map(math.prod, found))
    wanted = math.prod(step.shape)
    if step.number is not None:
        return False
    if step.places is None:
        return held == wanted
    return len(step.places) == wanted and all(0 <= at < held for at in step.places)


def _affine(step: StoredStep, found: list[Shape]) -> bool:
    named = [isinstance(arg, str) for arg in step.args]
    if named not in ([False, True], [False, True, True]) or step.number is not None or step.places is not None:
        return False
    x, weight = found[:2]
    if len(weight) != 2 or not x:
        return False
    rows, columns = weight
    fits = x[-1] == columns and step.shape == (*x[:-1], rows)
    return fits and found[2:] in ([], [(rows,)])


def _product(step: StoredStep, found: list[Shape]) -> bool:
    plain = step.number is None and step.places is None and [len(shape) for shape in found] == [3, 3]
    if not plain:
        return False
    (g, a, b), (h, d, c) = found
    return g == h and b == d and step.shape == (g, a, c)


def _softmax(step: StoredStep, found: list[Shape]) -> bool:
    """Each row has an entry that takes part."""
    if step.number is not None or found != [step.shape] or not step.shape or isinstance(step.args[0], str):
        return False
    if step.places is None:
        return True
    size = math.prod(step.shape)
    width = step.shape[-1]
    inside = all(0 <= at < size for at in step.places)
    distinct = len(set(step.places)) == len(step.places)
    # A row without an entry would be a softmax of nothing.
    met = {at // width for at in step.places}
    return inside and distinct and len(met) == size // width


def _norm(step: StoredStep, found: list[Shape]) -> bool:
    named = [isinstance(arg, str) for arg in step.args] == [False, True, True]
    if not named or step.places is not None or not step.shape:
        return False
    # eps is positive, so that no row divides by zero.
    if step.number is None or not step.number > 0:
        return False
    width = step.shape[-1:]
    return found == [step.shape, width, width]


def _reduced(step: StoredStep, found: list[Shape]) -> bool:
    plain = step.number is None and step.places is None and not isinstance(step.args[0], str)
    if not plain or len(found) != 1 or not found[0]:
        return False
    return step.shape == found[0][:-1]


_RULES = {
    "arrange": _arranged,
    "affine": _affine,
    "matmul": _product,
    "softmax": _softmax,
    "layer_norm": _norm,
    "sum": _reduced,
    "mean": _reduced,
}
