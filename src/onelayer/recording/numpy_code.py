"""NumPy code recorded as a formula: an array that hands every NumPy function to the recorder of torch functions.

NumPy asks its arguments first (``__array_ufunc__``, ``__array_function__``), so f runs unchanged. What is not known is
refused by name, with what to write instead; nothing is ever evaluated on samples.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import EllipsisType
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from onelayer.errors import OnelayerError, UnsupportedOperation
from onelayer.formats import spelled
from onelayer.recording.beside import run_beside
from onelayer.recording.dispatch import CASTS, UNKNOWN, dispatch
from onelayer.recording.formats import settled
from onelayer.recording.numpy_functions import OWN, select
from onelayer.recording.recorded import Recorded
from onelayer.recording.symbolic import Recording, Symbolic, Truth, find_tape, lift
from onelayer.recording.unasked import refuse_raising, unasked

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


class Array(Recorded, NDArrayOperatorsMixin):
    """A NumPy array of recorded numbers or conditions."""

    numbered = (np.ndarray, np.float64)

    def __init__(self, inner: Symbolic | Truth, beside: Any = None) -> None:
        self.inner = inner
        self.beside = beside

    shape = property(lambda self: tuple(self.inner.shape))
    ndim = property(lambda self: self.inner.ndim)
    size = property(lambda self: self.inner.ids.numel())
    dtype = property(lambda self: np.dtype(spelled(self.inner.dtype)))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What isinstance answers by: the class of the numbers that it stands for."""
        usual: type = np.ndarray if self.ndim else np.float64
        return usual if self.beside is None else type(self.beside)

    @property
    def T(self) -> Array:
        """The dimensions in the opposite order."""
        return self.transpose()

    def _met(self, name: str, found: Array, *args: Any) -> Array:
        """What a method returns, once NumPy's own has returned the same of the numbers."""
        method = operator.methodcaller(name, *args)
        met: Array = run_beside(self.inner.tape, name, method, (self,), {}, found)
        return met

    def _with(self, ids: Tensor) -> Array:
        """The same kind of array with other entries."""
        inner = self.inner
        return Array(Symbolic(inner.tape, ids, inner.kind) if isinstance(inner, Symbolic) else Truth(inner.tape, ids))

    def __array_ufunc__(self, ufunc: Any, how: str, *args: Any, **kwargs: Any) -> Any:
        # np.add.reduce, out= and where= are other functions than the plain call.
        if how != "__call__" or any(value is not None for value in kwargs.values()):
            name = f"np.{ufunc.__name__}"
            self.refuse(f"{name}.{how}", f"only {name}(...) is; {WHOLE}")
        _need_known(ufunc)
        return _called(ufunc, args, {})

    def __array_function__(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        _need_known(func)
        return _called(func, args, dict(kwargs))

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            self.absent(name)
        return lambda *args, **kwargs: _called(_Method(name), (self, *args), kwargs)

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Array:
        """A copy in float64, or itself where none is asked for; other formats are refused."""
        if np.dtype(dtype) != np.float64:
            self.refuse(f"astype({np.dtype(dtype)})", "f is taken in float64; leave the cast out")
        if not copy and self.dtype == np.float64:
            return self._met("astype", self, dtype, order, casting, subok, copy)
        numbers = lift(self.inner.tape, self.inner)
        found = Array(Symbolic(numbers.tape, numbers.ids.clone()))
        return self._met("astype", found, dtype, order, casting, subok, copy)

    def transpose(self, *axes: Any) -> Array:
        """The dimensions in another order, by default the opposite one."""
        whole = len(axes) == 1 and not isinstance(axes[0], int)
        order = axes[0] if whole else axes
        return self._met("transpose", self._with(self.inner.ids.permute(*(order or reversed(range(self.ndim))))), *axes)

    def __getitem__(self, index: Any) -> Array:
        _need_numbers(index)
        return self._met("__getitem__", self._with(self._entries(index)), index)

    def _entries(self, index: Any) -> Tensor:
        """The entries at an index of NumPy, as a view where NumPy has one."""
        ids = self.inner.ids
        parts = index if isinstance(index, tuple) else (index,)
        taken = partial(_by_numpy, index)
        # Lists and arrays choose entries, and what is chosen is a copy; torch puts its dimensions elsewhere.
        if not all(isinstance(part, _PLAIN) and not isinstance(part, bool) for part in parts):
            return taken(ids)
        if any(map(_runs_backwards, parts)):
            # torch has no views that run backwards.
            backwards: Tensor = self.inner.tape.twins.taken(ids, taken)
            return backwards
        found: Tensor = ids[index]
        # One entry by whole numbers alone is a number in NumPy, and no view: what is written later is not seen by it.
        alone = found.ndim == 0 and not any(part is Ellipsis for part in parts)
        return found.clone() if alone else found

    def __setitem__(self, index: Any, value: Any) -> None:
        _need_numbers(index)
        tape, ids = self.inner.tape, self.inner.ids
        if not isinstance(self.inner, Symbolic):
            tape.refuse("writing into a comparison", WHOLE)
        numbered = torch.arange(ids.numel(), dtype=torch.int64, device="cpu").reshape(ids.shape)
        places = _by_numpy(index, numbered)
        if len(np.unique(places)) < places.numel():
            tape.refuse("x[...] = ", "an entry is written twice; write each once")
        # Places in torch's sense: where lists and arrays choose, NumPy's index is another one.
        self.inner[torch.unravel_index(places, ids.shape)] = _torch(value)
        if self.beside is not None:
            self.beside[index] = value.beside if isinstance(value, Recorded) else value

    def __copy__(self) -> Array:
        copied: Array = self.copy()
        return copied

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()

    def __len__(self) -> int:
        return len(self.inner.ids)

    def __iter__(self) -> Iterator[Array]:
        return (self[at] for at in range(len(self)))

    def __bool__(self) -> bool:
        self.refuse("bool(x)", CONVERTED)

    def __float__(self) -> float:
        self.refuse("float(x)", CONVERTED)

    __int__ = __index__ = __complex__ = __contains__ = __float__

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.refuse("np.array(x)", CONVERTED)


def _runs_backwards(part: Any) -> bool:
    return isinstance(part, slice) and part.step is not None and part.step < 0


def _by_numpy(index: Any, entries: Tensor) -> Tensor:
    """Copies of the entries at any index of NumPy."""
    taken = np.array(entries.numpy()[index], dtype=np.int64, order="C")
    return torch.from_numpy(taken)


class _Method:
    """A method of arrays as a function of them."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, array: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(array, self.__name__)(*args, **kwargs)


def recordable(f: Callable[[Any], Any], batched: bool) -> Callable[[Any], Any]:
    """``f`` on NumPy arrays as a function that can be recorded; one of single points goes through the batch."""

    def function(x: Symbolic) -> Any:
        # Whatever torch's default is, NumPy's numbers are float64.
        x.tape.default = torch.float64
        # A clone: code that writes into its argument would otherwise write into the variables of the recording.
        # All of them before the code is watched: what makes them is not its own.
        copies = [_copied(x)] if batched else list(map(_copied, x))
        with unasked(x.tape):
            returned = [f(given) for given in copies]
        results = list(map(_result, returned))
        if batched:
            return results[0]
        rows = [lift(x.tape, result) for result in results]
        return Symbolic(x.tape, torch.stack([row.ids for row in rows]))

    return function


def _copied(x: Symbolic) -> Array:
    beside = None if x.beside is None else x.beside.numpy().copy()
    return Array(Symbolic(x.tape, x.ids.clone()), beside)


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


_PLAIN = (int, np.integer, slice, EllipsisType, type(None))  # what an index of views is made of
# Functions of np.linalg that mean what np's of the same name do, and its norm.
_OF_LINALG = [getattr(np.linalg, name, None) for name in ("norm", "matmul", "outer")]


def _need_known(function: Any) -> None:
    """Functions are known by their names: one of another library, or of a corner of NumPy, may mean something else."""
    name = function.__name__
    homes = (np, sys.modules.get("scipy.special"))
    if function not in _OF_LINALG and not any(getattr(home, name, None) is function for home in homes):
        raise UnsupportedOperation(f"{getattr(function, '__module__', None) or 'a foreign'} {name}", WHOLE)


def _need_plain(value: Any) -> None:
    """Refuse arrays of a class of its own, whose operators mean what that class says: those of np.matrix are products.

    Python asks such a class first where it stands beside an array, and does not where it stands beside a recorded one.
    """
    if isinstance(value, list | tuple):
        for part in value:
            _need_plain(part)
    own = isinstance(value, np.ndarray) or hasattr(type(value), "__array_ufunc__")
    if own and not isinstance(value, Recorded | np.generic) and type(value) not in (np.ndarray, np.memmap):
        raise UnsupportedOperation(f"an array of the class {type(value).__name__}", "use np.asarray of it")


def _called(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """One NumPy function or method, recorded, and run on the numbers beside its arguments."""
    _need_plain((*args, *kwargs.values()))
    tape, result = _recorded(function.__name__, args, kwargs)
    refuse_raising(tape)
    return run_beside(tape, f"np.{function.__name__}", function, args, kwargs, result)


def _recorded(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Recording, Any]:
    given = [_torch(arg) for arg in args]
    passed = {key: value for key, value in kwargs.items() if value is not _NOT_GIVEN}
    named = {_KEYWORDS.get(key, key): _torch(value) for key, value in passed.items()}
    # NumPy calls this for arrays of ours alone, but they may be hidden in a list.
    tape = find_tape((given, named))
    if tape is None:
        raise UnsupportedOperation(f"np.{name}", "it was called without any value of x")
    # First what NumPy means otherwise than torch does by the same name.
    if name in _OWN:
        return tape, _own(tape, name, given, named)
    torch_name = _TORCH.get(name, name)
    function = getattr(Tensor, torch_name, getattr(torch, torch_name, None))
    try:
        return tape, _array(dispatch(function or _missing, torch_name, given, named))
    except UnsupportedOperation as error:
        hint = WHOLE if error.hint == UNKNOWN else f"{error.hint}; {WHOLE}"
        raise UnsupportedOperation(f"np.{name}", hint) from error


def _own(tape: Recording, name: str, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    try:
        function = _OWN[name]
        arguments = _bound(name, inspect.signature(function), tape, *given, **named)
        return _array(settled(tape, name, arguments, function(tape, *given, **named)))
    except Exception as error:
        tape.refused = tape.refused or error
        raise


def _bound(name: str, signature: inspect.Signature, *given: Any, **named: Any) -> dict[str, Any]:
    try:
        return signature.bind(*given, **named).arguments
    except TypeError as error:
        raise UnsupportedOperation(f"np.{name}", f"{error}; leave it out") from None


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


def _need_numbers(index: Any) -> None:
    tape = find_tape(_torch(index))
    if tape is not None:
        tape.refuse("x[x > 0]", "an index that depends on x cannot be recorded; use np.where")


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
