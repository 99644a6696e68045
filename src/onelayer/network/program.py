"""NetworkProgram: a network as a list of steps over tensors of fixed shape, a function of one point.

A step names an operation of the table below, the steps before it that it reads, and the stored tensors. Steps read only
what stands before them, so a program ends; it holds names, whole numbers and numbers, so reading one runs nothing.
docs/file-format.md describes the text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onelayer.disk import MAX_AXES, strict_json
from onelayer.errors import FileError

FORMAT, VERSION = "onelayer network", 1
MAX_STEPS = 2**14  # far more than a network that can be bounded has
# Numbers in one value, and in all lists of places together.
MAX_VALUES = 2**22
BINARY = ("add", "sub", "mul", "div", "minimum", "maximum")
UNARY = (
    *("neg", "abs", "relu", "exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "sin", "cos", "tan", "atan"),
    *("tanh", "sigmoid", "erf", "gelu", "gelu_tanh", "silu", "softplus", "mish"),
)
# Operations with one number of their own: its name in the text.
NUMBERED = {"scale": "by", "shift": "by", "leaky_relu": "slope", "elu": "alpha", "layer_norm": "eps"}
ALONG = ("softmax", "sum", "mean")  # the last axis
OPERATIONS = {*BINARY, *UNARY, *NUMBERED, *ALONG, "arrange", "affine", "matmul"}


@dataclass(frozen=True)
class Step:
    """One operation. ``args`` are numbers of earlier values (0 is the point, k the result of step k) or tensor names.

    ``places`` are, of ``arrange``, where each entry of the result stands among the entries of its arguments one after
    another (None: in their order), and of ``softmax`` the entries that take part (None: all).
    """

    op: str
    args: tuple[int | str, ...]
    shape: tuple[int, ...]
    number: float | None = None
    places: tuple[int, ...] | None = None

    def plain(self) -> dict[str, Any]:
        """The step as JSON has it."""
        data: dict[str, Any] = {"op": self.op, "args": list(self.args), "shape": list(self.shape)}
        if self.number is not None:
            data["number"] = self.number
        if self.places is not None:
            data["places"] = list(self.places)
        return data


@dataclass(frozen=True)
class NetworkProgram:
    """The shape of a point, the steps, the shapes of the stored tensors. The last step is the result."""

    input_shape: tuple[int, ...]
    steps: tuple[Step, ...]
    tensors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= len(self.steps) <= MAX_STEPS:
            raise FileError(f"a network has between 1 and {MAX_STEPS:,} steps, found {len(self.steps):,}")
        # Each list may be as long as a value: their sum alone bounds the memory.
        if sum(len(step.places or ()) for step in self.steps) > MAX_VALUES:
            raise FileError(f"the steps of a network list at most {MAX_VALUES:,} places")
        shapes: list[tuple[int, ...]] = [self.input_shape]
        for at, step in enumerate(self.steps, start=1):
            if not _fits(step, shapes, self.tensors):
                raise FileError(f"step {at} of the network ({step.op[:40]}) does not fit what it reads")
            shapes.append(step.shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.steps[-1].shape

    def text(self) -> str:
        """One line of JSON, the same for the same program."""
        steps = [step.plain() for step in self.steps]
        data = {"format": FORMAT, "version": VERSION, "input": list(self.input_shape), "steps": steps}
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def read_program(text: str, tensors: Mapping[str, tuple[int, ...]]) -> NetworkProgram:
    """The program in a text, every name, number and shape checked; FileError otherwise."""
    data = strict_json(text, "the network")
    if not isinstance(data, dict) or set(data) != {"format", "version", "input", "steps"} or data["format"] != FORMAT:
        raise FileError(f"this is not the text of a network: its 'format' must be {FORMAT!r}")
    # By type too: true and 1.0 equal 1 in Python, and are no versions.
    known = type(data["version"]) is int and data["version"] == VERSION
    if not known or not isinstance(data["steps"], list) or not _sizes(data["input"]):
        raise FileError("the network has an unknown version, or no steps, or no input shape")
    if len(data["steps"]) > MAX_STEPS:
        raise FileError(f"a network has at most {MAX_STEPS:,} steps")
    steps = tuple(map(_step, data["steps"]))
    return NetworkProgram(tuple(data["input"]), steps, tensors)


def _step(data: Any) -> Step:
    needed = {"op", "args", "shape"}
    known = {"op", "args", "shape", "number", "places"}
    if not isinstance(data, dict) or not needed <= set(data) <= known:
        raise FileError("a step of the network has missing or unknown fields")
    if not isinstance(data["op"], str) or data["op"] not in OPERATIONS:
        raise FileError(f"the network has a step that is not known: {str(data['op'])[:40]}")
    number = data.get("number", 0.0)
    places = data.get("places", [])
    rules = [
        _items(data["args"], (int, str)),
        _sizes(data["shape"]),
        # A whole number between two floats is no number that a network can run with.
        _items([number], (int, float)) and float(number) == number,
        _items(places, (int,)),
    ]
    if not all(rules):
        raise FileError(f"step {data['op']} of the network has a field of the wrong type")
    exact = float(number) if "number" in data else None
    chosen = tuple(places) if "places" in data else None
    args, shape = tuple(data["args"]), tuple(data["shape"])
    return Step(data["op"], args, shape, exact, chosen)


def _items(values: Any, kinds: tuple[type[Any], ...]) -> bool:
    """Whether this is a list of values of these types; a truth value is no number here."""
    return isinstance(values, list) and all(type(value) in kinds for value in values)


def _sizes(shape: Any) -> bool:
    if not isinstance(shape, list | tuple) or len(shape) > MAX_AXES:
        return False
    bounded = all(type(side) is int and 1 <= side <= MAX_VALUES for side in shape)
    return bounded and math.prod(shape) <= MAX_VALUES


def _fits(step: Step, before: list[tuple[int, ...]], tensors: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a step reads what is there, has the settings of its operation and the shape that follows."""
    if not _sizes(step.shape) or not step.args:
        return False
    found = []
    for arg in step.args:
        # Earlier values only: what a step reads exists, so a program has an order and an end.
        known = arg in tensors if isinstance(arg, str) else 0 <= arg < len(before)
        if not known:
            return False
        found.append(tensors[arg] if isinstance(arg, str) else before[arg])
    # Neither a number that is not read nor one that is missing.
    if (step.number is not None) != (step.op in NUMBERED):
        return False
    if step.places is not None and step.op not in ("arrange", "softmax"):
        return False
    return _SHAPES[_kind(step.op)](step, found)


def _kind(op: str) -> str:
    if op in BINARY:
        return "binary"
    plain = op in UNARY or op in ("scale", "shift", "leaky_relu", "elu")
    return "unary" if plain else op


def _arranged(step: Step, found: list[tuple[int, ...]]) -> bool:
    held = sum(map(math.prod, found))
    wanted = math.prod(step.shape)
    if step.places is None:
        return held == wanted
    if len(step.places) != wanted:
        return False
    return all(0 <= at < held for at in step.places)


def _affine(step: Step, found: list[tuple[int, ...]]) -> bool:
    """x (..., n), weight (m, n) and, if there is one, bias (m): tensors both."""
    if not 2 <= len(found) <= 3 or not all(isinstance(arg, str) for arg in step.args[1:]):
        return False
    x, weight = found[:2]
    if isinstance(step.args[0], str) or len(weight) != 2 or not x or x[-1] != weight[1]:
        return False
    outputs = weight[0]
    biased = found[2:] in ([], [(outputs,)])
    return biased and step.shape == (*x[:-1], outputs)


def _product(step: Step, found: list[tuple[int, ...]]) -> bool:
    """(G, a, b) times (G, b, c)."""
    if [len(shape) for shape in found] != [3, 3]:
        return False
    (g, a, b), (h, d, c) = found
    return g == h and b == d and step.shape == (g, a, c)


def _normalised(step: Step, found: list[tuple[int, ...]]) -> bool:
    """x (..., n) with gain (n) and offset (n), tensors both; eps > 0."""
    x, *parameters = step.args
    stored = all(isinstance(arg, str) for arg in parameters)
    if isinstance(x, str) or not stored or len(found) != 3 or not found[0]:
        return False
    width = found[0][-1:]
    if found[1:] != [width, width] or step.shape != found[0]:
        return False
    return step.number is not None and step.number > 0


def _weighed(step: Step, found: list[tuple[int, ...]]) -> bool:
    """Softmax of the last axis; in each row at least one entry takes part."""
    if len(found) != 1 or not found[0] or step.shape != found[0]:
        return False
    if step.places is None:
        return True
    size = math.prod(step.shape)
    width = step.shape[-1]
    inside = all(0 <= at < size for at in step.places)
    once = len(set(step.places)) == len(step.places)
    # A softmax of nothing has no value.
    rows = {at // width for at in step.places}
    return inside and once and len(rows) == size // width


def _unary(step: Step, found: list[tuple[int, ...]]) -> bool:
    return len(found) == 1 and step.shape == found[0]


def _binary(step: Step, found: list[tuple[int, ...]]) -> bool:
    return len(found) == 2 and step.shape == found[0] == found[1]


def _reduced(step: Step, found: list[tuple[int, ...]]) -> bool:
    """Sum or mean of the last axis."""
    return len(found) == 1 and bool(found[0]) and step.shape == found[0][:-1]


_SHAPES: dict[str, Callable[[Step, list[tuple[int, ...]]], bool]] = {
    "unary": _unary,
    "binary": _binary,
    "arrange": _arranged,
    "affine": _affine,
    "matmul": _product,
    "softmax": _weighed,
    "layer_norm": _normalised,
    "sum": _reduced,
    "mean": _reduced,
}
