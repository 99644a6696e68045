"""What ONNX operators compute of constants alone, and the attributes that the rules of others know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onelayer.errors import UnsupportedOperation
from onelayer.network.counts import divided


def _quotient(a: Any, b: Any) -> Any:
    """Integers are divided towards zero."""
    if object in (np.asarray(a).dtype, np.asarray(b).dtype):
        return np.frompyfunc(divided, 2, 1)(a, b)
    if np.asarray(a).dtype.kind not in "iu":
        return a / b
    _need_divisor(a, b)
    # Of sizes it would be wrong at the least integer, which has none.
    below = np.floor_divide(a, b)
    inexact = np.not_equal(np.multiply(below, b), a)
    return below + (inexact & (np.less(a, 0) != np.less(b, 0)))


def _remainder(a: Any, b: Any) -> Any:
    """Of integers, with the sign of the divisor."""
    _need_divisor(a, b)
    return np.mod(a, b)


def _need_divisor(a: Any, b: Any) -> None:
    """The quotient is an integer of the format: of zero it is none, and of the least one and -1 it is too large."""
    kind = np.asarray(a).dtype
    if kind.kind not in "iu":
        return
    least = np.iinfo(kind).min
    if np.any(np.equal(b, 0)) or (kind.kind == "i" and np.any(np.equal(a, least) & np.equal(b, -1))):
        raise UnsupportedOperation("a quotient of integers", "it has no value in their format")


def _power(a: Any, b: Any) -> Any:
    """In the format of the base, whatever that of the exponent is."""
    return np.power(a, b).astype(np.asarray(a).dtype)


# Of constants alone, in NumPy: what exporters compute shapes and masks with.
FOLDED: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _quotient,
    "Neg": np.negative,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Pow": _power,
    "Mod": _remainder,
    "Not": np.logical_not,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Less": np.less,
    "Greater": np.greater,
    "Equal": np.equal,
    "Where": np.where,
}
# Operators whose first result is the same whatever else they write: a mask, or statistics.
BESIDE = ("Dropout", "LayerNormalization")
# Attributes that the rules know; another one would change what a node means and is refused.
ATTRIBUTES: dict[str, set[str]] = {
    **{name: {"axis"} for name in ("Softmax", "Flatten", "Gather", "Concat")},
    **{name: {"axes", "keepdims", "noop_with_empty_axes"} for name in ("ReduceSum", "ReduceMean")},
    **{name: {"alpha"} for name in ("LeakyRelu", "Elu")},
    **{name: {"axes"} for name in ("Squeeze", "Unsqueeze")},
    "BatchNormalization": {"epsilon", "momentum", "training_mode"},
    "Cast": {"to"},
    "Constant": {"value", "value_float", "value_floats", "value_int", "value_ints"},
    "ConstantOfShape": {"value"},
    "Dropout": {"seed"},
    "Gelu": {"approximate"},
    "Gemm": {"alpha", "beta", "transA", "transB"},
    "LayerNormalization": {"axis", "epsilon", "stash_type"},
    "Reshape": {"allowzero"},
    "Shape": {"start", "end"},
    "Split": {"axis", "num_outputs"},
    "Transpose": {"perm"},
    "Trilu": {"upper"},
}
