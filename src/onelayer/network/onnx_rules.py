"""How ONNX operators are written as steps of a network, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.errors import UnsupportedOperation
from onelayer.formats import FLOAT32, FLOAT64, format_of
from onelayer.network.builder import Known, NetworkWriter, Value, moved, parts_of
from onelayer.network.counts import counted

Rule = Callable[[NetworkWriter, list[Any], dict[str, Any]], Any]
RULES: dict[str, Rule] = {}
# Defaults of attributes, which are float32.
HUNDREDTH = float(np.float32(0.01))
EPSILON = float(np.float32(1e-5))
FLOAT, INT64, DOUBLE = 1, 7, 11  # TensorProto
# Formats in which a norm of a format may be computed.
NO_NARROWER = {FLOAT32: (FLOAT, DOUBLE), FLOAT64: (DOUBLE,)}
NAMES = {
    **{name.capitalize(): name for name in ("neg", "abs", "relu", "exp", "log", "sqrt", "reciprocal", "sin", "cos")},
    **{name.capitalize(): name for name in ("tan", "atan", "tanh", "sigmoid", "erf", "mish")},
}


def _applied(op: str) -> Rule:
    return lambda write, args, settings: write.apply(op, args[0])


def _combined(op: str) -> Rule:
    return lambda write, args, settings: write.combine(op, args[0], args[1])


RULES |= {name: _applied(op) for name, op in NAMES.items()}
RULES |= {name: _combined(name.lower()) for name in ("Add", "Sub", "Mul", "Div")}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how operators of these names are written."""

    def register(written: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, written))
        return written

    return register


def whole_numbers(x: Any) -> list[int]:
    """A constant list of integers."""
    if isinstance(x, Value) or np.asarray(x).dtype.kind not in "iu":
        raise UnsupportedOperation("a shape that depends on the point", "export with fixed sizes")
    return [int(value) for value in np.asarray(x).reshape(-1)]


def axes_of(args: list[Any], settings: dict[str, Any], at: int = 1) -> list[int] | None:
    """Axes, which newer versions give as an input and older ones as an attribute."""
    if len(args) > at and args[at] is not None:
        return whole_numbers(args[at])
    return settings.get("axes")


@rule("Identity", "Dropout")
def same(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """The value itself; dropout is none at inference."""
    if len(args) > 2 and bool(np.asarray(args[2]).any()):
        raise UnsupportedOperation("Dropout", "export the model in eval mode")
    found: Known = args[0]
    return found


@rule("Cast", "CastLike")
def cast(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Of a constant to what it is cast to; of a value to its own format."""
    kinds = {1: np.float32, 11: np.float64, 6: np.int32, 7: np.int64, 9: np.bool_}
    to = settings.get("to")
    if not isinstance(args[0], Value):
        if counted(args[0]) and to == INT64:
            return np.asarray(args[0])
        if to not in kinds:
            raise UnsupportedOperation("Cast", "to float32, float64, integers or truth values")
        return _cast(np.asarray(args[0]), np.dtype(kinds[to]))
    formats = {FLOAT: "torch.float32", DOUBLE: "torch.float64"}
    if formats.get(to or 0) != str(write.dtype):
        raise UnsupportedOperation("Cast", "a value keeps its format")
    return args[0]


def _cast(values: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    """A number that no integer of the format is near to has no cast of its own: every runtime has another."""
    if kind.kind == "i" and values.dtype.kind == "f":
        whole = np.trunc(values.astype(np.float64))
        ends = np.iinfo(kind)
        # As floats: the largest integer of 64 bits is rounded up to one that is none.
        if not bool(((whole >= float(ends.min)) & (whole < float(ends.max) + 1.0)).all()):
            raise UnsupportedOperation("Cast", f"of numbers that {kind} holds")
    return values.astype(kind)


@rule("Constant")
def constant(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """A stored number or tensor."""
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name in ("value", *kinds):
        if name in settings:
            return np.asarray(settings[name], dtype=kinds.get(name))
    raise UnsupportedOperation("Constant", "of numbers alone")


@rule("ConstantOfShape")
def filled(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """One number everywhere."""
    # Zero in float32 where nothing is said, as ONNX has it.
    value = np.asarray(settings.get("value", np.zeros(1, dtype=np.float32)))
    sides = _bounded(whole_numbers(args[0]))
    return np.full(sides, value.reshape(-1).item(), dtype=value.dtype)


def _bounded(shape: list[int]) -> list[int]:
    # As floats: a product of hostile sides must not wrap around.
    if np.prod([float(side) for side in shape]) > 2**22:
        raise UnsupportedOperation("a tensor of that size", "values have at most 2^22 entries")
    return shape


@rule("Trilu")
def triangle(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """A triangle of a constant matrix."""
    if isinstance(args[0], Value):
        raise UnsupportedOperation("Trilu", "of a constant")
    given = len(args) > 1
    diagonal = int(np.asarray(args[1]).reshape(-1)[0]) if given else 0
    triangular = np.triu if settings.get("upper", 1) else np.tril
    found: Known = triangular(args[0], diagonal)
    return found


@rule("Shape")
def shape(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """The shape, a batch being one point."""
    start = settings.get("start", 0)
    sizes = list(args[0].shape)[start : settings.get("end")]
    return np.array(sizes, dtype=np.int64)


GEMM = {"alpha": 1.0, "beta": 1.0, "transA": 0}  # settings of Gemm that are taken


@rule("Gemm")
def gemm(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """alpha A' B' + beta C with constant B and C."""
    a, b, *rest = args
    if not isinstance(a, Value) or any(isinstance(one, Value) for one in (b, *rest)):
        raise UnsupportedOperation("Gemm", "with constant weights")
    if any(settings.get(name, usual) != usual for name, usual in GEMM.items()):
        raise UnsupportedOperation("Gemm", "with alpha = beta = 1 and transA = 0")
    weight = np.asarray(b)
    weight = weight if settings.get("transB", 0) else weight.T
    c = rest[0] if rest else None
    offset = None if c is None else _offset(c, len(weight))
    return write.affine(a, weight, offset)


def _offset(c: Any, count: int) -> NDArray[Any]:
    """The offset of a Gemm, one number for each of ``count`` outputs."""
    if np.ndim(c) > 1 and np.shape(c)[0] != 1:
        raise UnsupportedOperation("Gemm", "with an offset that is the same for every point")
    return np.broadcast_to(np.asarray(c).reshape(-1), (count,))


@rule("MatMul")
def product(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """A product of matrices."""
    return write.matmul(args[0], args[1])


@rule("Pow")
def power(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Squares, cubes and roots."""
    names = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
    x, exponent = args
    # A longer exponent would broadcast the value, which this rule does not do.
    if isinstance(exponent, Value) or np.size(exponent) != 1 or np.ndim(exponent) > len(x.shape):
        raise UnsupportedOperation("Pow", "with one number as its exponent")
    number = float(np.asarray(exponent).reshape(-1)[0])
    if number in names:
        return write.apply(names[number], x)
    if number == 3.0:
        return write.combine("mul", write.apply("square", x), x)
    raise UnsupportedOperation("Pow", "with exponents 2, 3, 1/2, -1/2 and -1")


@rule("LeakyRelu")
def leaky_relu(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """x, or alpha x below zero."""
    return write.apply("leaky_relu", args[0], settings.get("alpha", HUNDREDTH))


@rule("Elu")
def elu(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """x, or alpha (e^x - 1) below zero."""
    return write.apply("elu", args[0], settings.get("alpha", 1.0))


@rule("Gelu")
def gelu(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Either form."""
    forms = {b"none": "gelu", b"tanh": "gelu_tanh"}
    return write.apply(forms[settings.get("approximate", b"none")], args[0])


@rule("Softplus")
def softplus(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """log(1 + e^x), without the threshold that torch's has."""
    above_one = write.apply("shift", write.apply("exp", args[0]), 1.0)
    return write.apply("log", above_one)


def _extreme(op: str) -> Rule:
    def written(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
        found: Known = args[0]
        for other in args[1:]:
            found = write.combine(op, found, other)
        return found

    return written


RULES |= {"Min": _extreme("minimum"), "Max": _extreme("maximum")}


@rule("Clip")
def clip(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Not below, not above."""
    found: Known = args[0]
    # Newer versions give the ends as inputs, older ones as attributes.
    low = args[1] if len(args) > 1 else settings.get("min")
    high = args[2] if len(args) > 2 else settings.get("max")
    for op, end in (("maximum", low), ("minimum", high)):
        if end is not None:
            found = write.combine(op, found, np.asarray(end, dtype=np.float64))
    return found


@rule("Softmax")
def softmax(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Along one axis, the last by default."""
    return write.along("softmax", args[0], settings.get("axis", -1))


@rule("LayerNormalization")
def layer_norm(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Of the last axis."""
    # A step normalises the last axis alone.
    if settings.get("axis", -1) not in (-1, len(args[0].shape) - 1):
        raise UnsupportedOperation("LayerNormalization", "of the last axis")
    if settings.get("stash_type", FLOAT) not in NO_NARROWER[format_of(write.dtype)]:
        raise UnsupportedOperation(
            "LayerNormalization", "with a stash_type (1 if none is given) of its own format or 11"
        )
    offset = args[2] if len(args) > 2 else None
    return write.normalise(args[0], args[1], offset, settings.get("epsilon", EPSILON))


def _reduction(op: str) -> Rule:
    def written(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
        # With it no axes mean none; without, all of them.
        if settings.get("noop_with_empty_axes", 0):
            raise UnsupportedOperation("a reduction over no axes", "name the axes")
        keepdims = bool(settings.get("keepdims", 1))
        return write.reduced(op, args[0], axes_of(args, settings), keepdims)

    return written


RULES |= {"ReduceSum": _reduction("sum"), "ReduceMean": _reduction("mean")}


@rule("Reshape")
def reshape(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """0 keeps a size, -1 is what is left."""
    sizes = whole_numbers(args[1])
    zeros_keep = not settings.get("allowzero")
    own = args[0].shape
    kept = [own[at] if size == 0 and zeros_keep else size for at, size in enumerate(sizes)]
    return moved(args[0], lambda v: v.reshape(kept))


@rule("Flatten")
def flatten(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Two axes: those before, those from ``axis`` on."""
    axis = settings.get("axis", 1)
    before = int(np.prod(args[0].shape[:axis], dtype=np.int64))
    return moved(args[0], lambda v: v.reshape(before, -1))


@rule("Transpose")
def transpose(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Axes in another order."""
    order = settings.get("perm")  # all axes the other way round without it
    return moved(args[0], lambda v: np.transpose(v, order))


@rule("Squeeze")
def squeeze(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Without axes of size one."""
    axes = axes_of(args, settings)
    # An empty list is all of them to some runtimes, and none to others.
    if axes == []:
        raise UnsupportedOperation("Squeeze", "name the axes, or give no list of them")
    chosen = None if axes is None else tuple(axes)
    return moved(args[0], lambda v: np.squeeze(v, chosen))


@rule("Unsqueeze")
def unsqueeze(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """With axes of size one."""
    axes = tuple(axes_of(args, settings) or ())
    return moved(args[0], lambda v: np.expand_dims(v, axes))


@rule("Slice")
def sliced(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Part of some axes."""
    if len(args) < 3:
        raise UnsupportedOperation("Slice", "of opset 10 or later")
    starts = whole_numbers(args[1])
    ends = whole_numbers(args[2])
    axes = axes_of(args, {}, 3) or list(range(len(starts)))
    steps = axes_of(args, {}, 4) or [1] * len(starts)
    index = [slice(None)] * len(args[0].shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # Downwards ONNX begins with the first entry where Python has none, and ends by the smallest integer, not None.
        first = max(start, -args[0].shape[axis]) if step < 0 else start
        index[axis] = slice(first, None if step < 0 and end < -(2**31) else end, step)
    return moved(args[0], lambda v: v[tuple(index)])


@rule("Gather")
def gather(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Entries of one axis, by constant numbers."""
    # Which entries are taken must not depend on the point.
    if isinstance(args[1], Value):
        raise UnsupportedOperation("Gather", "by constant indices")
    axis = settings.get("axis", 0)
    return moved(args[0], lambda v: np.take(v, args[1], axis))


@rule("Split")
def split(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> list[Known]:
    """Parts along an axis."""
    axis = settings.get("axis", 0)
    sizes = axes_of(args, {})
    whole = args[0].shape[axis]
    if sizes is None:
        count = settings["num_outputs"]
        most = -(-whole // count)
        # All of one size; the last may be smaller.
        last = whole - most * (count - 1)
        sizes = [most] * (count - 1) + [last]
    if min(sizes) < 0 or sum(sizes) != whole:
        raise UnsupportedOperation("Split", f"into parts that make up its axis of {whole}")
    ends = np.cumsum(sizes)[:-1]
    return parts_of(args[0], ends, axis)


@rule("Concat")
def concat(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Side by side."""
    return write.join(list(args), settings["axis"])


@rule("Expand")
def expand(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """Copies along axes of size one."""
    asked = _bounded(whole_numbers(args[1]))
    wanted = np.broadcast_shapes(args[0].shape, tuple(asked))
    return moved(args[0], lambda v: np.broadcast_to(v, wanted))


@rule("BatchNormalization")
def batch_norm(write: NetworkWriter, args: list[Any], settings: dict[str, Any]) -> Known:
    """(x - mean) / sqrt(var + eps) scale + offset with constants along the second axis.

    The root is a step of its own: rounded here, it would be another number in real arithmetic.
    """
    x, scale, offset, mean, var = args[:5]
    if settings.get("training_mode", 0):
        raise UnsupportedOperation("BatchNormalization", "in training mode")
    root = write.apply("sqrt", write.apply("shift", write.held(np.asarray(var)), settings.get("epsilon", EPSILON)))
    ends = [1] * (len(x.shape) - 2)
    moves = (("sub", np.asarray(mean)), ("div", root), ("mul", np.asarray(scale)), ("add", np.asarray(offset)))
    for op, numbers in moves:
        x = write.combine(op, x, moved(numbers, lambda v: v.reshape(-1, *ends)))
    found: Known = x
    return found
