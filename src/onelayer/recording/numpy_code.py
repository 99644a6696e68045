"""NumPy code recorded as a formula: an array that hands every NumPy function to the recorder of torch functions.

NumPy asks its arguments first (``__array_ufunc__``, ``__array_function__``), so f runs unchanged. What is not known is
refused by name, with what to write instead; nothing is ever evaluated on samples.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.formats import spelled
from onelayer.recording.dispatch import CASTS, UNKNOWN, dispatch
from onelayer.recording.formats import settled
from onelayer.recording.numpy_functions import OWN, select
from onelayer.recording.symbolic import Recording, Symbolic, Truth, find_tape, lift

WHOLE = "write f with NumPy functions of whole arrays, as in np.sin(x[..., 0]), np.where(x > 0, a, b), np.stack([a, b])"
CONVERTED = f"Python control flow, math functions, np.vectorize and np.array cannot be recorded; {WHOLE}"
# NumPy's names of what torch calls otherwise.
_TORCH = {
    "absolute": "abs", "fabs": "abs", "subtract": "sub", "multiply": "mul", "true_divide": "div", "divide": "div",
    "power": "pow", "negative": "neg", "positive": "clone", "mod": "remainder", "arctan2": "atan2", "expit": "sigmoid",
    "concatenate": "cat", "expand_dims": "unsqueeze", "repeat": "repeat_interleave", "copy": "clone",
    "invert": "logical_not", "bitwise_and": "logical_and", "bitwise_or": "logical_or", "concat": "cat",
    "permute_dims": "permute",
    "gammaln": "lgamma", "equal": "eq", "bitwise_xor": "logical_xor",
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
    dtype = property(lambda self: np.dtype(spelled(self.inner.dtype)))

    @property
    def T(self) -> Array:
        """The dimensions in the opposite order."""
        return self._permuted(reversed(range(self.ndim)))

    def _permuted(self, axes: Any) -> Array:
        return self._with(self.inner.ids.permute(*axes))

    def _with(self, ids: Tensor) -> Array:
        """The same kind of array with other entries."""
        inner = self.inner
        return Array(Symbolic(inner.tape, ids, inner.kind) if isinstance(inner, Symbolic) else Truth(inner.tape, ids))

    def __array_ufunc__(self, ufunc: Any, how: str, *args: Any, **kwargs: Any) -> Any:
        # np.add.reduce, out= and where= are other functions than the plain call.
        if how != "__call__" or any(value is not None for value in kwargs.values()):
            name = f"np.{ufunc.__name__}"
            self.inner.tape.refuse(f"{name}.{how}", f"only {name}(...) is; {WHOLE}")
        _need_known(ufunc)
        return _called(ufunc.__name__, args, {})

    def __array_function__(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        _need_known(func)
        return _called(func.__name__, args, dict(kwargs))

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(f"recorded arrays have no attribute {name}; {WHOLE}")
        return lambda *args, **kwargs: _called(name, (self, *args), kwargs)

    def astype(self, dtype: Any, **options: Any) -> Array:
        """A copy in float64; other formats are refused."""
        if np.dtype(dtype) != np.float64:
            raise UnsupportedOperation(f"astype({np.dtype(dtype)})", "f is taken in float64; leave the cast out")
        numbers = lift(self.inner.tape, self.inner)
        return Array(Symbolic(numbers.tape, numbers.ids.clone()))

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
            # torch has no views that run backwards.
            return self._with(self.inner.tape.twins.taken(self.inner.ids, partial(_backwards, index)))
        found = self.inner[_index(index)]
        # One entry by whole numbers alone is a number in NumPy, and no view: what is written later is not seen by it.
        alone = found.ndim == 0 and not any(part is Ellipsis for part in parts)
        return self._with(found.ids.clone()) if alone else Array(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(self.inner, Symbolic):
            raise UnsupportedOperation("writing into a comparison", WHOLE)
        self.inner[_index(index)] = _torch(value)

    def __len__(self) -> int:
        return len(self.inner.ids)

    def __iter__(self) -> Iterator[Array]:
        return (self[at] for at in range(len(self)))

    def __bool__(self) -> bool:
        self.inner.tape.refuse("bool(x)", CONVERTED)

    def __float__(self) -> float:
        self.inner.tape.refuse("float(x)", CONVERTED)

    __int__ = __index__ = __float__

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.inner.tape.refuse("np.array(x)", CONVERTED)


def _backwards(index: Any, entries: Tensor) -> Tensor:
    """The entries at an index that runs backwards somewhere."""
    taken = np.ascontiguousarray(entries.numpy()[index])
    return torch.as_tensor(taken, device="cpu", dtype=torch.int64)


def recordable(f: Callable[[Any], Any], batched: bool) -> Callable[[Any], Any]:
    """``f`` on NumPy arrays as a function that can be recorded; one of single points goes through the batch."""

    def function(x: Symbolic) -> Any:
        # Whatever torch's default is, NumPy's numbers are float64.
        x.tape.default = torch.float64
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


# Functions of np.linalg that mean what np's of the same name do, and its norm.
_OF_LINALG = [getattr(np.linalg, name, None) for name in ("norm", "matmul", "outer")]


def _need_known(function: Any) -> None:
    """Functions are known by their names: one of another library, or of a corner of NumPy, may mean something else."""
    name = function.__name__
    homes = (np, sys.modules.get("scipy.special"))
    if function not in _OF_LINALG and not any(getattr(home, name, None) is function for home in homes):
        raise UnsupportedOperation(f"{getattr(function, '__module__', None) or 'a foreign'} {name}", WHOLE)


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
        return _own(tape, name, given, named)
    torch_name = _TORCH.get(name, name)
    function = getattr(Tensor, torch_name, getattr(torch, torch_name, None))
    try:
        return _array(dispatch(function or _missing, torch_name, given, named))
    except UnsupportedOperation as error:
        hint = WHOLE if error.hint == UNKNOWN else f"{error.hint}; {WHOLE}"
        raise UnsupportedOperation(f"np.{name}", hint) from error


def _own(tape: Recording, name: str, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    try:
        function = _OWN[name]
        arguments = inspect.signature(function).bind(tape, *given, **named).arguments
        return _array(settled(tape, name, arguments, function(tape, *given, **named)))
    except Exception as error:
        tape.refused = tape.refused or error
        raise


def _missing(*args: Any, **kwargs: Any) -> Any:
    raise UnsupportedOperation("a function without a torch version", WHOLE)


# Characters of NumPy's formats, and tensors that hold all their numbers; with float64 uint64 is promoted to float64.
_TYPES = {
    "d": torch.float64,
    "f": CASTS["float"],
    "e": CASTS["half"],
    "?": torch.bool,
    **dict.fromkeys("bhilqBHI", torch.int64),
    **dict.fromkeys("LQ" if np.dtype("L").itemsize == 8 else "Q", torch.float64),
}


def _torch(value: Any) -> Any:
    """Arrays as tensors, recorded ones as what they hold; all else as it is."""
    if isinstance(value, Array):
        return value.inner
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.char in _TYPES:
        kind = _TYPES[value.dtype.char]
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


def _piecewise(tape: Recording, x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **named: Any) -> Any:
    """np.piecewise: the last choice whose condition holds; one choice more than conditions is for all else."""
    conditions = [condlist] if isinstance(condlist, (Truth, Tensor)) else list(condlist)
    pieces = [_piece(tape, piece, lift(tape, x), args, named) for piece in funclist]
    with_default = len(pieces) == len(conditions) + 1
    default = pieces.pop() if with_default else 0.0
    # np.select takes the first that holds, np.piecewise the last.
    return select(tape, conditions[::-1], pieces[::-1], default)


def _piece(tape: Recording, piece: Any, x: Symbolic, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """One choice of np.piecewise at every entry: NumPy calls it on those entries alone for which it is chosen."""
    if not callable(piece):
        return piece
    flat = x.ids.reshape(-1)
    # Alone and among all others: what is the same function in both is so among any of them.
    parts = [flat, *flat.unsqueeze(1).unbind()]
    whole, *alone = (lift(tape, _torch(piece(Array(Symbolic(tape, ids)), *args, **named))).ids for ids in parts)
    found = torch.cat([ids.reshape(1) for ids in alone])
    if not torch.equal(whole.expand(found.shape), found):
        raise UnsupportedOperation("np.piecewise", "a piece must treat every entry alone")
    return Symbolic(tape, found.reshape(x.ids.shape))


_OWN: dict[str, Callable[..., Any]] = {**OWN, "piecewise": _piecewise}
