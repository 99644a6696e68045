"""NumPy code recorded as a formula: an array that hands every NumPy function to the recorder of torch functions.

NumPy asks its arguments first (``__array_ufunc__``, ``__array_function__``), so f runs unchanged. What is not known is
refused by name, with what to write instead; nothing is ever evaluated on samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.language.functions import interpolate
from onelayer.recording.algebra import add, div, mul, sub, unary
from onelayer.recording.choices import truth, where
from onelayer.recording.dispatch import UNKNOWN, dispatch
from onelayer.recording.symbolic import Recording, Symbolic, Truth, find_tape, lift, positions

WHOLE = "write f with NumPy functions of whole arrays, as in np.sin(x[..., 0]), np.where(x > 0, a, b), np.stack([a, b])"
CONVERTED = f"Python control flow, math functions, np.vectorize and np.array cannot be recorded; {WHOLE}"
# NumPy's names of what torch calls otherwise.
_TORCH = {
    "absolute": "abs", "fabs": "abs", "subtract": "sub", "multiply": "mul", "true_divide": "div", "divide": "div",
    "power": "pow", "negative": "neg", "positive": "clone", "mod": "remainder", "arctan2": "atan2", "expit": "sigmoid",
    "max": "amax", "min": "amin", "concatenate": "cat", "dot": "matmul", "expand_dims": "unsqueeze",
    "repeat": "repeat_interleave", "copy": "clone", "invert": "logical_not", "bitwise_and": "logical_and",
    "bitwise_or": "logical_or", "vdot": "dot", "concat": "cat", "permute_dims": "permute",
    "gammaln": "lgamma",
}  # fmt: skip
_KEYWORDS = {"axis": "dim", "axes": "dims", "keepdims": "keepdim", "a_min": "min", "a_max": "max"}
_NOT_GIVEN = np._NoValue
_METHODS = frozenset(
    {
        *("sum", "mean", "prod", "var", "std", "max", "min", "clip", "reshape", "ravel", "flatten", "squeeze", "dot"),
        *("copy", "cumsum", "any", "all"),
    }
)


class Array(NDArrayOperatorsMixin):
    """A NumPy array of recorded numbers or conditions."""

    def __init__(self, inner: Symbolic | Truth) -> None:
        self.inner = inner

    shape = property(lambda self: tuple(self.inner.shape))
    ndim = property(lambda self: self.inner.ndim)
    size = property(lambda self: self.inner.ids.numel())
    dtype = property(lambda self: np.dtype(np.float64 if isinstance(self.inner, Symbolic) else np.bool_))

    @property
    def T(self) -> Array:
        """The dimensions in the opposite order."""
        return self._permuted(reversed(range(self.ndim)))

    def _permuted(self, axes: Any) -> Array:
        return self._with(self.inner.ids.permute(*axes))

    def _with(self, ids: Tensor) -> Array:
        """The same kind of array with other entries."""
        return Array(type(self.inner)(self.inner.tape, ids))

    def __array_ufunc__(self, ufunc: Any, how: str, *args: Any, **kwargs: Any) -> Any:
        # np.add.reduce, out= and where= are other functions than the plain call.
        if how != "__call__" or any(value is not None for value in kwargs.values()):
            name = f"np.{ufunc.__name__}"
            raise UnsupportedOperation(f"{name}.{how}", f"only {name}(...) is; {WHOLE}")
        return _called(ufunc.__name__, args, {})

    def __array_function__(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return _called(func.__name__, args, dict(kwargs))

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(f"recorded arrays have no attribute {name}; {WHOLE}")
        return lambda *args, **kwargs: _called(name, (self, *args), kwargs)

    def astype(self, dtype: Any, **options: Any) -> Array:
        """A copy in float64; other formats are refused."""
        if np.dtype(dtype) != np.float64:
            raise UnsupportedOperation(f"astype({np.dtype(dtype)})", "f is taken in float64; leave the cast out")
        return Array(lift(self.inner.tape, self.inner))

    def transpose(self, *axes: Any) -> Array:
        """The dimensions in another order, by default the opposite one."""
        whole = len(axes) == 1 and not isinstance(axes[0], int)
        order = axes[0] if whole else axes
        if order:
            return self._permuted(order)
        return self.T

    def __getitem__(self, index: Any) -> Array:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, slice) and part.step is not None and part.step < 0 for part in parts):
            # torch has no views that run backwards; a copy is the same as long as nothing is written into it
            ids = np.ascontiguousarray(self.inner.ids.numpy()[index])
            return self._with(torch.as_tensor(ids, device="cpu", dtype=torch.int64))
        return Array(self.inner[_index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(self.inner, Symbolic):
            raise UnsupportedOperation("writing into a comparison", WHOLE)
        self.inner[_index(index)] = _torch(value)

    def __len__(self) -> int:
        return len(self.inner.ids)

    def __iter__(self) -> Iterator[Array]:
        return (self[at] for at in range(len(self)))

    def __bool__(self) -> bool:
        raise UnsupportedOperation("bool(x)", CONVERTED)

    def __float__(self) -> float:
        raise UnsupportedOperation("float(x)", CONVERTED)

    __int__ = __index__ = __float__

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperation("np.array(x)", CONVERTED)


def recordable(f: Callable[[Any], Any], batched: bool) -> Callable[[Any], Any]:
    """``f`` on NumPy arrays as a function that can be recorded; one of single points goes through the batch."""

    def function(x: Symbolic) -> Any:
        # A clone: code that writes into its argument would otherwise write into the variables of the recording.
        if batched:
            return _result(f(Array(Symbolic(x.tape, x.ids.clone()))))
        points = (Array(Symbolic(x.tape, ids.clone())) for ids in x.ids)
        rows = [lift(x.tape, _result(f(point))) for point in points]
        return Symbolic(x.tape, torch.stack([row.ids for row in rows]))

    return function


def _result(value: Any) -> Any:
    """What f returned, for the recorder: several numbers of one point may come as a list."""
    if isinstance(value, (list, tuple)) and any(isinstance(part, Array) for part in value):
        value = np.stack(list(value), axis=-1)
    if isinstance(value, Array):
        return lift(value.inner.tape, value.inner)
    if not isinstance(value, (int, float, np.ndarray, np.generic)):
        raise OnelayerError(f"f returned {type(value).__name__}; it must return numbers: one array, or a list of them")
    array = np.asarray(value, dtype=np.float64)
    return torch.as_tensor(array, dtype=torch.float64, device="cpu")


def _called(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """One NumPy function or method, recorded."""
    given = [_torch(arg) for arg in args]
    passed = {key: value for key, value in kwargs.items() if value is not _NOT_GIVEN}
    named = {_KEYWORDS.get(key, key): _torch(value) for key, value in passed.items()}
    # NumPy calls this for arrays of ours alone, but they may be hidden in a list.
    tape = find_tape((given, named))
    if tape is None:
        raise UnsupportedOperation(f"np.{name}", "it was called without any value of x")
    # First what NumPy means otherwise than torch does by the same name.
    if name in _OWN:
        return _array(_OWN[name](tape, *given, **named))
    torch_name = _TORCH.get(name, name)
    function = getattr(Tensor, torch_name, getattr(torch, torch_name, None))
    try:
        return _array(dispatch(function or _missing, torch_name, given, named))
    except UnsupportedOperation as error:
        hint = WHOLE if error.hint == UNKNOWN else f"{error.hint}; {WHOLE}"
        raise UnsupportedOperation(f"np.{name}", hint) from error


def _missing(*args: Any, **kwargs: Any) -> Any:
    raise UnsupportedOperation("a function without a torch version", WHOLE)


# Kinds of NumPy numbers that have a tensor.
_TYPES = {"f": torch.float64, "i": torch.int64, "u": torch.int64, "b": torch.bool}


def _torch(value: Any) -> Any:
    """Arrays as tensors, recorded ones as what they hold; all else as it is."""
    if isinstance(value, Array):
        return value.inner
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _TYPES:
        kind = _TYPES[value.dtype.kind]
        array = np.ascontiguousarray(value)
        return torch.as_tensor(array, dtype=kind, device="cpu").reshape(value.shape)
    # A list with recorded entries is stacked or joined by whoever gets it; one of numbers is a constant.
    if isinstance(value, list) and find_tape([_torch(part) for part in value]) is not None:
        return [_torch(part) for part in value]
    if isinstance(value, tuple):
        return tuple(_torch(part) for part in value)
    return value


def _array(value: Any) -> Any:
    if isinstance(value, (Symbolic, Truth)):
        return Array(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(_array, value))
    return value


def _index(index: Any) -> Any:
    if find_tape(_torch(index)) is not None:
        raise UnsupportedOperation("x[x > 0]", "an index that depends on x cannot be recorded; use np.where")
    return _torch(index)


def _variance(name: str) -> Callable[..., Any]:
    """np.var and np.std divide by n - ddof, ddof being 0."""

    def spread(tape: Recording, a: Any, dim: Any = None, *, ddof: float = 0, keepdim: bool = False) -> Any:
        settings = {"correction": ddof, "keepdim": keepdim}
        return dispatch(getattr(torch, name), name, (a, dim), settings)

    return spread


def _sort(tape: Recording, a: Any, dim: int = -1) -> Any:
    return dispatch(torch.sort, "sort", (a, dim), {}).values


def _transpose(tape: Recording, a: Any, dims: Any = None) -> Any:
    order = reversed(range(a.ndim)) if dims is None else dims
    return dispatch(torch.permute, "permute", (a, list(order)), {})


def _norm(tape: Recording, x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    return dispatch(torch.linalg.norm, "linalg_norm", (x, ord, dim, keepdim), {})


def _exp2(tape: Recording, x: Any) -> Any:
    return dispatch(torch.pow, "pow", (lift(tape, 2.0), x), {})


def _logaddexp(tape: Recording, a: Any, b: Any) -> Any:
    total = add(tape, unary(tape, "exp", a), unary(tape, "exp", b))
    return unary(tape, "log", total)


def _interp(tape: Recording, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """np.interp: the broken line through (xp, fp), constant beyond."""
    if left is not None or right is not None or period is not None:
        raise UnsupportedOperation("np.interp(left, right, period)", "leave them out")
    places = lift(tape, xp).ids.tolist()
    values = lift(tape, fp).ids.tolist()
    ids = lift(tape, x).ids
    found = [interpolate(tape, at, places, values) for at in ids.flatten().tolist()]
    return Symbolic(tape, positions(found, ids.shape))


def _polyval(tape: Recording, p: Any, x: Any) -> Any:
    """np.polyval: the first coefficient belongs to the highest power."""
    coefficients = lift(tape, p).ids.unbind(0)
    total = lift(tape, 0.0)
    for coefficient in coefficients:
        total = add(tape, mul(tape, total, x), Symbolic(tape, coefficient))
    return total


def _select(tape: Recording, condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0.0) -> Any:
    """np.select: the first choice whose condition holds."""
    # From the last to the first: whoever is asked last, the first, decides.
    chosen = lift(tape, default)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        chosen = where(tape, truth(tape, condition, "np.select"), choice, chosen)
    return chosen


def _piecewise(tape: Recording, x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **named: Any) -> Any:
    """np.piecewise: the last choice whose condition holds; one choice more than conditions is for all else."""
    conditions = [condlist] if isinstance(condlist, (Truth, Tensor)) else list(condlist)
    pieces = [_torch(piece(Array(x), *args, **named)) if callable(piece) else piece for piece in funclist]
    with_default = len(pieces) == len(conditions) + 1
    default = pieces.pop() if with_default else 0.0
    # np.select takes the first that holds, np.piecewise the last.
    return _select(tape, conditions[::-1], pieces[::-1], default)


def _trapezoid(tape: Recording, y: Any, x: Any = None, dx: Any = 1.0, dim: int = -1) -> Any:
    """np.trapezoid: the area below the broken line through values."""
    left, right = _neighbours(tape, lift(tape, y), dim)
    steps = dx if x is None else _diff(tape, x)
    doubled = mul(tape, add(tape, left, right), steps)
    return dispatch(torch.sum, "sum", (mul(tape, doubled, 0.5), dim), {})


def _neighbours(tape: Recording, x: Symbolic, dim: int) -> tuple[Symbolic, Symbolic]:
    """All entries along a dimension but the last, and all but the first."""
    size = x.shape[dim]
    first = Symbolic(tape, x.ids.narrow(dim, 0, size - 1))
    second = Symbolic(tape, x.ids.narrow(dim, 1, size - 1))
    return first, second


def _ndtr(tape: Recording, x: Any) -> Any:
    """The distribution function of the normal distribution: erfc(-x / sqrt 2) / 2."""
    scaled = div(tape, x, -math.sqrt(2.0))
    return mul(tape, unary(tape, "erfc", scaled), 0.5)


def _diff(tape: Recording, a: Any, n: int = 1, dim: int = -1) -> Any:
    x = lift(tape, a)
    for _ in range(n):
        earlier, later = _neighbours(tape, x, dim)
        x = sub(tape, later, earlier)
    return x


def _angle(factor: float) -> Callable[..., Any]:
    return lambda tape, x: mul(tape, x, factor)


_OWN: dict[str, Callable[..., Any]] = {
    "var": _variance("var"),
    "std": _variance("std"),
    "sort": _sort,
    "transpose": _transpose,
    "norm": _norm,
    "exp2": _exp2,
    "logaddexp": _logaddexp,
    "interp": _interp,
    "polyval": _polyval,
    "select": _select,
    "diff": _diff,
    "piecewise": _piecewise,
    "trapezoid": _trapezoid,
    "trapz": _trapezoid,
    "ndtr": _ndtr,
    "radians": _angle(np.pi / 180),
    "deg2rad": _angle(np.pi / 180),
    "degrees": _angle(180 / np.pi),
    "rad2deg": _angle(180 / np.pi),
    "reciprocal": lambda tape, x: div(tape, 1.0, x),
}
