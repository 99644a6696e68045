"""Symbolic tensors: run a torch function once on them and its scalar operations are written onto a tape.

A symbolic tensor holds the tape position of every entry in an integer tensor, so operations that only move entries
(indexing, reshape, stack, ...) are torch's own, applied to the positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from onelayer.errors import UnsupportedOperation
from onelayer.target.tree import Tape

_CONTROL = "Python control flow or conversion on values of x cannot be recorded; write f with torch functions of x"
_SMOOTH = "use torch.relu, torch.abs, torch.maximum, torch.minimum for continuous pieces"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of torch functions and methods that move entries without computing.
STRUCTURAL = _words("""
    getitem reshape view reshape_as view_as stack cat concat concatenate hstack vstack column_stack unsqueeze
    squeeze flatten unflatten ravel expand expand_as broadcast_to permute transpose swapaxes swapdims movedim
    moveaxis t adjoint flip fliplr flipud roll rot90 chunk split tensor_split unbind narrow select
    index_select take_along_dim gather tile repeat repeat_interleave clone contiguous diagonal diag tril triu
    meshgrid atleast_1d atleast_2d atleast_3d pad masked_select where masked_fill unfold broadcast_tensors
    block_diag diag_embed
""")
IDENTITY = _words("""
    to type_as float double detach requires_grad_ cpu cuda positive dropout alpha_dropout
""")
DISCONTINUOUS = _words("""
    floor ceil round trunc frac fix sign sgn heaviside fmod remainder mod floor_divide floordiv argmax argmin
    argsort bucketize searchsorted gt lt ge le eq ne greater less greater_equal less_equal not_equal equal
    isclose threshold hardshrink signbit int long bool
""")
MINUS_INFINITY = -1  # the position that stands for a masked logit; only sums and softmax know it
Operation = TypeVar("Operation", bound=Callable[..., Any])
OPERATIONS: dict[str, Callable[..., Any]] = {}


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Register a function (tape, *args, **kwargs) that records the torch functions called ``names``."""

    def register(function: Operation) -> Operation:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


class Symbolic:
    """A tensor whose entries are nodes of ``tape``; ``ids`` are their positions. Position 0 is the number zero."""

    # numpy must hand arithmetic with a symbolic tensor back to it instead of looping over entries.
    __array_ufunc__ = None

    def __init__(self, tape: Tape, ids: Tensor) -> None:
        self.tape = tape
        self.ids = ids

    shape = property(lambda self: self.ids.shape)
    ndim = property(lambda self: self.ids.ndim)
    dtype = property(lambda self: torch.float64)
    device = property(lambda self: self.ids.device)
    layout = property(lambda self: self.ids.layout)
    requires_grad = property(lambda self: False)
    is_nested = property(lambda self: False)
    is_cuda = property(lambda self: False)
    T = property(lambda self: Symbolic(self.tape, self.ids.T))
    mT = property(lambda self: Symbolic(self.tape, self.ids.mT))

    def dim(self) -> int:
        return self.ids.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.ids.size() if dim is None else self.ids.size(dim)

    def numel(self) -> int:
        return self.ids.numel()

    def is_floating_point(self) -> bool:
        return True

    def is_complex(self) -> bool:
        return False

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Symbolic]:
        return (Symbolic(self.tape, ids) for ids in self.ids)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return dispatch(func, func.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        method = getattr(Tensor, name, None)
        if name.startswith("__") or not callable(method):
            raise AttributeError(f"symbolic tensors have no attribute {name}")
        return lambda *args, **kwargs: dispatch(method, name, (self, *args), kwargs)

    def __getitem__(self, index: Any) -> Symbolic:
        return Symbolic(self.tape, self.ids[_plain(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        # A fresh tensor, so that other views keep their entries as torch.clone would.
        ids = self.ids.clone()
        ids[_plain(index)] = lift(self.tape, value).ids
        self.ids = ids

    def __bool__(self) -> bool:
        raise UnsupportedOperation("bool(x)", f"{_CONTROL}; {_SMOOTH}")

    def __float__(self) -> float:
        raise UnsupportedOperation("float(x)", f"{_CONTROL}, for example torch.sin instead of math.sin")

    def __int__(self) -> int:
        raise UnsupportedOperation("int(x)", _CONTROL)

    __index__ = __int__

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperation("numpy(x)", "write f with torch functions, or give lipschitz= for a NumPy function")

    def item(self) -> float:
        return self.__float__()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        return self.__array__()

    tolist = numpy


def _operator(name: str) -> Callable[..., Any]:
    return lambda self, *args: dispatch(getattr(Tensor, name), name, (self, *args), {})


for _name in _words("add sub mul truediv pow matmul floordiv mod lt le gt ge eq ne"):
    setattr(Symbolic, f"__{_name}__", _operator(f"__{_name}__"))
for _name in _words("add sub mul truediv pow matmul"):
    setattr(Symbolic, f"__r{_name}__", _operator(f"__r{_name}__"))
for _name in _words("neg abs pos"):
    setattr(Symbolic, f"__{_name}__", _operator(f"__{_name}__"))
Symbolic.__hash__ = object.__hash__  # type: ignore[method-assign]


def _plain(index: Any) -> Any:
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, Symbolic):
            raise UnsupportedOperation("x[x]", "an index that depends on x is discontinuous")
    return index


def lift(tape: Tape, value: Any) -> Symbolic:
    """Any number, tensor or symbolic tensor as a symbolic tensor on ``tape``; a float is exactly that float."""
    if isinstance(value, Symbolic):
        return value
    if isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex()):
        raise UnsupportedOperation("complex", "the formula language is real")
    numbers = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    flat = numbers.detach().to(torch.float64).flatten().tolist()
    ids = torch.tensor([MINUS_INFINITY if number == -math.inf else tape.number(number) for number in flat])
    return Symbolic(tape, ids.to(torch.int64).reshape(numbers.shape))


def find_tape(values: Any) -> Tape | None:
    """The tape of the first symbolic tensor among nested arguments."""
    if isinstance(values, Symbolic):
        return values.tape
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        return next((tape for value in values if (tape := find_tape(value)) is not None), None)
    return None


def dispatch(func: Callable[..., Any], full_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Record one torch function: move entries, write operations, or refuse by name."""
    name = full_name.strip("_")
    if full_name.startswith("__i") and name[1:] in OPERATIONS:
        name = name[1:]
    in_place = full_name.endswith("_") and not full_name.endswith("__") and name not in IDENTITY
    tape = find_tape((args, kwargs))
    assert tape is not None
    if full_name in ("__setitem__", "copy_") or (in_place and not isinstance(args[0], Symbolic)):
        raise UnsupportedOperation(full_name, "writing x into a plain tensor; build the result with torch.stack or cat")
    if name in DISCONTINUOUS:
        raise UnsupportedOperation(name, f"it is discontinuous; {_SMOOTH}")
    if name in IDENTITY:
        return _identity(name, args, kwargs)
    if name in STRUCTURAL:
        return _structural(tape, func, name, args, kwargs)
    if name not in OPERATIONS:
        raise UnsupportedOperation(name, "it is not in the formula language")
    result = OPERATIONS[name](tape, *args, **kwargs)
    if in_place:
        args[0].ids = result.ids
        return args[0]
    return result


def _identity(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if name in ("dropout", "alpha_dropout") and (kwargs.get("training", True) and kwargs.get("p", 0.5) != 0):
        raise UnsupportedOperation(name, "random in training mode; call module.eval() first")
    return args[0]


def _structural(tape: Tape, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if name == "where" and isinstance(args[0], Symbolic):
        raise UnsupportedOperation("where", f"a condition that depends on x may be discontinuous; {_SMOOTH}")
    if name == "pad" and ((len(args) > 2 and args[2] != "constant") or kwargs.get("value") not in (None, 0, 0.0)):
        raise UnsupportedOperation("pad", "only zero padding is in the formula language")

    def ids(value: Any, place: int) -> Any:
        if isinstance(value, Symbolic):
            return value.ids
        if isinstance(value, (list, tuple)) and find_tape(value) is not None:
            return type(value)(ids(part, 0) for part in value)
        # Plain tensors among the entries become constants; masks and index tensors stay what they are.
        entries = isinstance(value, Tensor) and value.is_floating_point()
        number = isinstance(value, float) and name in ("where", "masked_fill")
        whole = isinstance(value, int) and place == {"where": place, "masked_fill": 2}.get(name, -1)
        return lift(tape, value).ids if entries or number or whole else value

    moved = func(*(ids(arg, at) for at, arg in enumerate(args)), **{key: ids(arg, 1) for key, arg in kwargs.items()})
    return _wrap(tape, moved)


def _wrap(tape: Tape, moved: Any) -> Any:
    if isinstance(moved, Tensor):
        return Symbolic(tape, moved)
    return tuple(_wrap(tape, part) for part in moved)
